"""Other projects' plugins, the packages themselves: what goes out, and what is said about them.

docs/compatibility.md has the table. A package that this Scrapy cannot load is skipped.
"""

from __future__ import annotations

import importlib
import json
import logging
import re
import socket
import subprocess
import sys
import urllib.request
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from scrapy.settings import BaseSettings

from scrapy_walsh.adapters.plugins import FETCHERS, NOTED, PLUGINS, sentences
from scrapy_walsh.proof.sandbox import Route, Sandbox, max_in_flight, user_agents
from scrapy_walsh.state import open_store
from scrapy_walsh.state.records import Validators, VisitRecord
from tests.crawl.harness import (
    LIST_SPIDER,
    OWN_IDENTITY,
    USER_AGENT,
    Crawl,
    closed_port,
    crawl,
    environment,
    kept,
    make_project,
    run_scrapy,
    site,
    state_dir,
    verify,
    wait_until,
)
from tests.ledger.test_crawl import ledger_of

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.crawl

DOC = (Path(__file__).parents[2] / "docs/compatibility.md").read_text()
DOC = DOC.partition("## Other projects' plugins")[2]
OURS = "scrapy_walsh.Addon"
OWN_USER_AGENT = "Mozilla/5.0 (compatible; ExampleBot/1.0; +http://operator.test/bot/)"
#: An identity of one's own that follows links: R6 holds nothing back.
FOLLOWS: dict[str, Any] = {
    "WALSH_IDENTITY": OWN_IDENTITY,
    "WALSH_BLOCKLIST_URL": None,
    "WALSH_BLOCKLIST_SCHEMA_URL": None,
    "WALSH_FOLLOW_LINKS": True,
}
SITES = (
    site("h.test", robots="User-agent: *\nDisallow: /closed/\n"),
    site("banned.test", {"/x": Route(status=403, body="no")}),
    site("splash.test"),
)
URLS = ("http://h.test/a", "http://h.test/b", "http://h.test/closed/x", "http://blocked.test/x")

SCRAPYS_USER_AGENT = "scrapy.downloadermiddlewares.useragent.UserAgentMiddleware"
SCRAPYS_RETRY = "scrapy.downloadermiddlewares.retry.RetryMiddleware"
ASYNCIO = "twisted.internet.asyncioreactor.AsyncioSelectorReactor"
FAKE = "scrapy_fake_useragent"


def with_meta(meta: dict[str, Any]) -> str:
    return LIST_SPIDER.replace("errback=self.failed", f"errback=self.failed, meta={meta!r}")


def handled_by(path: str) -> dict[str, Any]:
    return {"DOWNLOAD_HANDLERS": {"http": path, "https": path}, "TWISTED_REACTOR": ASYNCIO}


