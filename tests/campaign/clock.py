"""The wall clock is set back or forward by an hour between two runs, or while one goes on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from scrapy_walsh.proof.sandbox import Route
from tests.campaign import judge
from tests.campaign.judge import REFUSED, Report, urls
from tests.crawl.harness import LIST

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

#: Seconds that the clock of the second run is off by, and when that sets in.
CASES = {
    "forward an hour": (3600.0, 0.0),
    "back an hour": (-3600.0, 0.0),
    "forward an hour within the run": (3600.0, 1.5),
    "back an hour within the run": (-3600.0, 1.5),
}


def campaign(runs: int, seconds: float, seed: int, cases: Sequence[str] = tuple(CASES)) -> Report:
    """Each case in turn, *runs* of them; nothing is begun after *seconds*."""
    report = Report(f"clock, seed {seed}")
    for number, directory in judge.rounds(runs, seconds):
        name = cases[number % len(cases)]
        report.figures[name] += 1
        _round(directory, report, name)
    return report


def _round(directory: Path, report: Report, name: str) -> None:
    """A run, one under a clock that is wrong, and one under the right clock again."""
    right = (0.0, 0.0)
    cuts = []
    with judge.place(directory) as place:
        for page, wrong in (("a", right), ("b", CASES[name]), ("c", right)):
            place.move_clocks(0, *wrong)
            ended = place.start([*urls(page), *urls(f"{page}/2"), *REFUSED]).finish()
            cuts.append(time.monotonic())
            report.broken(name, judge.unclean(ended))
            report.broken(name, judge.lost([*urls(page), *urls(f"{page}/2")], place))
            place.serve("operator.test", LIST, Route(404))
        report.broken(name, judge.refused(place.box.log))
        report.broken(name, judge.too_soon(place.box.log, cuts))


__all__ = ["CASES", "campaign"]
