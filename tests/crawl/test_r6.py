"""R6: nothing but the declared targets, and nothing of them kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.proof.sandbox import Route, hosts
from scrapy_walsh.sources.items import MetadataItem
from tests.crawl.harness import OWN_IDENTITY, Crawl, site, solo

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LINKS = [*(f"/relative/{n}" for n in range(5)), *(f"http://linked.test/{n}" for n in range(5))]
MARK = "a-sentence-that-must-not-stay"
PAGE = f"""<!doctype html><title>page</title><p>{MARK}</p>
<meta http-equiv="refresh" content="0; url=/refreshed">
<link rel="stylesheet" href="/style.css"><link rel="alternate" href="/feed.xml">
<link rel="preload" as="font" href="/font.woff2"><script src="/app.js"></script>
<img src="/photo.png" srcset="/photo-2.png 2x"><iframe src="/frame"></iframe>
{"".join(f'<a href="{link}">link</a>' for link in LINKS)}
"""

SPIDER = """
import scrapy

class Probe(scrapy.Spider):
    name = "probe"

    def __init__(self, urls="", **kwargs):
        super().__init__(**kwargs)
        self.start_urls = urls.split()

    def parse(self, response):
        yield {"url": response.url, "status": response.status}
        yield from response.follow_all(xpath="//a/@href", errback=self.failed)
        for link in response.xpath("//*/@src").getall():
            yield response.follow(link, errback=self.failed, dont_filter=True)
        yield scrapy.Request("http://undeclared.test/x", errback=self.failed)

    def failed(self, failure):
        error, why = failure.type.__name__, str(failure.value)
        yield {"url": failure.request.url, "error": error, "why": why}
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scope")


@pytest.fixture(scope="module")
def scoped(project: Path) -> Crawl:
    sites = (site("page.test", {"/": Route(body=PAGE)}), site("linked.test"))
    settings = {
        "METAREFRESH_ENABLED": True,
        "HTTPCACHE_ENABLED": True,
        "WALSH_IDENTITY": OWN_IDENTITY,  # the spider looks for links, as walsh-research may not
        "WALSH_SCRAPING": True,
    }
    return solo(project, "http://page.test/", sites=sites, spider=SPIDER, settings=settings)


def test_r6_1_each_refusal_is_said(scoped: Crawl) -> None:
    for link in LINKS:
        url = link if link.startswith("http") else f"http://page.test{link}"
        assert "R6 out_of_scope" in scoped.why(url)


def test_the_last_line_counts_refused_links_and_says_how_to_follow_them(scoped: Crawl) -> None:
    said = (
        "WARNING: walsh: 1 of 1 source read or unchanged; 14 links refused (R6): set WALSH_FOLLOW"
    )
    assert said in scoped.output.splitlines()[-1]


def test_r6_3_no_sub_resource_is_asked(scoped: Crawl) -> None:
    for name in ("app.js", "photo.png", "frame"):
        assert "R6 out_of_scope" in scoped.why(f"http://page.test/{name}")


def test_r6_5_no_page_is_kept(scoped: Crawl, project: Path) -> None:
    assert scoped.fetched("http://page.test/")
    files = [path for path in (project / ".scrapy").rglob("*") if path.is_file()]
    assert files, "no state was written: nothing was proved"
    assert not [path for path in files if MARK.encode() in path.read_bytes()]
    assert not (project / ".scrapy" / "httpcache").exists()
    assert len(scoped.lines("WARNING", "HTTPCACHE_ENABLED")) == 1


def test_r6_4_an_item_has_no_content() -> None:
    fields = set(MetadataItem.__annotations__)
    assert fields == {
        "source", "title", "url", "published", "via", "canonical_url", "fetched_at", "usage",
    }  # fmt: skip


def test_r6_1_the_walsh_research_identity_may_not_follow_links(run: Callable[..., Crawl]) -> None:
    result = run("http://path.test/", settings={"WALSH_FOLLOW_LINKS": True})
    assert result.returncode != 0
    assert result.log == []


def test_another_identity_may_and_the_other_gates_stay(run: Callable[..., Crawl]) -> None:
    body = '<a href="/next">n</a><a href="/private/x">p</a><a href="http://blocked.test/x">b</a>'
    sites = (site("own.test", {"/": Route(body=body)}, "User-agent: *\nDisallow: /private/\n"),)
    settings = {"WALSH_FOLLOW_LINKS": True, "WALSH_IDENTITY": OWN_IDENTITY}
    result = run("http://own.test/", sites=sites, spider=SPIDER, settings=settings)
    assert result.asked("own.test") == ["/robots.txt", "/", "/next"]
    assert "blocked.test" not in hosts(result.log)
