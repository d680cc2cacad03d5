"""The declared sources of one crawl: when each may be sent, who requests it, how it ended.

R8 compares runs: the answers of earlier runs decide about a source, those of this run never do
(D12). So the answers of this run are kept apart from the store's records, and
:meth:`Sources.last_visit` returns no record if this run got an answer. A fleet has no runs: the
records decide about each request from its shared queue.

A source counts as answered when its spider has taken the answer. If the process is killed before
that is on record, the next run sends the source again. Until then a lock tells other runs that this
run is requesting it (``state/machine.py``). A source that redirects is under way until the target
of the redirect has answered: that answer counts for the source.

A source counts as *read* when an answer of 2xx reaches the spider, or a 304 reports no change. A
spider that knows better, for example because it parses the answer, sets ``by_spider`` and reports
the outcome itself (:meth:`Sources.report`). ``policy.readings`` decides what follows.
``adapters.account`` logs it at the end.

A source has one key everywhere (``urls.key_of``). Its run is a ``Progress``.
"""

from __future__ import annotations

import logging
import re
import sys
from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final

from scrapy import Request, signals

from scrapy_walsh.adapters.account import Account
from scrapy_walsh.adapters.events import logger
from scrapy_walsh.adapters.outcomes import GaveUp, Refused, TooManyRedirects
from scrapy_walsh.adapters.progress import ProgressMap
from scrapy_walsh.adapters.ticket import TICKET, key_of, lasting_of, ticket_of
from scrapy_walsh.exceptions import StateError, one_line
from scrapy_walsh.policy import readings, urls, visits
from scrapy_walsh.policy.formats.representation import joined
from scrapy_walsh.policy.hints import NO_HINTS, Hints, read_hints
from scrapy_walsh.policy.readings import Cause, Result
from scrapy_walsh.policy.verdict import NOT_DUE, Verdict, remedy_of
from scrapy_walsh.state.machine import UnderWay
from scrapy_walsh.state.records import Deferral, Reading, VisitRecord

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from scrapy.http import Response

    from scrapy_walsh.adapters.context import Context
    from scrapy_walsh.adapters.ticket import Ticket
    from scrapy_walsh.adapters.wire.pacing import Pacing
    from scrapy_walsh.policy.event import Event

_PERMANENT: Final = (301, 308)
#: The types of a short body with the reason of a closed door, and the octets that are read of it.
_TEXT: Final = re.compile(r"text/plain|application/([\w.-]+\+)?json", re.IGNORECASE)
_WORDS: Final = 300


class _Deferrals:
    """The sources that this run and earlier runs have deferred."""

    def __init__(self, context: Context) -> None:
        self._context = context
        #: By key, when an earlier run first deferred it. Read from the store at first use.
        self._earlier: dict[str, float] | None = None
        #: The keys that this run has deferred.
        self._keys: set[str] = set()

    def since(self, key: str) -> float | None:
        """When an earlier run first deferred *key*, Unix seconds; None if none did.

        On its host, the source that was deferred first goes first.
        """
        if self._earlier is None:
            context = self._context
            deferrals = context.recall(lambda: list(context.store.rows(Deferral))) or []
            self._earlier = {row.url: row.since or row.due for row in deferrals}
        return self._earlier.get(key)

    def add(self, key: str, host: str, due: float, reason: str) -> None:
        """Record that no run sends *key* before *due* (Unix seconds)."""
        context = self._context
        since = self.since(key)
        if since is None:
            since = context.wall()
        deferral = Deferral(key, host, due, reason, since)
        self._keys.add(key)
        context.remember(lambda: context.store.put(deferral))

    def drop(self, key: str) -> None:
        """Delete the record of *key*, if there may be one: a fleet's other workers write, too."""
        store = self._context.store
        if store.shared is not None or key in self._keys or self.since(key) is not None:
            self._context.remember(partial(store.delete, Deferral, key))


