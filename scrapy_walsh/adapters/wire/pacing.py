"""Sends one request at a time in the process, and none before its host is due (R4).

``policy/host.py`` and ``policy/chain.admit`` have the rules. This module has three parts:

- ``TURNSTILE``: requests wait here until the wire is free and their host is due. The request whose
  host is due first goes first. It books the host, is sent, and leaves. All crawls of the process
  share this turnstile, and nothing else in the package.
- ``Pulse``: checks regularly whether a fleet's Redis answers. If not, it shuts the turnstile.
- ``Pacing``: the hosts of one crawl. It finds the host of a URL, loads the host's record at first
  use, books it before a request, and records each wait once.
"""

from __future__ import annotations

import logging
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
from scrapy_walsh.policy.backoff import TOO_MANY_REQUESTS, Answer, GiveUp, NoAnswer, Retry
from scrapy_walsh.policy.event import TARGET, Event, EventKind
from scrapy_walsh.policy.host import Host, Terms, Traffic
from scrapy_walsh.policy.robots.fetch import REASK
from scrapy_walsh.policy.throttle import NOTHING, Shared, Spacing, accepts, ease, share
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
    """A request that waits for its turn. ``document``: it is for a document.

    ``turn``: fires with the result of :meth:`Turnstile.enter`. ``granted``: it has fired, so the
    turn must be given back on every way out.
    """

    crawl: Context
    host: Host
    document: bool
    turn: Deferred[bool] = field(default_factory=Deferred)
    granted: bool = False

    @property
    def due(self) -> float:
        traffic = self.host.traffic
        if self.document:
            return traffic.document_due
        return traffic.due


class Turnstile:
    """Gives turns to requests, one at a time. The host that is due first goes first."""

    def __init__(self) -> None:
        #: The traffic of the process to each host, by throttle key.
        self.traffic: dict[str, Traffic] = {}
        self._busy = False
        self._waiters: list[_Waiter] = []
        self._crawls: set[Context] = set()
        #: The crawls whose shared store is away. While there are any, nothing is sent.
        self._shut_by: set[Context] = set()
        self._timer = compat.Timer(self._tick)

    def join(self, crawl: Context) -> None:
        """Add *crawl*: its queues are told when a turn has ended."""
        self._crawls.add(crawl)

    def leave_for_good(self, crawl: Context) -> None:
        """Remove *crawl*. Its requests that still wait here end with Closing."""
        self._crawls.discard(crawl)
        self._shut_by.discard(crawl)
        self._end_waiters_of([crawl])
        self._advance()

    def shut(self, crawl: Context) -> None:
        """Give no turns until *crawl* calls :meth:`open`."""
        self._shut_by.add(crawl)

    def open(self, crawl: Context) -> None:
        """Give turns again, unless another crawl has shut the turnstile."""
        self._shut_by.discard(crawl)
        self._advance()
        for member in self._crawls:
            compat.wake_engine(member.crawler)

    def taken(self) -> bool:
        """Whether any request from the queue would have to wait here."""
        if self._shut_by or self._busy:
            return True
        # A waiter whose host is due goes before any request that the queue would give out.
        now = time.monotonic()
        return any(waiter.due <= now for waiter in self._waiters)

    async def enter(self, crawl: Context, host: Host, *, document: bool) -> bool:
        """Wait for a turn until *host* is due. Returns whether *host* never had a request before.

        Then the caller must call :meth:`leave` or :meth:`give_back`.

        Raises Refused if *host* is due later than WALSH_PATIENCE allows, and Closing if the spider
        is closing.
        """
        waiter = _Waiter(crawl, host, document)
        self._waiters.append(waiter)
        try:
            self._advance()
            return await compat.future(waiter.turn)
        except BaseException:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            if waiter.granted:  # cancelled after its turn came; the host counts as requested
                host.traffic.finished(time.monotonic())
                self.leave(host)
            raise

    def give_back(self, host: Host, wait: float) -> None:
        """End a turn without a request. *host* gets no request for *wait* seconds."""
        host.traffic.gave_back(time.monotonic() + wait)
        self.leave(host)

    def leave(self, host: Host) -> None:
        """End a turn, after the caller has noted the end of the exchange with *host*.

        Every queue looks at *host* again, because its due time has changed.
        """
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
            next_waiter = self._waiters[0]  # if the search for the next one fails, end this one
            try:
                now = time.monotonic()
                next_waiter = min(self._waiters, key=lambda waiter: waiter.due)
                if next_waiter.due <= now:
                    self._grant(next_waiter, now)
                # If one of them was refused, look again: there is one waiter less.
                elif not any(self._end_if_refused(waiter, now) for waiter in list(self._waiters)):
                    self._timer.set(min(next_waiter.due - now, _CLOSING_CHECK))
                    return
            except Exception as error:  # our bug: fail this waiter only
                self._fail(next_waiter, error)
                next_waiter.crawl.fail(error)

    def _tick(self) -> None:
        """End the waiters of crawls that are closing. Then give the turn, if a host is due."""
        self._end_waiters_of([crawl for crawl in self._crawls if compat.closing(crawl.crawler)])
        self._advance()

    def _end_waiters_of(self, crawls: list[Context]) -> None:
        for waiter in [waiter for waiter in self._waiters if waiter.crawl in crawls]:
            self._fail(waiter, Closing())

    def _grant(self, waiter: _Waiter, now: float) -> None:
        """Give the turn to *waiter*, and note that a request to its host is under way."""
        unseen = not waiter.host.traffic.seen
        waiter.host.started(now, document=waiter.document)
        self._waiters.remove(waiter)
        self._busy = waiter.granted = True
        waiter.turn.callback(unseen)

    def _end_if_refused(self, waiter: _Waiter, now: float) -> bool:
        """End *waiter* with Refused if the chain now refuses it. Returns whether it does."""
        step = waiter.host.admit(now, document=waiter.document)
        if not isinstance(step, Verdict):
            return False
        self._fail(waiter, Refused(waiter.host.key, step))
        return True

    def _fail(self, waiter: _Waiter, error: Exception) -> None:
        """End *waiter* with *error*, unless it has had its turn or its end meanwhile."""
        if waiter in self._waiters:
            self._waiters.remove(waiter)
            waiter.turn.errback(error)


