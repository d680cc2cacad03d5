"""R9 for spiders of any project: pages are asked for as markdown first, and never scraped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from scrapy.settings import default_settings

from scrapy_walsh.policy.formats.representation import ACCEPT_PAGE
from scrapy_walsh.proof.sandbox import Route
from tests.crawl.harness import OWN_IDENTITY, Crawl, make_project, run_scrapy, side_by_side, site

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scrapy_walsh.proof.sandbox import Sandbox

pytestmark = pytest.mark.crawl

PAGE = Route(body="<!doctype html><html><title>t</title><a class=x href=/next>next</a></html>")
FEED = "<rss version='2.0'><channel><item><link>http://news.test/1</link></item></channel></rss>"
SITEMAP = "<?xml version='1.0'?><urlset><url><loc>http://news.test/1</loc></url></urlset>"
ROUTES = {
    "/page": PAGE,
    "/fragment": Route(body="<p>a <b>piece</b></p>"),
    "/plain": Route(body=PAGE.body, content_type="text/plain"),
    "/xml": Route(body=PAGE.body, content_type="application/xml"),
    "/feed": Route(body=FEED, content_type="text/html"),
    "/sitemap": Route(body=SITEMAP, content_type="text/html"),
    "/json": Route(body='{"a": [1]}', content_type="application/json"),
}
SITES = (site("r9.test", ROUTES),)
URLS = tuple(f"http://r9.test{path}" for path in ROUTES)

#: Each way to a selector, on each response, with what it says.
SPIDER = """
import copy
import scrapy
from itemloaders.processors import TakeFirst
from scrapy.http import HtmlResponse, TextResponse, XmlResponse
from scrapy.linkextractors import LinkExtractor
from scrapy.loader import ItemLoader

WAYS = {
    "css": lambda r: r.css("*").getall(),
    "xpath": lambda r: r.xpath("//*").getall(),
    "selector": lambda r: r.selector,
    "Selector": lambda r: scrapy.Selector(r),
    "loader": lambda r: ItemLoader(response=r).get_xpath("//*"),
    "links": lambda r: LinkExtractor().extract_links(r),
    "follow_all": lambda r: list(r.follow_all(css="a")),
    "replace": lambda r: r.replace(body=r.body).css("*").getall(),
    "recast": lambda r: r.replace(cls=TextResponse).css("*").getall(),
    "copy": lambda r: copy.copy(r).css("*").getall(),
}

class Plugged(HtmlResponse):
    pass

class Plug:
    # As plug-ins do that render pages: a response class of its own.
    def process_response(self, request, response, spider=None):
        return response.replace(cls=Plugged) if isinstance(response, HtmlResponse) else response

class Probe(scrapy.Spider):
    name = "probe"

    def __init__(self, urls="", **kwargs):
        super().__init__(**kwargs)
        self.start_urls = urls.split()

    def parse(self, response):
        said = {}
        for name, way in WAYS.items():
            try:
                found = way(response)
                said[name] = len(found) if isinstance(found, list) else 1
            except Exception as error:
                said[name] = f"{type(error).__name__}: {error}"
        yield {"path": response.url.partition(".test")[2], "said": said,
               "class": type(response).__name__}
"""
JOBS: dict[str, dict[str, Any]] = {
    "walsh-research": {},
    "plug-in": {"DOWNLOADER_MIDDLEWARES": {"spiders.Plug": 600}},
    "own": {"WALSH_IDENTITY": OWN_IDENTITY},
    "meant": {"WALSH_IDENTITY": OWN_IDENTITY, "WALSH_SCRAPING": True},
}


@pytest.fixture(scope="module")
def crawls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Crawl]:
    jobs = {
        name: {"sites": SITES, "spider": SPIDER, "settings": {**settings, "WALSH_MIN_INTERVAL": 1}}
        for name, settings in JOBS.items()
    }
    return side_by_side(tmp_path_factory.mktemp("r9"), jobs, *URLS)


def said(crawl: Crawl, path: str) -> dict[str, Any]:
    (item,) = [item for item in crawl.items if item["path"] == path]
    return dict(item["said"])


@pytest.mark.parametrize("path", ["/page", "/fragment", "/plain", "/xml"])
def test_r9_1_selectors_on_html_raise_under_walsh_research(
    crawls: dict[str, Crawl], path: str
) -> None:
    found = said(crawls["walsh-research"], path)
    assert len(found) == 10
    for way, words in found.items():
        assert str(words).startswith(f"ScrapingRefused: http://r9.test{path}: HTML is never"), way
        assert "(R9)" in words
        assert "WALSH_SCRAPING = True needs WALSH_IDENTITY of your own" in words
        assert "\n" not in words


@pytest.mark.parametrize("name", ["walsh-research", "plug-in"])
@pytest.mark.parametrize("path", ["/feed", "/sitemap", "/json"])
def test_feeds_xml_and_json_are_read_whatever_they_are_called(
    crawls: dict[str, Crawl], name: str, path: str
) -> None:
    found = said(crawls[name], path)
    if path == "/json":
        del found["links"], found["follow_all"]  # Scrapy has neither for JSON
    assert "ScrapingRefused" not in str(found)
    assert found["Selector"] == 1


def test_r9_1_a_response_class_of_a_plug_in_is_a_page_too(crawls: dict[str, Crawl]) -> None:
    (item,) = [item for item in crawls["plug-in"].items if item["path"] == "/page"]
    assert item["class"] == "Plugged"
    assert all("ScrapingRefused" in words for words in item["said"].values())


def test_r9_1_an_own_identity_is_warned_once(crawls: dict[str, Crawl]) -> None:
    own = crawls["own"]
    assert said(own, "/page")["css"] == 5
    assert "ScrapingRefused" not in str(own.items)
    (line,) = own.lines("WARNING", "scrapes HTML")
    assert "(R9)" in line
    assert "WALSH_SCRAPING = True" in line


def test_scraping_that_is_meant_is_not_warned_of(crawls: dict[str, Crawl]) -> None:
    assert said(crawls["meant"], "/page")["css"] == 5
    assert crawls["meant"].lines("scrapes HTML") == []


def test_walsh_scraping_is_refused_for_walsh_research(run: Callable[..., Crawl]) -> None:
    result = run(*URLS, settings={"WALSH_SCRAPING": True})
    assert (result.returncode, result.log) == (1, [])
    assert result.lines("WALSH_SCRAPING is True", "WALSH_IDENTITY of your own", "R9")
    assert "Traceback" not in result.output


def test_a_person_at_a_shell_may_look_at_a_page(box: Sandbox, tmp_path: Path) -> None:
    box.put(SITES[0])
    project = make_project(tmp_path / "project")
    done = run_scrapy(project, box, "shell", URLS[0], "-c", "response.css('a::text').get()")
    assert done.stdout.splitlines()[-1] == "next"


# -- what is asked for --------------------------------------------------------------------


ASKS = """
import scrapy

