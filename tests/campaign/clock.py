"""The wall clock is set back or forward by an hour between two runs, or while one goes on."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy_walsh.proof.sandbox import Route, Sandbox
from tests.campaign import judge
from tests.campaign.world import REFUSED, Deadline, Place, Report, urls
from tests.crawl.harness import CLOCKS, LIST, give_clocks, move_clocks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
    deadline = Deadline(seconds)
    with Sandbox() as box:
        for number in range(runs):
            if deadline.passed():
                break
            name = cases[number % len(cases)]
            report.figures[name] += 1
            with tempfile.TemporaryDirectory() as directory:
                _round(Path(directory), box, report, name)
    return report


def _round(directory: Path, box: Sandbox, report: Report, name: str) -> None:
    """A run, one under a clock that is wrong, and one under the right clock again."""
    give_clocks(directory)
    place = Place(directory / "project", box)
    move_clocks(directory, 0, *CASES[name])
    wrong = {"PYTHONPATH": str(directory), **CLOCKS}
    plain: Mapping[str, str] = {}
    cuts = []
    for page, environment in (("a", plain), ("b", wrong), ("c", plain)):
        ended = place.crawl([*urls(page), *urls(f"{page}/2"), *REFUSED], environment=environment)
        cuts.append(time.monotonic())
        report.broken(name, judge.unclean(ended))
        report.broken(name, judge.lost([*urls(page), *urls(f"{page}/2")], place.parsed()))
        box.set_route("operator.test", LIST, Route(404))
    report.broken(name, judge.refused(box.log))
    report.broken(name, judge.too_soon(box.log, cuts))


__all__ = ["CASES", "campaign"]
