"""R8: when a source is due, and what counts as a visit of it.

A source is requested daily or less, and not again within the hour (spec section 10.3).

R8 compares runs (D12). Within one run a source is requested as often as its spider yields it. From
run to run a source has a *due time*, WALSH_REVISIT after the due time before. A run may send it a
little early, by a tenth of WALSH_REVISIT at most, and the next due time is still counted from the
one that it met. So a daily run finds each source due each day, whatever the minute at which it
begins, and its times do not drift. A source that was sent at any other time is next due
WALSH_REVISIT after that; missed periods are not made up. However early a run is, nine tenths of
WALSH_REVISIT, and an hour, must have passed since the source was last sent.

A source that was *given up* (429, 5xx or no answer until R5 granted no more, too many redirects, a
hop that was refused) has no visit, and is sent by the next run, but not within an hour of that.

A run that begins some seconds before the hour is over waits for them (:func:`hour_left`): else an
hourly job, whose runs begin as far apart as its sources may be sent, would read each every second
hour.

A source may have a cadence of its own (:func:`cadence`); else WALSH_REVISIT is its interval.

A source that has answered 410 is *retired*: it is due again 30 days after that at the earliest.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from scrapy_walsh.policy import verdict as verdicts
from scrapy_walsh.policy.freshness import parse_duration
from scrapy_walsh.policy.times import iso
from scrapy_walsh.policy.verdict import NOT_DUE, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scrapy_walsh.policy.scope import Scope

#: Seconds: the shortest time between two runs of a source without a written reason.
REVISIT_FLOOR: Final = 3600.0
#: Seconds of that time for which a run waits at most.
WAITS_FOR_THE_HOUR: Final = 300.0
#: Seconds: the longest interval. A record is kept for longer than this (``state.records``).
REVISIT_LONGEST: Final = 365 * 86400.0

#: The part of the interval by which a run may be early, or late, for a source's due time.
SLACK: Final = 0.1

#: Seconds: "daily", which WALSH_REVISIT is unless it is set.
REVISIT: Final = 86400.0

#: Seconds for which a source is left alone that has answered 410 (RFC 9110 section 15.5.11).
RETIRED: Final = 30 * 86400.0
#: "Gone": the site asks that links to it be removed.
GONE: Final = 410


class Visit(NamedTuple):
    """The last request for a source that was answered. Unix seconds.

    ``sent_at``: when it was sent. ``counted_from``: the due time that it met, or ``sent_at``
    where it met none. ``gone``: the answer was 410. ``gave_up_at``: when a later request for it was
    given up; None where none was. Of a source that was never answered the first two are 0.
    ``revisit``: the source's own cadence, seconds; None where WALSH_REVISIT holds.
    """

    sent_at: float
    counted_from: float
    gone: bool = False
    gave_up_at: float | None = None
    revisit: float | None = None


def cadence(written: object) -> float:
    """The seconds of *written*: a number of them, or an ISO 8601 duration such as ``P7D``.

    Raises ValueError, which says what is accepted, also where they are too few or too many (R8.2).
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


def interval_of(own: float | None, revisit: float) -> float:
    """Seconds between two visits of a source; *own*: its cadence; *revisit*: WALSH_REVISIT."""
    return max(revisit if own is None else own, REVISIT_FLOOR)


def due(last: Visit, revisit: float) -> float:
    """When the source is next due, Unix seconds. *revisit*: WALSH_REVISIT, seconds."""
    when = last.counted_from + interval_of(last.revisit, revisit)
    return max(when, last.sent_at + RETIRED) if last.gone else when


def opens(last: Visit, revisit: float) -> float:
    """When a run may first send the source again, Unix seconds: a little before it is due."""
    if last.gone:
        return due(last, revisit)
    interval = interval_of(last.revisit, revisit)
    rest = max(REVISIT_FLOOR, (1 - SLACK) * interval)
    return max(last.sent_at + rest, due(last, revisit) - SLACK * interval)


def next_due(last: Visit | None, held: float, now: float, revisit: float) -> float | None:
    """Unix seconds before which no run sends a source again; None: the next run may.

    *last*: as for :func:`not_due`. *held*: until when its host is left alone (R5), Unix seconds.
    This is what every command and report calls "next due".
    """
    moment = held if last is None else max(held, _until(last, now, revisit))
    return moment if moment > now else None


