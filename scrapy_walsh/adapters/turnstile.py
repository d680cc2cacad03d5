"""R4: one request at a time in the process, and a host not before its time.

A request waits here until the wire is free and its host is due, the earliest due first. Whoever has
the turn books the host, sends, and leaves. ``TURNSTILE`` is shared by the whole process, as nothing
else in this package is: crawlers that run side by side wait for their turn at it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from twisted.internet.defer import Deferred

from scrapy_walsh.adapters import compat
from scrapy_walsh.adapters.outcomes import Closing, Refused
from scrapy_walsh.policy import chain

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.crawler import Crawler

    from scrapy_walsh.policy.host import Host, Traffic

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

    @property
    def due(self) -> float:
        traffic = self.host.traffic
        return traffic.document_due if self.document else traffic.due


@dataclass(slots=True)
class Turnstile:
    """Gives turns: one request at a time, the earliest due first; no host before its due time."""

    #: By throttle key, what the process sends to each host.
    traffic: dict[str, Traffic] = field(default_factory=dict)
    clock: Callable[[], float] = time.monotonic
    _busy: bool = False
    _waiters: list[_Waiter] = field(default_factory=list)
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
        if self._shut_by or self._busy:
            return True
        now = self.clock()
        return any(waiter.due <= now for waiter in self._waiters)

    async def enter(self, crawl: Client, host: Host, *, document: bool) -> bool:
        """Wait for a turn, when *host* is due. Returns whether *host* never had a request before.

        Raises Refused when *host*'s time is beyond WALSH_PATIENCE, Closing when the spider is
        being closed. Whoever gets in must call :meth:`leave`.
        """
        waiter = _Waiter(crawl, host, document)
        self._waiters.append(waiter)
        try:
            self._advance()
            await compat.future(waiter.turn)
        except BaseException:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
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

    def _advance(self) -> None:
        """Give the turn to the waiter that is due first, if it is due now."""
        self._timer.cancel()
        while self._waiters and not self._busy:
            if self._shut_by:
                self._timer.set(_CLOSING_CHECK)
                return
            first = self._waiters[0]
            try:
                now, first = self.clock(), min(self._waiters, key=lambda each: each.due)
                if first.due <= now:
                    self._grant(first, now)
                elif not any(self._turned_away(each, now) for each in list(self._waiters)):
                    self._timer.set(min(first.due - now, _CLOSING_CHECK))
                    return
            except Exception as error:  # ours: it ends this one, and must not keep the others
                self._fail(first, error)
                first.crawl.fail(error)

    def _tick(self) -> None:
        self._turn_out([crawl for crawl in self._crawls if compat.closing(crawl.crawler)])
        self._advance()

    def _turn_out(self, crawls: list[Client]) -> None:
        for waiter in [each for each in self._waiters if each.crawl in crawls]:
            self._fail(waiter, Closing())

    def _grant(self, waiter: _Waiter, now: float) -> None:
        waiter.unseen = not waiter.host.traffic.seen
        waiter.host.traffic.started(now, document=waiter.document)
        self._waiters.remove(waiter)
        self._busy = waiter.granted = True
        waiter.turn.callback(None)

    def _turned_away(self, waiter: _Waiter, now: float) -> bool:
        """End *waiter* with Refused if the chain refuses it by now. Returns whether it does."""
        step = waiter.host.admit(now, document=waiter.document)
        if not isinstance(step, chain.Refuse):
            return False
        self._fail(waiter, Refused(waiter.host.key, step.verdict))
        return True

    def _fail(self, waiter: _Waiter, error: Exception) -> None:
        if waiter in self._waiters:
            self._waiters.remove(waiter)
            waiter.turn.errback(error)


TURNSTILE: Final = Turnstile()
