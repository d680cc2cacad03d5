"""The findings at the head of a report: which promises the ledger shows to hold. Pure.

The outcome of each is HELD, BROKEN, or UNSEEN where the ledger does not show it either way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.config import DEFAULTS
from scrapy_walsh.findings import Finding, Outcome
from scrapy_walsh.policy.event import REFUSED
from scrapy_walsh.policy.identity import WALSH_RESEARCH
from scrapy_walsh.policy.times import duration
from scrapy_walsh.policy.words import plural
from scrapy_walsh.proof.report.entries import text
from scrapy_walsh.proof.report.tally import EXEMPT, KEPT, SHORT, UNCLEAR
from scrapy_walsh.proof.report.words import cut

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy_walsh.proof.report.entries import Run, Sources
    from scrapy_walsh.proof.report.lanes import Report


def findings(report: Report, sources: Sources | None) -> list[Finding]:
    """The findings, in the order of the page. *sources*: the run's source report, if any."""
    found = [_chain(report), *_lost(report), _spacing(report), _serial(report), _backoff(report)]
    found += [] if sources is None else [_agreement(report, sources)]
    return found + list(_unended(report))


def verdict(report: Report, found: list[Finding]) -> str:
    """The head of a page in one sentence: how many promises of *found* hold, and what was done."""
    seen = [each for each in found if each.outcome is not Outcome.UNSEEN]
    kept = sum(each.outcome is Outcome.HELD for each in seen)
    unseen = len(found) - len(seen)
    short = report.total(SHORT)
    parts = [
        f"{kept} of {plural(len(seen), 'promise')} kept",
        f"{unseen} not seen" if unseen else "",
        plural(sum(report.purposes.values()), "request"),
        f"{report.kinds.get(REFUSED, 0):,} refused",
        f"{short:,} too early" if short else "none too early",
    ]
    return ", ".join(filter(None, parts))


def _finding(outcome: Outcome, promise: str, why: str) -> Finding:
    return Finding(outcome, about=promise, text=why)


def _chain(report: Report) -> Finding:
    what = "The ledger's lines are chained, to its end"
    if report.broken:
        first = report.breaks[0]
        more = f", and {report.broken - 1:,} more" if report.broken > 1 else ""
        return _finding(Outcome.BROKEN, what, f"line {first.line:,}: {first.text}{more}")
    gone = "" if report.chain.first == 1 else "; the lines before are no longer kept"
    last = 0 if report.chain.head is None else report.chain.head[0]
    lines = f"lines {report.chain.first:,} to {last:,}, each to the one before{gone}"
    if report.said is None:
        why = f"{lines}; without ledger.head nothing says where it ends"
        return _finding(Outcome.UNSEEN, what, why)
    return _finding(Outcome.HELD, what, "; ".join([lines, *report.notes]))


def _lost(report: Report) -> Iterator[Finding]:
    lost = report.lost
    if lost:
        more = f"; and {len(lost) - 1:,} more such places" if len(lost) > 1 else ""
        what = "Nothing is left out of the ledger"
        yield _finding(Outcome.UNSEEN, what, f"it says itself: {cut(lost[0], 200)}{more}")


def _spacing(report: Report) -> Finding:
    what = "Each host was left alone as long as it had to be (R4, R5)"
    short, kept = report.total(SHORT), report.total(KEPT)
    exempt, unclear = report.total(EXEMPT), report.total(UNCLEAR)
    rest = [
        f"{plural(exempt, 'first robots.txt', 'first robots.txt')} with its target, exempt"
        if exempt
        else "",
        f"{unclear:,} over missing lines, not seen" if unclear else "",
    ]
    besides = "".join(f"; {each}" for each in rest if each)
    if short:
        host = next(host for host in report.hosts if host.short)
        gap = host.short[0]
        return _finding(
            Outcome.BROKEN,
            what,
            f"{short:,} of {plural(short + kept, 'gap')} too short, the first at line"
            f" {gap.line:,}: {cut(host.name, 60)} requested after {duration(gap.seconds)},"
            f" {duration(gap.required)} required{besides}",
        )
    if not kept:
        return _finding(Outcome.UNSEEN, what, f"no host was requested twice{besides}")
    closest = min(host.closest.ratio for host in report.hosts if host.closest is not None)
    return _finding(
        Outcome.HELD,
        what,
        f"{plural(kept, 'gap')}, the closest {closest:.3f} times the required one{besides}",
    )


