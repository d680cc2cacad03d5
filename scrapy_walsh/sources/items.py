"""What the spiders of this package yield."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class MetadataItem:
    """One link of a source: metadata, never content (R6.4).

    ``source``: the source's name. ``title``: plain text. ``published``: UTC ISO 8601 or None.
    ``via``: ``feed``, ``markdown`` or ``llms.txt``. ``canonical_url``: the de-duplication key
    of R7. ``fetched_at``: UTC ISO 8601.
    """

    source: str
    title: str
    url: str
    published: str | None
    via: str
    canonical_url: str
    fetched_at: str
