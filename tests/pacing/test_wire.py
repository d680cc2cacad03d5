"""R4 on the wire: whatever asks, and however it ends, one request at a time, each in its time."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
import scrapy.crawler
from scrapy.settings import default_settings

from scrapy_walsh.proof.sandbox import Route, Sandbox, gaps, max_in_flight, requests, user_agents
from tests.crawl.harness import (
    HEARTBEAT,
    OWN_IDENTITY,
    TOGETHER,
    USER_AGENT,
    Crawl,
    begin,
    crawl_of,
    kept,
    longest_pause,
    make_project,
    rules,
    site,
    targets,
    too_soon,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

REACTORLESS = hasattr(default_settings, "TWISTED_REACTOR_ENABLED")
REACTORS: dict[str, dict[str, Any]] = {
    "asyncio": {},
    "select": {"TWISTED_REACTOR": "twisted.internet.selectreactor.SelectReactor"},
    **({"none": {"TWISTED_REACTOR_ENABLED": False}} if REACTORLESS else {}),
}
PROCESSES = [name for name in ("CrawlerProcess", "AsyncCrawlerProcess")
             if hasattr(scrapy.crawler, name)]  # fmt: skip

ONE = [f"http://one.test/{number}" for number in range(10)]
MANY = [f"http://many{number}.test/x" for number in range(10)]
GATHER = f"""
{TOGETHER}
ONE, MANY = {ONE!r}, {MANY!r}

class Probe(scrapy.Spider):
    name = "probe"

    async def start(self):
        yield scrapy.Request("http://one.test/", meta={{"walsh_also": ONE + MANY}})
        for number in range(6):
            yield scrapy.Request(f"http://queued{{number % 2}}.test/{{number}}", self.queued)

    async def parse(self, response):
        for answer in await together(self, ONE + MANY):
            status = getattr(answer, "status", repr(answer))
            yield {{"url": getattr(answer, "url", ""), "status": status}}

    def queued(self, response):
        yield {{"url": response.url, "status": response.status}}
"""

FILES = """
import scrapy

class Probe(scrapy.Spider):
    name = "probe"
    start_urls = ["http://page.test/1", "http://page.test/2"]

    def parse(self, response):
        files = [f"http://files.test/{response.url[-1]}/{number}" for number in range(2)]
        yield {"url": response.url, "file_urls": [*files, f"{response.url}.pdf"]}
"""

TWO = """
import sys, time
import scrapy, scrapy.crawler
from scrapy.utils.project import get_project_settings

class Probe(scrapy.Spider):
    name = "two"

    def parse(self, response):
        pass

    def closed(self, reason):
        print("CLOSED", self.start_urls[0], time.time(), reason, flush=True)

if __name__ == "__main__":
    process = getattr(scrapy.crawler, sys.argv[1])(get_project_settings())
    for number, host in enumerate(sys.argv[2:]):
        process.crawl(Probe, start_urls=[f"http://{host}/{number}/{page}" for page in range(3)])
    process.start()
"""

LEAVING = f"""
import scrapy.crawler
from scrapy.utils.project import get_project_settings
{TOGETHER}

class Leaving(scrapy.Spider):
    name = "leaving"

    async def start(self):
        also = [f"http://slow.test/{{number}}" for number in range(3)]
        yield scrapy.Request("http://leaving.test/", meta={{"walsh_also": also}})

    async def parse(self, response):
        waits = [asyncio.wait_for(ask(self, url), 1) for url in response.meta["walsh_also"]]
        print("CANCELLED", await asyncio.gather(*waits, return_exceptions=True), flush=True)
        raise scrapy.exceptions.CloseSpider("enough")

class Staying(scrapy.Spider):
    name = "staying"
    start_urls = [*(f"http://staying.test/{{page}}" for page in range(4)), "http://slow.test/late"]

    def parse(self, response):
        print("GOT", response.url, flush=True)

