"""What the year came to, for a reader."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tests.year.manners import by_rule
from tests.year.schedule import MAIN
from tests.year.world import DAY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.year.log import Book, Ran, Violation

#: Days at whose end state and start-up are shown, and violations of a rule that are.
_DAYS = (1, 30, 180, 365)
_SHOWN = 10


def lines(book: Book, found: list[Violation]) -> Iterator[str]:
    """The tables: requests by host and month, the state by day, violations by rule."""
    yield from _requests(book)
    yield ""
    yield from _state(book)
    yield ""
    for rule, each in by_rule(found).items():
        yield f"BROKEN {rule}: {len(each)}"
        yield from (f"  {violation.text}" for violation in each[:_SHOWN])
    yield f"violations: {len(found)}"


def _requests(book: Book) -> Iterator[str]:
    """Targets and robots.txt, by host and month (of a year) or week."""
    days = book.world.days
    names = [f"{month}" for month in range(1, 13)] if days > 60 else []
    names = names or [f"week {week + 1}" for week in range((days + 6) // 7)]
    count: Counter[tuple[str, str]] = Counter()
    robots: Counter[str] = Counter()
    for each in book.log:
        robots[each.host] += each.is_robots
        count[each.host, _column(each.start - book.world.start, days)] += not each.is_robots
    yield f"{'targets of':<16}" + "".join(f"{name:>8}" for name in names) + f"{'robots':>8}"
    for host in sorted(book.by_host):
        cells = "".join(f"{count[host, name]:>8}" for name in names)
        yield f"{host:<16}{cells}{robots[host]:>8}"


def _column(since: float, days: int) -> str:
    if days > 60:
        return str(datetime.fromtimestamp(since * 365 / days + 1735689600, UTC).month)
    return f"week {int(since // (7 * DAY)) + 1}"


def _state(book: Book) -> Iterator[str]:
    """Rows, octets and start-up, at the end of some days."""
    runs = [ran for ran in book.runs if ran.rows]
    tables = sorted(runs[-1].rows)
    shown = [(day, ran) for day in _DAYS if (ran := _at(book, runs, day)) is not None]
    yield f"{'after day':<16}" + "".join(f"{day:>10}" for day, _ in shown)
    for table in tables:
        yield f"{table:<16}" + "".join(f"{ran.rows.get(table, 0):>10}" for _, ran in shown)
    for kind in sorted(runs[-1].octets):
        cells = "".join(f"{ran.octets.get(kind, 0) / 1024:>10.0f}" for _, ran in shown)
        yield f"{kind + ' KiB':<16}{cells}"
    yield f"{'start-up CPU s':<16}" + "".join(f"{_startup(book, day):>10.3f}" for day, _ in shown)


def _at(book: Book, runs: list[Ran], day: int) -> Ran | None:
    """The last run of that day, counted from 1."""
    if day > book.world.days:
        return None
    until = [ran for ran in runs if ran.start < book.world.start + day * DAY]
    return until[-1] if until else None


def _startup(book: Book, day: int) -> float:
    """Of the last five daily runs until then, the middle one."""
    begun = [
        ran.startup
        for ran in book.runs
        if ran.spider == MAIN and ran.startup and ran.start < book.world.start + day * DAY
    ][-5:]
    return sorted(begun)[len(begun) // 2]


def by_day(book: Book) -> str:
    """CSV: a line for each source, a column for each day, in it the requests of that day."""
    days = range(book.world.days)
    count: Counter[tuple[str, int]] = Counter()
    for each in book.log:
        count[each.key, int((each.start - book.world.start) // DAY)] += 1
    keys = sorted({key for key, _ in count})
    head = ",".join(["request", *(str(day + 1) for day in days)])
    rows = (",".join([key.strip(), *(str(count[key, day]) for day in days)]) for key in keys)
    return "\n".join([head, *rows]) + "\n"
