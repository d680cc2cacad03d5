"""A spider that misbehaves on purpose: none of its tricks gets past the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.proof.sandbox import Route, hosts, max_in_flight, requests, user_agents
from tests.crawl.harness import USER_AGENT, Crawl, kept, site, solo

if TYPE_CHECKING:
    from pathlib import Path

PRELUDE = """
import scrapy

class Rotate:
    def process_request(self, request, spider=None):
        request.headers["User-Agent"] = f"Browser/{id(request)}"

class RotateLate(Rotate):
    pass

class Rude(scrapy.Spider):
    user_agent = "AnotherBot/9.9"
    custom_settings = {
        "USER_AGENT": "FromTheSpider/1.0",
        "CONCURRENT_REQUESTS": 32,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
        "DOWNLOAD_DELAY": 0,
        "ROBOTSTXT_OBEY": False,
        "RETRY_ENABLED": True,
        "RETRY_TIMES": 9,
        "COOKIES_ENABLED": True,
        "HTTPCACHE_ENABLED": True,
        "METAREFRESH_ENABLED": True,
        "DEFAULT_REQUEST_HEADERS": {"User-Agent": "FromTheDefaults/1.0"},
        "DOWNLOADER_MIDDLEWARES": {"spiders.Rotate": 30, "spiders.RotateLate": 999},
    }

    def failed(self, failure):
        error, why = failure.type.__name__, str(failure.value)
        yield {"url": failure.request.url, "error": error, "why": why}

    def parse(self, response):
        yield {"url": response.url, "status": response.status, "bytes": len(response.body)}
"""

REQUESTS = (
    PRELUDE
    + """
class Probe(Rude):
    name = "probe"

    async def start(self):
        for url, options in (
            ("http://ua.test/plain", {}),
            ("http://ua.test/header", {"headers": {"User-Agent": "Mozilla/5.0 Firefox/1"}}),
            ("http://case.test/", {"headers": {"user-AGENT": "lower"}}),
            ("http://two.test/", {"headers": [("User-Agent", "one"), ("User-Agent", "two")]}),
            ("http://none.test/", {"headers": {"User-Agent": None}}),
            ("http://empty.test/", {"headers": {"User-Agent": ""}}),
            ("http://host.test/", {"headers": {"Host": "blocked.test"}}),
            ("http://alive.test/1", {"headers": {"Connection": "keep-alive"}}),
            ("http://alive.test/2", {"headers": {"Connection": "keep-alive"}}),
            ("http://path.test/private/x", {"meta": {"dont_obey_robotstxt": True}}),
            ("http://slots.test/1", {"meta": {"download_slot": "a", "download_delay": 0}}),
            ("http://slots.test/2", {"meta": {"download_slot": "b", "download_delay": 0}}),
            ("http://slots.test/3", {"meta": {"download_slot": "c", "download_latency": 0}}),
            ("http://list.test/", {"meta": {"handle_httpstatus_list": [429, 503]}}),
            ("http://all.test/", {"meta": {"handle_httpstatus_all": True, "dont_retry": True}}),
            ("http://stay.test/", {"meta": {"dont_redirect": True}}),
            ("http://blocked.test/x", {"meta": {"walsh_document": object()}}),
            ("http://post.test/", {"method": "POST", "body": "x"}),
        ):
            yield scrapy.Request(url, errback=self.failed, dont_filter=True, **options)
"""
)

CALLBACKS = (
    PRELUDE
    + """
    async def get(self, url):
        request = scrapy.Request(url, meta={"is_start_request": True})
        engine = self.crawler.engine
        try:
            if hasattr(engine, "download_async"):
                await engine.download_async(request)
            else:
                from scrapy.utils.defer import maybe_deferred_to_future
                await maybe_deferred_to_future(engine.download(request))
        except Exception as error:
            self.logger.info("download of %s: %s", url, error)

