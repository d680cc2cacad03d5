"""What a report says about a run, as values, and how they are made from a ledger's lines. Pure.

Times are Unix seconds. Those of exchanges are by the steady clock (D9), all others by the wall
clock (docs/ledger.md).
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

#: Values of ``--run`` beside the name of a run.
LAST: Final = "last"
ALL: Final = "all"


class NoRun(WalshError):
    """The ledger does not have the run that was named, or has none."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a ledger says about one run, or about all of its runs.

    ``runs``: those that it is about; ``others``: how many more the ledger has.

    Of the whole ledger: ``count``: its lines. ``first``: the number of the first. ``head``: number
    and hash of the last. ``said``: the same as the file ``ledger.head`` has them, None without that
    file. ``broken``: the number of places where the hash chain breaks, with the first of them in
    ``breaks``. ``lost``: what the ledger itself says is missing. ``notes``: remarks on the chain
    that are not breaches.

    Of the runs: ``began``: their start, Unix seconds. ``span``: their length, seconds. ``kinds``:
    number of lines by kind. ``purposes``: number of exchanges by purpose. ``unread``: the number of
    lines that lack what their kind must have. ``overlaps``: the number of exchanges that began
    while another of their process was under way (R4.1). ``hosts``: all hosts, the most telling
    first. ``decisions``: numbers by (requirement, kind, verdict). ``lanes``: the hosts that are
    drawn. ``overview``: the columns of all hosts together.
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
        """When the last thing in it happened, Unix seconds."""
        return self.began + self.span

    def total(self, verdict: str) -> int:
        """The number of gaps with that verdict (``spacing.KEPT`` and so on), of all hosts."""
        return sum(host.gaps.get(verdict, 0) for host in self.hosts)


def build(lines: Lines, wanted: str = LAST, said: tuple[int, str] | None = None) -> Report:
    """The report on *wanted*: ALL runs, the run of that name, or the LAST one that has ended.

    Where no run has ended, LAST is the one that began last. *said*: number and hash of the last
    line, from ``ledger.head``. Raises NoRun.

    The lines are read three times, so that a large ledger never has to be in memory: for the runs,
    for what happened, and for what is drawn, since the most telling hosts must be known by then.
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
