"""R4: spacing per host, with time as an argument."""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_walsh.policy.host import Traffic
from scrapy_walsh.policy.throttle import UNSEEN, VISIT_EVERY, visit_from

HOST = "h.test"
DAY = 86400.0


def asked(host: Traffic, end: float, **options: object) -> None:
    host.started()
    host.finished(end, **options)


def test_r4_4_first_request_to_an_unseen_host_is_not_delayed():
    host = Traffic()
    assert host.due == UNSEEN
    assert host.wait(5.0) == 0.0


def test_r4_2_one_second_between_requests_to_a_host():
    host = Traffic()
    asked(host, 10.0)
    assert host.due == 11.0
    assert host.wait(10.25) == 0.75


@pytest.mark.parametrize(("crawl_delay", "spacing"), [(0.5, 1.0), (2.0, 2.0), (86400.0, 86400.0)])
def test_r4_3_spacing_is_the_larger_of_a_second_and_the_crawl_delay(crawl_delay, spacing):
    host = Traffic()
    host.set_interval(crawl_delay)
    asked(host, 0.0)
    assert host.due == spacing


def test_r4_3_a_crawl_delay_learned_late_counts_from_the_last_answer():
    host = Traffic()
    asked(host, 0.0)
    host.set_interval(7.0)
    assert host.due == 7.0


def test_largest_interval_of_several_sources_counts():
    """T17: http and https of one host share the throttle, not the robots.txt."""
    host = Traffic()
    host.set_interval(5.0, source="http://h.test")
    host.set_interval(2.0, source="https://h.test")
    assert host.interval == 5.0
    host.set_interval(0.0, source="http://h.test")
    assert host.interval == 2.0


def test_r5_3_a_hold_is_never_shortened():
    host = Traffic()
    host.hold(100.0)
    host.hold(50.0)
    assert host.due == 100.0
    asked(host, 100.0)
    assert host.due == 101.0


def test_r5_7_a_retry_keeps_the_spacing_of_r4():
    host = Traffic()
    host.started()
    host.finished(10.0)
    host.hold(10.0)  # Retry-After: 0
    assert host.due == 11.0


def test_r4_1_a_host_is_not_due_while_it_is_being_asked():
    host = Traffic()
    host.started()
    assert host.due == math.inf


def test_first_robots_txt_uses_up_nothing_for_one_target():
    """T1's one exemption."""
    host = Traffic()
    host.set_interval(9.0)
    asked(host, 1.0, exempt=True)
    assert host.wait(1.0) == 0.0
    asked(host, 2.0)
    assert host.due == 11.0


def test_exemption_is_for_a_target_not_for_another_robots_txt():
    host = Traffic()
    asked(host, 1.0, exempt=True)
    assert host.document_due == 2.0


def test_paced_robots_txt_spaces_a_second_not_the_crawl_delay():
    """T1: WALSH_PACE_ROBOTS, the literal reading."""
    host = Traffic()
    host.set_interval(9.0)
    asked(host, 1.0, exempt=True, spacing=1.0)
    assert host.due == 2.0


def test_exemption_does_not_lift_a_hold():
    host = Traffic()
    host.hold(30.0)
    asked(host, 1.0, exempt=True)
    assert host.due == 30.0


def test_earlier_process_counts():
    """T33: a cron job restarted at once."""
    host = Traffic()
    host.restore(last_end=99.5, not_before=99.0)
    assert host.seen
    assert host.due == 100.5


def test_r4_2_minimum_may_only_be_raised():
    host = Traffic()
    host.raise_minimum(3.0)
    host.raise_minimum(2.0)
    assert host.interval == 3.0


steps = st.lists(
    st.tuples(
        st.sampled_from(["a.test", "b.test", "c.test"]),
        st.floats(0, 5),  # time that passes before the request is wanted
        st.floats(0, 3),  # latency
        st.none() | st.floats(0, 20),  # hold that the answer asks for
        st.none() | st.floats(0, 10),  # Crawl-delay learned before it
    ),
    max_size=40,
)


