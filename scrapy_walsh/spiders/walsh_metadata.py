"""R9: the main spider: metadata of declared sources, by feed, sitemap, markdown or llms.txt.

Each source has up to four steps, in R9's order; the next one is taken only where an answer is of
no use. A *walk* takes them: a generator for each source, which yields the steps that it needs, and
is sent an answer to one of them at a time. Sources that share a URL share one request: those that
need it wait for its answer, and all URLs that a source may need are declared with its first request
(R6). Where a source says so, the sitemaps of a sitemap index are steps, too.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from scrapy import Request, Spider, signals
from scrapy.exceptions import CloseSpider

from scrapy_walsh.adapters.compat import fail_command
from scrapy_walsh.adapters.sources import moved_for_good
from scrapy_walsh.adapters.ticket import TRY_HTTPS
from scrapy_walsh.exceptions import SourcesInvalid
from scrapy_walsh.policy import readings
from scrapy_walsh.policy.formats.representation import Step, plan, sitemap_step
from scrapy_walsh.policy.formats.text import Links
from scrapy_walsh.policy.robots.usage import as_member
from scrapy_walsh.policy.scope import MAX_CHILDREN
from scrapy_walsh.policy.times import iso
from scrapy_walsh.policy.urls import canonical_url, key_of
from scrapy_walsh.policy.verdict import NOT_DUE
from scrapy_walsh.policy.words import plural
from scrapy_walsh.sources import report
from scrapy_walsh.sources.answers import (
    MAX_BODY,
    Answer,
    from_failure,
    from_response,
    max_body,
    unless_lost,
    without_stand_in,
)
from scrapy_walsh.sources.handover import Handover
from scrapy_walsh.sources.items import MetadataItem
from scrapy_walsh.sources.report import Row, check_writable
from scrapy_walsh.sources.sources import Source, parse_urls, read_sources

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from scrapy.settings import BaseSettings
    from twisted.python.failure import Failure

    from scrapy_walsh.adapters.crawl import Crawl
    from scrapy_walsh.policy.verdict import Verdict

#: Octets of answers that may wait to be read while requests go on. Scrapy's own limit is less than
#: one large answer, which would then stop all requests until it is read.
_WAITING_OCTETS: Final = 8 * MAX_BODY
#: What a source may declare beside its page.
_DOCUMENTS: Final = (readings.FEED, readings.SITEMAP)
#: Yields steps to take now, or none; is sent one of those that it has yielded, and the answer.
_Walk = Generator[Sequence[Step], tuple[Step, Answer], None]


@dataclass(slots=True)
class _Visit:
    """A source under way, and its row of the report.

    ``due``: Unix seconds, where it was deferred.
    """

    source: Source
    row: Row
    walk: _Walk = field(init=False)
    due: float | None = None


class WalshMetadataSpider(Spider):
    """Requests each declared source in the most structured format that it offers, in R9's order.

    ``-a sources=FILE`` (.toml, .jsonl, .opml, .txt) or ``-a urls="URL URL"``; ``-a report=FILE``
    writes the source report as JSON; ``-a all_items=1`` yields those of earlier runs again.
    Yields :class:`MetadataItem`.
    """

    name = "walsh_metadata"
    # From the signal spider_opened on.
    handover: Handover
    _crawl: Crawl

    def __init__(
        self,
        sources: str | None = None,
        urls: str | None = None,
        report: str | None = None,
        all_items: str = "0",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.report_path = report
        self.all_items = all_items == "1"
        self.refusal: str | None = None
        self.problems: list[str] = []
        #: By R8's key of the source's first request.
        self.visits: dict[str, _Visit] = {}
        self.documents = 0
        # By canonical URL: the sources that wait for its answer, and the step; what it was.
        self._waiting: dict[str, list[tuple[_Visit, Step]]] = {}
        self._answers: dict[str, Answer] = {}
        self._seen: set[str] = set()
        try:
            if report:
                check_writable(report)
            if all_items not in ("0", "1"):
                wrong = f"-a all_items={all_items}: write all_items=1, or leave it out"
                raise SourcesInvalid(wrong)
            self._declare(sources, urls)
        except SourcesInvalid as error:
            self.refusal = str(error)

    @classmethod
    def update_settings(cls, settings: BaseSettings) -> None:
        """Scrapy's hook: raise SCRAPER_SLOT_MAX_ACTIVE_SIZE where it is lower than we need."""
        super().update_settings(settings)
        if settings.getint("SCRAPER_SLOT_MAX_ACTIVE_SIZE") < _WAITING_OCTETS:
            settings.set("SCRAPER_SLOT_MAX_ACTIVE_SIZE", _WAITING_OCTETS, priority="spider")

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> WalshMetadataSpider:
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider._opened, signals.spider_opened)
        crawler.signals.connect(spider._count_bytes, signals.bytes_received)
        crawler.signals.connect(spider._idle, signals.spider_idle)
        return spider

    def _opened(self) -> None:
        crawl: Crawl | None = getattr(self.crawler, "walsh", None)
        if crawl is not None:
            self._crawl, self.handover = crawl, Handover(crawl)
            crawl.on_wire.append(self._count_request)
            crawl.sources.by_spider = True
            children = any(visit.source.children for visit in self.visits.values())
            if children and crawl.config.is_walsh_research:
                self._refuse("children = true: walsh-research follows no links of a sitemap (R6)")
        else:  # job settings of a platform may take the add-on out: nothing would gate or pace
            self._refuse("scrapy_walsh is not installed here: set ADDONS, see docs/install.md")

    def _refuse(self, why: str) -> None:
        """Request nothing, and say *why* at the start."""
        self.refusal = self.refusal or why
        self.visits.clear()

    def _declare(self, sources: str | None, urls: str | None) -> None:
        if bool(sources) == bool(urls):
            raise SourcesInvalid('give either -a sources=FILE or -a urls="URL URL"')
        found, self.problems = read_sources(sources) if sources else parse_urls(urls or "")
        if not found:
            many = len(self.problems)
            raise SourcesInvalid(f"no usable source ({many} unusable); correct the list")
        for source in found:
            visit = self.visits[key_of(source.first)] = _Visit(source, Row(source.name, source.url))
            visit.walk = self._walk(visit)

    async def start(self) -> AsyncIterator[Any]:
        """One request for each first step; ``walsh_also`` declares what may follow it."""
        for problem in self.problems:
            self.logger.warning("%s", problem)
        if self.refusal is not None:
            self.logger.error("walsh_metadata: %s", self.refusal)
            fail_command()
            return
        too_long = []
        for visit in self.visits.values():
            for step in next(visit.walk):
                if (answer := self._too_long(step)) is not None:
                    too_long.append((visit, step, answer))
                    continue
                self._waiting.setdefault(canonical_url(step.url), []).append((visit, step))
        for group in list(self._waiting.values()):
            sources = [visit.source for visit, _ in group]
            also = [url for source in sources for url in _urls_of(source)]
            indexes = [source.sitemap for source in sources if source.children]
            yield self._request(
                *group[0],
                walsh_also=list(dict.fromkeys(also)),
                walsh_children=indexes,
                walsh_revisit=sources[0].revisit,
            )
        for visit, step, answer in too_long:
            for request in self._go_on(visit, step, answer):
                yield request

    def _too_long(self, step: Step) -> Answer | None:
        """The answer to *step* if Scrapy would drop its request; None if it would not."""
        limit = self.settings.getint("URLLENGTH_LIMIT")
        if not 0 < limit < len(step.url):
            return None
        why = f"{len(step.url)} characters, and URLLENGTH_LIMIT is {limit}: raise it"
        return Answer(None, "", f"{step.kind}: its URL has {why}")

    def _idle(self) -> None:
        # Closing from within `start` would cancel it, which 2.13 reports with a traceback.
        if self.refusal is not None:
            raise CloseSpider("sources_invalid")

    def _request(self, visit: _Visit, step: Step, **declared: Any) -> Request:
        """The request for *step*; *declared*: for its meta, what it declares besides."""
        source = visit.source
        meta = {"walsh_source": key_of(source.first), "download_maxsize": max_body(step)}
        meta["referrer_policy"] = "no-referrer"  # no page has led to it: the operator has
        declared[TRY_HTTPS] = _may_use_http(source, step)
        meta |= {key: given for key, given in declared.items() if given}
        return Request(
            step.url,
            callback=self.answered,
            errback=self.not_answered,
            headers={"Accept": step.accept},
            meta=meta,
            cb_kwargs={"key": canonical_url(step.url)},
            dont_filter=True,  # `_waiting` and `_answers` see to it that a URL is sent once
        )

    # --- answers ------------------------------------------------------------------------------

    async def answered(self, response: Response, key: str) -> Iterable[Request | MetadataItem]:
        """Callback of every request of this spider."""
        if key not in self._waiting:
            return ()
        # A source that comes to need this URL while the answer is read joins those that wait.
        visit, step = self._waiting[key][0]
        answer = await from_response(step, response)
        if not self._may_go_on(visit.source, step):
            answer = without_stand_in(step, answer)
        if response.request is not None:
            answer = replace(answer, said=self._crawl.tickets.of(response.request).said)
        if answer.fault:
            self._crawl.recorder.own_fault(answer.fault)
        if answer.forget and response.request is not None:
            self._crawl.delivery.forget(response.request)
        return self.handover.noted(response, self._deliver(key, answer))

    def not_answered(self, failure: Failure) -> Iterator[Request | MetadataItem]:
        """Errback of every request of this spider: refusals, 304, other statuses, failures."""
        request: Request = failure.request  # type: ignore[attr-defined]
        key = request.cb_kwargs["key"]
        if key in self._waiting and failure.value is not None:
            answer = from_failure(self._waiting[key][0][1], failure.value)
            if answer.unreachable:
                for visit, step in self._waiting[key]:
                    if _may_use_http(visit.source, step):  # an answer there counts for it (R8)
                        hop = key_of(_http(step.url))
                        self._crawl.sources.hop(hop, self._crawl.tickets.of(request))
            if answer.outcome == report.NOT_MODIFIED:
                answer = replace(answer, moved_to=moved_for_good(request))
            if answer.forget:
                self._crawl.delivery.forget(request)
            yield from self._deliver(key, answer)

    def _deliver(self, key: str, answer: Answer) -> Iterator[Request | MetadataItem]:
        """Send *answer* to those that wait for it; what follows."""
        waiting = self._waiting.pop(key)
        # Items go to the first source that waited; the others would only repeat them.
        self._answers[key] = shared = replace(
            answer,
            links=replace(answer.links, entries=()),
            reason=f"{answer.reason}; as for {waiting[0][0].source.name}".strip("; "),
        )
        for visit, step in waiting:
            yield from self._go_on(visit, step, answer)
            yield from self._items(visit.row, answer)
            answer = shared

    def _go_on(self, visit: _Visit, step: Step, answer: Answer) -> Iterator[Request]:
        """Send *answer*, to *step*, to the walk of *visit*; the requests for what it needs now."""
        answers = [(step, answer)]
        while answers:
            try:
                steps = visit.walk.send(answers.pop(0))
            except StopIteration:
                return
            for needed in steps:
                key = canonical_url(needed.url)
                known = self._answers.get(key) or self._too_long(needed)
                if known is not None:
                    answers.append((needed, known))
                elif key in self._waiting:
                    self._waiting[key].append((visit, needed))
                else:
                    self._waiting[key] = [(visit, needed)]
                    yield self._request(visit, needed)

    def _walk(self, visit: _Visit) -> _Walk:
        """Take the steps of the source, as far as they are needed, and end its *visit*."""
        source, row = visit.source, visit.row
        steps = [*plan(source.url, source.feed, source.sitemap)]
        declared, moved_to = steps[0].kind, None
        requested = [source.sitemap]
        failed: bool | None = None  # of its feed, sitemap or page; None before one was answered
        while True:
            step, answer = yield (steps.pop(0),)
            if answer.unreachable and _may_use_http(source, step):
                steps = [*plan(_http(source.url), None)]
                continue
            not_sent = answer.outcome in (readings.REFUSED, NOT_DUE)
            if step.kind == "llms" and failed is False and not_sent:
                # The page was of no use, and that is the outcome; the reason names the refusal.
                answer = replace(answer, outcome=None, requirement="", refusal=None)
            answer = self._unless_lost(source, answer)
            row.reason = "; ".join(filter(None, (row.reason, answer.reason)))
            if step.kind == declared:
                moved_to = _moved(step, answer)
            row.suggested_feeds += [u for u in answer.suggested_feeds if u != source.feed]
            if step.kind != "llms" or failed is None:
                failed = answer.failed
            if urls := self._children(visit, answer):
                requested += urls
                index = yield from self._of_index(visit, urls)
                answer = self._unless_lost(source, index)
                row.reason += f"; {answer.reason}" if answer is not index else ""
            if answer.outcome is not None or not steps or not self._may_go_on(source, step):
                break
        named = self._crawl.documents.sitemaps(step.url)
        row.suggested_sitemaps += [each for each in named if each not in requested]
        self._end(visit, step, replace(answer, failed=bool(failed)), moved_to)

    def _end(self, visit: _Visit, step: Step, answer: Answer, moved_to: str | None) -> None:
        """End the *visit* by *answer*, to its last *step*.

        *moved_to*: where the document that was declared has moved for good.
        """
        source, row = visit.source, visit.row
        row.outcome = answer.ending
        row.requirement = answer.requirement or ("R9" if row.outcome == readings.LEFT_OUT else "")
        visit.due = answer.due
        row.moved_to = moved_to
        if row.outcome not in report.READ:
            self._tell(visit, row.outcome, answer.refusal, moved_to=moved_to)
            return
        declared = plan(source.url, source.feed, source.sitemap)[0].kind
        if step.kind != declared and declared in _DOCUMENTS:
            self._say_stand_in(source, declared, row)
        is_document = step.kind in _DOCUMENTS and row.outcome != report.NEGOTIATED
        self._tell(
            visit,
            readings.READ,
            moved_to=moved_to,
            read_as=step.kind if is_document else None,
            entries=answer.entries,
            ends_early=answer.links.ends_early,
        )

    def _may_go_on(self, source: Source, step: Step) -> bool:
        """Whether the next step is taken where *step* was of no use (R9)."""
        if step.kind not in _DOCUMENTS:
            return True
        return readings.has_stand_in(self._crawl.sources.reading(source.first), step.kind)

    def _unless_lost(self, source: Source, answer: Answer) -> Answer:
        return unless_lost(answer, self._crawl.sources.reading(source.first))

    def _say_stand_in(self, source: Source, declared: str, row: Row) -> None:
        """Log, in the first run only, that something else is read in the place of *declared*."""
        before = self._crawl.sources.reading(source.first)
        if before is None or not before.read:
            self.logger.warning(
                "%s: its %s was never read; %s stands in for it until it is: %s",
                source.first,
                declared,
                row.outcome,
                row.reason,
            )

    # -- sitemap indexes ---------------------------------------------------------------------

    def _children(self, visit: _Visit, answer: Answer) -> list[str]:
        """The sitemaps that an index lists and its source wants requested (R6)."""
        listed, source, row = answer.links.children, visit.source, visit.row
        if not listed or source.sitemap is None:
            return []
        if not source.children:
            row.reason += "; children = true would request them"
            return []
        declared = [self._crawl.intake.declare_child(url, source.sitemap) for url in listed]
        urls = list(dict.fromkeys(filter(None, declared)))
        if left := len(listed) - len(urls):
            why = f"of another host, or beyond the first {MAX_CHILDREN}"
            row.reason += f"; {left} of them not requested: {why}"
        return urls

    def _of_index(
        self, visit: _Visit, urls: list[str]
    ) -> Generator[Sequence[Step], tuple[Step, Answer], Answer]:
        """Take the sitemaps *urls* of an index; the best of their answers is its own."""
        steps: list[Step] = [*map(sitemap_step, urls)]
        ended: list[Answer] = []
        while len(ended) < len(urls):
            step, answer = yield steps
            steps = []
            reason = f"{step.url}: {answer.reason}"
            ended.append(replace(answer, outcome=answer.ending, links=Links(()), reason=reason))
        counts = [each.entries for each in ended if each.outcome in report.READ]
        entries = None if None in counts else sum(filter(None, counts))
        lost = [each for each in ended if each.outcome not in report.READ]
        visit.row.reason += f"; {len(ended) - len(lost)} of {plural(len(ended), 'sitemap')} read"
        visit.row.reason += f" ({lost[0].reason})" if lost else ""
        best = min(ended, key=lambda each: (each in lost, each.outcome == report.NOT_MODIFIED))
        return best if best in lost else replace(best, entries=entries)

    def _items(self, row: Row, answer: Answer) -> Iterator[MetadataItem]:
        fetched_at = iso(time.time())
        for entry in answer.links.entries:
            key = canonical_url(entry.url)
            if key in self._seen:
                continue
            self._seen.add(key)
            if self.handover.known(key):
                row.known += 1
                if not self.all_items:
                    continue
            else:
                row.new += 1
            row.items += 1
            yield MetadataItem(
                source=row.source,
                title=entry.title,
                url=entry.url,
                published=entry.published,
                via=answer.via,
                canonical_url=key,
                fetched_at=fetched_at,
                usage=as_member(answer.said),
            )

    def _tell(
        self, visit: _Visit, outcome: str, refusal: Verdict | None = None, **heard: Any
    ) -> None:
        """Report what became of a source, under the URL of its first request.

        *heard*: other fields of ``Result``.
        """
        row = visit.row
        if refusal is None:
            reason = f"{row.requirement} {row.reason}".strip()
            cause = readings.cause_of(row.requirement)
        else:
            reason = readings.refusal_line(refusal)
            cause = readings.cause_of(refusal.requirement, refusal.name)
        learned = readings.Result(outcome, reason, cause=cause, **heard)
        self._crawl.sources.report(visit.source.first, learned)

    # --- the report ---------------------------------------------------------------------------

    def _row_of(self, request: Request) -> Row | None:
        visit = self.visits.get(request.meta.get("walsh_source", ""))
        return None if visit is None else visit.row

    def _count_request(self, request: Request) -> None:
        if row := self._row_of(request):
            row.requests += 1
        else:
            self.documents += 1

    def _count_bytes(self, data: bytes, request: Request) -> None:
        if row := self._row_of(request):
            row.bytes += len(data)

    def closed(self, reason: str) -> None:
        """Writes the source report to the log, and to ``-a report=FILE``."""
        rows = [visit.row for visit in self.visits.values()]
        moves = [(row.url, row.moved_to) for row in rows if row.moved_to]
        doubtful = readings.moved_together(moves)
        for row in rows:
            row.suggested_feeds = [url for url in row.suggested_feeds if url not in doubtful]
            if row.moved_to in doubtful:
                row.moved_to = None
        for visit in self.visits.values():
            row = visit.row
            if row.outcome is None:
                self._tell(visit, readings.NOT_REQUESTED)
                row.outcome = readings.NOT_REQUESTED
                row.reason = f"the crawl ended before its next request ({reason})"
            row.next_due = self._next_due(visit)
        if rows:
            for line in report.as_lines(rows):
                self.logger.info("%s", line)
        if self.report_path:
            problems = [*self.problems, *filter(None, [self.refusal])]
            try:
                report.write(report.as_document(rows, problems, self.documents), self.report_path)
            except SourcesInvalid as error:
                self.logger.error("walsh_metadata: %s", error)
                fail_command()

    def _next_due(self, visit: _Visit) -> str | None:
        source, now = visit.source, self._crawl.wall()
        urls = [source.first, *([_http(source.url)] if source.bare_host else [])]
        found = [visit.due, *map(self._crawl.sources.next_due, urls)]
        due = max((moment for moment in found if moment and moment > now), default=None)
        return None if due is None else iso(math.ceil(due))


def _http(url: str) -> str:
    return "http" + url.removeprefix("https")


def _moved(step: Step, answer: Answer) -> str | None:
    """Where what was declared has moved for good, if it was read there in that format."""
    if step.kind in _DOCUMENTS and answer.outcome == report.NEGOTIATED:
        return None
    is_index = answer.links.children is not None
    return answer.moved_to if is_index or answer.outcome in report.READ else None


def _may_use_http(source: Source, step: Step) -> bool:
    return source.bare_host and step.kind == "page" and step.url == source.url


def _urls_of(source: Source) -> Iterator[str]:
    yield from (step.url for step in plan(source.url, source.feed, source.sitemap))
    if source.bare_host:
        yield from (step.url for step in plan(_http(source.url), None))
