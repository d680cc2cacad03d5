"""Counts what happened in the chosen runs: hosts, rules. Pure."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.policy import event as events
from scrapy_walsh.policy import visits
from scrapy_walsh.policy.event import ASKED
from scrapy_walsh.policy.verdict import BLOCKED_OPERATOR, NOT_DUE
from scrapy_walsh.proof.report.timeline import DRAWN, MOST, Mark, mark_of
from scrapy_walsh.proof.report.words import answer_of
from scrapy_walsh.spec import REQUIREMENTS

if TYPE_CHECKING:
    from scrapy_walsh.proof.ledger import Line
    from scrapy_walsh.proof.ledgered import Gap
    from scrapy_walsh.proof.report.history import History
    from scrapy_walsh.proof.report.runs import Run

#: Kinds that end a target by a rule, and so are listed with their rules, in the order of the page.
_OF_RULES: Final = (
    events.REFUSED, events.GIVEN_UP, events.TOO_MANY_REDIRECTS, events.DEFERRED,
)  # fmt: skip
_IDS: Final = [requirement.id for requirement in REQUIREMENTS]
#: The causes of R8, beside the time of the last request, that have a row of their own (D35).
_OF_R8: Final = (visits.FAILURES, visits.RETIREMENT, visits.CLOSED_DOOR)
#: How many URLs a rule has as examples.
_EXAMPLES: Final = 3
#: How many hosts are candidates for a picture: the first that were requested.
_CANDIDATES: Final = 1000
#: The most URLs to remember with the octets of their last answer.
_URLS: Final = 10_000
#: Characters kept of a URL.
_LONGEST: Final = 600


@dataclass(slots=True)
class Host:
    """One host. ``answers``: the number of requests by their answer.

    ``interval``: the longest that it had to be left alone between two requests, ``shortest``: the
    shortest that it was, but for what T1 exempts; None before there was one. Both in seconds.
    ``octets``: of its answers' bodies, as they came. ``server``: the last one that it was paced
    with (T43), or "". ``opted_out``: when it was first refused as it
    is on the operator's list, Unix seconds. ``marks``: its requests as they are drawn; None if it
    is not.
    """

    name: str
    answers: Counter[str] = field(default_factory=Counter)
    interval: float = 0.0
    shortest: float | None = None
    octets: int = 0
    server: str = ""
    opted_out: float | None = None
    marks: list[Mark] | None = None

    @property
    def requests(self) -> int:
        """The number of exchanges."""
        return self.answers.total()

    def asked(self, line: Line, gap: Gap | None) -> None:
        """Count an exchange, and the *gap* before it."""
        self.answers[answer_of(line)] += 1
        self.octets += line.octets or 0
        self.server = line.server.removeprefix("@") or self.server
        self.interval = max(self.interval, line.interval)
        if gap is not None and gap.required > 0:
            self.shortest = min(
                gap.seconds,
                math.inf if self.shortest is None else self.shortest,
            )
        if self.marks is not None:
            self.marks.append(mark_of(line, gap))
            if len(self.marks) > MOST:
                self.marks = None


@dataclass(slots=True)
class Rule:
    """The rules that refused or deferred targets, or gave them up, and how often.

    ``of``: the line of its first target. ``examples``: of targets, (URL, number of its line).
    """

    of: Line
    count: int = 0
    examples: list[tuple[str, int]] = field(default_factory=list)


@dataclass(slots=True)
class Tally:
    """The content of a ledger about ``runs``. ``others``: how many other runs are in it.

    ``history``: of those runs, by days. ``kinds``: number of lines by kind; refusals of R8 are
    NOT_DUE. ``purposes``: number of exchanges that were sent, by purpose. ``last``: when the last
    line was written, Unix seconds. ``saved``: octets that answers 304 did not send again, by the
    last answer with a body before them. ``unsaved``: answers 304 without such an answer in the
    lines that were read.
    """

    runs: tuple[Run, ...]
    others: int = 0
    history: History | None = None
    kinds: Counter[str] = field(default_factory=Counter)
    purposes: Counter[str] = field(default_factory=Counter)
    last: float = 0.0
    saved: int = 0
    unsaved: int = 0
    _bodies: dict[str, int] = field(default_factory=dict)
    _hosts: dict[str, Host] = field(default_factory=dict)
    _rules: dict[Any, Rule] = field(default_factory=dict)
    _names: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self._names = frozenset(run.name for run in self.runs)

    @property
    def began(self) -> float:
        """When the first run began, Unix seconds."""
        return min((run.began.at for run in self.runs), default=0.0)

    @property
    def hosts(self) -> list[Host]:
        """Those that have opted out first, then those with most requests."""
        hosts = self._hosts.values()
        return sorted(
            hosts,
            key=lambda host: (not host.opted_out, -host.requests, host.name),
        )

    @property
    def drawn(self) -> list[Host]:
        """Those that are drawn, by their first request.

        Of many, those that were requested too early, then those that R5 held, then those with most
        requests.
        """
        marks = {host.name: host.marks for host in self.hosts if host.marks}

        def telling(host: Host) -> tuple[bool, bool, int]:
            host_marks = marks[host.name]
            early = any(mark.short for mark in host_marks)
            is_held = any(mark.held for mark in host_marks)
            return not early, not is_held, -len(host_marks)

        ordered = sorted((host for host in self.hosts if host.name in marks), key=telling)
        return sorted(ordered[:DRAWN], key=lambda host: marks[host.name][0].sent)

    @property
    def rules(self) -> list[Rule]:
        """In the order of the specification, then of their kinds, the most frequent first."""
        rules = self._rules.values()
        return sorted(rules, key=lambda rule: (*_place(rule.of), -rule.count))

    def take(self, line: Line, gap: Gap | None) -> None:
        """Count *line*, if it is of a chosen run; *gap*: before it, if it is a request."""
        body_before = self._bodies.get(line.url)  # also of another run: that is what a 304 saves
        is_known = body_before is not None or len(self._bodies) < _URLS
        if line.kind == ASKED and line.status != 304 and is_known:
            self._bodies[line.url] = line.octets or 0
        if line.run not in self._names:
            return
        is_not_due = line.kind == events.REFUSED and line.verdict == NOT_DUE
        self.kinds[NOT_DUE if is_not_due else line.kind] += 1
        self.last = max(self.last, line.at)
        if self.history is not None:
            self.history.take(line)
        if line.kind in _OF_RULES:
            self._rule(line)
        if not line.host:
            return
        host = self._hosts.setdefault(line.host, Host(line.host))
        if not host.requests and self.history is None and len(self._hosts) <= _CANDIDATES:
            host.marks = []
        if line.kind == ASKED:
            self.purposes[line.purpose] += line.unsent is None
            host.asked(line, gap)
            if line.status == 304:
                self.saved += body_before or 0
                self.unsaved += body_before is None
        elif line.verdict == BLOCKED_OPERATOR and host.opted_out is None:
            host.opted_out = line.at

    def _rule(self, line: Line) -> None:
        # the reason does not tell one rule from others, since it may name the target
        decided = (
            line.kind,
            line.requirement,
            line.verdict,
            line.rule,
            line.document,
        )
        cause = line.cause if line.cause in _OF_R8 else ""
        rule = self._rules.setdefault((*decided, line.line, line.group, cause), Rule(line))
        rule.count += 1
        if len(rule.examples) < _EXAMPLES:
            rule.examples.append((line.url[:_LONGEST], line.n))


def _place(line: Line) -> tuple[int, int]:
    is_requirement = line.requirement in _IDS
    return _IDS.index(line.requirement) if is_requirement else len(_IDS), _OF_RULES.index(line.kind)
