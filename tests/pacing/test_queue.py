"""R4's hold: who goes when, and that a crawl starts, idles, pauses and stops as it always did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.proof.sandbox import Route, Sandbox, max_in_flight, requests, user_agents
from tests.crawl.harness import (
    HEARTBEAT,
    TOGETHER,
    USER_AGENT,
    Crawl,
    Stopped,
    begin,
    crawl_of,
    kept,
    longest_pause,
    make_project,
    rules,
    site,
    stop,
    targets,
    too_soon,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SMALL = [f"small{number}.test" for number in range(8)]
EVEN = [f"even{number}.test" for number in range(4)]

ORDERED = """
import scrapy

class Probe(scrapy.Spider):
    name = "probe"

    async def start(self):
        yield scrapy.Request("http://ordered.test/first")
        for priority in (0, 5, -1, 10):
            yield scrapy.Request(f"http://ordered.test/{priority}", priority=priority)
        for page in ("p", "q", "r"):
            yield scrapy.Request(f"http://retried.test/{page}")

    def parse(self, response):
        pass
"""

LAZY = """
import scrapy
from scrapy import signals

class Probe(scrapy.Spider):
    name = "probe"

    async def start(self):
        self.empty = 0
        self.crawler.signals.connect(self.count, signals.scheduler_empty)
        for page in range(2):
            for host in range(3):
                await self.crawler.signals.wait_for(signals.scheduler_empty)
                yield scrapy.Request(f"http://lazy{host}.test/{page}")

    def count(self):
        self.empty += 1

    def parse(self, response):
        yield {"url": response.url, "status": response.status, "empty": self.empty}
"""

IDLE = """
import scrapy
from scrapy import signals

class Probe(scrapy.Spider):
    name = "probe"

    @classmethod
    def from_crawler(cls, crawler, *args, **kwargs):
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.idle, signals.spider_idle)
        return spider

    async def start(self):
        self.more = [f"http://idle.test/{page}" for page in range(3)]
        yield scrapy.Request("http://idle.test/", meta={"walsh_also": list(self.more)})

    def idle(self):
        if self.more:
            self.crawler.engine.crawl(scrapy.Request(self.more.pop(0)))
            raise scrapy.exceptions.DontCloseSpider

    def parse(self, response):
        yield {"url": response.url, "status": response.status}
"""

PAUSED = """
import time
import scrapy

class Probe(scrapy.Spider):
    name = "probe"
    start_urls = [f"http://paused.test/{page}" for page in range(3)]
    since = None

    def parse(self, response):
        if self.since is None:
            from twisted.internet import reactor

            self.since = time.time()
            self.crawler.engine.pause()
            reactor.callLater(2.5, self.resume)

    def resume(self):
        self.until = time.time()
        self.crawler.engine.unpause()

    def closed(self, reason):
        self.crawler.stats.set_value("paused", [self.since, self.until])
"""

PAST_THE_QUEUE = f"""
{TOGETHER}

class Probe(scrapy.Spider):
    name = "probe"

    async def start(self):
        yield scrapy.Request("http://held.test/1", meta={{"walsh_also": ["http://held.test/2"]}})

    async def parse(self, response):
        print("ASKING", flush=True)
        print("GOT", await together(self, response.meta["walsh_also"]), flush=True)
"""

CONTRACT_SPIDER = """
import scrapy

class Probe(scrapy.Spider):
    name = "probe"

    def parse(self, response):
        yield {"url": response.url, "status": response.status}
"""

HELD = site("held.test", robots=rules("Crawl-delay: 60"))


def interrupted(**project: Any) -> Callable[[Path], Stopped]:
    """A crawl of two pages, stopped while the second waits for its minute to pass."""

    def begin(directory: Path) -> Stopped:
        urls = "urls=http://held.test/1 http://held.test/2"
        arguments = () if "spider" in project else ("-a", urls)
        with Sandbox() as box:
            box.put(HELD)
            made = make_project(directory, **project)
            return stop(
                made, box, "crawl", "probe", *arguments,
                when=lambda log: bool(targets(log, "held.test")),
            )  # fmt: skip

    return begin


def command(*arguments: str) -> Callable[[Path], Crawl]:
    """Another command of Scrapy's than ``crawl``."""

    def play(directory: Path) -> Crawl:
        with Sandbox() as box:
            box.put(site("command.test", robots=rules("Disallow: /no")))
            project = make_project(directory, CONTRACT_SPIDER)
            return begin(project, box, "scrapy", *arguments).finish()

    return play


