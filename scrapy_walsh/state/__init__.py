"""R11: what outlives a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_walsh.state.memory import MemoryStore
from scrapy_walsh.state.sqlite import SqliteStore

if TYPE_CHECKING:
    from pathlib import Path

    from scrapy_walsh.state.base import RecordStore

__all__ = ["open_store"]


def open_store(directory: Path | None) -> RecordStore:
    """The store in *directory* (made when missing), or, for None, one in memory.

    StateError when the directory cannot be used, or holds a newer version's file.
    """
    return MemoryStore() if directory is None else SqliteStore(directory)