#: By package, the spider and the settings of its own documentation.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "scrapy-zyte-api": (
        with_meta({"zyte_api": {"browserHtml": True}}),
        {"ADDONS": {"scrapy_zyte_api.Addon": 400, OURS: 500}, "ZYTE_API_KEY": "key"},
    ),
    "scrapy-playwright": (
        with_meta({"playwright": True}),
        handled_by("scrapy_playwright.handler.ScrapyPlaywrightDownloadHandler"),
    ),
    "scrapy-impersonate": (
        with_meta({"impersonate": "chrome"}),
        {
            **handled_by("scrapy_impersonate.ImpersonateDownloadHandler"),
            "USER_AGENT": "",
            "DOWNLOADER_MIDDLEWARES": {"scrapy_impersonate.RandomBrowserMiddleware": 1000},
        },
    ),
    "scrapy-user-agents": (
        LIST_SPIDER,
        {
            "DOWNLOADER_MIDDLEWARES": {
                SCRAPYS_USER_AGENT: None,
                "scrapy_user_agents.middlewares.RandomUserAgentMiddleware": 400,
            }
        },
    ),
    "scrapy-fake-useragent": (
        LIST_SPIDER,
        {
            "DOWNLOADER_MIDDLEWARES": {
                SCRAPYS_USER_AGENT: None,
                SCRAPYS_RETRY: None,
                f"{FAKE}.middleware.RandomUserAgentMiddleware": 400,
                f"{FAKE}.middleware.RetryUserAgentMiddleware": 401,
            },
            "FAKEUSERAGENT_PROVIDERS": [
                f"{FAKE}.providers.FakerProvider",
                f"{FAKE}.providers.FixedUserAgentProvider",
            ],
        },
    ),
    "scrapy-deltafetch": (
        LIST_SPIDER,
        {"SPIDER_MIDDLEWARES": {"scrapy_deltafetch.DeltaFetch": 100}, "DELTAFETCH_ENABLED": True},
    ),
    "scrapy-poet": (LIST_SPIDER, {"ADDONS": {OURS: 500, "scrapy_poet.Addon": 600}}),
}
PLACES = {"scrapy-rotating-proxies": "rotating_proxies.middlewares"}
#: Packages that have tests of their own here or in tests/fleet.
APART = {"scrapy-splash", "scrapy-rotating-proxies", "spidermon", "scrapy-redis"}


def needs(name: str) -> None:
    """Skip where the package is not installed, or not made for this version of Scrapy."""
    try:
        importlib.import_module(PLACES.get(name, name.replace("-", "_")))
    except ImportError as error:
        pytest.skip(f"{name}: {error}")


def package(name: str) -> str:
    return PLACES.get(name, name).replace("-", "_").partition(".")[0]


def said(result: Crawl, name: str) -> list[str]:
    lines = result.lines("scrapy_walsh", f"{package(name)}: ")
    return [line.partition("[scrapy_walsh] ")[2] for line in lines]


def sentence(name: str) -> str:
    level = "INFO" if package(name) in NOTED else "WARNING"
    return f"{level}: {package(name)}: {PLUGINS[package(name)]}"


def assert_kept(result: Crawl, user_agent: str = USER_AGENT) -> None:
    assert result.returncode == 0, result.output
    assert user_agents(result.log) == {user_agent}
    assert max_in_flight(result.log) == 1
    assert result.asked("h.test") == ["/robots.txt", "/a", "/b"]
    assert kept(result.gaps("h.test")[1:], 1.0)
    assert result.asked("blocked.test") == []
    assert {request.host for request in result.log} == {"operator.test", "h.test"}


@pytest.mark.parametrize("name", CASES)
def test_a_plugin_sends_nothing_by_itself_and_what_it_does_not_do_is_said_once(
    run: Callable[..., Crawl], name: str
) -> None:
    needs(name)
    spider, settings = CASES[name]
    result = run(*URLS, sites=SITES, spider=spider, settings=settings)
    if result.lines("TypeError: Middleware", "doesn't support asynchronous spider output"):
        pytest.skip(f"{name}: Scrapy of this version does not load it")
    assert_kept(result)
    assert result.fetched(URLS[0])
    assert "R2 disallowed_explicit" in result.why(URLS[2])
    assert said(result, name) == [sentence(name)]
    assert "downloader/exception_count" not in result.stats


def test_each_plugin_of_the_table_is_tried_and_documented() -> None:
    tried = {*CASES, *APART}
    assert {package(name) for name in tried} == PLUGINS.keys()
    rows = re.findall(r"^\| `([\w-]+)` \|", DOC, re.MULTILINE)
    assert Counter(rows) == Counter(tried)
    for name, text in PLUGINS.items():
        assert text in " ".join(DOC.split()), name


def test_packages_that_fetch_by_themselves_are_named() -> None:
    for text in FETCHERS.values():
        assert text in " ".join(DOC.split())
    middlewares = {f"{name}.Middleware": 100 for name in FETCHERS}
    settings = BaseSettings({"DOWNLOADER_MIDDLEWARES": middlewares})
    expected = [(logging.ERROR, f"{name}: {text}") for name, text in FETCHERS.items()]
    assert sentences(settings) == expected


