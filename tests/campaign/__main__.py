"""``python -m tests.campaign NAME``: break things for a while, and say which promise broke."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from tests.campaign import clock, damage, disk, kill

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.campaign.judge import Report

CAMPAIGNS: dict[str, Callable[[int, float, int], Report]] = {
    "kill": kill.campaign,
    "damage": damage.campaign,
    "disk": disk.campaign,
    "clock": clock.campaign,
}


def main() -> int:
    """Run a campaign; 0 when no promise was broken, 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("name", choices=[*CAMPAIGNS, "all"])
    parser.add_argument("--runs", type=int, default=20, help="how often to break something")
    parser.add_argument("--seconds", type=float, default=600.0, help="begin nothing after these")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    failed = False
    for name in CAMPAIGNS if given.name == "all" else [given.name]:
        begun = time.monotonic()
        report = CAMPAIGNS[name](given.runs, given.seconds, given.seed)
        print("\n".join(report.lines()))
        print(f"  {time.monotonic() - begun:.0f} s", flush=True)
        failed = failed or bool(report.violations)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
