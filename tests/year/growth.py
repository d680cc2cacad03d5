"""R11 over days: nothing that is remembered grows with the number of runs."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final

from tests.year.log import Violation
from tests.year.schedule import MAIN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.year.log import Book, Ran

#: The one table that may grow: the links that were emitted.
LINKS: Final = "seen_items"
#: Octets of the ledger: 16 full files of 16 MiB, and the one that is written to.
LEDGER: Final = 17 * 16 * 2**20


def rows(book: Book) -> Iterator[Violation]:
    """No more rows of a kind than there are sources and hosts; of links, than were shown."""
    runs = [ran for ran in book.runs if ran.rows]
    known = {key for ran in runs for key in ran.declared}
    also = {url for source in book.world.sources for url in source.also}
    bound = len(known) + len(also) + len(book.world.hosts) + 10
    for ran in runs[-1:]:
        for table, count in ran.rows.items():
            most = book.world.links(ran.end) if table == LINKS else bound
            if count > most:
                yield Violation("R11", f"{count} rows of {table} after {len(runs)} runs")
    # Every source was asked long before the last third, so nothing new has to be remembered.
    late = runs[len(runs) * 2 // 3 :]
    for table in late[0].rows:
        more = late[-1].rows.get(table, 0) - late[0].rows[table]
        if table != LINKS and more > len(late) / 4:
            text = f"{table} grew by {more} rows in the last {len(late)} runs"
            yield Violation("R11", text)


def octets(book: Book) -> Iterator[Violation]:
    """A run writes as much at the end as at the beginning, and the ledger has an end."""
    runs = [ran for ran in book.runs if ran.octets]
    if runs[-1].octets.get("ledger", 0) > LEDGER:
        yield Violation("R11", f"the ledger has {runs[-1].octets['ledger']} octets")
    third = len(runs) // 3
    first, last = (_written(part) for part in (runs[: third + 1], runs[-third:]))
    if last > 2 * first + 10_000:
        text = f"a day adds {last:.0f} octets to the ledger, {first:.0f} at first"
        yield Violation("R11", text)
    if runs[-1].octets["database"] > 3 * runs[third].octets["database"]:
        sizes = f"{runs[third].octets['database']} to {runs[-1].octets['database']}"
        yield Violation("R11", f"the database grew from {sizes} octets")


def _written(runs: list[Ran]) -> float:
    """Octets of ledger from one run to the next, most often."""
    sizes = [ran.octets.get("ledger", 0) for ran in runs]
    return (sizes[-1] - sizes[0]) / max(1, len(sizes) - 1)


def startup(book: Book) -> Iterator[Violation]:
    """A run begins as fast after a year as after a month: processor time, and twice is allowed."""
    begun = [ran.startup for ran in book.runs if ran.spider == MAIN and ran.startup]
    third = max(1, len(begun) // 3)
    first, last = median(begun[:third]), median(begun[-third:])
    if last > 2 * first:
        yield Violation("R11", f"a run starts in {last:.3f} s, at first {first:.3f} s")
