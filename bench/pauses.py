"""Longest pauses of the event loop: start URLs, the operator's list, large documents come in.

Run: ``python bench/pauses.py [--json FILE] [--quick] [--entries N] [--rounds N] [--urls N ...]``.

A task sleeps 2 ms again and again, and a pause is what it overslept. The crawl is a process of
its own, and the sandbox, which serves the list, another. ``stock download`` is Scrapy without this
package, which downloads the same octets and looks at none; the other rows are this package's.
``wall``: the longest pause; where the machine is busy, that is also another process's turn.
``cpu``: the most processor time that all threads of the crawl used within one pause, so never
another's turn. Each is the smallest of the rounds, which other work on the machine disturbs least.

The second table is of ``walsh_metadata``: one crawl for each document that costs its reader much
(``tests/sources/hostile.py``), until its items are scraped.

The third table is of the intake: ``start()`` is a generator of so many URLs, ten on each host. The
crawl ends when that has ended and a page was answered. ``first``: seconds from the first URL to the
first request to a host, by the sandbox's log. ``intake``: until ``start()`` had ended. ``held``: by
how much the process had grown by then; ``at 200k``: when so many URLs had been taken in. From
200,000 URLs on, the blocklist has all hosts but a hundred, so that the queue drains at the speed of
the processor. Stock Scrapy holds every request in memory: it is measured up to 100,000.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path[0] = str(Path(__file__).resolve().parents[1])  # bench/queue.py is not Python's queue

from scrapy import Request, Spider, signals  # noqa: E402
from scrapy.crawler import CrawlerProcess  # noqa: E402

from bench.blocklist import SCHEMA, document  # noqa: E402
from bench.report import Row, show, write  # noqa: E402
from scrapy_walsh.adapters import compat  # noqa: E402
from scrapy_walsh.adapters.crawl import Crawl  # noqa: E402
from scrapy_walsh.proof.sandbox import Route, Sandbox, Site  # noqa: E402
from scrapy_walsh.spiders.walsh_metadata import WalshMetadataSpider  # noqa: E402
from tests.sources.hostile import DOCUMENTS, MEGABYTES, Hostile  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SLEEP = 0.002
LIST = "http://operator.test/.well-known/walsh-research/blocklist.json"
COPY = "http://operator.test/copy.json"
#: Each row's crawl, in order: they share a state directory.
STOCK = "stock download"
CRAWLS = {
    STOCK: 0,
    "first fetch": 0,
    "from the store": 0,
    "refresh, another list": 1,
    "refresh, 304": 2,
}
#: Seconds that the list is held: PT6H.
REFRESH = 21600.0
LIFTED = 10
#: Those that are read, or refused, by other means than the limit of time; and a plain feed.
READ = (
    *(each for each in DOCUMENTS if not each.slow),
    Hostile("plain-10MB", "feed", MEGABYTES["plain feed"]),
    Hostile("markdown-10MB", "markdown", MEGABYTES["markdown"]),
)
READ_COLUMNS = {
    "document": "<14", "octets": ">10", "outcome": "<10", "items": ">6", "wall ms": ">8.1f",
    "cpu ms": ">7.1f", "took s": ">7.2f",
}  # fmt: skip
#: Start URLs on each host; how many of them need a blocklist; hosts that are never on it.
PER_HOST, REFUSED_FROM, OPEN_HOSTS = 10, 200_000, 100
#: Stock Scrapy is not given more URLs than this.
STOCK_MOST = 100_000
INTAKE_COLUMNS = {
    "urls": ">9,", "bot": "<6", "wall ms": ">9.1f", "cpu ms": ">9.1f", "first s": ">8.2f",
    "intake s": ">9.2f", "at 200k MB": ">11.0f", "held MB": ">8.0f",
}  # fmt: skip
COLUMNS = {
    "crawl": "<21", "entries": ">9", "octets": ">10", "wall ms": ">8.1f", "cpu ms": ">7.1f",
    "took s": ">7.2f",
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the rows to this file as well")
    parser.add_argument("--quick", action="store_true", help="a short list, to see that it works")
    parser.add_argument("--entries", type=int, default=1_000_000, help="0: the documents alone")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--urls", type=int, nargs="*", default=[8_000, 20_000, 50_000, 1_000_000], help="of start()"
    )
    options = parser.parse_args()
    entries, rounds = (5_000, 1) if options.quick else (options.entries, options.rounds)
    rows = show(measured(entries, rounds), COLUMNS) if entries else []
    chosen = READ[:1] if options.quick else READ if rounds else ()
    read = show(documents(chosen, rounds), READ_COLUMNS)
    taken = show(intakes([500] if options.quick else options.urls), INTAKE_COLUMNS)
    write(options.json, benchmark="pauses", rows=rows, documents=read, intake=taken)


def intakes(sizes: Sequence[int]) -> Iterator[Row]:
    for size in sizes:
        for bot in ("stock", "ours"):
            if bot == "stock" and size > STOCK_MOST:
                continue
            with tempfile.TemporaryDirectory() as folder:
                hosts = size // PER_HOST if size >= REFUSED_FROM else 0
                with sandbox(hosts, "hosts") as ready:
                    row = run_crawl(f"intake {bot} {size}", folder, ready["proxy"])
                row["first s"] = ready["first"] - row.pop("began")
                yield {"urls": size, "bot": bot, **row}


def measured(entries: int, rounds: int) -> Iterator[Row]:
    found: dict[str, list[Row]] = {name: [] for name in CRAWLS}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder, sandbox(entries) as ready:
            for name in CRAWLS:
                found[name].append(run_crawl(name, folder, ready["proxy"]))
    for name, rows in found.items():
        best = {key: min(row[key] for row in rows) for key in rows[0]}
        yield {"crawl": name, "entries": entries, "octets": ready["octets"], **best}


def documents(chosen: Sequence[Hostile], rounds: int) -> Iterator[Row]:
    for number, document_ in enumerate(READ):
        if document_ not in chosen:
            continue
        rows = []
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as folder, sandbox(0) as ready:
                rows.append(run_crawl(f"document {number}", folder, ready["proxy"]))
        best = {key: min(row[key] for row in rows) for key in ("wall ms", "cpu ms", "took s")}
        yield {"document": document_.name, "octets": len(document_.body()), **rows[0], **best}


@contextmanager
def sandbox(entries: int, listed: str = "shops") -> Iterator[dict[str, Any]]:
    """What the sandbox says of itself; at the end, also when the first host was requested."""
    command = [sys.executable, str(Path(__file__).resolve()), "serve", str(entries), listed]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            ready = json.loads(server.stdout.readline())
            yield ready
        finally:
            server.stdin.close()
            ready.update(json.loads(server.stdout.readline()))


def run_crawl(name: str, folder: str, proxy: str) -> Row:
    done = subprocess.run(
        [sys.executable, str(Path(__file__).resolve()), "crawl", name],
        cwd=folder,
        env=environment(http_proxy=proxy, no_proxy=""),
        check=True,
        stdout=subprocess.PIPE,
    )
    row: Row = json.loads(done.stdout)
    return row


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": sys.path[0], **more}


# -- the sandbox's process -----------------------------------------------------------------------


def made_of(document_: Hostile) -> Callable[[Any], Route]:
    """An answer that is made when it is asked for: all of them at once take a while."""
    return lambda _: Route(body=document_.body(), content_type=document_.content_type)


def host_of(number: int) -> str:
    """The host of the start URL with this number; it has no site, so each page is a 404."""
    return f"host{number // PER_HOST}.example.test"


def serve(entries: int, listed: str) -> None:
    """Serve a list, then one of which some domains are gone, until standard input ends."""
    domains = [f"shop{number}.example{number % 97}.test" for number in range(entries)]
    if listed == "hosts":
        domains = [host_of(number * PER_HOST) for number in range(OPEN_HOSTS, entries)]
    one, other = (document(domains[skipped:], SCHEMA) for skipped in (0, LIFTED))
    json_type = "application/json"
    lists = (
        Route(body=one, content_type=json_type, etag='"1"'),
        Route(body=other, content_type=json_type, etag='"2"'),
    )
    operator = {
        "/robots.txt": Route(404),
        LIST.removeprefix("http://operator.test"): Route(sequence=lists),
        COPY.removeprefix("http://operator.test"): lists[0],
    }
    page = {"/robots.txt": Route(404), "*": Route(body="<p>page</p>")}
    sites = [Site("operator.test", operator), Site("page.test", page)]
    for number, each in enumerate(READ):
        sites.append(Site(f"h{number}.test", {"/robots.txt": Route(404), "/": made_of(each)}))
    with Sandbox(sites) as box:
        print(json.dumps({"proxy": box.proxy_url, "octets": len(one)}), flush=True)
        sys.stdin.read()
        arrived = [each.arrived for each in box.log if each.host != "operator.test"]
        print(json.dumps({"first": min(arrived, default=0.0)}))


# -- the crawling process ------------------------------------------------------------------------


class Heartbeat:
    """An extension: the longest pause of the event loop since it was last reset."""

    wall = cpu = 0.0

    def __init__(self, crawler: Any) -> None:
        crawler.signals.connect(self.start, signals.spider_opened)
        crawler.heartbeat = self

    @classmethod
    def from_crawler(cls, crawler: Any) -> Heartbeat:
        return cls(crawler)

    def start(self) -> None:
        self.began = time.perf_counter()
        self.task = asyncio.ensure_future(self.beat())

    def reset(self) -> None:
        self.wall = self.cpu = 0.0

    async def beat(self) -> None:
        while True:
            wall, cpu = time.perf_counter(), time.process_time()
            await asyncio.sleep(SLEEP)
            self.wall = max(self.wall, time.perf_counter() - wall - SLEEP)
            self.cpu = max(self.cpu, time.process_time() - cpu)


class Bench(Spider):
    """Asks for a page, and once the list has run out for another."""

    name = "bench"
    custom_settings = {"EXTENSIONS": {Heartbeat: 0}}  # noqa: RUF012
    crawl = ""

    async def start(self) -> Any:
        self.began = time.perf_counter()
        if self.crawl == STOCK:
            yield Request(COPY)
            return
        self.runs_out(CRAWLS[self.crawl] and (CRAWLS[self.crawl] - 1))
        for number in range(1 + bool(CRAWLS[self.crawl])):
            yield Request(f"http://page.test/{self.crawl}/{number}", priority=-number)

    def runs_out(self, times: int) -> None:
        """Let the clock of documents show that the list has run out so often."""
        Crawl.of(self.crawler).wall = lambda: time.time() + times * (REFRESH + 60)

    def parse(self, response: Any) -> None:
        heartbeat: Heartbeat = self.crawler.heartbeat  # type: ignore[attr-defined]
        if CRAWLS[self.crawl] and response.url.endswith("/0"):
            self.runs_out(CRAWLS[self.crawl])
            heartbeat.reset()
            self.began = time.perf_counter()
            return
        took = time.perf_counter() - self.began
        heartbeat.task.cancel()
        row = {"wall ms": heartbeat.wall * 1e3, "cpu ms": heartbeat.cpu * 1e3, "took s": took}
        print(json.dumps(row), flush=True)


class Takes(Spider):
    """``start`` yields so many URLs; the spider closes when that has ended and a page has come."""

    name = "takes"
    custom_settings = {"EXTENSIONS": {Heartbeat: 0}, "HTTPERROR_ALLOW_ALL": True}  # noqa: RUF012
    size = "0"
    answered = False
    ended = early = 0.0

    async def start(self) -> Any:
        self.began, self.before = time.monotonic(), resident()
        for number in range(int(self.size)):
            if number == REFUSED_FROM:
                self.early = self.held()
            yield Request(f"http://{host_of(number)}/{number}", errback=self.failed)
        self.ended = time.monotonic() - self.began
        self.grown = self.held()
        self.over()

    def held(self) -> float:
        return (resident() - self.before) / 1e6

    def parse(self, response: Any) -> None:  # noqa: ARG002
        self.answered = True
        self.over()

    def failed(self, failure: Any) -> None:
        """A refusal is what is measured here, and is not logged."""

    def over(self) -> None:
        if self.ended and self.answered:
            compat.close_spider(self.crawler, "measured")

    def closed(self, reason: str) -> None:  # noqa: ARG002
        heartbeat: Heartbeat = self.crawler.heartbeat  # type: ignore[attr-defined]
        heartbeat.task.cancel()
        row = {"wall ms": heartbeat.wall * 1e3, "cpu ms": heartbeat.cpu * 1e3}
        row |= {"intake s": self.ended, "at 200k MB": self.early, "held MB": self.grown}
        print(json.dumps({**row, "began": self.began}), flush=True)


def resident() -> int:
    """Bytes of memory in use now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


