"""R4: one request at a time in the process, and a host not before its time.

The rule itself is ``policy/host.py`` and ``policy/chain.admit``. Three things are here:

- ``TURNSTILE``: a request waits at it until the wire is free and its host is due, the earliest due
  first. Whoever has the turn books the host, sends, and leaves. It is shared by the whole process,
  as nothing else in this package is: crawlers that run side by side wait for their turn at it.
- ``Pulse``: in a fleet, whether its Redis answers. While it does not, the turnstile is shut.
- ``Pacing``: the hosts of one crawl. A URL becomes a host, what earlier runs stored about it is
  brought in at first use, it is booked before a request is sent, and each wait is recorded once.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, cast

from twisted.internet.defer import Deferred

from scrapy_walsh.adapters import compat
from scrapy_walsh.adapters.events import logger
from scrapy_walsh.adapters.outcomes import Closing, Refused
from scrapy_walsh.exceptions import ConfigError, StateError, StoreAway
from scrapy_walsh.policy import event as events
from scrapy_walsh.policy import hosts
from scrapy_walsh.policy.backoff import Answer, GiveUp, NoAnswer, Retry
from scrapy_walsh.policy.event import TARGET, Event, EventKind
from scrapy_walsh.policy.host import Host, Terms, Traffic
from scrapy_walsh.policy.robots.fetch import REASK
from scrapy_walsh.policy.throttle import NOTHING, eased
from scrapy_walsh.policy.verdict import Verdict
from scrapy_walsh.state.records import Booking, HostRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_walsh.adapters.context import Context
    from scrapy_walsh.fleet.store import SharedStore
    from scrapy_walsh.policy.chain import Conclusion
    from scrapy_walsh.state.store import Store

#: Seconds between looks at whether a waiting request's spider is closing.
_CLOSING_CHECK: Final = 0.2


@dataclass(slots=True, eq=False)
class _Waiter:
    crawl: Context
    host: Host
    document: bool
    turn: Deferred[bool] = field(default_factory=Deferred)
    granted: bool = False

    @property
    def due(self) -> float:
        traffic = self.host.traffic
        return traffic.document_due if self.document else traffic.due


class Turnstile:
    """Gives turns: one request at a time, the earliest due first; no host before its due time."""

    def __init__(self) -> None:
        #: By throttle key, what the process sends to each host.
        self.traffic: dict[str, Traffic] = {}
        self._busy = False
        self._waiters: list[_Waiter] = []
        self._crawls: set[Context] = set()
        self._shut_by: set[Context] = set()
        self._timer = compat.Timer(self._tick)

    def join(self, crawl: Context) -> None:
        """From now on, tell the queues of *crawl* whenever a turn has ended."""
        self._crawls.add(crawl)

    def leave_for_good(self, crawl: Context) -> None:
        """Drop *crawl*. Its requests that still wait here end with Closing."""
        self._crawls.discard(crawl)
        self._shut_by.discard(crawl)
        self._turn_out([crawl])
        self._advance()

    def shut(self, crawl: Context) -> None:
        """Give no turns until *crawl* calls :meth:`open`."""
        self._shut_by.add(crawl)

    def open(self, crawl: Context) -> None:
        """Give turns again, as far as *crawl* is concerned."""
        self._shut_by.discard(crawl)
        self._advance()
        for each in self._crawls:
            compat.wake_engine(each.crawler)

    def taken(self) -> bool:
        """Whether a request from the queue would have to wait here, whatever its host."""
        if self._shut_by or self._busy:
            return True
        now = time.monotonic()
        return any(waiter.due <= now for waiter in self._waiters)

    async def enter(self, crawl: Context, host: Host, *, document: bool) -> bool:
        """Wait for a turn, when *host* is due. Returns whether *host* never had a request before.

        Raises Refused when *host*'s time is beyond WALSH_PATIENCE, Closing when the spider is
        being closed. Whoever gets in must call :meth:`leave`.
        """
        waiter = _Waiter(crawl, host, document)
        self._waiters.append(waiter)
        try:
            self._advance()
            return await compat.future(waiter.turn)
        except BaseException:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            if waiter.granted:
                host.traffic.finished(time.monotonic())
                self.leave(host)
            raise

    def give_back(self, host: Host, wait: float) -> None:
        """End a turn without a request; none may be sent to *host* for *wait* seconds."""
        host.traffic.gave_back(time.monotonic() + wait)
        self.leave(host)

    def leave(self, host: Host) -> None:
        """End a turn; the caller has noted the end of the exchange with *host*."""
        self._busy = False
        self._advance()
        for crawl in self._crawls:
            for queue in crawl.queues:
                queue.nudge(host.key)
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
                now, first = time.monotonic(), min(self._waiters, key=lambda each: each.due)
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

    def _turn_out(self, crawls: list[Context]) -> None:
        for waiter in [each for each in self._waiters if each.crawl in crawls]:
            self._fail(waiter, Closing())

    def _grant(self, waiter: _Waiter, now: float) -> None:
        unseen = not waiter.host.traffic.seen
        waiter.host.started(now, document=waiter.document)
        self._waiters.remove(waiter)
        self._busy = waiter.granted = True
        waiter.turn.callback(unseen)

    def _turned_away(self, waiter: _Waiter, now: float) -> bool:
        """End *waiter* with Refused if the chain refuses it by now. Returns whether it does."""
        step = waiter.host.admit(now, document=waiter.document)
        if not isinstance(step, Verdict):
            return False
        self._fail(waiter, Refused(waiter.host.key, step))
        return True

    def _fail(self, waiter: _Waiter, error: Exception) -> None:
        if waiter in self._waiters:
            self._waiters.remove(waiter)
            waiter.turn.errback(error)


TURNSTILE: Final = Turnstile()


class Pulse:
    """The heartbeat of one crawl; it does nothing where the store is not shared.

    ``timer``: of the next look.

    ConfigError where Redis answers, and will not do what is needed. StoreAway where it does not,
    and the scheduler is scrapy-redis's, which would end in a traceback.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._shut = self._begun = False
        self.timer = compat.Timer(self.beat)
        shared = context.store.shared is not None
        self._store = cast("SharedStore", context.store) if shared else None
        if self._store is not None:
            self._begin(self._store)
            scheduler = str(context.crawler.settings["SCHEDULER"])
            if not self._begun and "scrapy_redis" in scheduler:
                raise StoreAway(
                    f"{self._store.link.name} does not answer, and scrapy-redis's scheduler does "
                    "not wait for it: start it, or correct WALSH_SHARED_STATE"
                )

    def _begin(self, store: SharedStore) -> None:
        """Say once, when Redis is there, how it keeps its data. Raises ConfigError."""
        if not self._begun and (line := store.link.begin()) is not None:
            self._begun = True
            if line:
                logger.warning("%s", line)

    def beat(self) -> None:
        """Look now, and again whenever the store says (``SharedStore.beat``)."""
        store, context = self._store, self._context
        if store is None:
            return
        try:
            self._begin(store)
            delay = store.beat()
        except ConfigError as error:
            context.halt(str(error))
            return
        self.look()
        context.say_lost(store)
        if store.link.given_up:
            context.fail(StoreAway(f"{store.link.outage()}: the crawl ends: see to that Redis"))
        else:
            self.timer.set(delay)

    def look(self) -> None:
        """Shut the turnstile if the store is away, open it if it is back; log either once."""
        if self._store is None:
            return
        link = self._store.link
        away = link.away is not None
        if away and not self._shut:
            logger.error("%s; nothing is sent until it is back", link.outage())
            TURNSTILE.shut(self._context)
        elif not away and self._shut:
            logger.warning("the shared store %s is back", link.name)
            TURNSTILE.open(self._context)
        self._shut = away


