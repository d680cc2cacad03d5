"""What ``walsh state show`` shows, as data and as tables."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from scrapy_walsh.commands.terminal import due_at, table, when
from scrapy_walsh.exceptions import visible
from scrapy_walsh.policy import hosts, visits
from scrapy_walsh.policy.hints import Hints
from scrapy_walsh.policy.readings import is_unread
from scrapy_walsh.policy.throttle import eased
from scrapy_walsh.policy.times import duration, iso
from scrapy_walsh.state.records import (
    DEFERRALS,
    DOCUMENTS,
    HOSTS,
    READINGS,
    ROBOTS,
    SOURCES,
    TABLES,
    HostRecord,
    Reading,
    StoredDocument,
    VisitRecord,
    moved,
)
from scrapy_walsh.terminal import local

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from scrapy_walsh.config import WalshConfig
    from scrapy_walsh.state.records import Table
    from scrapy_walsh.state.store import Store

#: The records that are shown, by the names of their tables; of the others the number of rows.
_SHOWN: Final[tuple[Table[Any], ...]] = (
    HOSTS,
    DEFERRALS,
    DOCUMENTS,
    SOURCES,
    READINGS,
)


def everything(store: Store, config: WalshConfig, now: Now) -> Iterator[dict[str, Any]]:
    """Each record that is shown, one after the other; ``record`` names its kind."""
    look = _Look(store, config, now)
    for kind in _SHOWN:
        for record in store.rows(kind.record):
            yield {
                "record": kind.name,
                **look.completed(kind, look.row(record)),
            }


def summary(
    store: Store, config: WalshConfig, directory: Path, now: Now, limit: int
) -> dict[str, Any]:
    """The most important rows of *store*, as JSON data: at most *limit* of a kind; all are counted.

    However many records there are, no more than *limit* of a kind are in memory. A row has each
    field of its record; of the readings, only those that need a person. When sources and targets
    are next due is ISO 8601 in UTC, other times are Unix seconds by the wall clock. Raises
    StateError.
    """
    look = _Look(store, config, now)
    counts = Counter[str]()

    def counted(kind: Table[Any]) -> Iterator[dict[str, Any]]:
        for row in map(look.row, store.rows(kind.record)):
            if kind is not READINGS or _is_worth_a_line(row):
                counts[kind.name] += 1
                yield row

    tables = {
        kind: heapq.nlargest(limit, counted(kind), key=_MATTERS[kind.name]) for kind in _SHOWN
    }
    other_kinds = [kind for kind in TABLES if kind not in _SHOWN]
    return {
        "directory": str(directory),
        "shared": store.shared,
        "now": now.wall,
        **{kind.name: [look.completed(kind, row) for row in rows] for kind, rows in tables.items()},
        **{kind.name: sum(1 for _ in store.rows(kind.record)) for kind in other_kinds},
        "counts": {kind.name: counts[kind.name] for kind in _SHOWN},
    }


#: By kind, a sort key: the rows that matter most have the largest.
_MATTERS: Final[Mapping[str, Callable[[dict[str, Any]], Any]]] = {
    "hosts": lambda row: (row["silent_since"] is not None, row["next_request"]),
    "deferrals": lambda row: row["due"],
    "documents": lambda row: (row["kind"] != ROBOTS, row["fetched_at"]),
    "sources": lambda row: row["last_run_at"],
    # The sources that were declared last, and of these the longest unread first.
    "readings": lambda row: (row["declared_at"], -row["since"]),
}


class Now(NamedTuple):
    """The time by the two clocks of records (D9), Unix seconds."""

    wall: float
    steady: float


class _Look:
    """The records of a store as JSON data, each as it is read."""

    def __init__(self, store: Store, config: WalshConfig, now: Now) -> None:
        self._store = store
        self._config = config
        self._now = now.wall
        ahead = round(now.wall - now.steady)
        self._to_wall = dict.fromkeys(("Steady", "Until"), lambda at: at + ahead)

    def row(self, record: Any) -> dict[str, Any]:
        """The members of *record*; :meth:`completed` adds what other records say of it."""
        record = moved(record, self._to_wall)
        if isinstance(record, HostRecord):
            record = record.at(self._now)
        row = asdict(record)
        if isinstance(record, HostRecord):
            taught = eased(record.taught, self._now).in_force
            interval = max(record.interval, self._config.min_interval, taught)
            due = max(record.last_end + interval, record.not_before or 0.0)
            server = self._server_of(record)
            if server is not None:
                due = max(due, self.row(server)["next_request"])
            return {
                **row,
                "server": None if server is None else server.host,
                "next_request": due,
                "interval": interval,
                "learned": taught or None,
            }
        if isinstance(record, StoredDocument):
            row["octets"] = len(row.pop("body"))
            row["age"] = round(self._now - record.fetched_at) if record.fetched_at else None
        elif isinstance(record, Reading):
            usual = self._config.revisit
            row["unread"] = is_unread(record, self._now, usual, self._store.visit_of)
        return row

    def _server_of(self, record: HostRecord) -> HostRecord | None:
        """The record of the server that a host is paced with (T43); None if there is none."""
        pace_by = self._config.pace_by
        key = hosts.server_key(record.host, record.address, pace_by)
        server = self._store.get(HostRecord, key) if key else None
        is_bound = server and (
            pace_by != hosts.BY_HOST or moved(server, self._to_wall).binds(self._now)
        )
        return server if is_bound else None

    def completed(self, table: Table[Any], row: dict[str, Any]) -> dict[str, Any]:
        """*row* as it is shown."""
        if table is DEFERRALS:
            return row | {"next_due": _iso(row["due"])}
        if table is SOURCES:
            until = self._hold(row["url"])
            usual = self._config.revisit
            hints = Hints(**row["hints"])
            visit = VisitRecord(**row | {"hints": hints}).at(self._now).visit
            visit = visit._replace(hints_hold=self._config.hints)
            due = visits.next_due(visit, until, self._now, usual)
            return row | {
                "hint": str(hints),
                "next_due": _iso(due),
                "every": row["revisit"] or usual,
            }
        return row

    def _hold(self, url: str) -> float:
        """Until when the host of *url* is held; the URL may be what another version stored."""
        try:
            record = self._store.get(HostRecord, hosts.host_key(url))
        except ValueError:
            record = None
        if record is None:
            return 0.0
        return self.row(record)["not_before"] or 0.0


def _iso(due: float | None) -> str | None:
    if due is None:
        return None
    return iso(math.ceil(due))


# -- tables -------------------------------------------------------------------------------


def as_lines(records: dict[str, Any]) -> Iterator[str]:
    """*records* for a person: in each table, what matters most first."""
    now = records["now"]
    shared = records["shared"]
    counts = records["counts"]
    yield visible(f"state in {records['directory']}{f' and {shared}' if shared else ''}")
    for kind, title in _TITLES.items():
        columns = _COLUMNS[kind]
        rows = records[kind]
        yield ""
        yield f"{title}: {counts[kind]}"
        if rows:
            cells = [[_cell(name, row[name], now) for name in columns] for row in rows]
            headings = [name.replace("_", " ") for name in columns]
            yield from table(cells, headings=headings, indent=2)
        if counts[kind] > len(rows):
            yield f"  ... and {counts[kind] - len(rows)} more (--limit, --all)"


def _is_worth_a_line(row: dict[str, Any]) -> bool:
    return bool(row["reason"] or row["moved_to"] or row["unread"] or not row["read"])


_TITLES: Final[Mapping[str, str]] = {
    "hosts": "hosts, those without an answer and those that wait longest first",
    "deferrals": "deferred targets",
    "documents": "documents",
    "sources": "sources",
    "readings": "sources not read at their last visit, or moved for good",
}
#: By kind, the members that the table shows.
_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "hosts": ("host", "next_request", "interval", "learned", "silent_since"),
    "deferrals": ("url", "next_due", "reason"),
    "documents": ("kind", "key", "fetched_at", "age", "outcome", "status"),
    "sources": (
        "url",
        "last_run_at",
        "outcome",
        "every",
        "failures",
        "next_due",
        "hint",
        "reason",
    ),
    "readings": ("url", "read", "since", "declared_at", "reason", "moved_to"),
}
_DURATIONS: Final = frozenset({"interval", "learned", "every", "age"})


def _cell(name: str, value: Any, now: float) -> str:
    """The cell of a table for a member; times are by this machine's clock and zone."""
    if name == "next_due":
        return "now" if value is None else when(due_at(value), now)
    if value is None:
        return ""
    if name in _DURATIONS:
        return duration(value)
    if name == "next_request":
        return when(value, now)
    if isinstance(value, float):
        return local(value) if value else "never"
    return str(value)
