"""R2: what each answer to a request for robots.txt means."""

from __future__ import annotations

import math

import pytest

from scrapy_walsh.policy.backoff import GiveUp, Retry
from scrapy_walsh.policy.robots import fetch as robots_fetch
from scrapy_walsh.policy.robots.fetch import (
    DEFER,
    UNREACHABLE,
    UNREADABLE,
    Keep,
    Leave,
    StandIn,
    robots_ttl,
)

RETRY = Retry(1.0)
GAVE_UP = GiveUp(1.0)


@pytest.mark.parametrize(
    ("status", "failure", "meaning"),
    [
        (200, None, robots_fetch.PARSE),
        (204, None, robots_fetch.PARSE),
        (401, None, robots_fetch.NO_RULES),
        (403, None, robots_fetch.NO_RULES),
        (404, None, robots_fetch.NO_RULES),
        (410, None, robots_fetch.NO_RULES),
        (429, RETRY, robots_fetch.AGAIN),
        (429, GAVE_UP, robots_fetch.DEFER),
        (500, RETRY, robots_fetch.AGAIN),
        (503, RETRY, robots_fetch.AGAIN),
        (503, GAVE_UP, robots_fetch.UNREACHABLE),
        (None, RETRY, robots_fetch.AGAIN),
        (None, GAVE_UP, robots_fetch.UNREACHABLE),
        (None, None, robots_fetch.UNREACHABLE),
        (304, None, robots_fetch.DEFER),
        (206, None, robots_fetch.DEFER),
        (100, None, robots_fetch.UNREACHABLE),
    ],
)
def test_r2_meaning_of_an_answer(status, failure, meaning):
    found = robots_fetch.meaning(status, location=False, hops=0, failure=failure)
    assert found == meaning


@pytest.mark.parametrize(("hops", "meaning"), [(0, "follow"), (4, "follow"), (5, "unreachable")])
def test_five_redirects_are_followed(hops, meaning):
    """T31, RFC 9309 2.3.1.2."""
    assert robots_fetch.meaning(301, location=True, hops=hops, failure=None) == meaning


def test_redirect_to_nowhere_is_unreachable():
    assert robots_fetch.meaning(302, location=False, hops=0, failure=None) == "unreachable"


@pytest.mark.parametrize(
    ("status", "hops", "attempt", "first"),
    [
        (200, 0, 0, True),
        (404, 0, 0, True),
        (200, 1, 0, False),
        (200, 0, 1, False),
        (301, 0, 0, False),
        (429, 0, 0, False),
        (503, 0, 0, False),
        (None, 0, 0, False),
    ],
)
def test_exempt_robots_txt_is_unredirected_and_not_retried(status, hops, attempt, first):
    """T1 as design section 8 puts it."""
    assert robots_fetch.counts_as_first(status, hops=hops, attempt=attempt) is first


@pytest.mark.parametrize(
    ("status", "failure", "meaning"),
    [(200, None, "unreadable"), (404, None, "no rules"), (503, RETRY, "again")],
)
def test_r2_only_the_body_of_a_200_must_be_readable(status, failure, meaning):
    found = robots_fetch.meaning(status, location=False, hops=0, failure=failure, readable=False)
    assert found == meaning


HOUR = 3600.0
DAY = 86400.0
ROBOTS = "http://h.test/robots.txt"


@pytest.mark.parametrize(
    ("position", "allowed"), [("allow", True), ("defer", False), ("deny", False)]
)
def test_r2_unreachable_keeps_what_was_held_or_goes_by_the_setting(position, allowed):
    """T6, T3."""
    found = robots_fetch.without(UNREACHABLE, "HTTP 503", ROBOTS, position)
    assert isinstance(found, Keep)
    assert found.reason == "HTTP 503; the rules of an earlier answer stay in force"
    verdict = found.otherwise.decide("http://h.test/x")
    assert (verdict.allowed, verdict.name) == (allowed, "unknown_unreachable")
    assert verdict.reason == f"robots.txt is unreachable (HTTP 503): {position}"
    assert (verdict.document, found.otherwise.ttl) == (ROBOTS, HOUR)


@pytest.mark.parametrize("position", ["allow", "defer", "deny"])
@pytest.mark.parametrize(("fleet", "ttl"), [(False, math.inf), (True, HOUR)])
def test_unreadable_refuses_whatever_was_held_or_is_set(position, fleet, ttl):
    found = robots_fetch.without(UNREADABLE, "x" * 99, ROBOTS, position, fleet=fleet)
    assert isinstance(found, StandIn)
    verdict = found.decide("http://h.test/x")
    assert (verdict.allowed, verdict.name, found.ttl) == (False, "unknown_parse_error", ttl)
    assert f"Content-Encoding '{'x' * 40}' and is not readable text" in verdict.reason


@pytest.mark.parametrize("position", ["allow", "defer", "deny"])
def test_r2_a_429_to_the_end_is_never_no_rules(position):
    """D7."""
    found = robots_fetch.without(DEFER, "HTTP 429", ROBOTS, position)
    assert found == Leave("robots.txt is not available now; HTTP 429")
    assert robots_fetch.REASK == HOUR


@pytest.mark.parametrize(
    ("setting", "interval", "held"),
    [
        (86400.0, 1.0, 86400.0),
        (10.0, 1.0, 10.0),
        (0.5, 2.0, 4.0),  # else the host is asked for its rules alone
        (86400.0, 50000.0, 86400.0),  # R2's TTL is never exceeded
    ],
)
def test_rules_are_held_for_one_target_at_least(
    setting: float, interval: float, held: float
) -> None:
    assert robots_ttl(setting, interval) == held


@pytest.mark.parametrize(
    ("status", "attempt", "known", "again"),
    [
        (500, 0, False, True),
        (503, 4, False, True),
        (500, 1, False, False),
        (502, 0, True, False),
        (503, 0, True, True),
        (429, 4, True, True),
        (None, 4, True, True),
    ],
)
def test_a_robots_txt_that_answers_5xx_has_one_retry_and_none_where_rules_are_known(
    status: int | None, attempt: int, known: bool, again: bool
) -> None:
    assert (not robots_fetch.no_retry(status, attempt, known=known)) is again


@pytest.mark.parametrize(
    ("max_age", "shortest", "ttl"),
    [
        (None, HOUR, DAY),
        (HOUR, HOUR, HOUR),
        (2 * HOUR, HOUR, 2 * HOUR),
        (HOUR, 6 * HOUR, 6 * HOUR),  # no source of the host is read more often
        (HOUR, 7 * DAY, DAY),
        (DAY, HOUR, DAY),
        (HOUR - 1, HOUR, DAY),
        (0.0, HOUR, DAY),
        (DAY + 1, HOUR, DAY),
    ],
)
def test_a_max_age_between_an_hour_and_a_day_is_the_time_to_live(
    max_age: float | None, shortest: float, ttl: float
) -> None:
    assert robots_ttl(DAY, 1.0, max_age, shortest) == ttl
    assert robots_ttl(1800.0, 1.0, max_age, shortest) == 1800  # it is never kept for longer
    assert robots_ttl(DAY, 5 * HOUR, max_age, shortest) == min(max(ttl, 10 * HOUR), DAY)
