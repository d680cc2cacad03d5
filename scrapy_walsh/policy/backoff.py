"""How long to wait after a failed request, and when to give up (R5; spec section 9.4).

After a failure the whole host is held (D6, T25). A Retry-After is never shortened (T23). If there
is none, the hold is a random part of a time that doubles with each attempt. A retry keeps R4's
interval too (T24), by :mod:`~scrapy_walsh.policy.host`. If an answer that is no failure has a
Retry-After, the host is held as well, and nothing is retried.

If an answer says that nothing is left of its rate limit, the host waits until the reset
(:func:`seconds_to_reset`), before it has to answer 429.

See :mod:`~scrapy_walsh.policy.host` for hosts that give no answer.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from scrapy_walsh.policy.freshness import parse_duration
from scrapy_walsh.policy.gates import BACKOFF_BASE, BACKOFF_CAP, Gates
from scrapy_walsh.policy.throttle import NOTHING, Learned, Spacing
from scrapy_walsh.policy.verdict import Unanswered
from scrapy_walsh.policy.words import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

TOO_MANY_REQUESTS: Final = 429
#: The statuses that always need a back-off (R5). Unlike other 5xx they also mean that the request
#: was not carried out.
BACKOFF_STATUSES: Final = frozenset({TOO_MANY_REQUESTS, 503})

#: The answers that name another URL in their Location (RFC 9110 section 15.4).
REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})

#: Methods that have the same effect when a request is sent twice (RFC 9110 section 9.2.2).
IDEMPOTENT: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})

#: Retries that a run allows for a host that has not answered in this run (D13).
SILENT_RETRIES: Final = 1

#: Seconds, about 3,000 years. A longer wait counts as this, so that a due time stays finite and has
#: a calendar date.
LONGEST: Final = 1e11

_MONTHS: Final = (
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
)  # fmt: skip
_TIME: Final = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})"
_MONTH: Final = r"(?P<month>[a-z]{3})"
#: If a date has no zone, and no word after it that may be a zone, it is read as UTC (T21).
_ZONE: Final = r"(?: ?(?P<zone>GMT|UTC|Z|[+-][0-9]{2}:?[0-5][0-9])(?!\w)|(?! {0,9}[\w.+-]))"
#: RFC 9110 section 5.6.7: IMF-fixdate and the RFC 850 form, then asctime; then ISO 8601, extended
#: and basic. Every repetition is bounded: a hostile header costs linear time. The weekday is any
#: word, or none (T21).
_DATES: Final = tuple(
    re.compile(pattern, re.IGNORECASE | re.ASCII)
    for pattern in (
        r"(?:\b[a-z]{1,9}, {0,2})?(?<![0-9])(?P<day>[0-9]{1,2})[ -]" + _MONTH + "[ -]"
        r"(?P<year>[0-9]{4}|[0-9]{2}) " + _TIME + _ZONE,
        r"(?:\b[a-z]{1,9} )?\b" + _MONTH + " {1,2}(?P<day>[0-9]{1,2}) " + _TIME + " "
        r"(?P<year>[0-9]{4})(?![0-9])",
        r"(?<![\w-])(?P<year>[0-9]{4})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})[T ]"
        r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})"
        r"(?::(?P<second>[0-9]{2})(?P<fraction>\.[0-9]{1,9})?)?" + _ZONE,
        r"(?<![\w-])(?P<year>[0-9]{4})(?P<month>[0-9]{2})(?P<day>[0-9]{2})T"
        r"(?P<hour>[0-9]{2})(?P<minute>[0-9]{2})(?P<second>[0-9]{2})" + _ZONE,
    )
)
#: If an answer's own Date differs from our clock by more seconds, it is not used.
_OWN_DATE: Final = 86400.0
_SECONDS: Final = re.compile(r"[0-9]+")
#: Seconds: a rate limit that is reset later counts as none.
_LONGEST_RESET: Final = 86400.0
#: A larger number is a time: in Unix seconds since 2001, or in milliseconds.
_UNIX_SECONDS: Final = 1e9
_MILLISECONDS: Final = 1e12
_ZERO: Final = re.compile(r"\s*0+\s*")
_NUMBER: Final = re.compile(r"(?<![-\w.])[0-9]+(?:\.[0-9]+)?", re.ASCII)


class Answer(Struct, frozen=True):
    """The result of a request that was sent.

    ``purpose``: ``target``, ``robots`` or ``operator``. ``status``: None if no answer came.
    ``retry_after``: the values of its Retry-After fields. ``attempt``: the number of retries before
    it. ``hops``: the number of redirects before it. ``unseen``: its host had never been requested
    before. ``date``: its Date field, needed only with a Retry-After. ``whole``: False if our side
    broke the exchange off, so that it says nothing about the server. ``last``: the reason why no
    retry may follow, or empty. ``cut``: an answer came, but was cut off or cannot be read.
    ``spacing``: how the request was spaced; None if that does not matter. ``known``: the host's
    record of learned pace before. ``unasked``: it is a 304, although the request was not
    conditional. ``reset``: of :func:`seconds_to_reset`.
    """

    purpose: str
    status: int | None
    method: str = "GET"
    retry_after: Sequence[str] = ()
    attempt: int = 0
    hops: int = 0
    unseen: bool = False
    whole: bool = True
    last: str | Unanswered = ""
    spacing: Spacing | None = None
    known: Learned = NOTHING
    date: str = ""
    unasked: bool = False
    cut: bool = False
    reset: float | None = None


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """The error that ended an exchange without an answer that counts.

    ``error``: the network's, in a few words; None if an answer came that is not in HTTP/1.1.
    """

    error: str | None

    def __str__(self) -> str:
        if self.error is None:
            return "its answer is not valid HTTP/1.1"
        return f"no answer: {self.error}"


@dataclass(frozen=True, slots=True)
class _Failure:
    """A failed exchange: its host is held for ``delay`` seconds (T25).

    ``status``: None without an answer. ``retry_after``: the text of a valid Retry-After, or empty.
    ``attempt``: the number of retries before it.
    """

    delay: float = 0.0
    status: int | None = None
    retry_after: str = ""
    attempt: int = 0

    def reason(self, error: NoAnswer | None = None) -> str:
        """One line about the exchange and what follows; *error*: why there was no answer."""
        cause = f"status {self.status}"
        if self.status is None:
            cause = str(error or "no answer")
        if self.retry_after:
            cause = f"{cause} with Retry-After {self.retry_after}"
        return f"{cause}; {self._follows()}"

    def _follows(self) -> str:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Retry(_Failure):
    """Send the request again, at the earliest in ``delay`` seconds; ``most``: of retries."""

    most: int = 0

    def _follows(self) -> str:
        return f"retry {self.attempt + 1} of {self.most} in {self.delay:.3f} s or later"


@dataclass(frozen=True, slots=True)
class GiveUp(_Failure):
    """Do not send the request again in this run.

    ``last``: the reason why no retry follows; empty if that is their number.
    """

    last: str | Unanswered = ""

    @property
    def unanswered(self) -> Unanswered | None:
        """The reason why no retry follows, if the host gives no answer."""
        return self.last if isinstance(self.last, Unanswered) else None

    def _follows(self) -> str:
        retries = f" after {plural(self.attempt, 'retry', 'retries')}" if self.attempt else ""
        reason = f": {self.last}" if self.last else ""
        return f"given up{retries}{reason}"


def parse_retry_after(value: str | None, now: float) -> float | None:
    """The seconds of a Retry-After, at least 0; None if *value* is not a valid one. Never raises.

    *value*: the field's value, None if absent. *now*: Unix seconds. It is valid if it is all ASCII
    digits; a date in one of the three forms of RFC 9110 section 5.6.7, in the first of them also
    with a numeric time zone, or with none; a time or a duration of ISO 8601. The day of the week is
    ignored. A date in the past is 0.
    """
    text = (value or "").strip(" \t")
    if _SECONDS.fullmatch(text):
        return min(float(text), LONGEST)
    with suppress(ValueError):
        return min(parse_duration(text), LONGEST)
    instant = _date(text, now)
    return None if instant is None else _seconds_until(instant, now)


def http_date(value: str | None, now: float) -> float | None:
    """The Unix seconds of a date in a form of :func:`parse_retry_after`; None if it has none.

    *now*: Unix seconds, needed for a year of two digits.
    """
    return _date((value or "").strip(" \t"), now)


def retry_after_floor(value: str | None, now: float) -> float:
    """The longest wait, in seconds, that can be read anywhere in an invalid *value*; else 0.0.

    Repeated fields are joined by commas, and some servers add a remark. So the computed delay is at
    least as long as each wait that can be read (T22). *now*: Unix seconds.
    """
    return min(max(_readings(value or "", now), default=0.0), LONGEST)


def asked_for(answer: Answer, now: float) -> tuple[float | None, float]:
    """The seconds of *answer*'s Retry-After: of a valid value, and of all that can be read.

    Without a Retry-After they are None and 0.0. *now*: Unix seconds. A date is counted from our
    clock and from the answer's own Date, if the two are within a day of each other. The longer wait
    counts, because we cannot know which of the two clocks is wrong.
    """
    if not answer.retry_after:
        return None, 0.0
    value, reference = ", ".join(answer.retry_after), now
    date = _date(answer.date, now)
    if date is not None and abs(date - now) <= _OWN_DATE:
        reference = min(now, date)
    return parse_retry_after(value, reference), retry_after_floor(value, reference)


def held_for(answer: Answer, now: float) -> float | None:
    """Seconds to leave the host alone after an answer that is no failure; None if there is no need.

    RFC 9110 section 10.2.3 defines Retry-After for any answer. *now*: Unix seconds.
    """
    required, readable = asked_for(answer, now)
    return (readable if required is None else required) or None


def seconds_to_reset(field: Callable[[str], str], now: float) -> float | None:
    """Seconds until a rate limit is reset that an answer has used up; None if there is none.

    *field*: the text of a header field, "" without one. *now*: Unix seconds. It reads RateLimit and
    RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers, also in the form of its version 07), and
    three older pairs of fields. A reset beyond a day counts as none.
    """
    resets = [_reset(reset, now) for left, reset in _rate_limits(field) if _ZERO.fullmatch(left)]
    return max((seconds for seconds in resets if 0 < seconds <= _LONGEST_RESET), default=None)


def _rate_limits(field: Callable[[str], str]) -> Iterator[tuple[str, str]]:
    """By limit of an answer: the text of the requests left, and of the reset."""
    windows = {name: members.get("w", "") for name, members in _items(field("RateLimit-Policy"))}
    items = list(_items(field("RateLimit")))
    for name, members in items:
        yield members.get("r", ""), members.get("t") or windows.get(name, "")
    version_07 = {key: value for name, _ in items for key, value in [_member(name)]}
    yield version_07.get("remaining", ""), version_07.get("reset", "")
    for prefix in ("RateLimit", "X-RateLimit", "X-Rate-Limit"):
        yield field(f"{prefix}-Remaining"), field(f"{prefix}-Reset")


def _items(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The items of a structured field, and their parameters (RFC 9651)."""
    for item in text.split(","):
        name, *parameters = item.split(";")
        yield name.strip(), dict(map(_member, parameters))


