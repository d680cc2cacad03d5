"""The virtual clock of ``walsh plan``: if the event loop would wait, the time passes at once.

It must be in place before Scrapy or Twisted is imported, because their modules keep functions of
``time``.
"""

from __future__ import annotations

import asyncio
import selectors
import sys
import time
from typing import Any, Final

#: Seconds that each look at the clock takes, so that a loop which waits for a time comes to an end.
_LOOK: Final = 1e-6
_SINCE_START: Final = {
    getattr(time, name) for name in ("CLOCK_MONOTONIC", "CLOCK_BOOTTIME") if hasattr(time, name)
}
#: Real seconds between looks at a thread that works.
_WORK: Final = 0.02


class _Clock:
    """``passed``: virtual seconds since the clock was installed; the real time stands still."""

    passed = 0.0

    def install(self) -> None:
        """Let all code in this process ask this clock for the time."""
        wall = time.time()
        monotonic = time.monotonic()
        real = time.clock_gettime
        time.time = lambda: self._read(wall)
        time.time_ns = lambda: int(self._read(wall) * 1e9)
        time.monotonic = lambda: self._read(monotonic)
        time.monotonic_ns = lambda: int(self._read(monotonic) * 1e9)
        starts = {clock: real(clock) for clock in _SINCE_START}
        time.clock_gettime = lambda clock: (
            self._read(starts[clock]) if clock in starts else real(clock)
        )

    def _read(self, since: float) -> float:
        self.passed += _LOOK
        return since + self.passed


CLOCK: Final = _Clock()


class _Selector(selectors.DefaultSelector):
    """Never sleeps, but for a thread that works: the time passes instead."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        working = _threads_work()  # before the files, by one of which a thread tells of its end
        ready = super().select(0)
        if not ready and working:
            return super().select(_WORK)
        if not ready and timeout is None:
            raise RuntimeError("the crawl waits for something that will never happen")
        if not ready:
            CLOCK.passed += max(timeout or 0.0, 0.0)
        return ready


class Loop(asyncio.SelectorEventLoop):
    """Scrapy's event loop (``ASYNCIO_EVENT_LOOP``), by the virtual clock."""

    def __init__(self) -> None:
        super().__init__(_Selector())


def _threads_work() -> bool:
    """Whether a thread of the reactor has work, or has yet to tell what came of it."""
    reactor: Any = sys.modules.get("twisted.internet.reactor")
    pool = getattr(reactor, "threadpool", None)
    if pool is None:
        return False
    statistics = pool._team.statistics()
    return bool(statistics.busyWorkerCount or statistics.backloggedWorkCount)
