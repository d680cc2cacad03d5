"""When an answer asks us to come back: its fields, its feed, and how long a hint holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_walsh.policy.hints import NO_HINTS, Hints, read_hints
from scrapy_walsh.policy.visits import (
    HINT,
    INTERVAL,
    RETIREMENT,
    Visit,
    due,
    met,
    not_due,
)

NOW = 1779494400.0  # 2026-05-23T00:00:00Z, a Saturday
HOUR, DAY = 3600.0, 86400.0
RSS = "<rss version='2.0'><channel>{}<item><title>a</title></item>{}</channel></rss>"
SYNDICATED = "<rdf:RDF xmlns:sy='s'><channel>{}</channel><item><title>a</title></item></rdf:RDF>"


def hints(fields: dict[str, str] | None = None, body: str = "", before: Hints = NO_HINTS) -> Hints:
    return read_hints(lambda name: (fields or {}).get(name, ""), body.encode(), NOW, before)


@pytest.mark.parametrize(
    ("fields", "seconds", "origin"),
    [
        ({"Cache-Control": "public, max-age=7200"}, 7200, "Cache-Control"),
        ({"Cache-Control": 'MAX-AGE="7200"'}, 7200, "Cache-Control"),
        ({"Cache-Control": "max-age=7200", "Age": "7000"}, 200, "Cache-Control"),
        ({"Cache-Control": "max-age=60", "Age": "90"}, 0, ""),
        ({"Cache-Control": "max-age=60", "Age": "soon"}, 60, "Cache-Control"),
        ({"Cache-Control": "s-maxage=7200, no-cache"}, 0, ""),
        ({"Cache-Control": "max-age=-5"}, 0, ""),
        ({"Cache-Control": "max-age=x"}, 0, ""),
        ({"Expires": "Sat, 23 May 2026 05:00:00 GMT"}, 5 * HOUR, "Expires"),
        (
            {
                "Expires": "Sat, 23 May 2026 05:00:00 GMT",
                "Date": "Sat, 23 May 2026 02:00:00 GMT",
            },
            3 * HOUR,
            "Expires",
        ),
        ({"Expires": "Thu, 19 Nov 1981 08:52:00 GMT"}, 0, ""),
        ({"Expires": "0"}, 0, ""),
        (
            {"Expires": "Sat, 23 May 2026 05:00:00 GMT", "Cache-Control": "max-age=7200"},
            5 * HOUR,
            "Expires",
        ),
    ],
)
def test_a_field_is_a_hint(fields: dict[str, str], seconds: float, origin: str) -> None:
    assert hints(fields) == Hints(seconds, origin)


@pytest.mark.parametrize(
    ("template", "element", "expected"),
    [
        (RSS, "<ttl>120</ttl>", Hints(7200, "ttl")),
        (RSS, "<ttl> 120 </ttl>", Hints(7200, "ttl")),
        (RSS, "<ttl>soon</ttl>", NO_HINTS),
        (RSS, "<!-- <ttl>120</ttl> -->", NO_HINTS),
        (
            RSS,
            "<skipHours><hour>1</hour><hour>24</hour><hour>99</hour></skipHours>",
            Hints(skip_hours=3),
        ),
        (
            RSS,
            "<skipDays><day>Monday</day><day>sunday</day></skipDays>",
            Hints(skip_days=0b1000001),
        ),
        (SYNDICATED, "<sy:updatePeriod>daily</sy:updatePeriod>", Hints(DAY, "sy:updatePeriod")),
        (
            SYNDICATED,
            (
                "<sy:updatePeriod> hourly </sy:updatePeriod>"
                "<sy:updateFrequency>0</sy:updateFrequency>"
            ),
            Hints(HOUR, "sy:updatePeriod"),
        ),
        (
            RSS,
            "<sy:updatePeriod>weekly</sy:updatePeriod><sy:updateFrequency>2</sy:updateFrequency>",
            Hints(3.5 * DAY, "sy:updatePeriod"),
        ),
        (RSS, "<sy:updatePeriod>often</sy:updatePeriod>", NO_HINTS),
    ],
)
def test_an_element_of_a_feed_is_a_hint(template: str, element: str, expected: Hints) -> None:
    assert hints(body=template.format(element, "")) == expected


def test_a_hint_may_stand_behind_the_entries_but_not_in_one() -> None:
    assert hints(body=RSS.format("", "<ttl>90</ttl>")).seconds == 5400
    assert hints(body=RSS.format("<item><ttl>90</ttl></item>", "")) == NO_HINTS
    assert hints(body="<html><ttl>90</ttl></html>") == NO_HINTS


def test_the_largest_hint_counts_and_says_where_it_came_from() -> None:
    feed = RSS.format("<ttl>60</ttl><skipHours><hour>3</hour></skipHours>", "")
    assert hints({"Cache-Control": "max-age=7200"}, feed) == Hints(
        7200, "Cache-Control", skip_hours=8
    )
    assert hints({"Cache-Control": "max-age=60"}, feed) == Hints(3600, "ttl", skip_hours=8)
    assert str(hints({}, feed)) == "ttl asks for 1 h, skipHours"


def test_a_304_keeps_the_hints_of_the_answer_before_but_for_its_own() -> None:
    before = Hints(7200, "ttl", skip_hours=8)
    assert hints(before=before) == before
    assert hints({"Cache-Control": "max-age=9000"}, before=before) == Hints(
        9000, "Cache-Control", skip_hours=8
    )


def visited(given: Hints, revisit: float, holds: float = DAY) -> Visit:
    return met(NOW, None, revisit)._replace(hints=given, hints_hold=holds)


@pytest.mark.parametrize(
    ("asks", "interval", "until"),
    [
        (2 * HOUR, HOUR, 2 * HOUR),
        (HOUR, HOUR, None),
        (300, HOUR, None),
        (7 * DAY, HOUR, DAY),
        (DAY, DAY, None),
        (365 * DAY, DAY, None),  # a server's default
        (365 * DAY, 7 * DAY, None),
        (20 * HOUR, 12 * HOUR, 20 * HOUR),
    ],
)
def test_a_hint_holds_beyond_the_interval_and_for_a_day(
    asks: float, interval: float, until: float | None
) -> None:
    visit = visited(Hints(asks, "ttl"), interval)
    decided = due(visit, NOW + 1, interval)
    plain = due(visit._replace(hints=NO_HINTS), NOW + 1, interval)
    assert (decided.cause, decided.at) == (
        (INTERVAL, plain.at) if until is None else (HINT, NOW + until)
    )
    switched_off = due(visit._replace(hints_hold=0.0), NOW + 1, interval)
    assert switched_off == plain


def test_an_hour_is_skipped_whenever_the_run_comes() -> None:
    visit = visited(Hints(skip_hours=0b111110), HOUR)  # 1 to 5
    for at, opens in ((0.5, 6.0), (1.0, 6.0), (1.5, 6.0), (5.99, 6.0), (6.0, None), (23, None)):
        verdict = not_due(visit, NOW + at * HOUR, HOUR, None)
        assert (verdict and verdict.due) == (None if opens is None else NOW + opens * HOUR), at
    at_night = not_due(visit, NOW + 2 * HOUR, HOUR, None)
    assert at_night is not None
    assert at_night.cause == HINT
    assert at_night.reason == (
        "last requested 2026-05-23T00:00:00Z, skipHours, next due 2026-05-23T06:00:00Z"
    )
    assert not_due(visit, NOW + 2 * HOUR, HOUR, "the feed was repaired") is None


def test_days_are_skipped_for_a_day_at_most() -> None:
    weekend = visited(Hints(skip_days=0b1100000), HOUR)
    assert due(weekend, NOW + 2 * HOUR, HOUR).at == NOW + DAY
    sunday = visited(Hints(skip_days=0b1000000), HOUR)
    assert not_due(sunday, NOW + 2 * HOUR, HOUR, None) is None
    assert due(visited(Hints(skip_hours=2**24 - 1), HOUR), NOW + 2 * HOUR, HOUR).at == NOW + DAY


def test_a_hint_shortens_nothing() -> None:
    gone = met(NOW, None, HOUR, 410)._replace(hints=Hints(2 * HOUR, "ttl"))
    assert due(gone, NOW + DAY, HOUR).cause == RETIREMENT


@given(
    st.builds(
        Hints,
        st.floats(0, 400 * DAY),
        st.just("ttl"),
        st.integers(0, 2**24 - 1),
        st.integers(0, 2**7 - 1),
    ),
    st.floats(HOUR, 60 * DAY),
    st.floats(0, 60 * DAY),
    st.floats(0, DAY),
)
def test_hints_only_make_the_bot_slower_and_for_a_day_at_most(
    given_hints: Hints, interval: float, age: float, holds: float
) -> None:
    visit = visited(given_hints, interval, holds)
    now = NOW + age
    with_hints = due(visit, now, interval)
    without = due(visit._replace(hints=NO_HINTS), now, interval)
    assert without.at <= with_hints.at <= max(without.at, NOW + holds)


def test_a_daily_run_is_not_made_slower_by_any_hint() -> None:
    for asks in (HOUR, DAY, 400 * DAY):
        visit = visited(Hints(asks, "ttl", 2**24 - 1, 2**7 - 1), DAY)
        for day in range(1, 8):
            now = NOW + day * DAY - 60
            assert not_due(visit, now, DAY, None) is None
            visit = met(now, visit, DAY)._replace(hints=visit.hints)
