"""A spider finds what Scrapy promises it: a table of spiders, with the add-on and without.

Each case is a small spider on a host of its own; all of them run in two crawls, one without the
add-on. What each was given is compared: its callbacks and errbacks with the flags of what arrived,
its signals, and Scrapy's own stats of the crawl. What must differ stands in :data:`DIFFERS`, with
the reason.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.proof.sandbox import Request, Route, Sandbox
from tests.crawl.harness import (
    OWN_IDENTITY,
    SETTINGS,
    crawl,
    listing,
    make_project,
    operator,
    side_by_side,
    site,
    solo,
)

if TYPE_CHECKING:
    from pathlib import Path

    from scrapy_walsh.proof.sandbox import Site
    from tests.crawl.harness import Crawl

TABLE = """
import json
import scrapy
from scrapy import signals
from scrapy.exceptions import IgnoreRequest

def short(url):
    return url.partition("://")[2]

class Case:
    # One spider of the table: what its callbacks yield, and what they were given.
    def __init__(self, spider, host):
        self.spider, self.host, self.made = spider, host, []

    def ask(self, path, **options):
        request = scrapy.Request(
            f"http://{self.host}{path}",
            **{"callback": self.parse, "errback": self.failed, **options},
        )
        self.made.append(request)
        return request

    def note(self, what, request, **more):
        self.spider.seen.append([
            self.host, what, short(request.url), request.dont_filter, request.priority,
            any(each is request for each in self.made), sorted(request.cb_kwargs),
            sorted(key for key in request.meta if key.startswith("walsh")), more,
        ])

    def start(self):
        yield self.ask("/1")

    def parse(self, response, **kwargs):
        self.note("parse", response.request, status=response.status, **kwargs)
        yield {"url": short(response.url)}
        yield from self.links(response)

    def again(self, response, **kwargs):
        self.note("again", response.request, status=response.status, **kwargs)
        yield {"again": short(response.url)}

    def links(self, response):
        return ()

    def failed(self, failure):
        self.note("failed", failure.request, error=failure.type.__name__)

class Cycle(Case):
    # A page leads to the next one by a copy of its request, and the last to the first.
    def links(self, response):
        to = {"1": "/2", "2": "/1"}[response.url[-1]]
        request = response.request.replace(url=response.urljoin(to))
        self.made.append(request)
        yield request

class Unfiltered(Case):
    def start(self):
        yield self.ask("/1", dont_filter=True, priority=3)
        yield self.ask("/1", dont_filter=True, priority=2)

class Filtered(Case):
    def start(self):
        yield self.ask("/1")
        yield self.ask("/1")
        yield self.ask("/2", priority=5)

class StartPage(Case):
    # What `start_urls` make has dont_filter, and is asked for again by its callback.
    def start(self):
        yield self.ask("/1", dont_filter=True)
    def links(self, response):
        yield self.ask("/1", callback=self.again)
        yield self.ask("/1", callback=self.again)

class StartPageKwargs(Case):
    def start(self):
        yield self.ask("/1", dont_filter=True, cb_kwargs={"page": 1})
    def links(self, response):
        yield self.ask("/1", cb_kwargs={"page": 2}, callback=self.again)

class StartCalls(Case):
    # The call of the start page comes after another one, of which Scrapy may take in more at once.
    def start(self):
        yield self.ask("/1", dont_filter=True)
    def links(self, response):
        yield self.ask("/1", callback=self.again)
        yield self.ask("/1")
        yield self.ask("/1", callback=self.again, cb_kwargs={"page": 1})

class Refuses(Case):
    def start(self):
        yield self.ask("/missing")
        yield self.ask("/gone", meta={"handle_httpstatus_list": [410]})

class Raises(Case):
    def links(self, response):
        yield self.ask("/2")
        raise RuntimeError("of the spider's")

class Forms(Case):
    def start(self):
        yield self.ask("/1", method="POST", body=b"a=1")
        yield self.ask("/1", method="HEAD")

class Moved(Case):
    def start(self):
        yield self.ask("/moved")

class Slash(Case):
    # A site that puts a slash at the end of each path: the copies of its requests are filtered.
    def start(self):
        yield self.ask("/1")
    def links(self, response):
        request = response.request.replace(url=response.urljoin("/1"))
        self.made.append(request)
        yield request

