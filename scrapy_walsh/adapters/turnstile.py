"""R4: one request at a time in the process, and a host not before its time.

A request waits here, in a heap by due time, until the wire is free and its host is due. Whoever has
the turn books the host, sends, and leaves. ``TURNSTILE`` is shared by the whole process, as nothing
else in this package is: crawlers that run side by side wait for their turn at it.
"""

from __future__ import annotations

import heapq
import itertools
import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from twisted.internet.defer import Deferred

from scrapy_walsh.adapters import compat
from scrapy_walsh.adapters.outcomes import Closing, Refused
from scrapy_walsh.policy import chain
from scrapy_walsh.policy.host import Throttle

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.crawler import Crawler

    from scrapy_walsh.policy.host import Host

#: Seconds between looks at whether a waiting request's spider is closing.
_CLOSING_CHECK: Final = 0.2


class Client(Protocol):
    """A crawl, as the turnstile sees it."""

    crawler: Crawler

    def host_asked(self, host: str) -> None:
        """A request to *host* has ended, in this crawl or another."""

    def fail(self, error: BaseException | None) -> None:
        """End the crawl: *error* is ours."""


@dataclass(slots=True, eq=False)
class _Waiter:
    crawl: Client
    host: Host
    document: bool
    turn: Deferred[None] = field(default_factory=Deferred)
    unseen: bool = False
    granted: bool = False
    gone: bool = False

    @property
    def due(self) -> float:
        traffic = self.host.traffic
        return traffic.document_due if self.document else traffic.due


@dataclass(slots=True)
class Turnstile:
    """Gives turns: one request at a time, the earliest due first; no host before its due time."""

    throttle: Throttle = field(default_factory=Throttle)
    clock: Callable[[], float] = time.monotonic
    _busy: bool = False
    _waiters: list[tuple[float, int, _Waiter]] = field(default_factory=list)
    _serial: itertools.count[int] = field(default_factory=itertools.count)
    _crawls: list[Client] = field(default_factory=list)
    _shut_by: list[object] = field(default_factory=list)
    _timer: compat.Timer = field(init=False)

    def __post_init__(self) -> None:
        self._timer = compat.Timer(self._tick)

    def join(self, crawl: Client) -> None:
        """From now on, call ``crawl.host_asked`` whenever a turn has ended."""
        self._crawls.append(crawl)

    def leave_for_good(self, crawl: Client) -> None:
        """Drop *crawl*. Its requests that still wait here end with Closing."""
        if crawl in self._crawls:
            self._crawls.remove(crawl)
        if crawl in self._shut_by:
            self._shut_by.remove(crawl)
        self._turn_out([crawl])
        self._advance()

    def shut(self, crawl: object) -> None:
        """Give no turns until *crawl* calls :meth:`open`."""
        if crawl not in self._shut_by:
            self._shut_by.append(crawl)

    def open(self, crawl: object) -> None:
        """Give turns again, as far as *crawl* is concerned."""
        if crawl in self._shut_by:
            self._shut_by.remove(crawl)
        self._advance()
        for each in self._crawls:
            compat.wake_engine(each.crawler)

    def taken(self) -> bool:
        """Whether a request from the queue would have to wait here, whatever its host."""
        self._drop_gone()
        return (
            bool(self._shut_by)
            or self._busy
            or bool(self._waiters and self._waiters[0][0] <= self.clock())
        )

    async def enter(self, crawl: Client, host: Host, *, document: bool) -> bool:
        """Wait for a turn, when *host* is due. Returns whether *host* never had a request before.

        Raises Refused when *host*'s time is beyond WALSH_PATIENCE, Closing when the spider is
        being closed. Whoever gets in must call :meth:`leave`.
        """
        waiter = _Waiter(crawl, host, document)
        try:
            self._queue(waiter)
            self._advance()
            await compat.future(waiter.turn)
        except BaseException:
            waiter.gone = True
            if waiter.granted:
                host.traffic.finished(self.clock())
                self.leave(host)
            raise
        return waiter.unseen

    def give_back(self, host: Host, wait: float) -> None:
        """End a turn without a request; none may be sent to *host* for *wait* seconds."""
        host.traffic.gave_back(self.clock() + wait)
        self.leave(host)

    def leave(self, host: Host) -> None:
        """End a turn; the caller has noted the end of the exchange with *host*."""
        self._busy = False
        self._advance()
        for crawl in self._crawls:
            crawl.host_asked(host.key)
            compat.wake_engine(crawl.crawler)

    def _queue(self, waiter: _Waiter) -> None:
        due = waiter.due
        key = self.clock() if due == math.inf else due
        heapq.heappush(self._waiters, (key, next(self._serial), waiter))

    def _drop_gone(self) -> None:
        while self._waiters and self._waiters[0][2].gone:
            heapq.heappop(self._waiters)

    def _advance(self) -> None:
        """Give the turn to the waiter that is due first, if it is due now."""
        self._timer.cancel()
        while not self._busy:
            self._drop_gone()
            if not self._waiters:
                return
            if self._shut_by:
                self._timer.set(_CLOSING_CHECK)
                return
            key, _, waiter = self._waiters[0]
            try:
                wait = self._serve(key, waiter)
            except Exception as error:  # ours: it ends this one, and must not keep the others
                self._fail(waiter, error)
                waiter.crawl.fail(error)
                continue
            if wait > 0:
                self._timer.set(min(wait, _CLOSING_CHECK))
                return

    def _serve(self, key: float, waiter: _Waiter) -> float:
        """Give *waiter*, the first, its turn, or end it; the seconds that it still has to wait."""
        wait = max(key, waiter.due) - self.clock()
        if wait <= 0:
            self._grant(waiter)
        elif self._turned_away(waiter):
            pass
        elif key <= self.clock():
            heapq.heappop(self._waiters)
            self._queue(waiter)
        else:
            return wait
        return 0.0

    def _tick(self) -> None:
        self._turn_out([crawl for crawl in self._crawls if compat.closing(crawl.crawler)])
        self._advance()

    def _turn_out(self, crawls: list[Client]) -> None:
        for _, _, waiter in list(self._waiters):  # one that ends may be queued again at once
            if waiter.crawl in crawls and not waiter.gone:
                self._fail(waiter, Closing())

    def _grant(self, waiter: _Waiter) -> None:
        waiter.unseen = not waiter.host.traffic.seen
        waiter.host.traffic.started(self.clock(), document=waiter.document)
        heapq.heappop(self._waiters)
        self._busy = waiter.granted = True
        waiter.turn.callback(None)

    def _turned_away(self, waiter: _Waiter) -> bool:
        """End *waiter* with Refused if the chain refuses it by now. Returns whether it does."""
        step = waiter.host.admit(self.clock(), document=waiter.document)
        if not isinstance(step, chain.Refuse):
            return False
        self._fail(waiter, Refused(waiter.host.key, step.verdict))
        return True

    def _fail(self, waiter: _Waiter, error: Exception) -> None:
        waiter.gone = True
        waiter.turn.errback(error)


TURNSTILE: Final = Turnstile()
