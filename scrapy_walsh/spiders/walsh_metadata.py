"""R9: the main spider: metadata of declared sources, by feed, sitemap, markdown or llms.txt.

Each source has up to four steps, in R9's order, for example its feed and then its page. The next
step is taken only if an answer is of no use. A *walk* takes them: for each source a generator
yields the steps that it needs, and gets their answers one at a time. Sources with the same URL
share one request, and wait for its answer. The first request of a source declares all URLs that the
source may need (R6). If a source asks for them, the sitemaps of an index are steps, too.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from scrapy import Request, Spider, signals
from scrapy.exceptions import CloseSpider

from scrapy_walsh.adapters.compat import fail_command
from scrapy_walsh.adapters.sources import moved_for_good, warn_too_long
from scrapy_walsh.adapters.ticket import TRY_HTTPS
from scrapy_walsh.exceptions import SourcesInvalid
from scrapy_walsh.policy import readings
from scrapy_walsh.policy.formats.representation import Step, plan, sitemap_step
from scrapy_walsh.policy.formats.text import Links
from scrapy_walsh.policy.robots.usage import as_member, of_feed, refused_use
from scrapy_walsh.policy.scope import MAX_CHILDREN
from scrapy_walsh.policy.times import iso
from scrapy_walsh.policy.urls import canonical_url, key_of
from scrapy_walsh.policy.verdict import NOT_DUE
from scrapy_walsh.policy.visits import as_written
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
from scrapy_walsh.sources.report import ReportRow, check_writable
from scrapy_walsh.sources.sources import Source, parse_urls, read_sources

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from scrapy.settings import BaseSettings
    from twisted.python.failure import Failure

    from scrapy_walsh.adapters.crawl import Crawl
    from scrapy_walsh.policy.verdict import Verdict

#: Octets of answers that may wait to be parsed while requests go on. Scrapy's own limit is less
#: than one large answer, so that answer would stop all requests until it is parsed.
_WAITING_OCTETS: Final = 8 * MAX_BODY
#: The documents that a source may declare beside its page.
_DOCUMENTS: Final = (readings.FEED, readings.SITEMAP)
#: Yields the steps to take now, perhaps none. Then it gets one of these steps with its answer.
_Steps = Generator[Sequence[Step], tuple[Step, Answer], None]


@dataclass(slots=True)
class _Walk:
    """The walk of a source through its steps, and its row of the report.

    ``due``: Unix seconds, if the source was deferred.
    """

    source: Source
    row: ReportRow
    steps: _Steps = field(init=False)
    due: float | None = None


class WalshMetadataSpider(Spider):
    """Requests each declared source in the most structured format that it offers, in R9's order.

    ``-a sources=FILE`` (.toml, .jsonl, .opml, .txt) or ``-a urls="URL URL"``; ``-a report=FILE``
    writes the source report as JSON; ``-a all_items=1`` yields items of earlier runs again.
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
        #: None as well if it cannot be written: then the run ends with that refusal.
        self.report_path: str | None = None
        self.all_items = all_items == "1"
        self.refusal: str | None = None
        self.problems: list[str] = []
        #: By R8's key of the source's first request.
        self.walks: dict[str, _Walk] = {}
        #: Number of requests for documents.
        self.documents = 0
        #: By canonical URL, the walks that wait for its answer, each with its step.
        self._waiting: dict[str, list[tuple[_Walk, Step]]] = {}
        #: By canonical URL, its answer without items.
        self._answers: dict[str, Answer] = {}
        #: The canonical URLs of the items of this run.
        self._seen: set[str] = set()
        try:
            if report:
                check_writable(report)
                self.report_path = report
            if all_items not in ("0", "1"):
                wrong = f"-a all_items={all_items}: write all_items=1, or leave it out"
                raise SourcesInvalid(wrong)
            self._declare(sources, urls)
        except SourcesInvalid as error:
            self.refusal = str(error)

    @classmethod
    def update_settings(cls, settings: BaseSettings) -> None:
        """Scrapy's hook: raise SCRAPER_SLOT_MAX_ACTIVE_SIZE if it is lower than we need."""
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
            children = any(walk.source.children for walk in self.walks.values())
            if children and crawl.config.is_walsh_research:
                self._refuse("children = true: walsh-research follows no links of a sitemap (R6)")
        else:  # a platform's job settings may remove the add-on, and then no rule would hold
            self._refuse("scrapy_walsh is not installed here: set ADDONS, see docs/install.md")

    def _refuse(self, reason: str) -> None:
        """Request nothing, and log the *reason* at the start."""
        self.refusal = self.refusal or reason
        self.walks.clear()

    def _declare(self, sources: str | None, urls: str | None) -> None:
        if bool(sources) == bool(urls):
            raise SourcesInvalid('give either -a sources=FILE or -a urls="URL URL"')
        declared, self.problems = read_sources(sources) if sources else parse_urls(urls or "")
        if not declared:
            count = len(self.problems)
            raise SourcesInvalid(f"no usable source ({count} unusable); correct the list")
        for source in declared:
            walk = _Walk(source, ReportRow(source.name, source.url))
            walk.steps = self._steps(walk)
            self.walks[key_of(source.first)] = walk

    async def start(self) -> AsyncIterator[Any]:
        """One request for each first step; ``walsh_also`` declares what may follow it."""
        for problem in self.problems:
            self.logger.warning("%s", problem)
        if self.refusal is not None:
            self.logger.error("walsh_metadata: %s", self.refusal)
            fail_command()
            return
        too_long = []
        for walk in self.walks.values():
            for step in next(walk.steps):
                answer = self._too_long(walk, step)
                if answer is not None:
                    too_long.append((walk, step, answer))
                    continue
                self._waiting.setdefault(canonical_url(step.url), []).append((walk, step))
        for group in list(self._waiting.values()):
            sources = [walk.source for walk, _ in group]
            also = [url for source in sources for url in _urls_of(source)]
            indexes = [source.sitemap for source in sources if source.children]
            yield self._request(
                *group[0],
                walsh_also=list(dict.fromkeys(also)),
                walsh_children=indexes,
                walsh_revisit=as_written(sources[0].revisit),
            )
        for walk, step, answer in too_long:
            for request in self._go_on(walk, step, answer):
                yield request

    def _too_long(self, walk: _Walk, step: Step) -> Answer | None:
        """The answer to *step* if Scrapy would drop its request; None if it would not."""
        limit = self.settings.getint("URLLENGTH_LIMIT")
        if not 0 < limit < len(step.url):
            return None
        reading = self._crawl.sources.reading(walk.source.first)
        reason = warn_too_long(step.url, limit, reading)
        return Answer(None, "", f"{step.kind}: {reason}")

    def _idle(self) -> None:
        # If we closed the spider within `start`, 2.13 would cancel that with a traceback.
        if self.refusal is not None:
            raise CloseSpider("sources_invalid")

    def _request(self, walk: _Walk, step: Step, **declarations: Any) -> Request:
        """The request for *step*; *declarations*: other URLs that its meta declares."""
        source = walk.source
        meta = {"walsh_source": key_of(source.first), "download_maxsize": max_body(step)}
        meta["referrer_policy"] = "no-referrer"  # the operator named it, and no page led to it
        declarations[TRY_HTTPS] = _may_use_http(source, step)
        meta |= {key: value for key, value in declarations.items() if value}
        return Request(
            step.url,
            callback=self.answered,
            errback=self.not_answered,
            headers={"Accept": step.accept},
            meta=meta,
            cb_kwargs={"key": canonical_url(step.url)},
            dont_filter=True,  # `_waiting` and `_answers` filter duplicates
        )

    # --- answers ------------------------------------------------------------------------------

    async def answered(self, response: Response, key: str) -> Iterable[Request | MetadataItem]:
        """Callback of every request of this spider."""
        if key not in self._waiting:
            return ()
        # While the answer is parsed, other walks may join those that wait for this URL.
        walk, step = self._waiting[key][0]
        answer = await from_response(step, response)
        if not self._may_go_on(walk.source, step):
            answer = without_stand_in(step, answer)
        if response.request is not None:
            of_all = of_feed(answer.links.terms, answer.url)
            said = (*self._crawl.tickets.of(response.request).said, *of_all)
            answer = replace(answer, said=said)
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
                for walk, step in self._waiting[key]:
                    if _may_use_http(walk.source, step):  # an answer there counts for it (R8)
                        hop = key_of(_http(step.url))
                        self._crawl.sources.hop(hop, self._crawl.tickets.of(request))
            if answer.outcome == report.NOT_MODIFIED:
                answer = replace(answer, moved_to=moved_for_good(request))
            if answer.forget:
                self._crawl.delivery.forget(request)
            yield from self._deliver(key, answer)

    def _deliver(self, key: str, answer: Answer) -> Iterator[Request | MetadataItem]:
        """Give *answer* to the walks that wait for it, and yield their requests and items."""
        waiting = self._waiting.pop(key)
        # Items go to the first source that waited; the others would only repeat them.
        shared = replace(
            answer,
            links=replace(answer.links, entries=()),
            reason=f"{answer.reason}; as for {waiting[0][0].source.name}".strip("; "),
        )
        self._answers[key] = shared
        for walk, step in waiting:
            yield from self._go_on(walk, step, answer)
            yield from self._items(walk.row, answer)
            answer = shared

    def _go_on(self, walk: _Walk, step: Step, answer: Answer) -> Iterator[Request]:
        """Give *walk* the *answer* to its *step*, and yield the requests that it needs now."""
        answers = [(step, answer)]
        while answers:
            try:
                next_steps = walk.steps.send(answers.pop(0))
            except StopIteration:
                return
            for next_step in next_steps:
                key = canonical_url(next_step.url)
                next_answer = self._answers.get(key) or self._too_long(walk, next_step)
                if next_answer is not None:
                    answers.append((next_step, next_answer))
                elif key in self._waiting:
                    self._waiting[key].append((walk, next_step))
                else:
                    self._waiting[key] = [(walk, next_step)]
                    yield self._request(walk, next_step)

    def _steps(self, walk: _Walk) -> _Steps:
        """Take the steps of a source, as far as they are needed, and end its *walk*."""
        source = walk.source
        row = walk.row
        steps = [*plan(source.url, source.feed, source.sitemap)]
        declared = steps[0].kind
        moved_to = None
        requested = [source.sitemap]
        failed: bool | None = None  # of its feed, sitemap or page; None before the first answer
        while True:
            step, answer = yield (steps.pop(0),)
            if answer.unreachable and _may_use_http(source, step):
                steps = [*plan(_http(source.url), None)]
                continue
            not_sent = answer.outcome in (readings.REFUSED, NOT_DUE)
            if step.kind == "llms" and failed is False and not_sent:
                # The outcome is that the page was of no use. The reason names this refusal.
                answer = replace(answer, outcome=None, requirement="", refusal=None)
            answer = self._unless_lost(source, answer)
            row.reason = "; ".join(filter(None, (row.reason, answer.reason)))
            if step.kind == declared:
                moved_to = _moved(step, answer)
            row.suggested_feeds += [url for url in answer.suggested_feeds if url != source.feed]
            if step.kind != "llms":
                row.only_html = answer.is_html and (failed is None or row.only_html)
            if step.kind != "llms" or failed is None:
                failed = answer.failed
            urls = self._children(walk, answer)
            if urls:
                requested += urls
                index = yield from self._of_index(walk, urls)
                answer = self._unless_lost(source, index)
                if answer is not index:
                    row.reason += f"; {answer.reason}"
            if answer.outcome is not None or not steps or not self._may_go_on(source, step):
                break
        sitemaps = self._crawl.documents.sitemaps(step.url)
        row.suggested_sitemaps += [url for url in sitemaps if url not in requested]
        self._end(walk, step, replace(answer, failed=bool(failed)), moved_to)

    def _end(self, walk: _Walk, step: Step, answer: Answer, moved_to: str | None) -> None:
        """End *walk* by the *answer* to its last *step*.

        *moved_to*: the new URL of the declared document, if it has moved for good.
        """
        source = walk.source
        row = walk.row
        row.outcome = answer.ending
        row.requirement = answer.requirement or ("R9" if row.outcome == readings.LEFT_OUT else "")
        walk.due = answer.due
        row.moved_to = moved_to
        if row.outcome not in report.READ:
            self._report(walk, row.outcome, answer.refusal, moved_to=moved_to)
            return
        declared = plan(source.url, source.feed, source.sitemap)[0].kind
        if step.kind != declared and declared in _DOCUMENTS:
            self._warn_of_stand_in(source, declared, row)
        is_document = step.kind in _DOCUMENTS and row.outcome != report.NEGOTIATED
        self._report(
            walk,
            readings.READ,
            moved_to=moved_to,
            read_as=step.kind if is_document else None,
            entries=answer.entries,
            ends_early=answer.links.ends_early,
        )

    def _may_go_on(self, source: Source, step: Step) -> bool:
        """Whether the next step is taken if *step* was of no use (R9)."""
        if step.kind not in _DOCUMENTS:
            return True
        return readings.has_stand_in(self._crawl.sources.reading(source.first), step.kind)

    def _unless_lost(self, source: Source, answer: Answer) -> Answer:
        return unless_lost(answer, self._crawl.sources.reading(source.first))

    def _warn_of_stand_in(self, source: Source, declared: str, row: ReportRow) -> None:
        """Log in the first run that we read something else in place of the *declared* document."""
        reading = self._crawl.sources.reading(source.first)
        if reading is None or not reading.read:
            self.logger.warning(
                "%s: its %s was never read; %s stands in for it until it is: %s",
                source.first,
                declared,
                report.label(row.outcome or "").removeprefix("read: "),
                row.reason,
            )

    # -- sitemap indexes ---------------------------------------------------------------------

    def _children(self, walk: _Walk, answer: Answer) -> list[str]:
        """The sitemaps of an index that are requested, because its source wants them (R6)."""
        children = answer.links.children
        source = walk.source
        row = walk.row
        if not children or source.sitemap is None:
            return []
        if not source.children:
            row.reason += "; children = true would request them"
            return []
        declared = [self._crawl.intake.declare_child(url, source.sitemap) for url in children]
        urls = list(dict.fromkeys(filter(None, declared)))
        skipped = len(children) - len(urls)
        if skipped:
            reason = f"of another host, or beyond the first {MAX_CHILDREN}"
            row.reason += f"; {skipped} of them not requested: {reason}"
        return urls

    def _of_index(
        self, walk: _Walk, urls: list[str]
    ) -> Generator[Sequence[Step], tuple[Step, Answer], Answer]:
        """Take the sitemaps *urls* of an index. The best of their answers is the index's own."""
        steps: list[Step] = [*map(sitemap_step, urls)]
        answers: list[Answer] = []
        while len(answers) < len(urls):
            step, answer = yield steps
            steps = []
            reason = f"{step.url}: {answer.reason}"
            answers.append(replace(answer, outcome=answer.ending, links=Links(()), reason=reason))
        usable = [answer for answer in answers if answer.outcome in report.READ]
        unusable = [answer for answer in answers if answer.outcome not in report.READ]
        walk.row.reason += f"; {len(usable)} of {plural(len(answers), 'sitemap')} read"
        if unusable:
            walk.row.reason += f" ({unusable[0].reason})"
        if not usable:
            return unusable[0]
        best = min(usable, key=lambda answer: answer.outcome == report.NOT_MODIFIED)
        counts = [answer.entries for answer in usable]
        entries = None if None in counts else sum(filter(None, counts))
        return replace(best, entries=entries)

    def _items(self, row: ReportRow, answer: Answer) -> Iterator[MetadataItem]:
        fetched_at = iso(time.time())
        withheld: Counter[str] = Counter()
        for entry in answer.links.entries:
            said = (*answer.said, *of_feed(entry.terms, answer.url))
            refused = refused_use(said, self._crawl.gates.refused_uses)
            if refused:
                statement, use = refused
                reason = f"{statement.field} in {statement.document}, and WALSH_USAGE refuses {use}"
                withheld[reason] += 1
                continue
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
                usage=as_member(said),
            )
        for reason, count in withheld.items():
            line = f"{plural(count, 'link')} withheld: {reason}"
            row.reason = "; ".join(filter(None, (row.reason, line)))
            self.logger.info("%s: %s", row.source, line)

    def _report(
        self, walk: _Walk, outcome: str, refusal: Verdict | None = None, **fields: Any
    ) -> None:
        """Report the *outcome* of a source, by the URL of its first request.

        *fields*: other fields of the ``Result``.
        """
        row = walk.row
        if refusal is None:
            reason = f"{row.requirement} {row.reason}".strip()
            cause = readings.cause_of(row.requirement)
        else:
            reason = readings.refusal_line(refusal)
            cause = readings.cause_of(refusal.requirement, refusal.name)
        result = readings.Result(outcome, reason, cause=cause, **fields)
        self._crawl.sources.report(walk.source.first, result)

    # --- the report ---------------------------------------------------------------------------

    def _row_of(self, request: Request) -> ReportRow | None:
        walk = self.walks.get(request.meta.get("walsh_source", ""))
        return None if walk is None else walk.row

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
        rows = [walk.row for walk in self.walks.values()]
        moves = [(row.url, row.moved_to) for row in rows if row.moved_to]
        doubtful = readings.moved_together(moves)
        for row in rows:
            row.suggested_feeds = [url for url in row.suggested_feeds if url not in doubtful]
            if row.moved_to in doubtful:
                row.moved_to = None
        for walk in self.walks.values():
            row = walk.row
            if row.outcome is None:
                self._report(walk, readings.NOT_REQUESTED)
                row.outcome = readings.NOT_REQUESTED
                row.reason = f"the crawl ended before its next request ({reason})"
            row.next_due = self._next_due(walk)
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

    def _next_due(self, walk: _Walk) -> str | None:
        """When a later run may request the source, ISO 8601 in UTC; None for the next run."""
        source = walk.source
        now = self._crawl.wall()
        urls = [source.first]
        if source.bare_host:
            urls.append(_http(source.url))
        times = [walk.due, *map(self._crawl.sources.next_due, urls)]
        due = max((moment for moment in times if moment and moment > now), default=None)
        return None if due is None else iso(math.ceil(due))


def _http(url: str) -> str:
    return "http" + url.removeprefix("https")


def _moved(step: Step, answer: Answer) -> str | None:
    """The new URL of the declared document, if it has moved for good and was read there."""
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