if __name__ == "__main__":
    process = scrapy.crawler.CrawlerProcess(get_project_settings())
    process.crawl(Leaving)
    process.crawl(Staying)
    process.start()
"""

MEANWHILE = f"""
{TOGETHER}

class Probe(scrapy.Spider):
    name = "probe"

    async def start(self):
        also = ["http://long.test/a", "http://long.test/b"]
        yield scrapy.Request("http://long.test/", meta={{"walsh_also": also}})

    async def late(self, url):
        await asyncio.sleep(0.5 + 1)  # the first is on the wire
        return await ask(self, url)

    async def parse(self, response):
        first, second = response.meta["walsh_also"]
        for answer in await asyncio.gather(ask(self, first), self.late(second)):
            yield {{"url": answer.url, "status": answer.status}}
"""

CHAINS = """
import scrapy

class Probe(scrapy.Spider):
    name = "probe"

    async def start(self):
        copied = {"download_slot": "first.test", "download_latency": 9.0}
        for url in ("http://first.test/a", "http://first.test/x", "http://second.test/p"):
            yield scrapy.Request(url, meta=dict(copied))

    def parse(self, response):
        yield {"url": response.url, "status": response.status}
"""

BODIES = """
import scrapy

class Probe(scrapy.Spider):
    name = "probe"
    start_urls = [f"http://more.test/{page}" for page in ("first", "second")]

    def parse(self, response):
        yield {"url": response.url, "body": response.text}
