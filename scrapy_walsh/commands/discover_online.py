"""The crawl of ``walsh discover``: two targets of one host, whose validators are not kept."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from scrapy import Request, Spider

from scrapy_walsh.adapters.crawl import Crawl
from scrapy_walsh.adapters.outcomes import GaveUp
from scrapy_walsh.adapters.retries import TRY_HTTPS
from scrapy_walsh.commands.check_answer import Misuse
from scrapy_walsh.commands.check_online import crawl_apart
from scrapy_walsh.policy.formats import representation as formats
from scrapy_walsh.policy.revalidate import representation_key
from scrapy_walsh.sources import report
from scrapy_walsh.sources.answers import MAX_BODY, from_failure, from_response
from scrapy_walsh.state.records import Validators

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator

    from scrapy.http import Response
    from scrapy.settings import Settings
    from twisted.python.failure import Failure

    from scrapy_walsh.policy.formats.representation import Section, Step
    from scrapy_walsh.sources.answers import Answer


@dataclass(frozen=True, slots=True)
class Probe:
    """What one URL brought. ``via``: as of an item, "" where it is of no use; ``outcome``,
    ``requirement``, ``reason``: as in the source report.
    """

    url: str
    via: str
    outcome: str
    requirement: str
    reason: str
    sections: tuple[Section, ...] = ()

    def members(self) -> dict[str, Any]:
        """The probe as a JSON object."""
        return {**asdict(self), "sections": [_members(section) for section in self.sections]}


@dataclass(slots=True)
class LinkMap:
    """What a host offers. ``well``: nothing of ours failed while it was looked for."""

    host: str
    well: bool = True
    probes: list[Probe] = field(default_factory=list)
    suggested_feeds: list[str] = field(default_factory=list)
    suggested_sitemaps: list[str] = field(default_factory=list)

    @property
    def links(self) -> list[dict[str, str]]:
        """Every link once, in order, with where it was found."""
        found: dict[str, dict[str, str]] = {}
        for probe in self.probes:
            for section in probe.sections:
                for title, url in section.links:
                    found.setdefault(url, {"via": probe.via, "title": title, "url": url})
        return list(found.values())

    def members(self) -> dict[str, Any]:
        """The map as a JSON object."""
        return {
            "host": self.host,
            "probes": [probe.members() for probe in self.probes],
            "links": self.links,
            "suggested_feeds": self.suggested_feeds,
            "suggested_sitemaps": self.suggested_sitemaps,
        }


class DiscoverSpider(Spider):
    """Fills ``found`` with what is offered by the first of ``origins`` that gives an answer."""

    name = "walsh_discover"
    origins: list[str]
    found: LinkMap
    problems: list[str]

    async def start(self) -> AsyncIterator[Any]:
        """llms.txt of the first origin; all that may follow is declared with it (R6)."""
        Crawl.of(self.crawler).readings.sources = False
        also = [step.url for origin in self.origins for step in _steps(origin)]
        yield self._request(0, 0, also)

    def _request(self, origin: int, number: int, also: list[str] | None = None) -> Request:
        step = _steps(self.origins[origin])[number]
        self._forget(step)
        first_of_several = number == 0 and origin + 1 < len(self.origins)
        return Request(
            step.url,
            callback=self.answered,
            errback=self.not_answered,
            headers={"Accept": step.accept},
            meta={
                "download_maxsize": MAX_BODY,
                "walsh_also": also or [],
                TRY_HTTPS: first_of_several,  # without an answer http is tried
            },
            cb_kwargs={"origin": origin, "number": number},
            dont_filter=True,
        )

    def _forget(self, step: Step) -> None:
        """Delete the validators: the map needs the body, and so does the next crawl."""
        core, key = Crawl.of(self.crawler), representation_key(step.accept)
        core.remember(lambda: core.store.delete(Validators, step.url, key))

    async def answered(self, response: Response, origin: int, number: int) -> Iterable[Request]:
        """Callback of every request."""
        step = _steps(self.origins[origin])[number]
        self._forget(step._replace(url=response.url))
        answer = await from_response(step, response)
        if answer.fault:
            Crawl.of(self.crawler).recorder.own_fault(answer.fault)
        return self._note(origin, number, answer)

    def not_answered(self, failure: Failure) -> Iterator[Request]:
        """Errback of every request."""
        origin, number = failure.request.cb_kwargs.values()  # type: ignore[attr-defined]
        error = failure.value
        if error is None:
            return
        silent = isinstance(error, GaveUp) and error.status is None
        if silent and number == 0 and origin + 1 < len(self.origins):
            yield self._request(origin + 1, 0)
            return
        answer = from_failure(_steps(self.origins[origin])[number], error)
        yield from self._note(origin, number, answer)

    def closed(self, reason: str) -> None:
        """A stopped crawl has not seen what the host offers."""
        if reason == "shutdown":
            self.problems.append("stopped before everything was requested")

    def _note(self, origin: int, number: int, answer: Answer) -> Iterator[Request]:
        sections = tuple(answer.links.sections()) if answer.links.entries else ()
        steps = _steps(self.origins[origin])
        outcome = answer.outcome or (report.FAILED if answer.failed else report.LEFT_OUT)
        self.found.probes.append(
            Probe(
                steps[number].url, answer.via, outcome, answer.requirement, answer.reason, sections
            )
        )
        self.found.suggested_feeds += answer.suggested_feeds
        documents = Crawl.of(self.crawler).documents
        self.found.suggested_sitemaps = documents.sitemaps(steps[number].url)
        if number + 1 < len(steps):
            yield self._request(origin, number + 1)


def discover(origins: list[str], settings: Settings) -> LinkMap:
    """The link map of a host; *origins* are tried in turn. ConfigError, StateError, Misuse."""
    found = LinkMap(origins[0].partition("://")[2])
    problems: list[str] = []
    found.well = crawl_apart(settings, DiscoverSpider, problems, origins=origins, found=found)
    if problems or not found.probes:
        raise Misuse("; ".join(problems) or "the crawl ended before anything was requested")
    return found


def _steps(origin: str) -> tuple[Step, Step]:
    page, llms = formats.plan(f"{origin}/", None)
    return llms, page


def _members(section: Section) -> dict[str, Any]:
    links = [{"title": title, "url": url} for title, url in section.links]
    return {**section._asdict(), "links": links}
