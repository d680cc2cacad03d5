"""Reads the source report of the spider ``walsh_metadata``, a JSON file (docs/spider.md). Pure."""

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
