"""Compares the settings of a conformance run with those of the project that attests. Pure.

A run with stricter settings than the project's says nothing about the project. A project that is
stricter than the run keeps what the run showed: that difference is only mentioned.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from scrapy_walsh.config import SETTINGS, Setting, WalshConfig
from scrapy_walsh.exceptions import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: The settings that change what a run shows.
_SHOWN: Final = [each for each in SETTINGS if each.row.stricter is not None]
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

    setting: Setting
    run: Any
    here: Any

    def __str__(self) -> str:
        return f"{self.setting.name} {self.run}, here {self.here}"

    def stricter_run(self) -> bool:
        """Whether the run was stricter than the project, and than the default.

        A project below the default is judged for that by ``document``, whatever the run had.
        """
        row = self.setting.row
        strictness = row.stricter or float
        return strictness(self.run) > max(strictness(self.here), strictness(row.default))


def compare(settings: Mapping[str, Any], config: WalshConfig) -> Terms:
    """Compare *settings*, that member of a conformance record, with *config*, the project's.

    Raises nothing: settings that cannot be read are a problem.
    """
    overrides = settings.get("overrides")
    if not isinstance(overrides, dict):
        return Terms("does not say with which settings it was made")
    names = (*(each.name for each in _SHOWN), _DELAY)
    given = {name: overrides[name] for name in names if name in overrides}
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
    for each in _SHOWN:
        found = _Difference(each, getattr(run, each.field), getattr(here, each.field))
        if found.run != found.here:
            yield found


def _listed(found: list[_Difference]) -> str:
    return "; ".join(map(str, found))
