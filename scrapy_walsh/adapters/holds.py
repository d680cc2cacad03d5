"""R4: says of each hold that it is one, once: a host is not due, and requests to it wait."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from scrapy_walsh.policy import event as events
from scrapy_walsh.policy.event import Event

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_walsh.adapters.core import Core

#: Seconds by which two reckonings of one due time may differ.
_ROUNDING: Final = 0.005
#: Seconds between two looks at whether the spider has named all its targets.
_INTAKE: Final = 0.2


class Holds:
    """The holds of one crawl. A hold ends at the host's due time; a later due time is another."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._told: dict[str, float] = {}

    def due(self, host: str) -> float:
        """When the queue may give out a request to *host*.

        At once when its time is so far off that the gate will defer it. A slow host waits until
        the spider has named all its targets: the one that was put off longest goes first.
        Monotonic seconds, ``inf`` while a request to it is under way.
        """
        core = self._core
        if core.slow(host) and core.taking_in():
            return core.monotonic() + _INTAKE
        return self._due(host)

    def _due(self, host: str) -> float:
        core = self._core
        due = core.throttle.due(host)
        if due != math.inf and core.retries.against(host) is not None:
            return -math.inf
        if core.skips(host) or core.monotonic() + core.config.patience < due < math.inf:
            return -math.inf
        return due

    def wait(self, host: str) -> float:
        """Seconds for which requests to *host* are held; 0 while one is under way."""
        due = self._due(host)
        return 0.0 if due == math.inf else max(0.0, due - self._core.monotonic())

    def tell(self, host: str, first: Callable[[], str | None]) -> None:
        """Record that *host* is held, if it is; *first*: the URL that waits for it."""
        core, wait = self._core, self.wait(host)
        if wait == 0:
            return
        due = core.monotonic() + wait
        if due - self._told.get(host, -math.inf) < _ROUNDING:
            return
        url = first()
        if url is None:
            return
        self._told[host] = due
        core.recorder.record(
            Event(
                events.HELD,
                url,
                "R4",
                reason=f"{host} is not due for {wait:.3f} s",
                host=host,
                wait=wait,
                due=core.wall() + wait,
            )
        )
