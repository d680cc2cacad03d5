"""Counts what happened in the chosen runs: hosts, rules. Pure.

The hash chain and the gaps between requests are followed over the lines of all runs. What is
counted is only of the chosen ones.
"""

from __future__ import annotations

import math
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from scrapy_walsh.config import SLOW_VISIT
from scrapy_walsh.ledger.files import HEAD
from scrapy_walsh.policy import event as events
from scrapy_walsh.policy.event import ASKED
from scrapy_walsh.policy.throttle import MIN_REQUEST_INTERVAL
from scrapy_walsh.policy.verdict import BLOCKED_OPERATOR
from scrapy_walsh.proof.findings import Finding, Outcome
from scrapy_walsh.proof.ledger import GAP, Chain, Head, Malformed, line_of
from scrapy_walsh.proof.ledgered import Exchanges, Sent
from scrapy_walsh.proof.report.entries import Run
from scrapy_walsh.proof.spacing import TWO_CLOCKS, is_short

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scrapy_walsh.proof.ledger import Line
    from scrapy_walsh.proof.report.history import History

# R4 and R5 by the ledger: was each host left alone for as long as it had to be? Pure.
#
# Interval and hold are taken from the exchanges' lines: whether those follow from robots.txt and
# from the answers is what ``walsh verify`` checks.

#: The purpose of an exchange for a robots.txt.
ROBOTS: Final = "robots"
#: The verdicts on a gap.
KEPT: Final = "kept"
SHORT: Final = "too short"
EXEMPT: Final = "exempt"
UNCLEAR: Final = "not seen"


@dataclass(frozen=True, slots=True)
class Gap:
    """The time between two exchanges with a host that follow each other (``exchanges.Gap``).

    ``seconds``: how long it was; ``required``: how long it had to be, in seconds, by R4's interval
    and R5's hold. ``verdict``: KEPT, SHORT, EXEMPT (between the first robots.txt and its target,
    T1), or UNCLEAR where lines are missing in between, or the clock was set back between two runs.
    ``after_trouble``: R5 held the host after the earlier exchange. ``line``: the number of the
    later exchange's line.
    """

    seconds: float
    required: float
    verdict: str
    after_trouble: bool
    line: int

    @property
    def ratio(self) -> float:
        """Its length, as a multiple of what was required."""
        return self.seconds / self.required


#: Kinds whose lines carry a decision about one target.
DECIDED: Final = (
    events.FETCHED, events.NOT_MODIFIED, events.HELD, events.RETRIED, events.DEFERRED,
    events.GIVEN_UP, events.TOO_MANY_REDIRECTS, events.REFUSED,
)  # fmt: skip
#: Kinds that a picture of a host has a mark for.
DRAWN_KINDS: Final = (ASKED, events.HELD, events.REFUSED, events.DEFERRED, events.GIVEN_UP)
#: Kinds that end a target by a rule, and so are listed with their rules.
_OF_RULES: Final = (
    events.REFUSED, events.DEFERRED, events.GIVEN_UP, events.TOO_MANY_REDIRECTS,
)  # fmt: skip
#: What R8's reason has in it where it is not the time of the last request (D35): a row of its own.
_OF_R8: Final = ("given up", "410 (Gone)")
#: How many URLs a rule has as examples.
_EXAMPLES: Final = 3
#: Characters kept of a URL, a rule or a reason.
_LONGEST: Final = 600
#: How many of a host's gaps that were too short are kept.
_SHORT_KEPT: Final = 20
#: How many places where the hash chain breaks are kept.
_BREAKS_KEPT: Final = 20
#: URLs of which the length of the last answer is kept, for what a 304 saves.
_BODIES_KEPT: Final = 100_000


@dataclass(slots=True)
class Host:
    """One host, and what happened to it.

    ``first``: the time of its first line, Unix seconds. ``counts``: number of exchanges by purpose,
    and of lines by kind. ``gaps``: number of gaps by verdict. ``closest``: the gap that was the
    smallest multiple of what was required. ``short``: the first gaps that were too short.
    ``interval``: the largest of its intervals, seconds. ``until``: the end of its last R5 hold,
    Unix seconds. ``troubles``: number of exchanges after which R5 held the host. ``left_alone``:
    number of requests after such a one that were not too early. ``marks``: number of marks that a
    picture of it has. ``octets``: of its answers' bodies, as they came. ``unchanged``: number of
    304s, which ``saved`` octets: those of the answers before them. ``opted_out``: when it was first
    refused as it is on the operator's list.
    """

    name: str
    first: float
    counts: Counter[str] = field(default_factory=Counter)
    gaps: Counter[str] = field(default_factory=Counter)
    closest: Gap | None = None
    short: list[Gap] = field(default_factory=list)
    interval: float = 0.0
    until: float | None = None
    troubles: int = 0
    left_alone: int = 0
    marks: int = 0
    octets: int = 0
    unchanged: int = 0
    saved: int = 0
    opted_out: float | None = None

    @property
    def requests(self) -> int:
        """The number of exchanges."""
        return self.counts[ASKED]

    def note(self, gap: Gap) -> None:
        """Count the gap before one of its exchanges."""
        self.gaps[gap.verdict] += 1
        if gap.verdict in (KEPT, SHORT):
            self.closest = min(self.closest or gap, gap, key=attrgetter("ratio"))
        self.left_alone += gap.after_trouble and gap.verdict == KEPT
        if gap.verdict == SHORT and len(self.short) < _SHORT_KEPT:
            self.short.append(gap)