#: What a host's interval is called until its robots.txt has been read in this run.
EARLIER_RUN: Final = "earlier run"
#: Seconds for which a request that was booked may be on its way to the server.
_REACH: Final = 0.25
#: Seconds by which two calculations of one due time may differ.
_ROUNDING: Final = 0.005


class Pacing:
    """The hosts of one crawl, by their throttle keys (``hosts.host_key``), and its ``pulse``."""

    def __init__(self, context: Context) -> None:
        config = context.config
        self._context = context
        self.pulse = Pulse(context)
        #: What the process sends to each host, whichever of its crawls does.
        self.traffic = TURNSTILE.traffic
        self._slots: dict[str, dict[str, Any]] = context.crawler.settings.getdict("DOWNLOAD_SLOTS")
        self._hosts: dict[str, Host] = {}
        #: A worker of a fleet may run for weeks, so it forgets which hosts gave no answer.
        forget_after = math.inf if config.shared_state is None else REASK
        spacing = config.min_interval if config.pace_robots else None
        position, wall = config.robots_unreachable, context.wall
        self._terms = Terms(
            context.gates, position, forget_after, spacing, wall, taking_in=self.taking_in
        )

    # -- a host ---------------------------------------------------------------------------

    def host_of(self, url: str) -> Host:
        """The host of *url*; where it has none that can be read, one that nobody else knows."""
        key = hosts.host_or_url(url)
        if key == url:
            return Host(key, self._terms)
        host = self._hosts.get(key)
        return host if host is not None and host.known else self.host(key)

    def host(self, key: str) -> Host:
        """The host with this throttle key.

        At first use, what earlier runs stored about it is brought in.
        """
        host = self._hosts.get(key) or self.named(key)
        return host if host.known else self._know(host)

    def met(self, key: str) -> Host | None:
        """The host with this throttle key, if this crawl has had to do with it."""
        return self._hosts.get(key)

    def named(self, key: str) -> Host:
        """As :meth:`host`, without a look into the store: a JOBDIR may name a million hosts."""
        host = self._hosts.get(key)
        if host is None:
            least = self._context.config.min_interval
            traffic = self.traffic.setdefault(key, Traffic(least))
            traffic.raise_minimum(least)
            host = self._hosts[key] = Host(key, self._terms, traffic)
        return host

    def _know(self, host: Host) -> Host:
        context, now = self._context, self._context.monotonic()
        steady, host.known = context.steady(), True
        try:
            restore(host, context.store, now, steady)
        except StateError as error:
            # Its record cannot be read, so it is spaced as if it had just been requested.
            context.recorder.own_fault(str(error), kept=True)
            host.traffic.restore(now, now)
        slot = self._slots.get(host.key) or self._slots.get(host.key.partition(":")[0]) or {}
        if slot.get("delay"):
            host.traffic.set_interval(float(slot["delay"]), source="DOWNLOAD_SLOTS")
        return host

    def taking_in(self) -> bool:
        """Whether `Spider.start` may still name a target that goes before others.

        False after WALSH_PATIENCE at the latest: a `start` may have no end.
        """
        context, now = self._context, self._context.monotonic()
        return context.scope.growing and now - context.begun < context.config.patience

    # -- the queue ------------------------------------------------------------------------

    def tell_wait(self, host: Host | None, first: Callable[[], str | None]) -> None:
        """Record that *host* is not due, once for each due time; *first*: the URL that waits."""
        context, now = self._context, self._context.monotonic()
        if host is None or not now < host.traffic.due < math.inf:
            return
        wait = host.wait(now)
        due = now + wait
        if wait == 0 or due - host.told < _ROUNDING or (url := first()) is None:
            return
        host.told = due
        why, until = f"{host.key} is not due for {wait:.3f} s", context.wall() + wait
        event = Event(events.HELD, url, "R4", reason=why, host=host.key, wait=wait, due=until)
        context.recorder.record(event)

    def tell_failure(
        self,
        url: str,
        failure: Retry | GiveUp,
        status: int | None,
        error: NoAnswer | None,
        *,
        trial: bool = False,
    ) -> str:
        """Record what R5 has decided on a request to *url*; the reason.

        *error*: why there was no answer, None if there was one. *trial*: as for
        ``Recorder.record``.
        """
        why = failure.reason(error)
        context, host, wait = self._context, self.host_of(url).key, failure.delay
        kind: EventKind = events.RETRIED if isinstance(failure, Retry) else events.GIVEN_UP
        due = context.wall() + wait
        event = Event(
            kind,
            url,
            "R5",
            reason=why,
            host=host,
            status=status,
            wait=wait,
            due=due,
            error=(error and error.error) or "",
            unanswered=failure.unanswered if isinstance(failure, GiveUp) else None,
        )
        context.recorder.record(event, trial=trial)
        return why

    # -- the wire -------------------------------------------------------------------------

    def reserve(self, host: Host) -> Booking | None:
        """Book *host* for this process now, or learn how long it must wait (R4.6).

        None while the shared store is away: nothing may be sent then, and the turnstile is shut.
        """
        context, steady = self._context, self._context.steady()
        try:
            booking = context.store.reserve_host(host.key, host.traffic.untaught, steady)
        except StoreAway:
            self.pulse.look()
            return None
        except StateError as error:
            context.recorder.own_fault(str(error), kept=True)
            booking = Booking(0.0, known=False)
        if booking.taught != NOTHING:
            host.take(eased(booking.taught, steady))
        host.traffic.rested = booking.rested
        return booking

    def finished(self, host: Host, answer: Answer, concluded: Conclusion, *, ended: float) -> None:
        """Note and store the end of a request to *host*: its spacing, and its hold (R5).

        *ended*: Unix seconds by the steady clock.
        """
        context, now = self._context, self._context.monotonic()
        host.finished(answer, concluded, now, ended)
        # The one target of a slow host that goes ahead of its interval is booked as such (D11).
        visit = host.traffic.ahead and answer.purpose == TARGET
        self._remember(host, now, ended, visit=visit)
        self._remember_silence(host, now)
        if concluded.wait is not None:
            context.remember(context.store.flush)

    def hold(self, host: Host, seconds: float) -> None:
        """Leave *host* alone for *seconds*, in later runs too (D8)."""
        context, now = self._context, self._context.monotonic()
        host.traffic.hold(now + seconds)
        self._remember(host, now, context.steady())
        context.remember(context.store.flush)

    def _remember(self, host: Host, now: float, steady: float, *, visit: bool = False) -> None:
        """Store interval, last request and hold of *host* for later runs and other processes."""
        context, traffic = self._context, host.traffic
        until, visited = steady + max(0.0, traffic.not_before - now), steady if visit else None
        ended = HostRecord(host.key, steady, traffic.untaught, until, visited, host.learned)
        context.remember(lambda: context.store.book_host(ended))

    def _remember_silence(self, host: Host, now: float) -> None:
        """Store that *host* gives no answer, or that it has given one again (D31)."""
        silent = host.silence.lasts(now)
        if silent == host.kept_silent:
            return
        host.kept_silent = silent
        context = self._context
        since = context.steady() if silent else None

        def change(record: HostRecord | None) -> HostRecord | None:
            return None if record is None else replace(record, silent_since=since)

        context.remember(lambda: context.store.update_host(host.key, change))


def restore(host: Host, store: Store, now: float, steady: float) -> None:
    """Bring in what *store* has of *host* (T33). Raises StateError.

    Its times become those of the clock that *now* was read from. *steady*: Unix seconds by the
    steady clock, of which stored times are (D9).
    """
    record, traffic = store.get(HostRecord, host.key), host.traffic
    if store.rows_lost:  # a host may have had a request that is not on record
        traffic.restore(now, now)
    if record is None:
        return
    known, record = record, record.at(steady)
    # The start of a request was booked here, and the server saw it later.
    since = max(0.0, steady - record.last_end - (_REACH if record.under_way else 0.0))
    held = max(0.0, (record.not_before or steady) - steady)
    visited = None if record.visited_at is None else now - (steady - record.visited_at)
    traffic.restore(now - since, now + held, visited)
    traffic.set_interval(record.interval, source=EARLIER_RUN)
    host.take(eased(record.taught, steady))
    host.silence.before = host.kept_silent = record.silent_since is not None
    if record is not known:
        store.update_host(host.key, lambda found: found and found.at(steady))
