"""The declared sources of one crawl: when each may be sent, who sends it, and what became of it.

R8 compares runs: a source is judged by the answers that earlier runs got, never by those of this
run (D12). So the answers of this run are kept apart from the store's records, and
:meth:`Sources.last_visit` finds no record of a source that this run got an answer to. A fleet has
no runs: each request from its shared queue is judged by the records.

A source counts as answered once its spider has taken the answer. If the process is killed before
that is on record, the next run sends the source again. Until then a lock shows other runs that this
one is requesting it (``state/machine.py``). A source that redirects is under way until there is an
answer from where it leads: that answer counts for it.

A source counts as *read* when an answer of 2xx reaches the spider, or a 304 says that nothing is
new. A spider that knows better what "read" means reports it itself (``report``), and sets
``by_spider``. What follows, ``policy.readings`` decides. :class:`Account` says it at the end, and
until then how far the crawl is, by a line in the log each LOGSTATS_INTERVAL.

All of it goes by one key (``urls.key_of``). Of a source that has ended there is one octet in
``Digests``: a crawl may have a million of them.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from scrapy import Request, signals

from scrapy_walsh.adapters import compat
from scrapy_walsh.adapters.context import FINISHED
from scrapy_walsh.adapters.events import logger
from scrapy_walsh.adapters.outcomes import GaveUp, Refused, TooManyRedirects
from scrapy_walsh.adapters.ticket import TICKET, key_of, lasting_of, ticket_of
from scrapy_walsh.exceptions import StateError, one_line
from scrapy_walsh.policy import readings, urls, visits
from scrapy_walsh.policy.event import TARGET
from scrapy_walsh.policy.readings import Cause, Heard
from scrapy_walsh.policy.scope import Digests
from scrapy_walsh.policy.times import duration
from scrapy_walsh.policy.verdict import NOT_DUE, Verdict, remedy_of
from scrapy_walsh.state.machine import UnderWay
from scrapy_walsh.state.records import Deferral, Reading, SourceRun

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from scrapy.http import Response

    from scrapy_walsh.adapters.context import Context
    from scrapy_walsh.adapters.ticket import Ticket
    from scrapy_walsh.adapters.wire.pacing import Pacing
    from scrapy_walsh.policy.event import Event

_PERMANENT: Final = (301, 308)
#: What the octet of a key says. It was answered; by a redirect, and by nothing else so far; R8
#: refused it; it was given up; it answered 410. Below that, one more than the place of its outcome
#: in OUTCOMES.
_ANSWERED: Final = 8
_LED_ON: Final = 16
_TURNED_AWAY: Final = 32
_GIVEN_UP: Final = 64
_GONE: Final = 128
_OUTCOME: Final = 7
_START_REQUESTS: Final = (
    "Scrapy 2.19 does not call start_requests(), which this spider has: write async def start()"
)
#: The records of so many sources are updated at once: that takes some milliseconds.
_AT_ONCE: Final = 100


class _Octets(Digests):
    """What a run knows of each key."""

    def has(self, key: str, what: int) -> bool:
        return bool((self.mark(key) or 0) & what)

    def note(self, key: str, what: int, *, instead_of: int = 0) -> None:
        before = self.mark(key) or 0
        if (after := before & ~instead_of | what) != before:
            self.add(key, after)

    def outcome(self, key: str) -> str | None:
        """What became of *key*; None where it has not ended."""
        number = (self.mark(key) or 0) & _OUTCOME
        return readings.OUTCOMES[number - 1] if number else None


class _Deferrals:
    """Which sources were deferred, by this run and by earlier ones."""

    def __init__(self, context: Context) -> None:
        self._context = context
        #: By key, since when earlier runs have deferred it; read from the store at first use.
        self._before: dict[str, float] | None = None
        #: Those of this run.
        self._now: set[str] = set()

    def since(self, key: str) -> float | None:
        """Unix seconds at which an earlier run first deferred *key*; None where none did.

        What was deferred first goes first on its host.
        """
        if self._before is None:
            context = self._context
            found = context.recall(lambda: list(context.store.rows(Deferral))) or []
            self._before = {each.url: each.since or each.due for each in found}
        return self._before.get(key)

    def add(self, key: str, host: str, due: float, reason: str) -> None:
        """Put on record that *key* is sent by no run before *due* (Unix seconds)."""
        context, since = self._context, self.since(key)
        deferral = Deferral(key, host, due, reason, context.wall() if since is None else since)
        self._now.add(key)
        context.remember(lambda: context.store.put(deferral))

    def drop(self, key: str) -> None:
        """Take *key* from the record, if it may be there: a fleet's other workers write, too."""
        store = self._context.store
        if store.shared is not None or key in self._now or self.since(key) is not None:
            self._context.remember(partial(store.delete, Deferral, key))


