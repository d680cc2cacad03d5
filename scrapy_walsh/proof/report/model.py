"""What a report says of a run: frozen values, made of a ledger's lines. Pure.

Times are Unix seconds; exchanges have them by the clock that pacing goes by, everything else by
the wall clock (docs/ledger.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from scrapy_walsh.exceptions import WalshError
from scrapy_walsh.proof.report.entries import runs_of
from scrapy_walsh.proof.report.lanes import Drawing
from scrapy_walsh.proof.report.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy_walsh.findings import Finding
    from scrapy_walsh.proof.report.entries import Lines, Run
    from scrapy_walsh.proof.report.lanes import Column, Lane
    from scrapy_walsh.proof.report.tally import Document, Host, Rule

LAST: Final = "last"
ALL: Final = "all"


class NoRun(WalshError):
    """The ledger does not hold the run that was asked for."""


@dataclass(frozen=True, slots=True)
class Report:
    """A run, or all of a ledger's.

    ``runs``: those it is about; ``others``: how many more the ledger holds. ``kinds``: lines by
    kind; ``purposes``: exchanges by purpose. ``unread``: lines of a known kind that lack what
    that kind must have. ``count``: lines; ``first``: number of the first; ``head``: number and hash
    of the last; ``said``: the same as ``ledger.head`` has them, None without it. ``broken``: places
    where the chain does not hold, the first of them in ``breaks``; ``lost``: what the ledger itself
    says is missing; ``notes``: on the chain, and no breach. ``hosts``: all of them, those that
    matter most first; ``lanes``: those that are drawn. ``span``: seconds of the picture, from
    ``began``.
    """

    runs: tuple[Run, ...]
    others: int
    count: int
    first: int
    head: tuple[int, str] | None
    said: tuple[int, str] | None
    broken: int
    breaks: tuple[Finding, ...]
    lost: tuple[str, ...]
    notes: tuple[str, ...]
    began: float
    span: float
    kinds: Mapping[str, int]
    purposes: Mapping[str, int]
    unread: int
    overlaps: int
    hosts: tuple[Host, ...]
    decisions: Mapping[tuple[str, str, str], int]
    rules: tuple[Rule, ...]
    documents: tuple[Document, ...]
    lanes: tuple[Lane, ...]
    overview: tuple[Column, ...]

    @property
    def ended(self) -> float:
        """When the last thing in it happened."""
        return self.began + self.span

    def total(self, verdict: str) -> int:
        """Gaps of all hosts with that verdict."""
        return sum(host.gaps.get(verdict, 0) for host in self.hosts)


def build(lines: Lines, wanted: str = LAST, said: tuple[int, str] | None = None) -> Report:
    """The report on *wanted*: LAST (that has ended, if one has), ALL, or a run's name.

    Reads the lines three times: which runs, what happened, and what is drawn of it. NoRun.
    """
    runs = runs_of(lines)
    chosen = _chosen(runs, wanted)
    tally = Tally(runs, frozenset(run.name for run in chosen), said)
    for file, raw in lines():
        tally.take(file, raw)
    tally.end()
    if not (tally.chain.count or tally.broken):
        raise NoRun("the ledger is empty")
    hosts = tally.hosts()
    began, span = tally.extent()
    drawing = Drawing(tally.names, hosts, began, span)
    drawing.read(lines)
    return Report(
        chosen,
        len(runs) - len(chosen),
        tally.chain.count,
        tally.chain.first,
        tally.chain.head,
        said,
        tally.broken,
        tuple(tally.breaks),
        tuple(tally.lost),
        tuple(tally.notes),
        began,
        span,
        dict(tally.kinds),
        dict(tally.purposes),
        tally.unread,
        tally.overlaps,
        hosts,
        dict(tally.decisions),
        tally.rules(),
        tally.documents(began + span),
        drawing.lanes(),
        tuple(drawing.overview),
    )


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