def _serial(report: Report) -> Finding:
    what = "One request at a time in a process (R4)"
    asked = sum(report.purposes.values())
    if report.overlaps:
        return _finding(
            Outcome.BROKEN,
            what,
            f"{plural(report.overlaps, 'request')} began before another had ended",
        )
    if asked < 2:
        return _finding(Outcome.UNSEEN, what, plural(asked, "request"))
    if report.broken:
        seen = f"{plural(asked, 'request')} in the lines that are whole, none while another was"
        return _finding(Outcome.UNSEEN, what, f"{seen} under way")
    return _finding(
        Outcome.HELD, what, f"{plural(asked, 'request')}, none while another was under way"
    )


def _backoff(report: Report) -> Finding:
    what = "After 429, 503 or no answer the host was left alone (R5)"
    troubles = sum(host.troubles for host in report.hosts)
    if not troubles:
        return _finding(Outcome.UNSEEN, what, "no such answer came")
    early = sum(gap.after_trouble for host in report.hosts for gap in host.short)
    came = f"{plural(troubles, 'such answer')} came"
    if early:
        return _finding(
            Outcome.BROKEN, what, f"{plural(early, 'request')} too early after one; {came}"
        )
    followed = sum(host.left_alone for host in report.hosts)
    if not followed:
        return _finding(Outcome.UNSEEN, what, f"{came}, and no request after it")
    return _finding(
        Outcome.HELD, what, f"{plural(followed, 'request')} after one, none too early; {came}"
    )


def _agreement(report: Report, sources: Sources) -> Finding:
    what = "Source report and ledger count the same requests"
    asked = sum(report.purposes.values())
    if sources.requests is None:
        return _finding(Outcome.UNSEEN, what, "the source report does not count them")
    if sources.requests != asked:
        return _finding(
            Outcome.BROKEN,
            what,
            f"{sources.requests:,} in the report, {asked:,} in the ledger: is it of this run?",
        )
    return _finding(Outcome.HELD, what, f"{plural(asked, 'request')} in both")


def _unended(report: Report) -> Iterator[Finding]:
    open_ = [run.name for run in report.runs if run.ended is None]
    if open_:
        names = cut(", ".join(open_), 80)
        yield _finding(Outcome.UNSEEN, "The run came to its end", f"no line says so of {names}")


# -- settings -----------------------------------------------------------------------------

#: The settings whose names in a line ``started`` are not their own in lower case.
_NAMES: Final = {"shared": "WALSH_SHARED_STATE"}
#: What such a line has beside settings: it follows from them (D13, D28).
_DERIVED: Final = frozenset({"silent_attempts", "longest_learned"})


def other_than_default(run: Run) -> list[tuple[str, str]]:
    """The settings of a run that differ from their defaults: (name, value as text)."""
    found = [(_NAMES.get(name, f"WALSH_{name.upper()}"), value) for name, value in _settings(run)]
    changed = [(name, _shown(value)) for name, value in found if not _is_default(name, value)]
    return [*_mirrors(run), *changed]


def _settings(run: Run) -> list[tuple[str, Any]]:
    settings = run.terms.get("settings")
    found = settings.items() if isinstance(settings, dict) else ()
    return [(name, value) for name, value in found if name not in _DERIVED]


def _is_default(name: str, value: Any) -> bool:
    default = DEFAULTS.get(name)
    return (value or None) == (default or None)


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _mirrors(run: Run) -> Iterator[tuple[str, str]]:
    """The operator's documents that came from a mirror, as (setting, URL).

    Only of the built-in identity is it known where its documents should come from.
    """
    if text(run.terms, "token").lower() != WALSH_RESEARCH.token.lower():
        return
    for name, member, default in (
        ("WALSH_BLOCKLIST_URL", "blocklist_url", WALSH_RESEARCH.blocklist_url),
        ("WALSH_BLOCKLIST_SCHEMA_URL", "schema_url", WALSH_RESEARCH.schema_url),
    ):
        url = text(run.terms, member)
        if url and url != default:
            yield name, url
