"""``python -m tests.year --days N --seed N``: a year of mornings, and what was not as promised."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.year import clock

clock.install()  # before anything that reads a clock is imported

from tests.year import table  # noqa: E402
from tests.year.judge import judge  # noqa: E402
from tests.year.log import Book, read_log, write_runs  # noqa: E402
from tests.year.machine import Machine  # noqa: E402
from tests.year.world import World  # noqa: E402


def main() -> int:
    """Run it; 0 when no promise was broken, 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m tests.year", description=__doc__)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="keep logs, state and runs in this directory")
    parser.add_argument("--by-day", type=Path, help="write requests by source and day as CSV")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    given = parser.parse_args()
    settings = dict(each.split("=", 1) for each in given.set)
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as temporary:
        directory = given.keep or Path(temporary)
        machine = Machine(directory, World(given.days, given.seed), settings)
        runs = machine.year()
        write_runs(directory / "runs.jsonl", runs)
        log = read_log(machine.log)
    book = Book(machine.world, log, runs, machine.schedule.shifts)
    found = judge(book)
    if given.by_day:
        given.by_day.write_text(table.by_day(book))
    print("\n".join(table.lines(book, found)))
    print(f"{len(runs)} runs in {time.perf_counter() - begun:.0f} s")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
