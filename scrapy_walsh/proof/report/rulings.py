"""The parts of a page that show why: decisions and rules, sources, documents, runs. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scrapy_walsh.policy import event as events
from scrapy_walsh.proof.report import pictures
from scrapy_walsh.proof.report.entries import text, texts, whole
from scrapy_walsh.proof.report.markup import (
    Markup,
    code,
    cut,
    element,
    foreign,
    instant,
    joined,
    octets,
    plural,
    seconds,
)
from scrapy_walsh.proof.report.sources import outcome
from scrapy_walsh.proof.report.tables import (
    WORDS,
    Limits,
    Number,
    figure,
    picture_row,
    row,
    table,
)
from scrapy_walsh.spec import REQUIREMENTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scrapy_walsh.proof.report.model import Report
    from scrapy_walsh.proof.report.sources import Sources
    from scrapy_walsh.proof.report.tally import Document, Rule


#: Bars of one picture, and outcomes of sources that are counted out: an honest ledger has fewer.
_MOST_BARS: Final = 40
#: How the bar of a kind is filled.
_BARS: Final = {
    events.HELD: "wait", events.DEFERRED: "wait", events.RETRIED: "hold",
    events.TOO_MANY_REDIRECTS: "refused",
    events.GIVEN_UP: "refused", events.REFUSED: "refused", events.REJECTED: "refused",
    events.ADOPTED: "document", events.TAKEN_UP: "document",
}  # fmt: skip
# -- decisions ----------------------------------------------------------------------------


def decisions(report: Report, limits: Limits) -> Markup:
    """Decisions by requirement, and the rules that they rest on."""
    if not report.decisions:
        return element("p", "Nothing was decided.", class_="soft")
    counts: dict[tuple[str, str], int] = {}
    for (requirement, kind, _), count in report.decisions.items():
        counts[requirement, kind] = counts.get((requirement, kind), 0) + count
    most = max(counts.values())
    ordered = sorted(counts.items(), key=lambda each: _place(each[0][0], each[0][1]))
    bars = [
        picture_row(
            joined((element("b", foreign(requirement or "-", 16)), f" {WORDS.get(kind, kind)}")),
            pictures.bar(count, most, _BARS.get(kind, "plain")),
            f"{count:,}",
        )
        for (requirement, kind), count in ordered[:_MOST_BARS]
    ]
    told = sorted(report.decisions.items(), key=lambda each: _place(*each[0][:2]))
    drawn = figure(
        "decisions",
        "Decisions by requirement.",
        "R2, fetched: robots.txt allowed it.",
        *bars,
        below=table(
            "Decisions by requirement",
            ("By", "Decision", "Verdict", "#Count", "What it asks"),
            (_decision_row(*each) for each in told),
            len(told),
            limits.rows,
        ),
    )
    return joined((drawn, _rules(report.rules, limits)))


_TITLES: Final = {requirement.id: requirement.title for requirement in REQUIREMENTS}
_IDS: Final = tuple(_TITLES)
_KINDS: Final = tuple(WORDS)


def _place(requirement: str, kind: str) -> tuple[int, int]:
    known = _IDS.index(requirement) if requirement in _IDS else len(_IDS)
    return known, _KINDS.index(kind) if kind in _KINDS else len(_KINDS)


def _decision_row(key: tuple[str, str, str], count: int) -> Markup:
    requirement, kind, verdict = key
    title = _TITLES.get(requirement, "")
    decision = WORDS.get(kind, kind)
    return row(foreign(requirement or "-"), decision, foreign(verdict or "-"), count, title)


def _rules(rules: Sequence[Rule], limits: Limits) -> Markup:
    if not rules:
        return element("p", "Nothing was refused, deferred or given up.", class_="soft")
    ordered = sorted(rules, key=lambda rule: (_place(rule.requirement, rule.kind), -rule.count))
    return joined(
        (
            element("h3", "What was refused, deferred or given up, and by which rule"),
            table(
                "By requirement, the most frequent first",
                ("By", "Rule", "In", "#Line there", "#Times", "For example"),
                (_rule_row(rule, limits) for rule in ordered),
                len(ordered),
                limits.rows // 3,
            ),
        )
    )


def _rule_row(rule: Rule, limits: Limits) -> Markup:
    kind = WORDS.get(rule.kind, rule.kind)
    verdict = element("div", foreign(rule.verdict), class_="soft") if rule.verdict else None
    by = joined((foreign(rule.requirement or "-", 16), f" {kind}", verdict))
    words = code(rule.rule) if rule.rule else foreign(rule.reason, 120)
    group = f"group {', '.join(rule.group)}" if rule.group else ""
    where = joined(
        (
            foreign(rule.document, 64, limits.title),
            element("div", foreign(group), class_="soft") if group else None,
        )
    )
    examples = joined(
        element(
            "div", foreign(url, 56, limits.title), element("span", f" line {line:,}", class_="soft")
        )
        for url, line in rule.examples
    )
    return row(
        by,
        words,
        where,
        "" if rule.line is None else rule.line,
        rule.count,
        examples,
    )


# -- sources, documents, runs -------------------------------------------------------------


def sources_section(sources: Sources, limits: Limits) -> Markup:
    """What came of each source."""
    told = [(cut(name, 24), count) for name, count in sources.outcomes.items()]
    counts = ", ".join(f"{count:,} {name}" for name, count in told[:_MOST_BARS])
    problems = [element("li", foreign(each, 160)) for each in sources.problems[: limits.rows // 12]]
    return joined(
        (
            element("p", f"{plural(len(sources.rows), 'source')}: ", counts or "none", "."),
            element("h3", "Entries that cannot be used") if problems else None,
            element("ul", *problems) if problems else None,
            table(
                "What needs a look comes first",
                ("Source", "Outcome", "By", "Why", "#Requests", "#Bytes", "#Items", "Next due"),
                (_source_row(each, limits) for each in sources.rows),
                len(sources.rows),
                limits.rows // 2,
            ),
        )
    )


def _source_row(source: Mapping[str, object], limits: Limits) -> Markup:
    why = [text(source, "reason")]
    why += [f"moved for good to {text(source, 'moved_to')}"] if text(source, "moved_to") else []
    why += [f"offers {feed}" for feed in texts(source, "suggested_feeds")[:3]]
    name = joined(
        (
            foreign(text(source, "source"), 48),
            element("div", foreign(text(source, "url"), 56, limits.title), class_="soft"),
        )
    )
    return row(
        name,
        foreign(outcome(source)),
        foreign(text(source, "requirement") or "-"),
        foreign("; ".join(each for each in why if each), 160, limits.title),
        whole(source, "requests") or 0,
        Number(octets(whole(source, "bytes") or 0)),
        whole(source, "items") or 0,
        Number(text(source, "next_due") or "next run"),
    )


def documents(report: Report, limits: Limits) -> Markup:
    """The documents that decisions rest on."""
    found = report.documents
    if not found:
        return element("p", "No document came into force.", class_="soft")
    return table(
        f"Documents, with their age at {instant(report.ended)}",
        ("Document", "Outcome", "Group", "Age", "Fetched", "Digest", "#Line"),
        (_document_row(each, limits) for each in found),
        len(found),
        limits.rows // 2,
    )


def _document_row(found: Document, limits: Limits) -> Markup:
    name = joined(
        (
            foreign(found.url, 64, limits.title),
            element("div", foreign(found.reason, 90), class_="soft"),
        )
    )
    age = "-" if found.outcome == events.REJECTED else "not said: fetched before this ledger begins"
    return row(
        name,
        joined(
            (foreign(found.requirement, 16), " ", WORDS[found.outcome].removeprefix("document "))
        ),
        foreign(", ".join(found.group) or "-"),
        age if found.age is None else Number(seconds(round(found.age))),
        "-" if found.fetched is None else instant(found.fetched),
        code(found.digest[:12] or "-"),
        found.line,
    )


def runs(report: Report, limits: Limits) -> Markup:
    """The runs that a report on all of them covers."""
    listed = [
        row(
            code(run.name),
            instant(run.began),
            "not said" if run.ended is None else instant(run.ended),
            foreign(run.reason or "-"),
            foreign(text(run.terms, "version") or "-"),
            run.line,
        )
        for run in reversed(report.runs[-limits.rows :])
    ]
    return table(
        "Runs, the last first",
        ("Run", "Began", "Ended", "Because", "Version", "#Line"),
        listed,
        len(report.runs),
        limits.rows // 4,
    )
