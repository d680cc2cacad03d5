"""Times as ISO 8601 in UTC; durations as people read them."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Final

LAST_SECOND: Final = 253402300799.0
"""Unix seconds: the last that a date can name. A Crawl-delay may lead beyond the calendar."""


def iso(seconds: float) -> str:
    """Unix seconds as a UTC time, ``2026-05-23T00:00:00Z``; :data:`LAST_SECOND` for later ones."""
    return datetime.fromtimestamp(min(seconds, LAST_SECOND), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def duration(seconds: float) -> str:
    """A duration as people read it, in two units at most: ``0.002 s``, ``1.5 s``, ``1 d 2 h``."""
    if not math.isfinite(seconds):
        return "?"
    size = abs(seconds)
    if size < 120:
        exact = size < 10 and seconds != int(seconds)
        return f"{seconds:.3f} s" if exact else f"{seconds:.4g} s"
    return ("-" if seconds < 0 else "") + _in_two_units(size)


def _in_two_units(size: float) -> str:
    """*size*: seconds, 120 or more."""
    units = (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1))
    unit, length, smaller, part = next(row for row in units if size >= row[1])
    rounded = int(size + 0.5 * part)
    count, remainder = rounded // length, rounded % length
    smaller_part = f" {remainder // part} {smaller}" if remainder // part and count < 1000 else ""
    return f"{count:,} {unit}{smaller_part}"
