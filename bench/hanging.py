"""The makespan of a crawl some of whose hosts accept a connection and never answer.

Run: ``python bench/hanging.py [--json FILE] [--quick]``. One source on each of 1,000 hosts, none
or 2 % of which hang; ``walsh_metadata`` with the package's own settings, DOWNLOAD_TIMEOUT
included. Everything is real but the sockets and the clock (``tests/year``): all seconds are
virtual, and the same on every machine.

``bound s``: all answers in a row, and one timeout for each host that hangs, since a serial
process cannot know sooner. ``waited s``: in which such a host held the wire. ``attempts``: at
most, for one of them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[1])  # bench/queue.py is not Python's queue

from tests.year import clock  # noqa: E402

clock.install()  # before anything that reads a clock is imported

from scrapy.crawler import CrawlerProcess  # noqa: E402

from bench.report import Row, show, write  # noqa: E402
from tests.year import wire  # noqa: E402
from tests.year.answer import Answer  # noqa: E402
from tests.year.log import Sent, read_log  # noqa: E402
from tests.year.manners import ROUNDING, SPACING  # noqa: E402
from tests.year.world import OPERATOR, START, World  # noqa: E402

LATENCY = 0.05
SOURCES, SHARES = 1_000, (0.0, 0.02)
QUICK = 50
FEED = b"<rss version='2.0'><channel><item><link>http://a.test/1</link></item></channel></rss>"
COLUMNS = {
    "sources": ">7,", "hang": ">4", "timeout s": ">6.0f", "read": ">5,", "requests": ">8,",
    "attempts": ">8", "bound s": ">10,.1f", "waited s": ">10,.1f", "makespan s": ">10,.1f",
    "ratio": ">6.2f", "violations": ">10",
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the rows to this file as well")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} sources")
    options = parser.parse_args()
    sources = QUICK if options.quick else SOURCES
    rows = show((measured(sources, share) for share in SHARES), COLUMNS)
    write(options.json, benchmark="hanging", latency=LATENCY, rows=rows)


def measured(sources: int, share: float) -> Row:
    """One crawl, in a process of its own."""
    hanging = round(sources * share)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(Path(__file__).resolve()), CRAWL, str(sources), str(hanging)]
        environment = {**os.environ, "PYTHONPATH": sys.path[0]}
        subprocess.run(command, cwd=folder, env=environment, check=True)
        log = [each for each in read_log(Path(folder, LOG)) if each.host != OPERATOR]
        timeout = json.loads(Path(folder, SETTINGS).read_text())
    hung = [each for each in log if each.status is None]
    bound = 2 * LATENCY * (sources - hanging) + timeout * hanging
    makespan = log[-1].end - log[0].start
    return {
        "sources": sources,
        "hang": hanging,
        "timeout s": timeout,
        "read": sum(each.status == 200 and not each.is_robots for each in log),
        "requests": len(log),
        "attempts": max(Counter(each.host for each in hung).values(), default=0),
        "bound s": round(bound, 3),
        "waited s": round(sum(each.end - each.start for each in hung), 3),
        "makespan s": round(makespan, 3),
        "ratio": round(makespan / bound, 4),
        "violations": violations(log),
    }


def violations(log: list[Sent]) -> int:
    """Requests that were not alone, or came too soon for their host; T1's pair is left out."""
    last: dict[str, Sent] = {}
    end, count = 0.0, 0
    for each in log:
        before = last.get(each.host)
        exempt = before is None or (before.is_robots and before.status is not None)
        soon = before is not None and each.start - before.end < SPACING - ROUNDING
        count += each.start < end - ROUNDING or (soon and not exempt)
        end, last[each.host] = each.end, each
    return count


# -- the crawling process ------------------------------------------------------------------------

CRAWL, LOG, SETTINGS = "crawl", "server.jsonl", "timeout.json"


def crawl(sources: int, hanging: int) -> None:
    every = sources // hanging if hanging else sources + 1
    names = [f"h{number}.test" for number in range(1, sources + 1)]
    silent = set(names[every - 1 :: every])
    operator = World(1)

    def answer(now: float, request: Any) -> Answer:
        host, _, path = request.url.partition("://")[2].partition("/")
        if host == OPERATOR:
            return operator.answer(now, request)
        if host in silent:
            return Answer(None)
        if path == "robots.txt":
            return Answer(200, b"User-agent: *\n", {"Content-Type": "text/plain"}, LATENCY)
        return Answer(200, FEED, {"Content-Type": "application/rss+xml"}, LATENCY)

    Path("sources.txt").write_text("".join(f"http://{name}/feed.xml\n" for name in names))
    clock.CLOCK.start(START, START - 1e6)
    wire.SERVERS.append(wire.Server(answer, Path(LOG), 1))
    process = CrawlerProcess(
        {
            "LOG_LEVEL": "CRITICAL",
            "SPIDER_MODULES": ["scrapy_walsh.spiders"],
            "ADDONS": {"scrapy_walsh.Addon": 500},
            "WALSH_IDENTITY": "walsh-research",
            "WALSH_STATE_DIR": "state",
            "DOWNLOAD_HANDLERS_BASE": dict.fromkeys(("http", "https"), "tests.year.wire.Handler"),
            "ASYNCIO_EVENT_LOOP": "tests.year.clock.Loop",
        }
    )
    crawler = process.create_crawler("walsh_metadata")
    process.crawl(crawler, sources="sources.txt")
    process.start()
    Path(SETTINGS).write_text(json.dumps(crawler.settings.getfloat("DOWNLOAD_TIMEOUT")))


if __name__ == "__main__":
    if sys.argv[1:2] == [CRAWL]:
        crawl(int(sys.argv[2]), int(sys.argv[3]))
    else:
        main()