SPIDERMONS = "spidermon.contrib.scrapy.extensions.Spidermon"
DOCTORS = {
    **CASES,
    "spidermon": (
        LIST_SPIDER,
        {"EXTENSIONS": {SPIDERMONS: 1}},
    ),
}


@pytest.mark.parametrize(
    "name", ["scrapy-impersonate", "scrapy-playwright", "scrapy-poet", "spidermon"]
)
def test_doctor_says_the_same_sentence_once(box: Sandbox, tmp_path: Path, name: str) -> None:
    needs(name)
    spider, settings = DOCTORS[name]
    project = make_project(tmp_path, spider, settings)
    lines = run_scrapy(project, box, "walsh", "doctor").stdout.splitlines()
    level, _, text = sentence(name).partition(": ")
    mark = {"WARNING": "warn", "INFO": "note"}[level]
    assert [line[:4] for line in lines if text in line] == [mark], lines
    assert box.log == []


def test_zytes_addon_after_ours_is_refused(run: Callable[..., Crawl]) -> None:
    needs("scrapy-zyte-api")
    addons = {OURS: 500, "scrapy_zyte_api.Addon": 600}
    result = run(*URLS, sites=SITES, settings={"ADDONS": addons, "ZYTE_API_KEY": "key"})
    assert result.returncode == 1
    assert result.log == []
    assert said(result, "scrapy-zyte-api") == [sentence("scrapy-zyte-api")]


# -- what would fetch the page elsewhere --------------------------------------------------

SPLASH_SPIDER = LIST_SPIDER.replace("import scrapy", "import scrapy, scrapy_splash").replace(
    "scrapy.Request(url,", 'scrapy_splash.SplashRequest(url, args={"wait": 1},'
)
SPLASH: dict[str, Any] = {
    "SPLASH_URL": "http://splash.test",
    "DOWNLOADER_MIDDLEWARES": {
        "scrapy_splash.SplashCookiesMiddleware": 723,
        "scrapy_splash.SplashMiddleware": 725,
        "scrapy.downloadermiddlewares.httpcompression.HttpCompressionMiddleware": 810,
    },
}


@pytest.mark.parametrize("follows", [False, True])
def test_r4_splash_is_never_asked_to_fetch_a_page(run: Callable[..., Crawl], follows: bool) -> None:
    needs("scrapy-splash")
    settings = {**SPLASH, **(FOLLOWS if follows else {})}
    result = run(*URLS, sites=SITES, spider=SPLASH_SPIDER, settings=settings)
    assert result.asked("h.test") == ["/robots.txt"]
    assert result.asked("splash.test") == []
    assert [item["error"] for item in result.items] == ["Refused"] * len(URLS)
    assert said(result, "scrapy-splash") == [sentence("scrapy-splash")]