class Reads(WalshMetadataSpider):
    """The spider itself, which prints its row at its end."""

    custom_settings = {"EXTENSIONS": {Heartbeat: 0}}  # noqa: RUF012

    def closed(self, reason: str) -> None:
        super().closed(reason)
        heartbeat: Heartbeat = self.crawler.heartbeat  # type: ignore[attr-defined]
        heartbeat.task.cancel()
        took = time.perf_counter() - self.crawler.heartbeat.began  # type: ignore[attr-defined]
        (seen,) = (walk.row for walk in self.walks.values())
        row = {"wall ms": heartbeat.wall * 1e3, "cpu ms": heartbeat.cpu * 1e3, "took s": took}
        print(json.dumps({**row, "outcome": seen.outcome, "items": seen.items}), flush=True)


def crawl_document(number: int) -> None:
    process = CrawlerProcess({**settings(), "WALSH_STATE_DIR": "memory"})
    process.crawl(Reads, urls=f"http://h{number}.test/")
    process.start()


def crawl(name: str) -> None:
    if name.startswith("document "):
        crawl_document(int(name.split()[1]))
        return
    stock = name == STOCK or name.startswith("intake stock")
    process = CrawlerProcess(stock_settings() if stock else settings())
    if name.startswith("intake "):
        process.crawl(Takes, size=name.split()[2])
    else:
        process.crawl(Bench, crawl=name)
    process.start()


def stock_settings() -> dict[str, Any]:
    return {"LOG_LEVEL": "ERROR", "TELNETCONSOLE_ENABLED": False, "CONCURRENT_REQUESTS": 1}


def settings() -> dict[str, Any]:
    return {
        "LOG_LEVEL": "ERROR",
        "ADDONS": {"scrapy_walsh.Addon": 500},
        "WALSH_IDENTITY": "walsh-research",
        "WALSH_BLOCKLIST_URL": LIST,
        "WALSH_STATE_DIR": "state",
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(int(sys.argv[2]), sys.argv[3])
    elif sys.argv[1:2] == ["crawl"]:
        crawl(sys.argv[2])
    else:
        main()