SHOWN = "print('SHOWN', response and response.status)"
COMMANDS = {
    "shell": command("shell", "http://command.test/s", "-c", "response.status"),
    "shell-denied": command("shell", "http://command.test/no", "-c", SHOWN),
    "shell-twice": command(
        "shell", "-c",
        f"[fetch('http://command.test/1'), fetch('http://command.test/2'), {SHOWN}]",
    ),
    "fetch": command("fetch", "http://command.test/f"),
    "fetch-denied": command("fetch", "http://command.test/no"),
    "parse": command("parse", "http://command.test/p", "--spider", "probe"),
}  # fmt: skip

CRAWLS: dict[str, Callable[[Path], Any]] = {
    "skewed": crawl_of(
        *(f"http://big.test/{page}" for page in range(5)),
        *(f"http://{host}/x" for host in SMALL),
        sites=[site("big.test"), *(site(host) for host in SMALL)],
    ),
    "grouped": crawl_of(
        *(f"http://{host}/{page}" for host in EVEN for page in range(3)),
        sites=[site(host) for host in EVEN],
    ),
    "ordered": crawl_of(
        sites=[
            site("ordered.test"),
            site("retried.test", {"/p": Route(sequence=(Route(503), Route(body="p")))}),
        ],
        spider=ORDERED,
        settings={"WALSH_BACKOFF_BASE": 0.01},
    ),
    "denied": crawl_of(
        "http://delay.test/yes",
        *(f"http://delay.test/no/{page}" for page in range(50)),
        sites=[site("delay.test", robots=rules("Disallow: /no/\nCrawl-delay: 60"))],
    ),
    "lazy": crawl_of(sites=[site(f"lazy{host}.test") for host in range(3)], spider=LAZY),
    "idle": crawl_of(sites=[site("idle.test")], spider=IDLE),
    "timeout": crawl_of(
        "http://held.test/1",
        "http://held.test/2",
        sites=[HELD],
        settings={"CLOSESPIDER_TIMEOUT": 2},
    ),
    "itemcount": crawl_of(
        *(f"http://counted.test/{page}" for page in range(9)),
        sites=[site("counted.test")],
        settings={"CLOSESPIDER_ITEMCOUNT": 2},
    ),
    "paused": crawl_of(sites=[site("paused.test")], spider=PAUSED),
    "interrupted": interrupted(),
    "interrupted-past-the-queue": interrupted(spider=PAST_THE_QUEUE),
    **COMMANDS,
}


@pytest.mark.parametrize("name", CRAWLS)
def test_r4_2_serial_and_never_too_soon(crawls: Callable[[str], Any], name: str) -> None:
    log = crawls(name).log
    assert max_in_flight(log) == 1
    assert too_soon(log) == []


def test_the_others_are_asked_while_one_host_waits(crawls: Callable[[str], Crawl]) -> None:
    result = crawls("skewed")
    order = [each.host for each in targets(result.log)]
    assert order.count("big.test") == 5
    last = len(order) - 1 - order[::-1].index("big.test")
    assert set(SMALL) <= set(order[:last])


def test_the_host_with_the_most_work_goes_first(crawls: Callable[[str], Crawl]) -> None:
    order = [each.host for each in targets(crawls("grouped").log)]
    rounds = [order[start : start + len(EVEN)] for start in range(0, len(order), len(EVEN))]
    assert [sorted(each) for each in rounds] == [EVEN] * 3


@pytest.mark.parametrize("name", ["skewed", "grouped", "lazy", "idle", "ordered", "itemcount"])
def test_a_due_host_never_waits_for_the_heartbeat(
    crawls: Callable[[str], Crawl], name: str
) -> None:
    assert longest_pause(crawls(name).log) < HEARTBEAT - 1


def test_priority_orders_within_a_host(crawls: Callable[[str], Crawl]) -> None:
    result = crawls("ordered")
    assert result.asked("ordered.test") == ["/robots.txt", "/first", "/10", "/5", "/0", "/-1"]


