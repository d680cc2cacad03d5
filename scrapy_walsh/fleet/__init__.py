"""State that processes on many machines share, in Redis (the extra ``redis``)."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_walsh.state.store import Store

__all__ = ["join", "view"]


def join(
    local: Store,
    shared: str | None,
    token: str,
    steady: Callable[[], float] = time.time,
    *,
    writes: bool = True,
) -> Store:
    """*local*, or for a fleet a store around it that shares records through Redis.

    ``shared``: the URL of that Redis; None where there is no fleet. ``token``: the product token of
    the workers, which keeps the records of different bots apart. *steady*: this machine's steady
    clock, by which the times of hosts are given (D9). Where *writes* is false, nothing is written
    to Redis, or to *local*. ConfigError for a URL that Redis's client cannot use.
    """
    if shared is None:
        return local
    from scrapy_walsh.fleet.store import SharedStore  # noqa: PLC0415  an extra

    return SharedStore(local, shared, token, steady=steady, writes=writes)


#: As :func:`join`, to read only.
view: Final = partial(join, writes=False)
