"""R4 and AutoThrottle: it may slow a host down, and only that."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.proof.sandbox import Route, max_in_flight
from tests.crawl.harness import Crawl, crawl_of, kept, rules, site, targets, too_soon

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LATENCY = 1.6
SLOW = Route(body="slow", delay=LATENCY)
QUICK = {
    "AUTOTHROTTLE_ENABLED": True,
    "AUTOTHROTTLE_DEBUG": True,
    "AUTOTHROTTLE_START_DELAY": 0.1,
    "AUTOTHROTTLE_MAX_DELAY": 0.2,
    "AUTOTHROTTLE_TARGET_CONCURRENCY": 8.0,
}

#: Scrapy forgets a slot that was idle for a minute, and what AutoThrottle learned with it.
FORGETTING = """
import scrapy

class Probe(scrapy.Spider):
    name = "probe"
    start_urls = [f"http://slow.test/{page}" for page in range(3)]

    def parse(self, response):
        self.crawler.engine.downloader._slot_gc(age=-60)
        slots = self.crawler.engine.downloader.slots
        yield {"url": response.url, "status": response.status, "slots": len(slots)}
"""
LEARNING = {**QUICK, "AUTOTHROTTLE_MAX_DELAY": 30.0, "AUTOTHROTTLE_TARGET_CONCURRENCY": 0.5}

CRAWLS: dict[str, Callable[[Path], Crawl]] = {
    "floor": crawl_of(
        *(f"http://fast.test/{page}" for page in range(4)),
        *(f"http://delay.test/{page}" for page in range(3)),
        "http://slow.test/0",
        "http://slow.test/1",
        sites=[
            site("fast.test"),
            site("delay.test", robots=rules("Crawl-delay: 2")),
            site("slow.test", {"*": SLOW}),
        ],
        settings=QUICK,
    ),
    "learned": crawl_of(
        *(f"http://slow.test/{page}" for page in range(3)),
        *(f"http://fast.test/{page}" for page in range(4)),
        sites=[site("slow.test", {"*": SLOW}), site("fast.test")],
        settings=LEARNING,
    ),
    "forgotten": crawl_of(
        sites=[site("slow.test", {"*": SLOW})], spider=FORGETTING, settings=LEARNING
    ),
}


@pytest.mark.parametrize("name", CRAWLS)
def test_r4_2_serial_and_never_too_soon(crawls: Callable[[str], Crawl], name: str) -> None:
    result = crawls(name)
    assert max_in_flight(result.log) == 1
    assert too_soon(result.log) == []
    assert result.stats["close_reason"] == "finished"


def test_r4_3_a_low_maximum_is_no_way_below_the_crawl_delay(
    crawls: Callable[[str], Crawl],
) -> None:
    result = crawls("floor")
    assert len(targets(result.log, "delay.test")) == 3
    assert kept(result.gaps("delay.test")[1:], 2.0)


@pytest.mark.parametrize(("host", "least"), [("delay.test", 2000), ("fast.test", 1000)])
def test_the_delay_that_is_printed_is_the_one_that_holds(
    crawls: Callable[[str], Crawl], host: str, least: int
) -> None:
    lines = crawls("floor").lines("[scrapy.extensions.throttle] INFO", f"slot: {host} ")
    assert len(lines) >= 3
    printed = [re.search(r"delay: *(\d+) ms \(([+-]\d+)\)", line) for line in lines]
    assert [(int(each[1]), each[2]) for each in printed if each] == [(least, "+0")] * len(lines)


@pytest.mark.parametrize("name", ["learned", "forgotten"])
def test_what_is_learned_from_a_slow_host_is_its_interval(
    crawls: Callable[[str], Crawl], name: str
) -> None:
    result = crawls(name)
    assert len(targets(result.log, "slow.test")) == 3
    # Half a request at a time: two latencies a request, after the start delay's average.
    assert kept(result.gaps("slow.test")[1:], 2 * LATENCY)


def test_the_slots_were_indeed_collected(crawls: Callable[[str], Crawl]) -> None:
    assert [item["slots"] for item in crawls("forgotten").items] == [0] * 3


def test_the_queue_asks_others_while_the_slow_host_waits(
    crawls: Callable[[str], Crawl],
) -> None:
    order = targets(crawls("learned").log)
    slow = [place for place, each in enumerate(order) if each.host == "slow.test"]
    between = [each.host for each in order[slow[0] : slow[-1]]]
    assert between.count("fast.test") >= 3
