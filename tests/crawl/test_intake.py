"""How `Spider.start` is taken in: by slices, no further than enough, and what waits for its end."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.proof.sandbox import Route, Sandbox, hosts
from tests.crawl.harness import Crawl, crawl, make_project, site, solo

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: `start` goes on when the callback of its first page has run, and names then what that asked for.
LATE = """
import asyncio
import scrapy
from scrapy_walsh.adapters import compat

class Probe(scrapy.Spider):
    name = "probe"
    parsed = False

    async def start(self):
        yield scrapy.Request("http://first.test/", errback=self.failed)
        while not self.parsed:
            await asyncio.sleep(0.02)
        await asyncio.sleep(1.5)  # what is parked has had its time to go wrong
        yield scrapy.Request("http://late.test/linked", errback=self.failed)
        yield scrapy.Request("http://late.test/", meta={"walsh_also": ["http://late.test/fetched"]})
        try:
            await compat.download(self.crawler, scrapy.Request("http://late.test/own"))
        except Exception as error:
            print("OWN", type(error).__name__, error, flush=True)
        print("START HAS ENDED", flush=True)

    async def parse(self, response):
        if response.url != "http://first.test/":
            yield {"url": response.url, "status": response.status}
            return
        self.parsed = True
        yield scrapy.Request("http://late.test/linked", errback=self.failed)
        yield scrapy.Request("http://late.test/never", errback=self.failed)
        yield scrapy.Request("ftp://late.test/never", errback=self.failed)
        fetched = await compat.download(self.crawler, scrapy.Request("http://late.test/fetched"))
        yield {"url": fetched.url, "status": fetched.status}

    def failed(self, failure):
        error, why = failure.type.__name__, str(failure.value)
        yield {"url": failure.request.url, "error": error, "why": why}
"""

#: More targets than a machine takes in while one page is on its way. ``slices=""``: without them.
MANY = """
import asyncio, os, signal
import scrapy
from scrapy_walsh.adapters import context, intake
from scrapy_walsh.adapters.crawl import Crawl

class Probe(scrapy.Spider):
    name = "probe"
    taken = 0
    dies_at = ""

    async def start(self):
        if self.dies_at:
            intake._SLICE = context._WRITE_WITHIN = 1e9
            Crawl.of(self.crawler).on_wire.append(self.on_wire)
        yield scrapy.Request("http://first.test/", priority=1)
        for number in range(100 if self.dies_at else 20_000):
            self.taken += 1
            yield scrapy.Request(f"http://many{number // 10}.test/{number}")
        if self.dies_at:
            await asyncio.sleep(60)

    def on_wire(self, request):
        if self.dies_at in request.url:
            os.kill(os.getpid(), signal.SIGKILL)

    def parse(self, response):
        yield {"url": response.url, "taken": self.taken}
        raise scrapy.exceptions.CloseSpider("measured")
"""

#: It yields 60 targets on as many hosts, and notes how many waited at most. A slice is one of them.
FULL = """
import scrapy
from scrapy_walsh.adapters import compat, intake
from scrapy_walsh.policy import agenda

intake._SLICE, intake._LOOK = 0.0, 0.01
agenda.ENOUGH_REQUESTS = 10

class Probe(scrapy.Spider):
    name = "probe"
    known = ""

    async def start(self):
        agenda.ENOUGH_HOSTS = int(self.known)
        most = 0
        for number in range(60):
            yield scrapy.Request(f"http://full{number}.test/", errback=self.failed)
            most = max(most, len(compat.scheduler(self.crawler)))
        print("MOST", most, flush=True)

    def parse(self, response):
        yield {"url": response.url, "status": response.status}

    def failed(self, failure):
        pass
"""

#: `start` goes on when a request has ended that it has not declared: a link of its first page.
WAITS = """
import asyncio
import scrapy

class Probe(scrapy.Spider):
    name = "probe"
    ended = 0

    async def start(self):
        yield scrapy.Request("http://first.test/", meta={"walsh_also": ["http://also.test/"]})
        while self.ended < 4:
            await asyncio.sleep(0.02)
        yield scrapy.Request("http://last.test/", self.last)

    def parse(self, response):
        for number in range(3):
            yield scrapy.Request(f"http://other.test/{number}", self.last, errback=self.failed)
        yield scrapy.Request("http://also.test/", self.also)

    def also(self, response):
        self.ended += 1

    def failed(self, failure):
        self.ended += 1
        yield {"url": failure.request.url, "error": "refused", "why": str(failure.value)}

    def last(self, response):
        yield {"url": response.url, "status": response.status}
