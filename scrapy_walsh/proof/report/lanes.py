"""What the picture of a run shows: a lane for each of the most telling hosts. Pure.

A lane has a mark for each exchange with its host and each decision about it. Of a host with more
than EXACT marks, those alike that fall into the same of COLUMNS equal parts of the time are one.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.exceptions import WalshError
from scrapy_walsh.ledger.files import parsed
from scrapy_walsh.policy.event import ASKED
from scrapy_walsh.policy.times import iso
from scrapy_walsh.proof.ledger import line_of
from scrapy_walsh.proof.report.entries import runs_of
from scrapy_walsh.proof.report.tally import DRAWN_KINDS, SHORT, Tally

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy_walsh.proof.ledger import Line
    from scrapy_walsh.proof.report.entries import Lines, Run
    from scrapy_walsh.proof.report.history import History
    from scrapy_walsh.proof.report.tally import Host

#: How many hosts are drawn at most.
DRAWN: Final = 24
#: How many marks of a host are drawn one by one at most.
EXACT: Final = 120
#: Into how many parts the time of a host with more marks is divided.
COLUMNS: Final = 60

#: The kinds of marks that are exchanges: their purposes.
EXCHANGES: Final = ("target", "robots", "operator")
#: The kinds of marks that are decisions.
POINTS: Final = tuple(kind for kind in DRAWN_KINDS if kind != ASKED)
#: Characters kept of a URL or a reason.
_LONGEST: Final = 600


@dataclass(frozen=True, slots=True)
class Mark:
    """An exchange (``kind``: one of EXCHANGES), or a decision (``kind``: one of POINTS).

    ``line``: its number in the ledger. ``at``, ``until``: when it began and ended, in seconds from
    the picture's start, as are ``spaced`` and ``held``: until when the host had to be left alone
    after it, by R4's interval and by R5's hold. ``answer``: its status, in words if there is none.
    ``trouble``: R5 held the host after it. ``gap``: seconds since the end of the host's previous
    exchange. ``short``: that was less than required. ``note``: a decision's reason. ``more``: how
    many others like it are not drawn, since they are near.
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
    more: int = 0


@dataclass(slots=True)
class Lane:
    """A host's picture. ``last``: when its last exchange ended, in seconds from the start."""

    host: Host
    last: float | None = None
    _marks: dict[Any, Mark] = field(default_factory=dict)

    @property
    def marks(self) -> list[Mark]:
        """What is drawn, in the order of the ledger."""
        return list(self._marks.values())

    def add(self, mark: Mark, span: float) -> None:
        """Draw *mark*, or count it with one like it. *span*: seconds that the picture shows."""
        if mark.kind in EXCHANGES:
            gap = None if self.last is None else mark.at - self.last
            short = any(each.line == mark.line for each in self.host.short)
            mark, self.last = replace(mark, gap=gap, short=short), mark.until
        alike: Any = mark.line
        if self.host.marks > EXACT:  # what is broken, or was held, is never counted with others
            alike = int(mark.at / span * COLUMNS), mark.kind, mark.trouble, mark.short
        first = self._marks.get(alike)
        self._marks[alike] = mark if first is None else replace(first, more=first.more + 1)


def _lanes(lines: Lines, report: Report) -> tuple[Lane, ...]:
    """The lanes: hosts with a gap that was too short first, then by their first request."""
    lanes = {host.name: Lane(host) for host in report.hosts[:DRAWN]}
    needle = b'"run":'
    if len(report.names) == 1:
        needle += json.dumps(next(iter(report.names))).encode("ascii")
    for raw in (raw for _, raw in lines() if needle in raw):
        with suppress(ValueError, RecursionError):  # a damaged line, which the hash chain reports
            line = line_of(parsed(raw.removesuffix(b"\n")))
            if line.run in report.names and line.host in lanes and line.kind in DRAWN_KINDS:
                mark = _exchange if line.kind == ASKED else _point
                lanes[line.host].add(mark(line, report), report.span)
    return tuple(
        sorted(lanes.values(), key=lambda lane: (not lane.host.gaps[SHORT], lane.host.first))
    )


def _exchange(line: Line, report: Report) -> Mark:
    end = line.ended - report.began
    return Mark(
        line.purpose if line.purpose in EXCHANGES else EXCHANGES[0],
        line.n,
        line.started - report.began,
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


def _point(line: Line, report: Report) -> Mark:
    at = min(max(line.at - report.began, 0.0), report.span)
    note = line.reason[:_LONGEST]
    return Mark(line.kind, line.n, at, at, line.url[:_LONGEST], note=note)


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
    report.lanes = _lanes(lines, report)
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
