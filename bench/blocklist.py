"""R3: how long a blocklist takes to validate, to read and to ask, by its length.

Run: ``python -m bench.blocklist [--json FILE] [--sizes 1000 100000 1000000]``.
``read``: JSON, schema and domains, in a thread of this process. ``pause``: the longest time for
which that thread kept another one waiting, in processor time of this process, so never another's
turn (of a crawl: ``bench/pauses.py``). ``replace``: the same,
while an equal list takes its place. ``held``: memory that the list takes, ``peak``: at most while
it was read. ``hit``, ``miss``: processor time of one look-up of a URL, no two of one host.
To reach: a pause of 50 ms up to 100,000 entries and of a second for each million; 2 us.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import resource
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy_walsh.commands.common import read_blocklist
from scrapy_walsh.policy.list.blocklist import find_lifted

if TYPE_CHECKING:
    from collections.abc import Callable

ASKED = 20_000
ROUNDS = 5
SLEEP = 0.002  # seconds
TEXT = {"type": "string"}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["contract", "updated", "operator", "policy", "refresh", "blocked"],
    "properties": {
        "contract": {"const": "walsh-research-blocklist/v1"},
        "refresh": {**TEXT, "pattern": "^P"},
        "blocked": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["domain", "added"],
                "properties": {"domain": TEXT, "added": TEXT, "reason": TEXT},
            },
        },
    },
}
COLUMNS = (
    "entries", "read s", "pause ms", "replace ms", "held MB", "peak MB", "hit us", "miss us"
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, help="write the rows to this file as well")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 100_000, 1_000_000])
    options = parser.parse_args()
    print("".join(f"{column:>12}" for column in COLUMNS))
    rows = []
    for size in options.sizes:
        rows.append(measured(size))
        print("".join(f"{rows[-1][column]:>12.9g}" for column in COLUMNS), flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


def measured(size: int) -> dict[str, float]:
    domains = [f"shop{number}.example{number % 97}.test" for number in range(size)]
    body = document(domains)
    before = resident()
    taken, pause, held = beside(lambda: read_blocklist(body, SCHEMA, None))
    grown, peak = resident() - before, highest() - before
    _, _, coming = beside(lambda: read_blocklist(body, SCHEMA, None))
    picked = random.Random(1).choices(domains, k=ASKED)
    hits = [f"https://www.{domain}/a/b?c=d" for domain in picked]
    misses = [
        f"https://www.host{number}.example{number % 97}.org/a/b?c=d" for number in range(ASKED)
    ]
    hit, miss = per_call(held.blocks, hits), per_call(held.blocks, misses)
    _, replace, _ = beside(lambda: find_lifted(held, coming))
    values = (
        size, round(taken, 3), round(pause * 1e3, 2), round(replace * 1e3, 2),
        round(grown / 1e6), round(peak / 1e6), round(hit, 2), round(miss, 2),
    )  # fmt: skip
    return dict(zip(COLUMNS, values, strict=True))


def beside(work: Callable[[], Any]) -> tuple[float, float, Any]:
    """Do *work* in a thread: the seconds it took, the longest pause here meanwhile, its result."""
    results: list[Any] = []
    gc.collect()
    thread = threading.Thread(target=lambda: results.append(work()))
    started, last, longest = time.perf_counter(), time.process_time(), 0.0
    thread.start()
    while thread.is_alive():
        time.sleep(SLEEP)
        now = time.process_time()
        longest, last = max(longest, now - last), now
    return time.perf_counter() - started, longest, results[0]


def resident() -> int:
    """Bytes of memory in use now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def highest() -> int:
    """Bytes of memory in use at most so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def document(domains: list[str], schema: dict[str, Any] | None = None) -> bytes:
    """A list of *domains*, with its schema inline where one is given."""
    entry = {"added": "2026-05-23", "reason": "email opt-out"}
    members = {
        "contract": "walsh-research-blocklist/v1",
        "updated": "2026-05-23T00:00:00Z",
        "operator": "Bench",
        "policy": "https://ops.test/bot/",
        "refresh": "PT6H",
        "blocked": [{"domain": domain, **entry} for domain in domains],
    }
    return json.dumps(members if schema is None else {**members, "schema": schema}).encode()


def per_call(ask: Callable[[str], object], questions: list[str]) -> float:
    """Return the microseconds of processor time of one call, in the best of some rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.thread_time()
        for question in questions:
            ask(question)
        best = min(best, time.thread_time() - started)
    return best / len(questions) * 1e6


if __name__ == "__main__":
    main()