#: By way of a fetching service: in place of the request, in its URL, or when a gate refuses it.
SERVICE = """
import scrapy

def is_document(request):
    return "robots.txt" in request.url or "operator" in request.url

class InPlace:
    documents = False
    def process_request(self, request, spider=None):
        if "service.test" not in request.url and is_document(request) == self.documents:
            return scrapy.Request(f"http://service.test/?url={request.url}", dont_filter=True)

class InPlaceOfDocuments(InPlace):
    documents = True

class InItsUrl:
    documents = False
    def process_request(self, request, spider=None):
        if "service.test" not in request.url and is_document(request) == self.documents:
            request._set_url(f"http://service.test/?url={request.url}")

class InTheUrlOfDocuments(InItsUrl):
    documents = True

class WhenRefused:
    def process_exception(self, request, exception, spider=None):
        return scrapy.Request(f"http://service.test/?url={request.url}", dont_filter=True)

class AfterTheAnswer:
    def process_response(self, request, response, spider=None):
        if response.status != 403:
            return response
        return scrapy.Request(f"http://service.test/?url={request.url}", dont_filter=True)
"""
BANNED = "http://banned.test/x"
WAYS = (
    "InPlace", "InPlaceOfDocuments", "InItsUrl", "InTheUrlOfDocuments", "WhenRefused",
    "AfterTheAnswer",
)  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_r6_no_middleware_has_another_host_fetch_a_page(
    run: Callable[..., Crawl], tmp_path: Path, way: str
) -> None:
    settings = {**FOLLOWS, "DOWNLOADER_MIDDLEWARES": {f"services.{way}": 700}}
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "services.py").write_text(SERVICE)
    sites = (*SITES, site("service.test"))
    result = run(URLS[0], URLS[2], BANNED, sites=sites, settings=settings)
    assert [path for path in result.asked("service.test") if path != "/robots.txt"] == []
    assert not result.fetched(URLS[2])
    if way.endswith("OfDocuments"):
        in_place = way.startswith("InPlace")
        assert result.returncode == in_place, "a document's URL is put back at the wire"
        assert result.asked("h.test") == ([] if in_place else ["/robots.txt", "/a"])
        assert len(result.lines("ERROR", "could not load")) == in_place
        return
    assert len(result.items) == 3
    ways_out = result.lines("WARNING", "is not requested: a downloader middleware sends")
    assert bool(ways_out) == (way != "WhenRefused")
    if way == "WhenRefused":
        assert "R2 disallowed_explicit" in result.why(URLS[2])


def test_a_middleware_may_rewrite_a_url_of_the_same_host(
    run: Callable[..., Crawl], tmp_path: Path
) -> None:
    settings = {**FOLLOWS, "DOWNLOADER_MIDDLEWARES": {"rewrites.Rewrite": 700}}
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "rewrites.py").write_text(
        "class Rewrite:\n"
        "    def process_request(self, request, spider=None):\n"
        "        if request.url.endswith('/a'):\n"
        "            return request.replace(url=request.url[:-1] + 'b', dont_filter=True)\n"
    )
    result = run(URLS[0], sites=SITES, settings=settings)
    assert result.asked("h.test") == ["/robots.txt", "/b"]
    assert result.fetched(URLS[1])


# -- proxies ------------------------------------------------------------------------------


def test_r4_a_host_behind_rotating_proxies_is_spaced_as_one(box: Sandbox, tmp_path: Path) -> None:
    needs("scrapy-rotating-proxies")
    for each in SITES:
        box.put(each)
    proxies = [box.proxy_url, box.proxy_url.replace("127.0.0.1", "localhost")]
    settings = {
        "ROTATING_PROXY_LIST": proxies,
        "DOWNLOADER_MIDDLEWARES": {
            "rotating_proxies.middlewares.RotatingProxyMiddleware": 610,
            "rotating_proxies.middlewares.BanDetectionMiddleware": 620,
        },
    }
    result = crawl(make_project(tmp_path, LIST_SPIDER, settings), box, *URLS)
    assert_kept(result)
    assert said(result, "scrapy-rotating-proxies") == [sentence("scrapy-rotating-proxies")]


# -- spidermon ----------------------------------------------------------------------------

ENGINE_STOP = "SPIDERMON_ENGINE_STOP_MONITORS"
SPIDERMON: dict[str, Any] = {
    "SPIDERMON_ENABLED": True,
    "EXTENSIONS": {SPIDERMONS: 500},
    "SPIDERMON_MAX_DOWNLOADER_EXCEPTIONS": 0,
    "SPIDERMON_MAX_ERRORS": 0,
    "SPIDERMON_MIN_ITEMS": 1,
    ENGINE_STOP: ("suites.All",),
}
SUITES = """
from scrapy_walsh.monitors import WalshMonitorSuite
from spidermon import MonitorSuite
from spidermon.contrib.scrapy.monitors import (
    DownloaderExceptionMonitor, ErrorCountMonitor, FinishReasonMonitor, ItemCountMonitor,
)

class All(MonitorSuite):
    monitors = [
        DownloaderExceptionMonitor, ErrorCountMonitor, FinishReasonMonitor, ItemCountMonitor,
        WalshMonitorSuite,
    ]
"""


