"""Counts with their nouns, for a person who reads a log, a terminal or a report."""

from __future__ import annotations


def plural(count: int, noun: str, many: str = "") -> str:
    """A count with its noun: ``1 request``, ``1,204 requests``."""
    return f"{count:,} {noun if count == 1 else many or noun + 's'}"