TURNSTILE: Final = Turnstile()


class Pulse:
    """Checks the shared store regularly. Without a shared store it does nothing.

    ``timer``: starts the next check.

    Raises ConfigError if Redis answers, but its configuration does not fit. Raises StoreAway if
    Redis does not answer and the scheduler is scrapy-redis's, because that ends in a traceback.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        #: ``_shut``: this crawl has shut the turnstile. ``_begun``: Redis has answered once.
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
        """Check Redis's configuration when it first answers. Raises ConfigError.

        If its persistence may lose records, one warning is logged.
        """
        if not self._begun and (line := store.link.begin()) is not None:
            self._begun = True
            if line:
                logger.warning("%s", line)

    def beat(self) -> None:
        """Check now, and again after the delay that ``SharedStore.beat`` returns."""
        store = self._store
        context = self._context
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
            context.fail(StoreAway(f"{store.link.outage()}: the crawl ends: check that Redis"))
        else:
            self.timer.set(delay)

    def look(self) -> None:
        """Shut the turnstile if the store is away, and open it if it is back. Log each once."""
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


#: The source of a host's stored interval, until this run has read its robots.txt.
EARLIER_RUN: Final = "earlier run"
#: Seconds that a booked request may need to reach the server.
_REACH: Final = 0.25
#: Seconds by which two calculations of the same due time may differ.
_ROUNDING: Final = 0.005


class Pacing:
    """The hosts of a crawl, by their throttle keys (``hosts.host_key``), and its ``pulse``."""

    def __init__(self, context: Context) -> None:
        config = context.config
        self._context = context
        self.pulse = Pulse(context)
        #: The traffic of all crawls of the process, to hosts and servers.
        self.traffic = TURNSTILE.traffic
        self._pace_by = config.pace_by
        #: The interval of servers that the operator has declared; else 0.
        self._declared = config.pace_by != hosts.BY_HOST
        self._least = config.min_interval if self._declared else 0.0
        self._has_told_proxy = False
        self._slots: dict[str, dict[str, Any]] = context.crawler.settings.getdict("DOWNLOAD_SLOTS")
        self._hosts: dict[str, Host] = {}
        # A fleet's worker may run for weeks, so it forgets which hosts were silent.
        forget_after = math.inf if config.shared_state is None else REASK
        # The other terms are explained at ``Terms`` and ``Silence`` in ``policy/host.py``.
        spacing = config.min_interval if config.pace_robots else None
        position = config.robots_unreachable
        wall = context.wall
        self._terms = Terms(
            context.gates, position, forget_after, spacing, wall, taking_in=self.taking_in
        )

    # -- a host ---------------------------------------------------------------------------

    def host_of(self, url: str) -> Host:
        """Return the host of *url*. If its host is unreadable, return a new one for this URL."""
        key = hosts.host_or_url(url)
        if key == url:  # no host can be read
            return Host(key, self._terms)
        host = self._hosts.get(key)
        if host is not None and host.known:
            return host
        return self.host(key)

    def host(self, key: str) -> Host:
        """Return the host with this throttle key. Its record is loaded at first use."""
        host = self._hosts.get(key) or self.named(key)
        if host.known:
            return host
        return self._load(host)

    def met(self, key: str) -> Host | None:
        """Return the host with this throttle key, if this crawl has it already."""
        return self._hosts.get(key)

    def named(self, key: str) -> Host:
        """Return the host with this throttle key, and do not load its record.

        A JOBDIR may name a million hosts, and to load them all would take too long.
        """
        host = self._hosts.get(key)
        if host is None:
            minimum = self._context.config.min_interval
            traffic = self.traffic.setdefault(key, Traffic(minimum))
            traffic.raise_minimum(minimum)  # another crawl may have made it with a shorter one
            host = self._hosts[key] = Host(key, self._terms, traffic)
        return host

    def _load(self, host: Host) -> Host:
        context = self._context
        now = self._context.monotonic()
        steady = context.steady()
        host.known = True
        try:
            restore(host, context.store, now, steady)
        except StateError as error:
            # We do not know its last request, so we assume that it was just now.
            context.recorder.own_fault(str(error), kept=True)
            host.traffic.restore(now, now)
        server = self._server_key(host)
        if server and (self._least or server in self._hosts):
            host.traffic.server = self._server(server).traffic
        # Scrapy's slots are named by host. A throttle key may have a port as well.
        slot = self._slots.get(host.key) or self._slots.get(host.key.partition(":")[0]) or {}
        if slot.get("delay"):
            host.traffic.set_interval(float(slot["delay"]), source="DOWNLOAD_SLOTS")
        return host

    def taking_in(self) -> bool:
        """Whether `Spider.start` may still yield a target that goes before others.

        After WALSH_PATIENCE we stop waiting for that, because a `start` may never end.
        """
        context = self._context
        now = self._context.monotonic()
        return context.scope.growing and now - context.begun < context.config.patience

    # -- the queue ------------------------------------------------------------------------

    def tell_wait(self, host: Host | None, first_url: Callable[[], str | None]) -> None:
        """Record that *host* is not due, once for each due time.

        *first_url*: returns the first URL in its queue.
        """
        context = self._context
        now = self._context.monotonic()
        if host is None or not now < host.traffic.due < math.inf:
            return
        wait = host.wait(now)
        due = now + wait
        # A due time that was recorded is not recorded again.
        if wait == 0 or due - host.told < _ROUNDING or (url := first_url()) is None:
            return
        host.told = due
        reason = f"{host.key} is not due for {wait:.3f} s"
        until = context.wall() + wait
        event = Event(events.HELD, url, "R4", reason=reason, host=host.key, wait=wait, due=until)
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
        """Record a failed request to *url*, as R5 decided. Returns the reason.

        *error*: the cause if there was no answer, else None. *trial*: as for ``Recorder.record``.
        """
        reason = failure.reason(error)
        context = self._context
        host = self.host_of(url).key
        wait = failure.delay
        kind: EventKind = events.RETRIED if isinstance(failure, Retry) else events.GIVEN_UP
        due = context.wall() + wait
        event = Event(
            kind,
            url,
            "R5",
            reason=reason,
            host=host,
            status=status,
            wait=wait,
            due=due,
            error=(error and error.error) or "",
            unanswered=failure.unanswered if isinstance(failure, GiveUp) else None,
        )
        context.recorder.record(event, trial=trial)
        return reason

    # -- the wire -------------------------------------------------------------------------

    def reserve(self, host: Host) -> Booking | None:
        """Book *host* for this process (R4.6).

        If another process has booked it, the Booking has the seconds to wait. Returns None if
        the shared store is away. Then the turnstile is shut and nothing is sent.
        """
        context = self._context
        steady = self._context.steady()
        try:
            booking = context.store.reserve_host(
                host.key, host.traffic.untaught, steady, self._server_key(host), self._least
            )
        except StoreAway:
            self.pulse.look()
            return None
        except StateError as error:
            context.recorder.own_fault(str(error), kept=True)
            # The crawl goes on by its own spacing.
            booking = Booking(0.0, known=False)
        if booking.taught != NOTHING:
            host.take(ease(booking.taught, steady))
        host.traffic.rested = booking.rested
        if booking.server is not None:
            self._server(self._server_key(host), booking.server)
        return booking

    # -- hosts of one server (T43) --------------------------------------------------------

    def _server_key(self, host: Host) -> str:
        return hosts.server_key(host.key, host.traffic.address, self._pace_by)

    def server_of(self, host: Host) -> Host | None:
        """Return the server of *host*, if its hosts are paced together, else None."""
        return self._hosts.get(self._server_key(host))

    def _server(self, key: str, record: HostRecord | None = None) -> Host:
        """Return the server with this *key*. From now on its hosts are paced together.

        *record*: its record, if another process may have written it.
        """
        server = self._hosts.get(key)
        if server is None:
            traffic = self.traffic.setdefault(key, Traffic(self._least))
            server = self._hosts[key] = Host(key, self._terms, traffic, known=True)
            for name, member in self.traffic.items():
                if hosts.server_key(name, member.address, self._pace_by) == key:
                    member.server = traffic
        if record is not None:
            take_record(server, record, self._context.monotonic(), self._context.steady())
        return server

    def reached(self, host: Host, address: str) -> float:
        """Note that *host* is about to be reached at *address*.

        Returns the seconds that it must wait because of its server. If they are 0, the server is
        booked.
        """
        traffic = host.traffic
        if traffic.address == address:  # the server was booked with the host
            return 0.0
        previous_key = self._server_key(host)
        traffic.address = address
        key = self._server_key(host)
        if key == previous_key:
            return 0.0
        traffic.server = None
        context = self._context
        steady = context.steady()
        record = context.recall(lambda: context.store.get(HostRecord, key))
        is_bound = record is not None and record.binds(steady)
        if not (self._least or is_bound or key in self._hosts):
            return 0.0
        server = self._server(key, record if is_bound else None)
        traffic.server = server.traffic
        wait = server.traffic.wait(context.monotonic())
        if wait > 0 or not (self._least or is_bound):
            return wait
        booking = context.recall(lambda: context.store.reserve_host(key, self._least, steady))
        if booking is None or booking.wait <= 0:
            return 0.0
        server.traffic.hold(context.monotonic() + booking.wait)
        return booking.wait

    def behind_proxy(self) -> None:
        """Say once that the addresses of hosts are not known."""
        if self._has_told_proxy or not isinstance(self._pace_by, str):
            return
        self._has_told_proxy = True
        logger.log(
            logging.WARNING if self._least else logging.INFO,
            "a proxy is in use, so the addresses of hosts are unknown, and hosts of one server are "
            'not paced together; WALSH_PACE_BY = {"*.blog.example": "blogs"} does it by name',
        )

    def share(
        self, host: Host, answer: Answer, wait: float | None, started: float, ended: float
    ) -> float | None:
        """Note what an answer of *host* means for the other hosts of its server.

        *wait*: seconds that R5 holds *host*. *started*, *ended*: of the exchange, Unix seconds by
        the steady clock. Returns the seconds that all hosts of the server must wait, or None.
        """
        key = self._server_key(host)
        server = self._hosts.get(key)
        if not key or not answer.whole or (server is None and answer.status != TOO_MANY_REQUESTS):
            return None
        context = self._context
        config = context.config
        interval = config.min_interval if server is None else server.traffic.interval
        gap = None if server is None or server.accepted is None else started - server.accepted
        spacing = Spacing(max(config.min_interval, interval), gap, ended)
        shared = Shared(
            learned=NOTHING if server is None else server.learned, declared=self._declared
        )
        reply = host.key, answer.status, wait or 0.0

        def change(record: HostRecord | None) -> HostRecord:
            nonlocal shared
            record = (record or HostRecord(key, ended, self._least)).at(ended)
            stored = replace(shared, refusal=record.refusal, learned=record.taught)
            shared = share(stored, reply, spacing, config.patience)
            until = max(record.not_before or 0.0, ended + (shared.wait or 0.0))
            not_before = until if until > ended else None
            return replace(
                record, refusal=shared.refusal, taught=shared.learned, not_before=not_before
            )

        if answer.status == TOO_MANY_REQUESTS:
            context.remember(lambda: context.store.update_host(key, change))
            if server is None and shared.wait is None:
                return None
        else:
            shared = share(shared, reply, spacing, config.patience)
        server = self._server(key)
        now = context.monotonic()
        if accepts(answer.status):
            server.accepted = ended
        server.learn(shared.learned)
        server.traffic.finished(now)
        server.traffic.hold(now + (shared.wait or 0.0))
        self._remember(server, now, ended)
        return shared.wait

    def finished(self, host: Host, answer: Answer, concluded: Conclusion, *, ended: float) -> None:
        """Note and store the end of a request: the spacing of *host*, and its hold (R5).

        *ended*: Unix seconds by the steady clock.
        """
        context = self._context
        now = self._context.monotonic()
        host.finished(answer, concluded, now, ended)
        # A slow host's visit may go before the interval is over, and is stored as a visit (D11).
        visit = host.traffic.ahead and answer.purpose == TARGET
        self._remember(host, now, ended, visit=visit)
        self._remember_silence(host, now)
        if concluded.wait is not None:  # other processes must keep this hold at once
            context.remember(context.store.flush)

    def hold(self, host: Host, seconds: float) -> None:
        """Hold *host* for *seconds*, also for later runs (D8)."""
        context = self._context
        now = self._context.monotonic()
        host.traffic.hold(now + seconds)
        self._remember(host, now, context.steady())
        context.remember(context.store.flush)

    def _remember(self, host: Host, now: float, steady: float, *, visit: bool = False) -> None:
        """Store interval, last request and hold of *host* for later runs and other processes."""
        context = self._context
        traffic = host.traffic
        until = steady + max(0.0, traffic.not_before - now)
        visited = steady if visit else None
        record = HostRecord(
            host.key,
            steady,
            traffic.untaught,
            until,
            visited,
            host.learned,
            address=traffic.address,
        )
        context.remember(lambda: context.store.book_host(record))

    def _remember_silence(self, host: Host, now: float) -> None:
        """Store whether *host* is silent, if that has changed (D31)."""
        silent = host.silence.lasts(now)
        if silent == host.kept_silent:
            return
        host.kept_silent = silent
        context = self._context
        since = context.steady() if silent else None

        def change(record: HostRecord | None) -> HostRecord | None:
            if record is None:  # the host was never booked, so there is no record to change
                return None
            return replace(record, silent_since=since)

        context.remember(lambda: context.store.update_host(host.key, change))


def restore(host: Host, store: Store, now: float, steady: float) -> None:
    """Load the record of *host* from *store* (T33). Raises StateError.

    Stored times are by the steady clock, which reads *steady* now, in Unix seconds (D9). They are
    converted to the monotonic clock, which reads *now*.
    """
    record = store.get(HostRecord, host.key)
    traffic = host.traffic
    if store.rows_lost:  # the record of the last request may be lost
        traffic.restore(now, now)
    if record is None:
        return
    traffic.address = traffic.address or record.address
    host.silence.before = host.kept_silent = record.silent_since is not None
    take_record(host, record, now, steady)
    if record.at(steady) is not record:
        store.update_host(host.key, lambda current: current and current.at(steady))


def take_record(host: Host, record: HostRecord, now: float, steady: float) -> None:
    """Apply the *record* of a host or server to its traffic and pace. Clocks as in `restore`."""
    traffic = host.traffic
    # If the clock was put back, times in the future count as now.
    record = record.at(steady)
    # A request under way was booked at its start, and reached the server a little later.
    since = max(0.0, steady - record.last_end - (_REACH if record.under_way else 0.0))
    hold = max(0.0, (record.not_before or steady) - steady)
    visited = None if record.visited_at is None else now - (steady - record.visited_at)
    traffic.restore(now - since, now + hold, visited)
    traffic.set_interval(record.interval, source=EARLIER_RUN)
    host.take(ease(record.taught, steady))
