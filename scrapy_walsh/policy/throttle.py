"""R4: when the next request to a host may be sent.

A process sends one request at a time. The next one to a host goes not before
``max(WALSH_MIN_INTERVAL, Crawl-delay)`` seconds after the host's last answer (spec section 9.3). A
back-off (R5) holds the whole host until a given time (T25). All times are monotonic seconds that
the caller gives. The key of a host is its ``hosts.host_key`` (T17).

A robots.txt is a request too, so two exceptions let one target follow it sooner. The first
robots.txt of a host never requested before may be followed at once (T1). And there are *slow
hosts*, whose interval is longer than a run waits (WALSH_PATIENCE). Their robots.txt is stale each
day, so each daily run would request that and nothing else. There one target may follow the
robots.txt after a second, if the host had no request for its whole interval before, at most once a
day (``visit_from``, D11).

How it works: a host is due when the interval since its last answer and its hold are both over.
While a request to it is under way it is not due at all: :meth:`Throttle.started` and
:meth:`Throttle.finished` are called around each one. An exception sets ``credit``, a time from
which one target may go before the interval is over, though never within a hold. The end of the
host's next request, whatever that was for, takes it away.

Rule for whoever edits this file: anybody may make a due time later, at any moment. Only these two
exceptions (``credit``) make it earlier, and only for one target.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

#: MIN_REQUEST_INTERVAL of spec section 6, seconds.
MIN_REQUEST_INTERVAL: Final = 1.0

#: Seconds between two targets of one slow host that go ahead of its interval (D11).
VISIT_EVERY: Final = 86400.0

#: Seconds by which two clocks may differ over one instant (wall and monotonic, one process).
_ROUNDING: Final = 0.005

#: The due time of a host that never had a request: at once (R4.4).
UNSEEN: Final = -math.inf


def shared_wait(
    last: float, not_before: float | None, interval: float, now: float, *, own: bool
) -> float:
    """Seconds until a host that has a record in the store may get a request (R4.6).

    ``last``: when any process last sent one; a time in the future counts as now (D9).
    ``not_before``: the end of a hold by any process, or None. ``interval``: seconds. ``own``: that
    last request was this process's own, so its throttle has kept the interval. Times are Unix
    seconds. The scripts in ``fleet/scripts.py`` have the same rule in Lua.
    """
    hold = (not_before or now) - now
    spacing = 0.0 if own else min(last, now) + interval - now
    wait = max(hold, spacing, 0.0)
    return 0.0 if own and wait < _ROUNDING else wait


def visit_from(  # noqa: PLR0917
    interval: float,
    patience: float,
    rested: float,
    ended: float,
    visited_at: float | None,
    min_interval: float = MIN_REQUEST_INTERVAL,
) -> float | None:
    """When a slow host's one target may follow its robots.txt; None where it may not.

    *interval*: seconds between two requests to the host, by the new robots.txt. *patience*:
    WALSH_PATIENCE. *rested*: seconds that the host had been left alone before its robots.txt.
    *ended*: when that was answered. *visited_at*: when a target last went ahead like this, None
    for never. Times are of one clock, whichever.
    """
    if interval <= patience or rested < interval:
        return None
    at = ended + min_interval
    return at if visited_at is None else max(at, visited_at + VISIT_EVERY)


@dataclass(slots=True)
class _Host:
    """What is known of one host; times are monotonic seconds.

    ``last_end``: when its last answer ended. ``not_before``: when its hold ends. ``sources``: by
    who asks for an interval, its seconds; ``interval`` is the largest. ``seen``: it was requested
    before. ``in_flight``: a request to it is under way. ``credit``: when one target may go before
    the interval is over; None for no such right. ``slow``: that right comes from ``visit_from``.
    ``ahead``: the last request used it. ``rested``: seconds without a request before the last one.
    ``visited_at``: when a target last went ahead by ``visit_from``.
    """

    last_end: float = UNSEEN
    not_before: float = UNSEEN
    interval: float = 0.0
    sources: dict[str, float] | None = None
    seen: bool = False
    in_flight: bool = False
    credit: float | None = None
    slow: bool = False
    ahead: bool = False
    rested: float = 0.0
    visited_at: float | None = None


@dataclass(slots=True)
class Throttle:
    """The spacing (R4.3) and holds (R5) of any number of hosts. Each call takes constant time.

    ``min_interval``: seconds, never below :data:`MIN_REQUEST_INTERVAL`; ValueError otherwise.
    """

    min_interval: float = MIN_REQUEST_INTERVAL
    _hosts: dict[str, _Host] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.min_interval >= MIN_REQUEST_INTERVAL:
            raise ValueError(
                f"min_interval {self.min_interval!r} is below {MIN_REQUEST_INTERVAL} s"
            )

    def seen(self, host: str) -> bool:
        """Whether a request to *host* was ever sent, by any process that is known of."""
        record = self._hosts.get(host)
        return record is not None and record.seen

    def interval(self, host: str, *, without: str | None = None) -> float:
        """Seconds from the end of one answer of *host* to the start of the next request (R4.3).

        *without*: a source of :meth:`set_interval` that is left out.
        """
        record = self._hosts.get(host)
        if record is None:
            return self.min_interval
        if without is None or record.sources is None or without not in record.sources:
            return max(self.min_interval, record.interval)
        others = (each for source, each in record.sources.items() if source != without)
        return max(self.min_interval, *others, 0.0)

    def due(self, host: str, *, document: bool = False) -> float:
        """The earliest time for a request to *host*; ``inf`` while one is under way.

        ``document``: the request is for a robots.txt, to which the two exceptions do not apply.
        """
        record = self._hosts.get(host)
        if record is None:
            return UNSEEN
        if record.in_flight:
            return math.inf
        if record.credit is not None and not document:
            return min(max(record.credit, record.not_before), self._spaced(record))
        return self._spaced(record)

    def wait(self, host: str, now: float, *, document: bool = False) -> float:
        """Seconds from *now* until *host* is due, at least 0."""
        return max(0.0, self.due(host, document=document) - now)

    def set_interval(self, host: str, seconds: float, source: str = "") -> None:
        """Set the interval that *source* asks for on *host*. It is never capped.

        *source*: whatever asks: the origin of a robots.txt with a Crawl-delay, AutoThrottle, what
        the host's answers have taught (D28). The largest counts. There may be several, since http
        and https of one host share the throttle and not the robots.txt (T17).
        """
        record = self._record(host)
        if record.sources is None:
            record.sources = {}
        record.sources[source] = seconds
        record.interval = max(record.sources.values())

    def raise_minimum(self, seconds: float) -> None:
        """Raise the minimum interval; a smaller value changes nothing (crawls share a process)."""
        self.min_interval = max(self.min_interval, seconds)

    def hold(self, host: str, until: float) -> None:
        """Hold *host* until that time (R5.3). A hold that lasts longer stays."""
        record = self._record(host)
        record.not_before = max(record.not_before, until)

    def restore(
        self, host: str, last_end: float, not_before: float, visited_at: float | None = None
    ) -> None:
        """Take over what an earlier process stored about *host* (T33)."""
        record = self._record(host)
        if visited_at is not None:
            record.visited_at = max(visited_at, record.visited_at or UNSEEN)
        record.seen = True
        record.last_end = max(record.last_end, last_end)
        record.not_before = max(record.not_before, not_before)

    def started(self, host: str, now: float = math.inf, *, document: bool = False) -> None:
        """Note the start of a request to *host*. ``document``: it is for a robots.txt."""
        record = self._record(host)
        record.ahead = record.slow and not document and now < self._spaced(record)
        record.seen = record.in_flight = True

    def rested(self, host: str, seconds: float) -> None:
        """Note for how many *seconds* no process had requested *host* before its present one."""
        self._record(host).rested = seconds

    def went_ahead(self, host: str) -> bool:
        """Whether the last request to *host* was the one target that :meth:`visit` let go ahead."""
        record = self._hosts.get(host)
        return record is not None and record.ahead

    def visit(self, host: str, patience: float) -> None:
        """Let one target follow the robots.txt of *host* that was just read, if the host is slow.

        *patience*: WALSH_PATIENCE, seconds.
        """
        record = self._record(host)
        interval = self.interval(host)
        if interval > patience:
            record.slow = True
            record.credit = visit_from(
                interval,
                patience,
                record.rested,
                record.last_end,
                record.visited_at,
                self.min_interval,
            )

    def held_until(self, host: str) -> float:
        """When the hold of *host* ends (R5), whatever its interval."""
        record = self._hosts.get(host)
        return UNSEEN if record is None else record.not_before

    def gave_back(self, host: str) -> None:
        """Note that the request to *host* was not sent after all."""
        self._record(host).in_flight = False

    def finished(
        self, host: str, now: float, *, exempt: bool = False, spacing: float | None = None
    ) -> None:
        """Note the end of the request to *host*.

        ``exempt``: it was the first robots.txt of a host never requested before, so one target
        may follow at once (T1). ``spacing``: seconds that the target must wait instead, with
        WALSH_PACE_ROBOTS: 1.0, not the Crawl-delay.
        """
        record = self._record(host)
        record.in_flight = False
        record.last_end = now
        record.credit = now + (spacing or 0.0) if exempt else None
        record.slow = False
        if record.ahead:
            record.visited_at = now

    def _spaced(self, record: _Host) -> float:
        """When the host is due without any exception."""
        return max(record.last_end + max(self.min_interval, record.interval), record.not_before)

    def _record(self, host: str) -> _Host:
        record = self._hosts.get(host)
        if record is None:
            record = self._hosts[host] = _Host()
        return record
