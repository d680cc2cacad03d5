"""kill -9 at random moments, restart, until the crawl is done."""

from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING

from scrapy_walsh.proof.sandbox import Route
from tests.campaign import judge
from tests.campaign.judge import REFUSED, Report, urls
from tests.crawl.harness import LIST, LIST_URL

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_walsh.proof.sandbox import LoggedRequest
    from tests.crawl.harness import Kill, Runs

    Log = list[LoggedRequest]

_TARGETS = urls("a", "b")
#: With these Scrapy's own list of requests that it has seen reaches the disk.
_MANY = [f"{REFUSED[0]}/{number}" for number in range(250)]
#: Kills in one round at most, before the crawl is left to end.
_KILLS = 4


def _answered(log: Log) -> int:
    return sum(each.status == 200 and each.path in ("/a", "/b") for each in log)


#: When to kill: what the run has asked by then, and within how many seconds after it.
PHASES: dict[str, tuple[Callable[[Log], bool], float]] = {
    "start-up": (lambda log: True, 1.2),
    "blocklist": (lambda log: any(each.path == LIST for each in log), 0.3),
    "robots.txt": (lambda log: any(each.path == "/robots.txt" for each in log), 0.3),
    "in flight": (lambda log: bool(log) and log[-1].completed is None, 0.05),
    "between": (lambda log: _answered(log) > 0, 1.0),
    "backoff": (lambda log: any(each.status == 503 for each in log), 1.0),
    "at the end": (lambda log: log[-1:] != [] and log[-1].path == "/b", 0.6),
}


def campaign(runs: int, seconds: float, seed: int) -> Report:
    """Kill *runs* times, but begin no round after *seconds*."""
    rng = random.Random(seed)
    report = Report(f"kill, seed {seed}")
    for number, directory in judge.rounds(sys.maxsize, seconds):
        left = runs - report.figures["kills"]
        if not left:
            break
        report.figures["rounds"] += 1
        with judge.place(directory) as place:
            _round(place, rng, report, number=number + 1, most=min(left, _KILLS))
    return report


def _round(place: Runs, rng: random.Random, report: Report, *, number: int, most: int) -> None:
    """One crawl, killed up to *most* times and begun again; judged when it is done."""
    box = place.box
    jobdir = ("-s", "JOBDIR=job") if number % 2 else ()
    kept = "JOBDIR" if jobdir else "same sources"
    where = f"round {number} ({kept})"
    declared = [*_TARGETS, *REFUSED, *(_MANY if jobdir else ())]
    kills: list[Kill] = []
    aged = False
    while len(kills) < most:
        phase = rng.choice(list(PHASES))
        moment, within = PHASES[phase]
        run = place.start(declared, *jobdir)
        killed = run.kill_when(moment, rng.uniform(0, within))
        if killed is None:
            report.broken(where, judge.unclean(run.finish()))
            break
        kills.append(killed)
        where += f" {phase}"
        report.figures.update(["kills", f"  {phase}", f"  {kept}"])
        if not aged and number % 3 == 0 and _answered(box.log):
            # From here on only the list that the killed run held can block.
            aged = True
            place.age("blocklist", LIST_URL, 700_000)
            box.set_route("operator.test", LIST, Route(404))
    else:
        ended = place.start(declared, *jobdir).finish()
        report.broken(where, judge.unclean(ended))
    again, repeated = judge.asked_again(box.log, kills)
    report.figures["asked again in flight"] += again
    report.figures["requests"] += len(box.log)
    repeated = [each for each in repeated if not (aged and each.startswith("operator.test"))]
    for found in (
        judge.refused(box.log),
        judge.too_soon(box.log, [kill.over for kill in kills]),
        judge.lost(_TARGETS, place),
        repeated,
        judge.cut_short(box.log),
    ):
        report.broken(where, found)


__all__ = ["PHASES", "campaign"]