def monitored(run: Callable[..., Crawl], tmp_path: Path, *urls: str, **settings: Any) -> Crawl:
    needs("spidermon")
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "suites.py").write_text(SUITES)
    away = site("away.test", {"/x": Route(status=503)})
    return run(*urls, sites=(*SITES, away), settings={**SPIDERMON, **settings})


def monitors_failed(result: Crawl) -> list[str]:
    lines = result.lines("[Spidermon]", "... FAIL")
    return [line.rpartition("/")[2].removesuffix("... FAIL") for line in lines]


def test_no_monitor_fails_for_what_a_gate_refused(
    run: Callable[..., Crawl], tmp_path: Path
) -> None:
    result = monitored(run, tmp_path, *URLS)
    assert result.stats["walsh/refused"] == 2
    assert result.lines("[Spidermon]", "10 monitors in"), result.output
    assert result.lines("[Spidermon]", "OK (skipped=2)")  # there are no stats for two of them
    assert monitors_failed(result) == []
    assert said(result, "spidermon") == [sentence("spidermon")]


def test_the_suite_fails_for_requests_that_were_given_up(
    run: Callable[..., Crawl], tmp_path: Path
) -> None:
    result = monitored(run, tmp_path, URLS[0], "http://away.test/x", WALSH_MAX_RETRIES=0)
    assert result.stats["walsh/given_up"] == 1
    assert monitors_failed(result) == ["No request was given up"]


def test_the_suite_of_the_docs_is_run_by_their_settings(
    run: Callable[..., Crawl], tmp_path: Path
) -> None:
    settings: dict[str, Any] = {}
    (snippet,) = re.findall(r"```python\n(.*?)```", DOC, re.DOTALL)
    exec(snippet, settings)  # noqa: S102  our own documentation
    shown = {name: value for name, value in settings.items() if name.isupper()}
    assert shown.keys() <= SPIDERMON.keys()
    urls = (URLS[0], "http://away.test/x")
    result = monitored(run, tmp_path, *urls, WALSH_MAX_RETRIES=0, **shown)
    assert monitors_failed(result) == ["No request was given up"]


def test_the_suite_says_where_it_must_be_named(run: Callable[..., Crawl], tmp_path: Path) -> None:
    settings = {ENGINE_STOP: None, "SPIDERMON_SPIDER_CLOSE_MONITORS": ("suites.All",)}
    result = monitored(run, tmp_path, URLS[0], **settings)
    assert monitors_failed(result) == ["The stats are complete"]


# -- scrapy-poet --------------------------------------------------------------------------

PAGE_OBJECT_SPIDER = """
import attrs, scrapy, web_poet

@attrs.define
class Page(web_poet.WebPage):
    http: web_poet.HttpClient

    async def asked(self, url):
        try:
            return (await self.http.get(url)).status
        except web_poet.exceptions.HttpError as error:
            return str(error)

class Probe(scrapy.Spider):
    name = "probe"

    def __init__(self, urls="", **kwargs):
        super().__init__(**kwargs)
        self.urls = urls.split()

    async def start(self):
        for url in self.urls:
            yield scrapy.Request(url, self.parse)

    async def parse(self, response, page: Page):
        for url in ("http://h.test/b", "http://h.test/undeclared"):
            yield {"url": url, "said": await page.asked(url)}
"""


