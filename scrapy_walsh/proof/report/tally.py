"""What happened in the chosen runs, counted: hosts, decisions, rules, documents. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from scrapy_walsh.ledger.lines import ASKED
from scrapy_walsh.policy import event as events
from scrapy_walsh.proof.report.entries import GAP, Chain, number, text, texts, whole
from scrapy_walsh.proof.report.spacing import EXEMPT, KEPT, SHORT, Gap, Spacing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy_walsh.proof.report.entries import Entry, Run

#: Kinds whose lines carry a decision about one target or document.
DECIDED: Final = (
    events.FETCHED, events.NOT_MODIFIED, events.HELD, events.RETRIED, events.DEFERRED,
    events.GIVEN_UP, events.TOO_MANY_REDIRECTS, events.REFUSED, events.ADOPTED, events.TAKEN_UP,
    events.REJECTED,
)  # fmt: skip
_OF_DOCUMENTS: Final = (events.ADOPTED, events.TAKEN_UP, events.REJECTED)
#: Kinds that a picture of a host has a mark for.
DRAWN_KINDS: Final = (ASKED, events.HELD, events.REFUSED, events.DEFERRED, events.GIVEN_UP)
_OF_RULES: Final = (
    events.REFUSED, events.DEFERRED, events.GIVEN_UP, events.TOO_MANY_REDIRECTS,
)  # fmt: skip
#: Examples of a rule's URLs, octets kept of each, and too short gaps listed of a host.
_EXAMPLES: Final = 3
_LONGEST: Final = 600
_LISTED: Final = 20


@dataclass(slots=True)
class Host:
    """One host. ``counts``: exchanges by purpose, and lines by kind. ``gaps``: by verdict.

    ``closest``: the gap that was nearest to what was required, or furthest below it.
    ``interval``: the largest asked for, seconds. ``until``: the end of its last R5 hold.
    ``troubles``: exchanges that R5 answers; ``left_alone``: requests after one, none too early.
    ``marks``: what a picture of it would draw.
    """

    name: str
    first: float
    counts: Counter[str] = field(default_factory=Counter)
    gaps: Counter[str] = field(default_factory=Counter)
    closest: Gap | None = None
    exempt: Gap | None = None
    short: list[Gap] = field(default_factory=list)
    interval: float = 0.0
    until: float | None = None
    troubles: int = 0
    left_alone: int = 0
    marks: int = 0

    @property
    def requests(self) -> int:
        """Exchanges on the wire."""
        return self.counts[ASKED]

    def note(self, gap: Gap) -> None:
        """Count the gap before an exchange."""
        self.gaps[gap.verdict] += 1
        if gap.verdict == EXEMPT:
            self.exempt = gap if self.exempt is None else min(self.exempt, gap, key=_seconds)
        elif gap.verdict in (KEPT, SHORT):
            self.closest = gap if self.closest is None else min(self.closest, gap, key=_ratio)
        self.left_alone += gap.after_trouble and gap.verdict == KEPT
        if gap.verdict == SHORT and len(self.short) < _LISTED:
            self.short.append(gap)


@dataclass(slots=True)
class Rule:
    """What refused, deferred or gave up targets, and how often; examples as (URL, line)."""

    kind: str
    requirement: str
    verdict: str
    rule: str
    document: str
    line: int | None
    group: tuple[str, ...]
    reason: str
    count: int = 0
    examples: list[tuple[str, int]] = field(default_factory=list)

    def key(self) -> tuple[object, ...]:
        """What makes it another rule; the reason is that of the first target."""
        told = (self.kind, self.requirement, self.verdict, self.rule, self.document)
        return (*told, self.line, self.group)


@dataclass(slots=True)
class Document:
    """One that came into force, or did not. ``fetched``: when; None where no line here says.

    ``age``: seconds at the end of the report, for one in force. ``line``: of the ledger.
    """

    url: str
    requirement: str
    outcome: str
    digest: str
    group: tuple[str, ...]
    status: int | None
    reason: str
    source: str
    line: int
    fetched: float | None
    age: float | None = None


@dataclass(slots=True)
class Tally:
    """Takes every line once, in order. ``chosen``: names of the runs that count; none for all."""

    runs: Mapping[str, Run]
    names: frozenset[str]
    chain: Chain = field(default_factory=Chain)
    kinds: Counter[str] = field(default_factory=Counter)
    purposes: Counter[str] = field(default_factory=Counter)
    decisions: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    unread: int = 0
    overlaps: int = 0
    _hosts: dict[str, Host] = field(default_factory=dict)
    _rules: dict[tuple[object, ...], Rule] = field(default_factory=dict)
    _documents: dict[tuple[str, str], Document] = field(default_factory=dict)
    _fetched: dict[tuple[str, str], float] = field(default_factory=dict)
    _first: float | None = None
    _last: float = 0.0
    _spacing: Spacing = field(init=False)

    def __post_init__(self) -> None:
        self._spacing = Spacing(self.runs)

    def take(self, file: str, place: int, line: bytes) -> None:
        """Follow the chain, and count the line if it is of a chosen run."""
        broken = self.chain.broken
        entry = self.chain.take(file, place, line)
        if self.chain.broken > broken or (entry is not None and entry["kind"] == GAP):
            self._spacing.interrupted()
        if entry is None:
            return
        counts = text(entry, "run") in self.names
        kind = entry["kind"]
        if counts:
            self.kinds[kind] += 1
            self._extend(number(entry, "at"))
        if kind == ASKED:
            self._asked(entry, counts=counts)
        elif kind in DECIDED:
            self._decided(entry, kind, counts=counts)

    # -- exchanges ------------------------------------------------------------------------

    def _asked(self, entry: Entry, *, counts: bool) -> None:
        started, ended = number(entry, "started"), number(entry, "ended")
        if started is None or ended is None or not text(entry, "host"):
            self.unread += counts
            self._spacing.interrupted()
            return
        gap = self._spacing.take(entry, started, ended)
        overlaps = self._spacing.overlapping(entry, started, ended)
        if not counts:
            return
        self.overlaps += overlaps
        self.purposes[text(entry, "purpose")] += 1
        self._extend(started)
        self._extend(ended)
        host = self._host(entry, started)
        host.counts[ASKED] += 1
        host.counts[text(entry, "purpose")] += 1
        host.interval = max(host.interval, number(entry, "interval") or 0.0)
        wait = number(entry, "wait")
        if wait is not None:
            host.troubles += 1
            host.until = max(host.until or 0.0, ended + wait)
        if gap is not None:
            host.note(gap)

    # -- decisions ------------------------------------------------------------------------

    def _decided(self, entry: Entry, kind: str, *, counts: bool) -> None:
        if kind in _OF_DOCUMENTS:
            self._document(entry, kind, counts=counts)
        if not counts:
            return
        self.decisions[text(entry, "requirement"), kind, text(entry, "verdict")] += 1
        if kind in _OF_RULES:
            self._rule(entry, kind)
        if text(entry, "host") and kind not in _OF_DOCUMENTS:
            self._host(entry, number(entry, "at") or 0.0).counts[kind] += 1

    def _rule(self, entry: Entry, kind: str) -> None:
        rule = Rule(
            kind,
            text(entry, "requirement")[:_LONGEST],
            text(entry, "verdict")[:_LONGEST],
            text(entry, "rule")[:_LONGEST],
            text(entry, "document")[:_LONGEST],
            whole(entry, "line"),
            texts(entry, "group"),
            text(entry, "reason")[:_LONGEST],
        )
        rule = self._rules.setdefault(rule.key(), rule)
        rule.count += 1
        if len(rule.examples) < _EXAMPLES:
            rule.examples.append((text(entry, "url")[:_LONGEST], entry["n"]))

    def _document(self, entry: Entry, kind: str, *, counts: bool) -> None:
        url, digest, at = text(entry, "url"), text(entry, "digest"), number(entry, "at")
        if kind == events.ADOPTED and at is not None:
            self._fetched[url, digest] = at
        if counts:
            self._documents[url, kind] = Document(
                url,
                text(entry, "requirement"),
                kind,
                digest,
                texts(entry, "group"),
                whole(entry, "status"),
                text(entry, "reason")[:_LONGEST],
                text(entry, "document"),
                entry["n"],
                self._fetched.get((url, digest)),
            )

    def _host(self, entry: Entry, at: float) -> Host:
        name = text(entry, "host")
        host = self._hosts.get(name)
        if host is None:
            host = self._hosts[name] = Host(name, at)
        host.marks += entry["kind"] in DRAWN_KINDS
        return host

    def _extend(self, at: float | None) -> None:
        if at is not None:
            self._first = at if self._first is None else min(self._first, at)
            self._last = max(self._last, at)

    # -- what came of it ------------------------------------------------------------------

    def extent(self) -> tuple[float, float]:
        """When it began, and how many seconds it took: never nothing, to be divided by."""
        first = self._first or 0.0
        return first, max(self._last - first, 0.001)

    def hosts(self) -> tuple[Host, ...]:
        """Those that matter most first: too short gaps, then back-offs, then requests."""
        return tuple(sorted(self._hosts.values(), key=_weight))

    def rules(self) -> tuple[Rule, ...]:
        """By requirement, the most frequent first."""
        return tuple(sorted(self._rules.values(), key=lambda rule: (rule.kind, -rule.count)))

    def documents(self, now: float) -> tuple[Document, ...]:
        """The operator's first, then by URL; ages as of *now*."""
        for document in self._documents.values():
            if document.fetched is not None and document.outcome != events.REJECTED:
                document.age = max(0.0, now - document.fetched)
        return tuple(
            sorted(self._documents.values(), key=lambda each: (each.requirement == "R2", each.url))
        )


def _weight(host: Host) -> tuple[int, int, int, str]:
    return (-host.gaps[SHORT], -min(host.troubles, 1), -host.requests, host.name)


def _seconds(gap: Gap) -> float:
    return gap.seconds


def _ratio(gap: Gap) -> float:
    return gap.ratio