class Sources:
    """The sources of one crawl. Hops (targets of redirects) have keys and progress, too."""

    def __init__(self, context: Context, pacing: Pacing) -> None:
        self._context = context
        self._pacing = pacing
        self.account = Account(context)
        #: Whether the spider itself reports the outcomes, by :meth:`report`.
        self.by_spider = False
        self._progress = ProgressMap()
        #: By key of a hop: the sources that redirect to it.
        self._hops: dict[str, dict[str, None]] = {}
        #: By source, how many of its requests are to be dropped because an earlier one waits.
        self._repeated: Counter[str] = Counter()
        #: By source, the answer that has retired it: its status, and the words of a closed door.
        self._retired: dict[str, tuple[int, str]] = {}
        #: The sources that were requested, until their visits end.
        self._visiting: set[str] = set()
        #: By source, the hop that it redirects to, if this run had requested that hop before.
        self._joined: dict[str, str] = {}
        #: By key of a hop, the result of its request.
        self._reached: dict[str, Result] = {}
        #: By request, the records to store when its spider has taken the answer. If we stored them
        #: earlier, the run after a kill would skip the source. Or it would send validators, and a
        #: 304 would report "no new data" although the spider has never seen the answer.
        self._untaken: dict[Request, list[VisitRecord]] = {}
        self._locks = UnderWay(context.config.state_dir)
        #: The latest source that was looked up, and its record. It cannot change while the source
        #: is at the wire, because the source is locked for this process.
        self._looked_up: tuple[str, VisitRecord | None] = ("", None)
        self.deferrals = _Deferrals(context)
        context.crawler.signals.connect(self._dropped, signals.request_dropped)

    def begin(self) -> None:
        """Let other processes see that the crawl has begun."""
        self._locks.begin()
        self.account.begin()

    # -- before it is sent ----------------------------------------------------------------

    def declare(self, request: Request) -> None:
        """Account for *request* from now on: ``Spider.start`` yielded it, so it is a source."""
        if self.account.due:
            key = key_of(request)
            request.meta[TICKET] = {"source": key}
            if key in self.account.left:
                self._repeated[key] += 1
            elif self._progress.of(key).outcome is None:
                self.account.left[key] = None

    def too_long(self, request: Request) -> None:
        """Note that *request* of `Spider.start` is not sent, because its URL is too long."""
        limit = self._context.crawler.settings.getint("URLLENGTH_LIMIT")
        reason = warn_too_long(request.url, limit, self.reading(request.url))
        if self.account.due and not self.by_spider:
            self._end(key_of(request), Result(readings.LEFT_OUT, reason))

    def adopt(self, request: Request) -> None:
        """Account for *request*, a link that waited while its page was declared.

        The request that declared the page was dropped as a duplicate of this link.
        """
        key = key_of(request)
        ticket = ticket_of(request)
        declared = self.account.due and self._context.scope.is_source(request.url)
        if declared and ticket is not None and self._progress.of(key).outcome is None:
            ticket.tickets.keep(request, ticket, {**ticket.lasting(), "source": key})
            self.account.left.setdefault(key, None)

    def last_visit(self, key: str) -> visits.Visit | None:
        """The visits of the source *key* by earlier runs; None without a record (R8).

        A record that cannot be read counts as a visit just now, so this run does not send it.
        """
        context = self._context
        if self._lifts(key) and key not in self._hops:
            return None
        try:
            record = context.store.get(VisitRecord, key)
        except StateError as error:
            context.recorder.own_fault(str(error), kept=True)
            return VisitRecord(key, context.wall(), "unknown").visit
        if record is not None and context.store.shared is None:
            current = record.at(context.wall())
            if current is not record:  # stored, so that it counts as now only once (D9)
                context.remember(partial(context.store.put, current))
                record = current
        self._looked_up = key, record
        if record is None or (self._lifts(key) and not record.visit.retired):
            return None
        return self._visit(record)

    def _visit(self, record: VisitRecord) -> visits.Visit:
        """The visit of *record*, by the cadence and the settings of this run."""
        interval = self._own_interval(record)
        return record.visit._replace(revisit=interval, hints_hold=self._context.config.hints)

    def _own_interval(self, record: VisitRecord) -> float | None:
        config = self._context.config
        cadence = self._context.scope.cadence(record.url)
        return visits.own_interval(cadence, record.visit, config.revisit, auto=config.auto_revisit)

    def _is_auto(self, key: str) -> bool:
        cadence = self._context.scope.cadence(key)
        return visits.is_auto(cadence, auto=self._context.config.auto_revisit)

    def _lifts(self, key: str) -> bool:
        """Whether R8 allows *key* in this run, whatever its record is.

        True if this run has requested it, or a redirect led to it, unless it is retired.
        """
        if key in self._hops:
            return True
        return not self._context.fleet and self._progress.of(key).is_requested

    def again(self, ticket: Ticket) -> bool:
        """Whether this run already has an answer to the same source (URL and form)."""
        is_answered = self._progress.of(ticket.key).is_answered
        return is_answered and self._context.scope.is_source(ticket.url)

    def refused(self, key: str, verdict: Verdict, host: str, due: float | None) -> None:
        """Note that this run does not send *key*, and no run before *due* (Unix seconds)."""
        context = self._context
        if verdict.name == NOT_DUE:
            self._progress.update(key, is_not_due=True)
        url = key.partition(" ")[0]
        if due is None and url.startswith("http") and context.scope.source_of(url) is None:
            self.account.links[verdict.requirement] += 1
        if due is not None:
            self.deferrals.add(key, host, due, verdict.reason)

    def take(self, key: str) -> Verdict | None:
        """Lock the source *key* for this process. Returns the refusal if another requests it."""
        if self._context.look is not None or self._locks.take(key) or self._lifts(key):
            return None
        return visits.UNDER_WAY

    def let_go(self, key: str) -> None:
        """Unlock *key*: it is not sent now, or was sent and got no answer."""
        self._locks.drop(key)

    # -- after an answer, or without one --------------------------------------------------

    def answered(
        self, request: Request, ticket: Ticket, status: int | None, sent_at: float, words: str = ""
    ) -> None:
        """Note that *request*, sent at *sent_at* (Unix seconds), got an answer that R8 counts.

        *words*: of an answer that closes its door (``words_of``).
        """
        key = ticket.key
        self._progress.update(key, is_redirected=False)
        if key in self._hops:
            self._progress.update(key, is_answered=True)
        for source in self._counts_for(ticket):
            record = self._new_record(source, sent_at, status, words)
            self._untaken.setdefault(request, []).append(record)
            self._progress.update(source, is_answered=True)
            if retired := record.visit.retired:
                self._retired[source] = retired, words
            self._visiting.discard(source)

    def hear(self, request: Request, response: Response) -> Hints | None:
        """Note the hints of the answer to *request*, when to come back; None without any (R8)."""
        records = self._untaken.get(request)
        if not records:
            return None

        field = partial(joined, response.headers)
        # Of several sources that redirect here, each has had the same answers.
        is_auto = any(self._is_auto(record.url) for record in records)
        now = self._context.wall()
        hints = read_hints(field, response.body, now, records[0].hints, dated=is_auto)
        records = [replace(record, hints=hints) for record in records]
        self._untaken[request] = [
            replace(record, revisit=self._own_interval(record)) for record in records
        ]
        return None if hints == NO_HINTS else hints

    def redirected(self, ticket: Ticket) -> None:
        """Note that a request got a redirect."""
        if not self._progress.of(ticket.key).is_answered:
            self._progress.update(ticket.key, is_redirected=True)
        self._visiting.update(self._counts_for(ticket))

    def retried(self, ticket: Ticket) -> None:
        """Note that a request has failed, and R5 grants a retry: its visit goes on."""
        if not self._context.fleet:
            self._visiting.update(self._counts_for(ticket))

    def goes_on(self, ticket: Ticket) -> None:
        """Note that another Request replaces a request. In a fleet any worker may send it."""
        if self._context.fleet:
            self._visiting.difference_update(self._counts_for(ticket))

    def ends(self, ticket: Ticket) -> bool:
        """Note that nothing follows a request. Returns whether the visit of a source has failed.

        It has failed if its latest answer was a redirect, or an answer that R5 retries.
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
            self._progress.update(key, has_failed=True)
        self._visiting.difference_update(keys)
        self._context.remember(self._context.store.flush)

    def _note_failure(self, key: str) -> None:
        if self._context.look is not None:
            return
        # If the record cannot be read, this raises: then the record stays, because R8 needs it.
        record = self._context.store.get(VisitRecord, key) or VisitRecord(key, 0.0, "")
        # Within a run it counts once. A fleet has no runs.
        is_repeated = not self._context.fleet and self._progress.of(key).has_failed
        visit = visits.failed(record.visit, self._context.wall(), again=is_repeated)
        record = replace(record, gave_up_at=visit.gave_up_at, failures=visit.failures)
        interval = self._own_interval(record)
        if interval is not None:
            record = replace(record, revisit=interval)
        self._context.store.put(record)

    def hop(self, key: str, ticket: Ticket) -> list[str]:
        """Note that the request of *ticket* was redirected to *key*.

        Returns the keys of the sources that an answer of *key* counts for.
        """
        sources = list(self._counts_for(ticket))
        self._hops.setdefault(key, {}).update(dict.fromkeys(sources))
        return sources

    def not_sent(self, key: str, ticket: Ticket) -> bool:
        """Whether the hop *key* must be sent although Scrapy takes it for a duplicate.

        *ticket*: of the request that led there. Either R8 refused the hop, or the hop itself led
        back to that request: then it answered by that redirect alone, and may answer otherwise now.
        """
        progress = self._progress.of(key)
        if progress.is_not_due:
            return True
        return progress.is_redirected and key in self._counts_for(ticket)

    def knows(self, event: Event) -> bool:
        """Whether an earlier run has warned of *event*, or the end of this run will."""
        context = self._context
        now = context.wall()
        revisit = context.config.revisit

        def is_known(key: str) -> bool:
            reading = context.recall(lambda: context.store.get(Reading, key))
            if reading is None:
                return False
            return readings.is_known(reading, event, now, revisit, self.account.visit_of)

        key = urls.key_of(event.url, event.form)
        return all(is_known(source) for source in self._hops.get(key) or [key])

    def interval(self, ticket: Ticket) -> float:
        """Seconds between two visits of the sources of a request: the longest interval (R8)."""
        scope = self._context.scope
        default = self._context.config.revisit
        sources = self._counts_for(ticket)
        intervals = [
            visits.AUTO_LONGEST
            if self._is_auto(source)
            else visits.interval_of(scope.cadence(source), default)
            for source in sources
        ]
        return max(intervals, default=default)

    def _counts_for(self, ticket: Ticket) -> Iterable[str]:
        """The keys of the sources that an answer to a request counts for."""
        scope = self._context.scope
        return visits.counts_for(ticket.key, ticket.url, scope, ticket.via, self._hops)

    def _new_record(self, key: str, sent_at: float, status: int | None, words: str) -> VisitRecord:
        """The record of an answer to the source *key*. *words*: as in :meth:`answered`."""
        context = self._context
        cached_key, record = self._looked_up
        self._looked_up = "", None
        if cached_key != key:
            record = context.recall(lambda: context.store.get(VisitRecord, key))
        visit_before = None if record is None else self._visit(record)
        visit = visits.met(sent_at, visit_before, context.config.revisit)
        new_record = VisitRecord(
            key,
            sent_at,
            str(status),
            reason=context.config.revisit_reason,
            counted_from=None if visit.counted_from == sent_at else visit.counted_from,
            hints=record.hints if record and status == visits.NOT_MODIFIED else NO_HINTS,
            words=words,
        )
        return replace(new_record, revisit=self._own_interval(new_record))

    def _dropped(self, request: Request) -> None:
        """Note that the duplicate filter dropped *request*.

        If it is a hop, this run has requested its URL before, and that result counts for the
        sources that redirect there. Otherwise it is a duplicate, perhaps from a JOBDIR, and no
        source of its own.
        """
        key = key_of(request)
        lasting = lasting_of(request)
        source = lasting.get("source")
        via = lasting.get("via", ())
        progress = self._progress.of(key)
        if progress.is_answered:
            answer = self._retired.get(key, (200, ""))
            for redirecting in via:
                if not self._progress.of(redirecting).is_answered:
                    self._progress.update(redirecting, is_redirected=True)
                    record = self._new_record(redirecting, self._context.wall(), *answer)
                    self._remember(request, record)
            self._context.write()
            for redirecting in via:
                self._locks.drop(redirecting)
        if source is not None and request.meta.get("redirect_urls"):
            self._joined[source] = key
        elif source is not None and self._repeated[source] > 0:
            self._repeated[source] -= 1
        elif source in self.account.left:
            del self.account.left[source]
            self.account.earlier = bool(self._context.crawler.settings.get("JOBDIR"))

    def taken(self, requests: Collection[Request]) -> None:
        """Store the sources of *requests*: their callbacks have ended, perhaps with an error."""
        records = []
        for request in requests:
            for record in self._untaken.pop(request, ()):
                self._remember(request, record)
                records.append(record)
        if records:
            self._context.write()
        for record in records:
            self._locks.drop(record.url)

    def settle(self, under_way: Collection[Request]) -> None:
        """Store the answered sources of all requests that are no longer *under_way*."""
        self.taken([request for request in self._untaken if request not in under_way])

    def _remember(self, request: Request, record: VisitRecord) -> None:
        """Store *record*. The caller writes it at once: no kill may cause another request (D20)."""
        context = self._context
        if context.look is not None:
            return
        for key in {key_of(request), record.url}:
            self.deferrals.drop(key)
        context.remember(partial(context.store.put, record))

    def next_due(self, url: str) -> float | None:
        """``visits.next_due`` of the target *url*, by the records and the answers of this run."""
        context = self._context
        key = urls.key_of(Request(url).url)
        hold = self._pacing.host_of(key).traffic.not_before - context.monotonic()
        untaken = chain.from_iterable(self._untaken.values())
        record = next((record for record in untaken if record.url == key), None)
        if record is None:
            record = context.store.get(VisitRecord, key)
        visit = None if record is None else self._visit(record)
        now = context.wall()
        return visits.next_due(visit, now + hold, now, context.config.revisit)

    # -- the outcome ----------------------------------------------------------------------

    def reached(self, response: Response) -> None:
        """Note an answer that reaches the spider."""
        request = response.request
        if request is not None and 200 <= response.status < 300:
            self.ended(request, Result(readings.READ))
        elif request is not None:
            reason = f"HTTP {response.status}"
            if request.meta.get("redirect_urls"):
                reason += f" from {request.url}"
            cause = Cause(status=response.status)
            self.ended(request, Result(readings.FAILED, reason, cause=cause))

    def failed(self, request: Request, ticket: Ticket, error: BaseException) -> None:
        """Note that *request* ended in *error*, and no answer reaches the spider."""
        if isinstance(error, Refused):
            result = readings.result_of(error.verdict, error.due)
            cause = result.cause
            remedy = remedy_of(cause.requirement, cause.verdict, request.url)
            line = f"{request.url}: {result.reason}"
            self.account.first(f"{line}; {remedy}" if remedy else line)
        elif isinstance(error, (GaveUp, TooManyRedirects)):
            rule = "R5" if isinstance(error, GaveUp) else "D5"
            result = Result(readings.FAILED, f"{rule}: {error.reason}", cause=Cause(rule))
        else:
            result = Result(readings.FAILED, f"{type(error).__name__}: {error}")
        self.ended(request, result)
        if self.ends(ticket):
            return
        key = ticket.key
        if isinstance(error, Refused) and request.meta.get("redirect_urls"):
            # A hop. Another process had its redirect, so `_visiting` has none of its sources here.
            self._fail([source for source in ticket.via if source != key])
        elif (
            isinstance(error, GaveUp) or (isinstance(error, Refused) and error.verdict.is_dead)
        ) and not self._progress.of(key).has_failed:
            # It was not sent: its host had not answered by https, or could not be connected to.
            self.visit_failed(ticket)

    def reading(self, url: str) -> Reading | None:
        """The record of whether earlier runs read the source *url*; None without one."""
        key = urls.key_of(Request(url).url)
        return self._context.recall(lambda: self._context.store.get(Reading, key))

    def report(self, url: str, result: Result) -> None:
        """Called by a spider: note the outcome of the source *url*, as of now."""
        self._end(urls.key_of(Request(url).url), result)

    def ended(self, request: Request, result: Result) -> None:
        """Note that *request*, with its redirects and retries, has ended.

        We add the time, and the target of permanent redirects, to *result*.
        """
        source = lasting_of(request).get("source")
        if source is None or self.by_spider:
            return
        if result.outcome == readings.READ:
            result = replace(result, moved_to=moved_for_good(request))
        self._end(source, result)
        if request.meta.get("redirect_urls"):
            self._reached[key_of(request)] = result

    def _end(self, key: str, result: Result) -> None:
        outcome = result.outcome
        progress = self._progress.of(key)
        earlier = progress.outcome
        if earlier is None or readings.replaces(earlier, outcome):
            self._progress.update(key, outcome=outcome)
            reason = result.reason
            if words := self._retired.get(key, (0, ""))[1]:
                reason = f"{reason}: {words}"
            # Sources with the same reason share one string.
            reason = sys.intern(one_line(reason, 500)) if reason else ""
            result = replace(result, reason=reason, at=self._context.wall())
            if outcome != readings.READ and key in self._retired:
                result = replace(result, cause=Cause(status=self._retired[key][0]), gone=True)
            self.account.add(key, result, earlier)

    def close(self) -> None:
        """Store all answered sources, because the crawl ends and no callback follows."""
        self.taken([*self._untaken])
        if not self._context.crawler.settings.get("JOBDIR"):  # otherwise the job continues them
            for key in self._visiting:
                self._context.remember(partial(self._note_failure, key))
        self._context.write()
        self._locks.close()
        for source, key in self._joined.items():
            result = self._reached.get(key)
            outcome = self._progress.of(key).outcome
            if result is None and outcome is not None:
                result = Result(outcome)
            if result is not None and source in self.account.left:
                self._end(source, replace(result, reason=result.reason or f"see {key}"))


def words_of(response: Response | None) -> str:
    """The words of a *response* that closes a door (``visits.words_of``), or ""."""
    if response is None or response.status not in visits.CLOSED:
        return ""
    headers = response.headers

    def fields(name: str) -> list[str]:
        return [value.decode("latin-1") for value in headers.getlist(name)]

    text = ""
    if _TEXT.match("".join(fields("Content-Type"))) and not fields("Content-Encoding"):
        text = response.body[:_WORDS].decode("utf-8", "replace")
    return visits.words_of(response.status, fields, text)


def moved_for_good(request: Request | None) -> str | None:
    """The URL of *request*, if permanent redirects (301, 308), and no others, led to it."""
    if request is None:
        return None
    redirects = request.meta.get("redirect_reasons", [])
    is_permanent = bool(redirects) and all(status in _PERMANENT for status in redirects)
    return request.url if is_permanent else None


def warn_too_long(url: str, limit: int, reading: Reading | None) -> str:
    """Log that *url* is longer than *limit*, Scrapy's URLLENGTH_LIMIT. Returns the reason.

    *reading*: of its source. If earlier runs did not read that either, it is no WARNING: one names
    the source each week (D35).
    """
    reason = f"its URL has {len(url)} characters, and URLLENGTH_LIMIT is {limit}: raise it"
    is_known = reading is not None and reading.reason is not None
    level = logging.INFO if is_known else logging.WARNING
    # The reason stands before the URL, because a long URL hides what follows it.
    logger.log(level, "a source is not requested: %s (%s...)", reason, url[:100])
    return reason
