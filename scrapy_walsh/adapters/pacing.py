"""R4 for one crawl: when its hosts are due, and which requests the queue has given out.

The rule itself is ``policy/throttle.py`` and ``policy/chain.admit``. Here a URL becomes a host,
what earlier runs stored about that host is restored at first use, the host is booked before a
request is sent, and each wait is recorded once.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.adapters import compat
from scrapy_walsh.adapters.events import logger
from scrapy_walsh.adapters.turnstile import TURNSTILE
from scrapy_walsh.exceptions import StateError, StoreAway
from scrapy_walsh.policy import chain, hosts
from scrapy_walsh.policy import event as events
from scrapy_walsh.policy.backoff import Silences
from scrapy_walsh.policy.event import Event
from scrapy_walsh.policy.learned import LEARNED, NOTHING, Learned, Spacing, accepts, eased
from scrapy_walsh.policy.robots.fetch import REASK
from scrapy_walsh.state.records import Booking, HostRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_walsh.adapters.context import Context
    from scrapy_walsh.adapters.turnstile import Turnstile
    from scrapy_walsh.fleet.store import SharedStore
    from scrapy_walsh.policy.throttle import Throttle
    from scrapy_walsh.policy.verdict import Verdict
    from scrapy_walsh.state.store import Store

# R4.6: looks regularly whether a fleet's Redis answers. While it is away nothing is sent.


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


#: What a host's interval is called until its robots.txt has been read in this run.
EARLIER_RUN: Final = "earlier run"
#: Seconds for which a request that was booked may be on its way to the server.
_REACH: Final = 0.25
#: Seconds by which two calculations of one due time may differ.
_ROUNDING: Final = 0.005
#: Seconds between two looks at whether the spider has named all its targets.
_INTAKE: Final = 0.2


class Pacing:
    """The hosts of one crawl, by their throttle keys (``hosts.host_key``)."""

    def __init__(self, context: Context, turnstile: Turnstile, pulse: Pulse) -> None:
        self._context = context
        self._pulse = pulse
        self.throttle = turnstile.throttle
        self.throttle.raise_minimum(context.config.min_interval)
        self._slots: dict[str, dict[str, Any]] = context.crawler.settings.getdict("DOWNLOAD_SLOTS")
        self._looked_up: set[str] = set()
        self._begun = context.monotonic()
        #: How often hosts gave no answer in this run (R5), and which gave none in an earlier one.
        self.silences = Silences(
            context.config.max_retries,
            context.config.robots_unreachable,
            math.inf if context.config.shared_state is None else REASK,
        )
        #: Hosts of which the store has that they give no answer (D31).
        self._silent: set[str] = set()
        #: By host, the due time that was recorded last.
        self._told: dict[str, float] = {}
        #: By host, what its answers have taught (D28); only hosts that have taught something.
        self._learned: dict[str, Learned] = {}
        #: Hosts of which the store knew that, and no line of the ledger says it yet.
        self._taken: set[str] = set()
        #: By host, when its last accepted answer ended, by the steady clock.
        self._accepted: dict[str, float] = {}

    # -- a host ---------------------------------------------------------------------------

    def look_up(self, url: str) -> str:
        """As :func:`~scrapy_walsh.policy.hosts.host_or_url`.

        At first use of a host, what earlier runs stored about it goes into the throttle.
        """
        host = hosts.host_or_url(url)
        if host != url:
            self.know(host)
        return host

    def know(self, host: str) -> None:
        """Look *host* up if nobody has: a JOBDIR names hosts without any URL of theirs."""
        if host not in self._looked_up:
            self._looked_up.add(host)
            try:
                self._restore(host)
            except StateError as error:
                # Its record cannot be read, so it is spaced as if it had just been requested.
                self._context.recorder.own_fault(str(error), kept=True)
                now = self._context.monotonic()
                self.throttle.restore(host, now, now)
            self._slow_down(host)

    def _slow_down(self, host: str) -> None:
        """Set the interval that Scrapy's DOWNLOAD_SLOTS asks for on *host*, if any."""
        slot = self._slots.get(host) or self._slots.get(host.partition(":")[0]) or {}
        if slot.get("delay"):
            self.throttle.set_interval(host, float(slot["delay"]), source="DOWNLOAD_SLOTS")

    def _restore(self, host: str) -> None:
        context = self._context
        taught, silent = restore(
            self.throttle, context.store, host, context.monotonic(), context.steady()
        )
        self._take(host, taught)
        if silent is not None:
            self._silent.add(host)
            self.silences.remember(host)

    # -- what a host has taught (D28) -----------------------------------------------------

    def learned(self, host: str) -> Learned:
        """What *host* has taught by its answers 429."""
        return self._learned.get(host, NOTHING)

    def spacing(self, host: str, started: float, ended: float) -> Spacing:
        """How the request to *host* was spaced that was under way between these two times.

        *started*, *ended*: Unix seconds by the steady clock.
        """
        before = self._accepted.get(host)
        gap = None if before is None else started - before
        return Spacing(self.throttle.interval(host), gap, ended)

    def answered(self, host: str, status: int | None, ended: float) -> None:
        """Note an answer of *host*, and when it ended, for the gap to its next request."""
        if status is not None:
            self.silences.answered(host, self._context.monotonic())
        if accepts(status):
            self._accepted[host] = ended

    def newly_taken(self, host: str) -> tuple[float, ...]:
        """What the store knew of *host*, for the ledger: once, and empty where it knew nothing."""
        if host not in self._taken:
            return ()
        self._taken.discard(host)
        known = self.learned(host)
        return known.interval, known.accepted, float(known.calm or 0), known.at

    def _take(self, host: str, taught: Learned) -> None:
        """Go by what the store has, if an earlier run or another process has put it there."""
        known = self.learned(host)
        if taught.calm is None or replace(taught, at=known.at) == known:
            return
        self._taken.add(host)
        self._learn(host, taught)

    def _learn(self, host: str, taught: Learned) -> None:
        if taught == self.learned(host):
            return
        self._learned[host] = taught
        self.throttle.set_interval(host, taught.interval, source=LEARNED)

    def of(self, host: str, *, document: bool = False) -> chain.Pace:
        """What ``chain.admit`` must know of *host*; *document*: for a request for robots.txt."""
        wait = self.throttle.wait(host, self._context.monotonic(), document=document)
        spent = self.spent(host, document=document)
        return chain.Pace(host, wait, self.throttle.interval(host), spent)

    def admit(
        self, host: str, *, document: bool = False, ended: str = ""
    ) -> chain.Go | chain.Wait | chain.Refuse | chain.Ended:
        """What the chain says of a request that wants to go to *host* now."""
        pace, context = self.of(host, document=document), self._context
        return chain.admit(pace, context.gates, context.wall(), document=document, ended=ended)

    def spent(self, host: str, *, document: bool = False) -> Verdict | None:
        """The verdict against a host that gave no answer to as many requests as D13 grants it."""
        return self.silences.against(host, self._context.monotonic(), robots=document)

    def goes_last(self, host: str) -> bool:
        """Whether *host* gave no answer in an earlier run, and was not tried in this one (D31)."""
        self.know(host)
        return self.silences.untried(host, self._context.monotonic())

    def slow(self, host: str) -> bool:
        """Whether *host* asks for more time between two requests than a run waits."""
        return chain.is_slow(self.throttle.interval(host), self._context.gates)

    # -- the queue ------------------------------------------------------------------------

    def due(self, host: str) -> float:
        """When the queue may give out a request to *host*.

        Monotonic seconds: ``-inf`` where the gate will defer the request, ``inf`` while another
        request to the host is under way. A slow host waits until the spider has named all its
        targets, because the one that was deferred first goes first.
        """
        if self.slow(host) and self.taking_in():
            return self._context.monotonic() + _INTAKE
        return self._due(host)

    def _due(self, host: str) -> float:
        due = self.throttle.due(host)
        if math.isinf(due):  # a request is under way; or there was none yet: it may go, or end
            return due
        step = chain.admit(self.of(host), self._context.gates, self._context.wall())
        return -math.inf if isinstance(step, chain.Refuse) else due

    def taking_in(self) -> bool:
        """Whether `Spider.start` may still name a target that goes before others.

        False after WALSH_PATIENCE at the latest: a `start` may have no end.
        """
        context = self._context
        return context.scope.growing and context.monotonic() - self._begun < context.config.patience

    def wait(self, host: str) -> float:
        """Seconds for which requests to *host* wait in the queue; 0 while one is under way."""
        due = self._due(host)
        return 0.0 if due == math.inf else max(0.0, due - self._context.monotonic())

    def tell_wait(self, host: str, first: Callable[[], str | None]) -> None:
        """Record that *host* is not due, once for each due time; *first*: the URL that waits."""
        context, wait = self._context, self.wait(host)
        if wait == 0:
            return
        due = context.monotonic() + wait
        if due - self._told.get(host, -math.inf) < _ROUNDING:
            return
        url = first()
        if url is None:
            return
        self._told[host] = due
        context.recorder.record(
            Event(
                events.HELD,
                url,
                "R4",
                reason=f"{host} is not due for {wait:.3f} s",
                host=host,
                wait=wait,
                due=context.wall() + wait,
            )
        )

    def give_back(self, host: str, wait: float) -> bool:
        """Hold *host* for what goes back to the queue; whether that goes first there.

        On a slow host, what was deferred first does. ``wait``: seconds; ``inf`` while a request is
        under way, after which the queue looks again.
        """
        if self.slow(host):
            return False
        if wait < math.inf:
            self.throttle.hold(host, self._context.monotonic() + wait)
        return True

    # -- the wire -------------------------------------------------------------------------

    def reserve(self, host: str) -> Booking | None:
        """Book *host* for this process now, or learn how long it must wait (R4.6).

        None while the shared store is away: nothing may be sent then, and the turnstile is shut.
        """
        context = self._context
        interval = self.throttle.interval(host, without=LEARNED)
        try:
            booking = context.store.reserve_host(host, interval, context.steady())
        except StoreAway:
            self._pulse.look()
            return None
        except StateError as error:
            context.recorder.own_fault(str(error), kept=True)
            booking = Booking(0.0, known=False)
        self._take(host, eased(booking.taught, context.steady()))
        self.throttle.rested(host, booking.rested)
        return booking

    def finished(self, host: str, concluded: chain.Conclusion, *, visit: bool) -> None:
        """Note and store the end of a request to *host*: its spacing, and its hold (R5).

        ``visit``: it was the one target of a slow host that goes ahead of the interval (D11).
        """
        config, now = self._context.config, self._context.monotonic()
        spacing = config.min_interval if config.pace_robots else None
        self.throttle.finished(host, now, exempt=concluded.exempt, spacing=spacing)
        if concluded.failure is not None:
            self.throttle.hold(host, now + concluded.hold)
        self._learn(host, concluded.learned)
        self._remember(host, now, visit=visit)
        self._remember_silence(host, now)
        if concluded.failure is not None:
            self._context.remember(self._context.store.flush)

    def hold(self, host: str, seconds: float) -> None:
        """Leave *host* alone for *seconds*, in later runs too (D8)."""
        now = self._context.monotonic()
        self.throttle.hold(host, now + seconds)
        self._remember(host, now)
        self._context.remember(self._context.store.flush)

    def _remember(self, host: str, now: float, *, visit: bool = False) -> None:
        """Store interval, last request and hold of *host* for later runs and other processes."""
        context = self._context
        hold = max(0.0, self.throttle.held_until(host) - now)
        interval, steady = self.throttle.interval(host, without=LEARNED), context.steady()
        taught = self.learned(host)
        context.remember(
            lambda: context.store.book_host(
                host, interval, steady, hold, visit=visit, taught=taught
            )
        )

    def _remember_silence(self, host: str, now: float) -> None:
        """Store that *host* gives no answer, or that it has given one again (D31)."""
        silent = self.silences.silent(host, now)
        if silent == (host in self._silent):
            return
        self._silent ^= {host}
        context = self._context
        since = context.steady() if silent else None

        def change(record: HostRecord | None) -> HostRecord | None:
            return None if record is None else replace(record, silent_since=since)

        context.remember(lambda: context.store.update_host(host, change))


def restore(
    throttle: Throttle, store: Store, host: str, now: float, steady: float
) -> tuple[Learned, float | None]:
    """Put what *store* has of *host* into *throttle* (T33).

    Returns the rest: what the host has taught (D28), and since when it gives no answer (D31).
    Raises StateError. Its times become those of the clock that *now* was read from.
    *steady*: Unix seconds by the steady clock, of which stored times are (D9).
    """
    record = store.get(HostRecord, host)
    if store.rows_lost:  # a host may have had a request that is not on record
        throttle.restore(host, now, now)
    if record is None:
        return NOTHING, None
    # The start of a request was booked here, and the server saw it later.
    since = max(0.0, steady - record.last_end - (_REACH if record.under_way else 0.0))
    held = max(0.0, (record.not_before or steady) - steady)
    visited = None if record.visited_at is None else now - (steady - record.visited_at)
    throttle.restore(host, now - since, now + held, visited)
    throttle.set_interval(host, record.interval, source=EARLIER_RUN)
    return eased(record.taught, steady), record.silent_since