def test_what_a_page_object_requests_passes_the_gates(run: Callable[..., Crawl]) -> None:
    needs("scrapy-poet")
    settings = CASES["scrapy-poet"][1]
    result = run(*URLS[:2], sites=SITES, spider=PAGE_OBJECT_SPIDER, settings=settings)
    assert set(result.asked("h.test")) == {"/robots.txt", "/a", "/b"}
    assert max_in_flight(result.log) == 1
    assert kept(result.gaps("h.test")[1:], 1.0)
    said_of = {(item["url"], str(item["said"]).partition(":")[0]) for item in result.items}
    assert ("http://h.test/b", "200") in said_of
    assert ("http://h.test/undeclared", "Additional request ignored") in said_of


ONE_URL_SPIDER = """
import attrs, scrapy, web_poet

class First(web_poet.WebPage):
    def to_item(self):
        return {"url": self.url, "page": "First"}

class Second(First):
    pass

class Probe(scrapy.Spider):
    name = "probe"

    async def start(self):
        for url in ("http://h.test/a", "http://h.test/a", "http://h.test/b"):
            yield scrapy.Request(url, self.parse_first, meta={"page_params": {"page": 1}})
        if getattr(self, "way", "") == "params":
            for page in (2, 3):
                params = {"page_params": {"page": page}}
                yield scrapy.Request("http://h.test/a", self.parse_first, meta=params)
        if getattr(self, "way", "") == "objects":
            yield scrapy.Request("http://h.test/b", self.parse_second)

    def parse_first(self, response, page: First):
        yield {"url": response.url, "status": response.status}

    def parse_second(self, response, page: Second):
        yield {"url": response.url, "status": response.status}
"""


@pytest.mark.parametrize("ours", [500, 700], ids=["before poet's", "after it"])
@pytest.mark.parametrize(("way", "url"), [("", ""), ("params", URLS[0]), ("objects", URLS[1])])
def test_r7_6_what_poet_tells_apart_is_one_request_and_is_said_once(
    run: Callable[..., Crawl], ours: int, way: str, url: str
) -> None:
    needs("scrapy-poet")
    settings = {"ADDONS": {OURS: ours, "scrapy_poet.Addon": 600}}
    more = {"arguments": ("-a", f"way={way}"), "settings": settings}
    result = run(sites=SITES, spider=ONE_URL_SPIDER, **more)
    assert result.asked("h.test") == ["/robots.txt", "/a", "/b"]
    assert len(result.items) == 2
    lines = result.lines("WARNING", "is filtered")
    assert [f"{url} is filtered" in line for line in lines] == ([True] if way else [])


DUMMY_SPIDER = """
import scrapy
from scrapy_poet import DummyResponse

class Probe(scrapy.Spider):
    name = "probe"

    async def start(self):
        yield scrapy.Request("http://h.test/a", self.parse)
        yield scrapy.Request("http://h.test/b", self.parse_dummy)

    def parse(self, response):
        yield {"url": response.url, "status": response.status}

    def parse_dummy(self, response: DummyResponse):
        yield {"url": response.url, "status": response.status}
"""


def test_a_page_that_poet_does_not_request_is_not_booked_as_fetched(
    run: Callable[..., Crawl], tmp_path: Path
) -> None:
    needs("scrapy-poet")
    settings = CASES["scrapy-poet"][1]
    result = run(sites=SITES, spider=DUMMY_SPIDER, settings=settings)
    assert result.asked("h.test") == ["/robots.txt", "/a"]
    (told,) = outcomes(tmp_path)
    by = "scrapy_poet.downloadermiddlewares.InjectionMiddleware"
    assert (told["url"], told["reason"]) == (URLS[1], f"answered by {by}, not requested")
    assert verify(state_dir(tmp_path / "project"))[0] == 0


# -- answers that no exchange has brought -------------------------------------------------

