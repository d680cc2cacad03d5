"""The pacing policy alone, over very many hosts: no sockets, a clock that is only a number.

Run: ``python bench/simulate.py [--json FILE] [--quick | --full] [--hosts N --requests M]``.

The same Host and Agenda as in a crawl. All requests are known at the start; a host's
Crawl-delay is known, as in a crawl, once its robots.txt has been asked. Drawn with a fixed seed:

- requests of a host: all alike (``even``), or by Zipf's law, a share of 1 / rank and at least
  one (``zipf``);
- Crawl-delay: none for 80 % of the hosts, 2 s for 10 %, 5 s for 6 %, 10 s for 3 %, 30 s for 1 %;
- latency of a request: log-normal, median 50 ms, sigma 0.5.

The second table has 36 loads with Crawl-delays, each drawn with a seed of its own: 60 to 300 hosts,
60 / r targets on the host of rank r and at least one, for a random share of the hosts a Crawl-delay
of 1 to 5 s, for each host a latency of 20 to 400 ms. Of the targets, 5 % are answered 429 and are
sent again, as R5 says; what hosts teach by that (D28) is left out.

The third table has 24 loads of a day on which some hosts have a storm, each drawn with a seed of
its own: 200 to 400 hosts, nearly all with one target (Zipf's law with an exponent of 1.1), a
Crawl-delay of 2 to 20 s for one in twelve, latencies of 30 to 800 ms, log-normal. One host in 36
answers 429 to its first 1 to 5 targets, without a Retry-After.

``ratio`` is the makespan over the lower bound for the very latencies and delays drawn;
``bound by`` says what sets that bound: all latencies in a row, or the hosts that take longest.
``idle``: virtual seconds in which nothing could be asked. ``violations`` are counted by
a book of the benchmark's own, not by asking the policy.
"""

from __future__ import annotations

import argparse
import math
import random
import resource
import sys
import time
from array import array
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

sys.path[0] = str(Path(__file__).resolve().parents[1])  # bench/queue.py is not Python's queue

from concurrent.futures import ProcessPoolExecutor  # noqa: E402

from bench.report import Row, show, write  # noqa: E402
from scrapy_walsh.policy.agenda import Agenda  # noqa: E402
from scrapy_walsh.policy.backoff import Answer, Retry, after_failure  # noqa: E402
from scrapy_walsh.policy.gates import Gates  # noqa: E402
from scrapy_walsh.policy.host import Host, Terms  # noqa: E402
from scrapy_walsh.policy.throttle import MIN_REQUEST_INTERVAL, UNSEEN  # noqa: E402

SEED = 20260523
LATENCY, SIGMA = 0.05, 0.5
CRAWL_DELAYS = ((0.0, 80), (2.0, 10), (5.0, 6), (10.0, 3), (30.0, 1))
LOADS = {"even": 0.0, "zipf": 1.0}  # the exponent of the rank
#: Of the loads with Crawl-delays: how many, and their hosts, the requests of the largest host,
#: Crawl-delays and latencies in seconds, and the share of answers 429.
SEEDS, HOSTS, LARGEST, UP_TO, LATENCIES, REFUSED = 36, (60, 300), 60, 5, (0.02, 0.4), 0.05
#: Of the loads with storms: how many, their hosts, targets a host, share of hosts with a
#: Crawl-delay and its seconds, latencies (median, sigma, bounds in seconds), share of storms, and
#: the answers 429 of one.
STORM_SEEDS, STORM_HOSTS, STORM_TARGETS, STORM_EXPONENT = 24, (200, 400), 1.275, 1.1
STORM_DELAYED, STORM_DELAYS = 1 / 12, (2, 20)
STORM_LATENCY, STORM_SIGMA, STORM_LATENCIES = 0.12, 0.8, (0.03, 0.8)
STORMS, STORM_REFUSALS = 1 / 36, (1, 5)
SIZES = {"quick": (1_000, 10_000), "default": (100_000, 1_000_000), "full": (1_000_000, 10_000_000)}
COLUMNS = {
    "load": "<4", "hosts": ">9,", "requests": ">10,", "bound by": "<9", "bound s": ">10,.0f",
    "makespan s": ">10,.0f", "ratio": ">6.4f", "idle s": ">9,.0f", "violations": ">10",
    "memory MB": ">9,.0f", "wall s": ">7.1f", "us a request": ">12.1f",
}  # fmt: skip
DELAYED = {
    key: COLUMNS[key]
    for key in ("load", "hosts", "requests", "bound by", "bound s", "makespan s", "ratio")
} | {"violations": ">10"}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the row to this file as well")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", dest="size", action="store_const", const="quick")
    size.add_argument("--full", dest="size", action="store_const", const="full")
    parser.add_argument("--hosts", type=int)
    parser.add_argument("--requests", type=int)
    options = parser.parse_args()
    hosts, requests = SIZES[options.size or "default"]
    runs = [(load, options.hosts or hosts, options.requests or requests) for load in LOADS]
    with ProcessPoolExecutor(1, max_tasks_per_child=1) as fresh:  # so that memory is each run's
        rows = show((fresh.submit(measured, *run).result() for run in runs), COLUMNS)
    delayed = show((row_of(str(seed), with_delays(seed)) for seed in range(SEEDS)), DELAYED)
    ratios = [row["ratio"] for row in delayed]
    print(f"{SEEDS} loads with Crawl-delays: mean {fmean(ratios):.4f}, worst {max(ratios):.4f}")
    stormy = show((row_of(str(seed), with_storms(seed)) for seed in range(STORM_SEEDS)), DELAYED)
    ratios = [row["ratio"] for row in stormy]
    print(f"{STORM_SEEDS} loads with storms: mean {fmean(ratios):.4f}, worst {max(ratios):.4f}")
    write(options.json, benchmark="simulate", seed=SEED, rows=rows, delayed=delayed, stormy=stormy)


