"""The runs of a ledger, and members of JSON that is not trusted, read by type. Pure.

A ledger or a source report may come from anybody. A member of a line ``started`` whose type is not
the one that docs/ledger.md gives it is read as if it were missing. A source report with such a
member (docs/spider.md) is none.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, convert

from scrapy_walsh.exceptions import WalshError
from scrapy_walsh.ledger.files import parsed
from scrapy_walsh.policy.recrawl import FAILED, LEFT_OUT, NOT_REQUESTED, REFUSED
from scrapy_walsh.policy.verdict import DEFERRED, NOT_DUE
from scrapy_walsh.proof.ledger import ENDED, STARTED
from scrapy_walsh.sources import report as outcomes

if TYPE_CHECKING:
    from collections.abc import Mapping

# Reads the source report of the spider ``walsh_metadata``, a JSON file (docs/spider.md). Pure.

#: The order of outcomes: what the operator should look at comes first.
_ORDER: Final = (
    FAILED, LEFT_OUT, REFUSED, DEFERRED, NOT_DUE, NOT_REQUESTED,
    outcomes.NOT_MODIFIED, outcomes.FED, outcomes.SITEMAP, outcomes.NEGOTIATED, outcomes.LLMS,
)  # fmt: skip


class NoReport(WalshError):
    """The file is not a source report; the message says why."""


class _Requests(Struct):
    sources: int
    documents: int


class _Document(Struct):
    sources: list[outcomes.Row]
    problems: list[str] = []
    requests: _Requests | None = None


@dataclass(frozen=True, slots=True)
class Sources:
    """A source report.

    ``rows``: its sources, those to look at first come first. ``outcomes``: how many sources had
    each. ``problems``: what is wrong with entries of the list. ``requests``: for sources and for
    documents together; None where they are not counted.
    """

    rows: tuple[outcomes.Row, ...]
    outcomes: Mapping[str, int]
    problems: list[str]
    requests: int | None


def read_sources(body: bytes) -> Sources:
    """The source report in *body*. Raises NoReport where it is none."""
    try:
        found = convert(json.loads(body), _Document)
    except (ValueError, RecursionError) as error:
        why = f"is not a source report (see -a report=FILE): {str(error)[:200]}"
        raise NoReport(why) from None
    rows, asked = tuple(sorted(found.sources, key=_place)), found.requests
    requests = None if asked is None else asked.sources + asked.documents
    return Sources(rows, Counter(map(outcome, rows)), found.problems, requests)


def outcome(row: outcomes.Row) -> str:
    """The outcome of a source. It has none if the run ended before the source was done."""
    return row.outcome or "not ended"


def _place(row: outcomes.Row) -> int:
    name = outcome(row)
    return _ORDER.index(name) if name in _ORDER else -1


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
