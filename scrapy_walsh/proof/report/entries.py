"""A ledger read line by line: its chain followed, its runs found, members by type.

Pure: lines come as octets, with the place that they stand at. What a line says is not trusted; a
member of another type than the format gives it counts as not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.ledger.lines import GENESIS, digest_of, parsed

if TYPE_CHECKING:
    from collections.abc import Mapping

Entry = dict[str, Any]
#: Gives, each time it is called, every line without its line end: file name, place in it, octets.
Lines = Callable[[], Iterator[tuple[str, int, bytes]]]

STARTED: Final = "started"
ENDED: Final = "ended"
GAP: Final = "gap"
#: Breaks of the chain that are kept, to be named.
_BREAKS_KEPT: Final = 20
#: A number beyond this is none that a ledger has.
_MOST: Final = 10**15
#: In a line's octets: quotes inside of its strings are escaped, so nothing else looks like it.
_RUN_NEEDLES: Final = (b'"kind":"started"', b'"kind":"ended"')


@dataclass(frozen=True, slots=True)
class Break:
    """A line that does not fit the chain: where it stands, its number if it has one, and why."""

    file: str
    place: int
    number: int | None
    why: str


@dataclass(slots=True)
class Chain:
    """Follows the hashes over the lines as they come (``ledger.lines``)."""

    first: int = 0
    number: int = 0
    head: str = ""
    count: int = 0
    broken: int = 0
    breaks: list[Break] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def take(self, file: str, place: int, line: bytes) -> Entry | None:
        """The members of the next line; None where it is none."""
        self.count += 1
        try:
            entry = parsed(line)
        except (ValueError, RecursionError) as error:
            self._break(file, place, None, str(error))
            return None
        why = self._misfit(entry, line)
        if why:
            self._break(file, place, entry["n"], why)
        self.first = self.first or entry["n"]
        self.number, self.head = entry["n"], line[-66:-2].decode("ascii", "replace")
        if entry["kind"] == GAP:
            self.lost.append(text(entry, "reason") or "lines are missing")
        return entry

    def _misfit(self, entry: Entry, line: bytes) -> str:
        if entry.get("hash") != digest_of(line):
            return "was altered: its hash does not fit it"
        if not self.head:
            begins = entry["n"] != 1 or entry["prev"] == GENESIS
            return "" if begins else "is the first, but is chained to another"
        if entry["n"] != self.number + 1:
            return f"does not follow line {self.number}: lines are missing, moved or repeated"
        return "" if entry["prev"] == self.head else "is not chained to the line before it"

    def _break(self, file: str, place: int, number: int | None, why: str) -> None:
        self.broken += 1
        if len(self.breaks) < _BREAKS_KEPT:
            self.breaks.append(Break(file, place, number, why))


@dataclass(slots=True)
class Run:
    """One crawl. ``terms``: its ``started`` line; ``ended``: Unix seconds, None while unknown."""

    name: str
    terms: Entry
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
    for _, _, line in lines():
        if any(needle in line for needle in _RUN_NEEDLES):
            _note_run(runs, line)
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
