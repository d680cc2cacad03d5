"""R8: when a source is due, and what counts as a visit of it.

A source is requested daily or less, and not again within the hour (spec section 10.3).

R8 compares runs (D12). Within one run a source is requested as often as its spider yields it. From
run to run a source has a *due time*, WALSH_REVISIT after the previous due time. A run may send it a
little early, by a tenth of WALSH_REVISIT at most. The next due time is still counted from the due
time that this run *met*, and not from the minute of the run. So a daily run finds each source due
each day, and the times do not drift. If a source was sent at another time, it is next due
WALSH_REVISIT after that; missed periods are not made up. Between the requests of two runs, at least
an hour and nine tenths of WALSH_REVISIT must pass.

Every answer is a visit (D41): :func:`of_answer` has a meaning for each status. A visit that
*failed* counts beside the last successful one, and does not move its due time. After the n-th
failure in a row the source is left alone for 1 h, 2 h, 4 h and so on, at most for its own interval.

If a run begins some seconds before the hour is over, it waits for them (:func:`hour_left`).
Otherwise an hourly job that begins a second early would read each source every second hour.

A source may have a cadence of its own (:func:`cadence`), for example ``P7D`` or ``auto``.
Otherwise its interval is WALSH_REVISIT. A source that is gone (410), or whose owner has closed its
door (CLOSED), is *retired* for 30 days.

The *hints* of its last answer (``policy.hints``) hold if they ask for more than the interval, and
for WALSH_HINTS at most.

:func:`_causes` alone decides when a source is due: :func:`due`, :func:`next_due`, :func:`met` and
:func:`period` ask it, and each command and report asks them. A new cause is one more ``yield``
there, and nothing elsewhere.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from scrapy_walsh.exceptions import one_line
from scrapy_walsh.policy.backoff import REDIRECTS, TOO_MANY_REQUESTS
from scrapy_walsh.policy.freshness import parse_duration
from scrapy_walsh.policy.hints import LONGEST, NO_HINTS, Hints
from scrapy_walsh.policy.times import iso
from scrapy_walsh.policy.verdict import NOT_DUE, Verdict
from scrapy_walsh.policy.words import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from scrapy_walsh.policy.scope import Scope

#: Seconds: the shortest time between two runs of a source without a written reason.
REVISIT_FLOOR: Final = 3600.0
#: Seconds: the longest time that a run waits for the end of REVISIT_FLOOR (:func:`hour_left`).
WAITS_FOR_THE_HOUR: Final = 300.0
#: Seconds: the longest interval. Records are kept longer than this (``state.records``).
REVISIT_LONGEST: Final = 365 * 86400.0

#: In place of a cadence in seconds: what the source did decides (:func:`own_interval`).
AUTO: Final = 0.0
#: Seconds: the longest interval by AUTO.
AUTO_LONGEST: Final = 30 * 86400.0

#: A part of the interval. A run that is early or late by at most this much meets the due time.
SLACK: Final = 0.1

#: Seconds in which a retired source is left alone.
RETIRED: Final = 30 * 86400.0
#: "Gone": the site asks that links to it be removed (RFC 9110 section 15.5.11).
GONE: Final = 410
#: 401: it closes a door only with the challenge of a licence.
_UNAUTHORIZED: Final = 401
#: The doors that owners close for a reason, by status (RSL 1.0; RFC 9110 section 15.5.3; RFC 7725).
CLOSED: Final = {
    _UNAUTHORIZED: "closed: it asks for a licence",
    402: "closed: it asks for payment",
    451: "closed for legal reasons (451)",
}
#: The fields that say more about a closed door: of Cloudflare, x402, RFC 9110, and RFC 7725.
_FIELDS: Final = ("Crawler-Price", "Payment-Required", "WWW-Authenticate", "Link")
#: The scheme ``License`` among the challenges of a WWW-Authenticate (RSL 1.0). A parameter of that
#: name, for example ``license=x``, is none.
_LICENCE: Final = re.compile(r"(?:^|,)\s*license(?=\s*(?:,|$)|\s+[^\s=])", re.IGNORECASE)
_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
NOT_MODIFIED: Final = 304
_AUTO: Final = "auto"
#: The wait after failures is doubled at most this often. 1 h doubled 13 times is 341 days, which
#: is near REVISIT_LONGEST.
_DOUBLINGS: Final = 13


class Visit(NamedTuple):
    """The last visit of a source. Times are Unix seconds.

    ``sent_at``: when the last answered request was sent; 0 if none was answered. ``counted_from``:
    the due time that this request met; ``sent_at`` if it met none. ``retired``: the status of the
    answer if that retires the source (:func:`retirement`), else 0.
    ``gave_up_at``: when a later visit failed; None if none did. ``failures``: how many failed in a
    row; if ``gave_up_at`` is set, 0 counts as 1. ``revisit``: the source's own cadence, seconds;
    None for WALSH_REVISIT. ``hints``: of the last answer. ``hints_hold``: the most seconds that
    they hold (WALSH_HINTS).
    """

    sent_at: float
    counted_from: float
    retired: int = 0
    gave_up_at: float | None = None
    revisit: float | None = None
    failures: int = 0
    hints: Hints = NO_HINTS
    hints_hold: float = LONGEST


#: The record of a source's visits, by its key (``urls.key_of``); None without a record.
VisitOf = Callable[[str], Visit | None]


class Due(NamedTuple):
    """When a source is due. Times are Unix seconds.

    ``at``: a run may send it from then on. ``cause``: the reason, one of the constants below.
    ``nominal``: the end of its period. If the next visit is on time, the period after it begins
    there. It is 0 for failures, because they do not move it.
    """

    at: float
    cause: str
    nominal: float = 0.0


#: No record keeps a run from sending the source.
NEVER_SENT: Final = "never_sent"
#: Its interval, since it was last answered.
INTERVAL: Final = "interval"
#: A hint of its last answer.
HINT: Final = "hint"
#: It is gone (410).
RETIREMENT: Final = "retirement"
#: Its owner has closed its door (CLOSED).
CLOSED_DOOR: Final = "closed_door"
#: Its last visits failed.
FAILURES: Final = "failures"
#: Another run is requesting it. No ``Due`` has this cause, only the verdict UNDER_WAY.
UNDER_WAY_NOW: Final = "under_way"

#: The meaning of an answer for its source. ANSWERED: the visit is over. LEADS_ON: a redirect, so
#: the answer of its target counts. FAILED: the visit failed (FAILURES).
ANSWERED: Final = "answered"
LEADS_ON: Final = "leads_on"
FAILED: Final = "failed"


def of_answer(status: int | None, *, unasked: bool = False) -> str:
    """The meaning of an answer with *status* for its source: ANSWERED, LEADS_ON or FAILED.

    *status*: None without an answer. *unasked*: it is a 304 to a request without validators. An
    unknown status is FAILED, so that we request its source less and less.
    """
    if status is None or status == TOO_MANY_REQUESTS:
        return FAILED
    if 200 <= status < 300 or 400 <= status < 500:
        return ANSWERED
    if status == NOT_MODIFIED and not unasked:
        return ANSWERED
    if status in REDIRECTS:
        return LEADS_ON
    return FAILED


def words_of(status: int | None, fields: Callable[[str], Iterable[str]], text: str = "") -> str:
    """The words of an answer with *status* that closes a door, one line; "" if it has none.

    *fields*: the values of a header field, by its name. *text*: its body if that is short, plain
    text or JSON, else "". A 401 closes a door only with the challenge ``License`` (RSL 1.0).
    """
    if status not in CLOSED:
        return ""
    challenges = ", ".join(fields("WWW-Authenticate"))
    if status == _UNAUTHORIZED and not _LICENCE.search(_QUOTED.sub('""', challenges)):
        return ""
    words = [f"{name}: {', '.join(fields(name))}" for name in _FIELDS if fields(name)]
    return one_line("; ".join(filter(None, [*words, text])))


def retirement(status: int | None, words: str) -> int:
    """*status* if such an answer retires its source, else 0. *words*: of :func:`words_of`."""
    if status == GONE or (status in CLOSED and (words or status != _UNAUTHORIZED)):
        return status
    return 0


def cadence(written: object) -> float:
    """The seconds of *written*: a number, or an ISO 8601 duration, for example ``P7D``.

    AUTO for ``auto``.

    Raises ValueError, with the accepted values, if *written* is neither. It also does if the
    seconds are below REVISIT_FLOOR or above REVISIT_LONGEST (R8.2).
    """
    seconds = written
    if written == _AUTO:
        return AUTO
    try:
        if isinstance(written, str) and written.lstrip().startswith("P"):
            seconds = parse_duration(written.strip())
        # ``True`` is the number 1 in Python. NaN is within no limits, so it is refused.
        seconds = math.nan if isinstance(written, bool) else float(seconds)  # type: ignore[arg-type]
        if REVISIT_FLOOR <= seconds <= REVISIT_LONGEST:
            return seconds
    except (TypeError, ValueError):
        pass
    raise ValueError(
        f"{ascii(written)[:100]}; accepted: {_AUTO}, a number of seconds, or a duration "
        f"such as P7D, at least {REVISIT_FLOOR:g}, at most {REVISIT_LONGEST:.0f} (365 days)"
    )


def as_written(cadence: float | None) -> float | str | None:
    """*cadence* as :func:`cadence` reads it."""
    return _AUTO if cadence == AUTO else cadence


def is_auto(cadence: float | None, *, auto: bool) -> bool:
    """Whether the interval of a source with that *cadence* follows from its answers.

    *cadence*: the source's own; None without one. *auto*: whether WALSH_REVISIT is "auto".
    """
    return auto if cadence is None else cadence == AUTO


def own_interval(
    cadence: float | None, visit: Visit, revisit: float, *, auto: bool
) -> float | None:
    """Seconds between two visits of a source, as far as its *visit* decides; None for *revisit*.

    *cadence*, *auto*: as for :func:`is_auto`. *revisit*: WALSH_REVISIT, a day if that is "auto".

    By AUTO it is the geometric mean of *revisit* and of half the mean time between the source's
    last dates, up to the visit. So a source that falls silent is visited less and less. Among rules
    with as many requests, this one finds the entries of many different sources soonest.
    """
    if not is_auto(cadence, auto=auto):
        return cadence
    hints = visit.hints
    if not hints.entries:
        return None
    half = max(0.0, visit.sent_at - hints.since) / hints.entries / 2
    return min(max(math.sqrt(half * revisit), revisit), max(AUTO_LONGEST, revisit))


def interval_of(cadence: float | None, revisit: float) -> float:
    """Seconds between two visits of a source, at least REVISIT_FLOOR.

    *cadence*: the source's own; None, or AUTO, for *revisit*. *revisit*: WALSH_REVISIT.
    """
    return max(cadence or revisit, REVISIT_FLOOR)


def _causes(visit: Visit, now: float, revisit: float) -> Iterator[Due]:
    """The causes that keep a run from sending a source, for example INTERVAL.

    A stored time in the future comes from a clock that was put back. It counts if it is less than
    an interval ahead; else it is stale and ignored (D9). So a wrong clock cannot block a source for
    more than two intervals.
    """
    interval = interval_of(visit.revisit, revisit)
    period_end = visit.counted_from + interval
    is_stale = visit.sent_at - now >= interval
    if not is_stale:
        at = 0.0
        if visit.sent_at:  # 0 if it was never answered
            soonest = visit.sent_at + max(REVISIT_FLOOR, (1 - SLACK) * interval)
            at = max(soonest, period_end - SLACK * interval)
        yield Due(at, INTERVAL, period_end)
        soonest = max(at, now)
        hinted = _hinted(visit, soonest, interval)
        if hinted > soonest:
            yield Due(hinted, HINT, hinted)
    if visit.retired and not is_stale:
        # Its cadence may be longer than 30 days.
        retired = max(visit.sent_at + RETIRED, period_end)
        cause = CLOSED_DOOR if visit.retired in CLOSED else RETIREMENT
        yield Due(retired, cause, retired)
    if visit.gave_up_at is not None and visit.gave_up_at - now < interval:
        yield Due(visit.gave_up_at + wait_after(visit.failures, interval), FAILURES)


def _hinted(visit: Visit, soonest: float, interval: float) -> float:
    """The end of the hints of *visit* for a run at *soonest*, when the *interval* is over."""
    # A daily source is not read less often because of a server's default.
    if interval >= visit.hints_hold:
        return 0.0
    hints = visit.hints
    wait = hints.seconds if hints.seconds > interval else 0.0
    opens = hints.opens(max(visit.sent_at + wait, soonest))
    return min(opens, visit.sent_at + visit.hints_hold)


def due(visit: Visit | None, now: float, revisit: float) -> Due:
    """When a run may send a source again.

    *visit*: None for a source without a record. *revisit*: WALSH_REVISIT, seconds; it counts as
    REVISIT_FLOOR at least.
    """
    never_sent = Due(0.0, NEVER_SENT)
    if visit is None:
        return never_sent
    # The latest cause decides, because ``at`` is compared first.
    return max([never_sent, *_causes(visit, now, revisit)])


def _nominal(visit: Visit, revisit: float) -> float:
    """The due time that the next visit may meet. Failed visits do not move it."""
    # *now* is the time of the visit itself, because then no cause is stale and left out.
    return max(cause.nominal for cause in _causes(visit, visit.sent_at, revisit))


def period(visit: Visit | None, cadence: float | None, revisit: float) -> float:
    """Seconds from one due time of a source to the next, for example 30 days after a 410.

    *visit*, *revisit*: as for :func:`due`. *cadence*: the source's own; None for *revisit*.
    """
    if visit is None:
        return interval_of(cadence, revisit)
    return _nominal(visit._replace(revisit=cadence), revisit) - visit.counted_from


def wait_after(failures: int, interval: float) -> float:
    """Seconds until a source may be sent after so many failed visits in a row.

    It doubles with each failure up to the *interval*. A run may be early for that by SLACK, as for
    any due time.
    """
    doublings = min(max(failures, 1) - 1, _DOUBLINGS)
    wait = REVISIT_FLOOR * 2.0**doublings
    if wait < interval:
        return wait
    return max(REVISIT_FLOOR, (1 - SLACK) * interval)


def failed(visit: Visit | None, at: float, *, again: bool = False) -> Visit:
    """The record after a visit that failed at *at*, Unix seconds; *visit*: the record before it.

    *again*: this run has already noted a failed visit of the source. Both count as one.
    """
    if visit is None:
        visit = Visit(0.0, 0.0)
    failures = visit.failures
    # A time of failure means one failure at least, even if none was counted (``Visit``).
    if visit.gave_up_at is not None:
        failures = max(failures, 1)
    failures = max(failures, 1) if again else failures + 1
    return visit._replace(gave_up_at=at, failures=failures)


def next_due(visit: Visit | None, hold_end: float, now: float, revisit: float) -> float | None:
    """Unix seconds before which no run sends a source again; None if a run may send it now.

    *visit*, *revisit*: as for :func:`due`. *hold_end*: the end of the hold of its host (R5), Unix
    seconds. Commands and reports call this time "next due".
    """
    moment = max(hold_end, due(visit, now, revisit).at)
    return moment if moment > now else None


def hour_left(visit: Visit | None, now: float, revisit: float) -> float | None:
    """Seconds that a run should wait until it may send the source; None if it should not wait.

    It waits for the end of the hour only, never for a longer interval. The arguments are those of
    :func:`due`.
    """
    moment = due(visit, now, revisit).at
    if visit is None or not 0 < moment - now <= WAITS_FOR_THE_HOUR:
        return None
    # If it is due later than the hour, something else keeps it, and a run does not wait for that.
    hour = max(visit.sent_at, visit.gave_up_at or 0.0) + REVISIT_FLOOR
    return moment - now if moment <= hour else None


def met(sent_at: float, visit: Visit | None, revisit: float, retired: int = 0) -> Visit:
    """The record of a visit sent at *sent_at*, Unix seconds; *visit*: the record before it.

    If it met the due time, the next period is counted from that, else from *sent_at*. *revisit*: as
    for :func:`due`. *retired*: as in a ``Visit``.
    """
    new = Visit(sent_at, sent_at, retired)
    if visit is None:
        return new
    due_time = _nominal(visit, revisit)
    on_time = abs(sent_at - due_time) <= SLACK * interval_of(visit.revisit, revisit)
    return new._replace(counted_from=due_time) if on_time else new


#: The refusal of a source that another run is requesting, without an answer yet.
UNDER_WAY: Final = Verdict(
    False, NOT_DUE, "R8", "another run is requesting it now", cause=UNDER_WAY_NOW
)


def not_due(visit: Visit | None, now: float, revisit: float, reason: str | None) -> Verdict | None:
    """The refusal of a source that is not due (R8); None if it may be sent.

    *visit*, *revisit*: as for :func:`due`. *now*: Unix seconds. A written *reason* lifts the rule.
    """
    if visit is None or (reason is not None and reason.strip()):
        return None
    moment, cause, _ = due(visit, now, revisit)
    if now >= moment:
        return None
    brief = f"last requested {iso(visit.sent_at)}"
    if cause in (RETIREMENT, CLOSED_DOOR):
        cause_text = CLOSED.get(visit.retired, "answered 410 (Gone)")
        brief += f", {cause_text} and left alone for 30 days"
    elif cause == HINT:
        brief += f", {visit.hints}"
    elif cause == FAILURES:
        count = plural(max(visit.failures, 1), "time")
        brief = f"given up {iso(visit.gave_up_at or 0.0)}, failed {count} in a row"
    reason = reason_of(brief, iso(math.ceil(moment)))
    return Verdict(False, NOT_DUE, "R8", reason, cause=cause, due=moment, brief=brief)


def reason_of(brief: str, moment: str) -> str:
    """The reason of a refusal until *moment*, ISO 8601. *brief*: the reason without that time."""
    return f"{brief}, next due {moment}"


def counts_for(
    key: str,
    url: str,
    scope: Scope,
    known_sources: Iterable[str],
    hops: Mapping[str, Iterable[str]],
) -> dict[str, None]:
    """The sources that an answer to the request *key*, for *url*, counts for.

    They are the sources that redirect to it, in any number of steps, and the request itself if it
    is for a source. *known_sources*: the sources in the request's ticket. *hops*: by key of a
    redirect's target, the sources that redirect there.
    """
    sources = dict.fromkeys(known_sources)
    unvisited = [key, *sources]
    while unvisited:
        for source in hops.get(unvisited.pop(), ()):
            if source not in sources:
                sources[source] = None
                unvisited.append(source)
    if scope.is_source(url):
        sources[key] = None
    # No redirect of this run led here. Then the source that the scope has noted for it counts.
    elif not sources and (source_of := scope.source_of(url)) is not None:
        sources[source_of] = None
    return sources
