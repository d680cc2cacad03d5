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
from scrapy_walsh.policy.throttle import ease
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

    def counted(kind: Table[Any]) -> Iterator[Any]:
        for record in store.rows(kind.record):
            if kind is not READINGS or look.is_worth_a_line(record):
                counts[kind.name] += 1
                yield record

    tables = {kind: heapq.nlargest(limit, counted(kind), key=look.matters[kind]) for kind in _SHOWN}
    other_kinds = [kind for kind in TABLES if kind not in _SHOWN]
    return {
        "directory": str(directory),
        "shared": store.shared,
        "now": now.wall,
        **{
            kind.name: [look.completed(kind, look.row(record)) for record in records]
            for kind, records in tables.items()
        },
        **{kind.name: store.count(kind.record) for kind in other_kinds},
        "counts": {kind.name: counts[kind.name] for kind in _SHOWN},
    }


class Now(NamedTuple):
    """The time by the two clocks of records (D9), Unix seconds."""

    wall: float
    steady: float


class _Pace(NamedTuple):
    """When a host is due, Unix seconds by the steady clock; its interval, and the learned part.

    ``server``: the record of the server that it is paced with (T43).
    """

    due: float
    interval: float
    learned: float
    server: HostRecord | None


class _Look:
    """The records of a store as JSON data, each as it is read.

    ``matters``: by kind, a sort key of records: those that matter most have the largest.
    """

    def __init__(self, store: Store, config: WalshConfig, now: Now) -> None:
        self._store = store
        self._config = config
        self._now = now.wall
        self._ahead = round(now.wall - now.steady)
        self._to_wall = dict.fromkeys(("Steady", "Until"), lambda at: at + self._ahead)
        self._servers = store.servers()
        self.matters: Mapping[Table[Any], Callable[[Any], Any]] = {
            HOSTS: lambda host: (host.silent_since is not None, self._pace_of(host).due),
            DEFERRALS: lambda deferral: deferral.due,
            DOCUMENTS: lambda document: (document.kind != ROBOTS, document.fetched_at),
            SOURCES: lambda source: source.last_run_at,
            # The sources that were declared last, and of these the longest unread first.
            READINGS: lambda reading: (reading.declared_at, -reading.since),
        }

    def is_worth_a_line(self, reading: Reading) -> bool:
        """Whether a source was not read at its last visit, is unread, or has moved."""
        is_well = reading.read and not (reading.reason or reading.moved_to)
        return not is_well or self._is_unread(reading)

    def row(self, record: Any) -> dict[str, Any]:
        """The members of *record*; :meth:`completed` adds what other records say of it."""
        shown = moved(record, self._to_wall)
        if isinstance(record, HostRecord):
            pace = self._pace_of(record)
            return {
                **asdict(shown.at(self._now)),
                "server": None if pace.server is None else pace.server.host,
                "next_request": pace.due + self._ahead,
                "interval": pace.interval,
                "learned": pace.learned or None,
            }
        row = asdict(shown)
        if isinstance(record, StoredDocument):
            row["octets"] = len(row.pop("body"))
            row["age"] = round(self._now - record.fetched_at) if record.fetched_at else None
        elif isinstance(record, Reading):
            row["unread"] = self._is_unread(record)
        return row

    def _is_unread(self, reading: Reading) -> bool:
        return is_unread(reading, self._now, self._config.revisit, self._store.visit_of)

    def _pace_of(self, record: HostRecord) -> _Pace:
        now = self._now - self._ahead
        record = record.at(now)
        learned = ease(record.taught, now).in_force
        interval = max(record.interval, self._config.min_interval, learned)
        due = max(record.last_end + interval, record.not_before or 0.0)
        pace_by = self._config.pace_by
        server = self._servers.get(hosts.server_key(record.host, record.address, pace_by))
        if server is None or (pace_by == hosts.BY_HOST and not server.binds(now)):
            return _Pace(due, interval, learned, None)
        return _Pace(max(due, self._pace_of(server).due), interval, learned, server)

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
