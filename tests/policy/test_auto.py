"""``revisit = "auto"``: a year of publication times, drawn as those of public feeds are."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from dataclasses import dataclass, field
from email.utils import formatdate

import pytest

from scrapy_walsh.policy.hints import LATEST, NO_HINTS, Hints, read_hints
from scrapy_walsh.policy.visits import (
    AUTO,
    AUTO_LONGEST,
    REVISIT_FLOOR,
    Visit,
    cadence,
    due,
    met,
    own_interval,
)

HOUR, DAY = 3600.0, 86400.0
NOW = 1779494400.0  # 2026-05-23T00:00:00Z, a Saturday
YEAR = 365 * DAY
FEEDS = 120


def publications(draw: random.Random) -> list[float]:
    """The publication times of a feed, from two years before NOW to a year after it.

    Feeds differ by orders of magnitude: the median has an entry in six days, one in a hundred has
    more than ten a day. They write by day and on workdays, often some entries together, and one
    feed in six falls silent for good in that year.
    """
    mean = min(max(draw.lognormvariate(math.log(6.0), 1.5), 0.05), 200.0) * DAY
    bursts = draw.random() < 0.3
    end = NOW + (draw.random() * YEAR if draw.random() < 1 / 6 else YEAR)
    times: list[float] = []
    at = NOW - 2 * YEAR
    while (at := at + draw.expovariate(1 / mean)) < end:
        weekday, hour = (at // DAY + 3) % 7, at // HOUR % 24
        likely = (1.0 if weekday < 5 else 0.4) * (1.0 if 7 <= hour < 20 else 0.3)
        if draw.random() > likely:
            continue
        times.append(at)
        while bursts and draw.random() < 0.5:
            times.append(times[-1] + draw.random() * HOUR)
    return sorted(times)


@dataclass
class Reader:
    """A daily job that reads one feed. ``ages``: of its entries when they were read, seconds."""

    times: list[float]
    has_304: bool
    requests: int = 0
    ages: list[float] = field(default_factory=list)
    visit: Visit | None = None

    def run(self, now: float, declared: float | None) -> None:
        """The job at *now*: it requests the feed if it is due."""
        visit = self.visit
        if visit is not None:
            own = own_interval(declared, visit, DAY, auto=False)
            visit = visit._replace(revisit=own)
            if now < due(visit, now, DAY).at:
                return
            assert now - visit.sent_at >= 0.9 * DAY
        last = NOW if visit is None else visit.sent_at
        known, published = bisect_right(self.times, last), bisect_right(self.times, now)
        self.requests += 1
        self.ages += [now - at for at in self.times[known:published] if last >= NOW]
        unchanged = visit is not None and known == published and self.has_304
        hints = visit.hints if visit is not None and unchanged else _hints(self.times, now)
        self.visit = met(now, visit, DAY)._replace(hints=hints)


def _hints(times: list[float], now: float) -> Hints:
    latest = times[max(0, bisect_right(times, now) - LATEST) : bisect_right(times, now)]
    return Hints(entries=len(latest) or 1, since=min(latest, default=now))


def year(declared: float | None) -> tuple[int, list[float]]:
    """The requests of a year, and the age of each entry when it was read."""
    draw = random.Random("a year of feeds")
    feeds = [Reader(publications(draw), draw.random() < 0.5) for _ in range(FEEDS)]
    for day in range(366):
        now = NOW + 5 * HOUR + day * DAY + draw.uniform(-600, 600)
        for feed in feeds:
            feed.run(now, declared)
    ages = [age for feed in feeds for age in feed.ages]
    return sum(feed.requests for feed in feeds), ages


def test_half_the_requests_of_a_daily_visit_and_an_entry_at_most_six_hours_older() -> None:
    requests, ages = year(AUTO)
    daily_requests, daily_ages = year(None)
    assert daily_requests == FEEDS * 366
    older = sum(ages) / len(ages) - sum(daily_ages) / len(daily_ages)
    print(f"{requests / daily_requests:.3f} of the requests, {older / HOUR:.2f} h older")
    assert requests <= daily_requests / 2
    assert older <= 6 * HOUR


def dated(*days_ago: float, form: str = "pubDate", **more: str) -> Hints:
    """The hints of a feed with entries of so many days ago."""
    dates = [formatdate(NOW - days * DAY) for days in days_ago]
    items = "".join(f"<item><{form}>{date}</{form}></item>" for date in dates)
    body = f"<rss><channel><pubDate>{formatdate(NOW)}</pubDate>{items}</channel></rss>"
    return read_hints(lambda name: more.get(name, ""), body.encode(), NOW, NO_HINTS, dated=True)


@pytest.mark.parametrize(
    ("days", "entries", "since"),
    [
        ((1, 2, 3), 3, 3),
        ((3, 1, 2), 3, 3),
        ((1, 1, 1), 1, 1),
        ((-1, 2), 1, 2),  # a date of tomorrow
        (range(1, 30), LATEST, 10),
        ((), 1, 0),
        ((-1,), 1, 0),
    ],
)
def test_the_ten_latest_dates_count(days: list[float], entries: int, since: float) -> None:
    assert dated(*days) == Hints(entries=entries, since=NOW - since * DAY)


@pytest.mark.parametrize(
    "body",
    [
        (
            "<feed><updated>2026-05-22T00:00:00Z</updated><entry><updated>2026-05-22T00:00:00Z</updated>"
            "<published>2026-05-13T00:00:00+00:00</published></entry></feed>"
        ),
        "<rss><channel><item><pubDate><![CDATA[Wed, 13 May 2026 00:00:00 GMT]]></pubDate></item>",
        "<rdf:RDF xmlns:dc='d'><item><dc:date>2026-05-13</dc:date></item></rdf:RDF>",
        "<urlset><url><lastmod>2026-05-13</lastmod></url><url><lastmod>soon</lastmod></url></urlset>",
        (
            '{"version": "https://jsonfeed.org/version/1.1", "items": [{"date_published": '
            '"2026-05-13T00:00:00Z"}]}'
        ),
    ],
)
def test_dates_of_each_format_are_read(body: str) -> None:
    found = read_hints(lambda _: "", body.encode(), NOW, NO_HINTS, dated=True)
    assert (found.entries, found.since) == (1, NOW - 10 * DAY)


def test_without_dates_each_answer_but_a_304_is_an_entry() -> None:
    page = read_hints(lambda _: "", b"<html>", NOW, NO_HINTS, dated=True)
    assert (page.entries, page.since) == (1, NOW)
    for later in (NOW + DAY, NOW + 9 * DAY):
        assert read_hints(lambda _: "", b"", later, page, dated=True) == page
    assert read_hints(lambda _: "", b"<html>", NOW, NO_HINTS) == NO_HINTS


@pytest.mark.parametrize(
    ("entries", "days", "revisit", "interval"),
    [
        (0, 0, DAY, None),
        (1, 0, DAY, DAY),
        (10, 1, DAY, DAY),
        (10, 80, DAY, 2 * DAY),
        (1, 32, DAY, 4 * DAY),
        (1, 18, 9 * DAY, 9 * DAY),
        (1, 1 / 3, HOUR, 2 * HOUR),
        (1, 9999, DAY, AUTO_LONGEST),
        (1, 9999, 45 * DAY, 45 * DAY),
        (3, -5, DAY, DAY),  # its dates are of a clock that was put back
    ],
)
def test_the_interval_follows_the_dates(
    entries: int, days: float, revisit: float, interval: float | None
) -> None:
    visit = Visit(NOW, NOW, hints=Hints(entries=entries, since=NOW - days * DAY))
    own = own_interval(AUTO, visit, revisit, auto=False)
    assert own == (None if interval is None else pytest.approx(interval))
    assert own_interval(None, visit, revisit, auto=True) == own
    assert own_interval(None, visit, revisit, auto=False) is None
    assert own_interval(7 * DAY, visit, revisit, auto=True) == 7 * DAY


def test_auto_is_written_as_a_word_and_0_is_no_cadence() -> None:
    assert cadence("auto") == AUTO
    with pytest.raises(ValueError, match="accepted: auto, a number of seconds"):
        cadence(AUTO)
    assert REVISIT_FLOOR > AUTO
