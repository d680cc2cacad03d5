"""``python -m tests.year.cron --every 300 --days 30``: runs of a cron, each a process.

Eight hosts, one source each: some answer, some fail in each way that gives a source up. Judged by
the servers' log: no source within the hour (R8.2), each as often as its rule lets it.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.year import clock

if __name__ == "__main__":
    clock.install()  # before anything that reads a clock is imported

from tests.year.log import Ran, Sent, read_log
from tests.year.machine import Machine
from tests.year.schedule import Planned
from tests.year.world import DAY, FEED, HANGS, HOUR, REFUSES, START, Host, Phase, Rules, World
from tests.year.world import Source as Line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PAGE: Final = "/a/feed.xml"
#: By host, how it is, and the seconds after which a run that comes then asks it again at the
#: earliest; None: what the revisit says.
HOSTS: Final[dict[str, tuple[Phase, float | None]]] = {
    "answers.test": (Phase(START), None),
    "still.test": (Phase(START, frozen=True), None),
    "forbidden.test": (Phase(START, status=403), None),
    "fails.test": (Phase(START, status=500), HOUR),
    "later.test": (Phase(START, retry_after=7200), 2 * HOUR),
    "gone.test": (Phase(START, status=410), 30 * DAY),
    "refuses.test": (Phase(START, reach=REFUSES), HOUR),
    "hangs.test": (Phase(START, reach=HANGS), HOUR),
}
#: Seconds by which cron is late, at most, and which a run waits for the end of an hour.
LATE, WAIT = 2.0, 300.0


def crawl(
    directory: Path, every: float, days: float, revisit: float
) -> tuple[list[Ran], list[Sent]]:
    """Every run of *days*, one in *every* seconds, and what the servers saw."""
    world = World(365)
    world.hosts = {name: Host(name, {PAGE: FEED}, (of[0],)) for name, of in HOSTS.items()}
    world.sources = [Line(f"http://{name}{PAGE}") for name in HOSTS]
    machine = Machine(directory, world, {"WALSH_REVISIT": revisit})
    machine.schedule.shifts = ()
    rng = random.Random(f"cron {every} {revisit}")
    runs = [
        machine.run(Planned(START + number * every + rng.uniform(0, LATE)))
        for number in range(int(days * DAY // every))
    ]
    return runs, read_log(machine.log)


def _from(day: int, **how: Any) -> tuple[Phase, ...]:
    """A host that is well until that day, the first being 1, and then so."""
    return Phase(START), Phase(START + (day - 1) * DAY, **how)


CLOSED: Final = Rules(disallow=("/",))
#: Of the month of mails: what becomes of each source, once each.
TROUBLED: Final[dict[str, tuple[Phase, ...]]] = {
    "dies.test": _from(9, reach=REFUSES),
    "moves.test": _from(11, moved=f"http://newhome.test{PAGE}"),
    "optsout.test": _from(16, rules=CLOSED),
}
#: And other ways to fail, to come back, and to fail again.
MORE: Final[dict[str, tuple[Phase, ...]]] = {
    **TROUBLED,
    "hangs.test": _from(3, reach=HANGS),
    "fails.test": _from(4, status=500),
    "wavers.test": (
        *(Phase(START + day * DAY, status=503) for day in range(4, 30, 2)),
        *(Phase(START + day * DAY, reach=REFUSES) for day in range(5, 30, 2)),
    ),
    "later.test": _from(5, retry_after=7 * 86400),
    "listed.test": _from(6, listed=True),
    "wanders.test": _from(7, moved=f"http://lost.test{PAGE}"),
    "lost.test": _from(18, reach=REFUSES),
    "refuses.test": (
        *_from(8, rules=CLOSED),
        Phase(START + 9 * DAY, rules=CLOSED, reach=REFUSES),
        Phase(START + 10 * DAY, rules=CLOSED),
        Phase(START + 15 * DAY),
        Phase(START + 20 * DAY, rules=CLOSED),
    ),
    "never.test": (Phase(START, rules=CLOSED),),
    "gone.test": _from(10, status=410),
    "heals.test": (*_from(11, reach=REFUSES), Phase(START + 15 * DAY)),
    "turns.test": (*_from(12, status=403), Phase(START + 16 * DAY, status=404)),
}


def mails(
    directory: Path, hosts: Mapping[str, tuple[Phase, ...]], days: int = 30
) -> Iterator[tuple[int, list[str]]]:
    """The lines that a daily cron job mails (``-L WARNING``), by day, the first being 1."""
    world, well = World(365), (Phase(START),)
    phases = {**dict.fromkeys(("well.test", "newhome.test"), well), **hosts}
    world.hosts = {name: Host(name, {PAGE: FEED}, phase) for name, phase in phases.items()}
    reached = ("newhome.test", "lost.test")
    world.sources = [Line(f"http://{name}{PAGE}") for name in phases if name not in reached]
    machine = Machine(directory, world, {"LOG_LEVEL": "WARNING"})
    machine.schedule.shifts = ()
    for day in range(1, days + 1):
        ran = machine.run(Planned(START + (day - 1) * DAY + 5 * HOUR + 17 * 60))
        written = (directory / "logs" / f"{ran.number:04}.log").read_text().splitlines()
        yield day, [*ran.trouble, *(line.partition("] ")[2] for line in written)]


def broken(log: Sequence[Sent], every: float, days: float, revisit: float) -> Iterator[str]:
    """What was sent too soon, and what was left out for too long."""
    for name, (_, seconds) in HOSTS.items():
        sent = [each for each in log if each.host == name and not each.is_robots]
        gap = revisit if seconds is None else max(seconds, HOUR)
        # A source that is read daily may drift by a tenth of its revisit; by an hour never.
        floor = gap if seconds is not None else max(HOUR, 0.9 * gap)
        for before, after in pairwise(each for each in sent if each.run != before_run(each, sent)):
            if after.start - before.start < floor:
                yield f"{after}: {after.start - before.start:.1f} s after {before}"
        # The hour after an abort begins when the last attempt has failed, later in each run.
        period = max(every, gap) if gap <= HOUR else gap + every
        turns = len({each.run for each in sent})
        if name not in ("refuses.test", "hangs.test") and turns < 0.9 * (days * DAY // period):
            yield f"{name} was asked in {turns} runs in {days:g} days, not each {period:.0f} s"


def before_run(each: Sent, sent: Sequence[Sent]) -> int | None:
    """The run of the request before *each*: attempts of one run are R5's."""
    place = sent.index(each)
    return sent[place - 1].run if place else None


def main() -> int:
    """Run it; 0 when no promise was broken, 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m tests.year.cron", description=__doc__)
    parser.add_argument("--every", type=float, default=300.0, metavar="SECONDS")
    parser.add_argument("--days", type=float, default=30.0)
    parser.add_argument("--revisit", type=float, default=HOUR, metavar="SECONDS")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--mails", choices=("three", "more"), help="show what is mailed")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        directory = given.keep or Path(temporary)
        if given.mails:
            hosts = TROUBLED if given.mails == "three" else MORE
            for day, lines in mails(directory, hosts, int(given.days)):
                print("".join(f"{day} {line}\n" for line in lines), end="", flush=True)
            return 0
        runs, log = crawl(directory, given.every, given.days, given.revisit)
    found = [f"run {ran.number}: {each}" for ran in runs for each in ran.trouble]
    found += broken(log, given.every, given.days, given.revisit)
    for name in HOSTS:
        print(f"{name}: {sum(each.host == name for each in log)} requests")
    print("\n".join([*found, f"{len(runs)} runs, {len(log)} requests, {len(found)} violations"]))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
