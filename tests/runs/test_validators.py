"""R7 over three runs of the main spider, which asks for markdown first."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.proof.sandbox import Route, Sandbox
from tests.crawl.harness import AGAIN, Crawl, Runs, crawl, make_project, site

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DATE = "Sat, 23 May 2026 00:00:00 GMT"


def feed(title: str, **validators: str) -> Route:
    entry = f"<item><title>{title}</title><link>http://posts.test/{title}</link></item>"
    body = f"<rss version='2.0'><channel><title>f</title>{entry}</channel></rss>"
    return Route(body=body, content_type="application/rss+xml", **validators)  # type: ignore[arg-type]


def markdown(title: str, **validators: str) -> Route:
    body = f"# notes\n[{title}](http://posts.test/{title})\n"
    return Route(body=body, content_type="text/markdown", **validators)  # type: ignore[arg-type]


HTML = Route(body="<p>page</p>", etag='"html"')
ROUTES = {
    "weak.test": feed("weak", etag='W/"1"'),
    "dated.test": feed("dated", last_modified=DATE),
    "refreshed.test": Route(sequence=(feed("v1", etag='"1"'), feed("v2", etag='"2"'))),
    "dropped.test": Route(sequence=(feed("with", etag='"1"'), feed("without"))),
    "failing.test": Route(
        sequence=(feed("kept", etag='"1"'), Route(404), feed("kept", etag='"1"'))
    ),
    "negotiated.test": Route(
        body=HTML.body, etag=HTML.etag, accept={"text/markdown": markdown("md", etag='"md"')}
    ),
}
URLS = [f"http://{host}/p" for host in ROUTES]
#: What each run asks besides: to R7.6 these are one URL, to R7.1 two.
SLASHED = ("http://slash.test/a", "http://slash.test/a/", "http://slash.test/a")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Crawl]]:
    sites = [site(host, {"/p": route}) for host, route in ROUTES.items()]
    slash = {"/a": feed("a", etag='"a"'), "/a/": feed("b", etag='"b"')}
    settings = {**AGAIN, "SPIDER_MODULES": ["scrapy_walsh.spiders"]}
    with Runs(
        tmp_path_factory.mktemp("validators"), *sites, site("slash.test", slash), settings=settings
    ) as project:
        yield [project(*URLS, slashed, spider_name="walsh_metadata") for slashed in SLASHED]


def sent(run: Crawl, host: str, name: str = "If-None-Match") -> list[str]:
    """The values of a header in the requests for targets of *host*."""
    asked = [each for each in run.requests(host) if each.path != "/robots.txt"]
    return [value for each in asked for value in each.values(name)]


def titles(run: Crawl) -> set[str]:
    return {item["title"] for item in run.items}


def test_r7_1_and_r7_2_the_first_run_asks_without_conditions(runs: list[Crawl]) -> None:
    for host in (*ROUTES, "slash.test"):
        assert sent(runs[0], host) == sent(runs[0], host, "If-Modified-Since") == []
    assert titles(runs[0]) == {"weak", "dated", "v1", "with", "kept", "md", "a"}


def test_r7_1_an_etag_is_replayed_byte_for_byte_and_a_304_keeps_it(runs: list[Crawl]) -> None:
    assert sent(runs[1], "weak.test") == sent(runs[2], "weak.test") == ['W/"1"']  # cf-2, cf-4
    assert [each.status for each in runs[2].requests("weak.test")] == [304]
    assert [run.returncode for run in runs] == [0, 0, 0]


def test_r7_2_a_date_is_replayed_byte_for_byte(runs: list[Crawl]) -> None:
    for run in runs[1:]:
        assert sent(run, "dated.test", "If-Modified-Since") == [DATE]  # cf-3


def test_r7_3_a_304_is_no_new_data(runs: list[Crawl]) -> None:
    for run in runs[1:]:
        assert titles(run).isdisjoint({"weak", "dated", "md", "a"})


def test_r7_4_a_200_is_processed_and_its_validators_replace_the_old(runs: list[Crawl]) -> None:
    assert sent(runs[1], "refreshed.test") == ['"1"']
    assert "v2" in titles(runs[1])
    assert sent(runs[2], "refreshed.test") == ['"2"']  # cf-5


def test_r7_4_a_200_without_validators_drops_the_old(runs: list[Crawl]) -> None:
    assert sent(runs[1], "dropped.test") == ['"1"']
    assert "without" in titles(runs[1])
    assert sent(runs[2], "dropped.test") == []  # cf-6


def test_r7_4_another_status_leaves_them(runs: list[Crawl]) -> None:
    assert sent(runs[2], "failing.test")[:1] == ['"1"']


def test_r7_1_markdown_has_validators_of_its_own(runs: list[Crawl]) -> None:
    for run in runs[1:]:
        assert sent(run, "negotiated.test") == ['"md"']  # cf-7


def test_r7_1_each_url_has_its_own(runs: list[Crawl]) -> None:
    assert sent(runs[1], "slash.test") == []  # cf-8
    assert sent(runs[2], "slash.test") == ['"a"']


#: Much longer than the 10 ms after which what waits is written.
KILLED = """
import asyncio, os, pathlib, signal
import scrapy

class Probe(scrapy.Spider):
    name = "probe"
    urls = ""

    async def start(self):
        yield scrapy.Request(self.urls)

    async def parse(self, response):
        await asyncio.sleep(0.3)
        if not pathlib.Path("killed").exists():
            pathlib.Path("killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        yield {"url": response.url, "status": response.status}
"""


def test_a_kill_in_the_callback_stores_no_validators(tmp_path: Path) -> None:
    project = make_project(tmp_path / "project", KILLED)
    with Sandbox([site("tag.test", {"/p": Route(body="page", etag='"1"')})]) as box:
        killed = crawl(project, box, "http://tag.test/p")
        assert killed.returncode == -signal.SIGKILL
        run = crawl(project, box, "http://tag.test/p")
        (again,) = [each for each in run.requests("tag.test") if each.path == "/p"]
    assert "If-None-Match" not in dict(again.headers)
    assert run.fetched("http://tag.test/p"), run.output