def _until(last: Visit, now: float, revisit: float) -> float:
    """Until when the source is left alone; its visit does not count too far ahead of *now* (D9)."""
    stale = last.sent_at - now >= interval_of(last.revisit, revisit)
    return max(_abort_ends(last, now), 0.0 if stale else opens(last, revisit))


def hour_left(last: Visit | None, now: float, revisit: float) -> float | None:
    """Seconds for which a run should wait, since then the source may be sent again; else None.

    It waits for the end of the hour alone, not for a longer interval. The arguments are those
    of :func:`next_due`.
    """
    moment = next_due(last, 0.0, now, revisit)
    if last is None or moment is None or moment - now > WAITS_FOR_THE_HOUR:
        return None
    hour = max(last.sent_at, last.gave_up_at or 0.0) + REVISIT_FLOOR
    return moment - now if moment <= hour else None


def _abort_ends(last: Visit, now: float) -> float:
    """The end of the hour after the source was given up; 0.0 where there is none (R8.2)."""
    at = last.gave_up_at
    return 0.0 if at is None or at - now >= REVISIT_FLOOR else at + REVISIT_FLOOR


def met(sent_at: float, last: Visit | None, revisit: float, status: int | None = None) -> Visit:
    """The visit that begins at *sent_at*, counted from the due time if it met that.

    *status*: of the answer.
    """
    gone = status == GONE
    if last is None:
        return Visit(sent_at, sent_at, gone)
    when = due(last, revisit)
    on_time = abs(sent_at - when) <= SLACK * interval_of(last.revisit, revisit)
    return Visit(sent_at, when if on_time else sent_at, gone)


#: The refusal of a source that another run is requesting, and has no answer to yet.
UNDER_WAY: Final = Verdict(False, NOT_DUE, "R8", "another run is requesting it now")


def not_due(last: Visit | None, now: float, revisit: float, reason: str | None) -> Verdict | None:
    """A refusal while it is too soon to send a source again, else None.

    *last*: None when it was never answered. *now*: Unix seconds. *revisit* counts as
    :data:`REVISIT_FLOOR` at least. A written *reason* lifts the rule.

    A stored time in the future is a clock that was put back: up to *revisit* ahead it refuses,
    beyond that it is stale (D9). So no clock can shut a source out for more than two intervals.
    """
    if last is None or (reason is not None and reason.strip()):
        return None
    moment, hour = _until(last, now, revisit), _abort_ends(last, now)
    if now >= moment:
        return None
    if now < hour:
        what = f"given up {iso(hour - REVISIT_FLOOR)}"
    else:
        what = f"last requested {iso(last.sent_at)}"
        what += ", answered 410 (Gone) and left alone for 30 days" if last.gone else ""
    return Verdict(False, NOT_DUE, "R8", f"{what}{verdicts.NEXT_DUE}{iso(math.ceil(moment))}")


def counts_for(
    key: str, url: str, scope: Scope, carried: Iterable[str], hops: Mapping[str, Iterable[str]]
) -> dict[str, None]:
    """The sources for which an answer to the request *key*, for *url*, counts.

    They are those from which redirects led to it, in any number of steps, and itself if it is one.
    *carried*: those that are known without *hops*. *hops*: by key of a request that redirects led
    to, the sources that they led from.
    """
    found = dict.fromkeys(carried)
    left = [key, *found]
    while left:
        for source in hops.get(left.pop(), ()):
            if source not in found:
                found[source] = None
                left.append(source)
    if scope.is_source(url):
        found[key] = None
    elif not found and (source_of := scope.source_of(url)) is not None:
        found[source_of] = None
    return found


def counts_as_asked(status: int | None) -> bool:
    """Whether an answer counts as a visit of the source: 2xx, 304, and 4xx other than 429.

    *status* is None when there was no answer. Whatever R5 retries comes back at the next run.
    """
    if status is None or status == 429:
        return False
    return 200 <= status < 300 or status == 304 or 400 <= status < 500
