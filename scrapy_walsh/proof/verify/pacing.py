"""R4 and R5, judged by the exchanges alone: one at a time, spaced, T1 once, holds kept.

Spacing is measured within a process from the end of one exchange to the start of the next, and
between processes from start to start: one may not know yet when the other's exchange ended.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Final

from scrapy_walsh.policy import hosts
from scrapy_walsh.policy.event import TARGET
from scrapy_walsh.policy.learned import (
    HALVED_AFTER,
    NOTHING,
    Learned,
    Spacing,
    accepts,
    eased,
    learn,
)
from scrapy_walsh.policy.robots import fetch as robots_fetch
from scrapy_walsh.policy.throttle import VISIT_EVERY
from scrapy_walsh.proof.spacing import ONE_CLOCK, THE_WIRE, is_short

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy_walsh.ledger.reading import Line
    from scrapy_walsh.proof.verify.report import Report
    from scrapy_walsh.proof.verify.run import Run

# R4: does each run learn from a host's answers 429 what D28 says, and keep to it?
#
# What a host has taught is derived from the exchanges alone, by the function that the crawl
# itself uses. A run begins with what the store has of a host; its first exchange with the host
# says what that was, and an earlier line must have left it so. Two things are counted and are not
# findings. Where it says nothing, the store had nothing: ``state forget`` drops what was learned.
# Where it goes by a longer interval than the lines have left, the store had that from a run
# without a ledger, an import, or an exchange whose line was lost when the process was killed.

_EXACT: Final = 0.001
#: Why what a run says is not derived: lines of others are missing.
_ELSEWHERE: Final = "learned intervals that rest on what is not in this ledger"
_DROPPED: Final = "runs that go on without a learned interval: state forget drops it"


@dataclass(slots=True)
class Lessons:
    """What the hosts of a ledger have taught, in all of its runs.

    ``_left``: by host and run, what the run's last exchange with the host has left, and when that
    ended.
    """

    report: Report
    _left: dict[str, dict[str, tuple[Learned, float]]] = field(default_factory=dict)

    def asked(self, run: Run, line: Line, *, rests: bool) -> Iterator[str]:
        """What is wrong with an exchange; *line* is learned from.

        ``rests``: what the store had may rest on lines that are not here: the ledger begins after
        its first one, or a run was killed.
        """
        longest = run.terms.longest_learned
        if longest is None:
            return
        if run.holes:
            self._unknown(run, line)
            return
        known = run.taught.get(line.host, NOTHING)
        if line.taught:
            yield from self._taken(run, line, rests=rests or run.terms.shared)
            known = _learned_of(line)
        elif line.host not in run.taught:
            self._dropped(line)
        in_force = eased(known, line.started).interval
        if is_short(line.interval, in_force, ONE_CLOCK):
            yield f"its interval is {line.interval:g} s, {line.host} has taught {in_force:g} s"
        taught = self._learn(run, line, known, longest)
        changed = None if taught.interval == known.interval else taught.interval
        if not _alike(changed, line.learned):
            yield f"it says that {_said(line.learned)}; by the answers so far {_said(changed)}"
        elif changed is not None:
            self.report.derived += 1

    def _learn(self, run: Run, line: Line, known: Learned, longest: float) -> Learned:
        """What *line* teaches, noted for the next one."""
        before = run.accepted.get(line.host)
        gap = None if before is None else line.started - before
        spacing = Spacing(line.interval, gap, line.ended)
        taught = learn(known, line.status, spacing, longest) if line.answered else known
        if accepts(line.status):
            run.accepted[line.host] = line.ended
        run.taught[line.host] = taught
        if taught.calm is not None or line.host in self._left:
            self._left.setdefault(line.host, {})[run.name] = taught, line.ended
        return taught

    def _taken(self, run: Run, line: Line, *, rests: bool) -> Iterator[str]:
        """What is wrong with what *run* says that the store had of a host."""
        if len(line.taught) != len(fields(Learned)):
            yield f"what {line.host} is to have taught is {len(line.taught)} numbers"
            return
        given, left = _learned_of(line), self._left.get(line.host, {})
        states = (each for one, _ in left.values() for each in _lapses(one, line.started))
        meanwhile = (ended > line.started for name, (_, ended) in left.items() if name != run.name)
        if any(_same(each, given) for each in states):
            self.report.derived += 1
        elif (
            rests
            or any(meanwhile)
            or all(given.interval > one.interval for one, _ in left.values())
        ):
            self.report.missed(_ELSEWHERE)
        else:
            text = f"it goes by {given.interval:g} s that {line.host} is to have taught"
            yield f"{text}; no line before says so"

    def _dropped(self, line: Line) -> None:
        left = self._left.get(line.host, {})
        if any(eased(each, line.started).calm is not None for each, _ in left.values()):
            self.report.missed(_DROPPED)

    def _unknown(self, run: Run, line: Line) -> None:
        if line.learned is not None or line.taught:
            self.report.missed(_ELSEWHERE)
        run.taught.pop(line.host, None)


def _learned_of(line: Line) -> Learned:
    """What *line* says that the store had; nothing where that has another form."""
    if len(line.taught) != len(fields(Learned)):
        return NOTHING
    interval, accepted, calm, at = line.taught
    return Learned(interval, accepted, int(calm), at)


def _lapses(left: Learned, now: float) -> Iterator[Learned]:
    """*left*, and what may have become of it until *now*: a run restores it at some time before."""
    yield left
    at = left.at + HALVED_AFTER
    while left.calm is not None and at <= now:
        left = eased(left, at)
        yield left
        at += HALVED_AFTER


def _same(one: Learned, other: Learned) -> bool:
    return (
        one.calm == other.calm
        and _alike(one.interval, other.interval)
        and _alike(one.accepted, other.accepted)
        and _alike(one.at, other.at)
    )


def _alike(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) < _EXACT


def _said(interval: float | None) -> str:
    return "nothing new is learned" if interval is None else f"{interval:.3f} s is learned"


#: Seconds after the end of an exchange in which another process may not know of it yet.
_UNKNOWN_YET: Final = 0.1
#: Seconds for which the last exchange of another process is kept.
_REMEMBERED: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Asked:
    """One exchange; times are Unix seconds, all others seconds. ``need``: must pass before it.

    ``spacing``: for a robots.txt that T1 exempts, what must pass before the target after it, else
    None. ``ahead``: for the one target of a slow host (D11), what must pass instead of ``need``,
    else None.
    """

    line: int
    process: str
    host: str
    target: bool
    started: float
    ended: float
    need: float
    spacing: float | None
    ahead: float | None = None


@dataclass(frozen=True, slots=True)
class _Hold:
    until: float
    set_at: float
    process: str
    why: str


@dataclass(slots=True)
class _Host:
    last: dict[str, Asked] = field(default_factory=dict)
    holds: list[_Hold] = field(default_factory=list)
    first: float = math.inf
    exempt: float = math.inf
    rested: float = math.inf
    visited: float = -math.inf


_NEVER: Final = _Host()


class Pacing:
    """All hosts and processes of a ledger."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._hosts: dict[str, _Host] = {}
        self._processes: dict[str, Asked] = {}

    def is_first(self, line: Line) -> bool:
        """Whether no exchange with the host began before this one."""
        host = self._hosts.get(line.host)
        return host is None or line.started <= host.first

    def last_end(self, host: str) -> float:
        """When the last exchange with *host* ended; -inf where there was none."""
        known = self._hosts.get(host, _NEVER)
        return max((each.ended for each in known.last.values()), default=-math.inf)

    def due(self, host: str, interval: float) -> float:
        """When *host* is due, Unix seconds; -inf where nothing is known of it."""
        known = self._hosts.get(host, _NEVER)
        holds = [hold.until for hold in known.holds]
        spaced = [each.ended + max(each.need, interval) for each in known.last.values()]
        return max([*holds, *spaced], default=-math.inf)

    def hold(self, host: str, since: float, seconds: float, process: str, why: str) -> None:
        """R5: *host* is to be left alone for *seconds* from *since*, as *process* knows."""
        hold = _Hold(since + seconds, since, process, why)
        self._hosts.setdefault(host, _Host()).holds.append(hold)

    def visit_fault(self, line: Line, need: float, patience: float) -> str | None:
        """Why this target may not go ahead of its host's Crawl-delay, as it says; None: it may.

        ``need``: seconds that the host asks for.
        """
        host = self._hosts.get(line.host, _NEVER)
        before = max(host.last.values(), key=lambda each: each.started, default=None)
        if line.purpose != TARGET or before is None or before.target:
            return "it went ahead of the Crawl-delay, and no robots.txt came before it"
        if need <= patience:
            return f"it went ahead of an interval of {need:g} s, which WALSH_PATIENCE can wait for"
        if is_short(host.rested, need, ONE_CLOCK):
            return f"it went ahead, though the host had rested {host.rested:.0f} s of {need:g} s"
        if is_short(line.started - host.visited, VISIT_EVERY, ONE_CLOCK):
            return f"it went ahead {line.started - host.visited:.0f} s after another one did"
        return None

    def asked(self, one: Asked) -> None:
        """Judge an exchange, and keep it for the next ones."""
        host = self._hosts.setdefault(one.host, _Host())
        self._serial(one)
        self._spaced(one, host)
        self._held(one, host)
        if one.started < host.exempt < math.inf and one.spacing is None:
            self._find(one, f"{one.host} had been asked before the robots.txt that was exempt (T1)")
        self._remember(one, host)

    def _find(self, one: Asked, text: str, rule: str = "R4") -> None:
        self._report.find(one.line, rule, text)

    def _serial(self, one: Asked) -> None:
        before = self._processes.get(one.process)
        if one.ended < one.started:
            self._find(one, "it ended before it started")
        elif before is not None and one.started < before.ended - ONE_CLOCK:
            self._find(one, f"two requests at once: that of line {before.line} had not ended")
        if before is None or one.ended >= before.ended:
            self._processes[one.process] = one

    def _spaced(self, one: Asked, host: _Host) -> None:
        for process, before in host.last.items():
            if process == one.process:
                need = one.need if one.ahead is None else one.ahead
                if one.target and before.spacing is not None:
                    need = before.spacing
                gap, slack, what = one.started - before.ended, ONE_CLOCK, "the end"
            else:
                later = one if one.started >= before.started else before
                need = later.need
                gap, slack, what = abs(one.started - before.started), THE_WIRE, "the start"
            if is_short(gap, need, slack):
                self._find(
                    one,
                    f"{one.host} was asked {gap:.3f} s after {what} of line {before.line},"
                    f" {need:g} s were due",
                )
                return

    def _held(self, one: Asked, host: _Host) -> None:
        host.holds = [hold for hold in host.holds if hold.until > one.started]
        for hold in host.holds:
            ours = hold.process == one.process
            known_from = hold.set_at if ours else hold.set_at + _UNKNOWN_YET
            slack = ONE_CLOCK if ours else THE_WIRE
            if one.started >= known_from and one.started < hold.until - slack:
                early = hold.until - one.started
                self._find(one, f"{one.host} was asked {early:.3f} s early: {hold.why}", "R5")
                return

    def _remember(self, one: Asked, host: _Host) -> None:
        host.rested = one.started - self.last_end(one.host)
        if one.ahead is not None:
            host.visited = one.ended
        host.first = min(host.first, one.started)
        if one.spacing is not None:
            host.exempt = one.started
        host.last[one.process] = one
        latest = max(each.started for each in host.last.values())
        for process, each in list(host.last.items()):
            if each.started < latest - max(_REMEMBERED, each.need):
                del host.last[process]


def exempt_fault(line: Line, *, first: bool) -> str | None:
    """Why T1 does not exempt this exchange, which says that it does; None where it may."""
    try:
        robots = line.url == hosts.robots_url(line.url)
    except ValueError:
        robots = False
    if line.purpose != "robots" or not robots:
        return "it is exempt, and is for no robots.txt (T1)"
    if not first:
        return f"it is exempt, and is not the first exchange with {line.host} (T1)"
    if not robots_fetch.counts_as_first(line.status, hops=line.hops, attempt=line.attempt):
        return (
            f"it is exempt, though its answer ({line.status}), a redirect or a retry"
            " does not allow it (T1)"
        )
    return None
