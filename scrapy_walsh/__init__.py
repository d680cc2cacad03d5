"""Makes a Scrapy project conform to the Walsh-Research Bot Compliance Specification v1.3.

The names in ``__all__`` are the public face; docs/api.md describes each. They are imported on
first use: ``import scrapy_walsh`` loads neither Scrapy nor Twisted, nor do :func:`check` and
:func:`robots`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scrapy_walsh.spec import SPEC_VERSION, __version__

if TYPE_CHECKING:
    from scrapy_walsh.adapters.outcomes import GaveUp, NotModified, Refused
    from scrapy_walsh.adapters.robot_parser import RobotParser
    from scrapy_walsh.adapters.seats import Addon
    from scrapy_walsh.exceptions import WalshError
    from scrapy_walsh.policy.given import check, robots
    from scrapy_walsh.policy.verdict import Verdict

__all__ = [
    "SPEC_VERSION",
    "Addon",
    "GaveUp",
    "NotModified",
    "Refused",
    "RobotParser",
    "Verdict",
    "WalshError",
    "__version__",
    "check",
    "robots",
]

_HOMES: Final = {
    "Addon": "scrapy_walsh.adapters.seats",
    "GaveUp": "scrapy_walsh.adapters.outcomes",
    "NotModified": "scrapy_walsh.adapters.outcomes",
    "Refused": "scrapy_walsh.adapters.outcomes",
    "RobotParser": "scrapy_walsh.adapters.robot_parser",
    "Verdict": "scrapy_walsh.policy.verdict",
    "WalshError": "scrapy_walsh.exceptions",
    "check": "scrapy_walsh.policy.given",
    "robots": "scrapy_walsh.policy.given",
}

if not TYPE_CHECKING:  # a type checker would take every name for one that is there

    def __getattr__(name: str) -> object:
        """Import what is asked for from its home. Raises AttributeError for other names."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module  # noqa: PLC0415

        found = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return found

    def __dir__() -> list[str]:
        """The names that help and completion show."""
        return sorted({*globals(), *__all__})
