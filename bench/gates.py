"""CPU that the gates add to a request, warm, against Scrapy's RobotsTxtMiddleware alone.

``python bench/gates.py [--json FILE] [--requests N]``. Both judge the same URLs by the same
robots.txt (63 rules); ours asks R6, R3, R8 and R2. No network, no queue, no wire. ``queue``: the
judgement when the queue takes a request; ``gate``: the middleware, when the request leaves the
queue at once, its documents unchanged; ``held``: the same after a fifth of a second. A crawl pays
queue and gate, or queue and held: ``ratio`` and ``ratio_held`` over stock's. ``alone``: the
middleware for a request that no queue has judged (``download_async``).
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[1])  # bench/queue.py is not Python's queue

from twisted.internet import asyncioreactor  # noqa: E402

asyncioreactor.install()

import twisted.internet  # noqa: E402
from scrapy import Request, Spider  # noqa: E402
from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware  # noqa: E402
from scrapy.robotstxt import ProtegoRobotParser  # noqa: E402
from scrapy.utils.test import get_crawler  # noqa: E402

from bench import report  # noqa: E402
from scrapy_walsh.adapters.crawl import Crawl  # noqa: E402
from scrapy_walsh.adapters.downloadermiddlewares import GateMiddleware  # noqa: E402
from scrapy_walsh.state import open_store  # noqa: E402
from scrapy_walsh.state.records import BLOCKLIST, ROBOTS, StoredDocument  # noqa: E402

PRODUCT = "Walsh-Research"
RULES = ["/private/", "/*.php$", *(f"/x{number}/" for number in range(61))]
ROBOTS_TXT = "\n".join(["User-agent: *", *(f"Disallow: {rule}" for rule in RULES)]).encode()
LIST = (
    b'{"contract": "walsh-research-blocklist/v1", "schema": {"type": "object"},'
    b' "refresh": "PT6H", "blocked": [{"domain": "blocked.test"}]}'
)


#: Requests that go from the queue to the gate together, and seconds of a longer hold.
_TURN, _HOLD = 500, 0.2


def urls(count: int) -> list[str]:
    return [f"http://h.test/a/b/{number}?x=1" for number in range(count)]


def stock(count: int) -> tuple[Any, list[Request]]:
    crawler = get_crawler(Spider, {"ROBOTSTXT_OBEY": True, "USER_AGENT": PRODUCT})
    middleware = RobotsTxtMiddleware(crawler)
    middleware._parsers["h.test"] = ProtegoRobotParser(ROBOTS_TXT, Spider("bench"))
    return middleware, [Request(url) for url in urls(count)]


async def ours(count: int, folder: Path) -> tuple[Any, list[Request]]:
    """The gate of a crawl whose documents an earlier run has stored."""
    settings = {
        "ADDONS": {"scrapy_walsh.Addon": 500},
        "WALSH_IDENTITY": "walsh-research",
        "WALSH_STATE_DIR": str(folder),
    }
    crawl = Crawl.of(get_crawler(Spider, settings))
    store, now = open_store(folder), time.time()
    for kind, key, body in (
        (ROBOTS, "http://h.test", ROBOTS_TXT),
        (BLOCKLIST, crawl.config.blocklist_url, LIST),
    ):
        store.put(StoredDocument(kind, key, key, body, now, 200, "parse"))
    store.close()
    await crawl.documents.operator.bring()
    requests = [Request(url) for url in urls(count)]
    for request in requests:
        crawl.intake.declare(request)
    return GateMiddleware(crawl), requests


async def cost(middleware: Any, requests: list[Request]) -> float:
    """Microseconds of CPU a request."""
    begin = time.process_time()
    for request in requests:
        await middleware.process_request(request)
    return (time.process_time() - begin) / len(requests) * 1e6


def cost_in_queue(crawl: Crawl, requests: list[Request]) -> float:
    """Microseconds of CPU a request, judged as the queue does."""
    begin = time.process_time()
    for request in requests:
        crawl.gate.at_queue(crawl.tickets.of(request))
    return (time.process_time() - begin) / len(requests) * 1e6


async def cost_in_turn(gate: Any, requests: list[Request]) -> tuple[float, float]:
    """In the queue, and at the gate soon after: microseconds of CPU a request."""
    queue = passed = 0.0
    for start in range(0, len(requests), _TURN):
        turn = requests[start : start + _TURN]
        queue += cost_in_queue(gate.crawl, turn) * len(turn)
        passed += await cost(gate, turn) * len(turn)
    return queue / len(requests), passed / len(requests)


async def measure(count: int, rounds: int) -> dict[str, float]:
    figures: list[dict[str, float]] = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            theirs = await cost(*stock(count))
            gate, requests = await ours(count, Path(folder))
            queue, passed = await cost_in_turn(gate, requests)
            time.sleep(_HOLD)
            held = await cost(gate, requests)
            others = [Request(f"{request.url}&alone") for request in requests]
            for request in others:
                gate.crawl.intake.declare(request)
            alone = await cost(gate, others)
        figures.append(
            {
                "stock_us": theirs,
                "queue_us": queue,
                "gate_us": passed,
                "ratio": (queue + passed) / theirs,
                "held_us": held,
                "ratio_held": (queue + held) / theirs,
                "alone_us": alone,
            }
        )
    return {name: statistics.median(each[name] for each in figures) for name in figures[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    started: Any = twisted.internet.reactor
    started.startRunning(installSignalHandlers=False)  # its threads, in which a stored list is read
    figures = asyncio.get_event_loop().run_until_complete(measure(options.requests, options.rounds))
    started.getThreadPool().stop()
    columns = {
        "stock_us": ">8.1f",
        "queue_us": ">8.1f",
        "gate_us": ">8.1f",
        "ratio": ">6.2f",
        "held_us": ">8.1f",
        "ratio_held": ">11.2f",
        "alone_us": ">8.1f",
    }
    report.write(options.json, gates=report.show([figures], columns))


if __name__ == "__main__":
    main()
