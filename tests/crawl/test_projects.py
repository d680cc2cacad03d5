"""What projects that exist have: one rich crawl of such a project, its plan, and doctor's look."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import scrapy

from scrapy_walsh.proof.sandbox import Sandbox
from tests.crawl.harness import Crawl, crawl, make_project, run_scrapy, site, walsh

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.crawl

LONG = f"http://h.test/{'x' * 2100}"
SPIDER = f"""
import urllib.request
import os
import scrapy
from scrapy.http import HtmlResponse
from scrapy.pipelines.files import FilesPipeline

class Documents(FilesPipeline):
    pass

class Browser:
    # As scrapy-selenium's: another program fetches the page, and this answers.
    def process_request(self, request, spider=None):
        return self.fetched(request) if "/by-browser" in request.url else None

    def fetched(self, request):
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({{"http": os.environ["http_proxy"]}})
        )
        asked = urllib.request.Request(request.url, headers={{"User-Agent": "Headless"}})
        return HtmlResponse(request.url, body=opener.open(asked).read(), request=request)

class Own:
    # Makes an answer of another answer: it fetches nothing.
    def process_response(self, request, response, spider=None):
        return HtmlResponse(response.url, body=response.body, request=request)

class OldStart:
    def process_start_requests(self, start_requests, spider):
        yield from start_requests

class Probe(scrapy.Spider):
    name = "probe"
    start_urls = [
        *("http://h.test/1", "http://h.test/1", "http://h.test/1#x", "http://h.test/1/"),
        *("http://h.test/2", {LONG!r}),
        *("http://b.test/by-browser/1", "http://b.test/by-browser/2"),
    ]

    def parse(self, response):
        yield {{"url": response.url, "file_urls": ["http://h.test/file.pdf"]}}

class Again(Probe):
    name = "again"

    async def start(self):
        for url in ("http://h.test/3", "http://h.test/3/"):
            yield scrapy.Request(url, dont_filter=True)
"""
SETTINGS: dict[str, Any] = {
    "DOWNLOADER_MIDDLEWARES": {"spiders.Browser": 543, "spiders.Own": 544},
    "DUPEFILTER_CLASS": "scrapy.dupefilters.BaseDupeFilter",
    "ITEM_PIPELINES": {"spiders.Documents": 1},
    "FILES_STORE": "files",
    "WALSH_SCRAPING": True,
    "WALSH_IDENTITY": {
        "product": "ExampleBot/1.0",
        "policy_url": "http://operator.test/bot/",
        "blocklist_url": "http://operator.test/.well-known/walsh-research/blocklist.json",
    },
}


class World(NamedTuple):
    run: Crawl
    again: Crawl
    plan: dict[str, Any]
    doctor: list[dict[str, str]]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    project: Path = make_project(tmp_path_factory.mktemp("own") / "p", SPIDER, SETTINGS)
    with Sandbox() as box:
        for host in ("h.test", "b.test"):
            box.put(site(host))
        plan = walsh(project, "plan", "probe", "--json", box=box)
        run = crawl(project, box)
        again = crawl(project, box, spider_name="again")
        doctor = run_scrapy(project, box, "walsh", "doctor", "--json")
    found = json.loads(doctor.stdout)["findings"]
    return World(run, again, json.loads(plan.stdout.splitlines()[-1]), found)


def said(world: World, words: str) -> list[str]:
    return [line for line in world.run.output.splitlines() if words in line]


def test_r7_start_urls_of_one_canonical_url_are_one_request(world: World) -> None:
    assert world.run.targets("h.test") == ["/1", "/2"]
    assert "5 sources" in world.run.output  # /1, /2, the long one and two by the browser
    asked = [each["url"] for each in world.plan["requests"] if each["purpose"] == "target"]
    assert asked.count("http://h.test/1") == 1
    assert "http://h.test/1/" not in asked


def test_r7_a_start_that_the_project_has_written_may_ask_again(world: World) -> None:
    assert world.again.targets("h.test") == ["/3", "/3/"]


def test_an_answer_that_is_not_ours_is_counted_and_said_once(world: World) -> None:
    (line,) = said(world, "was answered by spiders.Browser, not by scrapy_walsh; if it requested")
    assert "WARNING: http://b.test/by-browser/1" in line
    assert "R1 to R5 do not hold" in line
    assert world.run.stats["walsh/answered"] == 2


def test_a_url_beyond_urllength_limit_is_named_in_the_run_and_in_the_plan(world: World) -> None:
    why = "its URL has 2114 characters, and URLLENGTH_LIMIT is 2083: raise it"
    (line,) = said(world, why)
    assert "WARNING" in line
    assert "1 left out" in world.run.output.splitlines()[-1]
    assert [notice for notice in world.plan["notices"] if why in notice]
    assert LONG not in [target["url"] for target in world.plan["targets"]]


def test_files_of_a_media_pipeline_are_refused_in_one_line(world: World) -> None:
    # Before 2.19 Scrapy itself logs what its pipeline raises, with a traceback.
    assert scrapy.version_info < (2, 19) or not said(world, "Traceback")
    assert len(said(world, "/file.pdf: ")) == 1, world.run.output
    (line,) = said(world, "spiders.Documents requests files, which are no targets")
    assert "WARNING" in line
    assert [line for line in world.plan["notices"] if "spiders.Documents requests" in line]


def test_a_project_without_a_duplicate_filter_is_told(world: World) -> None:
    assert len(said(world, "WARNING: DUPEFILTER_CLASS is scrapy's BaseDupeFilter")) == 1


def test_doctor_says_the_same_before(world: World) -> None:
    marks = {each["text"].partition(" ")[0]: each["mark"] for each in world.doctor}
    assert marks["spiders.Browser"] == "FAIL"
    assert "spiders.Own" not in marks
    assert marks["spiders.Documents"] == "warn"
    assert marks["DUPEFILTER_CLASS"] == "warn"


def test_a_middleware_that_scrapy_cannot_combine_with_ours_is_refused_in_one_line(
    tmp_path: Path,
) -> None:
    """Scrapy before 2.19 raises a traceback; 2.19 ignores ``process_start_requests()``."""
    settings = SETTINGS | {"SPIDER_MIDDLEWARES": {"spiders.OldStart": 543}}
    project = make_project(tmp_path / "p", SPIDER, settings)
    with Sandbox() as box:
        box.put(site("h.test"))
        run = crawl(project, box, spider_name="again")
    if not hasattr(scrapy.Spider, "start_requests"):
        assert run.targets("h.test") == ["/3", "/3/"]
        return
    assert run.returncode == 1
    assert run.log == []
    assert "Traceback" not in run.output
    (line,) = [row for row in run.output.splitlines() if "spiders.OldStart has" in row]
    assert "add process_start() to it (SPIDER_MIDDLEWARES)" in line
