"""The source report: the outcome of each source, its requirement, and its reason.

For example, a source with a feed is ``fed``, and an HTML page without one is ``left_out`` (R9).
People read "read: feed" and "left out: HTML only" (:func:`label`).
"""

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
from scrapy_walsh.policy.readings import LEFT_OUT, NOT_REQUESTED
from scrapy_walsh.policy.verdict import NOT_DUE
from scrapy_walsh.terminal import columns, local, shown

#: These are besides the outcomes of ``policy.readings``.
FED: Final = "fed"
NEGOTIATED: Final = "negotiated"
LLMS: Final = "llms.txt"
SITEMAP: Final = "sitemap"
NOT_MODIFIED: Final = "not_modified"

#: The outcomes of a source that was read: its data came, or it has not changed.
READ: Final = frozenset({FED, SITEMAP, NEGOTIATED, LLMS, NOT_MODIFIED})

#: The words for people, if they differ from the value.
_LABELS: Final = {
    FED: "read: feed",
    SITEMAP: "read: sitemap",
    NEGOTIATED: "read: markdown",
    LLMS: "read: llms.txt",
    NOT_MODIFIED: "unchanged",
}


def label(outcome: str, *, only_html: bool = False) -> str:
    """The words for people for an *outcome*. *only_html*: of its row."""
    if only_html and outcome == LEFT_OUT:
        return "left out: HTML only"
    return _LABELS.get(outcome, outcome.replace("_", " "))


@dataclass(slots=True)
class ReportRow:
    """The row of a source in the report. ``outcome`` is None until the source has ended.

    ``requirement``: the spec's id (``R2``), or "". ``reason``: one line, without ``next_due``.
    ``requests``: the number sent for it, with redirects and retries; a shared request counts for
    the first source.
    ``bytes``: of the bodies received. ``items``: emitted. ``new``: links that no earlier run
    emitted; ``known``: links that an earlier run emitted. ``moved_to``: the target of permanent
    redirects.
    ``only_html``: its page, and its feed if it declares one, were HTML.
    ``suggested_feeds``: feeds that the source offers and that are not declared, and the new URL of
    a declared feed that has moved for good. ``suggested_sitemaps``: sitemaps that robots.txt names
    and that are not declared. ``next_due``: no run requests the source before, ISO 8601 in UTC;
    None if the next run may.
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
    only_html: bool = False


def check_writable(path: str) -> None:
    """Raise SourcesInvalid if a report cannot be written to *path*. Called before the crawl."""
    target = Path(path)
    try:  # an existing file stays as it is, and no new file is left behind
        if target.is_fifo():  # its reader would get its end, and later no report
            return
        with target.open("ab") if target.exists() else TemporaryFile(dir=target.parent):
            pass
    except OSError as error:
        raise _cannot(path, error) from error


def write(document: dict[str, Any], path: str) -> None:
    """Write a report to *path* as JSON. Raises SourcesInvalid if that fails."""
    text = shown(json.dumps(document, indent=2)) + "\n"
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise _cannot(path, error) from error


def _cannot(path: str, error: OSError) -> SourcesInvalid:
    return SourcesInvalid(f"-a report={path}: cannot be written: {error.strerror or error}")


def as_document(rows: list[ReportRow], problems: list[str], documents: int) -> dict[str, Any]:
    """The report as JSON data: ``sources``, ``problems`` and ``requests``.

    ``documents``: requests for robots.txt files, the operator's blocklist and its schema.
    """
    return {
        "sources": [_members(row) for row in rows],
        "problems": problems,
        "requests": {"sources": sum(row.requests for row in rows), "documents": documents},
    }


def _members(row: ReportRow) -> dict[str, Any]:
    members = asdict(row)
    if row.outcome == NOT_DUE and row.next_due is not None:
        members["reason"] = visits.reason_of(row.reason, row.next_due)
    return members


_COUNTS: Final = ("requests", "bytes", "new", "known")
_HEADINGS: Final = ("source", "outcome", "rule", *_COUNTS, "next due", "why")
_NUMBERS: Final = range(3, 7)
_WIDEST: Final = 40


def as_lines(rows: list[ReportRow]) -> list[str]:
    """The report as a table in text: a line of headings, then a line for each source."""
    names = Counter(row.source for row in rows)
    return list(columns([_HEADINGS, *(_cells(row, names) for row in rows)], right=_NUMBERS))


def _cells(row: ReportRow, names: Counter[str]) -> tuple[str, ...]:
    counts = (str(row.requests), str(row.bytes), str(row.new), str(row.known))
    name = row.source if names[row.source] == 1 else row.url  # several unnamed sources of a host
    if len(name) > _WIDEST:
        name = name[: _WIDEST - 1] + "…"
    due = "next run"
    if row.next_due:
        due = local(datetime.fromisoformat(row.next_due).timestamp())
    outcome = label(row.outcome or NOT_REQUESTED, only_html=row.only_html)
    return (name, outcome, row.requirement or "-", *counts, due, _why(row))


def _why(row: ReportRow) -> str:
    hints = [row.reason]
    if row.moved_to:
        hints.append(f"moved for good to {row.moved_to}")
    feeds = [feed for feed in row.suggested_feeds if feed != row.moved_to]
    if feeds:
        hints.append(f"offers a feed: {', '.join(feeds)}")
    if row.suggested_sitemaps and row.outcome not in READ:  # nearly every robots.txt names one
        hints.append(f"robots.txt names a sitemap: {', '.join(row.suggested_sitemaps)}")
    return "; ".join(hint for hint in hints if hint)