class Probe(Rude):
    name = "probe"

    custom_settings = {
        **Rude.custom_settings,
        "ITEM_PIPELINES": {
            "scrapy.pipelines.files.FilesPipeline": 1,
            "scrapy.pipelines.images.ImagesPipeline": 2,
        },
        "FILES_STORE": "files",
        "IMAGES_STORE": "images",
        "MEDIA_ALLOW_REDIRECTS": True,
    }

    async def start(self):
        meta = {"walsh_also": ["http://start.test/by-hand"]}
        yield scrapy.Request("http://start.test/", self.linked, errback=self.failed, meta=meta)

    async def linked(self, response):
        ask = {"callback": self.parse, "errback": self.failed, "dont_filter": True}
        yield {"url": response.url, "status": 200,
               "file_urls": ["http://files.test/a.pdf", "http://blocked.test/a.pdf"],
               "image_urls": ["http://images.test/a.png"]}
        yield response.follow("/link", **ask)
        yield scrapy.Request("http://copied.test/", meta=response.meta, **ask)
        yield scrapy.Request("http://starts.test/", meta={"is_start_request": True}, **ask)
        yield scrapy.Request(
            "http://hops.test/", meta={"redirect_urls": [response.url], "redirect_times": 1}, **ask)
        also = {"walsh_also": ["http://also.test/", "http://also.test/2"]}
        yield scrapy.Request("http://also.test/", meta=also, **ask)
        yield scrapy.Request("http://also.test/2", **ask)
        yield response.request.replace(url="http://replaced.test/", dont_filter=True)
        self.crawler.engine.crawl(scrapy.Request("http://engine.test/", **ask))
        await self.get("http://download.test/")
        await self.get("http://path.test/private/x")
        await self.get("http://blocked.test/x")
        await self.get("http://start.test/by-hand")
        await self.get("file:///etc/hostname")
"""
)

REWRITES = (
    PRELUDE
    + """
class Rewrite:
    def process_request(self, request, spider=None):
        if request.url == "http://mutated.test/x":
            request._set_url("http://blocked.test/x")
        if request.url == "http://replaced.test/x":
            return request.replace(url="http://blocked.test/y")
        if request.url == "http://robots.test/robots.txt":
            return request.replace(url="http://blocked.test/robots.txt")
        if request.url == "http://changed.test/robots.txt":
            request._set_url("http://blocked.test/changed")

class Probe(Rude):
    name = "probe"
    custom_settings = {"DOWNLOADER_MIDDLEWARES": {"spiders.Rewrite": 999}}

    async def start(self):
        for name in ("mutated", "replaced", "robots", "changed"):
            yield scrapy.Request(f"http://{name}.test/x", errback=self.failed)
