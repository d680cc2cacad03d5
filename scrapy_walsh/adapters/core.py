"""What the seats of one crawl share: configuration, documents, records, clocks.

``Core.of(crawler)`` makes it on first use, whoever asks first, and closes it with the
spider. It brings the policy what it asks for and books what it answers.
"""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from scrapy import Request, signals
from scrapy.exceptions import CloseSpider, IgnoreRequest, NotConfigured
from scrapy.utils.project import data_path

from scrapy_walsh import fleet
from scrapy_walsh.adapters import compat, journal, seats
from scrapy_walsh.adapters.asked import Asked, form_of
from scrapy_walsh.adapters.documents import Documents
from scrapy_walsh.adapters.events import Recorder, logger, quiet_libraries
from scrapy_walsh.adapters.fetcher import Fetcher
from scrapy_walsh.adapters.holds import Holds
from scrapy_walsh.adapters.intake import Intake
from scrapy_walsh.adapters.lease import Lease
from scrapy_walsh.adapters.outcomes import Closing, Refused
from scrapy_walsh.adapters.pulse import Pulse
from scrapy_walsh.adapters.readings import Readings
from scrapy_walsh.adapters.retries import Retries, hold_of
from scrapy_walsh.adapters.robots_txt import EARLIER_RUN
from scrapy_walsh.adapters.scraping import Scraping
from scrapy_walsh.adapters.tags import Tags
from scrapy_walsh.adapters.turnstile import TURNSTILE
from scrapy_walsh.config import SLOW_SKIP, WalshConfig
from scrapy_walsh.exceptions import StateError, StoreAway, WalshError
from scrapy_walsh.policy import chain, hosts, recrawl
from scrapy_walsh.policy import event as events
from scrapy_walsh.policy.backoff import BACKOFF_STATUSES
from scrapy_walsh.policy.chain import NeedDocument
from scrapy_walsh.policy.event import Event, Exchange
from scrapy_walsh.policy.scope import Scope
from scrapy_walsh.policy.verdict import DEFERRED, UNKNOWN_PARSE_ERROR, UNKNOWN_UNREACHABLE, Verdict
from scrapy_walsh.state import open_store
from scrapy_walsh.state.clock import steady_clock
from scrapy_walsh.state.records import Booking, Deferral

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from scrapy_walsh.adapters.queue import HostQueue
    from scrapy_walsh.adapters.redis_queue import DueQueue
    from scrapy_walsh.state.records import Store

_T = TypeVar("_T")
_ATTRIBUTE: Final = "walsh"
#: Why the spider of a refused crawl was closed.
_REFUSED: Final = "walsh_refused"
#: Seconds between looks at whether the spider is closing.
_CLOSING_CHECK: Final = 0.2
#: Seconds that a booked request may take to reach its server.
_REACH: Final = 0.25
#: Seconds for which nobody else can have asked a source that was looked up: a host that another
#: process has booked is held for longer.
_JUST_NOW: Final = 0.1
#: Seconds for which a clearance needs no second look.
_CLEARANCE: Final = 1.0


def default_state_dir() -> str:
    """``.scrapy/walsh`` of the project, which DotScrapy keeps between jobs.

    Of the working directory where there is no scrapy.cfg, as for a project in an egg: Scrapy's
    NotConfigured for that would switch the add-on off, and crawl without it.
    """
    try:
        return data_path("walsh", createdir=False)
    except NotConfigured:
        return str(Path(".scrapy", "walsh"))


@dataclass(slots=True)
class _Standing:
    """How a request stands with the gates: the last verdict, and when it was let pass."""

    url: str
    verdict: Verdict
    basis: tuple[int, int] | None
    judged_at: float
    cleared_at: float | None = None


