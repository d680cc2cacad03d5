"""The processor time of one request, all in all, beside stock Scrapy in the same run.

Run: ``python bench/cost.py [--json FILE] [--quick] [--hosts N] [--rounds N]``.

Every host has one target and a robots.txt, and the sandbox answers at once, so nothing waits: what
is left is work. Both crawlers take one request at a time, and connect to each host by its name,
which their resolver has on loopback. ``us a target`` is the user and system time of the crawling
process from spider_opened to spider_closed, its robots.txt included; the least of the rounds, since
another process can only lengthen it. ``ratio``: over stock's. ``stock, not kept`` is stock Scrapy
that opens a connection for each request, as ours does (D29): by default it keeps that of robots.txt
for the target. The rows below ``ours`` say where it goes: without the ledger, and without a state
directory, in which the ledger would be. ``written``
is what the process had the disk write meanwhile, octets a target (``write_bytes`` of
proc_pid_io(5), 0 where there is none).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[1])  # bench/queue.py is not Python's queue

from scrapy import Request, Spider, signals  # noqa: E402
from scrapy.core.downloader.handlers.http11 import HTTP11DownloadHandler  # noqa: E402
from scrapy.crawler import CrawlerProcess  # noqa: E402
from scrapy.resolver import CachingThreadedResolver  # noqa: E402
from twisted.internet.defer import Deferred, succeed  # noqa: E402

from bench import makespan  # noqa: E402
from bench.report import Row, show, write  # noqa: E402
from scrapy_walsh.adapters.compat import no_persistent_connections  # noqa: E402

#: By row: the crawler, and the settings that are laid over its own.
CRAWLERS: dict[str, tuple[str, dict[str, Any]]] = {
    "stock": ("stock", {}),
    "stock, not kept": ("stock", {"DOWNLOAD_HANDLERS": {"http": "__main__.NotKept"}}),
    "ours": ("ours", {}),
    "ours, no ledger": ("ours", {"WALSH_LEDGER": False}),
    "ours, no state": ("ours", {"WALSH_STATE_DIR": "memory"}),
}
COLUMNS = {
    "crawler": "<16", "targets": ">8", "us a target": ">12.0f", "ratio": ">6.2f", "written": ">8.0f"
}  # fmt: skip
CRAWL = "crawl"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the rows to this file as well")
    parser.add_argument("--quick", action="store_true", help="few hosts, to see that it works")
    parser.add_argument("--hosts", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.quick:
        options.hosts, options.rounds = 10, 1
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in CRAWLERS}
    for _ in range(options.rounds):
        for name in CRAWLERS:
            found[name].append(measured(name, options.hosts))
    costs = {name: min(cost for cost, _ in runs) for name, runs in found.items()}
    rows: list[Row] = [
        {
            "crawler": name,
            "targets": options.hosts,
            "us a target": costs[name] * 1e6,
            "ratio": costs[name] / costs["stock"],
            "written": min(written for _, written in found[name]),
        }
        for name in CRAWLERS
    ]
    write(options.json, benchmark="cost", rows=show(rows, COLUMNS))


def measured(name: str, count: int) -> tuple[float, float]:
    """Seconds of processor time, and octets written, of a target and its robots.txt."""
    hosts = {f"h{number}.test" for number in range(count)}
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log.jsonl")
        with makespan.sandbox(Path(folder), log, hosts, latency=0.0) as proxy:
            port = proxy.rpartition(":")[2].rstrip("/")
            done = subprocess.run(
                [sys.executable, str(Path(__file__).resolve()), CRAWL, name, port],
                input="\n".join(f"http://{host}:{port}/" for host in sorted(hosts)),
                text=True,
                cwd=folder,
                env=makespan.environment(http_proxy=""),
                stdout=subprocess.PIPE,
                check=True,
            )
        seen = [each for each in makespan.read_log(log) if each.host.startswith("h")]
    assert len(seen) == 2 * count, f"{name}: {len(seen)} requests"
    cost, written = map(float, done.stdout.split())
    return cost / count, written / count


def written_so_far() -> int:
    """Octets that this process had the disk write."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return 0
    return next(int(each.split()[1]) for each in lines if each.startswith("write_bytes"))


class NotKept(HTTP11DownloadHandler):
    """Scrapy's handler, with a connection for each request."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        no_persistent_connections(self)


class Loopback(CachingThreadedResolver):
    """Every name is this machine's."""

    def getHostByName(self, name: str, timeout: Any = ()) -> Deferred[str]:  # noqa: N802, ARG002
        return succeed("127.0.0.1")


def crawl(name: str, port: str) -> None:
    """Crawl what stdin names; print the seconds of processor time and the octets written."""
    urls = sys.stdin.read().split()
    bot, more = CRAWLERS[name]

    class Bench(Spider):
        name = "bench"
        begun = 0.0
        wrote = 0

        @classmethod
        def from_crawler(cls, crawler: Any, *args: Any, **kwargs: Any) -> Any:
            spider = super().from_crawler(crawler, *args, **kwargs)
            crawler.signals.connect(spider.opened, signals.spider_opened)
            crawler.signals.connect(spider.ended, signals.spider_closed)
            return spider

        def opened(self) -> None:
            self.begun, self.wrote = time.process_time(), written_so_far()

        def ended(self) -> None:
            print(time.process_time() - self.begun, written_so_far() - self.wrote)

        async def start(self) -> Any:
            for url in urls:
                yield Request(url)

        def parse(self, response: Any) -> None:
            assert response.status == 200

    settings = makespan.settings(bot, 1.0 if bot == "ours" else 0.0)
    for key, value in settings.items():
        if key.startswith("WALSH_BLOCKLIST"):
            settings[key] = value.replace("operator.test", f"operator.test:{port}")
    process = CrawlerProcess({**settings, "DNS_RESOLVER": Loopback, **more})
    process.crawl(Bench)
    process.start()


if __name__ == "__main__":
    if sys.argv[1:2] == [CRAWL]:
        crawl(*sys.argv[2:])
    else:
        main()
