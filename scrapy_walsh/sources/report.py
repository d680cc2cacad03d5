"""The source report: for each source what became of it, by which requirement, and why."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final

from scrapy_walsh.exceptions import SourcesInvalid
from scrapy_walsh.policy import visits
from scrapy_walsh.policy.readings import NOT_REQUESTED
from scrapy_walsh.policy.verdict import NOT_DUE
from scrapy_walsh.terminal import columns, local

#: Beside those of ``policy.readings``.
FED: Final = "fed"
NEGOTIATED: Final = "negotiated"
LLMS: Final = "llms.txt"
SITEMAP: Final = "sitemap"
NOT_MODIFIED: Final = "not_modified"

#: The outcomes of a source that was read: its data came, or it has not changed.
READ: Final = frozenset({FED, SITEMAP, NEGOTIATED, LLMS, NOT_MODIFIED})


@dataclass(slots=True)
class Row:
    """The line of one source. ``outcome`` is None as long as the source is not finished.

    ``requirement``: the spec's id (``R2``), or "". ``reason``: one line, without ``next_due``.
    ``requests``: those that were sent for it, with redirects and retries; one that two sources
    share counts for the first. ``bytes``: of the bodies received. ``items``: emitted. ``new``:
    links found that no earlier run emitted; ``known``: links that one did. ``moved_to``: where
    permanent redirects led.
    ``suggested_feeds``: feeds that the source offers and nobody declared, and the new place of a
    declared one that has moved for good. ``suggested_sitemaps``: those that robots.txt names and
    nobody declared. ``next_due``: ISO 8601 in UTC, before which no run requests the source; None
    where the next run does.
    """

    source: str
    url: str
    outcome: str | None = None
    requirement: str = ""
    reason: str = ""
    requests: int = 0
    bytes: int = 0
    items: int = 0
    new: int = 0
    known: int = 0
    moved_to: str | None = None
    suggested_feeds: list[str] = field(default_factory=list)
    suggested_sitemaps: list[str] = field(default_factory=list)
    next_due: str | None = None


def check_writable(path: str) -> None:
    """Raise SourcesInvalid where a report cannot be written to *path*: called before the crawl."""
    target = Path(path)
    try:  # a file that is there stays as it is, and none is left where none was
        if target.is_fifo():  # who reads it would get its end, and no report later
            return
        with target.open("ab") if target.exists() else TemporaryFile(dir=target.parent):
            pass
    except OSError as error:
        raise _cannot(path, error) from error


def write(document: dict[str, Any], path: str) -> None:
    """Write a report to *path* as JSON; SourcesInvalid where that fails."""
    text = json.dumps(document, indent=2) + "\n"
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise _cannot(path, error) from error


def _cannot(path: str, error: OSError) -> SourcesInvalid:
    return SourcesInvalid(f"-a report={path}: cannot be written: {error.strerror or error}")


def as_document(rows: list[Row], problems: list[str], documents: int) -> dict[str, Any]:
    """The report as JSON data: ``sources``, ``problems`` and ``requests``.

    ``documents``: requests for robots.txt files, the operator's blocklist and its schema.
    """
    return {
        "sources": [_members(row) for row in rows],
        "problems": problems,
        "requests": {"sources": sum(row.requests for row in rows), "documents": documents},
    }


def _members(row: Row) -> dict[str, Any]:
    members = asdict(row)
    if row.outcome == NOT_DUE and row.next_due is not None:
        members["reason"] = visits.reason_of(row.reason, row.next_due)
    return members


_COUNTS: Final = ("requests", "bytes", "new", "known")
_HEADINGS: Final = ("source", "outcome", "by", *_COUNTS, "next due", "why")
_NUMBERS: Final = range(3, 7)
_WIDEST: Final = 40


def as_lines(rows: list[Row]) -> list[str]:
    """The report as a table in text: a line of headings, then one for each source."""
    names = Counter(row.source for row in rows)
    return list(columns([_HEADINGS, *(_cells(row, names) for row in rows)], right=_NUMBERS))


def _cells(row: Row, names: Counter[str]) -> tuple[str, ...]:
    counts = (str(row.requests), str(row.bytes), str(row.new), str(row.known))
    name = row.source if names[row.source] == 1 else row.url  # unnamed sources of one host
    name = name if len(name) <= _WIDEST else name[: _WIDEST - 1] + "…"
    due = local(datetime.fromisoformat(row.next_due).timestamp()) if row.next_due else "next run"
    return (name, row.outcome or NOT_REQUESTED, row.requirement or "-", *counts, due, _why(row))


def _why(row: Row) -> str:
    hints = [row.reason]
    if row.moved_to:
        hints.append(f"moved for good to {row.moved_to}")
    if offered := [feed for feed in row.suggested_feeds if feed != row.moved_to]:
        hints.append(f"offers a feed: {', '.join(offered)}")
    if row.suggested_sitemaps and row.outcome not in READ:  # else nearly every line would say so
        hints.append(f"robots.txt names a sitemap: {', '.join(row.suggested_sitemaps)}")
    return "; ".join(hint for hint in hints if hint)