def test_r5_1_a_retry_comes_first_on_its_host(crawls: Callable[[str], Crawl]) -> None:
    asked = [each.path for each in targets(crawls("ordered").log, "retried.test")]
    assert asked == ["/p", "/p", "/q", "/r"]


def test_r7g_1_what_is_denied_never_waits(crawls: Callable[[str], Crawl]) -> None:
    result = crawls("denied")
    assert result.asked("delay.test") == ["/robots.txt", "/yes"]
    assert result.stats["walsh/refused"] == 50
    assert result.stats["elapsed_time_seconds"] < 60


def test_a_lazy_start_hears_of_an_empty_scheduler(crawls: Callable[[str], Crawl]) -> None:
    result = crawls("lazy")
    pages = {f"http://lazy{host}.test/{page}" for host in range(3) for page in range(2)}
    assert {item["url"] for item in result.items} == pages
    assert max(item["empty"] for item in result.items) >= len(pages)


def test_an_idle_spider_may_ask_for_more(crawls: Callable[[str], Crawl]) -> None:
    result = crawls("idle")
    assert result.asked("idle.test") == ["/robots.txt", "/", "/0", "/1", "/2"]
    assert result.stats["close_reason"] == "finished"


@pytest.mark.parametrize(
    ("name", "reason"),
    [("timeout", "closespider_timeout"), ("itemcount", "closespider_itemcount")],
)
def test_closespider_closes_without_waiting_out_a_hold(
    crawls: Callable[[str], Crawl], name: str, reason: str
) -> None:
    result = crawls(name)
    assert result.stats["close_reason"] == reason
    assert 1 <= len(targets(result.log)) <= 3
    assert result.stats["elapsed_time_seconds"] < 60  # the Crawl-delay of held.test


def test_a_paused_engine_asks_for_nothing(crawls: Callable[[str], Crawl]) -> None:
    result = crawls("paused")
    since, until = result.stats["paused"]
    asked = targets(result.log, "paused.test")
    assert len(asked) == 3
    assert [each for each in asked if since + 0.05 < each.wall < until - 0.05] == []


@pytest.mark.parametrize("name", ["interrupted", "interrupted-past-the-queue"])
def test_ctrl_c_waits_for_no_hold(crawls: Callable[[str], Stopped], name: str) -> None:
    stopped = crawls(name)
    assert [each.path for each in targets(stopped.log)] == ["/1"]
    assert stopped.stats["close_reason"] == "shutdown"
    assert stopped.closed < 2
    assert stopped.ended < HEARTBEAT


@pytest.mark.parametrize("name", COMMANDS)
def test_r0_5_the_other_commands_have_the_same_manners(
    crawls: Callable[[str], Crawl], name: str
) -> None:
    result = crawls(name)
    assert user_agents(result.log) == {USER_AGENT}
    assert result.asked("command.test")[0] == "/robots.txt"
    assert requests(result.log)[0].host == "operator.test"


@pytest.mark.parametrize("name", ["shell-denied", "fetch-denied"])
def test_r0_3_the_other_commands_honour_robots_txt(
    crawls: Callable[[str], Crawl], name: str
) -> None:
    result = crawls(name)
    assert result.asked("command.test") == ["/robots.txt"]
    assert result.lines("disallowed", "http://command.test/no")


def test_scrapy_shell_works(crawls: Callable[[str], Crawl]) -> None:
    result = crawls("shell")
    assert result.returncode == 0, result.output
    assert result.output.split()[-1] == "200"
    assert result.asked("command.test") == ["/robots.txt", "/s"]


def test_scrapy_shell_fetches_again_in_its_time(crawls: Callable[[str], Crawl]) -> None:
    result = crawls("shell-twice")
    assert result.lines("SHOWN 200"), result.output
    assert result.asked("command.test") == ["/robots.txt", "/1", "/2"]
    assert kept(result.gaps("command.test")[1:], 1.0)


@pytest.mark.parametrize(
    ("name", "path", "shown"), [("fetch", "/f", "<p>page</p>"), ("parse", "/p", "command.test/p'")]
)
def test_scrapy_fetch_and_parse_work(
    crawls: Callable[[str], Crawl], name: str, path: str, shown: str
) -> None:
    result = crawls(name)
    assert result.returncode == 0, result.output
    assert result.asked("command.test") == ["/robots.txt", path]
    assert shown in result.output
