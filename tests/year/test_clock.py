"""The virtual clock: it jumps where a process would sleep, and waits for what works."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from tests.year import clock
from tests.year.clock import Clock, Loop, Shift, off_by
from tests.year.schedule import JITTER, MAIN, Schedule
from tests.year.world import DAY, HOUR, World

NOW = 1.75e9

#: A thread that works for a while in a real reactor, beside a timer that is far off.
THREAD = """
import sys, time
real_sleep = time.sleep
from tests.year import clock
clock.install()
from tests.year.clock import CLOCK
CLOCK.start(1.75e9, 1.7e9)
from scrapy.utils.reactor import install_reactor
install_reactor("twisted.internet.asyncioreactor.AsyncioSelectorReactor", "tests.year.clock.Loop")
from twisted.internet import reactor, threads
ends = []

def begin():
    reactor.callLater(1000, lambda: (ends.append(("timer", time.time())), reactor.stop()))
    done = threads.deferToThread(real_sleep, 0.3)
    done.addCallback(lambda _: ends.append(("thread", time.time())))

reactor.callWhenRunning(begin)
reactor.run()
print([(name, round(at - 1.75e9)) for name, at in ends])
"""


@pytest.fixture
def virtual(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock that has been started, for the loops that are made now."""
    made = Clock()
    made.start(NOW, NOW - DAY)
    monkeypatch.setattr(clock, "CLOCK", made)
    return made


def test_the_loop_jumps_to_its_next_timer(virtual: Clock) -> None:
    loop, seen = Loop(), []

    async def sleep() -> None:
        for seconds in (10.0, 0.25, 86400.0):
            await asyncio.sleep(seconds)
            seen.append(round(virtual.true() - NOW, 2))

    loop.run_until_complete(sleep())
    loop.close()
    assert seen == [10.0, 10.25, 86410.25]
    assert virtual.monotonic() == pytest.approx(DAY + 86410.25, abs=0.01)


def test_a_loop_that_would_wait_for_ever_says_so(virtual: Clock) -> None:
    loop = Loop()
    with pytest.raises(RuntimeError, match="never happen"):
        loop.run_until_complete(loop.create_future())
    loop.close()


def test_the_clock_rests_while_a_thread_works() -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", THREAD]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[('thread', 0), ('timer', 1000)]"


def test_an_alarm_rings_in_the_midst_of_a_jump(virtual: Clock) -> None:
    rung: list[float] = []
    virtual.alarm(NOW + 5, lambda: rung.append(virtual.true()))
    virtual.move(4.0)
    assert rung == []
    virtual.move(10.0)
    assert rung == [NOW + 5]
    assert virtual.true() == NOW + 14


def test_a_clock_that_is_set_moves_the_time_of_day_alone(virtual: Clock) -> None:
    shifts = (Shift(NOW + 10, -HOUR), Shift(NOW + 20, HOUR))
    virtual.start(NOW, NOW - DAY, shifts)
    assert [off_by(shifts, NOW + at) for at in (9, 10, 20)] == [0.0, -HOUR, 0.0]
    before = virtual.monotonic()
    virtual.move(15.0)
    assert virtual.wall() == NOW + 15 - HOUR
    assert virtual.monotonic() - before == 15.0


def test_cron_follows_the_clock_on_the_wall() -> None:
    world = World(365)
    schedule = Schedule(world)
    local = {
        int((run.at - world.start) // DAY): run.at + off_by(schedule.shifts, run.at)
        for run in schedule.runs()
        if run.why == "cron" and run.spider == MAIN
    }
    assert len(local) > 300
    for day, wall in local.items():
        summer = world.at(3, 30) <= world.start + day * DAY < world.at(10, 26)
        moment = (wall + (2 if summer else 1) * HOUR) % DAY
        assert abs(moment - (5 * HOUR + 17 * 60)) <= JITTER, day
