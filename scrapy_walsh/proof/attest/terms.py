"""The settings that a conformance run was made with, beside those of the project that attests.

What a run of stricter settings showed, a project without them does not show. The other way round
is only said: who is stricter than the run keeps what it showed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from scrapy_walsh.config import DEFAULTS, WalshConfig
from scrapy_walsh.exceptions import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_POSITIONS: Final = {"allow": 0, "defer": 1, "deny": 1}
#: The settings that bear on what a run shows, and how much each value holds a crawl back.
_HOLDING_BACK: Final[Mapping[str, Callable[[Any], float]]] = {
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
#: Scrapy's own, which raises WALSH_MIN_INTERVAL.
_DELAY: Final = "DOWNLOAD_DELAY"


class Terms(NamedTuple):
    """``problem``: why the run does not speak for the project; ``note``: how else they differ."""

    problem: str | None = None
    note: str | None = None


class _Difference(NamedTuple):
    name: str
    run: Any
    here: Any

    def __str__(self) -> str:
        return f"{self.name} {self.run}, here {self.here}"

    def stricter_run(self) -> bool:
        """Whether the run was held back more than the project is, and than the specification asks.

        A project below a default is judged for that by itself (``document``).
        """
        rank = _HOLDING_BACK[self.name]
        return rank(self.run) > max(rank(self.here), rank(DEFAULTS[self.name]))


def compare(settings: Mapping[str, Any], config: WalshConfig) -> Terms:
    """The member ``settings`` of a record, beside the project's *config*. Never raises."""
    overrides = settings.get("overrides")
    if not isinstance(overrides, dict):
        return Terms("does not say its settings")
    given = {name: overrides[name] for name in (*_HOLDING_BACK, _DELAY) if name in overrides}
    try:
        run = WalshConfig.from_settings({**given, "WALSH_IDENTITY": "walsh-research"}, Path)
    except ConfigError as error:
        return Terms(f"is of settings that no run has ({error})")
    found = list(_differences(run, config))
    stricter = [each for each in found if each.stricter_run()]
    if stricter:
        return Terms(f"is of a run with stricter settings ({_listed(stricter)})")
    return Terms(note=f"the conformance run had {_listed(found)}" if found else None)


def _differences(run: WalshConfig, here: WalshConfig) -> Iterator[_Difference]:
    for name in _HOLDING_BACK:
        field = name.removeprefix("WALSH_").lower()
        found = _Difference(name, getattr(run, field), getattr(here, field))
        if found.run != found.here:
            yield found


def _listed(found: list[_Difference]) -> str:
    return "; ".join(map(str, found))