class Sources:
    """The sources of one crawl. Hops, to which redirects lead, have keys and octets, too."""

    def __init__(self, context: Context, pacing: Pacing) -> None:
        self._context = context
        self._pacing = pacing
        self.account = Account(context)
        #: Whether the spider itself reports what was read, by :meth:`report`.
        self.by_spider = False
        octets = _Octets()
        self._is, self._note, self._outcome = octets.has, octets.note, octets.outcome
        #: By key of a hop: the sources that redirects led from.
        self._hops: dict[str, dict[str, None]] = {}
        #: The sources that were requested, and whose visits have not ended.
        self._visiting: set[str] = set()
        #: By source, the hop that it redirects to and this run had requested before.
        self._joined: dict[str, str] = {}
        #: What came of hops.
        self._reached: dict[str, Heard] = {}
        #: By request, the records to store once its spider has taken the answer. Not before: after
        #: a kill the next run would not send the source, or send it with validators, and a 304
        #: would say "no new data" of what the spider has never seen.
        self._untaken: dict[Request, list[SourceRun]] = {}
        self._locks = UnderWay(context.config.state_dir)
        #: The source that was looked up last, and its record. From the wire on it does not change:
        #: the source is locked for this process.
        self._looked_up: tuple[str, SourceRun | None] = ("", None)
        self.deferrals = _Deferrals(context)
        context.crawler.signals.connect(self._dropped, signals.request_dropped)

    def begin(self) -> None:
        """The crawl has begun, which other processes can see."""
        self._locks.begin()
        self.account.begin()

    # -- before it is sent ----------------------------------------------------------------

    def declare(self, request: Request) -> None:
        """Note from now on what becomes of *request*, which ``Spider.start`` yielded: a source."""
        if self.account.due:
            key = key_of(request)
            request.meta[TICKET] = {"source": key}
            if not self._is(key, _OUTCOME):
                self.account.left.setdefault(key, None)

    def too_long(self, request: Request) -> None:
        """Note that *request*, which `Spider.start` yielded, is not sent: its URL is too long."""
        limit = self._context.crawler.settings.getint("URLLENGTH_LIMIT")
        why = f"its URL has {len(request.url)} characters, and URLLENGTH_LIMIT is {limit}: raise it"
        logger.warning("%s... is not requested: %s", request.url[:100], why)
        if self.account.due and not self.by_spider:
            self._end(key_of(request), Heard(readings.LEFT_OUT, why))

    def adopt(self, request: Request) -> None:
        """Note what becomes of *request*, a link that waited while its page was declared.

        The request that declared the page is its duplicate, and was dropped.
        """
        key, ticket = key_of(request), ticket_of(request)
        declared = self.account.due and self._context.scope.is_source(request.url)
        if declared and ticket is not None and not self._is(key, _OUTCOME):
            ticket.tickets.keep(request, ticket, {**ticket.lasting(), "source": key})
            self.account.left.setdefault(key, None)

    def last_visit(self, key: str) -> visits.Visit | None:
        """When an earlier run last sent the source *key* and was answered (R8).

        What cannot be read counts as requested just now, so the source is not sent in this run.
        """
        context = self._context
        if self._lifts(key) and key not in self._hops:
            return None
        try:
            run = context.store.get(SourceRun, key)
        except StateError as error:
            context.recorder.own_fault(str(error), kept=True)
            return SourceRun(key, context.wall(), "unknown").visit
        self._looked_up = key, run
        if run is None or (self._lifts(key) and not run.visit.gone):
            return None
        return self._visit(run)

    def _visit(self, run: SourceRun) -> visits.Visit:
        return run.visit._replace(revisit=self._context.scope.cadence(run.url))

    def _lifts(self, key: str) -> bool:
        """Whether R8 allows *key* in this run, whatever is on record.

        True where this run got an answer to it, or a redirect led to it, unless it is gone.
        """
        known = not self._context.fleet and self._is(key, _ANSWERED | _LED_ON | _GIVEN_UP)
        return known or key in self._hops

    def again(self, ticket: Ticket) -> bool:
        """Whether this run has already had an answer to the same source (URL and form)."""
        return self._is(ticket.key, _ANSWERED) and self._context.scope.is_source(ticket.url)

    def refused(self, key: str, verdict: Verdict, host: str, due: float | None) -> None:
        """Note that *key* is not sent in this run, or by no run before *due* (Unix seconds)."""
        context = self._context
        if verdict.name == NOT_DUE:
            self._note(key, _TURNED_AWAY)
        url = key.partition(" ")[0]
        if due is None and url.startswith("http") and context.scope.source_of(url) is None:
            self.account.links[verdict.requirement] += 1
        if due is not None:
            self.deferrals.add(key, host, due, verdict.reason)

    def take(self, key: str) -> Verdict | None:
        """Take the source *key* for this process; the refusal if another requests it."""
        if self._context.look is not None or self._locks.take(key) or self._lifts(key):
            return None
        return visits.UNDER_WAY

    def let_go(self, key: str) -> None:
        """Note that the request *key* is not sent now, or was sent and got no answer."""
        self._locks.drop(key)

    # -- what it was answered -------------------------------------------------------------

    def answered(self, request: Request, ticket: Ticket, outcome: str, sent_at: float) -> None:
        """Note that *request*, sent at *sent_at* (Unix seconds), has an answer that R8 counts."""
        key = ticket.key
        self._note(key, _ANSWERED if key in self._hops else 0, instead_of=_LED_ON)
        for source in self._counts_for(ticket):
            run = self._run(source, sent_at, outcome)
            self._untaken.setdefault(request, []).append(run)
            self._note(source, _ANSWERED | (_GONE if run.visit.gone else 0))
            self._visiting.discard(source)

    def redirected(self, ticket: Ticket) -> None:
        """Note that a request was answered by a redirect."""
        if not self._is(ticket.key, _ANSWERED):
            self._note(ticket.key, _LED_ON)
        self._visiting.update(self._counts_for(ticket))

    def retried(self, ticket: Ticket) -> None:
        """Note that a request has failed, and R5 grants a retry: its visit goes on."""
        if not self._context.fleet:
            self._visiting.update(self._counts_for(ticket))

    def goes_on(self, ticket: Ticket) -> None:
        """Note that another Request takes the place of one. In a fleet any worker has it."""
        if self._context.fleet:
            self._visiting.difference_update(self._counts_for(ticket))

    def ends(self, ticket: Ticket) -> bool:
        """Note that nothing follows a request; whether the visit of a source failed by that.

        It failed where the last thing heard of the source was a redirect, or an answer that R5
        would have had sent again.
        """
        if not self._visiting:
            return False
        visiting = [key for key in self._counts_for(ticket) if key in self._visiting]
        if visiting:
            self._fail(visiting)
        return bool(visiting)

    def visit_failed(self, ticket: Ticket) -> None:
        """Note that the visit of the sources of a request has failed (R8, D41)."""
        self._fail(list(self._counts_for(ticket)))

    def _fail(self, keys: list[str]) -> None:
        for key in keys:
            self._context.remember(partial(self._note_failure, key))
            self._note(key, _GIVEN_UP)
        self._visiting.difference_update(keys)
        self._context.remember(self._context.store.flush)

    def _note_failure(self, key: str) -> None:
        if self._context.look is not None:
            return
        # Where the record cannot be read, it stays: R8 goes by it.
        known = self._context.store.get(SourceRun, key) or SourceRun(key, 0.0, "")
        # Within a run it counts once. A fleet has no runs.
        again = not self._context.fleet and self._is(key, _GIVEN_UP)
        visit = visits.failed(known.visit, self._context.wall(), again=again)
        new = replace(known, gave_up_at=visit.gave_up_at, failures=visit.failures)
        if (cadence := self._context.scope.cadence(key)) is not None:
            new = replace(new, revisit=cadence)
        self._context.store.put(new)

    def hop(self, key: str, ticket: Ticket) -> list[str]:
        """Note that a request was redirected to *key*, and has this *ticket*.

        Returns the keys of the sources for which an answer there counts.
        """
        sources = list(self._counts_for(ticket))
        self._hops.setdefault(key, {}).update(dict.fromkeys(sources))
        return sources

    def not_sent(self, key: str, ticket: Ticket) -> bool:
        """Whether the hop *key* is to be sent though Scrapy knows it; *ticket*: what led there.

        R8 refused it, or it led here: then it has answered by that redirect alone, and may answer
        otherwise now.
        """
        led_here = self._is(key, _LED_ON) and key in self._counts_for(ticket)
        return led_here or self._is(key, _TURNED_AWAY)

    def knows(self, event: Event) -> bool:
        """Whether an operator was told by an earlier run what *event* says, or is at the end."""
        context = self._context
        now, revisit = context.wall(), context.config.revisit

        def known(key: str) -> bool:
            old = context.recall(lambda: context.store.get(Reading, key))
            return old is not None and readings.is_known(old, event, now, revisit)

        key = urls.key_of(event.url, event.form)
        return all(map(known, self._hops.get(key) or [key]))

    def interval(self, ticket: Ticket) -> float:
        """Seconds between two visits of the sources of a request: the longest of them (R8)."""
        scope, usual = self._context.scope, self._context.config.revisit
        cadences = [scope.cadence(source) for source in self._counts_for(ticket)]
        intervals = [visits.interval_of(cadence, usual) for cadence in cadences]
        return max(intervals, default=usual)

    def _counts_for(self, ticket: Ticket) -> Iterable[str]:
        """The keys of the sources for which an answer to a request counts."""
        scope = self._context.scope
        return visits.counts_for(ticket.key, ticket.url, scope, ticket.via, self._hops)

    def _run(self, key: str, sent_at: float, outcome: str) -> SourceRun:
        context = self._context
        (seen, known), self._looked_up = self._looked_up, ("", None)
        if seen != key:
            known = context.recall(lambda: context.store.get(SourceRun, key))
        last = None if known is None else self._visit(known)
        visit = visits.met(sent_at, last, context.config.revisit)
        counted_from = None if visit.counted_from == sent_at else visit.counted_from
        revisit = context.scope.cadence(key)
        reason = context.config.revisit_reason
        return SourceRun(key, sent_at, outcome, reason, counted_from, revisit=revisit)

    def _dropped(self, request: Request) -> None:
        """Note that the duplicate filter dropped *request*.

        A hop to what this run has requested: what became of that counts for the sources that lead
        there. Else it is a duplicate, or known from a JOBDIR, and no source of its own.
        """
        key, lasting = key_of(request), lasting_of(request)
        source, carried = lasting.get("source"), lasting.get("via", ())
        if self._is(key, _ANSWERED):
            for led in carried:
                if not self._is(led, _ANSWERED):
                    self._note(led, _LED_ON)
                    outcome = str(visits.GONE) if self._is(key, _GONE) else "200"
                    self._remember(request, self._run(led, self._context.wall(), outcome))
            self._context.write()
            for led in carried:
                self._locks.drop(led)
        if source is not None and request.meta.get("redirect_urls"):
            self._joined[source] = key
        elif source in self.account.left:
            del self.account.left[source]

    def taken(self, requests: Collection[Request]) -> None:
        """Store the sources of *requests*, whose callbacks have ended, also with an error."""
        runs = [(each, run) for each in requests for run in self._untaken.pop(each, ())]
        for request, run in runs:
            self._remember(request, run)
        if runs:
            self._context.write()
        for _, run in runs:
            self._locks.drop(run.url)

    def settle(self, under_way: Collection[Request]) -> None:
        """Store the sources whose requests are not *under_way*, whatever came of their answers."""
        self.taken([each for each in self._untaken if each not in under_way])

    def _remember(self, request: Request, run: SourceRun) -> None:
        """Store *run*: at once, by the caller, so that no kill has the source sent again (D20)."""
        context = self._context
        if context.look is not None:
            return
        for key in {key_of(request), run.url}:
            self.deferrals.drop(key)
        context.remember(partial(context.store.put, run))

    def next_due(self, url: str) -> float | None:
        """As ``visits.next_due``, of the target *url*, with what this run was answered."""
        context, url = self._context, urls.key_of(Request(url).url)
        held = self._pacing.host_of(url).traffic.not_before - context.monotonic()
        runs = (run for each in self._untaken.values() for run in each if run.url == url)
        run = next(runs, None) or context.store.get(SourceRun, url)
        last, now = None if run is None else self._visit(run), context.wall()
        return visits.next_due(last, now + held, now, context.config.revisit)

    # -- what became of it ----------------------------------------------------------------

    def reached(self, response: Response) -> None:
        """Note an answer that reaches the spider."""
        request = response.request
        if request is not None and 200 <= response.status < 300:
            self.ended(request, Heard(readings.READ))
        elif request is not None:
            where = f" from {request.url}" if request.meta.get("redirect_urls") else ""
            reason, cause = f"HTTP {response.status}{where}", Cause(status=response.status)
            self.ended(request, Heard(readings.FAILED, reason, cause=cause))

    def failed(self, request: Request, ticket: Ticket, error: BaseException) -> None:
        """Note that *request* ended in *error*, and no answer reaches the spider."""
        if isinstance(error, Refused):
            heard = readings.heard_of(error.verdict, error.due)
            cause = heard.cause
            remedy = remedy_of(cause.requirement, cause.verdict, request.url)
            self.account.first(f"{request.url}: {heard.reason}{f'; {remedy}' if remedy else ''}")
        elif isinstance(error, (GaveUp, TooManyRedirects)):
            rule = "R5" if isinstance(error, GaveUp) else "D5"
            heard = Heard(readings.FAILED, f"{rule}: {error.reason}", cause=Cause(rule))
        else:
            heard = Heard(readings.FAILED, f"{type(error).__name__}: {error}")
        self.ended(request, heard)
        if self.ends(ticket):
            return
        key = ticket.key
        if isinstance(error, Refused) and request.meta.get("redirect_urls"):
            # A hop whose redirect another process had.
            self._fail([source for source in ticket.via if source != key])
        elif isinstance(error, GaveUp) and not self._is(key, _GIVEN_UP):
            # It was not sent, since its host had not answered by https.
            self.visit_failed(ticket)

    def reading(self, url: str) -> Reading | None:
        """Whether the source *url* was read by earlier runs, as far as that is on record."""
        key = urls.key_of(Request(url).url)
        return self._context.recall(lambda: self._context.store.get(Reading, key))

    def report(self, url: str, heard: Heard) -> None:
        """Called by a spider: note what became of the source *url*. The time is now."""
        self._end(urls.key_of(Request(url).url), heard)

    def ended(self, request: Request, heard: Heard) -> None:
        """Note that the way of *request* has ended. Time and redirects are added to *heard*."""
        source = lasting_of(request).get("source")
        if source is None or self.by_spider:
            return
        if heard.outcome == readings.READ:
            heard = replace(heard, moved_to=moved_for_good(request))
        self._end(source, heard)
        if request.meta.get("redirect_urls"):
            self._reached[key_of(request)] = heard

    def _end(self, key: str, heard: Heard) -> None:
        known, outcome = self._outcome(key), heard.outcome
        if known is None or readings.replaces(known, outcome):
            self._note(key, 1 + readings.OUTCOMES.index(outcome), instead_of=_OUTCOME)
            # Of many sources alike, the reason is kept once.
            why = sys.intern(one_line(heard.reason, 500)) if heard.reason else ""
            gone = outcome != readings.READ and self._is(key, _GONE)
            heard = replace(heard, reason=why, at=self._context.wall(), gone=gone)
            self.account.add(key, heard, known)

    def close(self) -> None:
        """Store all sources that were answered: the crawl ends, and no answer is taken later."""
        self.taken([*self._untaken])
        if not self._context.crawler.settings.get("JOBDIR"):  # else the job goes on with them
            for key in self._visiting:
                self._context.remember(partial(self._note_failure, key))
        self._context.write()
        self._locks.close()
        for source, key in self._joined.items():
            outcome = self._outcome(key)
            heard = self._reached.get(key) or (Heard(outcome) if outcome else None)
            if heard is not None and source in self.account.left:
                self._end(source, replace(heard, reason=heard.reason or f"see {key}"))


