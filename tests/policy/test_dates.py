"""R9: dates of feeds and sitemaps are right, or null."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_walsh.policy.formats.dates import published, utc_iso

MOMENT = "2020-01-10T14:33:00Z"
DAY = "2020-01-10T00:00:00Z"


@pytest.mark.parametrize(
    ("text", "date"),
    [
        # RFC 822 and RFC 5322
        ("Fri, 10 Jan 2020 14:33:00 GMT", MOMENT),
        ("Fri, 10 Jan 2020 14:33:00 +0000", MOMENT),
        ("Fri, 10 Jan 2020 16:33:00 +0200", MOMENT),
        ("Fri, 10 Jan 2020 16:33:00 +02:00", MOMENT),
        ("Fri, 10 Jan 2020 09:33:00 EST", MOMENT),
        ("Fri, 10 Jan 2020 10:33:00 EDT", MOMENT),
        ("Fri, 10 Jan 2020 06:33:00 pst", MOMENT),
        ("Fri, 10 Jan 2020 14:33:00 -0000", MOMENT),
        ("Fri, 10 Jan 2020 14:33:00 +0000 (UTC)", MOMENT),
        ("Fri, 10 Jan 2020 14:33:00 CEST", MOMENT),  # RFC 5322, 4.3: unknown, so -0000
        ("Fri, 10 Jan 2020 14:33:00 A", MOMENT),
        ("10 Jan 2020 14:33", MOMENT),
        ("10 Jan 20 14:33:00 Z", MOMENT),
        ("Mon, 10 Jan 2020 14:33:00 GMT", MOMENT),  # a wrong weekday
        ("10 Jan 1999 00:00", "1999-01-10T00:00:00Z"),
        ("10 Jan 99 00:00", "1999-01-10T00:00:00Z"),
        # their slips
        ("Fri 10 Jan 2020 14:33:00 GMT", MOMENT),
        ("Fri,10 Jan 2020 14:33:00 GMT", MOMENT),
        ("Friday, 10 January 2020 14:33:00 UTC", MOMENT),
        ("fri, 10 jan 2020 14:33:00 gmt", MOMENT),
        ("  Fri,  10 Jan 2020\n14:33:00  GMT ", MOMENT),
        ("Fri, 10-Jan-2020 14:33:00 GMT", MOMENT),
        ("Fri, 10 Jan 2020, 14:33", MOMENT),
        ("Fri, 10 Jan 2020 14:33:0 GMT", MOMENT),
        ("2020-01-10T16:33:9+02:00", "2020-01-10T14:33:09Z"),
        ("Fri, 10th Jan 2020 14:33", MOMENT),
        ("Fri, 10 Jan 2020 14:33:00 UTC+2", "2020-01-10T12:33:00Z"),
        ("Fri, 10 Jan 2020 14:33:00 GMT-0700", "2020-01-10T21:33:00Z"),
        ("Fri, 10 Jan 2020 2:33 PM", MOMENT),
        ("Fri, 10 Jan 2020 12:33 a.m.", "2020-01-10T00:33:00Z"),
        ("10 Sept 2020", "2020-09-10T00:00:00Z"),
        # ISO 8601, RFC 3339, W3C-DTF
        ("2020-01-10T14:33:00Z", MOMENT),
        ("2020-01-10t14:33:00z", MOMENT),
        ("2020-01-10T16:33:00+02:00", MOMENT),
        ("2020-01-10T16:33:00.123456789+0200", MOMENT),
        ("2020-01-10T16:33:00,5+02", MOMENT),
        ("2020-01-10 14:33:00", MOMENT),
        ("2020-01-10 14:33:00 UTC", MOMENT),
        ("2020-01-10 14:33:00 +0000 UTC", MOMENT),
        ("2020-01-10T14:33", MOMENT),
        ("2020-01-10", DAY),
        ("2020-01", "2020-01-01T00:00:00Z"),
        ("2020", "2020-01-01T00:00:00Z"),
        ("20200110T143300Z", MOMENT),
        ("20200110T163300+0200", MOMENT),
        ("20200110143300", MOMENT),
        ("20200110", DAY),
        ("2020-1-10", DAY),
        ("2020-02-29", "2020-02-29T00:00:00Z"),
        ("2016-12-31T23:59:60Z", "2016-12-31T23:59:59Z"),
        # other orders that leave no doubt
        ("2020/01/10 14:33:00", MOMENT),
        ("2020.01.10", DAY),
        ("31/12/2020", "2020-12-31T00:00:00Z"),
        ("12/31/2020 14:33", "2020-12-31T14:33:00Z"),
        ("31.12.2020", "2020-12-31T00:00:00Z"),
        ("03/03/2020", "2020-03-03T00:00:00Z"),
        ("January 10, 2020", DAY),
        ("Jan 10 2020 14:33:00 GMT", MOMENT),
        ("Fri Jan 10 14:33:00 2020", MOMENT),
        ("Fri Jan 10 14:33:00 UTC 2020", MOMENT),
        # no date, no such date, or a doubt
        ("", None),
        ("yesterday", None),
        ("1578666780", None),
        ("1578666780000", None),
        ("2020-02-31T10:00:00Z", None),
        ("2019-02-29", None),
        ("2020-13-01", None),
        ("2020-00-10", None),
        ("0000-00-00T00:00:00Z", None),
        ("2020-01-10T14:33:00Z+02:00", None),
        ("2020-01-10T14:33:00+02:00Z", None),
        ("Fri, 32 Jan 2020 14:33:00 GMT", None),
        ("Fri, 10 Foo 2020 14:33:00 GMT", None),
        ("Fri, 10 Jan 2020 25:00:00 GMT", None),
        ("Fri, 10 Jan 2020 14:61:00 GMT", None),
        ("Fri, 10 Jan 2020 14:33:61 GMT", None),
        ("Fri, 10 Jan 2020 13:33 PM", None),
        ("Fri, 10 Jan 2020 14:33:00 +9900", None),
        ("2020-01-10T24:00:00Z", None),
        ("01/02/2020", None),
        ("10/01/20", None),
        ("01.02.2020", None),
        ("10. Januar 2020", None),
        ("2020-01-10T14:33:00Z or later", None),
        ("\u0662\u0660\u0662\u0660-\u0660\u0661-\u0661\u0660", None),
        ("0001-01-01T00:00:00+10:00", None),
        ("9999-12-31T23:00:00-10:00", None),
        ("2020-01-10" + " " * 200 + "x", None),
    ],
)
def test_r9_a_date_is_right_or_null(text: str, date: str | None) -> None:
    assert published(text) == date


MOMENTS = st.datetimes(
    min_value=datetime(1950, 1, 2), max_value=datetime(2049, 12, 30), timezones=st.none()
)
ZONES = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(MOMENTS, ZONES)
def test_r9_each_moment_is_read_back_in_the_standards_forms(
    moment: datetime, zone: timezone
) -> None:
    aware = moment.replace(microsecond=0, tzinfo=UTC).astimezone(zone)
    date = utc_iso(aware)
    assert published(format_datetime(aware)) == date
    assert published(aware.isoformat()) == date
    assert published(aware.strftime("%Y%m%dT%H%M%S%z")) == date
    assert published(aware.strftime("%a, %d %b %y %H:%M:%S %z")) == date


@given(st.text(max_size=200))
def test_r9_any_text_is_a_date_or_null(text: str) -> None:
    date = published(text)
    assert date is None or published(date) == date
