"""R4 and R5: were requests far enough apart, also after a 429 or 503?

The log's clock has whole seconds, and is read at the start (Apache) or end (nginx) of a request: If
the log says ``n`` seconds, the gap is between ``n - 1`` and ``n + 1``. If the log has the ends of
answers, an answer that took long moves it further. A promise is broken if even the upper bound is
too short: the bound of a gap, or of several in a row, because their sum is off by one second at
most.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from scrapy_walsh.policy.backoff import BACKOFF_STATUSES
from scrapy_walsh.policy.gates import BACKOFF_CAP, MAX_RETRIES
from scrapy_walsh.policy.throttle import MIN_REQUEST_INTERVAL
from scrapy_walsh.policy.times import duration
from scrapy_walsh.proof.audit.rows import Row
from scrapy_walsh.proof.exchanges import Exchange, Gap, gaps
from scrapy_walsh.proof.findings import Outcome
from scrapy_walsh.proof.spacing import THE_WIRE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from scrapy_walsh.proof.audit.reading import Entry
    from scrapy_walsh.proof.audit.robots_rows import Step

#: Seconds that two stamps of the log's clock may be off by.
CLOCK: Final = 1
#: Seconds without a request after which a process may have begun that has never seen the host.
QUIET: Final = 3600


def spaced(lower: float, upper: float, required: float) -> Outcome:
    """Whether a gap of *lower* to below *upper* seconds was one of *required* seconds at least."""
    if lower >= required:
        return Outcome.HELD
    if upper <= required:
        return Outcome.BROKEN
    return Outcome.UNSEEN


def _gaps(walk: Iterable[Step]) -> Iterator[Gap[Step]]:
    """The neighbouring requests of each host, with the times that the log has."""
    return gaps(
        Exchange(
            entry.host,
            entry.path,
            entry.time,
            entry.time,
            entry.status or None,
            step,
        )
        for step in walk
        for entry in (step.entry,)
    )


def _required(gap: Gap[Step]) -> float:
    """R4.3: the larger of a second and the Crawl-delay."""
    return max(MIN_REQUEST_INTERVAL, gap.after.of.delay)


def spacing_row(walk: Sequence[Step], answer_time: float, *, rules: bool) -> Row:
    """R4.2, R4.3. ``answer_time``: seconds that an answer may have taken (a log of the ends).

    ``rules``: whether robots.txt was given, so that a Crawl-delay is known.
    """
    row = Row("R4", "MUST", "spacing max(1 s, Crawl-delay)", within_clock=True)
    exempt = 0
    shortest: float | None = None
    slack = CLOCK + answer_time
    behind: dict[str, float] = {}  # by host, seconds that its last gaps together were too short by
    for gap in _gaps(walk):
        if gap.visit and gap.rested >= QUIET:
            exempt += 1
            continue
        earlier = gap.before.of.entry
        entry = gap.after.of.entry
        required = _required(gap)
        host = entry.host
        shortest = gap.apart if shortest is None else min(shortest, gap.apart)
        behind[host] = max(0.0, behind.get(host, 0.0) + required - THE_WIRE - gap.apart)
        outcome = spaced(gap.apart - slack, gap.apart + slack, required)
        if outcome is Outcome.HELD:
            row.seen += 1
        elif outcome is Outcome.BROKEN or behind[host] >= slack:
            alone = f"under {gap.apart + slack:g} s after {earlier.place}"
            several = f"with the gaps before it {behind[host]:.3g} s too early"
            breach = alone if outcome is Outcome.BROKEN else several
            row.breach(entry, f"{breach}, {required:g} s required")
            behind[host] = 0.0
        else:
            row.undecided += 1
    row.tell(
        f"gaps: {row.seen} certainly kept, {row.undecided} within the log's clock",
        shortest is not None and f"shortest {shortest} s in the log (give or take {slack:g} s)",
        exempt and f"{exempt} first robots.txt with its target, exempt (T1)",
        not rules and "Crawl-delay not judged: give --robots FILE",
    )
    return row


def backoff_row(walk: Sequence[Step], retry_after: float | None, answer_time: float) -> Row:
    """R5: after a 429 or 503 the host is left alone, and a URL retried at most five times.

    ``retry_after``: seconds of the Retry-After that the site sends with them, if it is known.
    ``answer_time``: as of ``spacing_row``; the request after may have begun so much earlier.
    """
    row = Row("R5", "MUST", "back-off after 429 and 503", within_clock=True)
    refusals = sum(step.entry.status in BACKOFF_STATUSES for step in walk)
    slack = CLOCK + answer_time
    for gap in _gaps(walk):
        if gap.before.status not in BACKOFF_STATUSES:
            continue
        # From the end of that answer on. Without a Retry-After full jitter may be 0 seconds, so
        # only R4's interval is required.
        required = max(_required(gap), retry_after or 0.0)
        earlier = gap.before.of.entry
        outcome = spaced(gap.apart - slack, gap.apart + CLOCK, required)
        if outcome is Outcome.HELD:
            row.seen += 1
        elif outcome is Outcome.BROKEN:
            text = f"under {gap.apart + CLOCK} s after the {earlier.status} at {earlier.place}"
            row.breach(gap.after.of.entry, f"{text}, {required:g} s required")
        else:
            row.undecided += 1
    # Retries of a URL beyond the fifth. A pause that is longer than any back-off may begin another
    # run, which counts its retries anew.
    pause = max(BACKOFF_CAP, retry_after or 0.0) + CLOCK
    for attempts in _by_target([step.entry for step in walk]):
        retries = 0
        for attempt, retry in pairwise(attempts):
            refused = attempt.status in BACKOFF_STATUSES and retry.time - attempt.time <= pause
            retries = retries + 1 if refused else 0
            if retries > MAX_RETRIES:
                row.breach(retry, f"retry {retries} of at most {MAX_RETRIES}")
    row.tell(
        f"429 or 503 answered: {refusals}",
        f"next requests: {row.seen} certainly late enough, {row.undecided} within the log's clock",
        retry_after is None and "Retry-After not judged: give --retry-after SECONDS",
    )
    return row


def _by_target(entries: Sequence[Entry]) -> Iterable[list[Entry]]:
    visits: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        visits.setdefault((entry.site, entry.target), []).append(entry)
    return visits.values()


def revisit_row(targets: Sequence[Step], end: int) -> Row:
    """R8: no target again within the hour. ``end``: when the log ends, Unix seconds.

    After a refusal, a failure or "not acceptable" (T37) R5 says when a retry may follow, not R8.
    """
    row = Row("R8", "SHOULD", "no target twice within an hour")
    for visits in _by_target([step.entry for step in targets]):
        for earlier, later in pairwise(visits):
            apart = later.time - earlier.time
            if earlier.status in (0, 406, 408, 429, 499) or earlier.status >= 500:
                continue
            if apart + CLOCK <= QUIET:
                row.breach(later, f"{duration(apart)} after {earlier.place}")
            else:
                row.seen += 1
        row.seen += end - visits[-1].time > QUIET
    row.detail = f"left alone for an hour: {row.seen}"
    return row


def conditional_row(walk: Sequence[Step]) -> Row:
    """R7: a 304 shows that requests are conditional. The site may send no validators: no breach."""
    row = Row("R7", "SHOULD", "conditional requests")
    row.seen = sum(step.entry.status == 304 for step in walk)
    row.detail = f"304 answered: {row.seen}"
    return row
