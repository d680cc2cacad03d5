"""When an answer asks us to come back (R8): hints of its header fields and of its feed.

For a source with ``revisit = "auto"`` its dates are read as well (``visits.own_interval``).

A hint is a "not before" time of a source: Cache-Control and Expires (RFC 9111), and in a feed
``ttl``, ``skipHours`` and ``skipDays`` (RSS 2.0) and ``sy:updatePeriod`` (RSS 1.0). ``visits``
decides how long a hint holds. All times are UTC.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

from scrapy_walsh.policy.backoff import http_date
from scrapy_walsh.policy.formats.dates import published
from scrapy_walsh.policy.formats.representation import FEED, JSON_FEED, SITEMAP, representation
from scrapy_walsh.policy.times import duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Seconds: the longest time that a hint holds (WALSH_HINTS).
LONGEST: Final = 86400.0

_MAX_AGE: Final = re.compile(r'(?:^|[\s,])max-age\s*=\s*"?([0-9]{1,9})', re.IGNORECASE)
#: The start and the end of the entries of a feed. Its hints stand before or after them.
_ENTRY: Final = re.compile(rb"<(?:item|entry)[\s>]")
_ENDS: Final = (b"</item>", b"</entry>")
_COMMENT: Final = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_TTL: Final = re.compile(r"<ttl>\s*([0-9]{1,7})\s*<", re.IGNORECASE)
_SKIPPED: Final = re.compile(r"<(hour|day)>\s*([0-9a-z]{1,9})\s*<", re.IGNORECASE)
_UPDATE: Final = re.compile(r"<[\w.-]{1,20}:update(Period|Frequency)>\s*([0-9a-z]{1,9})\s*<")
#: The formats with dates, how many of the latest dates count, and the octets that are searched.
_DATED: Final = (FEED, JSON_FEED, SITEMAP)
LATEST: Final = 10
_SEARCHED: Final = 1 << 20
_DATE: Final = re.compile(
    r"(?:<(?:[\w.-]{1,20}:)?(?P<name>pubDate|published|date|updated|lastmod)(?:\s[^<>]{0,100})?>"
    r"\s{0,9}(?:<!\[CDATA\[)?|\"(?P<member>date_published)\"\s{0,9}:\s{0,9}\")"
    r"(?P<date>[^<\]\"]{1,100})",
    re.IGNORECASE,
)
#: The first of these names that a document has. Atom's "updated" may be only a correction.
_BY_CHOICE: Final = ("pubdate", "published", "date_published", "date", "updated", "lastmod")
_PERIODS: Final = {
    "hourly": 3600.0,
    "daily": 86400.0,
    "weekly": 7 * 86400.0,
    "monthly": 30 * 86400.0,
    "yearly": 365 * 86400.0,
}
_DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


@dataclass(frozen=True, slots=True)
class Hints:
    """The hints of a source's last answer.

    ``seconds``: the largest wait that it asks for; 0 for none. ``origin``: the field or element
    that asks for it. ``skip_hours``: bit n is set if the hour n must be skipped. ``skip_days``: the
    same for days, from 0 for Monday. ``entries``: how many dates of its entries were read, LATEST
    at most; 1 for an answer without dates, and 0 if they were not read. ``since``: the earliest of
    them, Unix seconds.
    """

    seconds: float = 0.0
    origin: str = ""
    skip_hours: int = 0
    skip_days: int = 0
    entries: int = 0
    since: float = 0.0

    def opens(self, at: float) -> float:
        """The first time from *at*, Unix seconds, that is not skipped; two days later at most."""
        for _ in range(48):
            hour = int(at // 3600 % 24)
            weekday = int((at // 86400 + 3) % 7)  # 1 January 1970 was a Thursday
            if not (self.skip_hours >> hour | self.skip_days >> weekday) & 1:
                break
            at = (at // 3600 + 1) * 3600
        return at

    def __str__(self) -> str:
        """For a person, for example ``Cache-Control asks for 2h, skipHours``."""
        parts = [f"{self.origin} asks for {duration(self.seconds)}"] if self.seconds else []
        parts += ["skipHours"] if self.skip_hours else []
        parts += ["skipDays"] if self.skip_days else []
        return ", ".join(parts)


NO_HINTS: Final = Hints()


def read_hints(
    field: Callable[[str], str],
    body: bytes,
    now: float,
    before: Hints,
    *,
    dated: bool = False,
) -> Hints:
    """The hints of an answer.

    *field*: the text of a header field, joined by commas if it is repeated; "" without one. *now*:
    Unix seconds. *before*: for a 304 the hints of the answer before, which its own fields replace;
    else NO_HINTS. *dated*: whether dates are read.
    """
    waits = dict(_of_header(field, now))
    hints = before
    kind = representation(field("Content-Type"), body)
    if kind == FEED:
        text = _without_entries(body.replace(b"\0", b""))
        waits |= dict(_of_feed(text))
        hints = _skipped(text)
    if dated and not hints.entries:
        # Without dates, an answer other than 304 is as good as a new entry.
        latest = _latest(body, now) if kind in _DATED else []
        hints = replace(hints, entries=len(latest) or 1, since=min(latest, default=now))
    origin = max(waits, key=lambda name: waits[name], default="")
    if not origin or waits[origin] <= 0:
        return hints
    return replace(hints, seconds=waits[origin], origin=origin)


def max_age(cache_control: str) -> float | None:
    """The seconds of ``max-age`` in the value of a Cache-Control; None without one."""
    match = _MAX_AGE.search(cache_control)
    return None if match is None else float(match[1])


def _of_header(field: Callable[[str], str], now: float) -> Iterator[tuple[str, float]]:
    """The waits that an answer asks for, by name. It is fresh for so long (RFC 9111 4.2)."""
    age = field("Age").strip()
    seconds = max_age(field("Cache-Control"))
    if seconds is not None:
        yield "Cache-Control", seconds - (float(age) if age.isdecimal() else 0.0)
    expires = http_date(field("Expires"), now)
    if expires is not None:
        yield "Expires", expires - (http_date(field("Date"), now) or now)


def _latest(body: bytes, now: float) -> list[float]:
    """The latest different dates of entries that are not in the future, Unix seconds."""
    first = _ENTRY.search(body)
    text = body[first.start() if first else 0 : _SEARCHED].replace(b"\0", b"").decode("latin-1")
    texts: dict[str, list[str]] = {}
    for match in _DATE.finditer(text):
        name = match["name"] or match["member"]
        texts.setdefault(name.lower(), []).append(match["date"].strip())
    written = next((texts[name] for name in _BY_CHOICE if name in texts), [])
    # The entries of a sitemap may be in any order, for example the oldest first.
    moments = {published(date) for date in (*written[:100], *written[-100:])}
    seconds = {datetime.fromisoformat(moment).timestamp() for moment in moments if moment}
    return sorted(second for second in seconds if second <= now)[-LATEST:]


def _of_feed(text: str) -> Iterator[tuple[str, float]]:
    """The waits that a feed asks for, by name; *text*: without its entries."""
    if ttl := _TTL.search(text):
        yield "ttl", 60 * float(ttl[1])
    update = dict(_UPDATE.findall(text))
    period = _PERIODS.get(update.get("Period", ""))
    if period is not None:
        frequency = update.get("Frequency", "")
        yield "sy:updatePeriod", period / max(1, int(frequency) if frequency.isdecimal() else 1)


def _without_entries(body: bytes) -> str:
    """The text of a feed without its entries and comments."""
    first = _ENTRY.search(body)
    if first is not None:
        end = max(body.rfind(tag) for tag in _ENDS)
        body = body[: first.start()] + body[max(end, first.start()) :]
    return _COMMENT.sub("", body.decode("latin-1"))


def _skipped(text: str) -> Hints:
    """The hours and days that a feed asks to skip; hour 24 is 0 (RSS 0.91)."""
    hours = days = 0
    for kind, value in _SKIPPED.findall(text.lower()):
        if kind == "hour" and value.isdecimal() and int(value) <= 24:
            hours |= 1 << int(value) % 24
        elif value in _DAYS:
            days |= 1 << _DAYS.index(value)
    return Hints(skip_hours=hours, skip_days=days)
