"""R4 and R5 by the ledger: was each host left alone for as long as it had to be? Pure.

A gap is the time from the end of one exchange with a host to the start of the next, whichever runs
they belong to. It must be at least a second, at least the host's ``interval`` (R4.3), and at least
R5's hold (D6). Interval and hold are taken from the exchanges' lines: whether those follow from
robots.txt and from the answers is what ``walsh verify`` checks.
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

#: The purpose of an exchange for a robots.txt.
ROBOTS: Final = "robots"

#: The verdicts on a gap.
KEPT: Final = "kept"
SHORT: Final = "too short"
EXEMPT: Final = "exempt"
UNCLEAR: Final = "not seen"


@dataclass(frozen=True, slots=True)
class Gap:
    """The time between two exchanges with a host that follow each other.

    ``seconds``: how long it was; ``required``: how long it had to be, in seconds. ``verdict``:
    KEPT, SHORT, EXEMPT (between the first robots.txt and its target, T1), or UNCLEAR where lines
    are missing in between, or the clock was set back between two runs. ``held``: R5 required more
    than R4. ``after_trouble``: R5 held the host after the earlier exchange. ``line``: the number of
    the later exchange's line.
    """

    seconds: float
    required: float
    verdict: str
    held: bool
    after_trouble: bool
    line: int

    @property
    def ratio(self) -> float:
        """Its length, as a multiple of what was required."""
        return self.seconds / self.required


@dataclass(slots=True)
class _Last:
    """A host's last exchange.

    ``until``: the end of all of R5's holds so far. ``stretch``: see ``Spacing._stretch``.
    """

    ended: float
    until: float
    exempt: bool
    trouble: bool
    stretch: int
    run: str


@dataclass(slots=True)
class Spacing:
    """Takes the exchanges of all runs, in the order of the ledger. ``runs``: the runs by name."""

    runs: Mapping[str, Run]
    _hosts: dict[str, _Last] = field(default_factory=dict)
    #: By process, the end of its last exchange.
    _busy: dict[str, float] = field(default_factory=dict)
    #: The number of places so far at which lines are missing.
    _stretch: int = 0

    def interrupted(self) -> None:
        """Note that lines are missing here: a gap across this place cannot be shown to be kept."""
        self._stretch += 1

    def take(self, line: Line) -> Gap | None:
        """The gap before the exchange *line*; None if it is its host's first in the ledger."""
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
        """Whether the exchange began before its process's previous one had ended (R4.1)."""
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
        """Seconds that R4 requires, and whether T1 exempts this exchange from them."""
        interval = max(MIN_REQUEST_INTERVAL, line.interval)
        if not (last.exempt and line.purpose == TARGET):
            return interval, False
        run = self.runs.get(line.run)
        if run is not None and run.setting("pace_robots") is True:
            return number(run.terms["settings"], "min_interval") or MIN_REQUEST_INTERVAL, False
        return 0.0, True