ANSWERS = """
import ipaddress
import scrapy
from scrapy.http import HtmlResponse

class Cache:
    # Answers in place of a site: what it is asked for stands at the end of the URL.
    more = {}

    def process_request(self, request, spider=None):
        end = request.url.rpartition("/")[2]
        if "cached" not in end:
            return None
        status, headers = 200, {"ETag": '"cached"'}
        if end == "cached-moved":
            status, headers = 302, {"Location": "http://splash.test/page"}
        if end == "cached-same":
            status, headers = 304, {}
        if end == "cached-away":
            status = 503
        body = b"<p>cached</p>"
        return HtmlResponse(request.url, status=status, headers=headers, body=body, **self.more)

class WithAddress(Cache):
    more = {"ip_address": ipaddress.ip_address("192.0.2.1")}

class Mixed(WithAddress):
    def process_request(self, request, spider=None):
        self.more = {} if request.url.endswith("/cached") else WithAddress.more
        return super().process_request(request)

class WithProtocol(Cache):
    more = {"protocol": "HTTP/1.1"}

class WithCertificate(Cache):
    more = {"certificate": object()}

class AfterAnError:
    def process_request(self, request, spider=None):
        if "cached" in request.url:
            raise scrapy.exceptions.IgnoreRequest("of the project's")

    def process_exception(self, request, exception, spider=None):
        if "cached" in request.url:
            return HtmlResponse(request.url, body=b"<p>cached</p>")
"""
CACHED = [f"http://h.test/cached{end}" for end in ("", "-moved", "-same", "-away")]


def answering(run: Callable[..., Crawl], folder: Path, way: str, *urls: str) -> Crawl:
    (folder / "project").mkdir()
    (folder / "project" / "answers.py").write_text(ANSWERS)
    settings = {**FOLLOWS, "DOWNLOADER_MIDDLEWARES": {f"answers.{way}": 700}}
    return run(*urls, sites=SITES, settings=settings)


def outcomes(folder: Path, kind: str = "answered") -> list[dict[str, Any]]:
    return [each for each in ledger_of(folder / "project") if each["kind"] == kind]


def test_what_a_middleware_answers_is_not_booked_as_fetched(
    run: Callable[..., Crawl], tmp_path: Path
) -> None:
    result = answering(run, tmp_path, "Cache", URLS[0], *CACHED)
    assert result.asked("h.test") == ["/robots.txt", "/a"]
    assert result.asked("splash.test") == [], "no site has redirected there"
    told = outcomes(tmp_path)
    assert {each["url"] for each in told} == set(CACHED)
    assert {each["reason"] for each in told} == {"answered by answers.Cache, not requested"}
    assert [each["url"] for each in outcomes(tmp_path, "fetched")] == [URLS[0]]
    assert result.stats["walsh/answered"] == 4
    assert result.stats["walsh/fetched"] == 1
    assert result.fetched(CACHED[0])
    assert not result.lines("WARNING", "came from the network")
    code, printed = verify(state_dir(tmp_path / "project"))
    assert code == 0, printed
    with closing(open_store(state_dir(tmp_path / "project"))) as store:
        assert [each.url for each in store.rows(VisitRecord)] == [URLS[0]], "a cache is no visit"
        assert not list(store.rows(Validators))


@pytest.mark.parametrize("way", ["WithAddress", "WithProtocol", "WithCertificate"])
def test_an_answer_that_came_from_the_network_is_warned_of_once(
    run: Callable[..., Crawl], tmp_path: Path, way: str
) -> None:
    result = answering(run, tmp_path, way, *CACHED[:1], f"{CACHED[0]}?again")
    (line,) = result.lines("WARNING", "says that it came from the network")
    assert f"{CACHED[0]} was answered by answers.{way}" in line
    assert len(outcomes(tmp_path)) == 2


