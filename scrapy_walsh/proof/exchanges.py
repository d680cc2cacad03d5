"""Exchanges as a server's log has them: gaps, holds, overlaps, a host's first robots.txt. Pure.

All judges of such a log read it through this module: for example conformance, ``audit``, the
sandbox, and the tests and benches of this project. Its rules are its own. It asks nothing of what
decides in a crawl, since it is to find out whether that decides rightly::

    for gap in too_soon(log, 1.0, THE_WIRE):
        print(gap.after.path, gap.seconds)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeAlias, TypeVar

from scrapy_walsh.proof.spacing import is_short

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROBOTS: Final = "/robots.txt"
_Of = TypeVar("_Of")


class Exchange(NamedTuple, Generic[_Of]):
    """One request and its answer. ``of``: its line in the log.

    ``host``: those are paced together. ``path``: without query. ``start``, ``end``: seconds of one
    clock; the end is infinite as long as no answer is complete. ``status``: None if nothing was
    answered. ``by``: the process that sent it, if that is known. ``hold``: seconds from the end on
    that the host asked to be left alone.
    """

    host: str
    path: str
    start: float
    end: float
    status: int | None
    of: _Of
    by: int = 0
    hold: float = 0.0


@dataclass(frozen=True, slots=True)
class Gap(Generic[_Of]):
    """Two neighbouring exchanges with a host, in seconds.

    ``rested``: from the exchange before both of them to ``before``; infinite if there was none.
    """

    before: Exchange[_Of]
    after: Exchange[_Of]
    rested: float = math.inf

    @property
    def rest(self) -> float:
        """From the end of the earlier to the start of the later."""
        return self.after.start - self.before.end

    @property
    def apart(self) -> float:
        """From start to start."""
        return self.after.start - self.before.start

    @property
    def seconds(self) -> float:
        """``rest``; between two processes ``apart``: one may not know when the other's ended."""
        if self.before.by == self.after.by:
            return self.rest
        return self.apart

    @property
    def visit(self) -> bool:
        """Whether it is a robots.txt that was answered, and a target of the same process."""
        return (
            self.before.path == ROBOTS != self.after.path
            and self.before.by == self.after.by
            and _is_answer(self.before.status)
        )

    @property
    def first_pair(self) -> bool:
        """Whether it is the visit that begins a host's log: it may have no gap at all (T1)."""
        return self.visit and self.rested == math.inf

    def __str__(self) -> str:
        host = self.after.host
        earlier = self.before.path
        later = self.after.path
        return f"{host}{earlier} -> {later} after {self.seconds:.3f} s"


def _is_answer(status: int | None) -> bool:
    """Whether this answer to a robots.txt says what the rules are: 2xx, or 4xx for "none"."""
    return status is not None and 200 <= status < 500 and status // 100 != 3 and status != 429


#: Seconds that must pass in a gap: the same in all of them, or what each of them asks for.
Interval: TypeAlias = float | Callable[[Gap[_Of]], float]


def in_order(log: Iterable[Exchange[_Of]]) -> list[Exchange[_Of]]:
    """*log* by the start of each exchange."""
    return sorted(log, key=lambda exchange: exchange.start)


def by_start(log: Iterable[Exchange[_Of]]) -> list[Exchange[_Of]]:
    """*log* as if each exchange were over at once: to processes that know no more of another's."""
    return [exchange._replace(end=exchange.start) for exchange in log]


def gaps(log: Iterable[Exchange[_Of]]) -> Iterator[Gap[_Of]]:
    """The gaps of all hosts of *log*, by the start of the later exchange."""
    latest: dict[str, tuple[Exchange[_Of], float]] = {}
    for exchange in in_order(log):
        rested = math.inf
        if exchange.host in latest:
            gap = Gap(latest[exchange.host][0], exchange, latest[exchange.host][1])
            rested = gap.rest
            yield gap
        latest[exchange.host] = exchange, rested


def too_soon(
    log: Iterable[Exchange[_Of]],
    interval: Interval[_Of],
    slack: float,
    *,
    exempt: bool = True,
) -> list[Gap[_Of]]:
    """The gaps that are shorter than *interval* seconds, by more than *slack*.

    *exempt*: the first pair of each host is left out (T1).
    """
    asks = interval if callable(interval) else lambda _: interval
    return [
        gap
        for gap in gaps(log)
        if is_short(gap.seconds, asks(gap), slack) and not (exempt and gap.first_pair)
    ]


def overlaps(log: Iterable[Exchange[_Of]], slack: float = 0.0) -> Iterator[Gap[_Of]]:
    """Each exchange that began while an earlier one, with any host, was under way."""
    earlier: Exchange[_Of] | None = None
    for exchange in in_order(log):
        if earlier is not None and exchange.start < earlier.end - slack:
            yield Gap(earlier, exchange)
        if earlier is None or exchange.end > earlier.end:
            earlier = exchange


def held(log: Iterable[Exchange[_Of]], slack: float) -> Iterator[tuple[Exchange[_Of], float]]:
    """Each exchange that began in a hold of its host, and how many seconds were left of that."""
    until: dict[str, float] = {}
    for exchange in in_order(log):
        remainder = until.get(exchange.host, -math.inf) - exchange.start
        if remainder > slack:
            yield exchange, remainder
        if exchange.hold:
            until[exchange.host] = max(
                until.get(exchange.host, -math.inf),
                exchange.end + exchange.hold,
            )
