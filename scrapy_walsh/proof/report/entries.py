"""The runs of a ledger, and members of JSON that is not trusted, read by type. Pure.

A ledger or a source report may come from anybody. A member whose type is not the one that the
format gives it (docs/ledger.md, docs/spider.md) is read as if it were missing.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.exceptions import WalshError
from scrapy_walsh.ledger.lines import parsed
from scrapy_walsh.ledger.reading import ENDED, STARTED
from scrapy_walsh.sources import report as outcomes

if TYPE_CHECKING:
    from collections.abc import Mapping

# Reads the source report of the spider ``walsh_metadata``, a JSON file (docs/spider.md). Pure.

#: The order of outcomes: what the operator should look at comes first.
_ORDER: Final = (
    outcomes.FAILED, outcomes.LEFT_OUT, outcomes.REFUSED, outcomes.DEFERRED, outcomes.NOT_DUE,
    outcomes.NOT_MODIFIED, outcomes.FED, outcomes.SITEMAP, outcomes.NEGOTIATED, outcomes.LLMS,
)  # fmt: skip


class NoReport(WalshError):
    """The file is not a source report; the message says why."""


@dataclass(frozen=True, slots=True)
class Sources:
    """What a source report says.

    ``rows``: one for each source, as in the file; those to look at come first. ``outcomes``: number
    of rows by outcome. ``problems``: entries of the source file that cannot be used. ``requests``:
    those for sources and for documents together; None where the file does not say. ``items``:
    number of items. ``bytes``: octets of the sources' bodies.
    """

    rows: tuple[Mapping[str, Any], ...]
    outcomes: Mapping[str, int]
    problems: tuple[str, ...]
    requests: int | None
    items: int
    bytes: int


def read_sources(body: bytes) -> Sources:
    """The report in *body*, the content of the file that ``-a report=FILE`` wrote. Raises NoReport.

    Only the list of sources must be there. All else that is missing or of another type is left out.
    """
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise NoReport(f"is not JSON: {str(error)[:200]}") from None
    rows = found.get("sources") if isinstance(found, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise NoReport("is not a source report: it has no list of sources (see -a report=FILE)")
    return Sources(
        tuple(sorted(rows, key=_place)),
        Counter(outcome(row) for row in rows),
        texts(found, "problems"),
        _requests(found.get("requests")),
        sum(whole(row, "items") or 0 for row in rows),
        sum(whole(row, "bytes") or 0 for row in rows),
    )


def outcome(row: Mapping[str, Any]) -> str:
    """The outcome of a source. It has none if the run ended before the source was done."""
    return text(row, "outcome") or "not ended"


def _place(row: Mapping[str, Any]) -> int:
    name = outcome(row)
    return _ORDER.index(name) if name in _ORDER else -1


def _requests(found: object) -> int | None:
    if not isinstance(found, dict):
        return None
    sources, documents = whole(found, "sources"), whole(found, "documents")
    return None if sources is None or documents is None else sources + documents


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

    def setting(self, name: str) -> Any:
        """The value of the setting *name* as its line ``started`` has it; None if it has none."""
        settings = self.terms.get("settings")
        return settings.get(name) if isinstance(settings, dict) else None


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


def whole(entry: Mapping[str, Any], name: str) -> int | None:
    """The whole number *name*; None if it is missing, or larger than any in a ledger."""
    value = entry.get(name)
    return value if type(value) is int and abs(value) < _MOST else None


def text(entry: Mapping[str, Any], name: str) -> str:
    """The string *name*; empty if it is missing."""
    value = entry.get(name)
    return value if isinstance(value, str) else ""


def texts(entry: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """The strings of the list *name*; empty if it is missing."""
    value = entry.get(name)
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()
