"""The runs of a ledger, found in its lines; and members of JSON that is not trusted, by type. Pure.

A member of another type than the format gives it counts as not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.ledger.lines import parsed
from scrapy_walsh.ledger.reading import ENDED, STARTED

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Gives, each time it is called, every line: the name of its file, and its octets.
Lines = Callable[[], Iterator[tuple[str, bytes]]]

#: A number beyond this is none that a ledger has.
_MOST: Final = 10**15
#: In a line's octets: quotes inside of its strings are escaped, so nothing else looks like it.
_RUN_NEEDLES: Final = (b'"kind":"started"', b'"kind":"ended"')


@dataclass(slots=True)
class Run:
    """One crawl. ``terms``: its ``started`` line; ``ended``: Unix seconds, None while unknown."""

    name: str
    terms: Mapping[str, Any]
    line: int
    began: float
    ended: float | None = None
    reason: str = ""

    @property
    def process(self) -> str:
        """What names the process that it ran in; of one process no two requests overlap."""
        return text(self.terms, "process") or self.name

    def setting(self, name: str) -> Any:
        """A setting that it ran with; None where it does not say."""
        settings = self.terms.get("settings")
        return settings.get(name) if isinstance(settings, dict) else None


def runs_of(lines: Lines) -> dict[str, Run]:
    """The runs of a ledger whose start it holds, by name, oldest first."""
    runs: dict[str, Run] = {}
    for _, raw in lines():
        if any(needle in raw for needle in _RUN_NEEDLES):
            _note_run(runs, raw.removesuffix(b"\n"))
    return runs


def _note_run(runs: dict[str, Run], line: bytes) -> None:
    try:
        entry = parsed(line)
    except (ValueError, RecursionError):
        return  # the chain names it
    name, at = text(entry, "run"), number(entry, "at")
    if entry["kind"] == STARTED and at is not None and name not in runs:
        runs[name] = Run(name, entry, entry["n"], at)
    elif entry["kind"] == ENDED and name in runs:
        runs[name].ended, runs[name].reason = at, text(entry, "reason")


def number(entry: Mapping[str, Any], name: str) -> float | None:
    """A number that a ledger may have, or None: what is not finite, or huge, is none."""
    value = entry.get(name)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    return float(value) if abs(value) < _MOST else None


def whole(entry: Mapping[str, Any], name: str) -> int | None:
    """A whole number, or None."""
    value = entry.get(name)
    return value if type(value) is int and abs(value) < _MOST else None


def text(entry: Mapping[str, Any], name: str) -> str:
    """A string; empty where there is none."""
    value = entry.get(name)
    return value if isinstance(value, str) else ""


def texts(entry: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """A list of strings; empty where there is none."""
    value = entry.get(name)
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()
