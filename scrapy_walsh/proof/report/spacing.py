"""R4 and R5 as the ledger has them: was a host left alone for as long as it had to be?

From the end of one exchange with a host to the start of the next, whichever runs they belong to:
at least a second, at least the host's ``interval`` (R4.3), at least what R5 asked for (D6). What
the interval should have been is not derived here: that is ``walsh verify``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from scrapy_walsh.policy.event import TARGET
from scrapy_walsh.policy.throttle import MIN_REQUEST_INTERVAL
from scrapy_walsh.proof.report.entries import number
from scrapy_walsh.proof.spacing import TWO_CLOCKS, is_short

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy_walsh.ledger.reading import Line
    from scrapy_walsh.proof.report.entries import Run

ROBOTS: Final = "robots"

KEPT: Final = "kept"
SHORT: Final = "too short"
EXEMPT: Final = "exempt"
UNCLEAR: Final = "not seen"


@dataclass(frozen=True, slots=True)
class Gap:
    """Two exchanges with a host, one after the other. Seconds.

    ``verdict``: KEPT, SHORT, EXEMPT (T1: the first robots.txt and its target), or UNCLEAR where
    lines are missing in between, or the clock was set back between two runs. ``held``: R5 asked
    for more than the spacing did. ``after_trouble``: R5 answers the earlier exchange. ``line``: of
    the later exchange.
    """

    seconds: float
    required: float
    verdict: str
    held: bool
    after_trouble: bool
    line: int

    @property
    def ratio(self) -> float:
        """How many times the required time it was."""
        return self.seconds / self.required


@dataclass(slots=True)
class _Last:
    ended: float
    until: float
    exempt: bool
    trouble: bool
    stretch: int
    run: str


@dataclass(slots=True)
class Spacing:
    """Takes the exchanges of all runs, in the order of the ledger."""

    runs: Mapping[str, Run]
    overlaps: int = 0
    _hosts: dict[str, _Last] = field(default_factory=dict)
    _busy: dict[str, float] = field(default_factory=dict)
    _stretch: int = 0

    def interrupted(self) -> None:
        """Lines are missing here: no gap over this place is known to have been kept."""
        self._stretch += 1

    def take(self, line: Line) -> Gap | None:
        """The gap before this exchange; None before the first that the ledger has of the host."""
        last = self._hosts.get(line.host)
        gap = None if last is None else self._gap(line, last)
        until = line.ended + (line.wait or 0.0)
        self._hosts[line.host] = _Last(
            line.ended,
            until if last is None else max(until, last.until),
            line.exempt and line.purpose == ROBOTS,
            line.wait is not None,
            self._stretch,
            line.run,
        )
        return gap

    def overlapping(self, line: Line) -> bool:
        """Whether it began while its process was still asking something (R4.1)."""
        run = self.runs.get(line.run)
        process = line.run if run is None else run.process
        before = self._busy.get(process)
        self._busy[process] = line.ended
        return before is not None and line.started < before - TWO_CLOCKS

    def _gap(self, line: Line, last: _Last) -> Gap:
        seconds = line.started - last.ended
        floor, exempt = self._floor(line, last)
        hold = last.until - last.ended
        required = max(floor, hold)
        return Gap(
            seconds,
            required if required > 0 else MIN_REQUEST_INTERVAL,
            self._verdict(line, seconds, required, last, exempt=exempt),
            hold > floor,
            last.trouble,
            line.n,
        )

    def _verdict(
        self, line: Line, seconds: float, required: float, last: _Last, *, exempt: bool
    ) -> str:
        run = self.runs.get(last.run)
        set_back = seconds < 0 and last.run != line.run and run is not None
        if set_back and run is not None and run.ended is not None:
            return UNCLEAR
        if is_short(seconds, required, TWO_CLOCKS):
            return SHORT
        if last.stretch != self._stretch:
            return UNCLEAR
        return EXEMPT if exempt else KEPT

    def _floor(self, line: Line, last: _Last) -> tuple[float, bool]:
        """Seconds that R4 asks for, and whether T1 exempts this exchange from more."""
        interval = max(MIN_REQUEST_INTERVAL, line.interval)
        if not (last.exempt and line.purpose == TARGET):
            return interval, False
        run = self.runs.get(line.run)
        if run is not None and run.setting("pace_robots") is True:
            return number(run.terms["settings"], "min_interval") or MIN_REQUEST_INTERVAL, False
        return 0.0, True
