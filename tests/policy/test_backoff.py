"""R5: Retry-After, the back-off schedule, and giving up."""

from __future__ import annotations

import json
import math
from email.utils import formatdate
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_walsh.policy.backoff import (
    LONGEST,
    Answer,
    GiveUp,
    Retry,
    after_failure,
    asked_for,
    backoff_delay,
    parse_retry_after,
    retry_after_floor,
    seconds_to_reset,
)
from scrapy_walsh.policy.chain import conclude
from scrapy_walsh.policy.gates import Gates

NOW = 1779494400.0  # 2026-05-23T00:00:00Z
DATA = Path(__file__).parents[1] / "data"


def rows(name: str) -> list[Any]:
    return [
        pytest.param(row, id=row["id"])
        for row in json.loads((DATA / name).read_text(encoding="utf-8"))
    ]


def decide(status: int | None, *values: str, attempt: int = 0, rand: float = 0.5) -> Any:
    answer = Answer("target", status, retry_after=values, attempt=attempt)
    return after_failure(answer, Gates(), NOW, rand)


@pytest.mark.parametrize("row", rows("retry_after.json"))
def test_r5_4_retry_after(row: dict[str, Any]) -> None:
    assert parse_retry_after(row["value"], NOW) == row["seconds"]


@pytest.mark.parametrize("weekday", ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"])
def test_r5_4_the_weekday_is_never_checked(weekday: str) -> None:
    assert parse_retry_after(f"{weekday}, 23 May 2026 00:00:30 GMT", NOW) == 30


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("Saturday, 23-May-75 00:00:00 GMT", 1546300800),  # 49 years on
        ("Saturday, 23-May-76 00:00:00 GMT", 1577923200),  # 50 years on, to the second
        ("Saturday, 23-May-76 00:00:01 GMT", 0),  # over 50 years on: 1976
        ("Sunday, 06-Nov-94 08:49:37 GMT", 0),
    ],
)
def test_r5_4_two_digit_years_end_fifty_years_ahead(value: str, seconds: float) -> None:
    assert parse_retry_after(value, NOW) == seconds


def test_r5_4_two_digit_years_cross_the_century() -> None:
    new_years_eve_2099 = 4102444799.0
    assert parse_retry_after("Friday, 01-Jan-00 00:00:29 GMT", new_years_eve_2099) == 30


def test_r5_3_a_wait_of_any_length_stays_finite() -> None:
    for value in ("9" * 5000, "Fri, 31 Dec 9999 23:59:59 GMT"):
        assert parse_retry_after(value, NOW) == LONGEST
        assert retry_after_floor(value + ";", NOW) == LONGEST


@given(st.one_of(st.text(), st.text("0123456789 ,:-+.GMTSatMy")))
def test_r5_4_any_text_gives_a_finite_wait_or_none(text: str) -> None:
    for seconds in (parse_retry_after(text, NOW), retry_after_floor(text, NOW)):
        assert seconds is None or 0 <= seconds < math.inf


@given(st.integers(0, 10**10))
def test_r5_4_ascii_digits_are_seconds(seconds: int) -> None:
    assert parse_retry_after(str(seconds), NOW) == seconds


@pytest.mark.parametrize("row", rows("retry_after_floor.json"))
def test_r5_7_what_is_readable_is_a_lower_bound(row: dict[str, Any]) -> None:
    assert retry_after_floor(row["value"], NOW) == row["floor"]


DATE = "Sat, 23 May 2026 00:10:00 GMT"  # ten minutes from now


@pytest.mark.parametrize(
    ("date", "seconds"),
    [
        ("", 600),
        ("Sat, 23 May 2026 00:00:00 GMT", 600),
        ("Fri, 22 May 2026 23:00:00 GMT", 4200),  # its clock is an hour behind ours
        ("Sat, 23 May 2026 01:00:00 GMT", 600),  # an hour ahead: ours says the longer wait
        ("Fri, 22 May 2026 00:00:00 GMT", 87000),
        ("Thu, 21 May 2026 23:59:59 GMT", 600),  # over a day: it is not taken for a clock
        ("Sunday, 24-May-26 00:00:00 GMT", 600),
        ("2026-05-22T23:00:00Z", 4200),
        ("yesterday", 600),
        ("12", 600),
    ],
)
def test_r5_4_a_date_is_counted_from_both_clocks(date: str, seconds: float) -> None:
    answer = Answer("target", 429, retry_after=(DATE,), date=date)
    assert asked_for(answer, NOW)[0] == seconds
    remark = Answer("target", 429, retry_after=(f"{DATE} (busy)",), date=date)
    assert asked_for(remark, NOW) == (None, seconds)