"""


@pytest.fixture(scope="module", params=["memory", "JOBDIR"])
def waits(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Crawl:
    sites = tuple(site(f"{name}.test") for name in ("first", "also", "other", "last"))
    settings = {"JOBDIR": "job"} if request.param == "JOBDIR" else {}
    directory = tmp_path_factory.mktemp("waits")
    return solo(directory, sites=sites, spider=WAITS, settings=settings, timeout=60)


def test_r6_2_what_start_itself_waits_for_is_judged_after_a_while(waits: Crawl) -> None:
    assert waits.fetched("http://last.test/"), waits.output
    assert waits.asked("other.test") == []
    assert all("R6 out_of_scope" in waits.why(f"http://other.test/{number}") for number in range(3))
    assert waits.asked("also.test")[-1] == "/"
    assert waits.stats["close_reason"] == "finished"


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> Crawl:
    sites = (site("first.test"), site("late.test"))
    return solo(tmp_path_factory.mktemp("late"), sites=sites, spider=LATE)


def test_r6_2_a_link_that_start_names_later_is_fetched(late: Crawl) -> None:
    assert late.fetched("http://late.test/linked"), late.output
    assert late.asked("late.test").count("/linked") == 1
    assert late.why("http://late.test/linked") == ""


def test_r6_2_a_link_that_start_never_names_is_refused_and_not_at_once(late: Crawl) -> None:
    assert "R6 out_of_scope" in late.why("http://late.test/never")
    assert "/never" not in late.asked("late.test")
    named = late.output.index("http://late.test/linked")
    refused = late.lines("http://late.test/never", "out_of_scope")
    assert refused
    assert min(map(late.output.index, refused)) > named


def test_r6_another_scheme_is_refused_at_once(late: Crawl) -> None:
    assert "is not an http or https URL" in late.why("ftp://late.test/never")


def test_what_did_not_come_from_the_queue_waits_too(late: Crawl) -> None:
    assert late.fetched("http://late.test/fetched"), late.output


def test_start_does_not_wait_for_itself(late: Crawl) -> None:
    assert late.lines("OWN Refused")
    assert "/own" not in late.asked("late.test")
    assert late.stats["close_reason"] == "finished"


def test_a_page_is_answered_while_start_is_taken_in(run: Callable[..., Crawl]) -> None:
    result = run(sites=(site("first.test"),), spider=MANY)
    taken = next(item["taken"] for item in result.items if item["url"] == "http://first.test/")
    assert 0 < taken < 20_000, result.output
    assert result.stats["close_reason"] == "measured"


def lines(project: Path) -> list[dict[str, Any]]:
    """The lines of the project's ledger."""
    text = (project / ".scrapy" / "walsh" / "ledger.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("host", ["operator.test", "first.test"])
def test_nothing_is_sent_before_its_declaration_is_in_the_ledger(
    box: Sandbox, tmp_path: Path, host: str
) -> None:
    """It is killed as the first request to a host is sent. No slice or timer has ended."""
    box.put(site("first.test"))
    project = make_project(tmp_path, MANY)
    result = crawl(project, box, arguments=("-a", f"dies_at={host}"))
    assert result.returncode != 0
    declared = {line["url"] for line in lines(project) if line["kind"] == "declared"}
    assert "http://first.test/" in declared
    assert "first.test" not in hosts(result.log)


@pytest.mark.parametrize(("known", "most"), [(5, range(5, 12)), (1000, range(13, 61))])
def test_no_more_is_taken_in_than_enough_once_many_hosts_are_known(
    run: Callable[..., Crawl], known: int, most: range
) -> None:
    sites = tuple(site(f"full{number}.test") for number in range(60))
    result = run(sites=sites, spider=FULL, arguments=("-a", f"known={known}"))
    (line,) = result.lines("MOST")
    assert int(line.split()[1]) in most
    assert sum(item["status"] == 200 for item in result.items) == 60


#: It collects garbage after every ten targets. At the end it prints, by its type, what only the
#: exemption from garbage collection has kept in memory.
EXEMPT = """
import asyncio, collections, gc
import scrapy
from scrapy_walsh.adapters import intake

intake._FREEZE = 10
freeze, unfreeze, freezes = gc.freeze, gc.unfreeze, []

def count():
    freezes.append(0)
    freeze()

def tell():
    gc.collect()
    unfreeze()
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    kinds = collections.Counter(type(each).__qualname__ for each in gc.garbage)
    print("KEPT", len(freezes), *(f"{name}={kinds[name]}" for name in kinds), flush=True)

gc.freeze, gc.unfreeze = count, tell

class Probe(scrapy.Spider):
    name = "probe"
    ended = 0

    async def start(self):
        for number in range(80):
            while number - self.ended > 5:
                await asyncio.sleep(0.01)
            yield scrapy.Request(f"http://many{number}.test/", errback=self.failed)

    def parse(self, response):
        self.ended += 1

    def failed(self, failure):
        self.ended += 1
"""
#: Classes of Protego: of each robots.txt one object at least.
PROTEGO = {"Protego", "_RuleSet", "_Rule", "_URLPattern"}
#: Types of the standard library, which are not told apart.
PLAIN = {
    *("list", "dict", "tuple", "cell", "function", "frame", "method", "staticmethod", "type"),
    *("getset_descriptor", "coroutine", "set", "builtin_function_or_method", "traceback"),
}


def test_nothing_that_is_exempt_from_collection_is_in_a_cycle(
    run: Callable[..., Crawl], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Objects of libraries too: Protego's rules were, and 20,000 hosts filled the memory."""
    monkeypatch.setenv("WALSH_TESTS_PLAIN", "1")  # a forked process never ends the exemption
    rules = "User-agent: *\nDisallow: /a/*\nCrawl-delay: 1\nUser-agent: other\nDisallow: /b$\n"
    sites = [site(f"many{number}.test", robots=rules) for number in range(80)]
    sites[3] = site("many3.test", robots="User-agent: *\nDisallow: /\n")
    sites[4] = site("many4.test", {"/": Route(302, location="http://many5.test/hop")})
    sites[6] = site("many6.test", {"/": Route(404)})
    sites[7] = site("many7.test", {"/": Route(behaviour="close")})
    settings = {"WALSH_ROBOTS_CACHE_SIZE": 5, "WALSH_MAX_RETRIES": 0}
    result = run(sites=sites, spider=EXEMPT, settings=settings, timeout=120)
    (line,) = result.lines("KEPT")
    _, freezes, *words = line.split()
    kinds = {name: int(count) for name, _, count in (word.rpartition("=") for word in words)}
    assert int(freezes) >= 5
    assert not kinds.keys() & PROTEGO, kinds
    # A collection meets one connection, or one import, that is under way.
    assert all(kinds[name] < 40 for name in kinds.keys() - PLAIN), kinds
