"""The memory of a crawl whose ``start()`` goes on: each target is on a host of its own.

Run: ``python bench/memory.py [--json FILE] [--quick] [--requests N]``.

Each host has a robots.txt with 21 rules, so half of the requests are for one. ``start()`` yields a
target when another one has ended, and the crawl closes after N requests. ``MB``: memory in use by
the crawling process. ``of 20k``: that over the memory after 20,000 requests. ``kB a host``: by how
much it has grown since then for each new host. Objects that a crawl needs for every host, for
example its due time, are in it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path[0] = str(Path(__file__).resolve().parents[1])  # bench/queue.py is not Python's queue

from scrapy import Request, Spider  # noqa: E402
from scrapy.crawler import CrawlerProcess  # noqa: E402

from bench.pauses import LIST, environment, resident, settings  # noqa: E402
from bench.report import Row, show, write  # noqa: E402
from scrapy_walsh.adapters import compat  # noqa: E402
from scrapy_walsh.proof.sandbox import Route, Sandbox, Site  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Requests between two rows, and those after which memory should not grow; with ``--quick`` fewer.
STEP, FLAT = 10_000, 20_000
#: Targets that wait at most.
AHEAD = 100
RULES = "User-agent: *\n" + "".join(f"Disallow: /private/{rule}/*\n" for rule in range(21))
COLUMNS = {
    "requests": ">9,", "hosts": ">7,", "MB": ">6.0f", "of 20k": ">6.3f", "kB a host": ">9.2f",
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the rows to this file as well")
    parser.add_argument("--quick", action="store_true", help="a short crawl, to see that it works")
    parser.add_argument("--requests", type=int, default=60_000)
    options = parser.parse_args()
    scale = 500 if options.quick else 1
    rows = show(measured(options.requests // scale, STEP // scale, FLAT // scale), COLUMNS)
    write(options.json, benchmark="memory", rows=rows)


def measured(requests: int, step: int, flat: int) -> Iterator[Row]:
    """A row after each *step* requests; ratios to the memory after *flat* of them."""
    base: Row | None = None
    for row in crawled(requests, step):
        if base is None and row["requests"] >= flat:
            base = row
        elif base is not None:
            grown = row["MB"] - base["MB"]
            row["of 20k"] = row["MB"] / base["MB"]
            row["kB a host"] = 1e3 * grown / (row["hosts"] - base["hosts"])
        yield row


def crawled(requests: int, step: int) -> Iterator[Row]:
    """Run a sandbox and a crawl, each in a process, and yield the rows of the crawl."""
    script = str(Path(__file__).resolve())
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(
            [sys.executable, script, "serve", str(requests)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(),
        ) as server,
    ):  # fmt: skip
        assert server.stdin is not None
        assert server.stdout is not None
        proxy = server.stdout.readline().decode().strip()
        with subprocess.Popen(
            [sys.executable, script, "crawl", str(requests), str(step)],
            cwd=folder, stdout=subprocess.PIPE, env=environment(http_proxy=proxy, no_proxy=""),
        ) as crawl:  # fmt: skip
            assert crawl.stdout is not None
            yield from map(json.loads, crawl.stdout)
        server.stdin.close()
        assert crawl.returncode == 0


def serve(requests: int) -> None:
    """Serve as many hosts as the crawl can reach, until standard input ends."""
    listed = Route(body=b'{"contract": "walsh-research-blocklist/v1", "blocked": []}')
    operator = {"/robots.txt": Route(404), LIST.removeprefix("http://operator.test"): listed}
    page = {"/robots.txt": Route(body=RULES), "*": Route(body="<p>page</p>")}
    sites = [Site(host_of(number), page) for number in range(requests // 2 + 2 * AHEAD)]
    with Sandbox([Site("operator.test", operator), *sites]) as box:
        print(box.proxy_url, flush=True)
        sys.stdin.read()


def host_of(number: int) -> str:
    return f"host{number}.test"


class Goes(Spider):
    """``start`` yields a target on a new host when another target has ended."""

    name = "goes"
    custom_settings = {"HTTPERROR_ALLOW_ALL": True}  # noqa: RUF012
    requests = step = 0
    ended = 0

    async def start(self) -> Any:
        number = 0
        while True:
            while number - self.ended >= AHEAD:
                await asyncio.sleep(0.01)
            yield Request(f"http://{host_of(number)}/{number}")
            number += 1

    def parse(self, response: Any) -> None:  # noqa: ARG002
        self.ended += 1
        sent = 2 * self.ended
        if sent % self.step == 0:
            row = {"requests": sent, "hosts": self.ended, "MB": resident() / 1e6}
            print(json.dumps(row), flush=True)
        if sent >= self.requests:
            compat.close_spider(self.crawler, "measured")


def crawl(requests: int, step: int) -> None:
    process = CrawlerProcess(settings())
    process.crawl(Goes, requests=requests, step=step)
    process.start()


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(int(sys.argv[2]))
    elif sys.argv[1:2] == ["crawl"]:
        crawl(int(sys.argv[2]), int(sys.argv[3]))
    else:
        main()
