"""What eight workers on one Redis do of eight times one, and how often they talk to it.

Run: ``python bench/fleet.py [--json FILE] [--quick]``; redis-server and scrapy-redis must be
installed. Workers with the queue of ``DueQueue`` take their targets from a list in Redis, against
the sandbox; each is a process of its own. One worker has a load of 33 s, eight have the same load
eight times, on hosts of their own. An answer takes 0.5 s, in which a worker can do nothing else: so
the wire and the hosts' intervals are the limit, and not the processor, which eight workers share.

Both figures come from the time between the first request to a host of the load and the last
answer, by the sandbox's log. ``trips``: round trips to Redis a request, robots.txt included; each
worker notes when it sends something to Redis, whoever asks there. ``violations``: as in
``makespan``, over the log of all workers together.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path[0] = str(Path(__file__).resolve().parents[1])  # bench/queue.py is not Python's queue

import redis  # noqa: E402
from redis.connection import AbstractConnection  # noqa: E402
from scrapy.crawler import CrawlerProcess  # noqa: E402
from scrapy_redis.spiders import RedisSpider  # noqa: E402

from bench.makespan import OPERATOR, duration, environment, violations  # noqa: E402
from bench.report import Row, show, write  # noqa: E402
from scrapy_walsh.adapters.redis_queue import DueSpiderMixin  # noqa: E402
from scrapy_walsh.proof.sandbox import LoggedRequest, read_log, requests  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

LATENCY = 0.5
WORKERS = 8
#: For each load the hosts of one worker: number of targets, and Crawl-delay in seconds.
LOADS = {
    "even": [(5, 0)] * 11,
    "delays": [
        (10, 0), (8, 0), (6, 2), (5, 2), (4, 3), (3, 5),
        (4, 0), (3, 2), (3, 3), (2, 5), (2, 2), (2, 0), (1, 5),
    ],
}  # fmt: skip
QUICK = {"tiny": [(2, 0), (1, 2)]}
COLUMNS = {
    "load": "<6", "workers": ">7", "hosts": ">5", "requests": ">8", "took s": ">7.2f",
    "of one": ">6.3f", "trips": ">6.2f", "violations": ">10",
}  # fmt: skip
#: Seconds after which a run that has not ended is given up.
_LIMIT = 180.0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the rows to this file as well")
    parser.add_argument("--quick", action="store_true", help="two workers on a tiny load")
    options = parser.parse_args()
    if shutil.which("redis-server") is None:
        sys.exit("no redis-server here: install it, for instance with apt-get install redis-server")
    loads, most = (QUICK, 2) if options.quick else (LOADS, WORKERS)
    rows = show((row for name in loads for row in measured(name, loads[name], most)), COLUMNS)
    write(options.json, benchmark="fleet", latency=LATENCY, rows=rows)


def measured(name: str, load: list[tuple[int, float]], most: int) -> Iterator[Row]:
    """A row for one worker, and one for *most* workers; ``of one``: of so many times one."""
    alone = 0.0
    for workers in (1, most):
        hosts = {
            f"h{n}x{copy}.test": each for copy in range(workers) for n, each in enumerate(load)
        }
        seen, trips = log_of(hosts, workers)
        alone = alone or duration(seen)
        begin, end = seen[0].arrived, seen[0].arrived + duration(seen)
        yield {
            "load": name,
            "workers": workers,
            "hosts": len(hosts),
            "requests": len(seen),
            "took s": round(duration(seen), 3),
            "of one": round(alone / duration(seen), 4),
            "trips": round(sum(begin <= trip <= end for trip in trips) / len(seen), 3),
            "violations": violations(
                seen, 1.0, {host: delay for host, (_, delay) in hosts.items()}
            ),
        }


def log_of(
    hosts: dict[str, tuple[int, float]], workers: int
) -> tuple[list[LoggedRequest], list[float]]:
    """What the server saw, and when workers sent something to Redis, in monotonic seconds."""
    urls = [f"http://{host}/{n}" for host, (count, _) in hosts.items() for n in range(count)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with serving(folder) as url, sandbox(folder, hosts) as proxy:
            crowd = [worker(folder / str(n), proxy, url) for n in range(workers)]
            try:
                wait(lambda: all((folder / str(n) / "ready").exists() for n in range(workers)))
                entries = [json.dumps({"url": each}) for each in urls]
                redis.Redis.from_url(url).rpush("bench:start_urls", *entries)
                wait(lambda: len(answered(folder, hosts)) == len(urls))
            finally:
                for each in crowd:
                    each.send_signal(signal.SIGTERM)
                for each in crowd:
                    each.wait()
        trips = [
            at for n in range(workers) for at in json.loads((folder / str(n) / TRIPS).read_text())
        ]
        seen = [each for each in requests(read_log(folder / "log")) if each.host in hosts]
    return seen, trips


def answered(folder: Path, hosts: dict[str, tuple[int, float]]) -> set[tuple[str, str]]:
    """The targets that were answered by now."""
    seen = read_log(folder / "log") if (folder / "log").exists() else []
    pages = [each for each in seen if each.host in hosts and each.path != "/robots.txt"]
    return {(each.host, each.path) for each in pages if each.completed is not None}


def wait(condition: Any) -> None:
    end = time.monotonic() + _LIMIT
    while not condition():
        assert time.monotonic() < end, "the workers do not come to an end"
        time.sleep(0.2)


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Run redis-server on a free port of loopback; its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--save", ""]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL) as server:
        client = redis.Redis(port=port)
        try:
            wait(lambda: _answers(client))
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            server.terminate()


def _answers(client: Any) -> bool:
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False


@contextmanager
def sandbox(folder: Path, hosts: dict[str, tuple[int, float]]) -> Iterator[str]:
    """Run the sandbox with *hosts*; the URL of its proxy."""
    sites = [
        {
            "host": host,
            "routes": {
                "/robots.txt": {
                    "body": f"User-agent: *\nAllow: /\n{f'Crawl-delay: {delay}' if delay else ''}",
                    "content_type": "text/plain",
                    "delay": LATENCY,
                },
                "*": {"body": "<p>page</p>", "delay": LATENCY},
            },
        }
        for host, (_, delay) in hosts.items()
    ]
    (folder / "sites.json").write_text(json.dumps({"sites": sites}))
    command = [sys.executable, "-m", "scrapy_walsh", "sandbox", "--json"]
    command += ["--sites", str(folder / "sites.json"), "--log", str(folder / "log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment()) as server:
        assert server.stdout is not None
        try:
            yield json.loads(server.stdout.readline())["proxy"]
        finally:
            server.terminate()


# -- a worker, in a process of its own ------------------------------------------------------------

WORK = "work"
TRIPS = "trips.json"


def worker(folder: Path, proxy: str, url: str) -> subprocess.Popen[bytes]:
    folder.mkdir()
    command = [sys.executable, str(Path(__file__).resolve()), WORK, url]
    return subprocess.Popen(command, cwd=folder, env=environment(http_proxy=proxy, no_proxy=""))


class Bench(DueSpiderMixin, RedisSpider):  # type: ignore[misc]
    name = "bench"

    async def start(self) -> Any:
        Path("ready").touch()
        async for request in super().start():
            yield request

    def parse(self, response: Any) -> None:
        assert response.status == 200


def work(url: str) -> None:
    trips: list[float] = []
    send = AbstractConnection.send_packed_command

    def noted(*arguments: Any, **more: Any) -> Any:
        trips.append(time.monotonic())
        return send(*arguments, **more)

    AbstractConnection.send_packed_command = noted
    process = CrawlerProcess(
        {
            "LOG_LEVEL": os.environ.get("BENCH_LOG_LEVEL", "ERROR"),
            "ADDONS": {"scrapy_walsh.Addon": 500},
            "WALSH_IDENTITY": "walsh-research",
            "WALSH_BLOCKLIST_URL": f"{OPERATOR}.json",
            "WALSH_BLOCKLIST_SCHEMA_URL": f"{OPERATOR}.schema.json",
            "WALSH_STATE_DIR": "state",
            "WALSH_SHARED_STATE": url,
            "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
            "SCHEDULER_QUEUE_CLASS": "scrapy_walsh.adapters.redis_queue.DueQueue",
            "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
            "SCHEDULER_PERSIST": True,
            "REDIS_URL": url,
        }
    )
    process.crawl(Bench)
    process.start()
    Path(TRIPS).write_text(json.dumps(trips))


if __name__ == "__main__":
    work(sys.argv[2]) if sys.argv[1:2] == [WORK] else main()
