"""R8: how often a source is asked."""

from __future__ import annotations

import pytest

from scrapy_walsh.policy.recrawl import REVISIT_FLOOR, counts_as_asked, not_due
from scrapy_walsh.policy.verdict import Verdict

NOW = 1779494400.0  # 2026-05-23T00:00:00Z
DAY = 86400.0


def test_r8_1_a_source_never_asked_is_due() -> None:
    assert not_due(None, NOW, DAY, None) is None


def test_r8_1_a_source_asked_within_the_day_is_refused_with_the_times() -> None:
    assert not_due(NOW - 5, NOW, DAY, None) == Verdict(
        False,
        "not_due",
        "R8",
        "last asked 2026-05-22T23:59:55Z, next due 2026-05-23T23:59:55Z",
    )


@pytest.mark.parametrize(("age", "refused"), [(0, True), (DAY - 1, True), (DAY, False)])
def test_r8_1_the_interval_ends_on_time(age: float, refused: bool) -> None:
    assert (not_due(NOW - age, NOW, DAY, None) is not None) is refused


@pytest.mark.parametrize(("age", "refused"), [(3599, True), (3600, False)])
def test_r8_2_no_interval_is_below_the_hour(age: float, refused: bool) -> None:
    assert REVISIT_FLOOR == 3600
    assert (not_due(NOW - age, NOW, 1.0, None) is not None) is refused


@pytest.mark.parametrize(
    ("reason", "refused"), [("feed repaired", False), ("", True), ("  ", True), (None, True)]
)
def test_r8_2_only_a_written_reason_lifts_the_rule(reason: str | None, refused: bool) -> None:
    assert (not_due(NOW - 5, NOW, DAY, reason) is not None) is refused


@pytest.mark.parametrize(
    ("ahead", "refused"), [(5, True), (DAY - 1, True), (DAY, False), (1e9, False), (1e300, False)]
)
def test_own_a_time_in_the_future_refuses_for_a_while_but_not_for_ever(
    ahead: float, refused: bool
) -> None:
    assert (not_due(NOW + ahead, NOW, DAY, None) is not None) is refused


def test_own_the_due_time_shown_is_never_early() -> None:
    verdict = not_due(NOW + 0.25, NOW, DAY, None)
    assert verdict is not None
    assert verdict.reason.endswith("next due 2026-05-24T00:00:01Z")


def test_own_an_interval_beyond_the_calendar_is_a_refusal() -> None:
    verdict = not_due(NOW, NOW, 1e300, None)
    assert verdict is not None
    assert verdict.reason.endswith("next due 9999-12-31T23:59:59Z")


@pytest.mark.parametrize("status", [200, 204, 304, 400, 403, 404, 410, 451])
def test_r8_1_an_answer_counts_as_asked(status: int) -> None:
    assert counts_as_asked(status)


@pytest.mark.parametrize("status", [None, 301, 302, 429, 500, 502, 503, 999])
def test_r8_1_a_failure_comes_back_at_the_next_run(status: int | None) -> None:
    assert not counts_as_asked(status)
