"""The source report of ``walsh_metadata``, as its JSON has it (docs/spider.md). Pure."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.exceptions import WalshError
from scrapy_walsh.proof.report.entries import text, texts, whole
from scrapy_walsh.sources import report as outcomes

if TYPE_CHECKING:
    from collections.abc import Mapping

#: What needs a look comes first.
_ORDER: Final = (
    outcomes.FAILED, outcomes.LEFT_OUT, outcomes.REFUSED, outcomes.DEFERRED, outcomes.NOT_DUE,
    outcomes.NOT_MODIFIED, outcomes.FED, outcomes.NEGOTIATED, outcomes.LLMS,
)  # fmt: skip


class NoReport(WalshError):
    """What was given is no source report."""


@dataclass(frozen=True, slots=True)
class Sources:
    """``rows``: as in the file, what needs a look first. ``outcomes``: rows by outcome.

    ``requests``: those for sources and for documents together; None where it does not say.
    """

    rows: tuple[Mapping[str, Any], ...]
    outcomes: Mapping[str, int]
    problems: tuple[str, ...]
    requests: int | None
    items: int
    bytes: int


def read_sources(body: bytes) -> Sources:
    """Read the JSON of ``-a report=FILE``; NoReport."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise NoReport(f"is not JSON: {str(error)[:200]}") from None
    rows = found.get("sources") if isinstance(found, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise NoReport("is no source report: it has no list of sources (see -a report=FILE)")
    return Sources(
        tuple(sorted(rows, key=_place)),
        Counter(outcome(row) for row in rows),
        texts(found, "problems"),
        _requests(found.get("requests")),
        sum(whole(row, "items") or 0 for row in rows),
        sum(whole(row, "bytes") or 0 for row in rows),
    )


def outcome(row: Mapping[str, Any]) -> str:
    """What came of a source; one without an outcome was still being asked."""
    return text(row, "outcome") or "not ended"


def _place(row: Mapping[str, Any]) -> int:
    name = outcome(row)
    return _ORDER.index(name) if name in _ORDER else -1


def _requests(told: object) -> int | None:
    if not isinstance(told, dict):
        return None
    sources, documents = whole(told, "sources"), whole(told, "documents")
    return None if sources is None or documents is None else sources + documents
