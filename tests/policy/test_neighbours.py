"""T43: what the hosts of a server share: when they wait together, for how long, and how spaced."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_walsh.policy.host import Traffic
from scrapy_walsh.policy.hosts import BY_ADDRESS, BY_HOST, server_key
from scrapy_walsh.policy.throttle import (
    ENOUGH,
    LONGEST_TOGETHER,
    NOTHING,
    TOGETHER,
    Learned,
    Refusal,
    Shared,
    Spacing,
    share,
)

PATIENCE = 300.0
NOW = 1.8e9
ADDRESS = "192.0.2.1"
BLOGS = {"*.blog.example": "blogs", "*.example": "others"}


def answers(
    *replies: tuple[float, str, int | None], wait: float = 40.0, declared: bool = False
) -> Shared:
    """What is shared after *replies*: when each came, of which host, and its status."""
    shared = Shared(declared=declared)
    for at, host, status in replies:
        spacing = Spacing(max(1.0, shared.learned.interval), None, NOW + at)
        shared = share(shared, (host, status, wait), spacing, PATIENCE)
    return shared


@pytest.mark.parametrize(
    ("replies", "wait"),
    [
        ([(0, "a", 429)], None),
        ([(0, "a", 429), (5, "a", 429)], None),
        ([(0, "a", 429), (5, "b", 429)], 40.0),
        ([(0, "a", 429), (TOGETHER, "b", 429)], 40.0),
        ([(0, "a", 429), (TOGETHER + 1, "b", 429)], None),
        ([(0, "a", 429), (TOGETHER, "a", 429), (TOGETHER + 1, "b", 429)], 40.0),
        ([(0, "a", 429), *[(1, "c", 200)] * 2 * ENOUGH, (5, "b", 429)], 40.0),
        ([(0, "a", 503), (5, "b", 503)], None),
        ([(0, "a", None), (5, "b", 429)], None),
        ([(0, "a", 429), (5, "b", 429), (6, "c", 200)], None),
    ],
)
def test_r5_two_hosts_that_answer_429_within_ten_minutes_make_all_wait(
    replies: list[tuple[float, str, int | None]], wait: float | None
) -> None:
    shared = answers(*replies)
    assert shared.wait == wait
    if wait is not None:
        assert shared.learned.in_force == 2.0  # at once, and not from the next accepted answer on


def test_r5_neighbours_lose_a_minute_and_not_a_day() -> None:
    assert answers((0, "a", 429), (5, "b", 429), wait=86400.0).wait == LONGEST_TOGETHER


def test_declared_hosts_wait_after_the_first_refusal() -> None:
    shared = answers((0, "a", 429), declared=True)
    assert (shared.wait, shared.learned.interval) == (40.0, 0.0)
    assert answers((0, "a", 429), (1, "a", 429), declared=True).learned.interval == 2.0


def test_the_spacing_ends_when_the_server_accepts() -> None:
    shared = answers((0, "a", 429), (1, "b", 429), *[(2, "c", 200)] * 5 * ENOUGH)
    assert shared.learned == NOTHING
    assert shared.refusal == Refusal("b", NOW + 1)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([200, 404, 429, 503, None]))))
def test_one_host_never_makes_the_others_wait(replies: list[tuple[str, int | None]]) -> None:
    refusing = {host for host, status in replies if status == 429}
    shared = answers(*((at, *reply) for at, reply in enumerate(replies)))
    if len(refusing) < 2:
        assert (shared.wait, shared.learned) == (None, NOTHING)
    assert shared.learned.interval <= LONGEST_TOGETHER


@pytest.mark.parametrize(
    ("key", "address", "pace_by", "server"),
    [
        ("a.test", ADDRESS, BY_HOST, f"@{ADDRESS}"),
        ("a.test:81", ADDRESS, BY_ADDRESS, f"@{ADDRESS}"),
        ("a.test", "", BY_ADDRESS, ""),
        (f"@{ADDRESS}", "", BY_ADDRESS, ""),
        ("x.blog.example", ADDRESS, BLOGS, "@blogs"),
        ("x.blog.example:8080", "", BLOGS, "@blogs"),
        ("x.example", "", BLOGS, "@others"),
        ("blog.test", ADDRESS, BLOGS, ""),
        ("@blogs", "", {"*": "all"}, ""),
        ("a b", "", {"*": "all"}, ""),
    ],
)
def test_the_server_of_a_host(
    key: str, address: str, pace_by: str | dict[str, str], server: str
) -> None:
    assert server_key(key, address, pace_by) == server


def test_r5_an_unseen_host_waits_for_its_server() -> None:
    server, host = Traffic(0.0), Traffic()
    host.server = server
    assert host.wait(100.0) == 0.0
    server.hold(140.0)
    assert (host.wait(100.0), host.wait(100.0, document=True)) == (40.0, 40.0)
    server.set_interval(Learned(interval=2.0).interval, "learned")
    server.finished(141.0)
    assert host.wait(141.0) == 2.0
    host.hold(150.0)
    assert host.wait(141.0) == 9.0
