"""R4 and R5 by a ledger: who requested a host when, and until when it was to be left alone. Pure.

The tracker of exchanges of ``verify``: it keeps what was, and says what the next exchange had to
keep.

Spacing is measured within a process from the end of one exchange to the start of the next, and
between processes from start to start: one may not know yet when the other's exchange ended.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from scrapy_walsh.policy.event import TARGET
from scrapy_walsh.policy.throttle import visit_from
from scrapy_walsh.proof.spacing import ONE_CLOCK, THE_WIRE, is_short

if TYPE_CHECKING:
    from scrapy_walsh.proof.ledger import Line

#: Seconds after the end of an exchange in which another process may not know of it yet.
_UNKNOWN_YET: Final = 0.1
#: Seconds for which the last exchange of another process is kept.
_REMEMBERED: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Sent:
    """One exchange of a process. ``need``: seconds that must pass before it.

    ``ahead``: what must pass instead, for the one target of a slow host (D11). ``credit``: what
    must pass before the target after it, for a robots.txt that T1 exempts.
    """

    line: Line
    process: str
    need: float
    ahead: float | None = None
    credit: float | None = None


class Gap(NamedTuple):
    """What lay between an exchange and one before it on its host, by R4.

    ``seconds``: how long it was, ``required``: how long it had to be. ``slack``: seconds that it
    may seem short by. ``since``: what it is measured from.
    """

    before: Line
    seconds: float
    required: float
    slack: float
    since: str

    @property
    def short(self) -> bool:
        """Whether it was too short."""
        return is_short(self.seconds, self.required, self.slack)


class Hold(NamedTuple):
    """A host is to be left alone ``until`` then (R5), as ``process`` knows ``since``."""

    until: float
    since: float
    process: str
    why: str

    def slack(self, process: str) -> float:
        """Seconds by which *process* may seem early."""
        return ONE_CLOCK if process == self.process else THE_WIRE


@dataclass(slots=True)
class Past:
    """``first``: when its first exchange began, ``exempt``: the one that T1 exempts.

    ``rested``: seconds without an exchange before the last one. ``visited``: the end of the last
    one that went ahead.
    """

    sent: dict[str, Sent] = field(default_factory=dict)
    holds: list[Hold] = field(default_factory=list)
    first: float = math.inf
    exempt: float = math.inf
    rested: float = math.inf
    visited: float | None = None


_NEVER: Final = Past()


class Exchanges:
    """All hosts and processes of a ledger; times are Unix seconds by the steady clock."""

    def __init__(self) -> None:
        self._hosts: dict[str, Past] = {}
        self._busy: dict[str, Line] = {}

    def of(self, host: str) -> Past:
        """What is known of *host*."""
        return self._hosts.get(host, _NEVER)

    def last(self, host: str) -> Line | None:
        """The exchange with *host* that began last."""
        sent = (each.line for each in self.of(host).sent.values())
        return max(sent, key=lambda line: line.started, default=None)

    def last_end(self, host: str) -> float:
        """When the last exchange with *host* ended; -inf where there was none."""
        ends = (each.line.ended for each in self.of(host).sent.values())
        return max(ends, default=-math.inf)

    def due(self, host: str, interval: float) -> float:
        """When *host* is due; -inf where nothing is known of it."""
        known = self.of(host)
        spaced = [one.line.ended + max(one.need, interval) for one in known.sent.values()]
        return max([*(hold.until for hold in known.holds), *spaced], default=-math.inf)

    def hold(self, host: str, hold: Hold) -> None:
        """R5: *host* is to be left alone."""
        self._hosts.setdefault(host, Past()).holds.append(hold)

    def lift(self, host: str) -> None:
        """A person has lifted what *host* was to be left alone for."""
        if host in self._hosts:
            self._hosts[host].holds.clear()

    # -- what the next exchange has to keep ---------------------------------------------------

    def ahead(self, line: Line, need: float, patience: float, least: float) -> float | None:
        """Seconds after its robots.txt that a slow host's target may go (D11); None: it may not.

        *need*: seconds that the host asks for. *least*: WALSH_MIN_INTERVAL.
        """
        before, past = self.last(line.host), self.of(line.host)
        if line.purpose != TARGET or before is None or before.purpose == TARGET:
            return None
        rested, ended = past.rested + ONE_CLOCK, before.ended
        at = visit_from(need, patience, rested, ended + least, past.visited)
        return None if at is None else at - ended

    def busy(self, process: str) -> Line | None:
        """The exchange of *process* that ended last: the next must not begin before (R4.1)."""
        return self._busy.get(process)

    def gap(self, one: Sent) -> Gap | None:
        """Of the gaps before *one*, the one that was closest to what it had to be, if any."""
        gaps = (_gap(before, one) for before in self.of(one.line.host).sent.values())
        return min(gaps, key=lambda gap: gap.seconds + gap.slack - gap.required, default=None)

    def held(self, one: Sent) -> Hold | None:
        """Of the holds that the process of *one* knew of when it began, the one that ends last."""
        known = (
            hold
            for hold in self.of(one.line.host).holds
            if one.line.started >= hold.since + (_UNKNOWN_YET if hold.process != one.process else 0)
        )
        return max(known, default=None)

    def take(self, one: Sent) -> None:
        """Keep *one* for the next ones."""
        line, host = one.line, self._hosts.setdefault(one.line.host, Past())
        busy = self._busy.get(one.process)
        if busy is None or line.ended >= busy.ended:
            self._busy[one.process] = line
        host.rested = line.started - self.last_end(line.host)
        host.first = min(host.first, line.started)
        host.visited = host.visited if one.ahead is None else line.ended
        host.exempt = host.exempt if one.credit is None else line.started
        host.holds = [hold for hold in host.holds if hold.until > line.started]
        if line.wait is not None and line.wait > 0:
            why = f"line {line.n} had it left alone for {line.wait:.3f} s"
            host.holds.append(Hold(line.ended + line.wait, line.ended, one.process, why))
        host.sent[one.process] = one
        latest = max(each.line.started for each in host.sent.values())
        for process, each in list(host.sent.items()):
            if each.line.started < latest - max(_REMEMBERED, each.need):
                del host.sent[process]


def _gap(before: Sent, one: Sent) -> Gap:
    if before.process == one.process:
        need = one.need if one.ahead is None else one.ahead
        if before.credit is not None and one.line.purpose == TARGET:
            need = before.credit
        seconds = one.line.started - before.line.ended
        return Gap(before.line, seconds, need, ONE_CLOCK, "the end")
    seconds = one.line.started - before.line.started
    need = one.need if seconds >= 0 else before.need
    return Gap(before.line, abs(seconds), need, THE_WIRE, "the start")
