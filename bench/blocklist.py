"""R3: how long a blocklist takes to validate, to build and to ask, by its length.

Run: ``python -m bench.blocklist [--json FILE] [--sizes 1000 100000 1000000]``.
``parse``: JSON and schema in a child process, the crawl going on beside it. ``build``: all
steps in the event loop; ``pause``: the longest of them (of a crawl: ``bench/pauses.py``).
``replace``: the longest step when an equal list takes its place. ``hit``, ``miss``: processor time
of one look-up of a URL, no two of one host.
To reach: a pause of 50 ms, a look-up of 2 us.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy_walsh.adapters.validate import blocklist_chunks, builder_of, validate_in_child
from scrapy_walsh.policy.blocklist import Blocklist, lifted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ASKED = 20_000
ROUNDS = 5
TIMEOUT = 600.0
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
COLUMNS = ("entries", "parse s", "build s", "pause ms", "replace ms", "hit us", "miss us")


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
    started = time.perf_counter()
    output = validate_in_child(document(domains), SCHEMA, None, TIMEOUT)
    parse = time.perf_counter() - started
    held, steps = built(output)
    coming, _ = built(output)
    picked = random.Random(1).choices(domains, k=ASKED)
    hits = [f"https://www.{domain}/a/b?c=d" for domain in picked]
    misses = [
        f"https://www.host{number}.example{number % 97}.org/a/b?c=d" for number in range(ASKED)
    ]
    hit, miss = per_call(held.blocks, hits), per_call(held.blocks, misses)
    replaced = lifted(held, coming)
    del held
    replace = max(durations(replaced))
    values = (
        size, round(parse, 3), round(sum(steps), 4), round(max(steps) * 1e3, 2),
        round(replace * 1e3, 2), round(hit, 2), round(miss, 2),
    )  # fmt: skip
    return dict(zip(COLUMNS, values, strict=True))


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


def built(output: bytes) -> tuple[Blocklist, list[float]]:
    """Return the list and the seconds of every step, as an event loop would take them."""
    builder = builder_of(output)
    chunks = blocklist_chunks(output)
    taken = durations(map(builder.add, chunks))
    return builder.build(), taken


def durations(steps: Iterator[object]) -> list[float]:
    """Return the seconds that each step of an iterator takes."""
    taken = [0.0]
    gc.collect()
    while True:
        started = time.perf_counter()
        try:
            next(steps)
        except StopIteration:
            return taken
        taken.append(time.perf_counter() - started)


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
