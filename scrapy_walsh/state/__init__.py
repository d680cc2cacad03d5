"""R11: what outlives a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_walsh.state.memory import MemoryStore
from scrapy_walsh.state.sqlite import SqliteStore

if TYPE_CHECKING:
    from pathlib import Path

    from scrapy_walsh.state.base import RecordStore
    from scrapy_walsh.state.records import Store

__all__ = ["open_store", "view"]


def open_store(directory: Path | None, shared: str | None = None, token: str = "") -> Store:
    """The store in *directory* (made when missing), or, for None, one in memory.

    ``shared``: the URL of a Redis, where workers that obey robots.txt as *token* share what
    concerns them all. StateError when the directory cannot be used, or holds a newer version's
    file.
    """
    local = MemoryStore() if directory is None else SqliteStore(directory)
    if shared is None:
        return local
    from scrapy_walsh.state.redis import SharedStore  # noqa: PLC0415  an extra

    return SharedStore(local, shared, token)


def view(local: RecordStore, shared: str | None, token: str) -> RecordStore:
    """*local*, with what is in the Redis at the URL *shared*, if any; nothing is written there."""
    if shared is None:
        return local
    from scrapy_walsh.state.redis_view import SharedView  # noqa: PLC0415  an extra

    return SharedView(local, shared, token)
