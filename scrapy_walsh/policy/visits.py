"""When a source is due, and which answers count as a visit (R8).

A source is requested daily or less, and not again within the hour (spec section 10.3).

R8 compares runs (D12). Within a run a source is requested as often as its spider yields it. From
run to run a source has a *due time*, WALSH_REVISIT after the last due time. A run may send it
early, by a tenth of WALSH_REVISIT at most. Then the next due time is still counted from the due
time, not from the request. So a daily run finds each source due each day, even if it begins some
minutes earlier than the day before, and its times do not drift. If a source was sent at any other
time, it is next due WALSH_REVISIT after that; missed periods are not made up. However early a run
is, nine tenths of WALSH_REVISIT, and an hour, must have passed since the source was last sent.

Each answer from the wire is a visit (D41): :func:`of_answer` has a meaning for each status. A
*failed* visit is recorded beside the last answered visit, and does not move its due time. After
failed visits in a row the source waits 1 h, 2 h, 4 h and so on, at most its own interval.

If a run begins some seconds before the hour is over, it waits for them (:func:`hour_left`).
Otherwise an hourly job would read each source only every second hour.

A source may have a cadence of its own (:func:`cadence`); else WALSH_REVISIT is its interval.

If a source has answered 410, it is *retired*: it is due again 30 days later at the earliest.

If you edit this file: only :func:`due` decides when a source is due. All other functions, commands
and reports call it. A new cause is one more line there.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from scrapy_walsh.policy.backoff import REDIRECTS, TOO_MANY_REQUESTS
from scrapy_walsh.policy.freshness import parse_duration
from scrapy_walsh.policy.times import iso
from scrapy_walsh.policy.verdict import NOT_DUE, Verdict
from scrapy_walsh.policy.words import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scrapy_walsh.policy.scope import Scope

#: Seconds: the shortest time between two runs of a source without a written reason.
REVISIT_FLOOR: Final = 3600.0
#: Seconds of that time that a run waits at most.
WAITS_FOR_THE_HOUR: Final = 300.0
#: Seconds: the longest interval. A record is kept for longer than this (``state.records``).
REVISIT_LONGEST: Final = 365 * 86400.0

#: How early or late a run may be for a source's due time, as a part of the interval.
SLACK: Final = 0.1

#: Seconds until a source is due again after 410 (RFC 9110 section 15.5.11).
RETIRED: Final = 30 * 86400.0
#: "Gone": the site asks that links to it be removed.
GONE: Final = 410
NOT_MODIFIED: Final = 304
#: The most failures in a row that double the wait: 1 h with 13 doublings is above a year.
_DOUBLINGS: Final = 13


class Visit(NamedTuple):
    """The record of a source's visits. Times are Unix seconds.

    ``sent_at``: when the last answered request was sent. ``counted_from``: the due time that it
    met, or ``sent_at`` if it met none. If the source was never answered, both are 0. ``gone``: the
    answer was 410. ``gave_up_at``: when its last visit failed; None if that was answered.
    ``failures``: how many visits have failed in a row; if ``gave_up_at`` is set, 0 counts as 1.
    ``revisit``: the source's own cadence, seconds; None if WALSH_REVISIT holds.
    """

    sent_at: float
    counted_from: float
    gone: bool = False
    gave_up_at: float | None = None
    revisit: float | None = None
    failures: int = 0


class Due(NamedTuple):
    """When a source is due, in Unix seconds, and the ``cause``: a constant below."""

    at: float
    cause: str


#: The record has nothing against sending the source.
NEVER_SENT: Final = "never_sent"
#: Its interval, since it was last answered.
INTERVAL: Final = "interval"
#: It has answered 410.
RETIREMENT: Final = "retirement"
#: Its last visits failed.
FAILURES: Final = "failures"
#: Another run is requesting it; that decides no due time.
UNDER_WAY_NOW: Final = "under_way"

#: The meanings of an answer for its source. ANSWERED: its visit is over, and it is due after its
#: interval. LEADS_ON: the answer of the redirect's URL counts. FAILED: see ``due``.
ANSWERED: Final = "answered"
LEADS_ON: Final = "leads_on"
FAILED: Final = "failed"


def of_answer(status: int | None, *, unasked: bool = False) -> str:
    """ANSWERED, LEADS_ON or FAILED: the meaning of *status* for its source.

    *status*: None without an answer. *unasked*: it is a 304, although the request was not
    conditional. A status that no rule names is FAILED, so that the source is requested less and
    less.
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


def cadence(written: object) -> float:
    """The seconds of *written*: a number of them, or an ISO 8601 duration such as ``P7D``.

    Raises ValueError, with the accepted values, also if they are too few or too many (R8.2).
    """
    seconds = written
    try:
        if isinstance(written, str) and written.lstrip().startswith("P"):
            seconds = parse_duration(written.strip())
        seconds = math.nan if isinstance(written, bool) else float(seconds)  # type: ignore[arg-type]
        if REVISIT_FLOOR <= seconds <= REVISIT_LONGEST:
            return seconds
    except (TypeError, ValueError):
        pass
    raise ValueError(
        f"{ascii(written)[:100]}; accepted: a number of seconds, or a duration such as P7D, "
        f"at least {REVISIT_FLOOR:g}, at most {REVISIT_LONGEST:.0f} (365 days)"
    )


def interval_of(cadence: float | None, revisit: float) -> float:
    """Seconds between two visits of a source; *cadence*: its cadence; *revisit*: WALSH_REVISIT."""
    return max(revisit if cadence is None else cadence, REVISIT_FLOOR)