class Probe(scrapy.Spider):
    name = "probe"

    def __init__(self, urls="", **kwargs):
        super().__init__(**kwargs)

    async def start(self):
        yield scrapy.Request("http://plain.test/")
        yield scrapy.Request("http://own.test/", headers={"Accept": "text/x-own"})
        yield scrapy.Request("http://moved.test/")

    def parse(self, response):
        pass
"""
ASKED = (
    site("plain.test"),
    site("own.test"),
    site("moved.test", {"/": Route(302, location="http://moved.test/to")}),
)


def accepts(crawl: Crawl, host: str) -> list[list[str]]:
    return [each.values("Accept") for each in crawl.requests(host) if each.path != "/robots.txt"]


def test_r9_2_any_page_is_asked_for_as_markdown_first(run: Callable[..., Crawl]) -> None:
    result = run(sites=ASKED, spider=ASKS)
    assert accepts(result, "plain.test") == [[ACCEPT_PAGE]]
    assert accepts(result, "own.test") == [["text/x-own"]]
    assert accepts(result, "moved.test") == [[ACCEPT_PAGE]] * 2
    robots = result.requests("plain.test")[0]
    assert robots.path == "/robots.txt"
    assert "text/markdown" not in str(robots.values("Accept"))
    documents = result.requests("operator.test")
    assert documents
    assert "text/markdown" not in str([each.values("Accept") for each in documents])


def test_the_projects_own_accept_stays(run: Callable[..., Crawl]) -> None:
    chosen = {"DEFAULT_REQUEST_HEADERS": {"Accept": "text/x-project"}}
    result = run(sites=ASKED, spider=ASKS, settings=chosen)
    assert accepts(result, "plain.test") == [["text/x-project"]]


def test_who_scrapes_asks_as_scrapy_does(run: Callable[..., Crawl]) -> None:
    result = run(sites=ASKED, spider=ASKS, settings=JOBS["meant"])
    assert accepts(result, "plain.test") == [[default_settings.DEFAULT_REQUEST_HEADERS["Accept"]]]


def test_r7_t20_validators_of_another_representation_are_not_replayed(
    run: Callable[..., Crawl],
) -> None:
    """What was kept while HTML was asked for says nothing about the markdown of the page."""
    tagged = (site("plain.test", {"/": Route(body="<p>page</p>", etag='"html"')}),)
    again = {"WALSH_REVISIT_REASON": "tests"}
    first = run(sites=(*ASKED, *tagged), spider=ASKS, settings={**JOBS["meant"], **again})
    second = run(sites=tagged, spider=ASKS, settings={"WALSH_IDENTITY": OWN_IDENTITY, **again})
    third = run(sites=tagged, spider=ASKS, settings={"WALSH_IDENTITY": OWN_IDENTITY, **again})
    sent = [each.requests("plain.test")[-1].values("If-None-Match") for each in (first, second)]
    assert sent == [[], []]
    assert third.requests("plain.test")[-1].values("If-None-Match") == ['"html"']


# -- logs ---------------------------------------------------------------------------------


READS = """
import logging
import scrapy
from scrapy_walsh.policy.formats.links import markdown_links

class Probe(scrapy.Spider):
    name = "probe"
    {before}

    def __init__(self, urls="", **kwargs):
        super().__init__(**kwargs)
        self.start_urls = urls.split()

    def parse(self, response):
        yield {{"links": len(markdown_links("[a](http://a.test/) " * 50).entries)}}
"""


@pytest.mark.parametrize("chosen", [False, True])
def test_libraries_do_not_flood_the_log(run: Callable[..., Crawl], chosen: bool) -> None:
    """A project that has set a level for one of them keeps it."""
    before = "logging.getLogger('markdown_it').setLevel(logging.DEBUG)" if chosen else ""
    rules = Route(body="User-agent: *\nno colon\nAllow: /\n" * 50, content_type="text/plain")
    noisy = (site("noisy.test", robots=rules),)
    result = run("http://noisy.test/", sites=noisy, spider=READS.format(before=before))
    assert result.items == [{"links": 1}]
    assert bool(result.lines("[markdown_it")) is chosen
    assert result.lines("[protego") == []