def _member(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name.strip(), value.strip()


def _reset(text: str, now: float) -> float:
    """The seconds of a reset: their number, a time in Unix seconds or milliseconds, or a date."""
    if not _NUMBER.fullmatch(text.strip()):
        return (http_date(text, now) or 0.0) - now
    seconds = float(text)
    if seconds > _MILLISECONDS:
        seconds /= 1000
    return seconds - now if seconds > _UNIX_SECONDS else seconds


def backoff_delay(
    attempt: int, rand: float, base: float = BACKOFF_BASE, cap: float = BACKOFF_CAP
) -> float:
    """Exponential back-off with full jitter: ``rand * min(cap, base * 2**attempt)`` seconds.

    *attempt*: 0 after the first failure. *rand*: in [0, 1). ValueError outside either range.
    """
    if attempt < 0:
        raise ValueError(f"attempt {attempt!r} is below 0")
    if not 0.0 <= rand < 1.0:
        raise ValueError(f"rand {rand!r} is not in [0, 1)")
    return rand * min(cap, base * 2.0 ** min(attempt, 1000))


def after_failure(answer: Answer, gates: Gates, now: float, rand: float) -> Retry | GiveUp | None:
    """Decide on a retry after *answer*; None if R5 does not apply, for example after 200 or 404.

    Without a status it is a transport error (N2). *now*: Unix seconds. *rand*: in [0, 1), as in
    :func:`backoff_delay`, which also says when ValueError is raised.
    """
    if not is_failure(answer.status):
        return None
    attempt, max_retries, no_retry = answer.attempt, gates.max_retries, answer.last
    required, readable = asked_for(answer, now)
    delay = backoff_delay(attempt, rand, gates.backoff_base, gates.backoff_cap)
    delay = max(delay, readable) if required is None else required
    retry_after = ""
    if required is not None:
        retry_after = ", ".join(answer.retry_after).strip()
    # It may have been carried out before the answer failed (RFC 9110 section 9.2.2).
    is_unrepeatable = answer.method not in IDEMPOTENT and answer.status not in BACKOFF_STATUSES
    if is_unrepeatable and not no_retry and attempt < max_retries:
        no_retry = f"a {answer.method} that may have been carried out is not repeated"
    if no_retry or attempt >= max_retries:
        return GiveUp(delay, answer.status, retry_after, attempt, no_retry)
    return Retry(delay, answer.status, retry_after, attempt, max_retries)


def is_failure(status: int | None) -> bool:
    """Whether R5 applies: no answer, 429, or 500 and above (RFC 9110 section 15)."""
    return status is None or status in BACKOFF_STATUSES or status >= 500


def silent_attempts(max_retries: int, position: str) -> int:
    """The number of attempts that a run allows while a host gives no answer.

    ``max_retries``: WALSH_MAX_RETRIES; at most ``SILENT_RETRIES`` for a host that has answered
    nothing in this run. ``position``: WALSH_ROBOTS_UNREACHABLE. The number is ``max_retries + 1``.
    With ``allow`` and 0 or 1 retry it is one more. Then a robots.txt has its first retry, because
    one broken connection must not open a host, and a target has its attempt.
    """
    if position != "allow":
        return max_retries + 1
    return max(max_retries, min(max_retries, 1) + 1) + 1


def _readings(value: str, now: float) -> Iterator[float]:
    """The waits, in seconds, that can be read anywhere in *value*."""
    for pattern in _DATES:
        for match in pattern.finditer(value):
            with suppress(ValueError):  # no such month, day or time
                yield _seconds_until(_instant(match.groupdict(), now), now)
    for member in value.split(","):
        # A colon means a time of day, so the numbers around it are not seconds.
        if ":" not in member:
            yield from map(float, _NUMBER.findall(member))


def _date(text: str, now: float) -> float | None:
    """The Unix seconds of *text*; None if it is no date."""
    for pattern in _DATES:
        if match := pattern.fullmatch(text):
            with suppress(ValueError):  # no such month, day or time
                return _instant(match.groupdict(), now)
    return None


def _seconds_until(instant: float, now: float) -> float:
    return min(max(0.0, instant - now), LONGEST)


def _instant(parts: dict[str, str | None], now: float) -> float:
    name = parts["month"] or ""
    month = int(name) if name.isdigit() else _MONTHS.index(name.lower()) + 1
    day, hour, minute, second = (
        int(parts[name] or 0) for name in ("day", "hour", "minute", "second")
    )
    leap = (hour, minute, second) == (23, 59, 60)
    moment = (month, day, hour, minute, second - leap)
    year = _full_year(parts["year"] or "", moment, now)
    seconds = datetime(year, *moment, tzinfo=UTC).timestamp() + leap
    return seconds + float(parts.get("fraction") or 0) - _zone_seconds(parts.get("zone") or "")


def _full_year(digits: str, moment: tuple[int, ...], now: float) -> int:
    """The year. Two digits mean the latest such year that is at most 50 years from *now*.

    *moment*: the rest of the date, to compare with *now*. RFC 9110 section 5.6.7.
    """
    if len(digits) == 4:
        return int(digits)
    year, *now_moment = datetime.fromtimestamp(now, UTC).timetuple()[:6]
    limit = year + 50 - (moment > tuple(now_moment))
    return limit - (limit - int(digits)) % 100


def _zone_seconds(zone: str) -> int:
    if zone[:1] not in {"+", "-"}:
        return 0
    return int(zone[:3]) * 3600 + int(zone[0] + zone[-2:]) * 60
