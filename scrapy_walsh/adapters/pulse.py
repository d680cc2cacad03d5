"""R4.6: looks regularly whether a fleet's Redis answers. While it is away nothing is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_walsh.adapters import compat
from scrapy_walsh.adapters.events import logger
from scrapy_walsh.adapters.turnstile import TURNSTILE

if TYPE_CHECKING:
    from scrapy_walsh.adapters.context import Context
    from scrapy_walsh.fleet.store import SharedStore


class Pulse:
    """The heartbeat of one crawl; it does nothing where the store is not shared."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._store: SharedStore | None = None
        self._shut_at: float | None = None
        self._timer = compat.Timer(self._beat)
        if context.config.shared_state is not None:
            from scrapy_walsh.fleet.store import SharedStore  # noqa: PLC0415  an extra

            if isinstance(context.store, SharedStore):
                self._store = context.store

    def start(self) -> None:
        """Look now, and again whenever the store says (``SharedStore.beat``)."""
        if self._store is not None:
            self._beat()

    def stop(self) -> None:
        """Look no more."""
        self._timer.cancel()

    def _beat(self) -> None:
        if self._store is not None:
            delay = self._store.beat()
            self.look()
            self._timer.set(delay)

    def look(self) -> None:
        """Shut the turnstile if the store is away, open it if it is back; log either once."""
        if self._store is None:
            return
        away = self._store.link.away is not None
        if away and self._shut_at is None:
            self._shut_at = self._context.monotonic()
            logger.error("%s; nothing is sent until it is back", self._store.link.outage())
            TURNSTILE.shut(self._context)
        elif not away and self._shut_at is not None:
            seconds = self._context.monotonic() - self._shut_at
            self._shut_at = None
            name = self._store.link.name
            logger.warning("the shared store %s is back after %.0f s", name, seconds)
            TURNSTILE.open(self._context)
