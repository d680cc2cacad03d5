"""The texts and tables of a page's sections that are too much work for a template. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

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


def marks(lanes: Sequence[Lane]) -> list[Lane | Mark | Column]:
    """The rows of the timeline's table: each lane, then its marks, or columns."""
    found: list[Lane | Mark | Column] = []
    for lane in lanes:
        found += [lane, *lane.marks, *(each for each in lane.columns if each.counts.total())]
    return found


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
