"""R3b, R5, R12: what follows an attempt to get the operator's blocklist."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_walsh.policy.backoff import GiveUp, Retry
from scrapy_walsh.policy.gates import Gates
from scrapy_walsh.policy.list.blocklist import Blocklist
from scrapy_walsh.policy.list.operator import Failed, State, held_off, without_list
from scrapy_walsh.policy.verdict import not_known

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_walsh.policy.verdict import Verdict

URL = "https://op.test/list.json"
HOUR = 3600.0
GATES = Gates(patience=300.0, max_retries=3, backoff_base=1.0, backoff_cap=60.0)
RETRY, GAVE_UP = Retry(7.0, 503), GiveUp(0.0, 503)
LOST = not_known("R3", "the disk failed", URL)


def listing(*domains: str, refresh: float = 6 * HOUR) -> Blocklist:
    return Blocklist(domains=set(domains), refresh=refresh)


OLD, NEW = listing("a.test", "b.test"), listing("c.test")


def state(position: str = "allow", **members: Any) -> State:
    return State(URL, position, **members)


def holding(at: float = 1000.0, **members: Any) -> State:
    return replace(state(begun=True).adopt(OLD, at), **members)


def failed(before: State, failure: Retry | GiveUp | None = None, rand: float = 0.5) -> Failed:
    return before.failed("it is away", failure, GATES, rand)


def goes_by(now_in: State, at: float) -> Blocklist | Verdict | str:
    """What a target goes by at that time, or ``waits``."""
    found = now_in.in_force()
    fresh = found.since <= at < found.until
    return "waits" if found.answer is None or not fresh else found.answer


# -- R12: when it is stale ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("age", "waits"),
    [(0, False), (6 * HOUR - 1, False), (6 * HOUR, True), (9 * HOUR, True), (-1, True)],
)
@pytest.mark.parametrize("refreshed", [State.succeeded, lambda held: held.confirm(1000.0)])
def test_r12_1_a_target_waits_where_the_list_is_stale(
    age: float, waits: bool, refreshed: Callable[[State], State]
) -> None:
    held = refreshed(holding(beside=False))
    assert held.is_stale(1000.0 + age) is waits
    assert goes_by(held, 1000.0 + age) == ("waits" if waits else OLD)


@pytest.mark.parametrize("refresh", [60.0, HOUR, 7 * 24 * HOUR])
def test_r12_the_list_itself_says_how_long_it_is_fresh(refresh: float) -> None:
    held = state(begun=True).adopt(listing("a.test", refresh=refresh), 1000.0)
    assert [held.is_stale(1000.0 + age) for age in (refresh - 1, refresh)] == [False, True]


def test_r12_a_304_makes_the_list_fresh_and_no_other_list() -> None:
    held = holding()
    confirmed = held.confirm(1000.0 + 9 * HOUR)
    assert goes_by(confirmed, 1000.0 + 10 * HOUR) is OLD
    assert confirmed.serial == held.serial


def test_r12_a_list_that_another_process_fetched_is_newer_from_a_second_on() -> None:
    assert state().newer_from == 0.0
    assert holding(1000.0).newer_from == 1001.0


# -- R3: what a target goes by ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "answer"),
    [
        ({}, "waits"),
        ({"begun": True}, "waits"),
        ({"begun": True, "beside": True}, "an empty list"),
        ({"begun": True, "beside": True, "arrived": True}, "waits"),
        ({"begun": True, "blocklist": OLD, "fetched_at": 1.0}, "the list"),
        ({"begun": True, "blocklist": OLD, "fetched_at": 1.0, "arrived": True}, "waits"),
        ({"begun": True, "blocklist": OLD, "fetched_at": 1.0, "beside": True}, "the list"),
        ({"begun": False, "blocklist": OLD, "fetched_at": 1.0}, "waits"),
        ({"begun": False, "beside": True}, "waits"),
    ],
)
def test_r3_1_no_target_goes_before_the_list(members: dict[str, Any], answer: str) -> None:
    found = goes_by(state(**members), 2.0)
    if isinstance(found, Blocklist):
        assert answer == ("the list" if found is OLD else "an empty list")
        assert len(found) == (2 if found is OLD else 0)
    else:
        assert found == answer


def test_r3_1_an_answer_that_nobody_has_read_stops_targets_until_the_attempt_is_over() -> None:
    come = holding().answered()
    assert goes_by(come, 1001.0) == "waits"
    assert goes_by(come.adopt(NEW, 1001.0), 1001.0) == "waits"
    assert goes_by(come.adopt(NEW, 1001.0).succeeded().over(), 1001.0) is NEW
    assert goes_by(come.over(), 1001.0) is OLD


def test_an_empty_list_is_a_list() -> None:
    held = state(position="deny", begun=True).adopt(Blocklist(), 1000.0)
    assert isinstance(goes_by(held, 1001.0), Blocklist)


def test_each_list_has_a_number_of_its_own() -> None:
    assert [holding().serial, holding().adopt(NEW, 1.0).serial] == [1, 2]


# -- R3b: what stays ----------------------------------------------------------------------------


@pytest.mark.parametrize("failure", [None, RETRY, GAVE_UP])
@pytest.mark.parametrize("position", ["allow", "defer", "deny"])
@pytest.mark.parametrize("age", [1, 9 * HOUR, 10_000 * HOUR])
def test_r3b_the_last_list_stays_in_force_whatever_its_age(
    failure: Retry | GiveUp | None, position: str, age: float
) -> None:
    follows = failed(holding(position=position), failure)
    assert goes_by(follows.state, 1000.0 + age) is OLD
    assert not follows.targets_wait
    assert (follows.event.kind, follows.event.requirement) == ("rejected", "R3")
    assert (follows.event.url, follows.event.verdict) == (URL, "")
    assert follows.event.reason == (
        "blocklist not refreshed: it is away; the last list stays in force (2 domains)"
    )


def test_r3b_a_list_that_comes_later_replaces_it_and_is_refreshed_again() -> None:
    late = failed(holding()).state.adopt(NEW, 5000.0).succeeded()
    assert (late.beside, late.failures) == (False, 0)
    assert goes_by(late, 5001.0) is NEW
    assert goes_by(late, 5000.0 + 6 * HOUR) == "waits"


STEPS = st.sampled_from(
    [
        lambda held: failed(held, None).state,
        lambda held: failed(held, RETRY).state,
        lambda held: failed(held, GAVE_UP).state,
        State.answered,
        State.over,
        State.succeeded,
        State.begin,
        lambda held: held.lose("the disk failed"),
        lambda held: held.confirm(2000.0),
        lambda held: held.adopt(NEW, 3000.0),
    ]
)


@given(st.lists(STEPS, max_size=12))
def test_r3b_nothing_that_happens_empties_a_list(steps: list[Callable[[State], State]]) -> None:
    held = holding()
    for step in steps:
        held = step(held)
        assert held.in_force().answer in (OLD, NEW, None, LOST)
        assert held.blocklist in (OLD, NEW)


# -- R3.10, D14: where there is none ------------------------------------------------------------


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        ("allow", None),
        ("defer", ("deferred", "WALSH_BLOCKLIST_UNREACHABLE is defer")),
        ("deny", ("unknown_blocklist", "WALSH_BLOCKLIST_UNREACHABLE is deny")),
    ],
)
def test_r3_10_where_no_list_was_ever_held_the_setting_decides(
    position: str, expected: tuple[str, str] | None
) -> None:
    verdict = without_list(position, URL)
    follows = failed(state(position, begun=True))
    found = goes_by(follows.state, 1.0)
    if expected is None:
        assert verdict is None
        assert isinstance(found, Blocklist)
        assert follows.event.verdict == ""
        assert "no blocklist loaded yet" in follows.event.reason
        return
    assert verdict is not None
    assert (verdict.allowed, verdict.name, verdict.requirement) == (False, expected[0], "R3")
    assert expected[1] in verdict.reason
    assert (found, follows.event.verdict) == (verdict, verdict.name)
    assert follows.event.reason.endswith(f"no target is requested: {verdict.reason}")


@pytest.mark.parametrize("position", ["allow", "defer", "deny"])
@pytest.mark.parametrize("held", [False, True])
def test_what_is_not_known_because_of_us_stops_all_whatever_the_setting(
    position: str, held: bool
) -> None:
    """Design 9: also where a list is held, since the operator may have named more by now."""
    before = state(position, begun=True)
    before = before.adopt(OLD, 1000.0) if held else before
    follows = before.failed("the disk failed", None, GATES, 0.5, own_fault=True)
    assert goes_by(follows.state, 1e9) == LOST
    assert not follows.targets_wait
    assert follows.state.blocklist is (OLD if held else None)
    assert (follows.event.verdict, follows.event.requirement) == ("deferred", "R3")
    assert "could not load the blocklist (our side): the disk failed" in follows.event.reason
    assert follows.state.serial > before.serial, "what was let through before is judged again"


def test_a_fault_of_ours_lasts_until_a_list_comes() -> None:
    broken = state("allow").adopt(OLD, 1000.0).begin().lose("the disk failed")
    assert goes_by(failed(broken).state, 1001.0) == LOST, "nor does the server's fault end it"
    assert goes_by(broken.confirm(2000.0), 2001.0) is OLD
    assert goes_by(broken.adopt(NEW, 2000.0), 2001.0) is NEW


# -- R5: when it is tried again -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("failures", "failure", "delay", "after"),
    [
        (0, None, 0.5, 1),  # rand 0.5: half of base * 2 ** failures
        (1, None, 1.0, 2),
        (2, None, 2.0, 3),
        (10, None, 30.0, 11),  # half of the cap
        (0, RETRY, 7.0, 1),  # a Retry-After is never shortened
        (10, RETRY, 30.0, 11),
        (3, GAVE_UP, 60.0, 0),  # a new series, after the longest back-off
        (3, GiveUp(86400.0, retry_after="86400"), 86400.0, 0),
    ],
)
@pytest.mark.parametrize("held", [holding(), state("allow"), state("deny", begun=True)])
def test_r5_3_the_next_attempt_is_backed_off_from(
    failures: int, failure: Retry | GiveUp | None, delay: float, after: int, held: State
) -> None:
    follows = failed(replace(held, failures=failures), failure)
    assert (follows.delay, follows.state.failures) == (delay, after)
    assert (follows.targets_wait, follows.state.beside) == (False, True)


@pytest.mark.parametrize(
    ("before", "failure", "waits"),
    [
        (state("defer"), None, True),
        (state("deny"), RETRY, True),
        (state("allow").lose("the disk failed"), None, True),
        (state("allow"), None, False),  # T7: it goes on with an empty list
        (state("deny", failures=2), None, True),
        (state("deny", failures=3), None, False),  # R5's retries are used up
        (state("deny"), GAVE_UP, False),
        (state("deny"), Retry(300.0), True),
        (state("deny"), Retry(300.1), False),  # beyond WALSH_PATIENCE
        (state("deny", begun=True), None, False),
        (state("deny").adopt(OLD, 1.0), None, False),
    ],
)
def test_targets_wait_for_retries_only_where_nothing_may_be_requested(
    before: State, failure: Retry | GiveUp | None, waits: bool
) -> None:
    follows = failed(before, failure)
    assert (follows.targets_wait, follows.state.beside) == (waits, not waits)


def test_an_attempt_beside_the_crawl_keeps_the_wire_for_a_shorter_time() -> None:
    assert state().timeout > failed(state()).state.timeout > 0


@pytest.mark.parametrize(
    ("members", "looks"), [({}, False), ({"failures": 1}, True), ({"begun": True}, True)]
)
def test_r4_6_only_the_first_attempt_of_a_run_does_not_look_into_the_store(
    members: dict[str, Any], looks: bool
) -> None:
    assert state(**members).looks_first is looks


@pytest.mark.parametrize(
    ("wait", "interval", "held"),
    [(0, 1, None), (1, 1, None), (-5, 1, None), (1.5, 1, 1.5), (90, 60, 90), (math.inf, 1, None)],
)
def test_r5_1_what_is_longer_than_the_spacing_is_not_waited_for(
    wait: float, interval: float, held: float | None
) -> None:
    assert held_off(wait, interval) == held
