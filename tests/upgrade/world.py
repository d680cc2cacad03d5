"""The sites, the spider and the clock that the old version's data was made with, and is met with.

Used by ``make_data.py`` under the old version and by the tests under that of today: a copy of
what it left behind, in a project whose clocks go on from there.
"""

from __future__ import annotations

import gzip
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy_walsh.proof.sandbox import Route, Sandbox, Site, blocklist
from tests.crawl.harness import (
    CLOCKS,
    LIST,
    SCHEMA,
    Crawl,
    crawl,
    give_clocks,
    make_project,
    move_clocks,
    run_scrapy,
    served,
    site,
    state_dir,
)

if TYPE_CHECKING:
    import subprocess

HOUR, DAY = 3600.0, 86400.0
#: Unix seconds at which the first run of the data begins: 2026-06-01, 06:00 UTC.
BEGINNING = 1780293600.0
#: When the last run of the data begins, and a time at which all of them are over.
LAST_RUN = BEGINNING + 2 * DAY + 1800.0
END = LAST_RUN + 60.0

PAGE, FEED = "http://page.test/p", "http://feed.test/feed"
BUSY = "http://busy.test/p"
SLOW = ("http://slow.test/1", "http://slow.test/2")
CLOSED = "http://closed.test/p"
OPEN_PATH, PRIVATE_PATH = "http://dark.test/open", "http://dark.test/private/p"
BARE = "http://bare.test/p"
OPTED_OUT = "http://www.optout.test/p"
MOVED = "http://moved.test/p"
FAILING = "http://failing.test/p"
AGAIN = "http://again.test/p"
#: What the daily run asks.
DAILY = (PAGE, BUSY, *SLOW, CLOSED, OPEN_PATH, PRIVATE_PATH, BARE, OPTED_OUT, MOVED)

#: Seconds that busy.test asks for, and slow.test between two requests.
RETRY_AFTER, CRAWL_DELAY = 5 * DAY, 2 * HOUR
ETAG = '"page-1"'
#: Why R8 was lifted for the last run of bare.test.
REASON = "the operator asked for a second look"

SETTINGS: dict[str, Any] = {
    "SPIDER_MODULES": ["spiders", "scrapy_walsh.spiders.walsh_metadata"],
    "WALSH_MAX_RETRIES": 1,
}

#: ``again``: each answered URL is requested once more in the same run.
SPIDER = """
import scrapy

class Probe(scrapy.Spider):
    name = "probe"
    urls = again = ""

    async def start(self):
        for url in self.urls.split():
            yield scrapy.Request(url, callback=self.parse, errback=self.failed)

    def parse(self, response):
        yield {"url": response.url, "status": response.status, "bytes": len(response.body)}
        if self.again and not response.meta.get("second"):
            yield scrapy.Request(
                response.request.url, callback=self.parse, errback=self.failed,
                dont_filter=True, meta={"second": True},
            )

    def failed(self, failure):
        error, why = failure.type.__name__, str(failure.value)
        yield {"url": failure.request.url, "error": error, "why": why}
"""

RSS = (
    '<?xml version="1.0"?><rss version="2.0"><channel><title>t</title>'
    "<item><title>one</title><link>http://news.test/one</link></item>"
    "<item><title>two</title><link>http://news.test/two</link></item></channel></rss>"
)


def listed() -> Route:
    """The operator's list without a schema of its own."""
    return served(blocklist("http://operator.test", "optout.test", inline=False))


def sites() -> list[Site]:
    """Every host as it is at the beginning."""
    page = Route(body="<p>page</p>", etag=ETAG)
    schema = served(blocklist()["schema"])
    star = "User-agent: *\n"
    return [
        Site("operator.test", {LIST: listed(), SCHEMA: schema}),
        site("page.test", {"/p": page}),
        site("feed.test", {"/feed": Route(body=RSS, content_type="application/rss+xml")}),
        site("busy.test", {"/p": Route(429, headers={"Retry-After": f"{RETRY_AFTER:.0f}"})}),
        site("slow.test", robots=f"{star}Crawl-delay: {CRAWL_DELAY:.0f}\n"),
        site("closed.test", robots=f"{star}Disallow: /\n"),
        site("dark.test", robots=f"{star}Disallow: /private/\n"),
        site("bare.test", {"/robots.txt": Route(404)}),
        site("www.optout.test"),
        site("moved.test", {"/p": Route(301, location="http://hop.test/p")}),
        site("hop.test"),
        site("failing.test", {"/p": Route(503)}),
        site("again.test"),
    ]


DATA = Path(__file__).parent / "data"
UNREACHABLE = Route(behaviour="reset")


def with_clocks(directory: Path, settings: dict[str, Any] | None = None) -> Path:
    """A project in *directory* whose clocks :func:`move_clocks` moves."""
    return give_clocks(make_project(directory, SPIDER, {**SETTINGS, **(settings or {})}))


def copy(name: str, target: Path) -> Path:
    """A copy of folder *name* of the data at *target*."""
    shutil.copytree(DATA / name, target)
    for packed in target.rglob("*.gz"):
        packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
        packed.unlink()
    return target


@dataclass
class Project:
    """A project with a copy of the old state, and the sandbox that it crawls."""

    directory: Path
    box: Sandbox

    @property
    def state(self) -> Path:
        return state_dir(self.directory)

    def at(self, moment: float, jump: float = 0.0) -> None:
        """It is *moment* (Unix seconds) now; the wall clock says *jump* seconds more."""
        move_clocks(self.directory, moment - time.time(), jump)

    def crawl(self, *urls: str, arguments: tuple[str, ...] = (), **options: Any) -> Crawl:
        """One run of today's version."""
        done = crawl(self.directory, self.box, *urls, arguments=arguments, **options, **CLOCKS)
        assert "Traceback" not in done.output, done.output
        return done

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """``walsh ARGUMENTS`` in the project, under its clocks."""
        return run_scrapy(self.directory, self.box, *arguments, module="scrapy_walsh", **CLOCKS)


def project(directory: Path, box: Sandbox, name: str | None = "days", **settings: Any) -> Project:
    """A project in *directory* with folder *name* of the data as its state directory."""
    box.clear()
    for each in sites():
        box.put(each)
    made = Project(with_clocks(directory, settings), box)
    made.at(END)
    if name is not None:
        made.state.parent.mkdir(parents=True)
        copy(name, made.state)
    return made
