"""Exchanges as a server's log has them: gaps, holds, overlaps, a host's first robots.txt. Pure.

Whoever judges such a log reads it through this module: conformance, ``audit``, the sandbox, and the
tests and benches of this project. Its rules are its own. It asks nothing of what decides in a
crawl, since it is to find out whether that decides rightly::

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
    """One request, and what came of it, whose line in the log is ``of``.

    ``host``: those are paced together. ``path``: without query. ``start``, ``end``: seconds of one
    clock; the end is infinite while it is being answered. ``status``: None where nothing was
    answered. ``by``: the process that sent it, where that is known. ``hold``: seconds from the end
    on for which the host asked to be left alone.
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

    ``rested``: from the one before both of them to ``before``; infinite where there was none.
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
        return self.rest if self.before.by == self.after.by else self.apart

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
        """Whether it is a visit with which a host's log begins: it may have no gap at all (T1)."""
        return self.visit and self.rested == math.inf

    def __str__(self) -> str:
        host, before, after = self.after.host, self.before.path, self.after.path
        return f"{host}{before} -> {after} after {self.seconds:.3f} s"


def _is_answer(status: int | None) -> bool:
    """Whether this answer to a robots.txt says what the rules are: 2xx, or 4xx for "none"."""
    return status is not None and 200 <= status < 500 and status // 100 != 3 and status != 429


#: Seconds that must pass in a gap: the same in all of them, or what each of them asks for.
Interval: TypeAlias = float | Callable[[Gap[_Of]], float]


def in_order(log: Iterable[Exchange[_Of]]) -> list[Exchange[_Of]]:
    """*log* by the start of each exchange."""
    return sorted(log, key=lambda each: each.start)


def by_start(log: Iterable[Exchange[_Of]]) -> list[Exchange[_Of]]:
    """*log* as if each exchange were over at once: to processes that know no more of another's."""
    return [each._replace(end=each.start) for each in log]


def gaps(log: Iterable[Exchange[_Of]]) -> Iterator[Gap[_Of]]:
    """The gaps of all hosts of *log*, by the start of the later exchange."""
    last: dict[str, tuple[Exchange[_Of], float]] = {}
    for each in in_order(log):
        rested = math.inf
        if each.host in last:
            gap = Gap(last[each.host][0], each, last[each.host][1])
            rested = gap.rest
            yield gap
        last[each.host] = each, rested


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
    before: Exchange[_Of] | None = None
    for each in in_order(log):
        if before is not None and each.start < before.end - slack:
            yield Gap(before, each)
        if before is None or each.end > before.end:
            before = each


def held(log: Iterable[Exchange[_Of]], slack: float) -> Iterator[tuple[Exchange[_Of], float]]:
    """Each exchange that began in a hold of its host, and how many seconds were left of that."""
    until: dict[str, float] = {}
    for each in in_order(log):
        left = until.get(each.host, -math.inf) - each.start
        if left > slack:
            yield each, left
        if each.hold:
            until[each.host] = max(until.get(each.host, -math.inf), each.end + each.hold)