"""
)

LATER = Route(503)
SLOW = Route(429, headers={"Retry-After": "1"})
FAST = {"WALSH_BACKOFF_BASE": 0.01, "WALSH_MAX_RETRIES": 1}


@pytest.fixture(scope="module")
def asks(tmp_path_factory: pytest.TempPathFactory) -> Crawl:
    sites = (
        *(site(f"{name}.test") for name in ("ua", "case", "two", "none", "empty", "host", "alive")),
        *(site(f"{name}.test") for name in ("slots", "post")),
        site("list.test", {"/": LATER}),
        site("all.test", {"/": SLOW}),
        site("stay.test", {"/": Route(302, location="/next")}),
    )
    directory = tmp_path_factory.mktemp("asks")
    return solo(directory, sites=sites, spider=REQUESTS, settings=FAST)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("callbacks")


@pytest.fixture(scope="module")
def callbacks(project: Path) -> Crawl:
    return solo(project, sites=(site("start.test"),), spider=CALLBACKS, settings=FAST)


@pytest.fixture(scope="module")
def rewrites(tmp_path_factory: pytest.TempPathFactory) -> Crawl:
    names = ("mutated", "replaced", "robots", "changed")
    sites = tuple(site(f"{name}.test") for name in names)
    return solo(tmp_path_factory.mktemp("rewrites"), sites=sites, spider=REWRITES, settings=FAST)


def test_the_rotating_middlewares_are_really_installed(asks: Crawl) -> None:
    assert asks.lines("'spiders.Rotate'")
    assert asks.lines("'spiders.RotateLate'")


def test_r3_2_a_url_rewritten_behind_the_gate_reaches_no_blocked_host(rewrites: Crawl) -> None:
    assert rewrites.returncode == 0
    assert rewrites.lines("'spiders.Rewrite'")
    assert rewrites.asked("blocked.test") == []


def test_r1_7_one_user_agent_whatever_the_spider_sets(asks: Crawl, callbacks: Crawl) -> None:
    for run in (asks, callbacks):
        assert run.returncode == 0
        assert user_agents(run.log) == {USER_AGENT}


@pytest.mark.parametrize("host", ["ua", "case", "two", "none", "empty", "host", "alive"])
def test_r1_1_exactly_one_user_agent_line(asks: Crawl, host: str) -> None:
    targets = [each for each in asks.requests(f"{host}.test") if each.path != "/robots.txt"]
    assert targets
    assert all(each.values("User-Agent") == [USER_AGENT] for each in targets)


def test_r1_1_the_host_asked_is_the_host_judged(asks: Crawl) -> None:
    (asked,) = [each for each in asks.requests("host.test") if each.path == "/"]
    assert asked.values("Host") == ["host.test"]
    assert "blocked.test" not in hosts(asks.log)


def test_r4_1_no_connection_is_kept_for_a_second_request(asks: Crawl) -> None:
    connections = [each.connection for each in requests(asks.log)]
    assert len(set(connections)) == len(connections)


def test_r4_1_thirty_two_at_once_are_still_one(asks: Crawl, callbacks: Crawl) -> None:
    assert max_in_flight(asks.log) == max_in_flight(callbacks.log) == 1


@pytest.mark.parametrize("host", ["ua.test", "alive.test", "slots.test"])
def test_r4_3_slots_and_delays_of_the_spider_change_no_gap(asks: Crawl, host: str) -> None:
    assert kept(asks.gaps(host)[1:], 1.0)


def test_r2_2_dont_obey_robotstxt_is_not_obeyed(asks: Crawl) -> None:
    assert asks.asked("path.test") == ["/robots.txt"]


@pytest.mark.parametrize("host", ["list.test", "all.test"])
def test_r5_8_a_429_or_503_reaches_no_callback(asks: Crawl, host: str) -> None:
    assert asks.asked(host) == ["/robots.txt", "/", "/"]
    assert kept(asks.gaps(host)[1:], 1.0)
    assert not asks.fetched(f"http://{host}/")
    assert "GaveUp" in asks.why(f"http://{host}/")


def test_r6_2_dont_redirect_asks_no_more_and_not_less(asks: Crawl) -> None:
    assert asks.asked("stay.test") == ["/robots.txt", "/"]


def test_r3_2_a_made_up_mark_opens_no_door(asks: Crawl) -> None:
    assert "R3 blocked_operator" in asks.why("http://blocked.test/x")


@pytest.mark.parametrize(
    "name", ["copied", "starts", "hops", "also", "replaced", "engine", "download"]
)
def test_r6_2_nothing_undeclared_is_asked(callbacks: Crawl, name: str) -> None:
    assert f"{name}.test" not in hosts(callbacks.log)
    assert callbacks.lines(f"refused http://{name}.test/", "R6 out_of_scope")


def test_r6_3_media_pipelines_fetch_nothing(callbacks: Crawl) -> None:
    assert not {"files.test", "images.test", "blocked.test", "path.test"} & set(
        hosts(callbacks.log)
    )


def test_r4_2_a_declared_url_asked_for_by_hand_is_spaced(callbacks: Crawl) -> None:
    assert callbacks.asked("start.test") == ["/robots.txt", "/", "/by-hand"]
    assert kept(callbacks.gaps("start.test")[1:], 1.0)


def test_r6_2_a_file_is_not_read(callbacks: Crawl) -> None:
    assert callbacks.lines("download of file:///etc/hostname", "R6")


def test_r6_5_no_body_is_cached(callbacks: Crawl, project: Path) -> None:
    assert callbacks.fetched("http://start.test/")
    assert not (project / ".scrapy" / "httpcache").exists()
    assert not [path for path in (project / "files").rglob("*") if path.is_file()]
