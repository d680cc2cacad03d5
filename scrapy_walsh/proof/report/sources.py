"""The sources in a state: which are read, and which need a person. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from scrapy_walsh.policy.readings import PERIODS, is_unread
from scrapy_walsh.policy.times import duration
from scrapy_walsh.policy.visits import REVISIT_FLOOR
from scrapy_walsh.policy.words import plural

if TYPE_CHECKING:
    from collections.abc import Collection

    from scrapy_walsh.policy.readings import Reading

#: Sources that are listed at most.
LISTED: Final = 400
#: The states of a source, in the order of the page.
NEEDS: Final = "needs a person"
UNREAD: Final = "not read at its last visit"
NEW: Final = "not requested yet"
READ: Final = "read"
_ORDER: Final = (NEEDS, UNREAD, NEW, READ)


class Row(NamedTuple):
    """A source. ``state``: one of the above. ``read``: when last, Unix seconds; None for never.

    ``well``: its last visit read it, though it may need a person, for example because it has moved.
    """

    url: str
    state: str
    read: float | None
    why: str
    well: bool


class Sources(NamedTuple):
    """The state of ``total`` sources at ``now``, Unix seconds. ``rows``: the first LISTED.

    ``read``, ``needs``: of all, how many their last visit read, and how many need a person.
    """

    now: float
    rows: list[Row]
    total: int
    read: int
    needs: int

    def __str__(self) -> str:
        verb = "needs" if self.needs == 1 else "need"
        person = f", {self.needs:,} {verb} a person" if self.needs else ""
        return f"{self.read:,} of {plural(self.total, 'source')} read{person}"


def sources_of(readings: Collection[Reading], now: float, revisit: float) -> Sources | None:
    """The sources that are still declared; None if there are none.

    Others stay on record for a year: a source is left out that no run has declared for as long as
    one may stay unread, counted from the last declaration of any. *revisit*: seconds.
    """
    latest = max((reading.declared_at for reading in readings), default=None)
    if latest is None:
        return None
    rows = []
    for reading in readings:
        period = max(reading.revisit or 0.0, revisit, REVISIT_FLOOR)
        if reading.declared_at >= latest - PERIODS * period:
            rows.append(_row(reading, now, revisit))
    count = sum(row.well for row in rows)
    needs = sum(row.state == NEEDS for row in rows)
    return Sources(now, sorted(rows, key=_place)[:LISTED], len(rows), count, needs)


def _place(row: Row) -> tuple[int, float, str]:
    """A key to sort by: in the order of the page, what was not read for longest first."""
    return _ORDER.index(row.state), row.read or 0.0, row.url


def _row(reading: Reading, now: float, revisit: float) -> Row:
    age = duration(max(0.0, now - reading.since))
    reason = reading.reason or ""
    late = is_unread(reading, now, revisit)
    state = UNREAD if reason else READ if reading.read else NEW
    cause = reason
    if reading.gone_at is not None:
        state = NEEDS
        cause = "gone (410): take it out of your list"
    elif reading.moved_to is not None:
        state = NEEDS
        cause = f"moved for good to {reading.moved_to}: change it in your list"
    elif late:
        state = NEEDS
        cause = f"not read for {age}: {reason or 'no run since then was answered'}"
    well = bool(reading.read and not reason and not late)
    return Row(reading.url, state, reading.since if reading.read else None, cause, well)