class Exported(Case):
    # A project that stores the meta of its answers.
    def parse(self, response):
        self.note("parse", response.request)
        meta = dict(response.meta)
        for key in ("download_latency", "download_slot", "download_timeout", "proxy"):
            meta.pop(key, None)
        yield {"meta": meta}
        yield self.ask("/2", meta=dict(response.meta), callback=self.again)

class Dropped(Case):
    def start(self):
        yield self.ask("/drop")
        yield self.ask("/1")

CASES = {
    each.__name__.lower(): each
    for each in (
        Cycle, Unfiltered, Filtered, StartPage, StartPageKwargs, StartCalls, Refuses, Raises, Forms,
        Moved, Slash, Exported, Dropped,
    )
}
CASES["retried"] = Cycle

class Probe(scrapy.Spider):
    name = "probe"

    @classmethod
    def from_crawler(cls, crawler, *args, **kwargs):
        spider = super().from_crawler(crawler, *args, **kwargs)
        spider.seen, spider.heard = [], []
        for name in (
            "request_scheduled", "request_dropped", "request_reached_downloader",
            "request_left_downloader", "response_received", "response_downloaded",
            "headers_received", "bytes_received", "item_scraped", "item_error", "spider_error",
        ):
            crawler.signals.connect(spider.listener(name), getattr(signals, name), weak=False)
        crawler.signals.connect(spider.drop, signals.request_scheduled)
        crawler.signals.connect(spider.over, signals.spider_closed)
        return spider

    def listener(self, name):
        def heard(**given):
            request = given.get("request") or getattr(given.get("response"), "request", None)
            flag = request.dont_filter if request is not None else None
            self.heard.append([name, short(request.url) if request is not None else "", flag])
        return heard

    def drop(self, request):
        if request.url.endswith("/drop"):
            raise IgnoreRequest("of the project's")

    async def start(self):
        cases = [case(self, f"{name}.test") for name, case in CASES.items()]
        for case in cases:
            for request in case.start():
                yield request

    def over(self, reason):
        stats = {key: str(each) for key, each in self.crawler.stats.get_stats().items()}
        with open("seen.json", "w") as file:
            json.dump({"seen": self.seen, "heard": self.heard, "stats": stats}, file)