@pytest.mark.parametrize("date", ["", "Fri, 22 May 2026 23:00:00 GMT"])
def test_r5_4_seconds_and_durations_are_of_no_clock(date: str) -> None:
    for value in ("120", "PT2M"):
        answer = Answer("target", 429, retry_after=(value,), date=date)
        assert asked_for(answer, NOW) == (120, 0 if value == "PT2M" else 120)


@given(st.integers(-200_000, 200_000), st.integers(-200_000, 200_000))
def test_r5_4_no_clock_of_a_server_shortens_a_wait(ahead: int, date: int) -> None:
    at, now = (formatdate(NOW + each, usegmt=True) for each in (ahead, date))
    answer = Answer("target", 503, retry_after=(at,), date=now)
    waited, _ = asked_for(answer, NOW)
    assert waited is not None
    assert waited >= max(0, ahead)
    assert waited == max(0, ahead, ahead - date if abs(date) <= 86_400 else 0)


@pytest.mark.parametrize("status", [200, 204, 301, 302, 304, 308, 400, 403, 404, 410, 420, 430])
def test_r5_3_a_retry_after_holds_the_host_whatever_the_status(status: int) -> None:
    """And nothing is retried for it."""
    for values, held in (
        (("3600",), 3600), ((DATE,), 600), (("90 s",), 90), (("soon",), None), (("0",), None),
        ((), None),
    ):  # fmt: skip
        answer = Answer("target", status, retry_after=values)
        concluded = conclude(answer, Gates(), NOW, 0.5)
        assert (concluded.failure, concluded.wait) == (None, held), values


@pytest.mark.parametrize("status", [429, 503, 500, 509, 529, 999])
def test_r5_3_what_is_retried_waits_as_long(status: int) -> None:
    answer = Answer("target", status, retry_after=("3600",))
    concluded = conclude(answer, Gates(), NOW, 0.5)
    assert isinstance(concluded.failure, Retry)
    assert concluded.wait == 3600


def test_an_exchange_that_this_side_broke_off_holds_nothing_without_a_head() -> None:
    assert conclude(Answer("target", None, whole=False), Gates(), NOW, 0.5).wait is None


@pytest.mark.parametrize("row", rows("backoff.json"))
def test_r5_5_full_jitter(row: dict[str, Any]) -> None:
    attempt, most = row["attempt"], row["most"]
    assert backoff_delay(attempt, 0.0) == 0
    assert backoff_delay(attempt, 0.5) == most / 2
    assert most * 0.999 < backoff_delay(attempt, 0.9999) < most


def test_r5_5_base_and_cap_are_settings() -> None:
    assert backoff_delay(2, 0.5, base=3.0) == 6
    assert backoff_delay(20, 0.5, cap=10.0) == 5


@pytest.mark.parametrize("rand", [-0.1, 1.0, math.nan, math.inf])
def test_rand_outside_its_range_is_refused(rand: float) -> None:
    with pytest.raises(ValueError, match="rand"):
        backoff_delay(0, rand)


def test_a_negative_attempt_is_refused() -> None:
    with pytest.raises(ValueError, match="attempt"):
        backoff_delay(-1, 0.5)


@pytest.mark.parametrize("status", [429, 503])
def test_r5_1_429_and_503_are_retried(status: int) -> None:
    answer = decide(status, attempt=2)
    assert answer == Retry(2.0, status, attempt=2, most=5)
    assert answer.reason() == f"status {status}; retry 3 of 5 in 2.000 s or later"


@pytest.mark.parametrize("status", [500, 502, 504, 599, 999])
def test_r5_2_other_5xx_are_retried_alike(status: int) -> None:
    assert decide(status).delay == 0.5


def test_n2_transport_errors_are_retried_alike() -> None:
    assert decide(None) == Retry(0.5, most=5)
    assert decide(None).reason() == "no answer; retry 1 of 5 in 0.500 s or later"


@pytest.mark.parametrize("status", [200, 204, 301, 304, 400, 404, 408, 410, 451])
def test_r5_1_other_answers_are_never_retried(status: int) -> None:
    assert decide(status, "120") is None
    assert decide(status, attempt=9) is None


@pytest.mark.parametrize("status", [429, 503, 500])
def test_r5_3_retry_after_replaces_the_computed_delay(status: int) -> None:
    assert decide(status, "0", rand=0.9).delay == 0
    assert decide(status, "3600").delay == 3600
    assert decide(status, "Sat, 23 May 2026 00:00:30 GMT").delay == 30
    assert "Retry-After 3600" in decide(status, "3600").reason()