def measured(load: str, hosts: int, requests: int) -> Row:
    return row_of(load, Run(counts(hosts, requests, LOADS[load])))


def row_of(load: str, run: Run) -> Row:
    """What *run* comes to."""
    began = time.perf_counter()
    run.crawl()
    wall = time.perf_counter() - began
    in_a_row, by_host = run.lower_bounds()
    bound = max(in_a_row, by_host)
    return {
        "load": load,
        "hosts": len(run.counts),
        "requests": run.made,
        "bound by": "latencies" if in_a_row == bound else "hosts",
        "bound s": bound,
        "makespan s": run.now,
        "ratio": run.now / bound,
        "idle s": run.idle,
        "violations": run.violations,
        "memory MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "wall s": wall,
        "us a request": wall / run.made * 1e6,
    }


def with_delays(seed: int) -> Run:
    """One of the loads with Crawl-delays."""
    rng = random.Random(seed)
    hosts, share = rng.randint(*HOSTS), rng.random()
    run = Run(array("q", (max(1, round(LARGEST / rank)) for rank in range(1, hosts + 1))), seed)
    for number in range(hosts):
        run.delays[number] = float(rng.randint(1, UP_TO)) if rng.random() < share else 0.0
    run.latencies = array("d", (rng.uniform(*LATENCIES) for _ in range(hosts)))
    run.draws = [random.Random(f"{seed} {number}") for number in range(hosts)]
    return run


def with_storms(seed: int) -> Run:
    """One of the loads with storms."""
    rng = random.Random(f"storm {seed}")
    hosts = rng.randint(*STORM_HOSTS)
    run = Run(counts(hosts, round(STORM_TARGETS * hosts), STORM_EXPONENT), seed)
    refusals = run.storms = dict[int, int]()
    for number in range(hosts):
        delayed = rng.random() < STORM_DELAYED
        run.delays[number] = float(rng.randint(*STORM_DELAYS)) if delayed else 0.0
        if rng.random() < STORMS:
            refusals[number] = rng.randint(*STORM_REFUSALS)
    run.latencies = array("d", (storm_latency(rng) for _ in range(hosts)))
    run.draws = [random.Random(f"{seed} {number}") for number in range(hosts)]
    return run


def storm_latency(rng: random.Random) -> float:
    least, most = STORM_LATENCIES
    return min(most, max(least, rng.lognormvariate(math.log(STORM_LATENCY), STORM_SIGMA)))


def counts(hosts: int, requests: int, exponent: float) -> array[int]:
    """The number of requests of each host, the largest host first."""
    weights = [1 / (rank + 1) ** exponent for rank in range(hosts)]
    scale = (requests - hosts) / sum(weights)
    return array("q", (1 + round(scale * weight) for weight in weights))


