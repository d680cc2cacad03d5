"""The findings at the head of a report: which promises the ledger shows to hold. Pure.

The outcome of each is HELD, BROKEN, or UNSEEN where the ledger does not show it either way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from scrapy_walsh.policy.event import REFUSED
from scrapy_walsh.policy.times import duration
from scrapy_walsh.policy.words import plural
from scrapy_walsh.proof.findings import Finding, Outcome
from scrapy_walsh.proof.report.tally import EXEMPT, KEPT, SHORT, UNCLEAR
from scrapy_walsh.proof.report.words import cut

if TYPE_CHECKING:
    from scrapy_walsh.proof.report.lanes import Report
    from scrapy_walsh.proof.report.sources import Sources


#: An outcome and the reason for it; None where there is nothing to say.
_Judged: TypeAlias = tuple[Outcome, str] | None


def findings(report: Report) -> list[Finding]:
    """The findings, in the order of the page; ``rule``: of a promise to the sites, R4 or R5."""
    judged = (
        ("R4", "Each host was left alone as long as it had to be (R4, R5)", _spacing(report)),
        ("R4", "One request at a time in a process (R4)", _serial(report)),
        ("R5", "After 429, 503 or no answer the host was left alone (R5)", _backoff(report)),
        ("chain", "The ledger's lines are chained, to its end", _chain(report)),
        ("chain", "Nothing is left out of the ledger", _lost(report)),
        ("run", "The run came to its end", _unended(report)),
    )
    return [Finding(it[0], rule, what, it[1]) for rule, what, it in judged if it]


def verdict(report: Report, found: list[Finding], sources: Sources | None) -> str:
    """The head of a page in one sentence: first the sources, then the promises to their sites."""
    promises = [each for each in found if each.rule in ("R4", "R5")]
    seen = [each for each in promises if each.outcome is not Outcome.UNSEEN]
    kept = sum(each.outcome is Outcome.HELD for each in seen)
    parts = [
        str(sources or ""),
        f"{kept} of {plural(len(seen), 'promise')} to their sites kept" if seen else "",
        plural(sum(report.purposes.values()), "request"),
        f"{report.kinds.get(REFUSED, 0):,} refused",
        f"{short:,} too early" if (short := report.total(SHORT)) else "none too early",
    ]
    return "; ".join(filter(None, [parts[0], ", ".join(filter(None, parts[1:]))]))


def _chain(report: Report) -> _Judged:
    if report.broken:
        first = report.breaks[0]
        more = f", and {report.broken - 1:,} more" if report.broken > 1 else ""
        return Outcome.BROKEN, f"line {first.line:,}: {first.text}{more}"
    gone = "" if report.chain.first == 1 else "; the lines before are no longer kept"
    last = 0 if report.chain.head is None else report.chain.head[0]
    lines = f"lines {report.chain.first:,} to {last:,}, each to the one before{gone}"
    if report.said is None:
        return Outcome.UNSEEN, f"{lines}; without ledger.head nothing says where it ends"
    return Outcome.HELD, "; ".join([lines, *report.notes])


def _lost(report: Report) -> _Judged:
    if not report.lost:
        return None
    more = f"; and {len(report.lost) - 1:,} more such places" if len(report.lost) > 1 else ""
    return Outcome.UNSEEN, f"it says itself: {cut(report.lost[0], 200)}{more}"


def _spacing(report: Report) -> _Judged:
    short, kept = report.total(SHORT), report.total(KEPT)
    besides = ""
    if exempt := report.total(EXEMPT):
        found = plural(exempt, "first robots.txt", "first robots.txt")
        besides += f"; {found} with its target, exempt"
    if unclear := report.total(UNCLEAR):
        besides += f"; {unclear:,} over missing lines, not seen"
    if short:
        host = next(host for host in report.hosts if host.short)
        gap, of = host.short[0], plural(short + kept, "gap")
        took, need = duration(gap.seconds), duration(gap.required)
        return Outcome.BROKEN, (
            f"{short:,} of {of} too short, the first at line {gap.line:,}: {cut(host.name, 60)} "
            f"requested after {took}, {need} required{besides}"
        )
    if not kept:
        return Outcome.UNSEEN, f"no host was requested twice{besides}"
    closest = min(host.closest.ratio for host in report.hosts if host.closest is not None)
    why = f"{plural(kept, 'gap')}, the closest {closest:.3f} times the required one{besides}"
    return Outcome.HELD, why


def _serial(report: Report) -> _Judged:
    asked = sum(report.purposes.values())
    if report.overlaps:
        return (
            Outcome.BROKEN,
            f"{plural(report.overlaps, 'request')} began before another had ended",
        )
    if asked < 2:
        return Outcome.UNSEEN, plural(asked, "request")
    whole = " in the lines that are whole" if report.broken else ""
    outcome = Outcome.UNSEEN if report.broken else Outcome.HELD
    return outcome, f"{plural(asked, 'request')}{whole}, none while another was under way"


def _backoff(report: Report) -> _Judged:
    troubles = sum(host.troubles for host in report.hosts)
    if not troubles:
        return Outcome.UNSEEN, "no such answer came"
    early = sum(gap.after_trouble for host in report.hosts for gap in host.short)
    came = f"{plural(troubles, 'such answer')} came"
    if early:
        return Outcome.BROKEN, f"{plural(early, 'request')} too early after one; {came}"
    followed = sum(host.left_alone for host in report.hosts)
    if not followed:
        return Outcome.UNSEEN, f"{came}, and no request after it"
    return Outcome.HELD, f"{plural(followed, 'request')} after one, none too early; {came}"


def _unended(report: Report) -> _Judged:
    names = cut(", ".join(run.name for run in report.runs if run.ended is None), 80)
    return (Outcome.UNSEEN, f"no line says so of {names}") if names else None
