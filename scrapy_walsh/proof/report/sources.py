"""What a state knows of its sources: which are read, and which need a person. Pure."""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from scrapy_walsh.policy.recrawl import PERIODS, REVISIT_FLOOR, is_unread
from scrapy_walsh.policy.times import duration
from scrapy_walsh.policy.words import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from scrapy_walsh.policy.recrawl import Reading

#: Sources that are listed at most.
LISTED: Final = 400
#: The states of a source, in the order of the page.
NEEDS: Final = "needs a person"
UNREAD: Final = "not read at its last visit"
NEW: Final = "not requested yet"
READ: Final = "read"
_ORDER: Final = (NEEDS, UNREAD, NEW, READ)


class Row(NamedTuple):
    """A source. ``state``: one of the above. ``read``: when last, Unix seconds; None for never."""

    url: str
    state: str
    read: float | None
    why: str


@dataclass(frozen=True, slots=True)
class Sources:
    """Sources at ``now``, Unix seconds. ``rows``: the first LISTED.

    ``counts``: of all; READ, those that the last visit read, and NEEDS may be the same.
    """

    now: float
    rows: tuple[Row, ...]
    total: int
    counts: Counter[str]

    @property
    def more(self) -> int:
        """How many are not listed."""
        return self.total - len(self.rows)

    def __str__(self) -> str:
        needs = self.counts[NEEDS]
        person = f", {needs:,} need{'s' if needs == 1 else ''} a person" if needs else ""
        return f"{self.counts[READ]:,} of {plural(self.total, 'source')} read{person}"


def sources_of(
    readings: Callable[[], Iterable[Reading]], now: float, revisit: float
) -> Sources | None:
    """The sources that are still declared; None where there are none.

    Others stay on record for a year: a source is left out that no run has declared for as long as
    one may stay unread, counted from the last declaration of any. *revisit*: seconds.
    """
    last = max((each.declared_at for each in readings()), default=None)
    if last is None:
        return None
    counts, total = Counter[str](), 0

    def placed() -> Iterable[tuple[tuple[int, float, str], Row]]:
        nonlocal total
        for each in readings():
            period = max(each.revisit or 0.0, revisit, REVISIT_FLOOR)
            if each.declared_at >= last - PERIODS * period:
                row = _row(each, now, revisit)
                counts[NEEDS] += row.state == NEEDS
                fails = not each.read or each.reason or is_unread(each, now, revisit)
                counts[READ] += not fails
                total += 1
                yield (_ORDER.index(row.state), each.since, each.url), row

    rows = tuple(row for _, row in heapq.nsmallest(LISTED, placed()))
    return Sources(now, rows, total, counts)


def _row(each: Reading, now: float, revisit: float) -> Row:
    age, reason = duration(max(0.0, now - each.since)), each.reason or ""
    state, why = UNREAD if reason else READ if each.read else NEW, reason
    if each.gone_at is not None:
        state, why = NEEDS, "gone (410): take it out of your list"
    elif each.moved_to is not None:
        state, why = NEEDS, f"moved for good to {each.moved_to}: change it in your list"
    elif is_unread(each, now, revisit):
        state, why = NEEDS, f"not read for {age}: {reason or 'no run since then was answered'}"
    return Row(each.url, state, each.since if each.read else None, why)
