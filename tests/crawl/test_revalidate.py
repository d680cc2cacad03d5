"""R7: conditional requests over three runs (cf), and duplicates by canonical URL (dp)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.proof.sandbox import Route, Sandbox
from tests.crawl.harness import Crawl, crawl, make_project, site

if TYPE_CHECKING:
    from collections.abc import Callable

V1, V2, PLAIN = Route(body="1", etag='"v1"'), Route(body="2", etag='"v2"'), Route(body="3")
SITES = (
    site("weak.test", {"/p": Route(body="p", etag='W/"v1"')}),
    site("new.test", {"/p": Route(sequence=(V1, V2))}),
    site("none.test", {"/p": Route(sequence=(V1, PLAIN))}),
    site("slash.test", {"/a": Route(body="a", etag='"a"'), "/a/": Route(body="b", etag='"b"')}),
    site("gone.test", {"/p": Route(sequence=(V1, Route(404, etag='"no"'), V1))}),
)

SPIDER = """
import scrapy

class Probe(scrapy.Spider):
    name = "probe"

    def __init__(self, urls="", accept="", **kwargs):
        super().__init__(**kwargs)
        self.urls, self.accept = urls.split(), accept

    async def start(self):
        for url in self.urls:
            headers = {"Accept": self.accept} if self.accept else {}
            yield scrapy.Request(url, headers=headers, errback=self.failed)

    def parse(self, response):
        yield {"url": response.url, "status": response.status}

    def failed(self, failure):
        yield {"url": failure.request.url, "error": failure.type.__name__, "why": ""}
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Crawl]:
    settings = {"WALSH_REVISIT_REASON": "three runs"}
    project = make_project(tmp_path_factory.mktemp("three"), SPIDER, settings)
    common = [f"http://{each.host}/p" for each in SITES if each.host != "slash.test"]
    with Sandbox() as box:
        for each in SITES:
            box.put(each)
        return [
            crawl(
                project, box, *common, f"http://slash.test{path}", "http://markdown.test/notes",
                arguments=("-a", f"accept={accept}"),
            )
            for path, accept in (("/a", "text/html"), ("/a/", ""), ("/a", "text/html"))
        ]  # fmt: skip


def sent(run: Crawl, host: str, name: str = "If-None-Match") -> list[str]:
    (asked,) = [each for each in run.requests(host) if each.path != "/robots.txt"]
    return asked.values(name)


def test_r7_1_the_etag_is_replayed_as_received(runs: list[Crawl]) -> None:
    assert sent(runs[0], "weak.test") == []
    assert sent(runs[2], "weak.test") == ['W/"v1"']  # cf-2


def test_r7_3_a_304_is_no_item_and_keeps_the_validators(runs: list[Crawl]) -> None:
    assert runs[0].fetched("http://weak.test/p")
    for run in runs[2:]:
        assert not run.fetched("http://weak.test/p")
        assert sent(run, "weak.test") == ['W/"v1"']  # cf-4


@pytest.fixture
def ask(box: Sandbox, run: Callable[..., Crawl]) -> Callable[..., Crawl]:
    def _ask(*urls: str) -> Crawl:
        return run(*urls, sites=(), settings={"WALSH_REVISIT_REASON": "again"})

    for each in SITES:
        box.put(each)
    return _ask


def test_r7_4_a_200_refreshes_the_validators(ask: Callable[..., Crawl]) -> None:
    urls = ("http://new.test/p", "http://none.test/p", "http://weak.test/p", "http://gone.test/p")
    first, second, third = ask(*urls), ask(*urls), ask(*urls)
    assert sent(first, "new.test") == []
    assert sent(second, "new.test") == ['"v1"']
    assert sent(third, "new.test") == ['"v2"']  # cf-5
    assert sent(third, "none.test") == []  # cf-6
    assert sent(second, "weak.test") == sent(third, "weak.test") == ['W/"v1"']  # cf-4
    assert not second.fetched("http://weak.test/p")
    assert sent(third, "gone.test") == ['"v1"']  # a 404 says nothing about what was held
    assert first.returncode == second.returncode == third.returncode == 0


def test_r7_1_validators_are_kept_per_representation(runs: list[Crawl]) -> None:
    # cf-7: the first and third runs ask for HTML, the second as every spider does
    assert sent(runs[1], "markdown.test") == []
    assert sent(runs[2], "markdown.test") == ['"notes-html"']


def test_r7_1_validators_are_kept_per_exact_url(runs: list[Crawl]) -> None:
    assert sent(runs[1], "slash.test") == []  # cf-8
    assert sent(runs[2], "slash.test") == ['"a"']


#: First URL, second URL, how many of the two are asked.
PAIRS = {
    "dp-1": ("http://dp1.test/a", "http://dp1.test/a/", 1),
    "dp-2": ("http://dp2.test/a?b=2&a=1", "http://dp2.test/a?a=1&b=2", 2),
    "dp-3": ("http://dp3.test/a#one", "http://dp3.test/a#two", 1),
    "dp-5": ("http://DP5.test:80/a", "http://dp5.test/a", 1),
    "dp-6": ("http://dp6.test/A", "http://dp6.test/a", 2),
}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Crawl:
    project = make_project(tmp_path_factory.mktemp("pairs"))
    with Sandbox() as box:
        for name in PAIRS:
            box.put(site(f"{name.replace('-', '')}.test"))
        return crawl(project, box, *(url for pair in PAIRS.values() for url in pair[:2]))


@pytest.mark.parametrize("name", PAIRS)
def test_r7_6_duplicates_go_by_the_canonical_url(pairs: Crawl, name: str) -> None:
    asked = [path for path in pairs.asked(f"{name.replace('-', '')}.test") if "robots" not in path]
    assert len(asked) == PAIRS[name][2]