class Account:
    """What is stored and said of the sources of one crawl: which ones need a person."""

    def __init__(self, context: Context) -> None:
        self._context = context
        #: Whether the spider starts with sources. The pages that a command fetches are none.
        self.due = True
        #: The sources that have not ended.
        self.left: dict[str, None] = {}
        #: Sources that have moved for good, each with its new place.
        self._moves: list[tuple[str, str]] = []
        #: Those that have, by outcome; those that were refused, by requirement.
        self.counts: Counter[str] = Counter()
        self._rules: Counter[str] = Counter()
        #: By requirement, refused requests that the spider made besides.
        self.links: Counter[str] = Counter()
        #: Those of them whose records are not stored yet, with what was heard.
        self._unstored: list[tuple[str, Heard]] = []
        #: How many sources need a person, once it is closed.
        self.needy = 0
        #: By key, the records of those, and of others that are unread or have moved.
        self._ailing: dict[str, Reading] = {}
        #: Of the first target that was refused or failed: why, and what to do.
        self._first = ""
        #: The line that ends the run, and its level.
        #: How serious the last line is, and what makes it of the reason why the spider was closed.
        self._last_line: tuple[int, Callable[[str], str]] | None = None
        self._reason = ""
        self._every = context.crawler.settings.getfloat("LOGSTATS_INTERVAL")
        self._timer = compat.Timer(self._say_progress)

    def begin(self) -> None:
        """Say from now on how far the crawl is, unless Scrapy is to say nothing either (0).

        Not in a fleet: no worker knows what the others have done.
        """
        if self._every and self.due and not self._context.fleet:
            self._timer.set(self._every)

    def _say_progress(self) -> None:
        done, left = self.counts.total(), len(self.left)
        looks = [queue.outlook() for queue in self._context.queues]
        due, waiting = sum(look[0] for look in looks), sum(look[1] for look in looks)
        # At the pace of the sources that have ended; at the least what intervals of hosts allow.
        elapsed = self._context.monotonic() - self._context.begun
        seconds = max([left * elapsed / done if done else 0.0, *(look[2] for look in looks)])
        end = f"in about {duration(round(seconds))}" if done or seconds else "not known yet"
        hosts = f"hosts: {due} due, {waiting} waiting"
        logger.info("%d sources done, %d left; %s; end %s", done, left, hosts, end)
        self._timer.set(self._every)

    def first(self, line: str) -> None:
        """Keep *line*, which says why a target was refused or failed, if it is the first."""
        self._first = self._first or one_line(line, 500)

    def add(self, key: str, heard: Heard, known: str | None) -> None:
        """Note what was *heard* of the source *key*; *known*: its outcome before, if any."""
        self.left.pop(key, None)
        self.counts[heard.outcome] += 1
        if known is not None:
            self.counts[known] -= 1
        if heard.outcome == readings.REFUSED != known:
            self._rules[heard.cause.requirement] += 1
        if heard.reason:
            self.first(f"{key}: {heard.reason}")
        if heard.moved_to is not None:
            self._moves.append((key, heard.moved_to))
        self._unstored.append((key, heard))
        if len(self._unstored) >= _AT_ONCE:
            self._store()

    def _store(self) -> bool:
        """Update the records of sources that were heard of, and note which need a person.

        Returns whether there are records. Of a fleet's workers none sees all that is answered, so
        without them only what is gone is known to need a person.
        """
        context, now, revisit = self._context, self._context.wall(), self._context.config.revisit
        heard, self._unstored = self._unstored, []
        kept = not (context.config.state_dir is None or context.fleet or context.halted)

        def update(key: str, each: Heard) -> Reading:
            old = context.recall(lambda: context.store.get(Reading, key)) if kept else None
            own = context.scope.cadence(key)
            return readings.updated(old, key, replace(each, revisit=own), now)

        found = [update(*each) for each in heard if kept or each[1].gone]
        if kept:
            context.remember(lambda: context.store.put(*found))
        for each in found:
            unread = readings.is_unread(each, now, revisit)
            if unread or each.moved_to or readings.attention(each, now, revisit):
                self._ailing[each.url] = each
            else:
                self._ailing.pop(each.url, None)
        return kept

    def close(self, reason: str) -> None:
        """Store what was read, and name the sources that need a person.

        *reason*: why the spider was closed, as Scrapy says it.
        """
        self._timer.cancel()
        if not self.due:
            return
        context, counts = self._context, self.counts
        if not context.fleet:
            counts[readings.NOT_REQUESTED] += len(self.left)
        self._unstored += [(key, Heard()) for key in self.left]
        kept = self._store()
        self._doubt_moves()
        needy = self.needy = self._name(kept=kept)
        if needy and context.config.exit_attention:
            compat.fail_command()
        in_vain = not counts[readings.READ] and not context.fleet
        halted = context.halted is not None
        # Requests may come in another way, as to a RedisSpider.
        came = context.recorder.sent[(TARGET,)] or self.links
        lost = not came and compat.skips_start_requests(context.crawler.spidercls)
        more = f"; the first: {self._first}" if in_vain and self._first else ""
        more += f"; {_START_REQUESTS}" if lost else ""

        def last_line(reason: str) -> str:
            rules, links, unstored = self._rules, self.links, context.recorder.unstored
            line = readings.last_line(
                counts, needy, reason, rules, links, halted=halted, unstored=unstored
            )
            return f"{line}{more}"

        warns = needy or in_vain or lost or self.links["R6"]
        self._last_line = (logging.WARNING if warns else logging.INFO, last_line)
        self._reason = reason

    def _doubt_moves(self) -> None:
        """Take back that sources have moved to where those of another host moved in this run."""
        shared = readings.moved_together(self._moves)
        now, revisit = self._context.wall(), self._context.config.revisit
        for each in [each for each in self._ailing.values() if each.moved_to in shared]:
            stays = replace(each, moved_to=None)
            self._context.remember(partial(self._context.store.put, stays))
            if readings.attention(stays, now, revisit):
                self._ailing[each.url] = stays
            else:
                del self._ailing[each.url]

    def _name(self, *, kept: bool) -> int:
        """Log the sources that a person is to be told of; returns how many need one.

        *kept*: there are records, and it goes into them who was told of.
        """
        context, now, revisit = self._context, self._context.wall(), self._context.config.revisit
        ailing = self._ailing.values()
        needy = [each for each in ailing if readings.attention(each, now, revisit)]
        told = [each for each in needy if readings.is_to_be_told(each, now)]
        for line in readings.attention_lines(told, now, revisit):
            logger.warning("%s", line)
        if kept:
            unread = sum(readings.is_unread(each, now, revisit) for each in ailing)
            context.recorder.set("unread", unread)
            context.recorder.set("moved", sum(each.moved_to is not None for each in ailing))
            context.remember(
                lambda: context.store.put(*[replace(each, told_at=now) for each in told])
            )
        return len(needy)

    def say(self) -> None:
        """Log the last line of the run; called after everything that Scrapy logs."""
        if self._last_line is not None:
            level, last_line = self._last_line
            failed, reason = self._context.recorder.own_faults, self._reason
            # What fails after the spider was closed, for example to store a feed, counts as well.
            reason = readings.NOT_WELL if failed and reason == FINISHED else reason
            logger.log(level, "%s", last_line(reason))


def moved_for_good(request: Request | None) -> str | None:
    """The URL of *request*, if permanent redirects (301, 308), and no others, led to it."""
    hops = [] if request is None else request.meta.get("redirect_reasons", [])
    return request.url if request and hops and all(hop in _PERMANENT for hop in hops) else None
