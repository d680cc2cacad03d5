"""Redis is killed in the midst of a crawl and comes back as it was some seconds before.

    python -m tests.fleet.old_data 40            three workers with queues of their own
    python -m tests.fleet.old_data 40 --queue    ... with one queue in Redis
    python -m tests.fleet.old_data 40 --list     ... which a list of URLs in Redis fills

Redis is Debian's. What is judged is the web server's log: no gap that is too short, no hold that is
broken, and nothing that is lost without a line and exit code 1.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy_walsh.proof import exchanges
from scrapy_walsh.proof.sandbox import Route, Sandbox, exchanged
from tests.crawl.harness import TOLERANCE, Run, site, targets, wait_until
from tests.fleet.fleet import PATIENT, Server, all_at_once, worker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy_walsh.proof.exchanges import Gap
    from scrapy_walsh.proof.sandbox import LoggedRequest

WORKERS = 3
#: So many that a worker is busy all the time, and comes to a host that another has just requested.
PLAIN = [f"plain{number}.test" for number in range(10)]
#: Asks for so many seconds between two requests, and for so many after its first answer to a page.
SLOW, CRAWL_DELAY = "slow.test", 4.0
BUSY, RETRY_AFTER = [f"busy{number}.test" for number in range(4)], 15.0
#: Seconds that an answer takes.
TAKES = 0.2
#: How many kills one crawl has to stand.
AT_ONCE = 8

#: Goes on declaring while Redis goes and comes; scrapy-redis's own filter is not asked.
SLOWLY = PATIENT.replace(
    "yield scrapy.Request(url)",
    """\
await compat.sleep(0.05)
            yield scrapy.Request(url, dont_filter=True)""",
)
LISTED = """
from pathlib import Path
from scrapy_redis.spiders import RedisSpider
from scrapy_walsh.adapters.redis_queue import DueSpiderMixin

class Probe(DueSpiderMixin, RedisSpider):
    name = "probe"
    max_idle_time = 20
    redis_batch_size = 10

    async def start(self):
        Path("ready").touch()
        async for request in super().start():
            yield request

    def parse(self, response):
        pass
