"""R4: which host goes next, under a virtual clock."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_walsh.policy.agenda import (
    ENOUGH_HOSTS,
    ENOUGH_REQUESTS,
    GIVEN_WAY,
    MOMENT,
    Agenda,
    Load,
    enough,
)
from scrapy_walsh.policy.host import Host


@dataclass
class Simulation:
    """One serial process: takes the host that the agenda names, or moves the clock to its next."""

    latency: float
    agenda: Agenda = field(default_factory=Agenda)
    now: float = 0.0
    starts: list[tuple[float, str]] = field(default_factory=list)
    hosts: dict[str, Host] = field(default_factory=dict)

    def host(self, key: str) -> Host:
        return self.hosts.setdefault(key, Host(key))

    def add(self, key: str, count: int = 1) -> None:
        self.agenda.add(self.host(key), self.now, count)

    def remove(self, key: str, count: int = 1) -> None:
        self.agenda.remove(self.host(key), self.now, count)

    def next(self, now: float, *, idle: bool = True) -> str | None:
        host = self.agenda.next(now, lambda: idle)
        return None if host is None else host.key

    def step(self) -> bool:
        host = self.agenda.next(self.now)
        if host is None:
            due = self.agenda.next_due()
            if due is None:
                return False
            assert due > self.now, "asked to wait for the past"
            self.now = due
            return True
        self.agenda.remove(host, self.now)
        assert host.traffic.due <= self.now
        self.starts.append((self.now, host.key))
        host.traffic.started()
        self.now += self.latency
        host.traffic.finished(self.now)
        return True

    def run(self) -> float:
        while self.step():
            pass
        return self.now


def lower_bound(counts: list[int], latency: float, interval: float) -> float:
    """design.md section 7, without the robots.txt requests."""
    ordered = sorted(counts, reverse=True)
    bounds = [
        position * latency + (count - 1) * (interval + latency)
        for position, count in enumerate(ordered, 1)
    ]
    return max([*bounds, sum(counts) * latency])


def test_r4_most_remaining_work_goes_first():
    run = Simulation(0.05)
    for host in ("small.test", "large.test", "slow.test"):
        run.host(host).traffic.restore(-60.0, -60.0)
    run.add("small.test", 2)
    run.add("large.test", 20)
    run.add("slow.test", 5)
    run.host("slow.test").traffic.set_interval(10.0)
    assert run.next(0.0) == "large.test"
    run.add("slow.test", 1)  # its interval is looked at when its work changes
    assert run.next(0.0) == "slow.test"


def test_host_that_was_never_requested_counts_as_one_that_may_be_slow():
    run = Simulation(0.05)
    run.host("known.test").traffic.restore(-60.0, -60.0)
    run.add("known.test", 9)
    run.add("unseen.test", 2)
    assert run.next(0.0) == "unseen.test"  # 2 x 5 s
    run.host("unseen.test").traffic.restore(-60.0, -60.0)
    run.add("unseen.test")
    assert run.next(0.0) == "known.test"  # 9 x 1 s, and 3 x 1 s


def test_a_target_gives_way_unless_it_is_its_hosts_last_or_enough_have():
    run = Simulation(0.05)
    agenda = run.agenda
    for number in range(GIVEN_WAY + 1):
        run.add(f"h{number}.test", 2)
        run.remove(f"h{number}.test")
    for number in range(GIVEN_WAY):
        assert agenda.gives_way(f"h{number}.test")
        run.add(f"h{number}.test")
    last = f"h{GIVEN_WAY}.test"
    assert not agenda.gives_way(last)
    run.remove("h0.test")  # it is given out again
    assert agenda.gives_way(last)
    run.remove(last)
    assert not agenda.gives_way(last), "it has no other request"


def longest_host_soon_due(others: int) -> Simulation:
    """A host of 20 requests has just had one, and as many as *others* hosts of one are due."""
    run = Simulation(0.05)
    run.add("long.test", 20)
    assert run.next(0.0) == "long.test"
    run.step()
    for number in range(others):
        run.add(f"h{number}.test")
    return run


def test_wire_is_kept_free_for_a_moment_before_the_longest_host_is_due():
    run = longest_host_soon_due(2)
    due = run.host("long.test").traffic.due
    assert run.next(due - MOMENT - 0.01) is not None
    assert run.next(due - MOMENT / 2) is None
    assert run.agenda.next_due() == due
    assert run.next(due) == "long.test"


def test_wire_is_not_kept_free_for_a_host_that_goes_last():
    run = Simulation(0.05)
    last(run, "silent.test")
    run.host("silent.test").traffic.restore(0.0, 5.0)
    run.add("silent.test", 20)
    run.add("other.test")
    assert run.next(5.0 - MOMENT / 2) == "other.test"


def test_wire_is_not_kept_free_where_it_decides_when_the_crawl_ends():
    run = longest_host_soon_due(200)
    assert run.next(run.host("long.test").traffic.due - MOMENT / 2) is not None


def test_r4_skewed_load_reaches_the_lower_bound():
    run = Simulation(0.05)
    run.add("large.test", 20)
    for number in range(40):
        run.add(f"h{number}.test")
    assert run.run() <= 1.05 * lower_bound([20] + [1] * 40, 0.05, 1.0)


def test_hold_that_comes_while_a_host_waits_is_kept():
    run = Simulation(0.05)
    run.add("a.test", 2)
    run.step()
    assert run.next(run.now) is None
    run.host("a.test").traffic.hold(50.0)
    run.run()
    assert run.starts[1][0] >= 50.0


def test_host_asked_by_somebody_else_is_looked_at_again():
    run = Simulation(0.05)
    run.host("a.test").traffic.started()  # another crawl of this process
    run.add("a.test")
    assert run.next(0.0) is None
    run.host("a.test").traffic.finished(3.0)
    run.agenda.nudge("a.test", run.now)
    assert run.agenda.next_due() == 4.0
    assert run.next(4.0) == "a.test"


def test_hosts_without_requests_are_forgotten():
    run = Simulation(0.05)
    run.add("a.test", 3)
    run.remove("a.test", 3)
    assert len(run.agenda) == 0
    assert run.next(0.0) is None
    assert run.agenda.next_due() is None


def test_many_hosts_due_at_once_are_all_served():
    run = Simulation(0.0)
    for number in range(500):
        run.add(f"h{number}.test", 2)
    run.run()
    assert len(run.starts) == 1000


def test_hosts_that_are_not_due_are_not_looked_at_in_one_go():
    """A pop stays short however many hosts an earlier run has left waiting."""
    looks = 0

    class Counted(Host):
        def turn(self, now: float) -> float:
            nonlocal looks
            looks += 1
            return super().turn(now)

    agenda = Agenda()
    for number in range(500):
        old, new = Counted(f"old{number}.test"), Counted(f"new{number}.test")
        old.traffic.restore(0.0, 60.0)
        new.traffic.set_interval(300.0)
        agenda.add(old, 1.0, 2)
        agenda.add(new, 1.0, 2)
    now, most = 1.0, 0
    while now < 59.0:
        looks = 0
        host = agenda.next(now)
        most = max(most, looks)
        if host is not None:
            agenda.remove(host, now)
            host.traffic.started()
            now += 0.01
            host.traffic.finished(now)
            agenda.nudge(host.key, now)
        else:
            now += 1.0
    assert most <= 70


loads = st.lists(
    st.tuples(st.integers(1, 12), st.sampled_from([1.0, 1.0, 2.5])), min_size=1, max_size=15
)


@pytest.mark.slow
@settings(max_examples=2 * settings.default.max_examples)
@given(loads, st.sampled_from([0.0, 0.02, 0.3]), st.data())
def test_r4_no_gap_too_short_and_no_due_host_waits_while_the_place_is_free(load, latency, data):
    """Invariant: spacing holds, every request is made, and idle time means that nobody was due.

    But for the moment before the host with most work left is due (D30).
    """
    run = Simulation(latency)
    pending = []
    for number, (count, interval) in enumerate(load):
        run.host(f"h{number}.test").traffic.set_interval(interval)
        pending += [f"h{number}.test"] * count
    order = data.draw(st.permutations(pending))
    late = data.draw(st.integers(0, len(order)))
    added: dict[str, int] = {}
    made: dict[str, int] = {}
    ends: dict[str, float] = {}

    def add(host: str) -> None:
        run.add(host)
        added[host] = added.get(host, 0) + 1

    for host in order[late:]:
        add(host)
    arriving = order[:late]
    while True:
        if arriving:
            add(arriving.pop())
        starts, before = len(run.starts), run.now
        if not run.step():
            assert not arriving
            break
        if len(run.starts) > starts:
            start, host = run.starts[-1]
            assert start - ends.get(host, -99) >= run.host(host).traffic.interval - 1e-9
            ends[host] = run.now
            made[host] = made.get(host, 0) + 1
        else:
            waiting = [host for host in added if made.get(host, 0) < added[host]]
            work = {
                host: (added[host] - made.get(host, 0)) * run.host(host).traffic.interval
                for host in waiting
            }
            due = {host: run.host(host).traffic.due for host in waiting}
            soon = [work[host] for host in waiting if before < due[host] < before + MOMENT + 1e-6]
            assert all(
                due[host] >= run.now or work[host] < max(soon, default=0.0) for host in waiting
            ), "idle while one was due"
    assert made == {host: order.count(host) for host in set(order)}


def test_outlook_counts_due_hosts_and_the_time_that_the_rest_takes():
    run = Simulation(0.05)
    agenda = run.agenda
    assert (agenda.ready(), agenda.seconds_left(0.0)) == (0, 0.0)
    run.host("slow").traffic.set_interval(10.0)
    run.add("slow", 4)
    run.host("held").traffic.hold(50.0)
    run.add("held")
    run.host("busy").traffic.started()
    run.add("busy", 2)
    assert (agenda.ready(), len(agenda)) == (1, 3)
    assert agenda.seconds_left(5.0) == 45.0
    run.remove("held")
    assert agenda.seconds_left(5.0) == 30.0
    run.remove("slow", 4)
    assert (agenda.ready(), agenda.seconds_left(5.0)) == (0, 1.0)


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        (Load(ENOUGH_REQUESTS - 1, ENOUGH_HOSTS), False),
        (Load(ENOUGH_REQUESTS, ENOUGH_HOSTS), True),
        (Load(10 * ENOUGH_REQUESTS, ENOUGH_HOSTS - 1), False),
        (Load(ENOUGH_REQUESTS - 10, ENOUGH_HOSTS, refused=10), True),
        (Load(0, 0, refused=ENOUGH_REQUESTS), True),
        (Load(), False),
    ],
)
def test_enough_waits_once_the_order_can_be_chosen_well(load, expected):
    assert enough(load) == expected


def test_the_agenda_knows_the_most_hosts_that_waited_at_one_time():
    run = Simulation(0.05)
    for host in ("a", "b", "a", "c"):
        run.add(host)
    run.remove("b")
    run.remove("c")
    run.add("d")
    assert (run.agenda.most, len(run.agenda)) == (3, 2)


def last(run: Simulation, *silent: str) -> None:
    """These hosts gave no answer in an earlier run, so they go last until they are requested."""
    for key in silent:
        run.host(key).silence.before = True


def test_a_host_that_goes_last_waits_for_all_requests_of_the_others():
    run = Simulation(0.05)
    last(run, "dead.test", "gone.test")
    run.add("dead.test", 50)
    for name in ("a.test", "b.test"):
        run.add(name, 3)
    run.add("gone.test")
    run.run()
    names = [host for _, host in run.starts]
    assert sorted(names[:6]) == ["a.test"] * 3 + ["b.test"] * 3
    assert set(names[6:8]) == {"dead.test", "gone.test"}


def test_not_even_one_that_is_due_in_half_a_second_waits_for_it():
    run = Simulation(0.05)
    last(run, "dead.test")
    run.add("dead.test")
    run.host("live.test").traffic.hold(0.5)
    run.add("live.test")
    assert run.next(0.0) is None
    assert run.agenda.next_due() == 0.5
    assert run.next(0.5) == "live.test"
    run.remove("live.test")
    assert run.next(0.5) == "dead.test"
    run.add("live.test")  # which start() yields now
    assert run.next(0.6) == "live.test"


def test_a_host_whose_robots_txt_failed_goes_last():
    run = Simulation(0.05)
    run.host("silent.test").silence.note(0.0, robots=True)
    run.add("silent.test", 9)
    run.host("failed.test").robots_failed = True
    run.add("failed.test")
    run.add("live.test", 2)
    run.run()
    assert [host for _, host in run.starts][:2] == ["live.test", "live.test"]
    assert len(run.starts) == 12


def test_hosts_whose_robots_txt_failed_do_not_wait_for_one_another():
    run = Simulation(0.05)
    for name in ("failed.test", "waits.test"):
        run.host(name).robots_failed = True
        run.add(name)
    run.host("waits.test").traffic.hold(5.0)
    run.run()
    assert [host for _, host in run.starts] == ["failed.test", "waits.test"]


def test_a_host_whose_wait_is_over_does_not_wait_for_another_that_goes_last():
    run = Simulation(0.05)
    last(run, "one.test", "other.test")
    run.add("one.test")
    run.host("other.test").traffic.hold(9.0)
    run.add("other.test")
    assert run.next(0.0) == "one.test"


def test_a_host_that_begins_or_ceases_to_go_last_is_looked_up_again():
    run = Simulation(0.05)
    run.add("dead.test", 2)
    run.add("live.test")
    run.host("live.test").silence.note(0.0)
    assert run.next(0.0) == "dead.test"
    run.host("dead.test").silence.note(0.0)
    run.host("live.test").silence.answered(0.0)
    assert run.next(0.0) == "live.test"


def test_a_host_that_is_being_retried_counts_with_the_seconds_of_its_retries():
    run = Simulation(0.05)
    for name, count in (("failed.test", 1), ("long.test", 5)):
        run.host(name).traffic.restore(-60.0, -60.0)
        run.add(name, count)
    assert run.next(0.0) == "long.test"
    run.remove("failed.test")
    run.host("failed.test").retried = 2  # three more may follow, of 2 s in the mean
    run.add("failed.test")
    assert run.next(0.0) == "failed.test"


def test_it_waits_while_work_may_come_from_elsewhere():
    run = Simulation(0.05)
    last(run, "dead.test")
    run.add("dead.test")
    assert run.next(0.0, idle=False) is None
    assert run.next(0.0, idle=True) == "dead.test"


def test_a_host_that_answers_goes_by_its_work_again():
    run = Simulation(0.05)
    last(run, "back.test", "dead.test")
    run.add("back.test", 20)
    run.add("dead.test")
    run.host("dead.test").traffic.hold(0.1)
    run.agenda.nudge("dead.test", run.now)
    assert run.next(0.0) == "back.test"  # the one that waits goes last, too
    run.next(0.1)
    run.host("back.test").silence.answered(0.1)
    run.add("back.test")
    run.add("live.test", 2)
    assert [run.next(0.1)] == ["back.test"]
