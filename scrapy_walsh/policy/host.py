"""The state of a host, and when the next request to it may go (R4, R5).

There are two objects. :class:`Traffic` is the host as its server sees this process: spacing and
holds, for all crawls of the process. :class:`Host` is the host as one crawl knows it: the attempts
that are left (D13), the learned interval (D28), the records in the ledger. Both have plain fields,
and methods for events. The key of a host is its ``hosts.host_key`` (T17).

A process sends one request at a time. The next request to a host goes ``max(WALSH_MIN_INTERVAL,
Crawl-delay)`` seconds after the host's last answer, or later (spec section 9.3). A back-off holds
the whole host until a given time (R5, T25). So a host is due when the interval since its last
answer is over, and its hold too. While a request to it is under way it is not due at all:
:meth:`Traffic.started` and :meth:`Traffic.finished` are called around each one.

A robots.txt is a request too, so two exceptions let one target follow it sooner. A target may
follow at once if the host was never requested before this robots.txt (T1). And there are *slow
hosts*: their interval is longer than a run waits (WALSH_PATIENCE). Because their robots.txt is
stale each day, each daily run would request nothing else. So at a slow host one target may follow
the robots.txt after a second, at most once a day, if the host had no request for its whole interval
before (``throttle.visit_from``, D11). An exception sets ``credit``: from this time on a target may
go before the interval is over, but never within a hold. It expires after the host's next request.

If a host gives no answer (no connection, no TLS, or a timeout), each attempt may cost a serial
crawl DOWNLOAD_TIMEOUT. So a host that has not answered in this run gets two attempts, for any URLs,
and the second comes when all other hosts are done (D13). If an unreachable robots.txt means
"allowed" (T3), a third attempt may follow two for a robots.txt, because otherwise no target could
ever be requested. A host that has answered in this run gets as many attempts in a row as R5 allows
for a URL, ``WALSH_MAX_RETRIES + 1``. The host is given up only if these were for several URLs, so
that a single broken URL does not end its host. And at most that many different URLs are tried in
vain. If a host gave no answer at all in a run, each later run makes one attempt until it answers
(D31). After that it has its usual attempts.

If you edit this file: a due time may become later at any moment. Only the two exceptions
(``credit``) make it earlier, and only for one target.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from scrapy_walsh.policy import chain, throttle
from scrapy_walsh.policy.backoff import (
    SILENT_RETRIES,
    Answer,
    Retry,
    backoff_delay,
    silent_attempts,
)
from scrapy_walsh.policy.event import Pace
from scrapy_walsh.policy.gates import Gates
from scrapy_walsh.policy.verdict import DEFERRED, Unanswered, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

#: Seconds between two checks whether the spider has declared all its targets.
_INTAKE: Final = 0.2


@dataclass(slots=True, eq=False)
class Traffic:
    """This process's requests to a host. Times are monotonic seconds.

    ``least``: WALSH_MIN_INTERVAL. ``last_end``: when its last answer ended. ``not_before``: when
    its hold ends (R5). ``sources``: seconds of each interval, by the source that demands it.
    ``seen``: a known process has requested it before. ``in_flight``: a request to it is under way.
    ``credit``: when a target may go before the interval is over, or None. ``slow``: the credit
    comes from ``visit_from``. ``ahead``: the last request used the credit. ``rested``: seconds
    without a request of any process before the last request. ``visited_at``: when a target last
    went ahead by ``visit_from``. ``address``: that the host was reached at last, or empty.
    ``server``: the traffic to all hosts that are paced together with this one; None if there are
    none (T43). Of a server's own traffic, no request is noted as under way.

    These follow from the fields above, and are computed when one of those changes. ``interval``:
    seconds from the end of an answer to the start of the next request (R4.3). ``untaught``: the
    same without the learned interval (D28). ``changes``: how often they were computed.
    """

    least: float = throttle.MIN_REQUEST_INTERVAL
    last_end: float = throttle.UNSEEN
    not_before: float = throttle.UNSEEN
    sources: dict[str, float] | None = None
    seen: bool = False
    in_flight: bool = False
    credit: float | None = None
    slow: bool = False
    ahead: bool = False
    rested: float = 0.0
    visited_at: float | None = None
    address: str = ""
    server: Traffic | None = None
    interval: float = field(init=False)
    untaught: float = field(init=False)
    changes: int = 0
    _due: float = throttle.UNSEEN
    _document_due: float = throttle.UNSEEN

    def __post_init__(self) -> None:
        self.interval = self.untaught = self.least

    @property
    def due(self) -> float:
        """The earliest time for a target, ``inf`` while a request is under way."""
        return self._due if self.server is None else max(self._due, self.server.due)

    @property
    def document_due(self) -> float:
        """The same for a robots.txt, without the exceptions."""
        if self.server is None:
            return self._document_due
        return max(self._document_due, self.server.due)

    @property
    def serial(self) -> int:
        """A number that changes with each due time, also with that of its server."""
        return self.changes if self.server is None else self.changes + self.server.changes

    def wait(self, now: float, *, document: bool = False) -> float:
        """Seconds from *now* until the host is due, at least 0; *document*: for a robots.txt."""
        return max(0.0, (self.document_due if document else self.due) - now)

    def set_interval(self, seconds: float, source: str = "") -> None:
        """Set the interval that *source* demands. It is never capped.

        *source*: for example the origin of a robots.txt with a Crawl-delay, AutoThrottle, or the
        learned interval (D28). The largest interval counts. There may be several, because http and
        https of a host share the throttle, but not the robots.txt (T17).
        """
        self.sources = {**(self.sources or {}), source: seconds}
        self._changed()

    def raise_minimum(self, seconds: float) -> None:
        """Raise the minimum interval; a smaller value changes nothing (crawls share a process)."""
        self.least = max(self.least, seconds)
        self._changed()

    def hold(self, until: float) -> None:
        """Hold the host until that time (R5.3). A longer hold stays."""
        self.not_before = max(self.not_before, until)
        self._changed()

    def restore(self, last_end: float, not_before: float, visited_at: float | None = None) -> None:
        """Use the record that an earlier process stored (T33)."""
        if visited_at is not None:
            self.visited_at = max(visited_at, self.visited_at or throttle.UNSEEN)
        self.seen = True
        self.last_end = max(self.last_end, last_end)
        self.hold(not_before)

    def started(self, now: float = math.inf, *, document: bool = False) -> None:
        """Note the start of a request. ``document``: it is for a robots.txt."""
        self.ahead = self.slow and not document and now < self._document_due
        self.seen = self.in_flight = True
        self._changed()

    def visit(self, patience: float) -> None:
        """Let one target follow the robots.txt that was just read, if the host is slow.

        *patience*: WALSH_PATIENCE, seconds.
        """
        if self.interval > patience:
            self.slow = True
            spaced = self.last_end + self.least
            self.credit = throttle.visit_from(
                self.interval, patience, self.rested, spaced, self.visited_at
            )
            self._changed()

    def gave_back(self, until: float) -> None:
        """Note that the request was not sent after all, and hold the host until that time."""
        self.in_flight = False
        self.hold(until)

    def finished(self, now: float, *, exempt: bool = False, spacing: float | None = None) -> None:
        """Note the end of the request.

        ``exempt``: it was the first robots.txt of a host never requested before, so one target
        may follow at once (T1). ``spacing``: seconds that the target must wait instead, with
        WALSH_PACE_ROBOTS: 1.0, not the Crawl-delay.
        """
        self.in_flight = False
        self.last_end = now
        self.credit = now + (spacing or 0.0) if exempt else None
        self.slow = False
        if self.ahead:
            self.visited_at = now
        self._changed()

    def _changed(self) -> None:
        self.changes += 1
        sources = self.sources or {}
        intervals = (seconds for name, seconds in sources.items() if name != throttle.LEARNED)
        self.untaught = max([self.least, *intervals])
        self.interval = max(self.untaught, sources.get(throttle.LEARNED, 0.0))
        spaced = max(self.last_end + self.interval, self.not_before)
        early = spaced if self.credit is None else max(self.credit, self.not_before)
        self._due = math.inf if self.in_flight else min(early, spaced)
        self._document_due = math.inf if self.in_flight else spaced


@dataclass(slots=True)
class Silence:
    """The attempts of a run at a host that got no answer (D13).

    ``max_retries``: WALSH_MAX_RETRIES. ``position``: WALSH_ROBOTS_UNREACHABLE. ``forget_after``: so
    many seconds after the last such attempt the count begins anew. It is infinite for a run; a
    worker of a fleet may run for weeks, so it forgets. ``now`` of the methods: seconds, always by
    the same clock. ``before``: the host gave no answer in an earlier run, nor in this run so far
    (D31). ``answered_at``: when it last answered. ``made``, ``last``: the count of attempts, and
    the time of the last. ``documents``: the attempts for a robots.txt. ``row``: the attempts since
    its last answer. ``urls``: the URLs without an answer, and ``row_urls``: those since its last
    answer. ``changes``: how often an attempt or an answer was noted. ``connected``: whether a TCP
    connection came about for one of the attempts. If not, there is no page to give.
    """

    max_retries: int
    position: str
    forget_after: float = math.inf
    before: bool = False
    answered_at: float = -math.inf
    made: int = 0
    documents: int = 0
    row: int = 0
    urls: set[str] = field(default_factory=set)
    row_urls: set[str] = field(default_factory=set)
    last: float = -math.inf
    changes: int = 0
    connected: bool = False

    def answered(self, now: float) -> None:
        """Note an answer, of any status. It does not reset the count."""
        self.before, self.answered_at = False, now
        self._begin_row()
        self.changes += 1

    def note(
        self, now: float, url: str = "", *, robots: bool = False, connected: bool = True
    ) -> None:
        """Count an attempt without an answer.

        *robots*: it was for a robots.txt. *connected*: a TCP connection came about.
        """
        count = self.count(now)
        if not count:
            self.documents = 0
            self.connected = False
            self.urls = set()
            self._begin_row()
        self.documents += robots
        self.connected |= connected
        self.row += 1
        self.urls.add(url)
        self.row_urls.add(url)
        self.made, self.last = count + 1, now
        self.changes += 1

    def _begin_row(self) -> None:
        self.row = 0
        self.row_urls = set()

    def count(self, now: float) -> int:
        """The attempts counted so far."""
        return self.made if now - self.last < self.forget_after else 0

    def spent(self, now: float, *, robots: bool = False) -> bool:
        """Whether the host gets no more requests for targets, or for a robots.txt, in this run."""
        count = self.count(now)
        if self.before or not count:
            return count > 0
        if self.answers(now):
            limit = silent_attempts(self.max_retries, self.position)
            if self.position == "allow" and robots:
                limit -= 1
            in_vain = self.row >= limit and len(self.row_urls) > 1
            return in_vain or len(self.urls) >= max(limit, 2)
        limit = silent_attempts(min(self.max_retries, SILENT_RETRIES), self.position)
        # A target gets the last attempt only after those for a robots.txt, and not if no
        # connection came about for these.
        for_target = not robots and self.documents >= limit - 1 and self.connected
        reserved = 1 if self.position == "allow" and not for_target else 0
        return count >= limit - reserved

    def answers(self, now: float) -> bool:
        """Whether the host has answered anything in this run."""
        return now - self.answered_at < self.forget_after

    def goes_last(self, now: float) -> bool:
        """Whether its next attempt should come when all other hosts' work is done."""
        tried = self.before or self.count(now) > 0
        return tried and not self.answers(now) and not self.spent(now)

    def lasts(self, now: float) -> bool:
        """Whether later runs should remember that the host gave no answer.

        That is so if it has used up its attempts, or those for a robots.txt, without an answer.
        """
        return self.before or (not self.answers(now) and self.spent(now, robots=True))

    def unanswered(self, host: str, now: float) -> Unanswered:
        """The reason why this run sends no more requests to *host*."""
        dead = not self.connected and not self.answers(now)
        return Unanswered(host, self.count(now), self.before, dead)


