"""State that processes on many machines share, in Redis (the extra ``redis``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scrapy_walsh.state.base import RecordStore
    from scrapy_walsh.state.records import Store

__all__ = ["join", "view"]


def join(local: RecordStore, shared: str | None, token: str) -> Store:
    """*local*, or a store of workers that obey robots.txt as *token* and share what concerns all.

    ``shared``: the URL of their Redis, None for none. ConfigError for one that is no such URL.
    """
    if shared is None:
        return local
    from scrapy_walsh.fleet.store import SharedStore  # noqa: PLC0415  an extra

    return SharedStore(local, shared, token)


def view(local: RecordStore, shared: str | None, token: str) -> RecordStore:
    """*local*, with what is in the Redis at the URL *shared*, if any; nothing is written there."""
    if shared is None:
        return local
    from scrapy_walsh.fleet.view import SharedView  # noqa: PLC0415  an extra

    return SharedView(local, shared, token)
