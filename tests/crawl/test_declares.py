"""R6: what declares a target, and that a callback declares nothing, whatever it tries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.proof.sandbox import Route, Sandbox, hosts
from tests.crawl.harness import Crawl, crawl, make_project, site, solo

if TYPE_CHECKING:
    from pathlib import Path

SPIDER = """
import scrapy
from scrapy import signals

EVIL = "http://evil.test"

def evil(name):
    return f"{EVIL}/{name}"

class Probe(scrapy.Spider):
    name = "probe"
    custom_settings = {
        "SPIDER_MIDDLEWARES": {"spiders.Other": 543, "spiders.Nearest": 5},
        "DOWNLOADER_MIDDLEWARES": {"spiders.Downloader": 500},
    }
    tried = False

    def __init__(self, urls="", **kwargs):
        super().__init__(**kwargs)

    async def start(self):
        self.also = ["http://declared.test/also"]
        first = scrapy.Request(
            "http://declared.test/", meta={"walsh_also": self.also}, errback=self.failed
        )
        yield first
        first.meta["walsh_also"].append(evil("mutated-list"))
        first.meta["walsh_also"] = [evil("mutated-meta")]
        yield scrapy.Request("http://declared.test/second", self.nothing)

    def parse(self, response):
        if self.tried:
            return
        self.tried = True
        request = response.request
        again = dict(dont_filter=True, errback=self.failed, callback=self.after)
        meta = {"walsh_also": [evil("copied-meta")]}
        yield request.replace(meta={**request.meta, **meta}, **again)
        yield scrapy.Request("http://declared.test/also", meta=meta, **again)
        yield request.replace(url=evil("replaced-url"), **again)
        start = {**meta, "is_start_request": True}
        yield request.replace(url="http://declared.test/", meta=start, **again)
        crawled = {"walsh_also": [evil("crawled")]}
        self.crawler.engine.crawl(
            scrapy.Request("http://declared.test/second", meta=crawled, **again)
        )
        self.crawler.engine.crawl(scrapy.Request(evil("engine"), **again))

    def nothing(self, response):
        pass

    def after(self, response):
        for name in (
            "copied-meta", "mutated-list", "mutated-meta", "crawled", "middleware", "downloader",
            "first",
        ):
            yield scrapy.Request(evil(name), self.nothing, errback=self.failed, dont_filter=True)

    def failed(self, failure):
        error, why = failure.type.__name__, str(failure.value)
        yield {"url": failure.request.url, "error": error, "why": why}

class Other:
    async def process_spider_output_async(self, response, result, spider=None):
        async for each in result:
            yield each
        if response.url == "http://declared.test/also":
            return
        meta = {"walsh_also": [evil("middleware")]}
        yield scrapy.Request("http://declared.test/also", dont_filter=True, meta=meta)
        yield scrapy.Request(evil("middleware"))

    def process_spider_output(self, response, result, spider=None):
        yield from result

class Nearest:
    async def process_start(self, start):
        async for each in start:
            yield each
        yield scrapy.Request(evil("first"))

class Downloader:
    def process_request(self, request, spider=None):
        request.meta["walsh_also"] = [evil("downloader")]
"""


@pytest.fixture(scope="module")
def tricked(tmp_path_factory: pytest.TempPathFactory) -> Crawl:
    sites = (site("declared.test"), site("evil.test"))
    return solo(tmp_path_factory.mktemp("tricks"), sites=sites, spider=SPIDER)


def test_r6_a_callback_declares_nothing_whatever_it_tries(tricked: Crawl) -> None:
    assert "evil.test" not in hosts(tricked.log)
    refused = [item for item in tricked.items if item["url"].startswith("http://evil.test/")]
    assert len(refused) >= 8
    assert all("R6 out_of_scope" in item["why"] for item in refused)


def test_r6_what_start_yields_declares_with_what_it_names(tricked: Crawl) -> None:
    assert {"/", "/also", "/second"} <= set(tricked.asked("declared.test"))


RESUMED = """
import scrapy
from scrapy.exceptions import CloseSpider

class Probe(scrapy.Spider):
    name = "probe"
    resumed = ""
    seen = 0

    async def start(self):
        if self.resumed:
            return
        yield scrapy.Request("http://job.test/", priority=9)
        yield scrapy.Request("http://job.test/late", meta={"walsh_also": ["http://job.test/named"]})

    def parse(self, response):
        if not self.resumed:
            meta = {"walsh_also": ["http://evil.test/"], "walsh_children": ["http://evil.test/"]}
            for url in ("http://job.test/", "http://me:hidden@job.test/late"):
                yield scrapy.Request(url, self.parse, dont_filter=True, meta=meta)
            raise CloseSpider("enough")
        for url in ("http://job.test/named", "http://evil.test/"):
            yield scrapy.Request(url, self.nothing, dont_filter=True)

    def nothing(self, response):
        pass
"""


def test_r6_a_resumed_job_declares_what_had_been_declared_and_no_more(tmp_path: Path) -> None:
    with Sandbox() as box:
        box.put(site("job.test", {"*": Route(body="p")}))
        box.put(site("evil.test"))
        project = make_project(tmp_path, RESUMED, {"JOBDIR": "job"})
        crawl(project, box)
        kept = b"".join(f.read_bytes() for f in (project / "job").rglob("*") if f.is_file())
        assert b"job.test/late" in kept
        assert b"evil.test" not in kept
        assert b"hidden" not in kept
        resumed = crawl(project, box, arguments=("-a", "resumed=1"))
    assert "/named" in resumed.asked("job.test")
    assert "evil.test" not in hosts(resumed.log)
