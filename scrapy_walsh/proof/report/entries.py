"""The runs of a ledger, and members of JSON that is not trusted, read by type. Pure.

A ledger may come from anybody. A member of a line ``started`` whose type is not the one that
docs/ledger.md gives it is read as if it were missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.ledger.files import parsed
from scrapy_walsh.proof.ledger import ENDED, STARTED

if TYPE_CHECKING:
    from collections.abc import Mapping

#: A function that reads the ledger anew at each call: each line's file name, and its octets.
Lines = Callable[[], Iterator[tuple[str, bytes]]]

#: No number of a real ledger is as large as this; one that is was not written by us.
_MOST: Final = 10**15
#: What the lines of interest contain. No string inside a line can look like it, since JSON escapes
#: its quotes. So most lines need not be parsed.
_RUN_NEEDLES: Final = (b'"kind":"started"', b'"kind":"ended"')


@dataclass(slots=True)
class Run:
    """One run. ``terms``: the members of its line ``started``; ``line``: that line's number.

    ``began``, ``ended``: Unix seconds; ``ended`` is None where no line says that the run ended.
    ``reason``: why it ended, Scrapy's ``finish_reason``.
    """

    name: str
    terms: Mapping[str, Any]
    line: int
    began: float
    ended: float | None = None
    reason: str = ""

    @property
    def process(self) -> str:
        """The name of the process that it ran in. Requests of one process never overlap (R4.1)."""
        return text(self.terms, "process") or self.name

    @property
    def settings(self) -> Mapping[str, Any]:
        """Its settings, as its line ``started`` has them."""
        found = self.terms.get("settings")
        return found if isinstance(found, dict) else {}

    def number(self, name: str) -> float | None:
        """The setting *name*, where it is a number."""
        return number(self.settings, name)


def runs_of(lines: Lines) -> dict[str, Run]:
    """The runs of which the ledger has the line ``started``, by name, oldest first."""
    runs: dict[str, Run] = {}
    for _, raw in lines():
        if any(needle in raw for needle in _RUN_NEEDLES):
            _note_run(runs, raw.removesuffix(b"\n"))
    return runs


def _note_run(runs: dict[str, Run], line: bytes) -> None:
    try:
        entry = parsed(line)
    except (ValueError, RecursionError):
        return  # a damaged line, which the hash chain reports
    name, at = text(entry, "run"), number(entry, "at")
    if entry["kind"] == STARTED and at is not None and name not in runs:
        runs[name] = Run(name, entry, entry["n"], at)
    elif entry["kind"] == ENDED and name in runs:
        runs[name].ended, runs[name].reason = at, text(entry, "reason")


def number(entry: Mapping[str, Any], name: str) -> float | None:
    """The number *name*; None if it is missing, not finite, or larger than any in a ledger."""
    value = entry.get(name)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    return float(value) if abs(value) < _MOST else None


def text(entry: Mapping[str, Any], name: str) -> str:
    """The string *name*; empty if it is missing."""
    value = entry.get(name)
    return value if isinstance(value, str) else ""