"""

#: Octets that a server sends after its answer. On a connection that is kept open they arrive while
#: the next request is under way, and look like its answer.
STRAY = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstray"

BROKEN = {
    "hang.test": Route(behaviour="hang"),
    "reset.test": Route(behaviour="reset"),
    "close.test": Route(behaviour="close"),
    "truncate.test": Route(body="half", behaviour="truncate"),
}


def script(text: str, *arguments: str) -> Callable[[Path], Crawl]:
    """A script with crawlers of its own, yet to be run."""

    def play(directory: Path) -> Crawl:
        with Sandbox() as box:
            for host in ("same.test", "one.test", "other.test", "leaving.test", "staying.test"):
                box.put(site(host))
            box.put(site("slow.test", {"*": Route(body="late", delay=2.5)}))
            return begin(make_project(directory, text), box, "spiders", *arguments).finish()

    return play


def moved(location: str) -> Route:
    return Route(302, location=location)


def followed(body: str) -> Route:
    """An answer of *body*, slowly, and more octets after it."""
    length = {"Content-Length": str(len(body))}
    return Route(body=body + STRAY, headers=length, behaviour="drip", pause=0.1)


CRAWLS: dict[str, Callable[[Path], Crawl]] = {
    **{
        f"gather-{name}": crawl_of(
            sites=[
                site(host)
                for host in [
                    "one.test",
                    "queued0.test",
                    "queued1.test",
                    *(f"many{number}.test" for number in range(10)),
                ]
            ],
            spider=GATHER,
            settings=settings,
        )
        for name, settings in REACTORS.items()
    },
    **{
        f"{process}-{host}": script(TWO, process, "same.test" if host == "same" else "one.test",
                                    "same.test" if host == "same" else "other.test")
        for process in PROCESSES
        for host in ("same", "apart")
    },
    "leaving": script(LEAVING),
    "meanwhile": crawl_of(
        sites=[site("long.test", {"/a": Route(body="a", delay=2.0)})], spider=MEANWHILE
    ),
    "files": crawl_of(
        sites=[site("page.test"), site("files.test")],
        spider=FILES,
        settings={
            "WALSH_IDENTITY": OWN_IDENTITY,
            "WALSH_FOLLOW_LINKS": True,
            "ITEM_PIPELINES": {"scrapy.pipelines.files.FilesPipeline": 1},
            "FILES_STORE": "store",
        },
    ),
    "chains": crawl_of(
        sites=[
            site("first.test", {"/a": moved("http://second.test/b"),
                                "/x": moved("http://third.test/y")}),
            site("second.test", {"/b": moved("http://third.test/c"),
                                 "/p": moved("http://third.test/q")}),
            site("third.test", {"/c": moved("http://first.test/end"),
                                "/y": moved("http://second.test/end")}, rules("Crawl-delay: 2")),
        ],
        spider=CHAINS,
    ),
    "broken": crawl_of(
        *(f"http://{host}/p" for host in BROKEN),
        *(f"http://well.test/{page}" for page in range(4)),
        sites=[*(site(host, {"/p": route}) for host, route in BROKEN.items()), site("well.test")],
        settings={"DOWNLOAD_TIMEOUT": 1, "WALSH_MAX_RETRIES": 1, "WALSH_BACKOFF_CAP": 1},
    ),
    "keys": crawl_of(
        *(f"{scheme}://both.test/{page}" for page in "ab" for scheme in ("http", "https")),
        *(f"http://ports.test:{port}/a" for port in range(8080, 8085)),
        sites=[site("both.test"), site("ports.test")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CRAWLS)
def test_r4_1_never_two_requests_at_once(crawls: Callable[[str], Crawl], name: str) -> None:
    log = crawls(name).log
    assert len(targets(log)) >= 3
    assert max_in_flight(log) == 1
    assert min(gaps(log)) >= 0


@pytest.mark.parametrize("name", CRAWLS)
def test_r4_2_never_too_soon(crawls: Callable[[str], Crawl], name: str) -> None:
    assert too_soon(crawls(name).log) == []


@pytest.mark.parametrize("name", CRAWLS)
def test_r5_7_each_request_has_a_connection_of_its_own(
    crawls: Callable[[str], Crawl], name: str
) -> None:
    used = [each.connection for each in requests(crawls(name).log)]
    assert sorted(used) == sorted(set(used))


@pytest.mark.parametrize("reactor", REACTORS)
def test_what_follows_an_answer_is_not_the_next_one(tmp_path: Path, reactor: str) -> None:
    more = site("more.test", {"*": followed("own"), "/robots.txt": followed("#")})
    result = crawl_of(sites=[more], spider=BODIES, settings=REACTORS[reactor])(tmp_path)
    assert result.asked("more.test") == ["/robots.txt", "/first", "/second"]
    assert [item["body"] for item in result.items] == ["own", "own"]


@pytest.mark.parametrize("name", CRAWLS)
def test_r4_1_the_wire_never_idles_until_the_heartbeat(
    crawls: Callable[[str], Crawl], name: str
) -> None:
    assert longest_pause(crawls(name).log) < HEARTBEAT - 1


@pytest.mark.parametrize("reactor", REACTORS)
def test_r0_1_what_is_asked_past_the_queue_gets_its_answers(
    crawls: Callable[[str], Crawl], reactor: str
) -> None:
    result = crawls(f"gather-{reactor}")
    got = sorted(item["url"] for item in result.items if item["status"] == 200)
    queued = [f"http://queued{number % 2}.test/{number}" for number in range(6)]
    assert got == sorted([*ONE, *MANY, *queued])
    assert user_agents(result.log) == {USER_AGENT}


@pytest.mark.parametrize("reactor", REACTORS)
def test_r4_5_ten_waiting_for_one_host_hold_up_no_other(
    crawls: Callable[[str], Crawl], reactor: str
) -> None:
    order = [each.host for each in targets(crawls(f"gather-{reactor}").log)]
    of_one = [place for place, host in enumerate(order) if host == "one.test"]
    late = of_one[5]  # of eleven
    assert {f"many{number}.test" for number in range(10)} <= set(order[:late])
    assert {"queued0.test", "queued1.test"} <= set(order[:late])


def test_r0_1_a_files_pipeline_is_gated_and_paced(crawls: Callable[[str], Crawl]) -> None:
    result = crawls("files")
    assert result.asked("files.test")[0] == "/robots.txt"
    assert sorted(result.asked("files.test")[1:]) == ["/1/0", "/1/1", "/2/0", "/2/1"]
    assert sorted(result.asked("page.test")[1:]) == ["/1", "/1.pdf", "/2", "/2.pdf"]
    assert [len(item["files"]) for item in result.items] == [3, 3]
    assert len(user_agents(result.log)) == 1


@pytest.mark.parametrize("process", PROCESSES)
@pytest.mark.parametrize("host", ["same", "apart"])
def test_r4_1_two_crawlers_of_one_process_both_end_in_time(
    crawls: Callable[[str], Crawl], process: str, host: str
) -> None:
    result = crawls(f"{process}-{host}")
    closed = dict(re.findall(r"^CLOSED \S+/(\d)/0 (\S+) finished$", result.output, re.MULTILINE))
    assert sorted(closed) == ["0", "1"]
    for number, when in closed.items():
        own = [each for each in targets(result.log) if each.path.startswith(f"/{number}/")]
        assert len(own) == 3, result.output
        assert float(when) - own[-1].wall < HEARTBEAT - 1


def test_r4_1_cancelled_transfers_and_a_crawler_that_leaves_stop_nobody(
    crawls: Callable[[str], Crawl],
) -> None:
    result = crawls("leaving")
    (cancelled,) = result.lines("CANCELLED")
    assert cancelled.count("TimeoutError") == 3
    got = {line.split()[-1] for line in result.lines("GOT http")}
    pages = {f"http://staying.test/{page}" for page in range(4)}
    assert got == {*pages, "http://slow.test/late"}


def test_a_host_that_is_being_asked_is_waited_for(crawls: Callable[[str], Crawl]) -> None:
    result = crawls("meanwhile")
    assert [item["url"] for item in result.items] == ["http://long.test/a", "http://long.test/b"]
    first, second = result.requests("long.test")[-2:]
    assert second.arrived - first.arrived > 2.0
    assert "walsh/deferred" not in result.stats


def test_r4_5_hops_are_spaced_on_the_host_they_name(crawls: Callable[[str], Crawl]) -> None:
    result = crawls("chains")
    assert sorted(result.asked("third.test")) == ["/c", "/q", "/robots.txt", "/y"]
    assert kept(result.gaps("third.test")[1:], 2.0)
    ends = {item["url"] for item in result.items}
    assert ends == {"http://first.test/end", "http://second.test/end", "http://third.test/q"}


@pytest.mark.parametrize("host", BROKEN)
def test_r5_2_a_transfer_that_dies_is_asked_again_once_and_given_up(
    crawls: Callable[[str], Crawl], host: str
) -> None:
    result = crawls("broken")
    assert result.asked(host) == ["/robots.txt", "/p", "/p"]
    assert kept(result.gaps(host)[1:], 1.0)
    assert "GaveUp" in result.why(f"http://{host}/p")


def test_r5_2_the_others_go_on_beside_broken_servers(crawls: Callable[[str], Crawl]) -> None:
    result = crawls("broken")
    assert all(result.fetched(f"http://well.test/{page}") for page in range(4))


def test_r4_5_http_and_https_of_one_host_share_the_throttle(
    crawls: Callable[[str], Crawl],
) -> None:
    both = [each for each in requests(crawls("keys").log) if each.host.startswith("both.test")]
    assert sorted(each.scheme for each in both if each.path != "/robots.txt") == [
        "http", "http", "https", "https",
    ]  # fmt: skip
    assert sum(each.path == "/robots.txt" for each in both) == 2
    assert kept(gaps(both)[1:], 1.0)


def test_r4_5_ports_of_one_host_do_not(crawls: Callable[[str], Crawl]) -> None:
    ports = [each for each in requests(crawls("keys").log) if each.host.startswith("ports.test")]
    assert len(ports) == 5 * 2
    assert sum(gap < 0.5 for gap in gaps(ports)) >= 5
