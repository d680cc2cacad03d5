"""The texts and tables of a page's sections that are too much work for a template. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from scrapy_walsh.policy import event as events
from scrapy_walsh.policy.times import duration
from scrapy_walsh.policy.words import plural
from scrapy_walsh.proof.report.lanes import POINTS, Column, Lane, Mark
from scrapy_walsh.proof.report.tally import SHORT
from scrapy_walsh.proof.report.words import WORDS, instant
from scrapy_walsh.spec import REQUIREMENTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy_walsh.proof.report.lanes import Report
    from scrapy_walsh.proof.report.tally import Rule

_IDS: Final = tuple(requirement.id for requirement in REQUIREMENTS)
_KINDS: Final = tuple(WORDS)


# -- host by host -------------------------------------------------------------------------


class Row(NamedTuple):
    """A row of the timeline's table: a host's name, or one of its marks or columns."""

    lane: Lane | None = None
    mark: Mark | None = None
    column: Column | None = None


def marks(lanes: Sequence[Lane]) -> list[Row]:
    """The rows of the timeline's table: all marks and columns that are drawn, host by host."""
    found = []
    for lane in lanes:
        found.append(Row(lane=lane))
        found += [Row(mark=mark) for mark in lane.marks]
        found += [Row(column=column) for column in lane.columns if column.counts.total()]
    return found


def undrawn(report: Report) -> str:
    """A sentence on the hosts that have no lane: how many they are, and what happened to them."""
    drawn = {lane.host.name for lane in report.lanes}
    others = [host for host in report.hosts if host.name not in drawn]
    requests = sum(host.requests for host in others)
    troubles = sum(host.troubles > 0 for host in others)
    short = sum(host.gaps[SHORT] > 0 for host in others)
    return (
        f"{len(drawn)} of {plural(len(report.hosts), 'host')} are drawn: those requested too "
        f"early, those backed off from, and those requested most. The other {len(others):,} got "
        f"{plural(requests, 'request')}; {troubles:,} of them were backed off from, {short:,} "
        "requested too early."
    )


def about(lane: Lane) -> str:
    """The text beside a host's lane."""
    host = lane.host
    parts = [plural(host.requests, "request") if host.requests else "never requested"]
    if host.interval > 0:
        parts.append(f"every {duration(host.interval)}")
    if lane.columns:
        most = max(column.requests for column in lane.columns)
        parts.append(f"up to {most:,} a column")
    if host.until is not None and host.counts[events.DEFERRED]:
        parts.append(f"hold to {instant(host.until, '%d %b %H:%M')}")
    return " · ".join(parts)


def alone(mark: Mark) -> str:
    """How long the host had to be left alone after an exchange, and by which requirement."""
    found = [f"{duration(mark.spaced - mark.until)} (R4)"] if mark.spaced > mark.until else []
    found += [] if mark.held is None else [f"{duration(mark.held - mark.until)} (R5)"]
    return ", ".join(found)


def points(column: Column) -> str:
    """The decisions that a column stands for, and how many of its requests were too early."""
    counts = column.counts
    found = [f"{counts[kind]:,} {WORDS[kind]}" for kind in POINTS if counts[kind]]
    found += [f"{counts[SHORT]:,} requested too early"] if counts[SHORT] else []
    return ", ".join(found)


# -- rules ------------------------------------------------------------------------------


def rules(report: Report) -> list[Rule]:
    """What refused, deferred or gave up targets: by requirement, the most frequent first."""
    return sorted(
        report.rules, key=lambda rule: (_place(rule.of.requirement, rule.of.kind), -rule.count)
    )


def _place(requirement: str, kind: str) -> tuple[int, int]:
    """A key to sort by: the order of the specification, then that of ``words.WORDS``."""
    known = _IDS.index(requirement) if requirement in _IDS else len(_IDS)
    return known, _KINDS.index(kind) if kind in _KINDS else len(_KINDS)
