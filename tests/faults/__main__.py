"""``python -m tests.faults``: every row of the table, a line each; exit code 1 where one fails."""

from __future__ import annotations

import argparse
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from tests.faults.judge import asked, ours
from tests.faults.table import TABLE
from tests.faults.world import Verdict, World, variants

if TYPE_CHECKING:
    from tests.faults.row import Row, Variant


def main() -> int:
    """Run what the command line names; 1 where a row fails."""
    options = _options()
    chosen = [
        (row, variant)
        for row, variant in variants(TABLE)
        if all(word.lower() in f"{row.kind}: {row.name} {variant}".lower() for word in options.word)
        and (row.quick or not options.quick)
        and (not options.first or variant == row.variants[0])
    ]
    began, failed, skipped = time.monotonic(), 0, 0
    local, worlds = threading.local(), []

    def play(case: tuple[Row, Variant]) -> Verdict | None:
        row, variant = case
        if row.needs is not None and not row.needs():
            return None
        if not hasattr(local, "world"):
            local.world = World()
            worlds.append(local.world.__enter__())
        try:
            found: Verdict = local.world.play(row, variant)
        except Exception as error:  # one row that cannot be run is no reason to leave out the rest
            why = f"the row cannot be run: {type(error).__name__}: {error}"
            return Verdict(row, variant, [why.strip()[-600:]], [], 0.0)
        return found

    with ThreadPoolExecutor(options.n) as pool:
        for (row, _), found in zip(chosen, pool.map(play, chosen), strict=True):
            if found is None:
                skipped += 1
                print(f"SKIP {row.kind}: {row.name} needs what is not here", flush=True)
                continue
            failed += not found.passed
            if not found.passed or not options.failing:
                print(f"{found.line()} ({found.seconds:.1f} s)", flush=True)
            if options.verbose and not found.passed:
                _show(found)
    for each in worlds:
        each.__exit__(None, None, None)
    passed = len(chosen) - failed - skipped
    names = {row.name for row, _ in chosen}
    print(
        f"{len(names)} faults in {len(chosen)} crawls: {passed} as they must be, {failed} not, "
        f"{skipped} not tried; {time.monotonic() - began:.0f} s"
    )
    return min(failed, 1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("word", nargs="*", help="only rows with each of these in kind or name")
    parser.add_argument("-n", type=int, default=2, help="rows at a time (2)")
    parser.add_argument("--quick", action="store_true", help="only what CI runs")
    parser.add_argument("--first", action="store_true", help="only the first variant of each row")
    parser.add_argument("--failing", action="store_true", help="print no row that passes")
    parser.add_argument("--verbose", action="store_true", help="what was asked and said, too")
    return parser.parse_args()


def _show(found: Verdict) -> None:
    for name, ran in zip(("with the fault", "after it"), found.ran, strict=False):
        print(f"    {name}: exit {ran.returncode}; asked {', '.join(asked(ran)) or 'nothing'}")
        for line in ours(ran):
            print(f"        {line[:240]}")


if __name__ == "__main__":
    sys.exit(main())