class Core:
    """One crawl's shared state.

    ``monotonic`` is for waiting, ``wall`` for records of documents and sources, ``steady`` for
    those of hosts, which no setting of the clock may move (D9).
    """

    @classmethod
    def of(cls, crawler: Crawler) -> Core:
        """The core of *crawler*; ConfigError or StateError when it cannot be made."""
        core: Core | None = getattr(crawler, _ATTRIBUTE, None)
        if core is None:
            try:
                core = cls(crawler)
            except WalshError as error:
                compat.refuse_start(error)
            setattr(crawler, _ATTRIBUTE, core)
        return core

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        quiet_libraries()
        self.config = WalshConfig.from_settings(crawler.settings, default_state_dir)
        self.monotonic: Callable[[], float] = time.monotonic
        self.wall: Callable[[], float] = time.time
        self.rand: Callable[[], float] = random.random
        self.store = self.open_store()
        self.recorder = Recorder(crawler, journal.open_ledger(self))
        self.steady = steady_clock(self.config.state_dir, self.store.notices)
        self.lease = Lease.of_process(self.config, self.wall)
        self.throttle = TURNSTILE.throttle
        self.throttle.raise_minimum(self.config.min_interval)
        self.halted: str | None = None
        self._slots: dict[str, dict[str, Any]] = crawler.settings.getdict("DOWNLOAD_SLOTS")
        self.queues: list[HostQueue | DueQueue] = []
        self.scope = Scope(self.config.follow_links)
        self.gates = chain.Gates(
            self.config.excluded_tlds, self.config.revisit, self.config.revisit_reason
        )
        self.fetcher = Fetcher(self)
        self.documents = Documents(self)
        self.scraping = Scraping(self)
        self.tags = Tags(self)
        #: Requests that the queue popped and the downloader has not finished: only these bounce.
        self.popped: WeakSet[Request] = WeakSet()
        #: Who is told of each request that goes on the wire.
        self.on_wire: list[Callable[[Request], None]] = []
        #: Requests that go first on their host: retries and bounced ones.
        self.first: WeakSet[Request] = WeakSet()
        #: Requests that go before their equals: those that a slow host's robots.txt came before.
        self.given_back: WeakSet[Request] = WeakSet()
        self._standing: WeakKeyDictionary[Request, _Standing] = WeakKeyDictionary()
        self.intake = Intake(self)
        self.asked = Asked(self)
        self.readings = Readings(self)
        self.holds = Holds(self)
        self.retries = Retries(self)
        self._looked_up: set[str] = set()
        #: Since when targets have been put off by earlier runs; read at the first look.
        self._put_off: dict[str, float] | None = None
        #: Whether `Spider.start` has yielded its last request.
        self.started = False
        self._begun = self.monotonic()
        self._store_closed = False
        self.pulse = Pulse(self)
        self._connect()

    def open_store(self) -> Store:
        """One more connection to what this crawl remembers; StateError."""
        config = self.config
        local = open_store(config.state_dir)
        return fleet.join(local, config.shared_state, config.identity.token)

    def _connect(self) -> None:
        connect = self.crawler.signals.connect
        connect(self._opened, signals.spider_opened)
        connect(self._idle, signals.spider_idle)
        connect(self._closed, signals.spider_closed)
        TURNSTILE.join(self)

    def _opened(self) -> None:
        self.pulse.start()
        self.remember(lambda: self.store.prune(min(self.wall(), self.steady())))
        self._tell_notices()
        if compat.is_shell(self.crawler):
            # What a person types is declared, and a reason to ask again (spec section 1.1).
            self.scope.follow_links = self.started = True
            self.gates = replace(self.gates, revisit_reason="asked from a shell")
        self.recorder.note("started", **journal.terms(self))
        for url, via in self.scope.targets():  # of a JOBDIR
            self.recorder.note("declared", url=url, via=via)
        try:
            missing = seats.missing(self.crawler)
        except Exception as error:  # the signal would swallow it, and the crawl go on unchecked
            missing = [f"the installation cannot be checked: {error!r}"]
        if missing:
            self.halt(f"scrapy_walsh is not completely installed: {'; '.join(missing)}")
        elif self.lease is not None and (overlap := self.lease.take()) is not None:
            self.halt(overlap)

    def _tell_notices(self) -> None:
        """What the store found damaged or unwritable, and what it did."""
        while self.store.notices:
            logger.warning("%s", self.store.notices.pop(0))

    def _closed(self, reason: str) -> None:
        for queue in self.queues:
            queue.stop()
        self.documents.close()
        self.pulse.stop()
        TURNSTILE.leave_for_good(self)
        self.documents.count()
        self.recorder.tell_hosts()
        self.recorder.rates()
        account = "\n".join(self.recorder.account())
        logger.info("account of the crawl:\n%s", account, extra={"several_lines": True})
        self.asked.close()
        self.readings.close(reason)
        self._tell_notices()
        self.recorder.note("ended", reason=reason)
        self.recorder.close()
        self._store_closed = True
        self.store.close()
        if self.lease is not None:
            self.lease.give_back()

    def halt(self, why: str) -> None:
        """Refuse to go on: nothing is asked from now on, the spider closes, the command fails."""
        self.halted = why
        logger.critical("%s", why)
        compat.fail_command()
        compat.close_spider(self.crawler, _REFUSED)

    def _idle(self) -> None:
        # A refused crawl is soon idle: its outcome must not read "finished".
        if self.halted is not None:
            raise CloseSpider(_REFUSED)

    def stop_if_halted(self) -> None:
        """Raise IgnoreRequest when this crawl was refused."""
        if self.halted is not None:
            raise IgnoreRequest(self.halted)

    # -- R6, R3, R8, R2 -------------------------------------------------------------------

    def declare(self, request: Request) -> None:
        """Take *request*, and what it declares beside its own URL, as targets (R6).

        For what `Spider.start` yields, for what a JOBDIR or a fleet's queue held before, and for
        nothing that a callback makes.
        """
        self._declare(request.url)
        for url in self.intake.also(request):
            self._declare(url)

    def _declare(self, url: str) -> None:
        if not self.scope.is_source(url):
            self.scope.declare(url)
            self.recorder.note("declared", url=url)

    def declare_hop(self, url: str, request: Request) -> None:
        """Take *url*, to which *request* was redirected, as within scope (D5)."""
        self.scope.declare_hop(url, request.url)
        self.asked.hop(url, request)
        if self.scope.source_of(url) is not None:
            self.recorder.note("declared", url=url, via=request.url)

    @property
    def fleet(self) -> bool:
        """Whether requests come from a queue that workers share: then R8 knows no runs."""
        return any(queue.shared for queue in self.queues)

    def judge(self, url: str, form: str = "") -> Verdict | NeedDocument:
        """The gates' answer with the documents held now; *form*: of ``recrawl.form_of``."""
        return chain.judge(url, self.scope, self.documents, self.gates, self.wall(), form=form)

    def judge_request(self, request: Request) -> Verdict | NeedDocument:
        """As :meth:`judge`, cheaply where nothing has changed since *request* was judged."""
        url, known = request.url, self._standing.get(request)
        if (
            known is not None
            and known.basis is not None
            and known.url == url
            and known.basis == self.documents.basis(url)
            and self._still_due(request, known)
        ):
            return known.verdict
        answer = self.judge(url, form_of(request))
        if not isinstance(answer, NeedDocument):
            basis = self.documents.basis(url)
            self._standing[request] = _Standing(url, answer, basis, self.monotonic())
        return answer

    def _still_due(self, request: Request, known: _Standing) -> bool:
        """Whether no other process has sent the source since *request* was judged (R8)."""
        now = self.monotonic()
        if not self.scope.is_source(request.url):
            return True
        if now - known.judged_at < _JUST_NOW and not (self.fleet and self.asked.again(request)):
            return True
        known.judged_at = now
        last = self.documents.last_visit(recrawl.key_of(request.url, form_of(request)))
        gates = self.gates
        return recrawl.not_due(last, self.wall(), gates.revisit, gates.revisit_reason) is None

    async def bring(self, needed: NeedDocument, *, trial: bool = False) -> None:
        """Make one step towards the document that a gate needs; *trial*: of https alone."""
        if needed.kind == chain.BLOCKLIST:
            await self.documents.operator.bring()
        else:
            await self.documents.robots_txt.step(needed.origin, trial=trial)

    def refusal(self, request: Request, verdict: Verdict, proxy: str | None = None) -> Refused:
        """Record that *request* is refused; the exception to raise for it.

        ``proxy``: the host that it would have gone through, where that is why.
        """
        host = self.host_of(request.url)
        due = self._due_again(host, verdict)
        self.recorder.record(
            Event.of(
                events.REFUSED if due is None else events.DEFERRED,
                request.url,
                verdict,
                host,
                due=due,
                form=form_of(request),
                proxy=proxy,
            )
        )
        if due is not None:
            since = self.put_off_since(request.url)
            since = self.wall() if since is None else since
            put_off = Deferral(request.url, host, due, verdict.reason, since)
            self.remember(lambda: self.store.put_deferral(put_off))
        return Refused(request.url, verdict, due)

    def put_off_since(self, url: str) -> float | None:
        """When *url* was first put off by the runs before this one, Unix seconds; None: it is not.

        What was put off longest goes first on its host.
        """
        if self._put_off is None:
            found = self.recall(lambda: list(self.store.deferrals())) or []
            self._put_off = {each.url: each.since or each.due for each in found}
        return self._put_off.get(url)

    def _due_again(self, host: str, verdict: Verdict) -> float | None:
        """When a later run may ask for what is deferred; None where the refusal stands."""
        if verdict.name == DEFERRED and verdict.requirement == "R4":
            return self.wall() + self.throttle.wait(host, self.monotonic())
        if verdict.name in (DEFERRED, UNKNOWN_PARSE_ERROR):
            return self.wall()  # by the next run
        if verdict.name == UNKNOWN_UNREACHABLE and self.config.robots_unreachable == "defer":
            return self.wall()
        return None

    def clear(self, request: Request) -> None:
        """Note that *request*, with the URL it has now, passed every gate."""
        self._standing[request].cleared_at = self.monotonic()

    def passed(self, request: Request) -> Verdict | None:
        """The verdict with which *request* passed the gates."""
        standing = self._standing.get(request)
        return None if standing is None else standing.verdict

    def tell(
        self, kind: str, request: Request, status: int, why: str, requirement: str = ""
    ) -> None:
        """Record how *request* ended: with the verdict that let it pass, or by *requirement*."""
        host, passed = self.host_of(request.url), self.passed(request)
        if requirement or passed is None:
            event = Event(kind, request.url, requirement, reason=why, host=host, status=status)
        else:
            event = Event.of(kind, request.url, passed, host, reason=why, status=status)
        self.recorder.record(event)

    def over(self, request: Request, outcome: Response | BaseException) -> None:
        """Record that the way of *request* has ended, with what its spider gets.

        A retry, a redirect that is followed and what goes back to the queue are no end. So each
        target counts once: in ``fetched``, and in the stats of the verdicts.
        """
        standing = self._standing.get(request)
        cleared = standing is not None and standing.cleared_at is not None
        if standing is not None and cleared and not isinstance(outcome, Refused):
            self.recorder.verdict(standing.verdict)
        if not isinstance(outcome, BaseException) and outcome.status not in BACKOFF_STATUSES:
            self.tell(events.FETCHED, request, outcome.status, f"HTTP {outcome.status}")

    def guard(self, request: Request) -> NeedDocument | None:
        """The last look before the wire; raises IgnoreRequest for what no gate has passed.

        What waited here for its host's time is judged again: documents change. What must be
        brought first, where one has gone stale meanwhile (R12).
        """
        self.stop_if_halted()
        if (needed := self._guard_proxy(request)) is not None or self.fetcher.owns(request):
            return needed
        standing = self._standing.get(request)
        cleared = None
        if standing is not None and standing.url == request.url:
            cleared = standing.cleared_at
        if (
            cleared is not None
            and self.monotonic() - cleared < _CLEARANCE
            and standing is not None
            and standing.basis is not None
            and standing.basis[0] == self.documents.operator.serial
        ):
            return None
        answer = self.judge(request.url, form_of(request))
        if isinstance(answer, NeedDocument):
            if cleared is None:
                raise IgnoreRequest(f"{request.url} came to the wire past the gates")
            return answer
        if not answer.allowed:
            raise self.refusal(request, answer)
        return None

    def _guard_proxy(self, request: Request) -> NeedDocument | None:
        """R3 for the proxy that *request* goes through; raises ``Refused``.

        Known here alone: Scrapy's middleware has read the environment by now. Not for the
        operator's own documents, which say whom R3 forbids.
        """
        proxy = request.meta.get("proxy")
        if not proxy or self.fetcher.is_operators(request):
            return None
        host = hosts.proxy_host(proxy)
        against = chain.judge_proxy(host, self.documents, self.gates)
        if isinstance(against, Verdict):
            raise self.refusal(request, against, host)
        return against

    # -- R4, R5 ---------------------------------------------------------------------------

    def host_of(self, url: str) -> str:
        """The throttle key of *url*; the URL itself where there is no readable host."""
        try:
            host = hosts.host_key(url)
        except ValueError:
            return url
        if host not in self._looked_up:
            self._looked_up.add(host)
            self._restore(host)
            self._slow_down(host)
        return host

    def _slow_down(self, host: str) -> None:
        """Scrapy's DOWNLOAD_SLOTS may ask for more than our interval; the queue must know."""
        slot = self._slots.get(host) or self._slots.get(host.partition(":")[0]) or {}
        if slot.get("delay"):
            self.throttle.set_interval(host, float(slot["delay"]), source="DOWNLOAD_SLOTS")

    def _restore(self, host: str) -> None:
        """Bring back what an earlier run knew about *host* (T33), from wall to monotonic time."""
        record = self.store.get_host(host)
        now, steady = self.monotonic(), self.steady()
        if self.store.rows_lost:  # a host without a record, or an old one, may have been asked
            self.throttle.restore(host, now, now)
        if record is None:
            return
        # A run that was killed booked a start; the server saw it a moment later.
        since = max(0.0, steady - record.last_end - _REACH)
        held = max(0.0, (record.not_before or steady) - steady)
        visited = None if record.visited_at is None else now - (steady - record.visited_at)
        self.throttle.restore(host, now - since, now + held, visited)
        self.throttle.set_interval(host, record.interval, source=EARLIER_RUN)

    def deferral(self, host: str, *, document: bool = False) -> Verdict | None:
        """The verdict against a host that may not be asked within WALSH_PATIENCE (D8).

        None while a request to it is under way: its end says how long the wait is.
        """
        wait = self.throttle.wait(host, self.monotonic(), document=document)
        if wait == math.inf:
            return None
        if self.skips(host) and not document:
            return chain.skip(host, self.throttle.interval(host), self.config.patience)
        return chain.defer(host, wait, self.config.patience, self.wall())

    def slow(self, host: str) -> bool:
        """Whether *host* asks for more time between two requests than a run waits."""
        return self.throttle.interval(host) > self.config.patience

    def skips(self, host: str) -> bool:
        """Whether the targets of *host* are only ever put off (WALSH_SLOW_HOSTS)."""
        return self.config.slow_hosts == SLOW_SKIP and self.slow(host)

    def taking_in(self) -> bool:
        """Whether `Spider.start` may still name a target that has been put off for longer.

        An endless one is not waited for longer than WALSH_PATIENCE.
        """
        return not self.started and self.monotonic() - self._begun < self.config.patience

    def bounce(self, request: Request, host: str, wait: float) -> Request:
        """Give *request* back to the queue until *host* is due: first in line, but on a slow host.

        ``wait``: seconds; ``inf`` while a request is under way, whose end the queue is told.
        """
        if self.slow(host):  # what was put off longest goes first there
            copy = request.replace(dont_filter=True)
            self.given_back.add(copy)
            return copy
        if wait < math.inf:
            self.throttle.hold(host, self.monotonic() + wait)
        return self.again(request)

    def again(self, request: Request) -> Request:
        """A copy of *request* that the queue takes first on its host, past the duplicate filter."""
        copy = request.replace(dont_filter=True)
        self.first.add(copy)
        return copy

    def reserve(self, host: str) -> Booking | None:
        """Book *host* for this process, now, or learn when any process may ask it (R4.6).

        None while the shared store is away: nothing may be asked then, and the wire is shut.
        """
        try:
            booking = self.store.reserve_host(host, self.throttle.interval(host), self.steady())
        except StoreAway:
            self.pulse.look()
            return None
        except StateError as error:
            logger.error("%s", error)
            booking = Booking(0.0, known=False)
        self.throttle.rested(host, booking.rested)
        return booking

    async def pause(self, seconds: float) -> None:
        """Let others run for *seconds*; raises Closing when the spider is being closed."""
        end = self.monotonic() + seconds
        while (left := end - self.monotonic()) > 0:
            if compat.closing(self.crawler):
                raise Closing
            await compat.sleep(min(left, _CLOSING_CHECK))

    def keep(self, request: Request) -> Request:
        """What the queue popped goes back to it, for a JOBDIR to keep, while the spider closes.

        Raises Closing for other requests: nobody would take those back.
        """
        if request not in self.popped:
            raise Closing
        return self.again(request)

    def ended(
        self,
        request: Request,
        host: str,
        response: Response | None,
        *,
        started: float,
        unseen: bool,
        counts: bool,
    ) -> Exchange:
        """Book one exchange on the wire: space the host, hold it where R5 says so, remember.

        ``started``: by the steady clock. ``unseen``: the host was never asked before. ``counts``:
        False for an exchange that this side broke off, which says nothing about the server.
        """
        now, steady = self.monotonic(), self.steady()
        status = None if response is None else response.status
        failure = self.retries.assess(request, response) if counts else None
        exempt = unseen and failure is None and self.fetcher.is_first(request, status)
        exchange = journal.exchange_of(
            self,
            request,
            host,
            response,
            failure,
            started=started,
            ended=steady,
            exempt=exempt,
            counts=counts,
        )
        self.throttle.finished(
            host,
            now,
            exempt=exempt,
            spacing=self.config.min_interval if self.config.pace_robots else None,
        )
        if failure is not None:
            self.retries.failed(request, failure)
            self.throttle.hold(host, now + hold_of(failure))
        elif counts:
            self.retries.succeeded(request)
        if response is not None and self.fetcher.is_operators(request):
            self.documents.operator.arrived = True
        self._remember_host(host, now, visit=bool(exchange.visit))
        self.asked.note(request, status, self.wall() - (steady - started))
        return exchange

    def host_asked(self, host: str) -> None:
        """A request to *host* has ended, in this crawl or another: look at its queue again."""
        for queue in self.queues:
            queue.nudge(host)

    # -- R11 ------------------------------------------------------------------------------

    def recall(self, read: Callable[[], _T | None]) -> _T | None:
        """What *read* finds in the store; None where a transfer outlived its crawl, or the disk.

        For the booking of an exchange, which must not fail.
        """
        if self._store_closed:
            return None
        try:
            return read()
        except StateError as error:
            logger.error("%s", error)
            return None

    def remember(self, write: Callable[[], None]) -> None:
        """Write to the store; a disk that fails is said once and does not stop the crawl."""
        if self._store_closed:
            return
        try:
            write()
        except StateError as error:
            logger.error("%s", error)

    def hold(self, host: str, seconds: float) -> None:
        """Leave *host* alone for *seconds*, in later runs too (D8)."""
        now = self.monotonic()
        self.throttle.hold(host, now + seconds)
        self._remember_host(host, now)

    def _remember_host(self, host: str, now: float, *, visit: bool = False) -> None:
        """Book the end of an exchange for later runs, and for processes beside this one."""
        hold = max(0.0, self.throttle.held_until(host) - now)
        interval, steady = self.throttle.interval(host), self.steady()
        self.remember(lambda: self.store.book_host(host, interval, steady, hold, visit=visit))
