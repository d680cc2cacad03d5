"""How long a polite serial crawl takes, over the shortest time that politeness allows.

Run: ``python bench/makespan.py [--json FILE] [--quick] [--loads NAME ...] [--intervals S ...]
[--bots NAME ...]``.

Each load is crawled by stock Scrapy (CONCURRENT_REQUESTS=1, DOWNLOAD_DELAY, no jitter,
ROBOTSTXT_OBEY) and by this package, in processes of their own, against the sandbox, which is
a third. All times are the server's: from the first request to a host of the load to the last
answer. Starting Python, and the blocklist that this package fetches first, are outside.
``ratio`` takes 50 ms for the latency, what the server waits; ``of handler`` takes what a request
costs Scrapy's own download handler in a loop, a connection each and nothing around it, measured
first in the same run: no crawl on that handler can be faster.

This package refuses an interval below 1 s. For the runs at 0.3 s this benchmark lowers the
constant inside its own crawling process: time is scaled, nothing else.

The loads whose names begin with ``delays`` are of ``bench/simulate.py``, by their seeds: each host
has a Crawl-delay, at least 1 s, and a latency of its own, and of the targets up to 5 % are answered
429 at first. No host answers two of ten so, since that would teach a longer interval (D28). There
crawlee-python with its throttling manager stands beside the others, if CRAWLEE_PYTHON names an
interpreter that has it.

``day`` is like a real day: 400 hosts with 510 targets (Zipf's law), latencies of 30 to 800 ms,
Crawl-delays of 2 to 20 s, hosts that answer 429 or 503 a few times, redirects, and a third of the
hosts without robots.txt. ``day, dead`` has 11 hosts besides that accept a connection and never
answer, and 16 robots.txt files that answer 500; the time-out is 3 s. ``quarter`` is a quarter of
it. There a serial crawler of some 90 lines stands beside the others, as a person writes one by
hand (``bench/bots/serial_bot.py``), and ``of serial`` is the time over its time. ``left`` counts
targets that were not answered by 200 though their hosts answer.
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
from dataclasses import dataclass, field
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

from bench import simulate  # noqa: E402
from bench.report import Row, show, write  # noqa: E402
from scrapy_walsh import config  # noqa: E402
from scrapy_walsh.adapters import compat  # noqa: E402
from scrapy_walsh.adapters.compat import JITTER_SETTING  # noqa: E402
from scrapy_walsh.adapters.handler import prepare  # noqa: E402
from scrapy_walsh.policy import agenda  # noqa: E402
from scrapy_walsh.proof.exchanges import held, too_soon  # noqa: E402
from scrapy_walsh.proof.sandbox import LoggedRequest, exchanged, read_log, requests  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager

LATENCY = 0.05
ASYNCIO = "twisted.internet.asyncioreactor.AsyncioSelectorReactor"
#: Seconds that a gap seen at the server may be short by.
TOLERANCE = 0.02
BOTS = ("stock", "ours")
SERIAL = "serial"
CRAWLEE, CRAWLEE_PYTHON = "crawlee", os.environ.get("CRAWLEE_PYTHON", "")
CRAWLEE_BOT = Path(__file__).resolve().parent / "bots" / "crawlee_bot.py"
SERIAL_BOT = Path(__file__).resolve().parent / "bots" / "serial_bot.py"
ALL_BOTS = (SERIAL, *BOTS, CRAWLEE)
OPERATOR = "http://operator.test/.well-known/walsh-research/blocklist"
COLUMNS = {
    "load": "<12", "interval s": ">10.1f", "bot": "<7", "requests": ">8", "bound s": ">8.2f",
    "took s": ">8.2f", "ratio": ">6.3f", "of handler": ">10.3f", "of serial": ">9.3f",
    "violations": ">10", "in flight": ">9", "left": ">4",
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the rows to this file as well")
    parser.add_argument("--quick", action="store_true", help="one tiny load, to see that it works")
    parser.add_argument("--loads", nargs="+", choices=LOADS, default=list(LOADS))
    parser.add_argument("--intervals", nargs="+", type=float, default=[0.3, 1.0])
    parser.add_argument("--bots", nargs="+", choices=ALL_BOTS, default=ALL_BOTS)
    options = parser.parse_args()
    loads = QUICK if options.quick else {name: LOADS[name] for name in options.loads}
    intervals = [0.3] if options.quick else options.intervals
    runs = [
        (name, load, interval, bot)
        for name, load in loads.items()
        for interval in ([1.0] if load.delays else intervals)
        for bot in sorted(options.bots, key=ALL_BOTS.index)
        if (bot != CRAWLEE or (load.delays and CRAWLEE_PYTHON)) and (bot != SERIAL or load.day)
    ]
    if CRAWLEE in options.bots and not CRAWLEE_PYTHON and not options.quick:
        print("crawlee is left out. To have it: python -m venv crawlee; ", end="")
        print("crawlee/bin/pip install crawlee; CRAWLEE_PYTHON=crawlee/bin/python")
    latency = handler_latency(QUICK["tiny"] if options.quick else LOADS["interleaved"])
    print(f"Scrapy's handler in a loop: {latency * 1e3:.1f} ms a request")
    took: dict[str, float] = {}
    rows = show((measured(*run, latency, took) for run in runs), COLUMNS)
    write(options.json, benchmark="makespan", latency=LATENCY, handler_latency=latency, rows=rows)


# -- the loads: a host for each request, in the order in which the spider yields them ------------


def interleaved(counts: list[int]) -> list[str]:
    turns = itertools.zip_longest(*([f"h{n}.test"] * count for n, count in enumerate(counts)))
    return [host for turn in turns for host in turn if host is not None]


def shuffled(counts: list[int]) -> list[str]:
    order = sorted(interleaved(counts))
    random.Random(1).shuffle(order)
    return order


@dataclass(frozen=True)
class Load:
    """A host for each target. By host, in seconds: its Crawl-delay, and its latency.

    ``refused``: the numbers of the targets that are answered 429 at first. ``day``: it is like a
    real day, with what follows. ``storms``: by such numbers, the answers before the page.
    ``moved``: the numbers of those that redirect. ``bare``, ``failed``: the hosts without a
    robots.txt, and those whose robots.txt answers 500. ``dead``: those that never answer.
    """

    hosts: list[str]
    delays: dict[str, float] = field(default_factory=dict)
    latencies: dict[str, float] = field(default_factory=dict)
    refused: frozenset[int] = frozenset()
    day: bool = False
    storms: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    moved: frozenset[int] = frozenset()
    bare: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()
    dead: frozenset[str] = frozenset()

    def latency(self, host: str) -> float:
        return self.latencies.get(host, LATENCY)

    def spacing(self, host: str, interval: float) -> float:
        return max(interval, self.delays.get(host, 0.0))


def with_delays(seed: int) -> Load:
    """A load of ``bench/simulate.py``."""
    drawn = simulate.with_delays(seed)
    hosts = shuffled(list(drawn.counts))
    refused: set[int] = set()
    rng, quiet = random.Random(seed), Counter[str]()
    for number, host in enumerate(hosts):
        quiet[host] += 1
        if rng.random() < simulate.REFUSED and quiet[host] > 10:
            refused.add(number)
            quiet[host] = 0
    return Load(
        hosts,
        {f"h{n}.test": max(1.0, delay) for n, delay in enumerate(drawn.delays)},
        {f"h{n}.test": latency for n, latency in enumerate(drawn.latencies)},
        frozenset(refused),
    )


def like_a_day(scale: float, *, dead: bool = False) -> Load:
    """A load as of a real day; *scale*: a part of its 400 hosts. *dead*: with what is broken."""
    rng = random.Random(26)
    hosts = round(400 * scale)
    # Each host has at least one, so fewer are drawn than are counted here: 510 of 544.
    targets = shuffled(list(simulate.counts(hosts, round(544 * scale), 1.1)))
    names = [f"h{number}.test" for number in range(hosts)]
    latencies = {name: simulate.storm_latency(rng) for name in names}
    # The largest hosts have none, or one of them alone would decide.
    slow = rng.sample(names[5:], round(34 * scale))
    delays = {name: float(rng.randint(2, 20)) for name in slow}
    bare = frozenset(rng.sample(sorted({*names} - {*slow}), hosts // 3))
    storms = {}
    for name in rng.sample(names, round(11 * scale)):
        status = rng.choice([429, 503])
        said = {"headers": {"Retry-After": str(rng.randint(1, 5))}} if rng.random() < 0.5 else {}
        storms[targets.index(name)] = [{"status": status, **said}] * rng.randint(1, 4)
    quiet = [number for number in range(len(targets)) if number not in storms]
    moved = frozenset(rng.sample(quiet, len(targets) // 20))
    failed = rng.sample(sorted({*names} - bare - {*slow}), round(16 * scale)) if dead else []
    gone = [f"dead{number}.test" for number in range(round(11 * scale))] if dead else []
    for name in gone:
        targets.append(name)  # last, so that the numbers before stay
    return Load(
        targets, delays, latencies, day=True, storms=storms, moved=moved, bare=bare,
        failed=frozenset(failed), dead=frozenset(gone),
    )  # fmt: skip


QUICK = {
    "tiny": Load(interleaved([3, 1, 1])),
    "tiny, day": Load(
        ["h0.test", "h0.test", "h1.test"],
        latencies={"h1.test": 0.2},
        day=True,
        storms={0: [{"status": 503, "headers": {"Retry-After": "1"}}]},
        moved=frozenset([2]),
        bare=frozenset(["h1.test"]),
    ),
    "tiny, delays": Load(interleaved([2, 1]), {"h0.test": 1.5}, {"h1.test": 0.2}, frozenset([2])),
}
LOADS = {
    "skewed": Load(["h0.test"] * 20 + [f"h{n}.test" for n in range(1, 41)]),
    "grouped": Load(sorted(interleaved([5] * 10))),
    "interleaved": Load(interleaved([5] * 10)),
    "zipf": Load(shuffled([max(1, round(60 / rank)) for rank in range(1, 201)])),
    **{f"delays {seed}": with_delays(seed) for seed in (21, 31)},
    "day": like_a_day(1),
    "day, dead": like_a_day(1, dead=True),
    "quarter": like_a_day(0.25),
    "quarter, dead": like_a_day(0.25, dead=True),
}
#: Seconds after which a request to a host that never answers is given up.
DEAD_TIMEOUT = 3


def lower_bound(load: Load, interval: float, more: float = 0.0) -> float:
    """Seconds that no serial crawl of *load* can beat, each host with a robots.txt besides.

    Of the k hosts that take longest after their first target, one is begun last: not before the
    robots.txt and the first target of each of them, and all its other targets come after. All
    requests in a row are a bound as well. *more*: seconds to add to each latency.
    """
    more_than_once = [*load.refused, *load.moved]
    more_than_once += [number for number, answers in load.storms.items() for _ in answers]
    counts = Counter(load.hosts) + Counter(load.hosts[number] for number in more_than_once)
    lost = DEAD_TIMEOUT * len(load.dead)
    for host in load.dead:
        del counts[host]
    latency = {host: load.latency(host) + more for host in counts}
    tails = {
        host: (count - 1) * (load.spacing(host, interval) + latency[host])
        for host, count in counts.items()
    }
    heads = bound = 0.0
    for host in sorted(tails, key=tails.__getitem__, reverse=True):
        heads += 2 * latency[host]
        bound = max(bound, heads + tails[host])
    once = Counter(counts.keys()) + Counter(load.failed)  # their robots.txt
    in_a_row = sum((count + once[host]) * latency[host] for host, count in counts.items())
    return max(bound, in_a_row + lost)


# -- one run, and its judge ----------------------------------------------------------------------


def measured(  # noqa: PLR0917
    name: str, load: Load, interval: float, bot: str, latency: float, took: dict[str, float]
) -> Row:
    """The row of one crawl; *took*: by load, the seconds of the serial crawler before it."""
    seen = log_of(load, interval, bot)
    if bot == SERIAL:
        took[name] = duration(seen)
    bound, handler = (lower_bound(load, interval, more) for more in (0.0, latency - LATENCY))
    return {
        "load": name,
        "interval s": interval,
        "bot": bot,
        "requests": len(seen),
        "bound s": round(bound, 3),
        "took s": round(duration(seen), 3),
        "ratio": round(duration(seen) / bound, 4),
        "of handler": round(duration(seen) / handler, 4),
        "of serial": round(duration(seen) / took[name], 4) if name in took else None,
        "violations": violations(seen, interval, load.delays, load.storms),
        "in flight": max(record.in_flight for record in seen),
        "left": left(load, seen).total(),
    }


def handler_latency(load: Load) -> float:
    """Seconds that a request costs Scrapy's download handler alone, one after the other."""
    seen = log_of(load, 0.0, HANDLER)
    return duration(seen) / len(seen)


