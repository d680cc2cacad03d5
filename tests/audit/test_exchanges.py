"""The tracker of exchanges over a server's log: it sees each kind of violation, and no other."""

from __future__ import annotations

import ast
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_walsh.proof import exchanges
from scrapy_walsh.proof.exchanges import ROBOTS, Exchange, by_start, gaps, held, overlaps, too_soon

if TYPE_CHECKING:
    from collections.abc import Iterable

Log = list[Exchange[str]]
SLACK = 0.02
TOOK = 0.1


def one(start: float, path: str = "/a", host: str = "h.test", **more: Any) -> Exchange[str]:
    """An exchange of a tenth of a second, answered with 200."""
    end = more.pop("end", start + TOOK)
    return Exchange(host, path, start, end, more.pop("status", 200), f"{host}{path}", **more)


def after(start: float, seconds: float, **more: Any) -> Log:
    """Two exchanges, *seconds* from the end of one to the start of the other."""
    return [one(start, "/a"), one(start + TOOK + seconds, "/b", **more)]


def pair(seconds: float = 0.0, *, later: str = "/a", by: int = 0, **robots: Any) -> Log:
    """A robots.txt, and what follows it."""
    return [one(0, ROBOTS, **robots), one(TOOK + seconds, later, by=by)]


#: A log in order: T1's pair, two hosts by turns, a hold that was waited for.
HONEST: Log = [
    one(0, ROBOTS),
    one(0.1, "/a"),
    one(0.2, ROBOTS, "other.test"),
    one(0.3, "/a", "other.test", hold=5.0, status=503),
    one(1.2, "/b"),
    one(5.4, "/a", "other.test"),
]


def test_a_log_in_order_is_in_order() -> None:
    assert too_soon(HONEST, 1.0, SLACK) == []
    assert [*overlaps(HONEST, SLACK), *held(HONEST, SLACK)] == []


@pytest.mark.parametrize(
    ("log", "seconds"),
    [
        (after(0, 0.9), [0.9]),
        ([one(9, "/b"), one(8.5, "/a")], [0.4]),  # whatever the order of the lines
        ([*HONEST, one(1.9, "/c")], [0.6]),
        (pair(later=ROBOTS), [0.0]),
        (pair(status=None), [0.0]),
        (pair(status=429), [0.0]),
        (pair(status=503), [0.0]),
        (pair(status=302), [0.0]),
        ([*pair(), one(0.2, "/b")], [0.0]),  # T1 is for one target
        ([one(-60), *pair()], [0.0]),  # and for a host's first robots.txt
        ([one(0, end=math.inf), one(9, "/b")], [-math.inf]),  # not answered yet
        ([one(0), one(0.9, "/b", by=1)], [0.9]),  # between processes from start to start
        (pair(by=1), [0.1]),  # and each has to know of the robots.txt
    ],
)  # fmt: skip
def test_r4_3_a_gap_that_is_too_short(log: Log, seconds: list[float]) -> None:
    assert [each.seconds for each in too_soon(log, 1.0, SLACK)] == pytest.approx(seconds)


@pytest.mark.parametrize(
    "log",
    [
        after(0, 0.99),
        after(0, 0.0, host="other.test"),
        pair(),
        pair(status=204),
        pair(status=404),
        [one(0), one(1.0, "/b", by=1)],
        [one(0), one(0.9999999, "/b")][:1],
        [],
    ],
)
def test_r4_3_a_gap_that_is_long_enough(log: Log) -> None:
    assert too_soon(log, 1.0, SLACK) == []


def test_r4_3_each_host_has_its_interval_and_t1_can_be_taken_away() -> None:
    log = [*after(0, 1.5), one(0, host="slow.test"), one(1.6, "/b", "slow.test")]
    slow = too_soon(log, lambda gap: 2.0 if gap.after.host == "slow.test" else 0.0, SLACK)
    assert [str(gap) for gap in slow] == ["slow.test/a -> /b after 1.500 s"]
    assert len(too_soon(pair(), 1.0, SLACK, exempt=False)) == 1


def test_r4_6_processes_that_know_nothing_of_each_other_are_judged_from_start_to_start() -> None:
    log = after(0, 0.95)
    assert too_soon(log, 1.0, SLACK)
    assert too_soon(by_start(log), 1.0, SLACK) == []
    assert too_soon(by_start(after(0, 0.85)), 1.0, SLACK)


def told(found: Iterable[Any]) -> list[tuple[str, str]]:
    return [(gap.before.of, gap.after.of) for gap in found]


def test_r4_1_two_requests_at_once_whatever_their_hosts() -> None:
    long = one(0, "/long", "other.test", end=9.0)
    assert told(overlaps([long, one(1), one(5, "/b"), one(9, "/c")])) == [
        ("other.test/long", "h.test/a"),
        ("other.test/long", "h.test/b"),
    ]
    assert told(overlaps([long, one(8.95)], slack=0.1)) == []
    assert told(overlaps([one(0, end=math.inf), one(99, "/b")])) == [("h.test/a", "h.test/b")]


def test_r5_3_a_request_before_the_end_of_a_hold() -> None:
    busy = one(0, hold=30.0, status=503)
    log = [busy, one(5, "/b", hold=1.0, status=429), one(20, "/c"), one(30.2, "/d")]
    found = {each.path: left for each, left in held([*log, one(7, host="other.test")], SLACK)}
    assert found == pytest.approx({"/b": 25.1, "/c": 10.1})  # the shorter hold ends no longer one


def test_a_gap_knows_how_long_its_host_had_rested() -> None:
    log = [one(0), one(50, ROBOTS), one(51, "/b"), one(99, host="other.test")]
    assert [(gap.rested, gap.visit, gap.first_pair) for gap in gaps(log)] == [
        (math.inf, False, False),
        (pytest.approx(49.9), True, False),
    ]


@given(st.lists(st.tuples(st.floats(0, 3), st.floats(0, 3), st.integers(0, 2)), max_size=12))
def test_it_finds_what_a_look_at_each_pair_finds(drawn: list[tuple[float, float, int]]) -> None:
    """Two of a host, neither T1's pair nor apart by a second, with none between them."""
    log = [one(at, f"/{n}", str(host), end=at + took) for n, (at, took, host) in enumerate(drawn)]
    ordered = sorted(log, key=lambda each: each.start)
    close = set()
    for number, later in enumerate(ordered):
        before = [each for each in ordered[:number] if each.host == later.host][-1:]
        close |= {(each.of, later.of) for each in before if later.start - each.end < 1.0 - SLACK}
    assert set(told(too_soon(log, 1.0, SLACK))) == close
    at_once = {
        later.of
        for number, later in enumerate(ordered)
        if any(each.end > later.start for each in ordered[:number])
    }
    assert {gap.after.of for gap in overlaps(log)} == at_once


def test_it_asks_nothing_of_what_decides_in_a_crawl() -> None:
    """It judges whether that decides rightly."""
    tree = ast.parse(Path(exchanges.__file__).read_text())
    found = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    ours = {name for name in found if name and name.startswith("scrapy_walsh")}
    assert ours == {"scrapy_walsh.proof.spacing"}
