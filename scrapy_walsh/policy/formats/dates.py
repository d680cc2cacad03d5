"""Read the dates of feeds and sitemaps (R9). A doubtful date is None, never a guess.

    >>> published("Fri, 10 Jan 2020 14:33:00 +0200")
    '2020-01-10T12:33:00Z'
    >>> published("2020/01/10 14:33")
    '2020-01-10T14:33:00Z'
    >>> published("01/02/2020") is None  # 1 February, or 2 January
    True

feedparser's own dates take missing parts from today's date, so we use only its texts.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

#: Characters of a date; longer texts are not read.
MAX_DATE: Final = 100

_MONTHS: Final = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
#: Names of zones in RFC 5322, 4.3, and their hours. Any other name means UTC there, for example
#: CEST and the letters of the military.
_ZONES: Final = {
    "edt": -4,
    "est": -5,
    "cdt": -5,
    "cst": -6,
    "mdt": -6,
    "mst": -7,
    "pdt": -7,
    "pst": -8,
}

_TIME: Final = (
    r"(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<second>\d{1,2})(?:[.,]\d+)?)?"
    r"(?:\s?(?P<half>[ap])\.?m\.?)?"
)
_ZONE: Final = (
    r"\s?(?:(?P<zone>[a-z]{1,5})|(?:(?:utc|gmt|ut)\s?)?"
    r"(?P<sign>[+-])(?P<zone_hours>\d{1,2})(?::?(?P<zone_minutes>\d\d))?(?:\s[a-z]{1,5})?)?"
)
_WEEKDAY: Final = r"(?:[a-z]+(?:[.,]+\s?|\s))?"
_DAY: Final = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_MONTH_NAME: Final = r"(?P<name>[a-z]{3,9})\.?"
_YEAR: Final = r"(?P<year>\d{4})"
#: RFC 822 wrote years with two digits.
_OLD_YEAR: Final = r"(?P<year>\d{4}|\d{2})"

_AT: Final = rf"(?:,?\s{_TIME}{_ZONE})?"
_DIGITS: Final = r"(?P<hour>\d\d):?(?P<minute>\d\d):?(?P<second>\d\d)(?:[.,]\d+)?"
_SLASHED: Final = r"(?P<left>\d{1,2})(?P<mark>[-/.])(?P<right>\d{1,2})(?P=mark)"
_YEAR_FIRST: Final = rf"{_YEAR}(?P<mark>[-/.])(?P<month>\d{{1,2}})(?P=mark)(?P<day>\d{{1,2}})"
#: The forms of a date in lower case, its blanks single.
_FORMS: Final = tuple(
    re.compile(form, re.ASCII)
    for form in (
        # ISO 8601, RFC 3339 and W3C-DTF, with their slips: the year comes first.
        rf"{_YEAR}(?:-(?P<month>\d\d))?",
        rf"{_YEAR_FIRST}(?:(?:\s?t\s?|,?\s){_TIME}{_ZONE})?",
        rf"{_YEAR}(?P<month>\d\d)(?P<day>\d\d)(?:t?{_DIGITS}{_ZONE})?",
        # RFC 822 and RFC 5322, with or without the name of the day, the seconds, the zone.
        rf"{_WEEKDAY}{_DAY}[-\s]{_MONTH_NAME}[-,\s]\s?{_OLD_YEAR}{_AT}",
        # The order of newspapers, and that of asctime (RFC 9110, 5.6.7).
        rf"{_WEEKDAY}{_MONTH_NAME}\s{_DAY}[,\s]\s?{_YEAR}{_AT}",
        rf"{_WEEKDAY}{_MONTH_NAME}\s{_DAY}\s{_TIME}{_ZONE}\s{_YEAR}",
        # Day and month in either order: the number above 12 is the day.
        rf"{_SLASHED}{_YEAR}{_AT}",
    )
)


def published(text: str) -> str | None:
    """The moment that *text* names, in UTC, as ``2020-01-10T14:33:00Z``.

    A text without a zone is read as UTC; a year or a month is its first day. None for a text that
    no form fits, for a day or an hour that does not exist, and for an order of day and month that
    is in doubt. A leap second counts as the second before it.
    """
    if len(text) > MAX_DATE:
        return None
    text = re.sub(r"\([^()]*\)", "", text)  # comments of RFC 5322
    text = " ".join(text.split()).lower()
    for form in _FORMS:
        match = form.fullmatch(text)
        if match is not None:
            return _moment({name: value for name, value in match.groupdict().items() if value})
    return None


def utc_iso(moment: datetime) -> str | None:
    """*moment* as ``2026-05-23T00:00:00Z``, read as UTC if it is naive.

    None if its time in UTC is outside the years 1 to 9999.
    """
    try:
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return aware.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat() + "Z"
    except (OverflowError, ValueError):
        return None


def _moment(parts: dict[str, str]) -> str | None:
    """The moment of the *parts* of a form, None if there is no such moment."""
    date = _day_and_month(parts)
    hour = _hour(parts)
    offset = _offset(parts)
    if date is None or hour is None or offset is None:
        return None
    day, month = date
    minute = int(parts.get("minute", "0"))
    second = int(parts.get("second", "0"))
    if second == 60:
        second = 59
    try:
        moment = datetime(_year(parts["year"]), month, day, hour, minute, second, tzinfo=UTC)
        return utc_iso(moment - offset)
    except (OverflowError, ValueError):
        return None


def _year(digits: str) -> int:
    """The year; two digits as in RFC 5322, 4.3."""
    year = int(digits)
    if len(digits) == 4:
        return year
    return year + 2000 if year < 50 else year + 1900


def _day_and_month(parts: dict[str, str]) -> tuple[int, int] | None:
    if "name" in parts:
        month = _month(parts["name"])
        return None if month is None else (int(parts["day"]), month)
    if "left" not in parts:
        return int(parts.get("day", "1")), int(parts.get("month", "1"))
    first_number, second_number = int(parts["left"]), int(parts["right"])
    if first_number > 12 or first_number == second_number:
        return first_number, second_number
    if second_number > 12:
        return second_number, first_number
    return None


def _month(name: str) -> int | None:
    """The number of a month by its English name or the beginning of it: ``Jan``, ``Sept``."""
    for number, month in enumerate(_MONTHS, 1):
        if month.startswith(name):
            return number
    return None


def _hour(parts: dict[str, str]) -> int | None:
    """The hour of 24, None for an hour that a clock of twelve hours does not have."""
    hour = int(parts.get("hour", "0"))
    if "half" not in parts:
        return hour
    if not 1 <= hour <= 12:
        return None
    return hour % 12 + (12 if parts["half"] == "p" else 0)


def _offset(parts: dict[str, str]) -> timedelta | None:
    """How far the zone is ahead of UTC, None for an offset of a day or more."""
    if "sign" not in parts:
        return timedelta(hours=_ZONES.get(parts.get("zone", ""), 0))
    hours = int(parts["zone_hours"])
    minutes = int(parts.get("zone_minutes", "0"))
    if hours > 23 or minutes > 59:
        return None
    offset = timedelta(hours=hours, minutes=minutes)
    return -offset if parts["sign"] == "-" else offset
