"""Longest pauses of the event loop: the operator's list is loaded, large documents are read.

Run: ``python bench/pauses.py [--json FILE] [--quick] [--entries N] [--rounds N]``.

A task sleeps 2 ms again and again, and a pause is what it overslept. The crawl is a process of
its own, and the sandbox, which serves the list, another. ``stock download`` is Scrapy without this
package, which downloads the same octets and looks at none; the other rows are this package's.
``wall``: the longest pause; where the machine is busy, that is also another process's turn.
``cpu``: the most processor time that all threads of the crawl used within one pause, so never
another's turn. Each is the smallest of the rounds, which other work on the machine disturbs least.

The second table is of ``walsh_metadata``: one crawl for each document that costs its reader much
(``tests/sources/hostile.py``), until its items are scraped.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
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
    options = parser.parse_args()
    entries, rounds = (5_000, 1) if options.quick else (options.entries, options.rounds)
    rows = show(measured(entries, rounds), COLUMNS) if entries else []
    read = show(documents(READ[:1] if options.quick else READ, rounds), READ_COLUMNS)
    write(options.json, benchmark="pauses", rows=rows, documents=read)


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
def sandbox(entries: int) -> Iterator[dict[str, Any]]:
    command = [sys.executable, str(Path(__file__).resolve()), "serve", str(entries)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            yield json.loads(server.stdout.readline())
        finally:
            server.stdin.close()


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


def serve(entries: int) -> None:
    """Serve a list, then one of which some domains are gone, until standard input ends."""
    domains = [f"shop{number}.example{number % 97}.test" for number in range(entries)]
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


class Reads(WalshMetadataSpider):
    """The spider itself, which prints its row at its end."""

    custom_settings = {"EXTENSIONS": {Heartbeat: 0}}  # noqa: RUF012

    def closed(self, reason: str) -> None:
        super().closed(reason)
        heartbeat: Heartbeat = self.crawler.heartbeat  # type: ignore[attr-defined]
        heartbeat.task.cancel()
        took = time.perf_counter() - self.crawler.heartbeat.began  # type: ignore[attr-defined]
        seen = self.visits[0].row
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
    process = CrawlerProcess(stock_settings() if name == STOCK else settings())
    process.crawl(Bench, crawl=name)
    process.start()


def stock_settings() -> dict[str, Any]:
    return {"LOG_LEVEL": "ERROR", "TELNETCONSOLE_ENABLED": False}


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
        serve(int(sys.argv[2]))
    elif sys.argv[1:2] == ["crawl"]:
        crawl(sys.argv[2])
    else:
        main()
