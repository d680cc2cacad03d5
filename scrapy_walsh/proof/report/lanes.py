"""What the picture of a run shows: a lane for each of the most telling hosts. Pure.

A lane has a mark for each exchange with its host and each decision about it. A host with more than
EXACT marks is drawn in COLUMNS columns of equal time instead, each with the numbers of its marks.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from scrapy_walsh.exceptions import WalshError
from scrapy_walsh.ledger.files import parsed
from scrapy_walsh.policy.event import ASKED
from scrapy_walsh.policy.times import iso
from scrapy_walsh.proof.ledger import line_of
from scrapy_walsh.proof.report.entries import runs_of
from scrapy_walsh.proof.report.tally import DRAWN_KINDS, SHORT, Tally

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scrapy_walsh.proof.ledger import Line
    from scrapy_walsh.proof.report.entries import Lines, Run
    from scrapy_walsh.proof.report.history import History
    from scrapy_walsh.proof.report.tally import Host

#: How many hosts are drawn at most.
DRAWN: Final = 24
#: How many marks of a host are drawn one by one at most.
EXACT: Final = 120
#: How many columns a host with more marks has.
COLUMNS: Final = 60

#: The kinds of marks that are exchanges: their purposes.
EXCHANGES: Final = ("target", "robots", "operator")
#: The kinds of marks that are decisions.
POINTS: Final = tuple(kind for kind in DRAWN_KINDS if kind != ASKED)
#: The key under which a column counts its exchanges after which R5 held the host.
TROUBLE: Final = "trouble"
#: Characters kept of a URL or a reason.
_LONGEST: Final = 600


@dataclass(frozen=True, slots=True)
class Mark:
    """An exchange (``kind``: one of EXCHANGES), or a decision (``kind``: one of POINTS).

    ``line``: its number in the ledger. ``at``, ``until``: when it began and ended, in seconds from
    the picture's start, as are ``spaced`` and ``held``: until when the host had to be left alone
    after it, by R4's interval and by R5's hold. ``answer``: its status, in words if there is none.
    ``trouble``: R5 held the host after it. ``gap``: seconds since the end of the host's previous
    exchange. ``short``: that was less than required. ``note``: a decision's reason.
    """

    kind: str
    line: int
    at: float
    until: float
    url: str
    answer: str = ""
    trouble: bool = False
    spaced: float = 0.0
    held: float | None = None
    gap: float | None = None
    short: bool = False
    note: str = ""


@dataclass(slots=True)
class Column:
    """A part of the time: from ``at`` to ``until``, in seconds from the picture's start.

    ``counts``: marks by kind, and exchanges under TROUBLE and SHORT.
    """

    at: float
    until: float
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def requests(self) -> int:
        """The number of exchanges."""
        return sum(self.counts[kind] for kind in EXCHANGES)


@dataclass(slots=True)
class Lane:
    """A host's picture: ``marks``, or where there are too many of them, ``columns``.

    ``short``: the numbers of the lines whose gap was too short. ``last``: when the last exchange
    ended, in seconds from the picture's start.
    """

    host: Host
    marks: list[Mark] = field(default_factory=list)
    columns: list[Column] = field(default_factory=list)
    short: frozenset[int] = frozenset()
    last: float | None = None


@dataclass(slots=True)
class Drawing:
    """Collects the lanes.

    ``names``: the runs that are drawn. ``hosts``: those of the tally, the most telling first.
    ``began``: the picture's start, Unix seconds. ``span``: its length, seconds.
    """

    names: frozenset[str]
    hosts: Sequence[Host]
    began: float
    span: float
    _lanes: dict[str, Lane] = field(init=False)

    def __post_init__(self) -> None:
        self._lanes = {host.name: self._lane(host) for host in _drawn(self.hosts)}

    def read(self, lines: Lines) -> None:
        """Take in the lines of the chosen runs."""
        needle = b'"run":'
        if len(self.names) == 1:
            needle += json.dumps(next(iter(self.names))).encode("ascii")
        for _, raw in lines():
            if needle in raw:
                self._take(raw.removesuffix(b"\n"))

    def lanes(self) -> tuple[Lane, ...]:
        """The lanes: hosts with a gap that was too short first, then by their first request."""
        return tuple(
            sorted(
                self._lanes.values(), key=lambda lane: (not lane.host.gaps[SHORT], lane.host.first)
            )
        )

    def _lane(self, host: Host) -> Lane:
        lines = frozenset(gap.line for gap in host.short)
        return Lane(host, columns=_columns(self.span) if host.marks > EXACT else [], short=lines)

    def _take(self, raw: bytes) -> None:
        try:
            line = line_of(parsed(raw))
        except (ValueError, RecursionError):
            return  # a damaged line, which the hash chain reports
        if line.run not in self.names:
            return
        lane = self._lanes.get(line.host)
        if line.kind == ASKED:
            self._put(lane, _exchange(line, self.began))
        elif line.kind in POINTS and lane is not None:
            self._put(lane, _point(line, self.began, self.span))

    def _put(self, lane: Lane | None, mark: Mark) -> None:
        if lane is None:
            return
        if lane.columns:
            self._count(lane.columns, replace(mark, short=mark.line in lane.short))
        else:
            lane.marks.append(mark if mark.kind in POINTS else _placed(lane, mark))

    def _count(self, columns: list[Column], mark: Mark) -> None:
        place = min(max(int(mark.at / self.span * COLUMNS), 0), COLUMNS - 1)
        counts = columns[place].counts
        counts[mark.kind] += 1
        counts[TROUBLE] += mark.trouble
        counts[SHORT] += mark.short


def _drawn(hosts: Sequence[Host]) -> list[Host]:
    """The hosts to draw: all with a gap that was too short, as far as there is room.

    Of the room that is left, up to half is for hosts with a back-off, the rest for those with the
    most requests.
    """
    short = [host for host in hosts if host.gaps[SHORT]][:DRAWN]
    rest = sorted(hosts[len(short) :], key=lambda host: (-host.requests, -host.marks))
    troubled = [host for host in rest if host.troubles][: (DRAWN - len(short)) // 2]
    chosen = {host.name: host for host in (*short, *troubled, *rest)}
    return list(chosen.values())[:DRAWN]


def _columns(span: float) -> list[Column]:
    width = span / COLUMNS
    return [Column(place * width, (place + 1) * width) for place in range(COLUMNS)]


def _exchange(line: Line, began: float) -> Mark:
    end = line.ended - began
    return Mark(
        line.purpose if line.purpose in EXCHANGES else EXCHANGES[0],
        line.n,
        line.started - began,
        end,
        line.url[:_LONGEST],
        _answer(line),
        line.wait is not None,
        end if line.exempt else end + line.interval,
        None if line.wait is None else end + line.wait,
        note="first robots.txt: one target may follow at once" if line.exempt else "",
    )


def _answer(line: Line) -> str:
    if not line.answered:
        return "broken off"
    return "no answer" if line.status is None else str(line.status)


def _point(line: Line, began: float, span: float) -> Mark:
    at = min(max(line.at - began, 0.0), span)
    note = line.reason[:_LONGEST]
    return Mark(line.kind, line.n, at, at, line.url[:_LONGEST], note=note)


def _placed(lane: Lane, mark: Mark) -> Mark:
    """*mark*, with the time since the previous exchange of its lane."""
    gap = None if lane.last is None else mark.at - lane.last
    lane.last = mark.until
    return replace(mark, gap=gap, short=mark.line in lane.short)


# What a report says about a run, as values, and how they are made from a ledger's lines. Pure.
#
# Times are Unix seconds. Those of exchanges are by the steady clock (D9), all others by the wall
# clock (docs/ledger.md).

#: Values of ``--run`` beside the name of a run.
LAST: Final = "last"
ALL: Final = "all"


class NoRun(WalshError):
    """The ledger does not have the run that was named, or has none."""


@dataclass(slots=True)
class Report(Tally):
    """What a ledger says about one run, or about all of its runs.

    ``lanes``: the hosts that are drawn.
    """

    lanes: tuple[Lane, ...] = ()


def build(
    lines: Lines,
    wanted: str = LAST,
    said: tuple[int, str] | None = None,
    history: History | None = None,
) -> Report:
    """The report on *wanted*: ALL runs, the run of that name, or the LAST one that has ended.

    With a *history*: on those that began in its days.

    Where no run has ended, LAST is the one that began last. *said*: number and hash of the last
    line, from ``ledger.head``. Raises NoRun.

    The lines are read three times, so that a large ledger never has to be in memory: for the runs,
    for what happened, and for what is drawn, since the most telling hosts must be known by then.
    """
    runs = runs_of(lines)
    chosen = _chosen(runs, wanted) if history is None else _since(runs, history.began)
    report = Report(runs, chosen, said, history=history)
    for file, raw in lines():
        report.take(file, raw)
    report.end()
    if not (report.chain.count or report.broken):
        raise NoRun("the ledger is empty")
    if history is not None:
        return report
    drawing = Drawing(report.names, report.hosts, report.began, report.span)
    drawing.read(lines)
    report.lanes = drawing.lanes()
    return report


def _since(runs: Mapping[str, Run], began: float) -> tuple[Run, ...]:
    found = tuple(run for run in runs.values() if run.began >= began)
    if not found:
        last = iso(max((run.began for run in runs.values()), default=0.0))
        raise NoRun(f"no run began in these days; the last one of this ledger began at {last}")
    return found


def _chosen(runs: Mapping[str, Run], wanted: str) -> tuple[Run, ...]:
    if wanted == ALL:
        return tuple(runs.values())
    if wanted in runs:
        return (runs[wanted],)
    if wanted != LAST:
        known = ", ".join(list(runs)[-5:]) or "none"
        raise NoRun(f"no run {wanted!r} begins in this ledger; its last ones: {known}")
    if not runs:
        raise NoRun("no run begins in this ledger; see --run all")
    ended = [run for run in runs.values() if run.ended is not None]
    return ((ended or list(runs.values()))[-1],)
