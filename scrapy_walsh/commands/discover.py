"""``walsh discover HOST``: what a host offers in place of HTML, as a structured link map (R9).

Its ``/llms.txt`` and its front page, by content negotiation, are requested through all gates, and
their validators are not kept; nothing that they link to is requested.

``walsh discover URL --add FILE`` looks at that page, and adds a source to FILE. It looks at
``/llms.txt`` only if the page is of no use. Nobody has declared the feed that a page names (R6), so
it is judged by the gates, and requested by the first run.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from scrapy import Request, Spider
from scrapy.exceptions import IgnoreRequest

from scrapy_walsh.adapters.crawl import Crawl
from scrapy_walsh.adapters.outcomes import GaveUp
from scrapy_walsh.adapters.ticket import TRY_HTTPS
from scrapy_walsh.commands import common
from scrapy_walsh.commands.common import Misuse
from scrapy_walsh.commands.own_crawl import crawl_apart, verdict_on
from scrapy_walsh.exceptions import SourcesInvalid, one_line
from scrapy_walsh.policy.formats import representation as formats
from scrapy_walsh.policy.formats.text import Heading
from scrapy_walsh.policy.urls import canonical_url
from scrapy_walsh.policy.verdict import NOT_DUE
from scrapy_walsh.policy.words import plural
from scrapy_walsh.proof.files import replace_file
from scrapy_walsh.sources.answers import MAX_BODY, from_failure, from_response
from scrapy_walsh.sources.report import label
from scrapy_walsh.sources.sources import read_sources, text_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator, Iterable, Iterator, Sequence

    from scrapy.http import Response
    from scrapy.settings import Settings
    from twisted.python.failure import Failure

    from scrapy_walsh.policy.formats.representation import Step
    from scrapy_walsh.policy.formats.text import Links
    from scrapy_walsh.sources.answers import Answer

#: The file that ``--add`` adds to.
_FILE: Final = Path("sources.toml")
_INTERNAL_ERROR: Final = "not added: internal error, see ERROR above"


def add_options(parser: argparse.ArgumentParser) -> None:
    """What ``walsh discover`` takes."""
    add = parser.add_argument
    add(
        "host",
        metavar="HOST",
        help="HOST[:PORT], tried by https, then http; or with its scheme",
    )
    help_text = "HOST may be a URL: add the source that is found there to FILE (sources.toml)"
    add(
        "--add",
        metavar="FILE",
        nargs="?",
        const=_FILE,
        type=Path,
        help=help_text,
    )
    common.add_settings(parser)
    common.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Request what the host may offer, and print the links; with ``--add``, add its source."""
    file: Path | None = args.add
    if file is not None and file.suffix.lower() != ".toml":
        raise Misuse(f"--add {file}: give a .toml file")
    pages = _pages(args.host, whole=file is not None)
    settings = common.settings_to_send(args)
    if file is not None and (there := _there(file, *pages)):
        common.answer(args, {"added": None, "said": there}, [common.printable(there)])
        return 0
    discovery, well = discover(pages, settings, adds=file is not None)
    if file is not None:
        discovery["added"], discovery["said"] = (
            _add(file, discovery) if well else (None, _INTERNAL_ERROR)
        )
    common.answer(args, discovery, map(common.printable, _lines(discovery)))
    if discovery["links" if file is None else "source"] and well:
        return 0
    return 1


def _pages(host: str, *, whole: bool) -> list[str]:
    """The pages to try in turn: https and http of a *host* that is written without a scheme.

    *whole*: it may be the URL of a page. Misuse if it is more, or less, than a host.
    """
    parts = urlsplit(common.absolute(host))
    if parts.scheme not in ("http", "https") or "@" in parts.netloc:
        raise Misuse(f"{host!r} is not a host: give HOST, HOST:PORT, or http://HOST")
    if not whole and (parts.path not in ("", "/") or parts.query or parts.fragment):
        raise Misuse(f"{host!r} is not a host: leave out what follows it, or give --add as well")
    schemes = [parts.scheme] if "://" in host else ["https", "http"]
    page = parts._replace(path=parts.path or "/", fragment="")
    return [page._replace(scheme=scheme).geturl() for scheme in schemes]


def _lines(discovery: dict[str, Any]) -> Iterator[str]:
    """The map for a person."""
    for probe in discovery["probes"]:
        gate = f" ({probe['requirement']})" if probe["requirement"] else ""
        reason = f": {probe['reason']}" if probe["reason"] else ""
        yield f"{probe['url']}: {label(probe['outcome'])}{gate}{reason}"
        for section in probe["sections"]:
            depth = "  " * section["level"]
            if section["title"]:
                yield f"{depth}{'#' * section['level']} {section['title']}"
            for link in section["links"]:
                yield f"{depth}  {': '.join(filter(None, (link['title'], link['url'])))}"
    yield from (f"offers a feed: {feed}" for feed in discovery["suggested_feeds"])
    yield from (
        f"robots.txt names a sitemap: {sitemap}" for sitemap in discovery["suggested_sitemaps"]
    )
    links = f"{plural(len(discovery['links']), 'link')} found"
    yield (discovery.get("said") or f"{links}; declare those that a crawl shall request")


