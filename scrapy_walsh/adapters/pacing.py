"""R4 for one crawl: when its hosts are due, and which requests the queue has given out.

The rule itself is ``policy/host.py`` and ``policy/chain.admit``. Here a URL becomes a host, what
earlier runs stored about that host is brought in at first use, the host is booked before a request
is sent, and each wait is recorded once.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.adapters import compat
from scrapy_walsh.adapters.events import logger
from scrapy_walsh.adapters.turnstile import TURNSTILE
from scrapy_walsh.exceptions import ConfigError, StateError, StoreAway
from scrapy_walsh.policy import event as events
from scrapy_walsh.policy import hosts
from scrapy_walsh.policy.event import TARGET, Event
from scrapy_walsh.policy.host import Host, Terms, Traffic
from scrapy_walsh.policy.learned import NOTHING, eased
from scrapy_walsh.policy.robots.fetch import REASK
from scrapy_walsh.state.records import Booking, HostRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_walsh.adapters.context import Context
    from scrapy_walsh.adapters.turnstile import Turnstile
    from scrapy_walsh.fleet.store import SharedStore
    from scrapy_walsh.policy import chain
    from scrapy_walsh.state.store import Store

# R4.6: looks regularly whether a fleet's Redis answers. While it is away nothing is sent.


class Pulse:
    """The heartbeat of one crawl; it does nothing where the store is not shared.

    ConfigError where Redis answers, and will not do what is needed.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._store: SharedStore | None = None
        self._shut_at: float | None = None
        self._begun = False
        self._timer = compat.Timer(self._beat)
        if context.config.shared_state is not None:
            from scrapy_walsh.fleet.store import SharedStore  # noqa: PLC0415  an extra

            if isinstance(context.store, SharedStore):
                self._store = context.store
                self._begin(context.store)

    def start(self) -> None:
        """Look now, and again whenever the store says (``SharedStore.beat``)."""
        if self._store is not None:
            self._beat()

    def _begin(self, store: SharedStore) -> None:
        """Say once, when Redis is there, how it keeps its data. Raises ConfigError."""
        if not self._begun and (lines := store.link.begin()) is not None:
            self._begun = True
            for level, line in lines:
                logger.log(level, "%s", line)

    def stop(self) -> None:
        """Look no more."""
        self._timer.cancel()

    def _beat(self) -> None:
        store, context = self._store, self._context
        if store is None:
            return
        try:
            self._begin(store)
            delay = store.beat()
            if store.link.refused is not None:
                raise store.link.refused
        except ConfigError as error:
            context.halt(str(error))
            return
        self.look()
        context.say_lost(store)
        if store.link.given_up:
            context.fail(StoreAway(f"{store.link.outage()}: the crawl ends: see to that Redis"))
        else:
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


#: What a host's interval is called until its robots.txt has been read in this run.
EARLIER_RUN: Final = "earlier run"
#: Seconds for which a request that was booked may be on its way to the server.
_REACH: Final = 0.25
#: Seconds by which two calculations of one due time may differ.
_ROUNDING: Final = 0.005


class Pacing:
    """The hosts of one crawl, by their throttle keys (``hosts.host_key``)."""

    def __init__(self, context: Context, turnstile: Turnstile, pulse: Pulse) -> None:
        config = context.config
        self._context = context
        self._pulse = pulse
        #: What the process sends to each host, whichever of its crawls does.
        self.traffic = turnstile.traffic
        self._slots: dict[str, dict[str, Any]] = context.crawler.settings.getdict("DOWNLOAD_SLOTS")
        self._hosts: dict[str, Host] = {}
        self._begun = context.monotonic()
        #: A worker of a fleet may run for weeks, so it forgets which hosts gave no answer.
        forget_after = math.inf if config.shared_state is None else REASK
        self._terms = Terms(
            context.gates,
            config.robots_unreachable,
            forget_after,
            config.min_interval if config.pace_robots else None,
            context.wall,
            self.taking_in,
        )

    # -- a host ---------------------------------------------------------------------------

    def look_up(self, url: str) -> str:
        """As :func:`~scrapy_walsh.policy.hosts.host_or_url`; the host is known from then on."""
        return self.host_of(url).key

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
        host.known = True
        try:
            restore(host, context.store, now, context.steady())
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
        context = self._context
        return context.scope.growing and context.monotonic() - self._begun < context.config.patience

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
        context.recorder.record(
            Event(
                events.HELD,
                url,
                "R4",
                reason=f"{host.key} is not due for {wait:.3f} s",
                host=host.key,
                wait=wait,
                due=context.wall() + wait,
            )
        )

    def give_back(self, host: Host, wait: float) -> bool:
        """Hold *host* for what goes back to the queue; whether that goes first there.

        On a slow host, what was deferred first does. ``wait``: seconds; ``inf`` while a request is
        under way, after which the queue looks again.
        """
        if host.slow:
            return False
        if wait < math.inf:
            host.traffic.hold(self._context.monotonic() + wait)
        return True

    # -- the wire -------------------------------------------------------------------------

    def reserve(self, host: Host) -> Booking | None:
        """Book *host* for this process now, or learn how long it must wait (R4.6).

        None while the shared store is away: nothing may be sent then, and the turnstile is shut.
        """
        context, steady = self._context, self._context.steady()
        try:
            booking = context.store.reserve_host(host.key, host.traffic.untaught, steady)
        except StoreAway:
            self._pulse.look()
            return None
        except StateError as error:
            context.recorder.own_fault(str(error), kept=True)
            booking = Booking(0.0, known=False)
        if booking.taught != NOTHING:
            host.take(eased(booking.taught, steady))
        host.traffic.rested = booking.rested
        return booking

    def finished(
        self, host: Host, answer: chain.Answer, concluded: chain.Conclusion, *, ended: float
    ) -> None:
        """Note and store the end of a request to *host*: its spacing, and its hold (R5).

        *ended*: Unix seconds by the steady clock.
        """
        context, now = self._context, self._context.monotonic()
        host.finished(answer, concluded, now, ended)
        # The one target of a slow host that goes ahead of its interval is booked as such (D11).
        visit = host.traffic.ahead and answer.purpose == TARGET
        self._remember(host, now, ended, visit=visit)
        self._remember_silence(host, now)
        if concluded.failure is not None:
            context.remember(context.store.flush)

    def hold(self, host: Host, seconds: float) -> None:
        """Leave *host* alone for *seconds*, in later runs too (D8)."""
        context, now = self._context, self._context.monotonic()
        host.traffic.hold(now + seconds)
        self._remember(host, now, context.steady())
        context.remember(context.store.flush)

    def _remember(self, host: Host, now: float, steady: float, *, visit: bool = False) -> None:
        """Store interval, last request and hold of *host* for later runs and other processes."""
        context, hold = self._context, max(0.0, host.traffic.not_before - now)
        booked = host.key, host.traffic.untaught, steady, hold
        context.remember(lambda: context.store.book_host(*booked, visit=visit, taught=host.learned))

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
    # The start of a request was booked here, and the server saw it later.
    since = max(0.0, steady - record.last_end - (_REACH if record.under_way else 0.0))
    held = max(0.0, (record.not_before or steady) - steady)
    visited = None if record.visited_at is None else now - (steady - record.visited_at)
    traffic.restore(now - since, now + held, visited)
    traffic.set_interval(record.interval, source=EARLIER_RUN)
    host.take(eased(record.taught, steady))
    host.silence.before = host.kept_silent = record.silent_since is not None
