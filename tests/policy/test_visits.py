"""R8: how often a source is requested."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_walsh.policy.times import iso
from scrapy_walsh.policy.urls import form_of, key_of
from scrapy_walsh.policy.verdict import Verdict
from scrapy_walsh.policy.visits import (
    CLOSED,
    CLOSED_DOOR,
    INTERVAL,
    RETIREMENT,
    REVISIT_FLOOR,
    Visit,
    cadence,
    due,
    failed,
    hour_left,
    met,
    next_due,
    not_due,
    of_answer,
    reason_of,
    retirement,
    wait_after,
    words_of,
)
from scrapy_walsh.state.records import VisitRecord

NOW = 1779494400.0  # 2026-05-23T00:00:00Z
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


def first(at: float) -> Visit:
    """The first visit of a source."""
    return met(at, None, DAY)


def test_r8_1_a_source_never_asked_is_due() -> None:
    assert not_due(None, NOW, DAY, None) is None


def test_r8_1_a_source_asked_within_the_day_is_refused_with_the_times() -> None:
    assert not_due(first(NOW - 5), NOW, DAY, None) == Verdict(
        False,
        "not_due",
        "R8",
        "last requested 2026-05-22T23:59:55Z, next due 2026-05-23T21:35:55Z",
        cause=INTERVAL,
        due=NOW - 5 + 0.9 * DAY,
        brief="last requested 2026-05-22T23:59:55Z",
    )


def test_a_reason_names_one_due_time_and_that_is_next_due() -> None:
    for last in (first(NOW - 5), Visit(NOW - 5, NOW - 5 + DAY, gave_up_at=NOW - 2)):
        verdict, due = not_due(last, NOW, DAY, None), next_due(last, 0.0, NOW, DAY)
        assert verdict is not None
        assert due is not None
        assert verdict.reason.endswith(f", next due {iso(math.ceil(due))}")
        assert verdict.reason.count("next due") == 1
        assert verdict.due == due
        assert verdict.reason == reason_of(verdict.brief, iso(math.ceil(due)))


@pytest.mark.parametrize(
    ("age", "refused"), [(0, True), (0.9 * DAY - 1, True), (0.9 * DAY, False), (DAY, False)]
)
def test_r8_1_a_run_may_be_a_tenth_of_the_interval_early(age: float, refused: bool) -> None:
    assert (not_due(first(NOW - age), NOW, DAY, None) is not None) is refused


@pytest.mark.parametrize(("age", "refused"), [(3599, True), (3600, False)])
def test_r8_2_no_interval_is_below_the_hour(age: float, refused: bool) -> None:
    assert REVISIT_FLOOR == 3600
    for revisit in (1.0, 3600.0, 4000.0):
        assert (not_due(first(NOW - age), NOW, revisit, None) is not None) is refused


@pytest.mark.parametrize("minutes", [(-9, 9, 0, -9, -9, 9), (0, 0, 0), (140, -3, 120, 0)])
def test_r8_1_a_daily_run_finds_each_source_due_every_day(minutes: tuple[int, ...]) -> None:
    visit = first(NOW)
    for day, early_or_late in enumerate(minutes, 1):
        now = NOW + day * DAY + early_or_late * MINUTE
        assert not_due(visit, now, DAY, None) is None, day
        visit = met(now, visit, DAY)
        assert visit.counted_from == NOW + day * DAY  # no drift


def test_r8_1_a_run_at_another_time_begins_a_rhythm_there() -> None:
    late = met(NOW + 1.5 * DAY, first(NOW), DAY)
    assert late.counted_from == NOW + 1.5 * DAY


def test_r8_1_missed_periods_are_not_made_up() -> None:
    visit = met(NOW + 5 * DAY, first(NOW), DAY)
    assert visit == first(NOW + 5 * DAY)
    assert not_due(visit, NOW + 5 * DAY + HOUR, DAY, None) is not None


def test_r8_1_a_late_run_then_an_early_one_keep_nine_tenths_apart() -> None:
    late = met(NOW + DAY + 2 * HOUR, first(NOW), DAY)
    assert late.counted_from == NOW + DAY
    assert due(late, NOW + 2 * DAY, DAY).at == pytest.approx(NOW + DAY + 2 * HOUR + 0.9 * DAY)


@given(
    st.floats(3600, 30 * DAY),
    st.lists(st.floats(0, 40 * DAY), min_size=1, max_size=30),
)
def test_r8_no_source_is_sent_too_soon_and_none_is_shut_out(
    revisit: float, pauses: list[float]
) -> None:
    now, visit, last = NOW, met(NOW, None, revisit), NOW
    for pause in pauses:
        now += pause
        if not_due(visit, now, revisit, None) is None:
            assert now - last >= max(HOUR, 0.9 * revisit) - 1e-3
            visit, last = met(now, visit, revisit), now
        else:
            assert now - last < max(HOUR, 1.1 * revisit)


@pytest.mark.parametrize("revisit", [2 * DAY, 7 * DAY])
def test_a_longer_interval_holds_from_the_next_run_on(revisit: float) -> None:
    visit = met(NOW, first(NOW - DAY), DAY)
    assert not_due(visit, NOW + DAY, revisit, None) is not None


@pytest.mark.parametrize(
    ("reason", "refused"), [("feed repaired", False), ("", True), ("  ", True), (None, True)]
)
def test_r8_2_only_a_written_reason_lifts_the_rule(reason: str | None, refused: bool) -> None:
    assert (not_due(first(NOW - 5), NOW, DAY, reason) is not None) is refused


@pytest.mark.parametrize(
    ("ahead", "refused"), [(5, True), (DAY - 1, True), (DAY, False), (1e9, False), (1e300, False)]
)
def test_a_time_in_the_future_refuses_for_a_while_but_not_for_ever(
    ahead: float, refused: bool
) -> None:
    assert (not_due(first(NOW + ahead), NOW, DAY, None) is not None) is refused


def test_the_due_time_shown_is_never_early() -> None:
    verdict = not_due(first(NOW + 0.25), NOW, DAY, None)
    assert verdict is not None
    assert "next due 2026-05-23T21:36:01Z" in verdict.reason


def test_an_interval_beyond_the_calendar_is_a_refusal() -> None:
    verdict = not_due(first(NOW), NOW, 1e300, None)
    assert verdict is not None
    assert "next due 9999-12-31T23:59:59Z" in verdict.reason
    assert math.isfinite(due(first(NOW), NOW, 1e300).at)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("P7D", 7 * DAY), ("P2W", 14 * DAY), ("PT90M", 5400), ("P1DT12H", 1.5 * DAY), (3600, HOUR),
     (86400.5, 86400.5), ("7200", 7200), (" P1D ", DAY), ("P365D", 365 * DAY)],
)  # fmt: skip
def test_r8_1_a_cadence_is_seconds_or_a_duration(written: object, seconds: float) -> None:
    assert cadence(written) == seconds


@pytest.mark.parametrize(
    "written",
    [3599, "PT59M", "P0D", 0, -86400, "P366D", 1e300, "P1M", "P1Y", "weekly", "", "P", "-P7D",
     "p7d", True, None, [], {}, float("nan"), float("inf"), "nan", "P7D\n\x1b[2J" * 99],
)  # fmt: skip
def test_r8_2_what_is_no_cadence_or_under_the_hour_is_named_in_one_line(written: object) -> None:
    with pytest.raises(ValueError, match=r"accepted: .* such as P7D, at least 3600") as found:
        cadence(written)
    assert str(found.value).isprintable()
    assert len(str(found.value)) < 250


@given(st.floats(HOUR, 365 * DAY), st.floats(HOUR, 365 * DAY), st.floats(0, 400 * DAY))
def test_r8_1_a_cadence_of_its_own_goes_before_the_setting(
    own: float, setting: float, age: float
) -> None:
    plain, weekly = first(NOW - age), first(NOW - age)._replace(revisit=own)
    for ask_at in (due, hour_left, lambda *of: not_due(*of, None)):
        assert ask_at(weekly, NOW, setting) == ask_at(plain, NOW, own)
    assert met(NOW, weekly, setting) == met(NOW, plain, own)


def test_r8_a_method_or_body_of_its_own_is_a_request_of_its_own() -> None:
    url = "https://h.test/search"
    forms = [form_of("GET"), form_of("HEAD"), form_of("POST", b"a"), form_of("POST", b"b")]
    assert len({key_of(url, form) for form in forms}) == 4
    assert key_of(f"{url}#top", form_of("GET", b"")) == url


def test_r8_each_status_means_one_thing() -> None:
    """The table of outcomes, whole: a status that no rule names has failed."""
    named = {
        **dict.fromkeys([*range(200, 300), *range(400, 500)], "answered"),
        **dict.fromkeys([301, 302, 303, 307, 308], "leads_on"),
        304: "answered",
        429: "failed",
    }
    for status in range(-1, 2000):
        assert of_answer(status) == named.get(status, "failed"), status
        unasked = "failed" if status == 304 else of_answer(status)
        assert of_answer(status, unasked=True) == unasked, status
    assert of_answer(None) == "failed"


def test_r8_a_failing_source_slows_down_and_one_answer_resets_that() -> None:
    visit, now, waits = first(NOW), NOW, []
    for _ in range(9):
        now = due(visit, now, DAY).at + 60.0
        visit = failed(visit, now)
        waits.append((due(visit, now, DAY).at - now) / HOUR)
    # Its interval is reached: a run may be a tenth of it early, as for any other.
    assert waits == pytest.approx([1, 2, 4, 8, 16, 21.6, 21.6, 21.6, 21.6])
    assert (visit.sent_at, visit.counted_from) == (NOW, NOW), "the last answer stays on record"
    well = met(now + DAY, visit, DAY)
    assert (well.gave_up_at, well.failures) == (None, 0)
    assert wait_after(failed(well, now + 2 * DAY).failures, DAY) == HOUR


@given(st.floats(HOUR, 365 * DAY), st.integers(1, 10**6), st.floats(0, 400 * DAY), st.booleans())
def test_r8_2_no_failing_source_is_sent_within_the_hour_or_shut_out_for_longer_than_its_interval(
    interval: float, failures: int, ago: float, answered_before: bool
) -> None:
    before = first(NOW - 500 * DAY) if answered_before else Visit(0.0, 0.0)
    visit = before._replace(gave_up_at=NOW - ago, failures=failures, revisit=interval)
    refused = not_due(visit, NOW, DAY, None) is not None
    assert refused or ago >= HOUR
    assert not refused or ago < max(HOUR, interval)


def test_r8_failed_visits_of_one_run_count_once() -> None:
    once = failed(first(NOW - DAY), NOW)
    assert failed(once, NOW + 60, again=True) == once._replace(gave_up_at=NOW + 60)
    assert failed(once, NOW + HOUR).failures == 2
    # A record of before failures were counted has one.
    assert failed(Visit(0.0, 0.0, gave_up_at=NOW), NOW + HOUR).failures == 2


def test_a_refusal_names_what_decides_the_due_time() -> None:
    visit = failed(failed(first(NOW - 2 * DAY), NOW - 2 * HOUR), NOW - HOUR)
    verdict = not_due(visit, NOW, DAY, None)
    assert verdict is not None
    assert verdict.reason == (
        "given up 2026-05-22T23:00:00Z, failed 2 times in a row, next due 2026-05-23T01:00:00Z"
    )


@pytest.mark.parametrize(
    ("every", "days"), [(5 * MINUTE, 5), (HOUR, 30), (DAY, 30)], ids=["minutes", "hourly", "daily"]
)
@pytest.mark.parametrize("revisit", [HOUR, 2 * HOUR, DAY], ids=["hour", "two hours", "day"])
@pytest.mark.parametrize("answers", [True, False], ids=["answered", "given up"])
def test_r8_2_days_of_cron(every: float, days: int, revisit: float, answers: bool) -> None:
    """Three sources a run, two seconds each: none within the hour, and none left out for longer."""
    last: dict[int, Visit] = {}
    sent: dict[int, list[float]] = {source: [] for source in range(3)}
    for run in range(int(days * DAY // every)):
        begun = now = NOW + run * every
        ready = []
        for source in range(3):
            if not_due(known := last.get(source), begun, revisit, None) is None:
                ready.append((begun, source))
            elif (left := hour_left(known, begun, revisit)) is not None:
                assert 0 < left <= 300
                ready.append((begun + left, source))
        for moment, source in sorted(ready):
            now = max(now + 2.0, moment)
            known = last.get(source)
            assert not_due(known, now, revisit, None) is None
            last[source] = met(now, known, revisit) if answers else failed(known, now)
            sent[source].append(now)
    for moments in sent.values():
        gaps = [after - before for before, after in pairwise(moments)]
        assert min(gaps) >= HOUR
        # What failed again and again is left alone for longer, and then for its interval.
        slow = 0 if answers else 6
        assert len(moments) >= 0.97 * (days * DAY // max(every, revisit)) - slow
        if not answers and revisit > HOUR:
            assert len(moments) <= slow + 1 + days * DAY / (0.9 * revisit)


LICENCE = 'License error="invalid_request", error_description="a licence, please"'
#: What an answer says, by field; and the status that retires its source, or 0.
ANSWERS: list[tuple[int, dict[str, list[str]], int]] = [
    (410, {}, 410),
    (402, {}, 402),
    (402, {"Crawler-Price": ["USD 0.01"]}, 402),
    (451, {}, 451),
    (451, {"Link": ['<https://law.test/>; rel="blocked-by"']}, 451),
    (401, {"WWW-Authenticate": [LICENCE]}, 401),
    (401, {"WWW-Authenticate": ["license"]}, 401),
    (401, {"WWW-Authenticate": ['Basic realm="x"', LICENCE]}, 401),
    (401, {"WWW-Authenticate": ['Basic realm="x", License realm="y"']}, 401),
    # These 401 ask for something else.
    (401, {}, 0),
    (401, {"WWW-Authenticate": ['Basic realm="x"']}, 0),
    (401, {"WWW-Authenticate": ['Basic realm=", License x"']}, 0),
    (401, {"WWW-Authenticate": ['Basic realm="x", license="y"']}, 0),
    (401, {"WWW-Authenticate": ['Basic realm="x", license  = "y"']}, 0),
    (401, {"WWW-Authenticate": ["Licensed x=1"]}, 0),
    # These statuses close no door, whatever they say.
    *((status, {"WWW-Authenticate": [LICENCE]}, 0) for status in (200, 304, 403, 404, 429, 503)),
]


@pytest.mark.parametrize("revisit", [HOUR, DAY, 40 * DAY])
@pytest.mark.parametrize(("status", "fields", "retired"), ANSWERS)
def test_a_source_that_is_gone_or_closed_is_left_alone_for_30_days(
    status: int, fields: dict[str, list[str]], retired: int, revisit: float
) -> None:
    words = words_of(status, lambda name: fields.get(name, []))
    assert retirement(status, words) == retired
    visit = met(NOW, None, revisit, retired)
    stored = VisitRecord("https://x.test/", NOW, str(status), words=words).visit
    assert stored == visit
    wait = max(30 * DAY, revisit)
    refusal = not_due(visit, NOW + wait - 1, revisit, None)
    if not retired:
        assert due(visit, NOW, revisit).cause == INTERVAL
        return
    assert refusal is not None
    assert (refusal.cause, refusal.due) == (
        RETIREMENT if status == 410 else CLOSED_DOOR,
        NOW + wait,
    )
    text = CLOSED.get(status, "answered 410 (Gone)")
    assert f", {text} and left alone for 30 days" in refusal.brief
    assert not_due(visit, NOW + wait, revisit, None) is None
    assert not met(NOW + wait, visit, revisit).retired


def test_the_words_of_a_closed_door_are_its_fields_and_its_text_on_one_line() -> None:
    fields = {"Crawler-Price": ["USD 0.01"], "Link": ["</pay>; rel=payment"], "Server": ["x"]}
    words = words_of(402, lambda name: fields.get(name, []), '{"error":\n"pay"}\x1b[1m')
    assert words.startswith('Crawler-Price: USD 0.01; Link: </pay>; rel=payment; {"error": "pay"}')
    assert "\x1b" not in words
    assert len(words_of(451, lambda _: ["x" * 9_999])) <= 300


def test_a_run_waits_for_the_hour_alone() -> None:
    day_old = first(NOW - 0.9 * DAY + 10)
    assert not_due(day_old, NOW, DAY, None) is not None
    assert hour_left(day_old, NOW, DAY) is None, "of a daily source ten seconds are nothing"
    assert hour_left(first(NOW - HOUR + 10), NOW, HOUR) == 10.0
    assert hour_left(first(NOW - HOUR + 301), NOW, HOUR) is None
    assert hour_left(first(NOW - HOUR), NOW, HOUR) is None, "it may be sent"
    assert hour_left(None, NOW, HOUR) is None
    gone = first(NOW - HOUR + 10)._replace(retired=410)
    assert hour_left(gone, NOW, HOUR) is None