"""
HOSTS = (
    *("cycle", "unfiltered", "filtered", "startpage", "startpagekwargs", "startcalls", "refuses"),
    *("raises", "forms", "moved", "slash", "exported", "dropped", "retried"),
)
#: Of Scrapy's stats, the groups that are compared.
COUNTED = (
    *("scheduler/", "dupefilter/", "item_", "response_received_count", "request_depth_max"),
    *("spider_exceptions/", "httperror/", "start_time", "downloader/request_", "log_count/ERROR"),
    *("downloader/response_count", "downloader/response_status_count/"),
)
#: Stats that differ, and why: what is added to the figure without the add-on.
DIFFERS = {
    # R5: the answer 503 of the host "retried", which the other crawl is not given.
    "downloader/request_count": 1,
    "downloader/request_method_count/GET": 1,
    "downloader/response_count": 1,
    "downloader/response_status_count/503": 1,
}
#: Signals of an exchange: of "retried" there is one more.
OF_EXCHANGES = ("request_reached", "request_left", "response_downloaded", "headers_", "bytes_")
#: They have no meaning for the comparison.
NOT_COUNTED = ("downloader/request_bytes", "start_time")


def _sites(*, fails: bool) -> list[Site]:
    asked = []

    def busy(_: Request) -> Route:
        asked.append(1)
        return Route(503) if fails and len(asked) == 1 else Route(body="<p>page</p>")

    special = {
        "refuses": {"/missing": Route(404), "/gone": Route(410)},
        "moved": {"/moved": Route(301, location="http://moved.test/1")},
        "slash": {"/1": Route(301, location="http://slash.test/1/")},
        "retried": {"/1": busy},
    }
    return [
        operator(listing("nobody.test")),
        *(site(f"{name}.test", special.get(name)) for name in HOSTS),
    ]


@pytest.fixture(scope="module")
def crawls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Crawl, Any]]:
    own = {
        "WALSH_IDENTITY": OWN_IDENTITY,
        "WALSH_FOLLOW_LINKS": True,
        "WALSH_BACKOFF_BASE": 0.01,
        "WALSH_BACKOFF_CAP": 0.01,
        "CONCURRENT_ITEMS": 8,
    }
    plain = {
        "ADDONS": None,
        **{name: None for name in SETTINGS if name.startswith("WALSH_")},
        "CONCURRENT_REQUESTS": 1,
        "COOKIES_ENABLED": False,
        "RETRY_ENABLED": False,
        "TELNETCONSOLE_ENABLED": False,
        "USER_AGENT": "probe",
    }
    folder = tmp_path_factory.mktemp("table")
    jobs = {
        "with": {"sites": _sites(fails=True), "spider": TABLE, "settings": own},
        "without": {"sites": _sites(fails=False), "spider": TABLE, "settings": plain},
    }
    done = side_by_side(folder, jobs)
    assert all((folder / str(number) / "seen.json").exists() for number in (0, 1)), done
    return {
        name: (done[name], json.loads((folder / str(number) / "seen.json").read_text()))
        for number, name in enumerate(jobs)
    }


@pytest.mark.parametrize("name", HOSTS)
def test_a_spider_is_given_the_same_with_the_add_on_and_without(
    crawls: dict[str, tuple[Crawl, Any]], name: str
) -> None:
    given = {
        side: [each[1:] for each in found["seen"] if each[0] == f"{name}.test"]
        for side, (_, found) in crawls.items()
    }
    assert given["without"]
    assert given["with"] == given["without"]


@pytest.mark.parametrize("name", HOSTS)
def test_receivers_of_signals_hear_the_same(
    crawls: dict[str, tuple[Crawl, Any]], name: str
) -> None:
    heard = {
        side: sorted(
            each
            for each in found["heard"]
            if each[1].startswith(f"{name}.test/")
            and not (name == "retried" and each[0].startswith(OF_EXCHANGES))
        )
        for side, (_, found) in crawls.items()
    }
    assert heard["without"]
    assert heard["with"] == heard["without"]


def test_no_receiver_hears_of_our_documents(crawls: dict[str, tuple[Crawl, Any]]) -> None:
    heard = {url for _, url, _ in crawls["with"][1]["heard"]}
    assert not [url for url in heard if "robots.txt" in url or url.startswith("operator.test")]
    assert crawls["with"][0].robots_asked("cycle.test") == 1


def test_scrapys_own_stats_are_the_same(crawls: dict[str, tuple[Crawl, Any]]) -> None:
    figures = {
        side: {
            name: value
            for name, value in found["stats"].items()
            if name.startswith(COUNTED) and name not in NOT_COUNTED
        }
        for side, (_, found) in crawls.items()
    }
    for name, more in DIFFERS.items():
        figures["without"][name] = str(int(figures["without"].get(name, 0)) + more)
    assert figures["with"] == figures["without"]


def test_the_items_are_the_same(crawls: dict[str, tuple[Crawl, Any]]) -> None:
    items = {
        side: sorted(json.dumps(each, sort_keys=True) for each in done.items)
        for side, (done, _) in crawls.items()
    }
    assert items["with"] == items["without"]
    assert crawls["with"][0].returncode == 0


OWN_CALL = """
import scrapy

class Probe(scrapy.Spider):
    name = "probe"

    async def start(self):
        yield scrapy.Request("http://own.test/1", dont_filter=True)

    def parse(self, response):
        yield {"parse": response.url}
        yield scrapy.Request(response.url)
        yield scrapy.Request(response.url, callback=self.again)

    def again(self, response):
        yield {"again": response.url}
"""


def test_a_filtered_call_of_a_start_page_takes_no_other_call_with_it(tmp_path: Path) -> None:
    """Scrapy sends the first of the two and drops the second, whose callback is another."""
    settings = {"WALSH_IDENTITY": OWN_IDENTITY, "WALSH_FOLLOW_LINKS": True}
    sites = (operator(listing("nobody.test")), site("own.test"))
    done = solo(tmp_path, sites=sites, spider=OWN_CALL, settings=settings)
    assert done.items == [{"parse": "http://own.test/1"}, {"again": "http://own.test/1"}]
    assert done.targets("own.test") == ["/1", "/1"]
    assert done.stats["dupefilter/filtered"] == 1


LATE = """
import scrapy
from scrapy_walsh.adapters import compat

