"""D28: the interval that a host teaches by its answers 429, against servers that count requests."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_walsh.policy import chain
from scrapy_walsh.policy.backoff import Answer, backoff_delay
from scrapy_walsh.policy.gates import Gates
from scrapy_walsh.policy.throttle import (
    ENOUGH,
    HALVED_AFTER,
    LONGEST,
    NOTHING,
    WITHIN,
    Learned,
    Spacing,
    ease,
    learn,
    slower,
)

PATIENCE = 300.0
#: Nothing is learned, and one 429 is remembered.
REFUSED_ONCE = Learned(calm=0)
ANSWERS = [200, 301, 304, 404, 429, 500, 503, None]


def after(
    known: Learned, *statuses: int | None, interval: float = 1.0, gap: float = 1.0
) -> Learned:
    """What is known after answers to requests that were spaced alike."""
    for status in statuses:
        spacing = Spacing(max(interval, known.interval), max(gap, known.interval), ended=0.0)
        known = learn(known, status, spacing, PATIENCE)
    return known


@dataclass
class Bucket:
    """A server as nginx's limit_req: one request in ``every`` seconds, and ``burst`` at once.

    A request that it refuses costs nothing. Times are seconds.
    """

    every: float
    burst: int = 0
    level: float = 0.0
    last: float = 0.0

    def answer(self, now: float) -> int:
        level = max(0.0, self.level - (now - self.last) / self.every)
        if level > self.burst:
            return 429
        self.level, self.last = level + 1, now
        return 200


@dataclass
class Bot:
    """A crawl of one host: R4's interval, R5's retries, and what is learned."""

    bucket: Bucket
    floor: float = 1.0
    latency: float = 0.01
    teaches: bool = True
    clock: float = 0.0
    known: Learned = NOTHING
    accepted_end: float | None = None
    statuses: list[int] = field(default_factory=list)
    given_up: int = 0
    rand: random.Random = field(default_factory=lambda: random.Random(14))

    def request(self, attempt: int = 0) -> bool:
        status = self.bucket.answer(self.clock)
        interval = max(self.floor, self.known.in_force)
        gap = None if self.accepted_end is None else self.clock - self.accepted_end
        self.clock += self.latency
        spacing = Spacing(interval, gap, self.clock)
        answer = Answer("target", status, attempt=attempt, spacing=spacing, known=self.known)
        if self.teaches:
            self.known = chain.conclude(answer, Gates(), 0.0, 0.0).learned
        self.statuses.append(status)
        hold = 0.0
        if status == 429:
            hold = backoff_delay(attempt, self.rand.random())
        else:
            self.accepted_end = self.clock
        self.clock += max(self.floor, self.known.in_force, hold)
        return status != 429

    def crawl(self, targets: int, robots: bool = True) -> int:
        """Fetch that many targets; the number of answers 429."""
        begin = len(self.statuses)
        if robots:
            self.request()
            self.clock -= self.floor  # T1: the first target follows at once
        for _ in range(targets):
            self.given_up += not any(self.request(attempt) for attempt in range(6))
        return self.statuses[begin:].count(429)


def test_the_bucket_refuses_without_it_what_was_measured():
    """6 of 14 answers were 429 against nginx: the model refuses as many."""
    bot = Bot(Bucket(2.0), teaches=False)
    assert bot.crawl(14) >= 6


@pytest.mark.parametrize("burst", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("every", [1.5, 2.0, 3.0])
@pytest.mark.parametrize("latency", [0.001, 0.05, 0.4])
@pytest.mark.parametrize("seed", range(5))
def test_at_most_four_refusals_in_fourteen_targets(every, burst, latency, seed):
    bot = Bot(Bucket(every, burst), latency=latency, rand=random.Random(seed))
    assert bot.crawl(14) <= 4
    assert bot.given_up == 0
    assert bot.known.interval <= 2 * every


@pytest.mark.parametrize("every", [5.0, 10.0, 30.0])
@pytest.mark.parametrize("seed", range(5))
def test_a_slow_server_costs_two_targets_at_most(every, seed):
    """Its retries wait as R5 says, and not longer: a target may be given up (D28)."""
    bot = Bot(Bucket(every), rand=random.Random(seed))
    assert bot.crawl(14) <= 16
    assert bot.given_up <= 2
    assert every - 0.1 <= bot.known.interval <= 2 * every


def test_a_long_crawl_is_refused_seldom_and_not_slowed_for_good():
    bot = Bot(Bucket(2.0))
    assert bot.crawl(1000) <= 4 + 2 * 1000 / ENOUGH
    assert bot.clock <= 1000 * 2.0 * 1.1


def test_a_server_that_becomes_quick_is_requested_each_second_again():
    bot = Bot(Bucket(10.0))
    bot.crawl(20)
    assert bot.known.interval > 8
    bot.bucket = Bucket(0.5)
    bot.crawl(15 * ENOUGH, robots=False)
    assert bot.known == NOTHING


@pytest.mark.parametrize("statuses", [[200] * 60, [429] + [200] * 30, [503] * 20, [None] * 9])
def test_a_host_that_refuses_once_or_never_is_not_touched(statuses):
    assert after(NOTHING, *statuses).interval == 0


def test_the_second_429_doubles_the_interval_where_no_longer_gap_was_accepted():
    assert after(NOTHING, 429, 429).interval == 2.0
    assert after(NOTHING, 429, 429, interval=5.0).interval == 10.0
    assert after(NOTHING, 429, 429, 429, 429).interval == 8.0


def test_it_becomes_the_smallest_gap_that_was_accepted():
    known = after(NOTHING, 429)
    for gap in (1.9, 1.5, 1.7, 1.1):  # 1.1 is no longer than the second that was refused
        known = after(known, 200, gap=gap)
    assert after(known, 429).interval == 1.5


def test_what_is_taught_binds_from_the_next_accepted_answer_on():
    known = after(Learned(4.0, 0.0, 3, 0.0), 429)
    assert (known.interval, known.in_force) == (8.0, 4.0)
    for status in (503, None, 429):
        assert after(known, status, gap=5.0).in_force == 4.0
    assert after(known, 503, 404).in_force == 8.0


def test_a_refusal_before_what_is_taught_was_tried_makes_it_no_longer():
    known = after(NOTHING, 429, 429)
    for gap, interval in ((1.5, 2.0), (1.9, 2.0), (2.0, 4.0), (3.0, 4.0), (None, 8.0)):
        known = learn(known, 429, Spacing(1.0, gap, 0.0), PATIENCE)
        assert (known.interval, known.in_force) == (interval, 0.0)


def test_what_is_left_after_two_days_binds_as_before():
    known = ease(Learned(40.0, 0.0, 0, 0.0, before=10.0), HALVED_AFTER)
    assert (known.interval, known.in_force) == (20.0, 5.0)


def test_a_longer_gap_than_the_double_is_not_taken():
    assert after(NOTHING, 429, 200, 429, gap=30.0).interval == 2.0


@pytest.mark.parametrize(("between", "interval"), [(WITHIN - 2, 2.0), (WITHIN - 1, 0.0)])
def test_two_refusals_count_within_ten_requests(between, interval):
    assert after(NOTHING, 429, *[200] * between, 429).interval == interval


@pytest.mark.parametrize("status", [500, 502, 503, None])
def test_503_and_no_answer_teach_nothing(status):
    for known in (NOTHING, REFUSED_ONCE, Learned(4.0, 5.0, 7, 0.0)):
        assert after(known, status) == known
    assert after(NOTHING, 503, 503, 429).interval == 0


@pytest.mark.parametrize(("patience", "most"), [(300.0, LONGEST), (20.0, 20.0), (0.0, 0.0)])
def test_it_is_never_longer_than_a_minute_or_the_patience(patience, most):
    known = NOTHING
    for _ in range(20):
        spacing = Spacing(max(1.0, known.interval), 1.0, ended=0.0)
        known = learn(known, 429, spacing, patience)
    assert known.interval == most


def test_a_crawl_delay_beyond_the_longest_is_left_as_it_is():
    assert after(NOTHING, 429, 429, 429, interval=200.0).interval == 0


def test_fifty_accepted_answers_take_off_a_fifth():
    known = Learned(10.0, 0.0, 0, 0.0)
    assert after(known, *[200] * (ENOUGH - 1)).interval == 10.0
    assert after(known, *[200] * ENOUGH).interval == 8.0
    assert after(known, *[200] * 2 * ENOUGH).interval == pytest.approx(6.4)


def test_two_refusals_bring_back_what_was_accepted_before():
    known = after(Learned(10.0, 0.0, 0, 0.0), *[200] * ENOUGH)
    assert after(known, 429).interval == 8.0
    assert after(known, 429, 429).interval == 10.0


def test_each_two_days_halve_it_and_nothing_is_left_after_twelve():
    known = Learned(LONGEST, 0.0, 0, 1000.0)
    assert ease(known, 1000.0 + HALVED_AFTER - 1) == known
    assert ease(known, 1000.0 + HALVED_AFTER).interval == LONGEST / 2
    assert ease(known, 1000.0 + 3.5 * HALVED_AFTER).interval == LONGEST / 8
    assert ease(known, 1000.0 + 6 * HALVED_AFTER) == NOTHING
    assert ease(known, 1000.0 + 1e9) == NOTHING


def test_one_refusal_is_forgotten_after_two_days():
    assert ease(REFUSED_ONCE, HALVED_AFTER) == NOTHING


def test_easing_in_two_steps_is_easing_in_one():
    known = Learned(40.0, 0.0, 3, 0.0)
    halfway = ease(known, 2.5 * HALVED_AFTER)
    assert ease(halfway, 4 * HALVED_AFTER) == ease(known, 4 * HALVED_AFTER)


def test_a_time_in_the_future_counts_as_now():
    known = Learned(8.0, 0.0, 0, 5e9)
    assert ease(known, 1000.0) == replace(known, at=1000.0)


def test_of_two_the_slower_stays():
    assert slower(NOTHING, REFUSED_ONCE) == REFUSED_ONCE
    assert slower(Learned(2.0, 0.0, 9, 7.0), Learned(4.0, 0.0, 0, 1.0)).interval == 4.0


def test_an_exchange_that_this_side_broke_off_teaches_nothing():
    known = Learned(2.0, 0.0, 0, 0.0)
    answer = Answer("target", None, whole=False, spacing=Spacing(2.0, 2.0, 9.0), known=known)
    assert chain.conclude(answer, Gates(), 0.0, 0.0).learned == known


@given(st.lists(st.tuples(st.sampled_from(ANSWERS), st.floats(0, 1e5), st.floats(0, 1e6))))
def test_no_answers_take_it_out_of_its_bounds(steps):
    known, ended, before = NOTHING, 0.0, 0.0
    for status, rest, gap in steps:
        ended += rest
        interval = max(1.0, known.interval)
        before, known = known.interval, learn(known, status, Spacing(interval, gap, ended), 300.0)
        assert known.interval == 0 or 1 < known.interval <= LONGEST
        assert known.interval <= max(2 * interval, before)
        assert known.interval <= before or status == 429
        assert known.calm is not None or known == NOTHING
