"""R11: the records that one run keeps for the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_walsh.state.store import MemoryStore, SqliteStore

if TYPE_CHECKING:
    from pathlib import Path

    from scrapy_walsh.state.store import Store

__all__ = ["open_store"]


def open_store(directory: Path | None) -> Store:
    """The store in *directory*, which is made where it is missing; for None, one in memory.

    Raises StateError where the directory cannot be used, or where its database was written by
    another version of this package (D16), or is another program's.
    """
    return MemoryStore() if directory is None else SqliteStore(directory)