# -- the crawl ------------------------------------------------------------------------------


class DiscoverSpider(Spider):
    """Fills ``found`` with what a page and its host's llms.txt offer.

    The page is the first of ``pages`` that gives an answer: of them only the schemes differ.
    ``adds``: a source for that page is looked for, and ended with.
    """

    name = "walsh_discover"
    pages: list[str]
    adds: bool
    found: dict[str, Any]
    problems: list[str]

    async def start(self) -> AsyncIterator[Any]:
        """The first step; all that may follow is declared with it (R6)."""
        Crawl.of(self.crawler).sources.account.due = False
        yield self._first([step.url for page in self.pages for step in formats.plan(page, None)])

    def _first(self, also: Sequence[str] = ()) -> Request:
        """The first request for the next of the pages; *also*: what it declares."""
        self.page, *self.pages = self.pages
        steps = formats.plan(self.page, None)
        #: The requests in turn: llms.txt first, unless a source is looked for (R9).
        self.steps = steps if self.adds else steps[::-1]
        return self._request(0, also)

    def _request(self, number: int, also: Sequence[str] = ()) -> Request:
        step = self.steps[number]
        trial = number == 0 and bool(self.pages)  # without an answer the next is tried
        return Request(
            step.url,
            callback=self.answered,
            errback=self.not_answered,
            headers={"Accept": step.accept},
            meta={
                "download_maxsize": MAX_BODY,
                "walsh_also": also,
                TRY_HTTPS: trial,
            },
            cb_kwargs={"number": number},
            dont_filter=True,
        )

    async def answered(self, response: Response, number: int) -> Iterable[Request]:
        """Callback of every request."""
        step = self.steps[number]
        if response.request is not None:  # the next map needs the body, too
            Crawl.of(self.crawler).delivery.forget(response.request)
        kind = formats.representation(formats.header(response, "Content-Type"), response.body)
        if self.adds and kind in (formats.SITEMAP, formats.GZIP):
            step = formats.sitemap_step(step.url)
        brought = await from_response(step, response)
        if brought.fault:
            Crawl.of(self.crawler).recorder.own_fault(brought.fault)
        self._note(step, brought)
        if self.adds:
            await self._look_for_source(step, brought)
        return self._next(number)

    def not_answered(self, failure: Failure) -> Iterator[Request]:
        """Errback of every request."""
        number = failure.request.cb_kwargs["number"]  # type: ignore[attr-defined]
        error = failure.value
        assert error is not None  # noqa: S101  a failure has one
        if number == 0 and self.pages and isinstance(error, GaveUp) and error.status is None:
            yield self._first()
            return
        step = self.steps[number]
        self._note(step, from_failure(step, error))
        if not self.adds:  # a page that was refused, or is not there, is no source
            yield from self._next(number)

    def closed(self, reason: str) -> None:
        """A stopped crawl has not seen what the host offers."""
        if reason == "shutdown":
            self.problems.append("stopped before everything was requested")

    def _probe(self, *values: object) -> None:
        members = ("url", "via", "outcome", "requirement", "reason", "sections")
        self.found["probes"].append(dict(zip(members, values, strict=True)))

    def _note(self, step: Step, brought: Answer) -> None:
        discovery = self.found
        by = brought.requirement
        sections = sections_of(brought.links) if brought.links.entries else []
        self._probe(step.url, brought.via, brought.ending, by, brought.reason, sections)
        links_by_url = {link["url"]: link for link in discovery["links"]}
        for link in (link for section in sections for link in section["links"]):
            links_by_url.setdefault(link["url"], {"via": brought.via, **link})
        discovery["links"] = list(links_by_url.values())
        discovery["suggested_feeds"] += brought.suggested_feeds
        discovery["suggested_sitemaps"] = Crawl.of(self.crawler).documents.sitemaps(step.url)

    def _next(self, number: int) -> Iterator[Request]:
        if number + 1 < len(self.steps) and not self.found.get("source"):
            yield self._request(number + 1)

    # -- the source that is added ---------------------------------------------------------

    async def _look_for_source(self, step: Step, brought: Answer) -> None:
        """Note the source that *brought*, the answer to *step*, shows, if there is one.

        First the page itself, if it can be a source; then the feeds that it names; then its own
        links; then the sitemaps that robots.txt names (R9, D26). Of those that are only named, the
        first that may be requested.
        """
        discovery = self.found
        offers = list[tuple[str, str]]()
        url = self.page if step.kind == "llms" else brought.moved_to or self.page
        if brought.via == "feed" or (brought.via and brought.links.entries):
            discovery["source"] = {"sitemap" if step.kind == "sitemap" else "url": url}
        if step.kind == "page" and brought.via != "feed":
            offers = [("feed", feed) for feed in brought.suggested_feeds]
            if discovery["source"] is None:
                offers += [("sitemap", sitemap) for sitemap in discovery["suggested_sitemaps"]]
        for key, offer in offers:
            if await self._may_be_requested(offer):
                discovery["source"] = {"url": url, key: offer}
                break

    async def _may_be_requested(self, url: str) -> bool:
        """Whether the list and robots.txt allow *url*, which becomes no request; note their say."""
        try:
            verdict = await verdict_on(Crawl.of(self.crawler), url)
        except IgnoreRequest as error:
            self.problems.append(str(error))
            return False
        self._probe(url, "", verdict.name, verdict.requirement, verdict.reason, [])
        return verdict.allowed or verdict.name == NOT_DUE


