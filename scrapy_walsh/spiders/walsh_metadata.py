"""R9: the main spider: metadata of declared sources, by feed, sitemap, markdown or llms.txt.

Each source has up to four steps, in R9's order; the next one is taken only where an answer is of
no use. Sources that share a URL share one request: those that need it wait for its answer, and all
URLs that a source may need are declared with its first request (R6). Where a source says so, the
sitemaps of a sitemap index become visits of their own, whose ``parent`` is the visit of the index;
that ends when all of them have ended.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from scrapy import Request, Spider, signals
from scrapy.exceptions import CloseSpider

from scrapy_walsh.adapters.compat import fail_command
from scrapy_walsh.adapters.outcomes import GaveUp
from scrapy_walsh.adapters.progress import Counts, Progress
from scrapy_walsh.adapters.retries import TRY_HTTPS
from scrapy_walsh.exceptions import SourcesInvalid
from scrapy_walsh.policy import readings
from scrapy_walsh.policy.formats.feeds import Links
from scrapy_walsh.policy.formats.representation import Step, plan, sitemap_step
from scrapy_walsh.policy.robots.usage import as_member
from scrapy_walsh.policy.scope import MAX_CHILDREN
from scrapy_walsh.policy.times import iso, utc_iso
from scrapy_walsh.policy.urls import canonical_url
from scrapy_walsh.policy.words import plural
from scrapy_walsh.sources import report
from scrapy_walsh.sources.answers import MAX_BODY, Answer, from_failure, from_response, max_body
from scrapy_walsh.sources.handover import Handover
from scrapy_walsh.sources.items import MetadataItem
from scrapy_walsh.sources.report import Row
from scrapy_walsh.sources.sources import Source, parse_urls, read_sources

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator

    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from scrapy.settings import BaseSettings
    from twisted.python.failure import Failure

    from scrapy_walsh.adapters.crawl import Crawl

#: Items made in one step of the event loop.
_AT_ONCE: Final = 100
#: Octets of answers that may wait to be read while requests go on. Scrapy's own limit is less than
#: one large answer, which would then stop all requests until it is read.
_WAITING_OCTETS: Final = 8 * MAX_BODY
_ARGUMENTS: Final = "there are sources, urls, report and all_items"


@dataclass(slots=True)
class _Visit:
    """A source under way: the steps still to take, and its row of the report.

    ``failed``: of its page or feed, None before one was answered. ``due``: Unix seconds. Of a
    sitemap index: ``children``, the number of its sitemaps that are requested; ``ended``, the
    answers to them so far. ``parent``: the visit of the index, of one of these sitemaps.
    """

    number: int
    source: Source
    steps: list[Step]
    row: Row
    failed: bool | None = None
    due: float | None = None
    children: int = 0
    ended: list[Answer] = field(default_factory=list)
    parent: _Visit | None = None


#: What an index is called by the outcomes of its sitemaps: the first of these that one of them has.
_BEST: Final = (
    report.SITEMAP, report.FED, report.NOT_MODIFIED, report.DEFERRED, report.REFUSED,
    report.FAILED, report.LEFT_OUT, report.NOT_DUE,
)  # fmt: skip


class WalshMetadataSpider(Spider):
    """Requests each declared source in the most structured format that it offers, in R9's order.

    ``-a sources=FILE`` (.toml, .jsonl, .opml, .txt) or ``-a urls="URL URL"``; ``-a report=FILE``
    writes the source report as JSON; ``-a all_items=1`` yields those of earlier runs again.
    Yields :class:`MetadataItem`.
    """

    name = "walsh_metadata"

    def __init__(
        self,
        sources: str | None = None,
        urls: str | None = None,
        report: str | None = None,
        all_items: str = "0",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.report_path: str | None = None
        self.all_items = False
        self.handover: Handover | None = None
        self.refusal: str | None = None
        #: What a runner adds (scrapyd: ``_job``) begins with an underscore.
        self.unknown = sorted(name for name in kwargs if not name.startswith("_"))
        self.problems: list[str] = []
        self.visits: list[_Visit] = []
        self.documents = 0
        self.progress: Progress | None = None
        # By canonical URL: the sources that wait for its answer, and what the answer was.
        self._waiting: dict[str, list[_Visit]] = {}
        self._answers: dict[str, Answer] = {}
        self._seen: set[str] = set()
        try:
            self.report_path = _writable(report)
            self.all_items = _flag("all_items", all_items)
            self._declare(*_declared(sources, urls))
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
        spider.handover = Handover(crawler)
        return spider

    def _opened(self) -> None:
        # Job settings of a platform may take the add-on out: then nothing would gate or pace.
        crawl = self._crawl
        if self.refusal is None and crawl is None:
            self.refusal = "scrapy_walsh is not installed here: set ADDONS, see docs/install.md"
        if self.refusal is None and crawl is not None:
            crawl.on_wire.append(self._count_request)
            crawl.readings.by_spider = True
            self.progress = Progress(crawl, self._counts)
            self.progress.start()

    @property
    def _crawl(self) -> Crawl | None:
        return getattr(getattr(self, "crawler", None), "walsh", None)

    def _declare(self, sources: list[Source], problems: list[str]) -> None:
        self.problems = problems
        for number, source in enumerate(sources):
            row = Row(source.name, source.url)
            steps = [*plan(source.url, source.feed, source.sitemap)]
            self.visits.append(_Visit(number, source, steps, row))
        if not sources:
            raise SourcesInvalid(f"no usable source ({len(problems)} unusable); correct the list")

    async def start(self) -> AsyncIterator[Any]:
        """One request for each first step; ``walsh_also`` declares what may follow it."""
        for problem in self.problems:
            self.logger.warning("%s", problem)
        for name in self.unknown:
            self.logger.warning("-a %s is not an argument of walsh_metadata: %s", name, _ARGUMENTS)
        if self.refusal is not None:
            self.logger.error("walsh_metadata: %s", self.refusal)
            fail_command()
            return
        for visit in self.visits:
            self._waiting.setdefault(_key(visit), []).append(visit)
        for group in list(self._waiting.values()):
            also = [url for visit in group for url in _urls_of(visit)]
            indexes = [visit.source.sitemap for visit in group if visit.source.children]
            yield self._request(
                group[0], walsh_also=list(dict.fromkeys(also)), walsh_children=indexes
            )

    def _idle(self) -> None:
        # Closing from within `start` would cancel it, which 2.13 reports with a traceback.
        if self.refusal is not None:
            raise CloseSpider("sources_invalid")

    def _request(self, visit: _Visit, **declared: Any) -> Request:
        """The request for the next step; *declared*: for its meta, what it declares besides."""
        step = visit.steps[0]
        meta: dict[str, Any] = {"walsh_source": visit.number, "download_maxsize": max_body(step)}
        meta |= {key: urls for key, urls in declared.items() if urls}
        if _may_use_http(visit):
            meta[TRY_HTTPS] = True
        return Request(
            step.url,
            callback=self.answered,
            errback=self.not_answered,
            headers={"Accept": step.accept},
            meta=meta,
            cb_kwargs={"key": _key(visit)},
            dont_filter=True,  # `_waiting` and `_answers` see to it that a URL is sent once
        )

    # --- answers ------------------------------------------------------------------------------

    async def answered(self, response: Response, key: str) -> Iterable[Request | MetadataItem]:
        """Callback of every request of this spider."""
        visits = self._waiting.get(key)
        if not visits:
            return ()
        # A source that comes to need this URL while the answer is read joins those that wait.
        answer = await from_response(visits[0].steps[0], response)
        if self._crawl is not None:
            answer = replace(answer, said=self._crawl.documents.said(response.request))
            if answer.fault:
                self._crawl.recorder.own_fault(answer.fault)
        return self._results(response, key, answer)

    def _results(
        self, response: Response, key: str, answer: Answer
    ) -> Iterator[Request | MetadataItem]:
        """Items and requests from *answer*, some at a time: it may have a hundred thousand."""
        results = self._deliver(key, self._waiting.pop(key), answer)
        handover = self.handover
        if handover is None:
            yield from results
            return
        if answer.forget and response.request is not None:
            handover.forget(response.request)
        kept = []  # the handover knows items by their identity, so all of them live till the end
        while some := list(islice(results, _AT_ONCE)):
            items = [result for result in some if isinstance(result, MetadataItem)]
            handover.expect(response, items, last=False)
            kept += items
            yield from some
        handover.expect(response, (), last=True)

    def not_answered(self, failure: Failure) -> Iterator[Request | MetadataItem]:
        """Errback of every request of this spider: refusals, 304, other statuses, failures."""
        request: Request = failure.request  # type: ignore[attr-defined]
        key = request.cb_kwargs["key"]
        error = failure.value
        visits = self._waiting.pop(key, [])
        if error is None or not visits:
            return
        if isinstance(error, GaveUp) and error.status is None:
            bare = [visit for visit in visits if _may_use_http(visit)]
            visits = [visit for visit in visits if visit not in bare]
            yield from self._without_tls(bare, request)
        if visits:
            answer = from_failure(visits[0].steps[0], error)
            if answer.forget and self.handover is not None:
                self.handover.forget(request)
            yield from self._deliver(key, visits, answer)

    def _without_tls(
        self, visits: Iterable[_Visit], request: Request
    ) -> Iterator[Request | MetadataItem]:
        """Request a bare host by http, since it gave no answer by https.

        Its http URL was declared at the start. An answer there counts for the source (R8).
        """
        for visit in visits:
            if self._crawl is not None:
                self._crawl.asked.hop(_http(visit.source.url), request)
            visit.steps = [*plan(_http(visit.source.url), None)]
            yield from self._next(visit)

    def _deliver(
        self, key: str, visits: list[_Visit], answer: Answer
    ) -> Iterator[Request | MetadataItem]:
        # Items go to the first source that waited; the others would only repeat them.
        first = visits[0].source.name
        shared = replace(
            answer,
            links=Links((), children=answer.links.children),
            reason=f"{answer.reason}; as for {first}".strip("; "),
        )
        self._answers[key] = shared
        for visit in visits:
            yield from self._conclude(visit, answer if visit is visits[0] else shared)

    def _next(self, visit: _Visit) -> Iterator[Request | MetadataItem]:
        key = _key(visit)
        if key in self._answers:
            yield from self._conclude(visit, self._answers[key])
        elif key in self._waiting:
            self._waiting[key].append(visit)
        else:
            self._waiting[key] = [visit]
            yield self._request(visit)

    def _conclude(self, visit: _Visit, answer: Answer) -> Iterator[Request | MetadataItem]:
        if visit.parent is not None:
            yield from self._child_ended(visit.parent, visit.steps[0].url, answer)
            return
        step, row = visit.steps.pop(0), visit.row
        if step.kind == "llms" and visit.failed is False and answer.outcome == report.REFUSED:
            # The page was of no use, and that is the outcome; the reason names the refusal.
            answer = replace(answer, outcome=None, requirement="", refusal="")
        row.reason = "; ".join(part for part in (row.reason, answer.reason) if part)
        row.moved_to = row.moved_to or answer.moved_to
        row.suggested_feeds += [u for u in answer.suggested_feeds if u != visit.source.feed]
        visit.due = answer.due
        if step.kind != "llms" or visit.failed is None:
            visit.failed = answer.failed
        if children := self._children(visit, answer):
            for child in children:
                yield from self._next(child)
            return
        if answer.outcome is None and visit.steps:
            yield from self._next(visit)
            return
        outcome = answer.outcome or (report.FAILED if visit.failed else report.LEFT_OUT)
        self._end(visit, outcome, answer, step.url)
        yield from self._items(row, answer)

    def _end(self, visit: _Visit, outcome: str, answer: Answer, url: str) -> None:
        """End *visit* as *outcome*, by *answer*, the last one for it; *url*: of what answered."""
        row = visit.row
        row.outcome = outcome
        row.requirement = answer.requirement or ("R9" if outcome == report.LEFT_OUT else "")
        if self._crawl is not None:
            named = self._crawl.documents.sitemaps(url)
            row.suggested_sitemaps += [each for each in named if each != visit.source.sitemap]
        self._tell(visit, outcome, answer.refusal)

    # -- sitemap indexes ---------------------------------------------------------------------

    def _children(self, visit: _Visit, answer: Answer) -> list[_Visit]:
        """The visits of the sitemaps that an index lists, if its source wants them (R6)."""
        listed, source, crawl = answer.links.children, visit.source, self._crawl
        if not listed or source.sitemap is None or crawl is None:
            return []
        if not source.children:
            visit.row.reason += "; children = true would request them"
            return []
        declared = (crawl.intake.declare_child(url, source.sitemap) for url in listed)
        urls = list(dict.fromkeys(url for url in declared if url is not None))
        if left := len(listed) - len(urls):
            why = f"of another host, or beyond the first {MAX_CHILDREN}"
            visit.row.reason += f"; {left} of them not requested: {why}"
        visit.children = len(urls)
        return [
            _Visit(visit.number, source, [sitemap_step(url)], visit.row, parent=visit)
            for url in urls
        ]

    def _child_ended(
        self, index: _Visit, url: str, answer: Answer
    ) -> Iterator[Request | MetadataItem]:
        """Take the answer of the sitemap *url*; with that of the last one, end its *index*."""
        if answer.outcome is None:
            answer = replace(answer, outcome=report.FAILED if answer.failed else report.LEFT_OUT)
        index.ended.append(replace(answer, links=Links(()), reason=f"{url}: {answer.reason}"))
        yield from self._items(index.row, answer)
        if len(index.ended) == index.children:
            index.row.reason = f"{index.row.reason}; {_account(index.ended)}"
            best = min(index.ended, key=lambda each: _BEST.index(each.outcome or ""))
            index.due = best.due
            self._end(index, best.outcome or "", best, url)

    def _items(self, row: Row, answer: Answer) -> Iterator[MetadataItem]:
        fetched_at = utc_iso(datetime.now(UTC)) or ""
        for entry in answer.links.entries:
            key = canonical_url(entry.url)
            if key in self._seen:
                continue
            self._seen.add(key)
            if self._known(key):
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

    def _tell(self, visit: _Visit, outcome: str, refusal: str = "") -> None:
        """Report what became of a source, under the URL of its first request."""
        if (crawl := self._crawl) is None:
            return
        source, row = visit.source, visit.row
        read = outcome in report.READ
        reason = refusal or f"{row.requirement} {row.reason}".strip()
        crawl.readings.report(source.first, readings.READ if read else outcome, reason)

    def _known(self, key: str) -> bool:
        return self.handover is not None and self.handover.known(key)

    # --- the report ---------------------------------------------------------------------------

    def _row_of(self, request: Request) -> Row | None:
        number = request.meta.get("walsh_source")
        if isinstance(number, int) and 0 <= number < len(self.visits):
            return self.visits[number].row
        return None

    def _count_request(self, request: Request) -> None:
        if row := self._row_of(request):
            row.requests += 1
        else:
            self.documents += 1

    def _count_bytes(self, data: bytes, request: Request) -> None:
        if row := self._row_of(request):
            row.bytes += len(data)

    def _counts(self) -> Counts:
        ended = [visit for visit in self.visits if visit.row.outcome is not None]
        deferred = {_host(visit) for visit in ended if visit.row.outcome == report.DEFERRED}
        return Counts(
            sources=len(self.visits),
            ended=len(ended),
            deferred=len(deferred),
            requests=self.documents + sum(visit.row.requests for visit in self.visits),
            items=sum(visit.row.items for visit in self.visits),
        )

    def closed(self, reason: str) -> None:
        """Writes the source report to the log, and to ``-a report=FILE``."""
        if self.progress is not None:
            self.progress.stop()
        rows = [visit.row for visit in self.visits]
        for visit in self.visits:
            row = visit.row
            if row.outcome is None:
                self._tell(visit, readings.UNANSWERED)
                row.outcome = report.FAILED
                row.reason = f"no answer before the crawl ended ({reason})"
                if visit.children:
                    left = visit.children - len(visit.ended)
                    row.reason = f"{left} of {plural(visit.children, 'sitemap')}: {row.reason}"
            row.next_due = self._next_due(visit)
        if rows:
            for line in report.as_lines(rows):
                self.logger.info("%s", line)
        if self.report_path:
            refusal = [self.refusal] if self.refusal else []
            problems = [*self.problems, *refusal]
            try:
                report.write(report.as_document(rows, problems, self.documents), self.report_path)
            except SourcesInvalid as error:
                self.logger.error("walsh_metadata: %s", error)
                fail_command()

    def _next_due(self, visit: _Visit) -> str | None:
        crawl = self._crawl
        if crawl is None:
            return None
        source, now = visit.source, crawl.wall()
        asked = [source.first, *([_http(source.url)] if source.bare_host else [])]
        found = [visit.due, *(crawl.asked.next_due(url) for url in asked)]
        due = max((moment for moment in found if moment and moment > now), default=None)
        return None if due is None else iso(math.ceil(due))


def _declared(sources: str | None, urls: str | None) -> tuple[list[Source], list[str]]:
    if bool(sources) == bool(urls):
        raise SourcesInvalid('give either -a sources=FILE or -a urls="URL URL"')
    found, problems = read_sources(sources) if sources else parse_urls(urls or "")
    if not found and not problems:
        raise SourcesInvalid(f"{sources or '-a urls'}: no source in it; write at least one")
    return found, problems


def _writable(path: str | None) -> str | None:
    if path:
        report.check_writable(path)
    return path


def _flag(name: str, value: str) -> bool:
    if value not in ("0", "1"):
        raise SourcesInvalid(f"-a {name}={value}: write {name}=1, or leave it out")
    return value == "1"


def _key(visit: _Visit) -> str:
    return canonical_url(visit.steps[0].url)


def _host(visit: _Visit) -> str:
    return urlsplit(visit.source.first).netloc


def _account(ended: list[Answer]) -> str:
    """What became of the sitemaps of an index, and why of the first that was not read."""
    counts = Counter(answer.outcome for answer in ended)
    said = ", ".join(f"{counts[outcome]} {outcome}" for outcome in _BEST if counts[outcome])
    lost = next((answer for answer in ended if answer.outcome not in report.READ), None)
    return f"{said} ({lost.reason})" if lost else said


def _http(url: str) -> str:
    return "http" + url.removeprefix("https")


def _may_use_http(visit: _Visit) -> bool:
    step = visit.steps[0]
    return visit.source.bare_host and step.kind == "page" and step.url == visit.source.url


def _urls_of(visit: _Visit) -> Iterator[str]:
    yield from (step.url for step in visit.steps)
    if visit.source.bare_host:
        yield from (step.url for step in plan(_http(visit.source.url), None))
