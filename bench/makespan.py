"""How long a polite serial crawl takes, over the shortest time that politeness allows.

Run: ``python bench/makespan.py [--json FILE] [--quick] [--loads NAME ...] [--intervals S ...]``.

Each load is crawled by stock Scrapy (CONCURRENT_REQUESTS=1, DOWNLOAD_DELAY, no jitter,
ROBOTSTXT_OBEY) and by this package, in processes of their own, against the sandbox, which is
a third. All times are the server's: from the first request to a host of the load to the last
answer. Starting Python, and the blocklist that this package fetches first, are outside.
``ratio`` takes 50 ms for the latency, what the server waits; ``of handler`` takes what a request
costs Scrapy's own download handler in a loop, a connection each and nothing around it, measured
first in the same run: no crawl on that handler can be faster.

This package refuses an interval below 1 s. For the runs at 0.3 s this benchmark lowers the
constant inside its own crawling process: time is scaled, nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path[0] = str(Path(__file__).resolve().parents[1])  # bench/queue.py is not Python's queue

from scrapy import Request, Spider  # noqa: E402
from scrapy.crawler import CrawlerProcess  # noqa: E402
from scrapy.utils.misc import build_from_crawler, load_object  # noqa: E402
from scrapy.utils.reactor import install_reactor  # noqa: E402
from scrapy.utils.test import get_crawler  # noqa: E402
from twisted.internet.defer import Deferred  # noqa: E402
from twisted.internet.task import react  # noqa: E402

from bench.report import Row, show, write  # noqa: E402
from scrapy_walsh import config  # noqa: E402
from scrapy_walsh.adapters import compat  # noqa: E402
from scrapy_walsh.adapters.compat import JITTER_SETTING  # noqa: E402
from scrapy_walsh.adapters.turnstile import TURNSTILE  # noqa: E402
from scrapy_walsh.policy import agenda  # noqa: E402
from scrapy_walsh.proof.sandbox import LoggedRequest, read_log, requests  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

LATENCY = 0.05
ASYNCIO = "twisted.internet.asyncioreactor.AsyncioSelectorReactor"
#: Seconds that a gap seen at the server may be short by.
TOLERANCE = 0.02
BOTS = ("stock", "ours")
OPERATOR = "http://operator.test/.well-known/walsh-research/blocklist"
COLUMNS = {
    "load": "<12", "interval s": ">10.1f", "bot": "<5", "requests": ">8", "bound s": ">8.2f",
    "took s": ">8.2f", "ratio": ">6.3f", "of handler": ">10.3f", "violations": ">10",
    "in flight": ">9",
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the rows to this file as well")
    parser.add_argument("--quick", action="store_true", help="one tiny load, to see that it works")
    parser.add_argument("--loads", nargs="+", choices=LOADS, default=list(LOADS))
    parser.add_argument("--intervals", nargs="+", type=float, default=[0.3, 1.0])
    parser.add_argument("--bots", nargs="+", choices=BOTS, default=BOTS)
    options = parser.parse_args()
    runs = (
        [("tiny", TINY, 0.3, bot) for bot in options.bots]
        if options.quick
        else [
            (name, LOADS[name], interval, bot)
            for interval in options.intervals
            for name in options.loads
            for bot in options.bots
        ]
    )
    latency = handler_latency(TINY if options.quick else LOADS["interleaved"])
    print(f"Scrapy's handler in a loop: {latency * 1e3:.1f} ms a request")
    rows = show((measured(*run, latency) for run in runs), COLUMNS)
    write(options.json, benchmark="makespan", latency=LATENCY, handler_latency=latency, rows=rows)


# -- the loads: a host for each request, in the order in which the spider yields them ------------


def interleaved(counts: list[int]) -> list[str]:
    turns = itertools.zip_longest(*([f"h{n}.test"] * count for n, count in enumerate(counts)))
    return [host for turn in turns for host in turn if host is not None]


def shuffled(counts: list[int]) -> list[str]:
    order = sorted(interleaved(counts))
    random.Random(1).shuffle(order)
    return order


TINY = interleaved([3, 1, 1])
LOADS = {
    "skewed": ["h0.test"] * 20 + [f"h{n}.test" for n in range(1, 41)],
    "grouped": sorted(interleaved([5] * 10)),
    "interleaved": interleaved([5] * 10),
    "zipf": shuffled([max(1, round(60 / rank)) for rank in range(1, 201)]),
}


def lower_bound(hosts: list[str], interval: float, latency: float) -> float:
    """Seconds that no serial crawl of *hosts* can beat, each with a robots.txt besides.

    Of the k hosts with the most requests, one is begun last: not before the robots.txt and the
    first target of each of them, and all its other targets come after. All requests in a row
    are a bound as well.
    """
    counts = sorted(Counter(hosts).values(), reverse=True)
    bounds = [
        2 * position * latency + (count - 1) * (interval + latency)
        for position, count in enumerate(counts, 1)
    ]
    return max(*bounds, (len(hosts) + len(counts)) * latency)


# -- one run, and its judge ----------------------------------------------------------------------


def measured(load: str, hosts: list[str], interval: float, bot: str, latency: float) -> Row:
    seen = log_of(hosts, interval, bot)
    bound = lower_bound(hosts, interval, LATENCY)
    return {
        "load": load,
        "interval s": interval,
        "bot": bot,
        "requests": len(seen),
        "bound s": round(bound, 3),
        "took s": round(duration(seen), 3),
        "ratio": round(duration(seen) / bound, 4),
        "of handler": round(duration(seen) / lower_bound(hosts, interval, latency), 4),
        "violations": violations(seen, interval),
        "in flight": max(record.in_flight for record in seen),
    }


def handler_latency(hosts: list[str]) -> float:
    """Seconds that a request costs Scrapy's download handler alone, one after the other."""
    seen = log_of(hosts, 0.0, HANDLER)
    return duration(seen) / len(seen)


