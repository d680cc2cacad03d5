"""When runs begin: a crontab's line, people, power cuts, and a clock that is set."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tests.year.clock import Shift
from tests.year.world import DAY, HOUR

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.year.world import World

#: 05:17, as docs/deploy.md has it, where summer time is two hours ahead of UTC and winter's one.
CRON: Final = 5 * HOUR + 17 * 60
WINTER, SUMMER = HOUR, 2 * HOUR
#: Seconds by which cron, or the machine's load, is early or late.
JITTER: Final = 300.0
MAIN, FORM = "walsh_metadata", "form"
#: The second spider is run on every third day: half of all runs would be of its three requests.
FORM_DAYS: Final = 3


@dataclass(frozen=True)
class Planned:
    """A run to be begun at ``at`` (true time), and killed ``kill`` seconds after that."""

    at: float
    spider: str = MAIN
    kill: float | None = None
    why: str = "cron"


@dataclass
class Schedule:
    """The runs of one world, in order."""

    world: World
    shifts: tuple[Shift, ...] = field(init=False)
    reboot: float = field(init=False)

    def __post_init__(self) -> None:
        at = self.world.at
        # Set back an hour after a day's run, and right again while a run of a later day goes on.
        back = self._cron(self._day(at(8, 20)), ()) + 30 * 60
        wrong = (Shift(back, -HOUR),)
        right = self._cron(self._day(at(9, 8)), wrong) + JITTER + 1
        self.shifts = (*wrong, Shift(right, HOUR))
        self.reboot = at(7, 2)

    def booted(self, now: float) -> float:
        """When the machine was last started, seen from *now*."""
        return self.reboot if now >= self.reboot else self.world.start - 40 * DAY

    def runs(self) -> Iterator[Planned]:
        """Every run, in order of its beginning."""
        rng = random.Random(f"runs {self.world.seed}")
        days = self.world.days
        some = max(2, days // 25)
        special = rng.sample(range(2, days), min(3 * some, days - 2))
        skipped, killed, by_hand = special[:some], special[some : 2 * some], special[2 * some :]
        set_back = self._day(self.shifts[0].at)
        for day in range(days):
            begin = self._cron(day, self.shifts) + rng.uniform(-JITTER, JITTER)
            if day in skipped:
                continue
            kill = rng.choice((1.0, 30.0, 300.0)) * rng.random() if day in killed else None
            yield Planned(begin, kill=kill)
            if day in killed and rng.random() < 0.5:
                yield Planned(begin + 420, why="by hand, after the kill")
            if day == set_back:
                # By the machine's clock it is 05:17 for the second time.
                yield Planned(self._cron(day, ()) + HOUR, why="cron, the clock set back")
            if day in by_hand:
                yield Planned(begin + 2 * HOUR, why="by hand")
            if day % FORM_DAYS == 0:
                yield Planned(begin + 2.5 * HOUR, FORM)

    def _cron(self, day: int, shifts: tuple[Shift, ...]) -> float:
        """The true time of that day's 05:17 by the machine's clock."""
        midnight = self.world.start + day * DAY
        summer = self.world.at(3, 30) <= midnight < self.world.at(10, 26)
        wall = midnight + CRON - (SUMMER if summer else WINTER)
        return wall - sum(each.seconds for each in shifts if each.at <= wall)

    def _day(self, now: float) -> int:
        return int((now - self.world.start) // DAY)
