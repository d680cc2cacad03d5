"""Times as ISO 8601 in UTC, in messages and in items."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

LAST_SECOND: Final = 253402300799.0
"""Unix seconds: the last that a date can name. A Crawl-delay may lead beyond the calendar."""


def iso(seconds: float) -> str:
    """Unix seconds as a UTC time, ``2026-05-23T00:00:00Z``; :data:`LAST_SECOND` for later ones."""
    return datetime.fromtimestamp(min(seconds, LAST_SECOND), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def utc_iso(moment: datetime) -> str | None:
    """*moment* as ``2026-05-23T00:00:00Z``, read as UTC if it is naive.

    None where its time in UTC is outside the years 1 to 9999.
    """
    try:
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return aware.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat() + "Z"
    except (OverflowError, ValueError):
        return None