def log_of(hosts: list[str], interval: float, bot: str) -> list[LoggedRequest]:
    """What the server saw, in order; every target must have been asked once."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log.jsonl")
        with sandbox(Path(folder), log, set(hosts)) as proxy:
            run_crawl(Path(folder), proxy, hosts, interval, bot)
        seen = [record for record in requests(read_log(log)) if record.host in set(hosts)]
    targets = Counter(record.host for record in seen if record.path != "/robots.txt")
    assert targets == Counter(hosts), f"{bot}: asked {targets.total()} of {len(hosts)} targets"
    return seen


def duration(seen: list[LoggedRequest]) -> float:
    return max(record.completed or 0.0 for record in seen) - seen[0].arrived


def violations(seen: list[LoggedRequest], interval: float) -> int:
    """Gaps, end to start, that are too short; the target after the first robots.txt is exempt."""
    by_host: dict[str, list[LoggedRequest]] = {}
    for record in seen:
        by_host.setdefault(record.host, []).append(record)
    return sum(
        later.arrived - (earlier.completed or later.arrived) < interval - TOLERANCE
        for records in by_host.values()
        for number, (earlier, later) in enumerate(itertools.pairwise(records))
        if number or earlier.path != "/robots.txt"
    )


@contextmanager
def sandbox(folder: Path, log: Path, hosts: set[str], latency: float = LATENCY) -> Iterator[str]:
    page = {"body": "<p>page</p>", "delay": latency}
    robots = {"body": "User-agent: *\nAllow: /\n", "content_type": "text/plain", "delay": latency}
    sites = [{"host": host, "routes": {"/robots.txt": robots, "*": page}} for host in sorted(hosts)]
    (folder / "sites.json").write_text(json.dumps({"sites": sites}))
    command = ["-m", "scrapy_walsh", "sandbox", "--sites", str(folder / "sites.json")]
    with subprocess.Popen(
        [sys.executable, *command, "--log", str(log), "--print-port"],
        stdout=subprocess.PIPE,
        env=environment(),
    ) as server:
        assert server.stdout is not None
        try:
            yield json.loads(server.stdout.readline())["proxy"]
        finally:
            server.terminate()


def run_crawl(folder: Path, proxy: str, hosts: list[str], interval: float, bot: str) -> None:
    urls = [f"http://{host}/{number}" for number, host in enumerate(hosts)]
    subprocess.run(
        [sys.executable, str(Path(__file__).resolve()), CRAWL, bot, str(interval)],
        input=json.dumps(urls),
        text=True,
        cwd=folder,
        env=environment(http_proxy=proxy, no_proxy=""),
        check=True,
    )


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": sys.path[0], **more}


# -- the crawling process ------------------------------------------------------------------------

CRAWL = "crawl"
HANDLER = "handler"


async def ask() -> None:
    """Ask every URL by Scrapy's own handler, as this package has it connect."""
    crawler = get_crawler(Spider, {"LOG_LEVEL": "ERROR"})
    path = crawler.settings["DOWNLOAD_HANDLERS_BASE"]["http"]
    handler = build_from_crawler(load_object(path), crawler)
    compat.no_persistent_connections(handler)
    for url in json.load(sys.stdin):
        request = Request(url, meta={"proxy": os.environ["http_proxy"]})
        await compat.call_handler(handler, request, crawler.spider)


def ask_by_handler() -> None:
    install_reactor(ASYNCIO)
    react(lambda _: Deferred.fromFuture(asyncio.ensure_future(ask())))


def crawl(bot: str, interval: float) -> None:
    urls = json.load(sys.stdin)
    if bot == "ours":
        scale_time(interval)

    class Bench(Spider):
        name = "bench"

        async def start(self) -> Any:
            for url in urls:
                yield Request(url)

        def parse(self, response: Any) -> None:
            assert response.status == 200

    process = CrawlerProcess(settings(bot, interval))
    process.crawl(Bench)
    process.start()


def scale_time(interval: float) -> None:
    """Let this process keep an interval that the package itself refuses.

    The agenda counts work in seconds, at least one to a request: it is told of each as if the
    interval were 1 s.
    """
    if interval >= 1:
        return
    bucket = agenda._bucket
    agenda._bucket = lambda work: bucket(work / interval)
    config.MIN_REQUEST_INTERVAL = interval
    TURNSTILE.throttle.min_interval = interval


def settings(bot: str, interval: float) -> dict[str, Any]:
    if bot == "ours":
        return {
            "LOG_LEVEL": "ERROR",
            "ADDONS": {"scrapy_walsh.Addon": 500},
            "WALSH_IDENTITY": "walsh-research",
            "WALSH_BLOCKLIST_URL": f"{OPERATOR}.json",
            "WALSH_BLOCKLIST_SCHEMA_URL": f"{OPERATOR}.schema.json",
            "WALSH_MIN_INTERVAL": interval,
            "WALSH_STATE_DIR": "state",
        }
    return {
        "LOG_LEVEL": "ERROR",
        "CONCURRENT_REQUESTS": 1,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 1,
        "DOWNLOAD_DELAY": interval,
        JITTER_SETTING[0]: JITTER_SETTING[1],
        "ROBOTSTXT_OBEY": True,
        "ROBOTSTXT_USER_AGENT": "Walsh-Research",
        "TELNETCONSOLE_ENABLED": False,
    }


if __name__ == "__main__":
    if sys.argv[1:2] == [CRAWL]:
        ask_by_handler() if sys.argv[2] == HANDLER else crawl(sys.argv[2], float(sys.argv[3]))
    else:
        main()