@dataclass
class Run:
    """A serial crawl of one robots.txt and ``counts[host]`` targets of each host."""

    counts: array[int]
    seed: int = SEED
    now: float = 0.0
    idle: float = 0.0
    made: int = 0
    violations: int = 0
    #: By host; empty where each request draws its own.
    latencies: array[float] = field(default_factory=lambda: array("d"))
    #: By host, what says whether an answer is a 429, in whatever order hosts go; empty for never.
    draws: list[random.Random] = field(default_factory=list)
    #: By host, how many targets are still answered 429, where that is not drawn.
    storms: dict[int, int] | None = None
    agenda: Agenda = field(default_factory=Agenda)

    def __post_init__(self) -> None:
        hosts = len(self.counts)
        self.random = random.Random(self.seed)
        terms = Terms(Gates(patience=math.inf))
        self.hosts = [Host(f"host{number}.test", terms) for number in range(hosts)]
        self.names = {host: number for number, host in enumerate(self.hosts)}
        values, weights = zip(*CRAWL_DELAYS, strict=True)
        self.delays = array("d", self.random.choices(values, weights, k=hosts))
        self.last_end = array("d", [UNSEEN]) * hosts
        self.head = array("d", [0.0]) * hosts  # seconds of the robots.txt and the first target
        self.tail = array("d", [0.0]) * hosts  # seconds of all the rest, intervals included
        self.wait = array("d", [0.0]) * hosts  # seconds that must follow the last answer
        self.attempt = array("q", [0]) * hosts  # answers 429 in a row
        self.order = list(self.hosts)
        self.random.shuffle(self.order)

    def crawl(self) -> None:
        for host in self.order:
            self.agenda.add(host, self.now, self.counts[self.names[host]])
        while len(self.agenda):
            host = self.agenda.next(self.now)
            if host is None:
                self.sleep()
            else:
                self.agenda.remove(host, self.now)
                self.ask(host)

    def sleep(self) -> None:
        due = self.agenda.next_due()
        assert due is not None, "hosts are left, and none will ever be due"
        assert due > self.now, "asked to wait for the past"
        assert due < math.inf, "asked to wait for ever"
        self.idle += due - self.now
        self.now = due

    def ask(self, host: Host) -> None:
        """The next target of *host*, its robots.txt first where it has not been asked before."""
        number = self.names[host]
        if not host.traffic.seen:
            self.head[number] += self.exchange(host, exempt=True)
            host.traffic.set_interval(self.delays[number])
            self.agenda.nudge(host.key, self.now)
            if self.agenda.gives_way(host.key):
                self.agenda.add(host, self.now)
                return
        first = self.last_end[number] == UNSEEN
        if not first and self.now - self.last_end[number] < self.wait[number] - 1e-6:
            self.violations += 1
        latency = self.exchange(host)
        if first:
            self.head[number] += latency
        else:
            self.tail[number] += self.wait[number] + latency
        self.last_end[number] = self.now
        self.wait[number] = max(MIN_REQUEST_INTERVAL, self.delays[number])
        if self.draws:
            self.answered(host, number)
        self.agenda.nudge(host.key, self.now)

    def answered(self, host: Host, number: int) -> None:
        """Draw whether the last answer was a 429, and do what R5 says."""
        draw = self.draws[number].random
        status = 429 if self.refuses(number, draw()) else 200
        answer = Answer("target", status, attempt=self.attempt[number])
        failure = after_failure(answer, host.terms.gates, self.now, draw())
        if failure is None:
            self.attempt[number] = host.retried = 0
            return
        self.wait[number] = max(self.wait[number], failure.delay)
        host.traffic.hold(self.now + failure.delay)
        again = isinstance(failure, Retry)
        self.attempt[number] = host.retried = self.attempt[number] + 1 if again else 0
        if again:
            self.agenda.add(host, self.now)

    def refuses(self, number: int, chance: float) -> bool:
        """Whether the next target of a host is answered 429; *chance*: in [0, 1)."""
        if self.storms is None:
            return chance < REFUSED
        self.storms[number] = self.storms.get(number, 0) - 1
        return self.storms[number] >= 0

    def exchange(self, host: Host, *, exempt: bool = False) -> float:
        """One request; its latency in seconds."""
        if self.latencies:
            latency = self.latencies[self.names[host]]
        else:
            latency = self.random.lognormvariate(math.log(LATENCY), SIGMA)
        host.traffic.started()
        self.now += latency
        self.made += 1
        host.traffic.finished(self.now, exempt=exempt)
        return latency

    def lower_bounds(self) -> tuple[float, float]:
        """Seconds of all latencies in a row, and the bound by host (bench/README.md)."""
        by_host, heads = 0.0, 0.0
        for number in sorted(range(len(self.counts)), key=self.tail.__getitem__, reverse=True):
            heads += self.head[number]
            by_host = max(by_host, heads + self.tail[number])
        return self.now - self.idle, by_host


if __name__ == "__main__":
    main()