def log_of(load: Load, interval: float, bot: str) -> list[LoggedRequest]:
    """What the server saw, in order; every target must have been answered once.

    On a load like a day a crawler may have given up some (``left``); this package's must not.
    """
    hosts = set(load.hosts)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log.jsonl")
        with serving(Path(folder), log, [site_of(host, load) for host in sorted(hosts)]) as proxy:
            run_crawl(Path(folder), proxy, load, interval, bot)
        seen = [record for record in requests(read_log(log)) if record.host in hosts]
    missing = left(load, seen).total()
    assert not missing or (load.day and bot != "ours"), (
        f"{bot}: {missing} targets were not answered"
    )
    return seen


def left(load: Load, seen: list[LoggedRequest]) -> Counter[str]:
    """By host that answers, the targets that were not answered by 200, or were more than once."""
    targets = Counter(
        record.host for record in seen if record.path != "/robots.txt" and record.status == 200
    )
    wanted = Counter(host for host in load.hosts if host not in load.dead)
    return (wanted - targets) + (targets - wanted)


def duration(seen: list[LoggedRequest]) -> float:
    return max(record.completed or 0.0 for record in seen) - seen[0].arrived


def violations(
    seen: list[LoggedRequest],
    interval: float,
    delays: Mapping[str, float] | None = None,
    storms: Mapping[int, list[dict[str, Any]]] | None = None,
) -> int:
    """Gaps, end to start, that are too short, and requests before the end of a Retry-After.

    The target after the first robots.txt is exempt.
    """
    due = delays or {}
    log = exchanged(seen)
    asked_for = {
        f"/{number}": float(answers[0].get("headers", {}).get("Retry-After", 0))
        for number, answers in (storms or {}).items()
    }
    for place, each in enumerate(log):
        if each.path in asked_for and each.status != 200:
            log[place] = each._replace(hold=asked_for[each.path])
    found = too_soon(log, lambda gap: max(interval, due.get(gap.after.host, 0.0)), TOLERANCE)
    return len(found) + len(list(held(log, TOLERANCE)))