def sections_of(links: Links) -> list[dict[str, Any]]:
    """*links* under their headings, as JSON data; those before the first have level 0."""
    starts = (Heading(0, "", 0), *links.headings)
    ends = (*(heading.first for heading in links.headings), len(links.entries))
    sections = []
    for (level, title, begin), end in zip(starts, ends, strict=True):
        under = [{"title": link.title, "url": link.url} for link in links.entries[begin:end]]
        if level or under:
            sections.append({"level": level, "title": title, "links": under})
    return sections


def discover(
    pages: list[str], settings: Settings, *, adds: bool = False
) -> tuple[dict[str, Any], bool]:
    """The link map of a host as JSON data, and whether nothing of ours failed meanwhile.

    *pages* are tried in turn. Each link is there once, in order, with the place of its first
    occurrence; ``outcome``, ``requirement`` and ``reason`` are as in the source report. *adds*: a
    ``source`` is looked for.

    Raises ConfigError, StateError and Misuse.
    """
    discovery: dict[str, Any] = {
        "host": urlsplit(pages[0]).netloc,
        "probes": [],
        "links": [],
    }
    discovery |= {"suggested_feeds": [], "suggested_sitemaps": []}
    discovery |= {"source": None} if adds else {}
    problems: list[str] = []
    well = crawl_apart(
        settings,
        DiscoverSpider,
        problems,
        pages=pages,
        adds=adds,
        found=discovery,
    )
    if problems or not discovery["probes"]:
        raise Misuse("; ".join(problems) or "the crawl ended before anything was requested")
    return discovery, well


# -- the file of sources ----------------------------------------------------------------------


def _opened(file: Path) -> tuple[str, Any]:
    """The text of *file*, empty if there is none, and its document; SourcesInvalid."""
    from tomlkit import exceptions, parse  # noqa: PLC0415  slow

    text = text_of(file) if file.exists() else ""
    try:
        return text, parse(f"{text}\n" if text else "")
    except exceptions.TOMLKitError as error:
        raise SourcesInvalid(f"{file}: not TOML: {one_line(error)}") from None


def _there(file: Path, *urls: str) -> str:
    """A line if a source of *file* has one of *urls* already; else empty."""
    sources = read_sources(file)[0] if "source" in _opened(file)[1] else []
    canonical = set(map(canonical_url, urls))
    for source in sources:
        its = filter(None, (source.url, source.feed, source.sitemap))
        if not canonical.isdisjoint(map(canonical_url, its)):
            return f"{source.first} is in {file} already, as {source.name!r}: nothing is added"
    return ""


def _add(file: Path, discovery: dict[str, Any]) -> tuple[dict[str, str] | None, str]:
    """Add the source that was found to *file*; what was added, and a line about that.

    Raises Misuse if its lines would not stay as they are, and OSError.
    """
    source: dict[str, str] | None = discovery["source"]
    if source is None:
        probes = discovery["probes"]
        refusals = [probe for probe in probes if probe["requirement"] not in ("", "R9")] or probes[
            :1
        ]
        reason = "; ".join(f"{probe['url']}: {probe['reason']}" for probe in refusals)
        return None, f"not added: {reason}"
    if there := _there(file, *source.values()):
        return None, there
    from tomlkit import aot  # noqa: PLC0415  slow

    (old_text, document) = _opened(file)
    added = {"name": discovery["host"], **source}
    members = ", ".join(f"{key} = {value!r}" for key, value in added.items())
    document.setdefault("source", aot()).append(added)
    new_text: str = document.as_string()
    lines = iter(new_text.splitlines())
    if not all(line in lines for line in old_text.splitlines()):  # each stays, in their order
        raise Misuse(f"{file} cannot be changed safely: add this to it by hand: {members}")
    replace_file(file, new_text.encode())
    links = plural(len(discovery["links"]), "link")
    return (
        added,
        f"added to {file}: {members}; {links} found now; `walsh plan` says when it is read",
    )
