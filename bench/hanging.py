"""The makespan of a crawl some of whose hosts accept a connection and never answer.

Run: ``python bench/hanging.py [--json FILE] [--quick]``. One source on each of 1,000 hosts, 2 % of
which hang, and the same without those that hang; ``walsh_metadata`` with the package's own settings
but a DOWNLOAD_TIMEOUT of 10 s, and a second run a day later. Everything is real but the sockets and
the clock (``tests/year``): all seconds are virtual, and the same on every machine.

``bound s``: all answers in a row, and one timeout for each host that hangs, since a serial
process cannot know sooner. ``waited s``: in which such a host held the wire. ``attempts``: at
most, for one of them. ``timeouts more``: how much longer than the same run without those hosts,
in timeouts; after each exchange without an answer the wire rests for 0.1 s besides. ``live after``:
requests to other hosts that were sent after the first to one of them.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import traceback
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

sys.path[0] = str(Path(__file__).resolve().parents[1])  # bench/queue.py is not Python's queue

from tests.year import clock  # noqa: E402

clock.install()  # before anything that reads a clock is imported

from scrapy.crawler import CrawlerProcess  # noqa: E402

from bench.report import Row, show, write  # noqa: E402
from scrapy_walsh.proof.exchanges import overlaps, too_soon  # noqa: E402
from tests.year import machine, wire  # noqa: E402
from tests.year.answer import Answer  # noqa: E402
from tests.year.log import Sent, exchange, read_log  # noqa: E402
from tests.year.manners import ROUNDING, SPACING  # noqa: E402
from tests.year.world import DAY, OPERATOR, START, World  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

LATENCY, TIMEOUT = 0.05, 10
RUNS = (1, 2)
SOURCES, SHARE = 1_000, 0.02
QUICK = 50
FEED = b"<rss version='2.0'><channel><item><link>http://a.test/1</link></item></channel></rss>"
COLUMNS = {
    "run": ">3", "sources": ">7,", "hang": ">4", "timeout s": ">6.0f", "read": ">5,",
    "requests": ">8,", "attempts": ">8", "bound s": ">10,.1f", "waited s": ">10,.1f",
    "makespan s": ">10,.1f", "ratio": ">6.2f", "timeouts more": ">13.2f", "live after": ">10",
    "violations": ">10",
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the rows to this file as well")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} sources")
    options = parser.parse_args()
    sources = QUICK if options.quick else SOURCES
    rows = show(measured(sources), COLUMNS)
    write(options.json, benchmark="hanging", latency=LATENCY, rows=rows)


def measured(sources: int) -> Iterator[Row]:
    """The rows of all runs; the first of them, without hosts that hang, are what others add to."""
    without: dict[int, float] = {}
    hang = round(sources * SHARE)
    for all_hosts, hanging in ((sources - hang, 0), (sources, hang)):
        for run, log in enumerate(logs(all_hosts, hanging), RUNS[0]):
            row = row_of(log, all_hosts, hanging)
            more = row["makespan s"] - without.setdefault(run, row["makespan s"])
            row["timeouts more"] = round(more / TIMEOUT, 2)
            yield {"run": run, **row}


def logs(sources: int, hanging: int) -> Iterator[list[Sent]]:
    """What the servers of each run have seen; each run is a process of its own."""
    machine.warm_up()
    with tempfile.TemporaryDirectory() as folder:
        for run in RUNS:
            child = os.fork()
            if child == 0:
                _crawl_and_end(folder, sources, hanging, run)
            if os.waitpid(child, 0)[1]:
                raise SystemExit(f"run {run} of {sources} sources failed")
            log = read_log(Path(folder, LOG))
            yield [each for each in log if each.host != OPERATOR and each.run == run]


def row_of(log: list[Sent], sources: int, hanging: int) -> Row:
    hung = [each for each in log if each.status is None]
    live = [each for each in log if each.status is not None]
    bound = LATENCY * len(live) + TIMEOUT * hanging
    makespan = log[-1].end - log[0].start
    return {
        "sources": sources,
        "hang": hanging,
        "timeout s": TIMEOUT,
        "read": sum(each.status == 200 and not each.is_robots for each in log),
        "requests": len(log),
        "attempts": max(Counter(each.host for each in hung).values(), default=0),
        "bound s": round(bound, 3),
        "waited s": round(sum(each.end - each.start for each in hung), 3),
        "makespan s": round(makespan, 3),
        "ratio": round(makespan / bound, 4),
        "live after": sum(bool(hung) and each.start > hung[0].start for each in live),
        "violations": violations(log),
    }


def violations(log: list[Sent]) -> int:
    """Requests that were not alone, or came too soon for their host; T1's pair is left out."""
    seen = [exchange(each) for each in log]
    soon, together = too_soon(seen, SPACING, ROUNDING), overlaps(seen, ROUNDING)
    return len({gap.after.start for gap in (*soon, *together)})


# -- the crawling process ------------------------------------------------------------------------

LOG = "server.jsonl"


def _crawl_and_end(folder: str, *given: int) -> NoReturn:
    code = 1
    try:
        os.chdir(folder)
        crawl(*given)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def crawl(sources: int, hanging: int, run: int) -> None:
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
    clock.CLOCK.start(START + run * DAY, START - 1e6)
    wire.SERVERS.append(wire.Server(answer, Path(LOG), run))
    process = CrawlerProcess(
        {
            "LOG_LEVEL": "CRITICAL",
            "SPIDER_MODULES": ["scrapy_walsh.spiders"],
            "ADDONS": {"scrapy_walsh.Addon": 500},
            "WALSH_IDENTITY": "walsh-research",
            "WALSH_STATE_DIR": "state",
            "DOWNLOAD_TIMEOUT": TIMEOUT,
            "DOWNLOAD_HANDLERS_BASE": dict.fromkeys(("http", "https"), "tests.year.wire.Handler"),
            "ASYNCIO_EVENT_LOOP": "tests.year.clock.Loop",
        }
    )
    process.crawl("walsh_metadata", sources="sources.txt")
    process.start()


if __name__ == "__main__":
    main()