@given(steps)
def test_r4_any_order_of_requests_keeps_every_interval_and_hold(order):
    """Invariant: whoever waits until ``due`` never breaks an interval or a hold."""
    traffic, now = defaultdict(Traffic), 0.0
    ends: dict[str, float] = {}
    holds: dict[str, float] = {}
    intervals: dict[str, float] = {}
    for host, pause, latency, hold, crawl_delay in order:
        now += pause
        if crawl_delay is not None:
            traffic[host].set_interval(crawl_delay)
            intervals[host] = crawl_delay
        now = max(now, traffic[host].due)
        if host in ends:
            assert now - ends[host] >= max(1.0, intervals.get(host, 0.0)) - 1e-9
            assert now >= holds.get(host, 0.0)
        traffic[host].started()
        now += latency
        traffic[host].finished(now)
        ends[host] = now
        if hold is not None:
            traffic[host].hold(now + hold)
            holds[host] = max(holds.get(host, 0.0), now + hold)


PATIENCE, SLOW = 300.0, 600.0
#: Seconds by which a sum of floats may be off.
ROUNDING = 1e-6


def test_r4_a_slow_host_is_visited_a_second_after_its_robots_txt() -> None:
    assert visit_from(SLOW, PATIENCE, rested=DAY, spaced=51.0, visited_at=None) == 51.0
    host = Traffic(least=5.0)  # or as much later as WALSH_MIN_INTERVAL says
    robots(host, 50.0, rested=DAY)
    assert host.due == 55.0


@pytest.mark.parametrize(
    ("interval", "rested"), [(PATIENCE, DAY), (1.0, DAY), (SLOW, SLOW - 1), (SLOW, 0.0)]
)
def test_r4_no_visit_where_a_run_can_wait_or_the_host_had_not_rested(
    interval: float, rested: float
) -> None:
    assert visit_from(interval, PATIENCE, rested, 50.0, None) is None


def test_r4_a_visit_is_a_day_after_the_one_before() -> None:
    assert visit_from(SLOW, PATIENCE, DAY, 50.0, visited_at=0.0) == VISIT_EVERY


def test_r4_a_visit_that_would_come_later_than_the_crawl_delay_changes_nothing() -> None:
    host = Traffic()
    host.restore(0.0, UNSEEN, visited_at=0.0)
    robots(host, 1000.0, rested=1000.0)
    assert host.due == 1000.0 + SLOW


def robots(host: Traffic, end: float, rested: float, delay: float = SLOW) -> None:
    """A robots.txt of the host is requested, answered and read."""
    host.started(end, document=True)
    host.rested = rested
    host.finished(end)
    host.set_interval(delay)
    host.visit(PATIENCE)


@given(st.lists(st.tuples(st.floats(0, 2 * DAY), st.booleans()), min_size=1, max_size=40))
def test_r4_targets_of_a_slow_host_keep_its_crawl_delay_among_themselves(
    steps: list[tuple[float, bool]],
) -> None:
    """Each step waits, then reads robots.txt or sends a target, as soon as either may go."""
    host, now, last = Traffic(), 0.0, -math.inf
    host.set_interval(SLOW)  # as an earlier run knew it
    targets: list[float] = []
    visits: list[float] = []
    for pause, document in steps:
        now = max(now + pause, host.document_due if document else host.due)
        if document:
            assert now - last >= SLOW - ROUNDING
            robots(host, now, rested=now - last)
        else:
            host.started(now)
            ahead = host.ahead
            assert now - last >= (1.0 if ahead else SLOW) - ROUNDING
            visits += [now] if ahead else []
            host.finished(now)
            targets.append(now)
        last = now
    assert all(later - one >= SLOW - ROUNDING for one, later in pairwise(targets))
    assert all(later - one >= VISIT_EVERY - ROUNDING for one, later in pairwise(visits))
