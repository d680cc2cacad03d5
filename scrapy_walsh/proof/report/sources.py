"""The sources in a state: which are read, and which need a person. Pure.

For example, a source that has not been read for 9 days needs a person, and stands first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from scrapy_walsh.policy.readings import PERIODS, is_unread, no_visit, why_gone
from scrapy_walsh.policy.times import duration
from scrapy_walsh.policy.visits import interval_of
from scrapy_walsh.policy.words import plural

if TYPE_CHECKING:
    from collections.abc import Collection

    from scrapy_walsh.policy.readings import Reading
    from scrapy_walsh.policy.visits import VisitOf

#: So many sources are listed at most.
LISTED: Final = 400
#: The states of a source, in the order of the page.
NEEDS: Final = "needs a person"
UNREAD: Final = "not read at its last visit"
NEW: Final = "not requested yet"
READ: Final = "read"
_ORDER: Final = (NEEDS, UNREAD, NEW, READ)


class SourceRow(NamedTuple):
    """The row of a source. ``state``: one of the above. ``why``: its reason, one line.

    ``read``: when it was last read, Unix seconds; None for never. ``well``: its last visit read it.
    A source that is well may need a person, for example because it has moved.
    """

    url: str
    state: str
    read: float | None
    why: str
    well: bool


class SourceTable(NamedTuple):
    """The rows of ``total`` sources at ``now``, Unix seconds; ``rows`` has the first LISTED.

    ``read``: how many of all were read at their last visit. ``needs``: how many need a person.
    """

    now: float
    rows: list[SourceRow]
    total: int
    read: int
    needs: int

    def __str__(self) -> str:
        text = f"{self.read:,} of {plural(self.total, 'source')} read"
        if not self.needs:
            return text
        verb = "needs" if self.needs == 1 else "need"
        return f"{text}, {self.needs:,} {verb} a person"


def sources_of(
    readings: Collection[Reading], now: float, revisit: float, visit_of: VisitOf = no_visit
) -> SourceTable | None:
    """The table of the sources that are still declared; None if there are none.

    Records stay for a year. So we leave a source out if no run has declared it for three periods,
    counted from the latest declaration of any source. *revisit*: WALSH_REVISIT, seconds.
    """
    latest = max((reading.declared_at for reading in readings), default=None)
    if latest is None:
        return None
    rows = []
    for reading in readings:
        # Runs come each WALSH_REVISIT, even if a source has a shorter interval of its own.
        period = max(interval_of(reading.revisit, revisit), interval_of(None, revisit))
        if reading.declared_at >= latest - PERIODS * period:
            late = is_unread(reading, now, revisit, visit_of)
            rows.append(_row(reading, now, is_late=late))
    well = sum(row.well for row in rows)
    needs = sum(row.state == NEEDS for row in rows)
    return SourceTable(now, sorted(rows, key=_place)[:LISTED], len(rows), well, needs)


def _place(row: SourceRow) -> tuple[int, float, str]:
    """A key to sort by: the order of the states, then the longest unread first."""
    return _ORDER.index(row.state), row.read or 0.0, row.url


def _row(reading: Reading, now: float, *, is_late: bool) -> SourceRow:
    """The row of *reading*; *is_late*: it is unread (``readings.is_unread``)."""
    why = reading.reason or ""
    state = NEW
    if reading.reason:
        state = UNREAD
    elif reading.read:
        state = READ
    if reading.gone_at is not None:
        state = NEEDS
        why = why_gone(reading)
    elif reading.moved_to is not None:
        state = NEEDS
        why = f"moved for good to {reading.moved_to}: change it in your list"
    elif is_late:
        age = duration(max(0.0, now - reading.since))
        state = NEEDS
        why = f"not read for {age}: {why or 'no run since then was answered'}"
    is_well = bool(reading.read and not reading.reason and not is_late)
    return SourceRow(reading.url, state, reading.since if reading.read else None, why, is_well)
