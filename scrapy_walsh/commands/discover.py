"""``walsh discover HOST``: what a host offers in place of HTML, as a structured link map (R9).

Its ``/llms.txt`` and its front page, by content negotiation, are requested through all gates, and
their validators are not kept; nothing that they link to is requested.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from scrapy import Request, Spider

from scrapy_walsh.adapters.crawl import Crawl
from scrapy_walsh.adapters.outcomes import GaveUp
from scrapy_walsh.adapters.ticket import TRY_HTTPS
from scrapy_walsh.commands import common
from scrapy_walsh.commands.common import Misuse
from scrapy_walsh.commands.own_crawl import crawl_apart
from scrapy_walsh.policy.formats import representation as formats
from scrapy_walsh.policy.recrawl import representation_key
from scrapy_walsh.policy.words import plural, visible
from scrapy_walsh.sources.answers import MAX_BODY, from_failure, from_response
from scrapy_walsh.state.records import Validators

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator, Iterable, Iterator

    from scrapy.http import Response
    from scrapy.settings import Settings
    from twisted.python.failure import Failure

    from scrapy_walsh.policy.formats.representation import Section, Step
    from scrapy_walsh.sources.answers import Answer


def add_options(parser: argparse.ArgumentParser) -> None:
    """What ``walsh discover`` takes."""
    add = parser.add_argument
    add("host", metavar="HOST", help="HOST[:PORT], tried by https, then http; or with its scheme")
    common.add_settings(parser)
    common.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Request what the host may offer, and print the links."""
    found, well = discover(_origins(args.host), common.settings_to_send(args))
    common.answer(args, found, map(visible, _lines(found)))
    return 0 if found["links"] and well else 1


def _origins(host: str) -> list[str]:
    """The origins to try in turn; Misuse where *host* is more, or less, than a host."""
    url = common.absolute(host)
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or parts.path not in ("", "/") or "@" in parts.netloc:
        raise Misuse(f"{host!r} is not a host: give HOST, HOST:PORT, or http://HOST")
    if parts.query or parts.fragment:
        raise Misuse(f"{host!r} is not a host: leave out what follows it")
    schemes = [parts.scheme] if "://" in host else ["https", "http"]
    return [f"{scheme}://{parts.netloc}" for scheme in schemes]


def _lines(found: dict[str, Any]) -> Iterator[str]:
    """The map for a person."""
    for probe in found["probes"]:
        gate = f" ({probe['requirement']})" if probe["requirement"] else ""
        said = f": {probe['reason']}" if probe["reason"] else ""
        yield f"{probe['url']}: {probe['outcome']}{gate}{said}"
        for section in probe["sections"]:
            depth = "  " * section["level"]
            if section["title"]:
                yield f"{depth}{'#' * section['level']} {section['title']}"
            for link in section["links"]:
                yield f"{depth}  {': '.join(filter(None, (link['title'], link['url'])))}"
    yield from (f"offers a feed: {feed}" for feed in found["suggested_feeds"])
    yield from (f"robots.txt names a sitemap: {each}" for each in found["suggested_sitemaps"])
    yield f"{plural(len(found['links']), 'link')} found; declare those that a crawl shall request"


# -- the crawl ------------------------------------------------------------------------------


class DiscoverSpider(Spider):
    """Fills ``found`` with what is offered by the first of ``origins`` that gives an answer."""

    name = "walsh_discover"
    origins: list[str]
    found: dict[str, Any]
    problems: list[str]

    async def start(self) -> AsyncIterator[Any]:
        """llms.txt of the first origin; all that may follow is declared with it (R6)."""
        Crawl.of(self.crawler).sources.account.due = False
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
        brought = await from_response(step, response)
        if brought.fault:
            Crawl.of(self.crawler).recorder.own_fault(brought.fault)
        return self._note(origin, number, brought)

    def not_answered(self, failure: Failure) -> Iterator[Request]:
        """Errback of every request."""
        origin, number = failure.request.cb_kwargs.values()  # type: ignore[attr-defined]
        error = failure.value
        assert error is not None  # noqa: S101  a failure has one
        silent = isinstance(error, GaveUp) and error.status is None
        if silent and number == 0 and origin + 1 < len(self.origins):
            yield self._request(origin + 1, 0)
            return
        brought = from_failure(_steps(self.origins[origin])[number], error)
        yield from self._note(origin, number, brought)

    def closed(self, reason: str) -> None:
        """A stopped crawl has not seen what the host offers."""
        if reason == "shutdown":
            self.problems.append("stopped before everything was requested")

    def _note(self, origin: int, number: int, brought: Answer) -> Iterator[Request]:
        steps, found = _steps(self.origins[origin]), self.found
        sections = [_members(each) for each in brought.links.sections() if brought.links.entries]
        probe = {
            "url": steps[number].url,
            "via": brought.via,  # empty where it is of no use
            "outcome": brought.ending,
            "requirement": brought.requirement,
            "reason": brought.reason,
            "sections": sections,
        }
        found["probes"].append(probe)
        first = {link["url"]: link for link in found["links"]}
        for link in (link for each in sections for link in each["links"]):
            first.setdefault(link["url"], {"via": brought.via, **link})
        found["links"] = list(first.values())
        found["suggested_feeds"] += brought.suggested_feeds
        documents = Crawl.of(self.crawler).documents
        found["suggested_sitemaps"] = documents.sitemaps(steps[number].url)
        if number + 1 < len(steps):
            yield self._request(origin, number + 1)


def discover(origins: list[str], settings: Settings) -> tuple[dict[str, Any], bool]:
    """The link map of a host as JSON data, and whether nothing of ours failed meanwhile.

    *origins* are tried in turn. Each link is there once, in order, with where it was found first;
    ``outcome``, ``requirement`` and ``reason`` are as in the source report.

    Raises ConfigError, StateError and Misuse.
    """
    found: dict[str, Any] = {"host": origins[0].partition("://")[2], "probes": [], "links": []}
    found |= {"suggested_feeds": [], "suggested_sitemaps": []}
    problems: list[str] = []
    well = crawl_apart(settings, DiscoverSpider, problems, origins=origins, found=found)
    if problems or not found["probes"]:
        raise Misuse("; ".join(problems) or "the crawl ended before anything was requested")
    return found, well


def _steps(origin: str) -> tuple[Step, Step]:
    page, llms = formats.plan(f"{origin}/", None)
    return llms, page


def _members(section: Section) -> dict[str, Any]:
    links = [{"title": title, "url": url} for title, url in section.links]
    return {**section._asdict(), "links": links}
