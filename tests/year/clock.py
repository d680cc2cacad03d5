"""A virtual clock for a whole process, and an event loop that jumps to its next timer.

``install`` replaces the functions of :mod:`time`, before anything that reads them is imported;
until ``CLOCK.start`` they tell the real time. From then on nothing but the event loop moves the
clock: where it would sleep it jumps, and while a thread works it waits for it, the clock at rest.
"""

from __future__ import annotations

import asyncio
import selectors
import sys
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

#: Virtual seconds that one round of the event loop takes: whoever polls comes to an end.
_ROUND: Final = 1e-5
#: The shortest jump, longer than the resolution of a float that counts the seconds of decades.
_SHORTEST: Final = 1e-6
#: Real seconds between looks at a thread that works.
_LOOK: Final = 0.05

_REAL: Final[Mapping[str, Callable[..., Any]]] = {
    name: getattr(time, name)
    for name in ("time", "time_ns", "monotonic", "monotonic_ns", "clock_gettime")
}
_SINCE_START: Final = {
    getattr(time, name) for name in ("CLOCK_MONOTONIC", "CLOCK_BOOTTIME") if hasattr(time, name)
}


class Shift(NamedTuple):
    """From ``at`` (true time, Unix seconds) on the machine's clock is set by ``seconds``."""

    at: float
    seconds: float


def off_by(shifts: Sequence[Shift], now: float) -> float:
    """Seconds by which the machine's clock is ahead of the true time *now*."""
    return sum(shift.seconds for shift in shifts if shift.at <= now)


class Clock:
    """The time of one simulated machine. All times are seconds."""

    def __init__(self) -> None:
        self._now: float | None = None
        self._booted = 0.0
        self._shifts: Sequence[Shift] = ()
        self._alarm: tuple[float, Callable[[], object]] | None = None

    def start(self, now: float, booted: float, shifts: Sequence[Shift] = ()) -> None:
        """Run from the true time *now* on, on a machine that was started at *booted*."""
        self._now, self._booted, self._shifts = now, booted, shifts

    def alarm(self, at: float, ring: Callable[[], object]) -> None:
        """Call *ring* as soon as it is *at*, in the midst of whatever goes on then."""
        self._alarm = (at, ring)

    @property
    def started(self) -> bool:
        """Whether the time is a virtual one."""
        return self._now is not None

    def true(self) -> float:
        """The time by which the servers' logs go, Unix seconds."""
        return float(_REAL["time"]()) if self._now is None else self._now

    def wall(self) -> float:
        """The time of day as the machine has it: somebody may have set it wrong."""
        now = self.true()
        return now + off_by(self._shifts, now)

    def monotonic(self) -> float:
        """Seconds since the machine was started."""
        return float(_REAL["monotonic"]()) if self._now is None else self._now - self._booted

    def move(self, seconds: float) -> None:
        """Let *seconds* pass, or fewer where the alarm is due before."""
        assert self._now is not None
        end = self._now + max(seconds, _SHORTEST)
        if self._alarm is not None and self._alarm[0] <= end:
            at, ring = self._alarm
            self._now = max(at, self._now)
            ring()
        self._now = end


CLOCK: Final = Clock()


def install() -> None:
    """Let everybody in this process ask :data:`CLOCK` for the time."""
    time.time = CLOCK.wall
    time.time_ns = lambda: int(CLOCK.wall() * 1e9)
    time.monotonic = CLOCK.monotonic
    time.monotonic_ns = lambda: int(CLOCK.monotonic() * 1e9)
    time.clock_gettime = _clock_gettime


def _clock_gettime(clock: int) -> float:
    if CLOCK.started and clock in _SINCE_START:
        return CLOCK.monotonic()
    return float(_REAL["clock_gettime"](clock))


class Loop(asyncio.SelectorEventLoop):
    """Scrapy's event loop (``ASYNCIO_EVENT_LOOP``), by the virtual clock."""

    def __init__(self) -> None:
        super().__init__(_Selector())

    def time(self) -> float:
        """Seconds since the machine was started."""
        return CLOCK.monotonic()


class _Selector(selectors.DefaultSelector):
    """Never sleeps while nobody works: the clock jumps instead."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if not CLOCK.started:
            return super().select(timeout)
        # Looked at before the files: a thread tells of its end through one of them.
        working = _threads_work()
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            CLOCK.move(_ROUND)
            return ready
        if working:
            return super().select(_LOOK)
        if timeout is None:
            raise RuntimeError("the crawl waits for something that will never happen")
        CLOCK.move(timeout)
        return ready


def _threads_work() -> bool:
    """Whether a thread of the reactor has work, or has yet to tell what came of it."""
    reactor: Any = sys.modules.get("twisted.internet.reactor")
    pool = getattr(reactor, "threadpool", None)
    if pool is None:
        return False
    found = pool._team.statistics()
    return bool(found.busyWorkerCount or found.backloggedWorkCount)