class Probe(scrapy.Spider):
    name = "probe"
    refused = False

    async def start(self):
        yield scrapy.Request("http://late.test/1", callback=self.parse)
        yield scrapy.Request("http://parked.test/1", callback=self.parse)
        await compat.sleep(1.5)
        yield scrapy.Request("http://parked.test/declared", callback=self.declared)
        while not self.refused:
            await compat.sleep(0.1)
        yield scrapy.Request("http://late.test/declared", callback=self.declared)
        yield scrapy.Request("http://late.test/declared", callback=self.declared)

    def parse(self, response):
        yield response.follow("/declared", callback=self.linked, errback=self.failed)

    def linked(self, response):
        yield {"linked": response.url}

    def declared(self, response):
        yield {"declared": response.url}

    def failed(self, failure):
        self.refused = True
        yield {"failed": failure.request.url}
"""


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> Crawl:
    """A `start` that declares two pages after callbacks have linked to them, in a JOBDIR."""
    settings = {
        "WALSH_IDENTITY": OWN_IDENTITY,
        "JOBDIR": "job",
        "CLOSESPIDER_PAGECOUNT": 4,
    }
    sites = (operator(listing("nobody.test")), site("late.test"), site("parked.test"))
    return solo(tmp_path_factory.mktemp("late"), sites=sites, spider=LATE, settings=settings)


def test_a_refused_link_takes_no_later_declaration_with_it(late: Crawl) -> None:
    assert {"failed": "http://late.test/declared"} in late.items
    assert {"declared": "http://late.test/declared"} in late.items
    assert late.targets("late.test") == ["/1", "/declared"]


def test_a_link_that_waits_is_what_declares_its_page(late: Crawl) -> None:
    """As in Scrapy, the first of two requests is sent, and the second is its duplicate."""
    assert {"linked": "http://parked.test/declared"} in late.items
    assert late.targets("parked.test") == ["/1", "/declared"]


def test_each_declared_source_is_counted(late: Crawl) -> None:
    assert late.lines("4 of 4 sources read"), late.output[-2000:]


def test_our_documents_are_no_pages_of_the_spider(late: Crawl) -> None:
    """CLOSESPIDER_PAGECOUNT, with which a spider is tried, goes by the answers for the spider."""
    assert late.stats["close_reason"] == "closespider_pagecount"
    assert late.stats["response_received_count"] == late.stats["downloader/request_count"] == 4
    assert late.stats["walsh/documents/robots"] == 2
    assert late.stats["walsh/documents/operator"] == 1
    assert late.stats["walsh/documents/octets"] > 0


def test_what_comes_back_to_the_queue_of_a_job_is_counted_once(late: Crawl) -> None:
    assert late.stats["scheduler/dequeued"] == late.stats["scheduler/dequeued/disk"] == 5
    assert late.stats["scheduler/enqueued"] == late.stats["scheduler/enqueued/disk"] == 5
    assert "scheduler/unserializable" not in late.stats


TWICE = """
import scrapy

class Probe(scrapy.Spider):
    name = "probe"

    async def start(self):
        for path in ("1", "1", "2", "3", "2"):
            yield scrapy.Request(f"http://twice.test/{path}")

    def parse(self, response):
        yield {"url": response.url}
"""


def test_a_source_counts_once_until_a_run_of_the_job_has_requested_it(tmp_path: Path) -> None:
    """What `start` yields twice is dropped once; what it yields again in a later run, each time."""
    with Sandbox() as box:
        for each in (operator(listing("nobody.test")), site("twice.test")):
            box.put(each)
        settings = {"WALSH_IDENTITY": OWN_IDENTITY, "JOBDIR": "job"}
        project = make_project(tmp_path, TWICE, settings)
        stopped = crawl(project, box, arguments=("-s", "CLOSESPIDER_PAGECOUNT=1"))
        resumed, over = crawl(project, box), crawl(project, box)
    assert stopped.lines("stopped (closespider_pagecount): 1 of 3 sources", "2 not requested")
    assert resumed.lines("INFO: walsh: 2 of 2 sources read or unchanged")
    assert over.lines("INFO: walsh: earlier runs of this JOBDIR have requested all sources")
    asked = [path for each in (stopped, resumed, over) for path in each.targets("twice.test")]
    assert asked == ["/1", "/2", "/3"]