def test_r5_7_an_invalid_retry_after_only_lengthens_the_computed_delay() -> None:
    assert decide(429, "soon").delay == 0.5
    assert decide(429, "90 s").delay == 90
    assert decide(429, "0.1 s").delay == 0.5


@pytest.mark.parametrize("values", [("60", "120"), ("120", "60"), ("soon", "120"), ("120", "")])
def test_r5_7_of_several_retry_after_fields_the_longest_counts(values: tuple[str, ...]) -> None:
    assert decide(503, *values).delay == 120


def test_r5_6_five_retries_then_the_failure_is_recorded() -> None:
    answers = [decide(503, attempt=attempt) for attempt in range(6)]
    assert [type(answer) for answer in answers] == [Retry] * 5 + [GiveUp]
    assert answers[5].reason() == "status 503; given up after 5 retries"


def test_r5_6_retries_may_be_fewer() -> None:
    answer = after_failure(Answer("target", None), Gates(max_retries=0), NOW, 0.5)
    assert answer == GiveUp(0.5)
    assert answer.reason() == "no answer; given up"


def test_r5_3_the_host_stays_held_after_giving_up() -> None:
    assert decide(429, "7200", attempt=5).delay == 7200
    assert decide(503, attempt=5).delay == 16


def test_reasons_are_one_line() -> None:
    assert "\n" not in decide(429, "12\n0").reason()


# -- a rate limit that is used up ---------------------------------------------------------

POLICY = '"burst";q=10;w=60, "day";q=100;w=3600'


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ({"RateLimit": '"default";r=0;t=30'}, 30),
        ({"RateLimit": '"default" ; r=0 ; t=30'}, 30),
        ({"RateLimit": '"default";r=5;t=30'}, None),
        ({"RateLimit": '"burst";r=0;t=5, "day";r=3;t=3000'}, 5),
        ({"RateLimit": '"burst";r=0;t=5, "day";r=0;t=3000'}, 3000),
        ({"RateLimit": '"day";r=0', "RateLimit-Policy": POLICY}, 3600),
        ({"RateLimit": '"day";r=0;t=12', "RateLimit-Policy": POLICY}, 12),
        ({"RateLimit": '"other";r=0', "RateLimit-Policy": POLICY}, None),
        ({"RateLimit-Policy": POLICY}, None),
        ({"RateLimit": "limit=100, remaining=0, reset=50"}, 50),
        ({"RateLimit": "limit=100, remaining=1, reset=50"}, None),
        ({"RateLimit-Remaining": "0", "RateLimit-Reset": "50"}, 50),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": f"{NOW + 90:.0f}"}, 90),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": f"{NOW * 1000 + 90500:.0f}"}, 90.5),
        ({"X-Rate-Limit-Remaining": " 0 ", "X-Rate-Limit-Reset": "12.5"}, 12.5),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "Sat, 23 May 2026 00:02:00 GMT"}, 120),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "2026-05-23T00:02:00Z"}, 120),
        ({"X-RateLimit-Remaining": "1", "X-RateLimit-Reset": "50"}, None),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "86400"}, 86400),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "86401"}, None),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": f"{NOW - 5:.0f}"}, None),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "0"}, None),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "soon"}, None),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "9" * 400}, None),
        ({"X-RateLimit-Remaining": "0"}, None),
        ({"X-RateLimit-Reset": "50"}, None),
        ({"X-RateLimit-Remaining": "0", "RateLimit-Reset": "50"}, None),
        ({}, None),
    ],
)
def test_a_rate_limit_that_is_used_up_names_its_reset(
    fields: dict[str, str], seconds: float | None
) -> None:
    found = seconds_to_reset(lambda name: fields.get(name, ""), NOW)
    assert found == (None if seconds is None else pytest.approx(seconds))


@given(st.text(max_size=200))
def test_any_text_of_a_rate_limit_is_read(text: str) -> None:
    seconds = seconds_to_reset(lambda _: text, NOW)
    assert seconds is None or 0 < seconds <= 86400


@pytest.mark.parametrize("status", [200, 304, 404, 429, 503, None])
def test_the_host_waits_for_the_reset_and_for_no_less(status: int | None) -> None:
    for retry_after in ((), ("5",), ("9000",)):
        answer = Answer("target", status, retry_after=retry_after, attempt=0)
        without = conclude(answer, Gates(), NOW, 0.5)
        limited = conclude(msgspec.structs.replace(answer, reset=600.0), Gates(), NOW, 0.5)
        assert limited.wait == max(without.wait or 0.0, 600.0)
        assert limited.failure == without.failure


def test_an_exchange_that_we_broke_off_has_no_reset() -> None:
    assert conclude(Answer("target", 200, whole=False, reset=600.0), Gates(), NOW, 0.5).wait is None