@dataclass(slots=True)
class Rule:
    """What refused or deferred targets, or gave them up, and how often.

    ``of``: the line of its first target. ``examples``: of targets, (URL, number of its line).
    """

    of: Line
    count: int = 0
    examples: list[tuple[str, int]] = field(default_factory=list)


@dataclass(slots=True)
class Tally:
    """Takes each line of a ledger once, in order.

    ``all_runs``: by name; ``runs``: those that are counted. ``said``: number and hash of the last
    line, as the file ``ledger.head`` has them, None without that file. ``watch``: called with each
    line of any run, and the gap before it where it is an exchange. ``history``: of the days of
    ``runs``, if it is wanted.

    Of the whole ledger: ``chain``: its hash chain, with number and hash of the last line as its
    ``head``. ``broken``: the number of places where it breaks, with the first of them in
    ``breaks``. ``lost``: what the ledger itself says is missing. ``notes``: remarks on the chain
    that are not breaches.

    Of the runs that are counted: ``kinds``: number of lines by kind. ``purposes``: number of
    exchanges by purpose. ``unread``: the number of lines that lack what their kind must have.
    ``overlaps``: the number of exchanges that began while another of their process was under way
    (R4.1). And since ``end``: ``began``: their start, Unix seconds. ``span``: their length,
    seconds, never 0. ``hosts``: the most telling first: gaps that were too short, back-offs,
    requests. ``rules``: in the order in which they were met.
    """

    all_runs: Mapping[str, Run]
    runs: tuple[Run, ...]
    said: tuple[int, str] | None = None
    watch: Callable[[Line, Gap | None], None] | None = None
    history: History | None = None
    chain: Chain = field(init=False)
    broken: int = 0
    breaks: list[Finding] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    purposes: Counter[str] = field(default_factory=Counter)
    unread: int = 0
    overlaps: int = 0
    began: float = math.inf
    span: float = 0.001
    hosts: tuple[Host, ...] = ()
    rules: tuple[Rule, ...] = ()
    names: frozenset[str] = frozenset()
    _hosts: dict[str, Host] = field(default_factory=dict)
    _rules: dict[tuple[object, ...], Rule] = field(default_factory=dict)
    _last: float = 0.0
    _bodies: dict[str, int] = field(default_factory=dict)
    _exchanges: Exchanges = field(default_factory=Exchanges)
    #: The line before which some are missing: a gap across it cannot be shown to be kept.
    _hole: int = 0

    def __post_init__(self) -> None:
        self.names = frozenset(run.name for run in self.runs)
        heads = [] if self.said is None else [Head(*self.said, said_by=HEAD)]
        self.chain = Chain(self._break, self.notes.append, heads)

    def take(self, file: str, raw: bytes) -> None:
        """Follow the hash chain, and count the line if it is of a chosen run.

        *file*: the name of the file that the line is in. *raw*: the line's octets.
        """
        members = self.chain.take(file, raw)
        line = None
        with suppress(Malformed):
            line = None if members is None else line_of(members)
        if members is not None and line is None:
            self.unread += members.get("run") in [run.name for run in self.runs]
            self.chain.hole = True
        if line is not None and line.kind == GAP:
            self.lost.append(line.reason or "lines are missing")
            self.chain.hole = True
        if self.chain.hole:
            self.chain.hole = False
            self._hole = self.chain.number + (members is None)
        if line is None:
            return
        counts = line.run in self.names
        if counts:
            self.kinds[line.kind] += 1
            self._extend(line.at)
            if self.history is not None:
                self.history.take(line)
        gap = self._asked(line, counts=counts) if line.kind == ASKED else None
        if counts and line.kind in DECIDED:
            self._decided(line)
        if self.watch is not None:
            self.watch(line, gap)

    def end(self) -> None:
        """Check the end of the hash chain, and order the hosts.

        A run without an end is a finding elsewhere.
        """
        self.chain.end(headed=self.said is not None, running=False, later=False)
        self.began = min(self.began, self._last)
        self.span = max(self._last - self.began, self.span)
        self.hosts = tuple(sorted(self._hosts.values(), key=_weight))
        self.rules = tuple(self._rules.values())

    def total(self, verdict: str) -> int:
        """The number of gaps with that verdict (KEPT and so on), of all hosts."""
        return sum(host.gaps.get(verdict, 0) for host in self.hosts)

    def _break(self, line: int, why: str) -> None:
        self.broken += 1
        if len(self.breaks) < _BREAKS_KEPT:
            self.breaks.append(Finding(Outcome.BROKEN, "chain", text=why, line=line))

    # -- exchanges ------------------------------------------------------------------------

    def _asked(self, line: Line, *, counts: bool) -> Gap | None:
        one = self._sent(line, self.all_runs.get(line.run))
        gap, busy = self._gap(one), self._exchanges.busy(one.process)
        self._exchanges.take(one)
        saved = self._bodies.get(line.url, 0) if line.status == 304 else 0
        if line.status == 200 and len(self._bodies) < _BODIES_KEPT:
            self._bodies[line.url] = line.octets or 0
        if not counts:
            return gap
        self.overlaps += busy is not None and line.started < busy.ended - TWO_CLOCKS
        self.purposes[line.purpose] += 1
        self._extend(line.started)
        self._extend(line.ended)
        host = self._host(line, line.started)
        host.counts.update((ASKED, line.purpose))
        host.octets += line.octets or 0
        host.unchanged += line.status == 304
        host.saved += saved
        host.interval = max(host.interval, line.interval)
        if line.wait is not None:
            host.troubles += 1
            host.until = max(host.until or 0.0, line.ended + line.wait)
        if gap is not None:
            host.note(gap)
        return gap

    def _sent(self, line: Line, run: Run | None) -> Sent:
        """The exchange, with what it had to keep by its line and the settings of its run."""
        need, credit, ahead = max(MIN_REQUEST_INTERVAL, line.interval), None, None
        run = run or Run(line.run, {}, 0, 0.0)
        least = run.number("min_interval") or MIN_REQUEST_INTERVAL
        if line.exempt and line.purpose == ROBOTS:
            credit = least if run.settings.get("pace_robots") is True else 0.0
        if line.visit and run.settings.get("slow_hosts") == SLOW_VISIT:
            ahead = self._exchanges.ahead(line, need, run.number("patience") or 0.0, least)
        return Sent(line, run.process, need, ahead, credit)

    def _gap(self, one: Sent) -> Gap | None:
        """The gap before an exchange; None if it is its host's first in the ledger."""
        line, found, hold = one.line, self._exchanges.gap(one), self._exchanges.held(one)
        if found is None:
            return None
        before, required = found.before, found.required
        if hold is not None:
            required = max(required, found.seconds + hold.until - line.started)
        run = self.all_runs.get(before.run)
        other = run is not None and run.name != line.run and run.ended is not None
        if other and line.started < before.started:  # the clock was set back
            verdict = UNCLEAR
        elif is_short(found.seconds, required, max(found.slack, TWO_CLOCKS)):
            verdict = SHORT
        elif before.n < self._hole:
            verdict = UNCLEAR
        else:
            verdict = KEPT if required > 0 else EXEMPT
        required = required if required > 0 else MIN_REQUEST_INTERVAL
        return Gap(found.seconds, required, verdict, before.wait is not None, line.n)

    # -- decisions ------------------------------------------------------------------------

    def _decided(self, line: Line) -> None:
        if line.kind in _OF_RULES:
            self._rule(line)
        if line.host:
            host = self._host(line, line.at)
            host.counts[line.kind] += 1
            if line.verdict == BLOCKED_OPERATOR and host.opted_out is None:
                host.opted_out = line.at

    def _rule(self, line: Line) -> None:
        # the reason does not tell one rule from others, since it may name the target
        decided = (line.kind, line.requirement, line.verdict, line.rule, line.document)
        apart = [words for words in _OF_R8 if line.requirement == "R8" and words in line.reason]
        rule = self._rules.setdefault((*decided, line.line, line.group, *apart), Rule(line))
        rule.count += 1
        if len(rule.examples) < _EXAMPLES:
            rule.examples.append((line.url[:_LONGEST], line.n))

    def _host(self, line: Line, at: float) -> Host:
        host = self._hosts.get(line.host)
        if host is None:
            host = self._hosts[line.host] = Host(line.host, at)
        host.marks += line.kind in DRAWN_KINDS
        return host

    def _extend(self, at: float) -> None:
        if at:
            self.began = min(self.began, at)
            self._last = max(self._last, at)


def _weight(host: Host) -> tuple[int, int, int, str]:
    return (-host.gaps[SHORT], -min(host.troubles, 1), -host.requests, host.name)