def due(visit: Visit | None, now: float, revisit: float) -> Due:
    """When a run may send a source again. Only this function decides it.

    *visit*: None for a source without a record. *revisit*: WALSH_REVISIT, seconds; it counts as
    REVISIT_FLOOR at least.

    If a stored time lies in the future, the clock was put back. Up to an interval ahead it binds;
    beyond that it is stale (D9). So no clock can shut a source out for more than two intervals.
    """
    causes = [Due(0.0, NEVER_SENT)]
    if visit is None:
        return causes[0]
    interval = interval_of(visit.revisit, revisit)
    is_stale = visit.sent_at - now >= interval
    if visit.sent_at and not is_stale:
        pause = max(REVISIT_FLOOR, (1 - SLACK) * interval)
        early = visit.counted_from + interval - SLACK * interval
        causes.append(Due(max(visit.sent_at + pause, early), INTERVAL))
    if visit.gone and not is_stale:
        retired = visit.sent_at + RETIRED
        causes.append(Due(max(retired, visit.counted_from + interval), RETIREMENT))
    if visit.gave_up_at is not None and visit.gave_up_at - now < interval:
        causes.append(Due(visit.gave_up_at + wait_after(visit.failures, interval), FAILURES))
    return max(causes)


def wait_after(failures: int, interval: float) -> float:
    """Seconds to leave a source alone after so many failed visits in a row.

    It is at most its *interval*, and then a run may be early, as for the interval.
    """
    doublings = min(max(failures, 1) - 1, _DOUBLINGS)
    wait = REVISIT_FLOOR * 2.0**doublings
    if wait < interval:
        return wait
    return max(REVISIT_FLOOR, (1 - SLACK) * interval)


def failed(visit: Visit | None, at: float, *, again: bool = False) -> Visit:
    """The record after a visit that failed at *at*, Unix seconds; *visit*: the record before.

    *again*: it belongs to a failed visit that the run has already recorded.
    """
    if visit is None:
        visit = Visit(0.0, 0.0)
    earlier_failures = visit.failures if visit.gave_up_at is None else max(visit.failures, 1)
    failures = max(earlier_failures, 1) if again else earlier_failures + 1
    return visit._replace(gave_up_at=at, failures=failures)


def next_due(visit: Visit | None, hold_end: float, now: float, revisit: float) -> float | None:
    """The Unix seconds before which no run sends a source again; None if the next run may.

    *visit*, *revisit*: as for :func:`due`. *hold_end*: until when its host is left alone (R5), Unix
    seconds. This is what every command and report calls "next due".
    """
    moment = max(hold_end, due(visit, now, revisit).at)
    return moment if moment > now else None


def hour_left(visit: Visit | None, now: float, revisit: float) -> float | None:
    """Seconds that a run should wait because then the source is due again; else None.

    It waits for the end of the hour alone, not for a longer interval. The arguments are those
    of :func:`due`.
    """
    moment = due(visit, now, revisit).at
    if visit is None or not 0 < moment - now <= WAITS_FOR_THE_HOUR:
        return None
    hour = max(visit.sent_at, visit.gave_up_at or 0.0) + REVISIT_FLOOR
    return moment - now if moment <= hour else None


def met(sent_at: float, visit: Visit | None, revisit: float, status: int | None = None) -> Visit:
    """The visit that begins at *sent_at*. It is counted from the due time if it met that.

    The due time is that of the interval, or of a retirement: visits that failed do not move it.
    *status*: of the answer.
    """
    is_gone = status == GONE
    if visit is None:
        return Visit(sent_at, sent_at, is_gone)
    interval = interval_of(visit.revisit, revisit)
    due_at = visit.counted_from + interval
    if visit.gone:
        due_at = max(due_at, visit.sent_at + RETIRED)
    on_time = abs(sent_at - due_at) <= SLACK * interval
    return Visit(sent_at, due_at if on_time else sent_at, is_gone)


#: The refusal of a source that another run is requesting, and has no answer to yet.
UNDER_WAY: Final = Verdict(
    False, NOT_DUE, "R8", "another run is requesting it now", cause=UNDER_WAY_NOW
)


def not_due(visit: Visit | None, now: float, revisit: float, reason: str | None) -> Verdict | None:
    """A refusal while it is too soon to send a source again, else None.

    *visit*, *revisit*: as for :func:`due`. *now*: Unix seconds. A written *reason* lifts the rule.
    """
    if visit is None or (reason is not None and reason.strip()):
        return None
    moment, cause = due(visit, now, revisit)
    if now >= moment:
        return None
    brief = f"last requested {iso(visit.sent_at)}"
    if cause == RETIREMENT:
        brief += ", answered 410 (Gone) and left alone for 30 days"
    elif cause == FAILURES:
        times = plural(max(visit.failures, 1), "time")
        brief = f"given up {iso(visit.gave_up_at or 0.0)}, failed {times} in a row"
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

    They are the sources with redirects that led to it, in any number of steps, and *url* itself if
    it is a source. *known_sources*: those that are known without *hops*. *hops*: by key of a
    request that redirects led to, the sources that they led from.
    """
    sources = dict.fromkeys(known_sources)
    pending = [key, *sources]
    while pending:
        for source in hops.get(pending.pop(), ()):
            if source not in sources:
                sources[source] = None
                pending.append(source)
    if scope.is_source(url):
        sources[key] = None
    elif not sources and (source_of := scope.source_of(url)) is not None:
        sources[source_of] = None
    return sources
