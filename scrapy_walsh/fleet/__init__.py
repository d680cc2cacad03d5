"""State that processes on many machines share, in Redis (the extra ``redis``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scrapy_walsh.state.base import Store

__all__ = ["join", "view"]


def join(local: Store, shared: str | None, token: str) -> Store:
    """*local*, or for a fleet a store around it that shares records through Redis.

    ``shared``: the URL of that Redis; None where there is no fleet. ``token``: the product token of
    the workers, which keeps the records of different bots apart. ConfigError for a URL that Redis's
    client cannot use.
    """
    if shared is None:
        return local
    from scrapy_walsh.fleet.store import SharedStore  # noqa: PLC0415  an extra

    return SharedStore(local, shared, token)


def view(local: Store, shared: str | None, token: str) -> Store:
    """As :func:`join`, to read only: nothing is written to Redis, or to *local*."""
    if shared is None:
        return local
    from scrapy_walsh.fleet.store import SharedView  # noqa: PLC0415  an extra

    return SharedView(local, shared, token)