def test_another_answer_does_not_hide_that_one_came_from_the_network(
    run: Callable[..., Crawl], tmp_path: Path
) -> None:
    result = answering(run, tmp_path, "Mixed", CACHED[0], f"{CACHED[0]}-away")
    (first,) = result.lines("WARNING", "not by scrapy_walsh; if it requested the page itself")
    (second,) = result.lines("WARNING", "says that it came from the network")
    assert f"{CACHED[0]} was answered by answers.Mixed" in first
    assert f"{CACHED[0]}-away was answered by answers.Mixed" in second


def test_an_answer_in_place_of_an_error_is_of_the_middleware_that_gave_it(
    run: Callable[..., Crawl], tmp_path: Path
) -> None:
    result = answering(run, tmp_path, "AfterAnError", URLS[0], CACHED[0])
    assert result.fetched(CACHED[0])
    (told,) = outcomes(tmp_path)
    assert told["reason"] == "answered by answers.AfterAnError, not requested"
    assert verify(state_dir(tmp_path / "project"))[0] == 0


SELENIUM = """
from scrapy_selenium import SeleniumMiddleware

class Driver:
    # Stands in for a browser, which this version of the package cannot start.
    page_source = "<p>rendered</p>"

    def get(self, url):
        self.current_url = url

class Selenium(SeleniumMiddleware):
    @classmethod
    def from_crawler(cls, crawler):
        return cls()

    def __init__(self):
        self.driver = Driver()
"""
SELENIUM_SPIDER = LIST_SPIDER.replace("import scrapy", "import scrapy, scrapy_selenium").replace(
    "scrapy.Request(url,", "scrapy_selenium.SeleniumRequest(url=url,"
)


def test_a_page_of_scrapy_selenium_is_not_booked_as_fetched(
    run: Callable[..., Crawl], tmp_path: Path
) -> None:
    needs("scrapy-selenium")
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "browser.py").write_text(SELENIUM)
    settings = {"DOWNLOADER_MIDDLEWARES": {"browser.Selenium": 800}}
    spider = SELENIUM_SPIDER
    result = run(*URLS[1:3], sites=SITES, spider=spider, settings=settings)
    assert result.asked("h.test") == ["/robots.txt"]
    assert result.fetched(URLS[1])
    assert "R2 disallowed_explicit" in result.why(URLS[2])
    (told,) = outcomes(tmp_path)
    assert (told["url"], told["reason"]) == (URLS[1], "answered by browser.Selenium, not requested")
    assert verify(state_dir(tmp_path / "project"))[0] == 0


# -- scrapyrt -----------------------------------------------------------------------------

RAISING = f"""{LIST_SPIDER}
    def raising(self, failure):
        raise RuntimeError(str(failure.value))
"""
SCRAPYRT = "from scrapyrt.cmdline import execute; execute()"


def test_scrapyrt_is_given_a_refusal_by_an_errback(box: Sandbox, tmp_path: Path) -> None:
    needs("scrapyrt")
    for each in SITES:
        box.put(each)
    project = make_project(tmp_path, RAISING, {**FOLLOWS, "WALSH_FOLLOW_LINKS": None})
    with closed_port() as port:
        words = [sys.executable, "-c", SCRAPYRT, "-i", "127.0.0.1", "-p", str(port)]
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def answer(more: str) -> dict[str, Any]:
        query = f"spider_name=probe&url={URLS[0]}{more}"
        with direct.open(f"http://127.0.0.1:{port}/crawl.json?{query}", timeout=120) as found:
            return dict(json.load(found))

    with subprocess.Popen(words, cwd=project, env=environment(project, box)) as server:
        try:
            wait_until(lambda: is_open(port))
            silent, raising, item = map(answer, ("", "&errback=raising", "&errback=failed"))
        finally:
            server.kill()
    assert (silent["status"], silent["items"], silent.get("errors")) == ("ok", [], None)
    assert silent["stats"]["walsh/refused/R6"] == 1
    assert any("R6 out_of_scope" in each for each in raising["errors"])
    assert "R6 out_of_scope" in item["items"][0]["why"]
    assert box.log == []


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