def site_of(host: str, load: Load) -> dict[str, Any]:
    """What the sandbox is told of *host*."""
    if host in load.dead:
        return {"host": host, "routes": {"*": {"behaviour": "hang"}}}
    page = {"body": "<p>page</p>", "delay": load.latency(host)}
    delay = f"Crawl-delay: {load.delays[host]:g}\n" if host in load.delays else ""
    body = f"User-agent: *\n{delay}Allow: /\n"
    robots = {"body": body, "content_type": "text/plain", "delay": load.latency(host)}
    again = {"sequence": [{**page, "status": 429}, page]}
    special = dict.fromkeys(load.refused, again)
    for number, answers in load.storms.items():
        special[number] = {"sequence": [*({**page, **each} for each in answers), page]}
    special |= {n: {**page, "status": 302, "location": f"/{n}/moved"} for n in load.moved}
    routes = {f"/{n}": route for n, route in special.items() if load.hosts[n] == host}
    if host in load.failed or host in load.bare:
        robots["status"] = 500 if host in load.failed else 404
    return {"host": host, "routes": {"/robots.txt": robots, **routes, "*": page}}


def sandbox(
    folder: Path, log: Path, hosts: set[str], latency: float = LATENCY
) -> AbstractContextManager[str]:
    """A server of *hosts* that all answer after *latency* seconds; its proxy's URL."""
    load = Load(sorted(hosts), latencies=dict.fromkeys(hosts, latency))
    return serving(folder, log, [site_of(host, load) for host in load.hosts])


