"""The items that the spiders of this package yield."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class MetadataItem:
    """One link of a source: metadata, never content (R6.4).

    ``source``: the source's name. ``title``: plain text. ``url``: of the link, absolute.
    ``published``: ISO 8601 in UTC, for example ``2026-03-01T00:00:00Z``, or None. ``via``:
    ``feed``, ``sitemap``, ``markdown`` or ``llms.txt``. ``canonical_url``: R7's key for
    de-duplication. ``fetched_at``: ISO 8601 in UTC. ``usage``: the site's statements about the use
    of the answer that has the link (``usage.as_member``), or None without any.
    """

    source: str
    title: str
    url: str
    published: str | None
    via: str
    canonical_url: str
    fetched_at: str
    usage: dict[str, Any] | None = None
