"""R7, D42: answers whose links wait: more than may wait, and when a run is interrupted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy_walsh.proof.sandbox import LoggedRequest, Route
from scrapy_walsh.state.records import VisitRecord
from tests.crawl.harness import DAY, OWN_IDENTITY, Runs, crawl, site, stop, targets

if TYPE_CHECKING:
    from pathlib import Path

#: Each page has a link to one slow host, where the links wait for one another.
SPIDER = """
import scrapy
from scrapy_walsh.adapters import delivery

delivery.MOST = 2

class Probe(scrapy.Spider):
    name = "probe"

    def __init__(self, urls="", **kwargs):
        super().__init__(**kwargs)
        self.start_urls = urls.split()

    async def start(self):
        for url in self.start_urls:
            yield scrapy.Request(url)

    def parse(self, response):
        if "/next" not in response.url:
            host = response.url.split("/")[2]
            yield {"url": response.url}
            yield scrapy.Request(f"http://slow.test/next/{host}")
"""
SETTINGS: dict[str, Any] = {
    "WALSH_IDENTITY": OWN_IDENTITY,
    "WALSH_FOLLOW_LINKS": True,
    "WALSH_REVISIT": 3600,
}
NAMES = [f"p{number}" for number in range(6)]
URLS = [f"http://{name}.test/p" for name in NAMES]


def place(folder: Path, names: list[str], delay: int) -> Runs:
    pages = [site(f"{name}.test", {"/p": Route(body="page", etag='"1"')}) for name in names]
    slow = site("slow.test", robots=f"User-agent: *\nAllow: /\nCrawl-delay: {delay}\n")
    return Runs(folder, *pages, slow, spider=SPIDER, settings=SETTINGS)


def conditional(log: list[LoggedRequest]) -> set[str]:
    """The hosts whose page was requested with validators."""
    found = [each for each in log if each.path == "/p"]
    return {each.host.partition(".")[0] for each in found if each.values("If-None-Match")}


def test_r7_of_too_many_answers_that_wait_the_oldest_get_no_validators(tmp_path: Path) -> None:
    with place(tmp_path, NAMES, 2) as runs:
        first = runs(*URLS)
        assert len(first.targets("slow.test")) == len(NAMES)
        order = [each.host.partition(".")[0] for each in first.log if each.path == "/p"]
        assert len(first.lines("WARNING", "more than 2 answers wait")) == 1
        (line,) = first.lines("fetched in full next time, because")
        lost = {name for name in NAMES if f"http://{name}.test/p" in line}
        assert lost
        # The first link may have been sent before the other pages came; the last two waited last.
        assert lost <= set(order[:-2])
        assert first.returncode == 0
        runs.pass_time(DAY)
        assert conditional(runs(*URLS).log) == set(NAMES) - lost


def test_r7_ctrl_c_before_the_links_were_sent_brings_the_page_again(tmp_path: Path) -> None:
    """R8's visit is stored, since the callback has ended; the page then comes in full."""
    with place(tmp_path, NAMES[:2], 30) as runs:

        def one_link_sent(log: list[LoggedRequest]) -> bool:
            pages = [each for each in log if each.path == "/p" and each.completed]
            return len(pages) == 2 and any(each.path.startswith("/next") for each in log)

        words = ("crawl", "probe", "-a", f"urls={' '.join(URLS[:2])}")
        first = stop(runs.project, runs.box, *words, when=one_link_sent, after=1.0)
        (sent,) = first.targets("slow.test")
        delivered = sent.rpartition("/")[2].partition(".")[0]
        (lost,) = set(NAMES[:2]) - {delivered}
        (line,) = first.lines("fetched in full next time, because")
        assert f"http://{lost}.test/p" in line
        with runs.store() as store:
            assert {each.url for each in store.rows(VisitRecord)} == set(URLS[:2])
        assert targets(crawl(runs.project, runs.box, *URLS[:2]).log, f"{lost}.test") == []
        runs.pass_time(DAY)
        last = crawl(runs.project, runs.box, *URLS[:2])
        assert conditional(last.log) == {delivered}
        assert f"/next/{lost}.test" in last.targets("slow.test")