@contextmanager
def serving(folder: Path, log: Path, sites: list[dict[str, Any]]) -> Iterator[str]:
    (folder / "sites.json").write_text(json.dumps({"sites": sites}))
    command = ["-m", "scrapy_walsh", "sandbox", "--sites", str(folder / "sites.json")]
    with subprocess.Popen(
        [sys.executable, *command, "--log", str(log), "--json"],
        stdout=subprocess.PIPE,
        env=environment(),
    ) as server:
        assert server.stdout is not None
        try:
            yield json.loads(server.stdout.readline())["proxy"]
        finally:
            server.terminate()


def run_crawl(folder: Path, proxy: str, load: Load, interval: float, bot: str) -> None:
    urls = [f"http://{host}/{number}" for number, host in enumerate(load.hosts)]
    timeout = str(DEAD_TIMEOUT if load.dead else 0)
    command = [sys.executable, str(Path(__file__).resolve()), CRAWL, bot, str(interval), timeout]
    if bot == CRAWLEE:
        command = [CRAWLEE_PYTHON, str(CRAWLEE_BOT)]
    elif bot == SERIAL:
        command = [sys.executable, str(SERIAL_BOT)]
    subprocess.run(
        command,
        input=json.dumps(urls),
        text=True,
        cwd=folder,
        env=environment(
            http_proxy=proxy, no_proxy="", WALSH_LAB_PROXY=proxy, SERIAL_TIMEOUT=str(DEAD_TIMEOUT)
        ),
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
    prepare(handler)
    for url in json.load(sys.stdin):
        request = Request(url, meta={"proxy": os.environ["http_proxy"]})
        await compat.call_handler(handler, request, crawler.spider)


def ask_by_handler() -> None:
    install_reactor(ASYNCIO)
    react(lambda _: Deferred.fromFuture(asyncio.ensure_future(ask())))


def crawl(bot: str, interval: float, timeout: int) -> None:
    """*timeout*: DOWNLOAD_TIMEOUT in seconds, 0 for the crawler's own."""
    if bot == "ours":
        scale_time(interval)
    crawl_with(settings(bot, interval) | ({"DOWNLOAD_TIMEOUT": timeout} if timeout else {}))


def crawl_with(settings: dict[str, Any]) -> None:
    """Crawl the URLs of the standard input, each of which must answer 200."""
    urls = json.load(sys.stdin)

    class Bench(Spider):
        name = "bench"

        async def start(self) -> Any:
            for url in urls:
                yield Request(url)

        def parse(self, response: Any) -> None:
            assert response.status == 200

    process = CrawlerProcess(settings)
    process.crawl(Bench)
    process.start()


def scale_time(interval: float) -> None:
    """Let this process keep an interval that the package itself refuses.

    The agenda counts work in seconds, at least one to a request: it is told of each as if the
    interval were 1 s. What it assumes of an unknown host, and for how long it keeps the wire free
    (D30), are multiples of that second.
    """
    if interval >= 1:
        return
    bucket = agenda._bucket
    agenda._bucket = lambda work: bucket(work / interval)
    agenda.ASSUMED_INTERVAL *= interval
    agenda.MOMENT *= interval
    read = config._number(interval)
    config.SETTINGS = tuple(
        each._replace(row=each.row._replace(read=read)) if each.field == "min_interval" else each
        for each in config.SETTINGS
    )


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
        if sys.argv[2] == HANDLER:
            ask_by_handler()
        else:
            crawl(sys.argv[2], float(sys.argv[3]), int(sys.argv[4]))
    else:
        main()
