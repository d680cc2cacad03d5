"""Makes a Scrapy project conform to the Walsh-Research Bot Compliance Specification v1.3.

For example, judge one URL by a robots.txt:

    >>> from scrapy_walsh import check
    >>> text = "User-agent: *\\nDisallow: /private\\n"
    >>> verdict = check("https://site.example/private", robots=text, token="ExampleBot")
    >>> verdict.requirement, verdict.name
    ('R2', 'disallowed_explicit')

The public names are in ``__all__``; docs/api.md describes them. They are imported at first use, so
``import scrapy_walsh`` loads neither Scrapy nor Twisted. Nor do :func:`check` and :func:`robots`.
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

if not TYPE_CHECKING:  # with it, a type checker would accept every name

    def __getattr__(name: str) -> object:
        """Import a public name at first use. Raises AttributeError for any other name."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module  # noqa: PLC0415

        value = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return value

    def __dir__() -> list[str]:
        """Return the names for help and completion."""
        return sorted({*globals(), *__all__})