@dataclass(frozen=True, slots=True)
class Terms:
    """The settings and clocks of a crawl.

    ``position``, ``forget_after``: see :class:`Silence`. ``spacing``: see :meth:`Traffic.finished`.
    ``wall``: the time, Unix seconds. ``taking_in``: whether `Spider.start` may still declare a
    target that goes before others.
    """

    gates: Gates = field(default_factory=Gates)
    position: str = "defer"
    forget_after: float = math.inf
    spacing: float | None = None
    wall: Callable[[], float] = float
    taking_in: Callable[[], bool] = bool


@dataclass(slots=True, eq=False)
class Host:
    """One host as one crawl knows it. ``now`` of the methods: monotonic seconds.

    ``known``: the records of earlier runs were read. ``told``: the due time that was recorded last.
    ``learned``: its learned pace (D28). ``taken``: that came from the store, and no ledger line
    says so yet. ``accepted``: when its last accepted answer ended, Unix seconds by the steady
    clock. ``kept_silent``: the store says that it gives no answer (D31). ``retried``: retries of
    the request that failed last, with the retry that is due next. ``robots_failed``: its robots.txt
    has answered 5xx, and no rules were known. Then its other requests come when all else is done.
    """

    key: str
    terms: Terms = field(default_factory=Terms)
    traffic: Traffic = field(default_factory=Traffic)
    silence: Silence = field(init=False)
    known: bool = False
    told: float = -math.inf
    learned: throttle.Learned = throttle.NOTHING
    taken: bool = False
    accepted: float | None = None
    kept_silent: bool = False
    retried: int = 0
    robots_failed: bool = False
    #: The facts that *admit* decided from when the last request was sent.
    pace: Pace | None = None
    #: The last result of :meth:`admit` for a target, when it expires, and the changes before it.
    _step: Verdict | float = 0.0
    _until: float = -math.inf
    _basis: int = -1

    def __post_init__(self) -> None:
        gates, terms = self.terms.gates, self.terms
        self.silence = Silence(gates.max_retries, terms.position, terms.forget_after)

    # -- when may it be requested? --------------------------------------------------------

    def admit(self, now: float, *, document: bool = False) -> Verdict | float:
        """The result of ``chain.admit`` for a request that wants to go now.

        *document*: it is for a robots.txt. The result for a target is kept until a field changes or
        the result expires.
        """
        if document:
            return self._admit(self._pace(now, document=True), document=True)
        basis = self.traffic.serial + self.silence.changes
        if basis != self._basis or now >= self._until:
            pace = self._pace(now)
            self._step = self._admit(pace)
            self._basis, self._until = basis, self._holds_until(pace)
        if isinstance(self._step, Verdict) or self._step == 0:
            return self._step
        return self.traffic.due - now  # a wait that is kept has become shorter meanwhile

    def _admit(self, pace: Pace, *, document: bool = False) -> Verdict | float:
        return chain.admit(pace, self.terms.gates, self.terms.wall(), document=document)

    def _pace(self, now: float, *, document: bool = False) -> Pace:
        wait = self.traffic.wait(now, document=document)
        return Pace(self.key, wait, self.traffic.interval, self.spent(now, document=document))

    def _holds_until(self, pace: Pace) -> float:
        """When the result from *pace* expires, even if no field changes."""
        if pace.spent is not None:
            return self.silence.last + self.silence.forget_after
        if pace.wait <= 0:
            return math.inf
        is_refused = isinstance(self._step, Verdict)
        return self.traffic.due - (self.terms.gates.patience if is_refused else 0.0)

    def spent(self, now: float, *, document: bool = False) -> Verdict | None:
        """The verdict against the host if it has used up its attempts without an answer (D13).

        None if it may be requested.
        """
        if not self.silence.made or not self.silence.spent(now, robots=document):
            return None
        unanswered = self.silence.unanswered(self.key, now)
        return Verdict(False, DEFERRED, "R5", str(unanswered), unanswered=unanswered)

    def turn(self, now: float) -> float:
        """When the queue may give out a request for a target.

        ``-inf`` if the gate will refuse it, ``inf`` while another request to the host is under way.
        A slow host waits until the spider has declared all its targets, because the target that was
        deferred first goes first.
        """
        if self.slow and self.terms.taking_in():
            return now + _INTAKE
        return self._turn(now)

    def _turn(self, now: float) -> float:
        due = self.traffic.due
        if math.isinf(due):  # a request is under way; or there was none yet: it may go, or end
            return due
        return -math.inf if isinstance(self.admit(now), Verdict) else due

    def wait(self, now: float) -> float:
        """Seconds that requests wait in the queue; 0 while a request is under way."""
        due = self._turn(now)
        return 0.0 if due == math.inf else max(0.0, due - now)

    @property
    def slow(self) -> bool:
        """Whether the host's interval is longer than a run waits (D11)."""
        return self.traffic.interval > self.terms.gates.patience

    def goes_last(self, now: float) -> bool:
        """Whether its next request should come when all other hosts' work is done (D13, D31)."""
        return self.robots_failed or self.silence.goes_last(now)

    def retries_left(self) -> float:
        """The seconds that R5's retries may still take: their number times the mean back-off."""
        if not self.retried:
            return 0.0
        gates = self.terms.gates
        mean = backoff_delay(self.retried, 0.5, gates.backoff_base, gates.backoff_cap)
        return (gates.max_retries - self.retried) * max(self.traffic.interval, mean)

    # -- what has happened ----------------------------------------------------------------

    def started(self, now: float, *, document: bool) -> None:
        """Note the start of a request; *document*: it is for no target."""
        self.pace = self._pace(now, document=document)
        self.traffic.started(now, document=document)

    def finished(
        self, answer: Answer, conclusion: chain.Conclusion, now: float, ended: float
    ) -> None:
        """Note the end of a request and its conclusion; *ended*: Unix seconds, steady clock."""
        if answer.status is not None or answer.cut:
            self.silence.answered(now)
        if throttle.accepts(answer.status):
            self.accepted = ended
        self.traffic.finished(now, exempt=conclusion.exempt, spacing=self.terms.spacing)
        is_retried = isinstance(conclusion.failure, Retry)
        self.retried = answer.attempt + 1 if is_retried else 0
        if conclusion.wait is not None:
            self.traffic.hold(now + conclusion.wait)
        self.learn(conclusion.learned)

    def spacing(self, started: float, ended: float) -> throttle.Spacing:
        """How the request between these two times was spaced.

        *started*, *ended*: Unix seconds by the steady clock.
        """
        gap = None if self.accepted is None else started - self.accepted
        return throttle.Spacing(self.traffic.interval, gap, ended)

    # -- what has it taught (D28)? --------------------------------------------------------

    def take(self, taught: throttle.Learned) -> None:
        """Use the learned pace of the store, if another run or process has put it there."""
        if taught.calm is None or replace(taught, at=self.learned.at) == self.learned:
            return
        self.taken = True
        self.learn(taught)

    def learn(self, taught: throttle.Learned) -> None:
        """Use the learned pace as of now."""
        if taught != self.learned:
            self.learned = taught
            self.traffic.set_interval(taught.in_force, source=throttle.LEARNED)

    def newly_taken(self) -> tuple[float, ...]:
        """The learned pace from the store, for the ledger: once, and empty if there was none."""
        if not self.taken:
            return ()
        self.taken = False
        learned = self.learned
        return (
            learned.interval,
            learned.accepted,
            float(learned.calm or 0),
            learned.at,
            learned.before,
        )
