"""What the host-aware queue costs, beside Scrapy's DownloaderAwarePriorityQueue.

Run: ``python bench/queue.py [--json FILE] [--quick] [--sizes N ...] [--disk N ...]``.

Every host has one request, every tenth has five. ``push``: all of them. ``pop``: up to 50,000
(Scrapy's queue looks at every host each time: as many as fit in 10 s), a virtual clock moving
50 ms with each, so hosts are asked, wait out their second and come due again as in a crawl.
``most``: the longest single pop by the clock on the wall, and by the thread's own processor
time, which other processes cannot lengthen. The garbage collector is on, as in a crawl.
``memory``: what the process grew by, the requests included.

The second table is the JOBDIR: so many requests, up to 100 for each host, are pushed; the queue
is closed, opened again, and they are popped, under a limit of 1024 open files. ``push``, ``pop``:
the mean. ``held``: by how much the process had grown when all were pushed; ``at end``: when all
had been popped, from the JOBDIR that was opened again. ``known``: seconds in which the URLs of the
earlier run are declared again, which a crawl does by slices.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from array import array
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median, quantiles
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

sys.path[0] = str(Path(__file__).resolve().parents[1])  # this file is not Python's own queue

from scrapy import Request, Spider, squeues  # noqa: E402
from scrapy.crawler import Crawler  # noqa: E402
from scrapy.pqueues import DownloaderAwarePriorityQueue  # noqa: E402
from scrapy.statscollectors import StatsCollector  # noqa: E402

from bench.report import Row, show, write  # noqa: E402
from scrapy_walsh.adapters import compat  # noqa: E402
from scrapy_walsh.adapters.crawl import Crawl  # noqa: E402
from scrapy_walsh.adapters.scheduler_queue import Fingerprinter, HostQueue  # noqa: E402
from scrapy_walsh.adapters.seats import Addon  # noqa: E402
from scrapy_walsh.policy.hosts import host_key  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LATENCY = 0.05
POPS = 50_000
SECONDS = 10.0
OPEN_FILES = 1024
OPERATOR = "http://operator.test/bot"
SETTINGS = {
    "WALSH_IDENTITY": {
        "product": "ExampleBot/1.0",
        "policy_url": OPERATOR,
        "blocklist_url": f"{OPERATOR}/blocklist.json",
    },
    "WALSH_FOLLOW_LINKS": True,  # nothing is declared here, as it is where links are followed
    "WALSH_STATE_DIR": "state",
}
MEMORY = {
    "hosts": ">9,", "queue": "<6", "push us": ">8.2f", "pops": ">7,", "pop us": ">10.2f",
    "p99 us": ">10.2f", "most ms": ">9.3f", "cpu ms": ">9.3f", "memory MB": ">9.0f",
}  # fmt: skip
DISK = {
    "requests": ">9,", "hosts": ">8,", "queue": "<6", "pushed": ">9,", "push us": ">8.1f",
    "held MB": ">8.0f", "reopen s": ">8.2f", "known s": ">8.2f", "popped": ">9,", "pop us": ">8.1f",
    "at end MB": ">9.0f", "files": ">6",
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the rows to this file as well")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it works")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000, 1_000_000])
    parser.add_argument(
        "--disk", type=int, nargs="*", default=[10_000, 100_000, 1_000_000], help="requests"
    )
    options = parser.parse_args()
    if options.quick:
        options.sizes, options.disk = [100, 1_000], [600]
    memory = show(
        (child("memory", bot, size) for size in options.sizes for bot in ("stock", "ours")), MEMORY
    )
    print()
    disk = show(
        (child("disk", bot, size) for size in options.disk for bot in ("stock", "ours")), DISK
    )
    write(options.json, benchmark="queue", memory=memory, disk=disk)


def child(measure: str, bot: str, size: int) -> Row:
    """Measure in a process of its own, so that no run inherits another's heap or files."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, str(Path(__file__).resolve()), CHILD, measure, bot, str(size)],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": sys.path[0]},
            stdout=subprocess.PIPE,
            check=True,
        )
    row: Row = json.loads(done.stdout)
    return row


# -- the measuring process -----------------------------------------------------------------------

CHILD = "child"


@dataclass
class Bench:
    """One queue, under a virtual clock; ``asked`` books the end of a request to a URL."""

    queue: Any
    now: float = 0.0
    asked: Callable[[str], None] = lambda _: None
    declared: Callable[[Request], Request] = lambda request: request


def ours(directory: str, state: Any = None) -> Bench:  # noqa: ARG001  its state is in the file
    crawler = Crawler(Spider, settings=SETTINGS)
    Addon().update_settings(crawler.settings)
    crawler.stats = StatsCollector(crawler)
    crawler.request_fingerprinter = Fingerprinter()
    crawl = Crawl.of(crawler)
    bench = Bench(None)
    crawl.monotonic = lambda: bench.now
    compat.call_later = lambda *_: lambda: None  # the benchmark moves the clock itself
    bench.queue = HostQueue(crawl, directory)

    def asked(url: str) -> None:
        host = crawl.pacing.host_of(url)
        host.traffic.started()
        bench.now += LATENCY
        host.traffic.finished(bench.now)
        bench.queue.nudge(host.key)

    def declared(request: Request) -> Request:
        crawl.intake.declare(request)
        return request

    bench.asked, bench.declared = asked, declared
    return bench


