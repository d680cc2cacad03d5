"""R4 and R5 by a ledger: who requested a host when, and until when it was to be left alone. Pure.

The tracker of exchanges of ``verify``: it keeps what was, and says what the next exchange had to
keep.

Spacing is measured within a process from the end of an exchange to the start of the next. Between
processes it is measured from start to start, because a process may not know yet when the other's
exchange ended.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import structs

from scrapy_walsh.policy.event import TARGET
from scrapy_walsh.policy.throttle import visit_from
from scrapy_walsh.proof.spacing import ONE_CLOCK, THE_WIRE, is_short

if TYPE_CHECKING:
    from scrapy_walsh.proof.ledger import Line

#: Seconds after the end of an exchange until other processes know of it.
_UNKNOWN_YET: Final = 0.1
#: Seconds that the last exchange of another process is kept.
_REMEMBERED: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Sent:
    """One exchange of a process. ``need``: seconds that must pass before it.

    ``ahead``: seconds that must pass instead, for the single target of a slow host (D11).
    ``credit``: what must pass before the target after it, for a robots.txt that T1 exempts.
    """

    line: Line
    process: str
    need: float
    ahead: float | None = None
    credit: float | None = None


class Gap(NamedTuple):
    """The time between an exchange and an earlier exchange with its host, by R4.

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
        """Seconds that *process* may seem early."""
        if process == self.process:
            return ONE_CLOCK
        return THE_WIRE


@dataclass(slots=True)
class Past:
    """``first``: when its first exchange began. ``exempt``: when the exchange began that T1
    exempts.

    ``rested``: seconds without an exchange before the last one. ``visited``: the end of the last
    exchange that went ahead.
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
        #: The server of each host, by key (T43).
        self.servers: dict[str, str] = {}

    def of(self, host: str) -> Past:
        """The record of *host*."""
        return self._hosts.get(host, _NEVER)

    def last(self, host: str) -> Line | None:
        """The exchange with *host* that began last."""
        lines = (exchange.line for exchange in self.of(host).sent.values())
        return max(lines, key=lambda line: line.started, default=None)

    def last_end(self, host: str) -> float:
        """When the last exchange with *host* ended; -inf if there was none."""
        ends = (exchange.line.ended for exchange in self.of(host).sent.values())
        return max(ends, default=-math.inf)

    def due(self, host: str, interval: float) -> float:
        """When *host* is due; -inf if nothing is known of it."""
        past = self.of(host)
        spaced = [
            exchange.line.ended + max(exchange.need, interval) for exchange in past.sent.values()
        ]
        due = max([*(hold.until for hold in past.holds), *spaced], default=-math.inf)
        if host in self.servers:
            return max(due, self.due(self.servers[host], 0.0))
        return due

    def hold(self, host: str, hold: Hold) -> None:
        """R5: *host* is to be left alone."""
        self._hosts.setdefault(host, Past()).holds.append(hold)

    def lift(self, host: str) -> None:
        """A person has lifted what *host* was to be left alone for."""
        if host in self._hosts:
            self._hosts[host].holds.clear()

    # -- what the next exchange has to keep ---------------------------------------------------

    def ahead(self, line: Line, need: float, patience: float, min_interval: float) -> float | None:
        """Seconds after its robots.txt that a slow host's target may go (D11); None: it may not.

        *need*: seconds that the host asks for. *min_interval*: WALSH_MIN_INTERVAL.
        """
        robots = self.last(line.host)
        past = self.of(line.host)
        if line.purpose != TARGET or robots is None or robots.purpose == TARGET:
            return None
        rested = past.rested + ONE_CLOCK
        end = robots.ended
        at = visit_from(need, patience, rested, end + min_interval, past.visited)
        if at is None:
            return None
        return at - end

    def busy(self, process: str) -> Line | None:
        """The exchange of *process* that ended last: the next must not begin before (R4.1)."""
        return self._busy.get(process)

    def gap(self, exchange: Sent) -> Gap | None:
        """The gap before *exchange* that is closest to its bound, if there is one."""
        gaps = (_gap(earlier, exchange) for earlier in self.of(exchange.line.host).sent.values())
        return min(
            gaps,
            key=lambda gap: gap.seconds + gap.slack - gap.required,
            default=None,
        )

    def held(self, exchange: Sent) -> Hold | None:
        """The hold that ends last of those that its process knew when *exchange* began."""
        holds = (
            hold
            for hold in self.of(exchange.line.host).holds
            if exchange.line.started
            >= hold.since + (_UNKNOWN_YET if hold.process != exchange.process else 0)
        )
        return max(holds, default=None)

    def take(self, exchange: Sent) -> None:
        """Keep *exchange*, so that the next ones are measured from it."""
        line = exchange.line
        host = self._hosts.setdefault(exchange.line.host, Past())
        busy = self._busy.get(exchange.process)
        if busy is None or line.ended >= busy.ended:
            self._busy[exchange.process] = line
        host.rested = line.started - self.last_end(line.host)
        host.first = min(host.first, line.started)
        host.visited = host.visited if exchange.ahead is None else line.ended
        host.exempt = host.exempt if exchange.credit is None else line.started
        host.holds = [hold for hold in host.holds if hold.until > line.started]
        if line.wait is not None and line.wait > 0:
            reason = f"line {line.n} held it for {line.wait:.3f} s"
            host.holds.append(Hold(line.ended + line.wait, line.ended, exchange.process, reason))
        host.sent[exchange.process] = replace(exchange, line=_without_texts(line))
        latest = max(latest_of.line.started for latest_of in host.sent.values())
        for process, earlier in list(host.sent.items()):
            if earlier.line.started < latest - max(_REMEMBERED, earlier.need):
                del host.sent[process]


def _without_texts(line: Line) -> Line:
    """*line* without its long members, because the last line of each host stays in memory."""
    return structs.replace(line, url="", sent=None, digest=None, body=None, pace=None, address=None)


def _gap(earlier: Sent, exchange: Sent) -> Gap:
    if earlier.process == exchange.process:
        need = exchange.need if exchange.ahead is None else exchange.ahead
        if earlier.credit is not None and exchange.line.purpose == TARGET:
            need = earlier.credit
        seconds = exchange.line.started - earlier.line.ended
        return Gap(earlier.line, seconds, need, ONE_CLOCK, "the end")
    seconds = exchange.line.started - earlier.line.started
    need = exchange.need if seconds >= 0 else earlier.need
    return Gap(earlier.line, abs(seconds), need, THE_WIRE, "the start")
