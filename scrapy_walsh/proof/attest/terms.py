"""Compares the settings of a conformance run with those of the project that attests. Pure.

A run with stricter settings than the project's says nothing about the project. A project that is
stricter than the run keeps what the run showed: that difference is only mentioned.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from scrapy_walsh.config import DEFAULTS, WalshConfig
from scrapy_walsh.exceptions import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

#: How strict each value of WALSH_ROBOTS_UNREACHABLE and WALSH_BLOCKLIST_UNREACHABLE is.
_POSITIONS: Final = {"allow": 0, "defer": 1, "deny": 1}
#: The settings that change what a run shows, each with a function of its value: the larger the
#: result, the stricter.
_STRICTNESS: Final[Mapping[str, Callable[[Any], float]]] = {
    "WALSH_MIN_INTERVAL": float,
    "WALSH_MAX_RETRIES": lambda value: -value,
    "WALSH_BACKOFF_BASE": float,
    "WALSH_BACKOFF_CAP": float,
    "WALSH_ROBOTS_TTL": lambda value: -value,
    "WALSH_ROBOTS_UNREACHABLE": _POSITIONS.__getitem__,
    "WALSH_BLOCKLIST_UNREACHABLE": _POSITIONS.__getitem__,
    "WALSH_PACE_ROBOTS": float,
    "WALSH_REVISIT": float,
}
#: Scrapy's setting that can raise WALSH_MIN_INTERVAL.
_DELAY: Final = "DOWNLOAD_DELAY"


class Terms(NamedTuple):
    """``problem``: why the run says nothing about the project. ``note``: differences that are fine.

    Each in one line; None where there is nothing to say.
    """

    problem: str | None = None
    note: str | None = None


class _Difference(NamedTuple):
    """A setting whose value in the run differs from that of the project (``here``)."""

    name: str
    run: Any
    here: Any

    def __str__(self) -> str:
        return f"{self.name} {self.run}, here {self.here}"

    def stricter_run(self) -> bool:
        """Whether the run was stricter than the project, and than the default.

        A project below the default is judged for that by ``document``, whatever the run had.
        """
        strictness = _STRICTNESS[self.name]
        return strictness(self.run) > max(strictness(self.here), strictness(DEFAULTS[self.name]))


def compare(settings: Mapping[str, Any], config: WalshConfig) -> Terms:
    """Compare *settings*, that member of a conformance record, with *config*, the project's.

    Raises nothing: settings that cannot be read are a problem.
    """
    overrides = settings.get("overrides")
    if not isinstance(overrides, dict):
        return Terms("does not say with which settings it was made")
    given = {name: overrides[name] for name in (*_STRICTNESS, _DELAY) if name in overrides}
    try:
        run = WalshConfig.from_settings({**given, "WALSH_IDENTITY": "walsh-research"}, Path)
    except ConfigError as error:
        return Terms(f"has settings with which nothing can run ({error})")
    found = list(_differences(run, config))
    stricter = [each for each in found if each.stricter_run()]
    if stricter:
        return Terms(f"is of a run with stricter settings ({_listed(stricter)})")
    return Terms(note=f"the conformance run had {_listed(found)}" if found else None)


def _differences(run: WalshConfig, here: WalshConfig) -> Iterator[_Difference]:
    for name in _STRICTNESS:
        field = name.removeprefix("WALSH_").lower()
        found = _Difference(name, getattr(run, field), getattr(here, field))
        if found.run != found.here:
            yield found


def _listed(found: list[_Difference]) -> str:
    return "; ".join(map(str, found))