def stock(directory: str, state: Any = None) -> Bench:
    crawler: Any = Crawler(Spider)
    downloader = SimpleNamespace(slots={}, get_slot_key=lambda request: host_key(request.url))
    crawler.engine = SimpleNamespace(downloader=downloader)
    queue = DownloaderAwarePriorityQueue.from_crawler(
        crawler,
        squeues.PickleLifoDiskQueue if directory else squeues.LifoMemoryQueue,
        directory,
        state,
        start_queue_cls=squeues.PickleFifoDiskQueue if directory else squeues.FifoMemoryQueue,
    )
    return Bench(queue)


def urls(size: int) -> Iterator[str]:
    for number in range(size):
        for page in range(5 if number % 10 == 0 else 1):
            yield f"http://host{number}.example{number % 97}.test/{page}"


def memory(bot: str, size: int) -> Row:
    bench = MAKERS[bot]("")
    before = resident()
    pushes = deque(elapsed(bench.queue.push, Request(url)) for url in urls(size))
    grown = resident() - before
    wall, cpu = pops(bench, min(POPS, len(pushes)))
    return {
        "hosts": size,
        "queue": bot,
        "push us": median(pushes) * 1e6,
        "pops": len(wall),
        "pop us": median(wall) * 1e6,
        "p99 us": quantiles(wall, n=100)[98] * 1e6,
        "most ms": max(wall) * 1e3,
        "cpu ms": max(cpu) * 1e3,
        "memory MB": grown / 1e6,
    }


def pops(bench: Bench, most: int) -> tuple[list[float], list[float]]:
    """Seconds of each pop that gave a request, by the wall clock and of the processor."""
    wall, cpu = [], []
    stop = time.perf_counter() + SECONDS
    while len(wall) < most and (time.perf_counter() < stop or len(wall) < 20):
        began, began_cpu = time.perf_counter(), time.thread_time()
        request = bench.queue.pop()
        ended_cpu, ended = time.thread_time(), time.perf_counter()
        if request is None:
            bench.now = bench.queue._agenda.next_due()
            continue
        wall.append(ended - began)
        cpu.append(ended_cpu - began_cpu)
        bench.asked(request.url)
    return wall, cpu


def elapsed(function: Callable[[Any], object], argument: Any) -> float:
    began = time.perf_counter()
    function(argument)
    return time.perf_counter() - began


def resident() -> int:
    """Bytes of memory in use now; what it was at most, where /proc does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return pages * resource.getpagesize()


def disk(bot: str, size: int) -> Row:
    """As far as it goes: Scrapy's queue runs out of files."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
    bench = MAKERS[bot](".")
    start = {"is_start_request": True}
    hosts = max(size // 100, min(size, 1_000))
    requests = (
        Request(f"http://host{number % hosts}.test/{number}", meta=start) for number in range(size)
    )
    before = resident()
    targets = map(bench.declared, requests)
    pushes, files = until_failure(lambda: elapsed(bench.queue.push, next(targets)), size)
    row: Row = {"requests": size, "hosts": hosts, "queue": bot, "files": files}
    row |= {"pushed": len(pushes), "push us": mean(pushes) * 1e6}
    row["held MB"] = (resident() - before) / 1e6
    if len(pushes) < size:
        return row
    began = time.perf_counter()
    bench = MAKERS[bot](".", bench.queue.close())
    row["reopen s"] = time.perf_counter() - began
    if bot == "ours":
        row["known s"] = elapsed(declared_again, bench.queue)
    taken = array("d")
    while len(bench.queue):
        began = time.perf_counter()
        request = bench.queue.pop()
        taken.append(time.perf_counter() - began)
        bench.asked(request.url)
    row |= {"popped": len(taken), "pop us": mean(taken) * 1e6}
    return {**row, "at end MB": (resident() - before) / 1e6}


def declared_again(queue: Any) -> None:
    """What ``Intake`` does at the start with a JOBDIR's URLs."""
    for each in queue.earlier():
        Crawl.of(queue._crawl.crawler).intake.restore(*each)


def until_failure(step: Callable[[], float], most: int) -> tuple[array[float], int]:
    """Seconds of each step before the first OSError, and the open files after the last."""
    taken = array("d")
    try:
        while len(taken) < most:
            taken.append(step())
    except OSError:
        return taken, OPEN_FILES
    return taken, sum(1 for _ in Path("/dev/fd").iterdir())


MAKERS: dict[str, Callable[..., Bench]] = {"ours": ours, "stock": stock}
MEASURES: dict[str, Callable[[str, int], Row]] = {"memory": memory, "disk": disk}

if __name__ == "__main__":
    if sys.argv[1:2] == [CHILD]:
        row = MEASURES[sys.argv[2]](sys.argv[3], int(sys.argv[4]))
        print(json.dumps(row))
    else:
        main()