"""
#: By who has the requests: in memory each worker its own, one queue, one queue from a list.
SPIDERS = {"": PATIENT, "queue": SLOWLY, "list": LISTED}
QUEUE = {
    "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
    "SCHEDULER_QUEUE_CLASS": "scrapy_walsh.adapters.redis_queue.DueQueue",
    "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
    "SCHEDULER_PERSIST": True,
}


@dataclass
class Outcome:
    """What became of one crawl: *broken* promises; how often a target was answered twice."""

    kills: int = 0
    requests: int = 0
    twice: int = 0
    lost: int = 0
    broken: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.kills} kills, {self.requests} requests, {self.twice} targets twice, "
            f"{self.lost} lost with a line; broken: {self.broken or 'nothing'}"
        )


def crawl(folder: Path, kills: int, rand: random.Random, queue: str = "") -> Outcome:
    """One crawl of three workers, in which Redis comes back *kills* times with old data."""
    server, outcome = Server(folder), Outcome()
    server.start()
    try:
        with Sandbox() as box:
            _sites(box, kills)
            more: dict[str, Any] = {**QUEUE, "REDIS_URL": server.url} if queue else {}
            for url in _all(kills) if queue == "list" else ():
                server.client.rpush("probe:start_urls", json.dumps({"url": url}))
            crews = [
                worker(folder / str(n), box, server, _urls(n, kills), spider=SPIDERS[queue], **more)
                for n in range(WORKERS)
            ]
            all_at_once(crews)
            wait_until(lambda: len(targets(box.log)) > WORKERS)
            time.sleep(rand.choice((0.0, 8.0)))  # while the queue is filled, or after that
            while outcome.kills < kills and all(_runs(each) for each in crews):
                _kill(box, server, crews, rand)
                outcome.kills += 1
            for each in crews:
                each.process.wait(900)
            _judge(outcome, box.log, crews, kills)
    finally:
        server.kill()
    return outcome


def _runs(crew: Run) -> bool:
    return crew.process.poll() is None


def _kill(box: Sandbox, server: Server, crews: Sequence[Run], rand: random.Random) -> None:
    time.sleep(rand.uniform(0.2, 1.5))
    snapshot = server.snapshot()
    time.sleep(rand.uniform(1.0, 4.0))
    server.go_back(snapshot)
    seen = len(targets(box.log))
    wait_until(lambda: len(targets(box.log)) > seen or not any(map(_runs, crews)), 60)


def _sites(box: Sandbox, kills: int) -> None:
    page = Route(body="page", delay=TAKES)
    for name in PLAIN:
        box.put(site(name, {"*": page}))
    box.put(site(SLOW, robots=f"User-agent: *\nCrawl-delay: {CRAWL_DELAY:g}\n"))
    down = Route(status=503, headers={"Retry-After": f"{RETRY_AFTER:g}"})
    for name in BUSY:
        paths = {url.removeprefix(f"http://{name}") for url in _all(kills)}
        own = [path for path in paths if path[0] == "/"]
        box.put(site(name, {path: Route(sequence=[down, page]) for path in own}))


def _urls(of: int, kills: int) -> list[str]:
    pages = [f"/page/{of}/{page}" for page in range(3 + 4 * kills // 3)]
    few = pages[: 1 + kills // 4]
    return [
        *(f"http://{name}{path}" for path in pages for name in PLAIN),
        *(f"http://{name}{path}" for path in few for name in (SLOW, *BUSY)),
    ]


def _all(kills: int) -> list[str]:
    return [url for of in range(WORKERS) for url in _urls(of, kills)]


def _interval(gap: Gap[LoggedRequest]) -> float:
    # Before its first robots.txt is read, nobody knows that it is slow.
    return CRAWL_DELAY if gap.after.host == SLOW and gap.rested < float("inf") else 1.0


def _judge(
    outcome: Outcome, log: Sequence[LoggedRequest], crews: Sequence[Run], kills: int
) -> None:
    asked = exchanged(log)
    outcome.requests = len(asked)
    outcome.broken += map(str, exchanges.too_soon(exchanges.by_start(asked), _interval, TOLERANCE))
    told = (each._replace(hold=RETRY_AFTER if each.status == 503 else 0.0) for each in asked)
    outcome.broken += [
        f"{each.host}{each.path}: {left:.2f} s of its hold were left"
        for each, left in exchanges.held(told, TOLERANCE)
    ]
    answered = Counter(
        f"http://{each.host}{each.path}" for each in targets(log) if each.status == 200
    )
    outcome.twice = sum(count - 1 for count in answered.values())
    wanted = set(_all(kills))
    outcome.lost = len(wanted - answered.keys())
    codes = [each.process.returncode for each in crews]
    words = ("may have lost the requests", "will not be sent")
    said = any(phrase in each.output for each in crews for phrase in words)
    if outcome.lost and not (said and 1 in codes):
        outcome.broken.append(f"{outcome.lost} targets lost in silence, exit codes {codes}")
    if not outcome.lost and not said and set(codes) != {0}:
        outcome.broken.append(f"exit codes {codes}")
    outcome.broken += [
        f"a traceback in {each.project}" for each in crews if "Traceback" in each.output
    ]


def main() -> int:
    """Kill so often; 0 where no promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.fleet.old_data", description=__doc__)
    parser.add_argument("kills", type=int, nargs="?", default=40)
    for kind in ("queue", "list"):
        parser.add_argument(f"--{kind}", dest="queue", action="store_const", const=kind, default="")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    rand, left, broken = random.Random(given.seed), given.kills, False
    while left > 0:
        folder = Path(tempfile.mkdtemp())
        outcome = crawl(folder, min(left, AT_ONCE), rand, given.queue)
        print(outcome, f"({folder})", flush=True)
        left -= max(outcome.kills, 1)
        broken = broken or bool(outcome.broken)
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
