"""What ``walsh state show`` shows, as data and as tables."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from scrapy_walsh.policy import hosts, recrawl
from scrapy_walsh.policy.freshness import DEFAULT_REFRESH, SCHEMA_TTL, is_fresh, robots_ttl
from scrapy_walsh.policy.learned import eased
from scrapy_walsh.policy.readings import is_unread
from scrapy_walsh.policy.times import duration, iso
from scrapy_walsh.policy.words import plural, visible
from scrapy_walsh.state.records import (
    BLOCKLIST,
    DEFERRALS,
    DOCUMENT_KINDS,
    DOCUMENTS,
    HOSTS,
    READINGS,
    ROBOTS,
    SCHEMA,
    SOURCES,
    TABLES,
    HostRecord,
    Reading,
    SourceRun,
    StoredDocument,
)
from scrapy_walsh.state.schema import moved
from scrapy_walsh.terminal import local, table, when

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from scrapy_walsh.config import WalshConfig
    from scrapy_walsh.state.schema import Table
    from scrapy_walsh.state.store import Store

#: The records that are shown, by the names of their tables; of the others the number of rows.
_SHOWN: Final[tuple[Table[Any], ...]] = (HOSTS, DEFERRALS, DOCUMENTS, SOURCES, READINGS)


def everything(store: Store, config: WalshConfig, now: Now) -> Iterator[dict[str, Any]]:
    """Each record that is shown, one after the other; ``record`` says of which kind it is."""
    look = _Look(store, config, now)
    for kind in _SHOWN:
        for row in look.rows(kind):
            yield {"record": kind.name, **look.completed(kind, row)}


def summary(
    store: Store, config: WalshConfig, directory: Path, now: Now, limit: int
) -> dict[str, Any]:
    """What matters most in *store*, as JSON data: at most *limit* rows of a kind; all are counted.

    However many records there are, no more than *limit* of a kind are in memory. A row has each
    field of its record. When sources and targets are next due is ISO 8601 in UTC, other times are
    Unix seconds by the wall clock. Raises StateError.
    """
    look, counts = _Look(store, config, now), Counter[str]()

    def counted(kind: Table[Any]) -> Iterator[dict[str, Any]]:
        for row in look.rows(kind):
            counts[kind.name] += 1
            counts["hosts that wait"] += row.get("next_request", now.wall) > now.wall
            counts["silent hosts"] += row.get("silent_since") is not None
            if kind is DOCUMENTS:
                counts[row["kind"]] += 1
            if kind is not READINGS or _is_worth_a_line(row):
                counts["readings worth a line"] += kind is READINGS
                yield row

    found = {kind: heapq.nlargest(limit, counted(kind), key=_MATTERS[kind.name]) for kind in _SHOWN}
    return {
        "directory": str(directory),
        "shared": store.shared,
        "now": now.wall,
        **{kind.name: [look.completed(kind, row) for row in rows] for kind, rows in found.items()},
        **{
            kind.name: sum(1 for _ in store.rows(kind.record))
            for kind in TABLES
            if kind not in _SHOWN
        },
        "counts": dict(counts),
    }


#: By kind, a sort key: the rows that matter most have the largest.
_MATTERS: Final[Mapping[str, Callable[[dict[str, Any]], Any]]] = {
    "hosts": lambda row: (row["silent_since"] is not None, row["next_request"]),
    "deferrals": lambda row: row["due"],
    "documents": lambda row: (row["kind"] != ROBOTS, row["fetched_at"]),
    "sources": lambda row: row["last_run_at"],
    # What was declared last, and of that what was not read for longest.
    "readings": lambda row: (row["declared_at"], -row["since"]),
}


class Now(NamedTuple):
    """The time by the two clocks of records (D9), Unix seconds."""

    wall: float
    steady: float


class _Look:
    """The records of a store as JSON data, each as it is read."""

    def __init__(self, store: Store, config: WalshConfig, now: Now) -> None:
        self._store, self._config, self._now = store, config, now.wall
        ahead = round(now.wall - now.steady)
        self._to_wall = dict.fromkeys(("Steady", "Until"), lambda at: at + ahead)

    def rows(self, table: Table[Any]) -> Iterator[dict[str, Any]]:
        """The rows of *table*; :meth:`completed` adds what other records say of one."""
        return map(self._row, self._store.rows(table.record))

    def _row(self, record: Any) -> dict[str, Any]:
        record = moved(record, self._to_wall)
        row = asdict(record)
        if isinstance(record, HostRecord):
            taught = eased(record.taught, self._now).interval
            interval = max(record.interval, self._config.min_interval, taught)
            due = max(record.last_end + interval, record.not_before or 0.0)
            return {**row, "next_request": due, "interval": interval, "learned": taught or None}
        if isinstance(record, StoredDocument):
            row["octets"] = len(row.pop("body"))
        elif isinstance(record, Reading):
            row["unread"] = is_unread(record, self._now, self._config.revisit)
        return row

    def completed(self, table: Table[Any], row: dict[str, Any]) -> dict[str, Any]:
        """*row* as it is shown."""
        config, now = self._config, self._now
        if table is DEFERRALS:
            return row | {"next_due": _iso(row["due"])}
        if table is SOURCES:
            until = self._host(row["url"]).get("not_before") or 0.0
            due = recrawl.next_due(SourceRun(**row).visit, until, now, config.revisit)
            return row | {"next_due": _iso(due)}
        if table is DOCUMENTS:
            interval = self._host(row["key"]).get("interval", config.min_interval)
            keep = {
                ROBOTS: robots_ttl(config.robots_ttl, interval),
                SCHEMA: SCHEMA_TTL,
                BLOCKLIST: row["refresh"] or DEFAULT_REFRESH,
            }[row["kind"]]
            return row | {"kept": keep, "fresh": is_fresh(row["fetched_at"], now, keep)}
        return row

    def _host(self, url: str) -> dict[str, Any]:
        """The row of the host of *url*, which may be what another version stored."""
        try:
            record = self._store.get(HostRecord, hosts.host_key(url.partition(" ")[0]))
        except ValueError:
            record = None
        return {} if record is None else self._row(record)


def _iso(due: float | None) -> str | None:
    return None if due is None else iso(math.ceil(due))


# -- tables -------------------------------------------------------------------------------


def as_lines(found: dict[str, Any]) -> Iterator[str]:
    """*found* for a person: in each table, what matters most first."""
    now, shared = found["now"], found["shared"]
    counts: Counter[str] = Counter(found["counts"])
    waiting, silent = counts["hosts that wait"], counts["silent hosts"]
    yield visible(f"state in {found['directory']}{f' and {shared}' if shared else ''}")
    yield from _table(
        f"hosts: {counts['hosts'] - waiting} may be requested now, {waiting} not yet"
        f"{f', {silent} silent' if silent else ''}",
        ("host", "next request", "interval"),
        (
            (host["host"], when(host["next_request"], now), _interval_cell(host))
            for host in found["hosts"]
        ),
        counts["hosts"],
    )
    yield from _table(
        f"deferred targets: {counts['deferrals']}",
        ("target", "next due", "why"),
        ((each["url"], _due(each, now), each["reason"]) for each in found["deferrals"]),
        counts["deferrals"],
    )
    kinds = ", ".join(f"{counts[kind]} {kind}" for kind in sorted(DOCUMENT_KINDS) if counts[kind])
    yield from _table(
        f"documents: {kinds or 'none'}",
        ("document", "of", "age", "state", "outcome", "octets"),
        (_document_cells(document, now) for document in found["documents"]),
        counts["documents"],
    )
    yield from _table(
        f"sources: {counts['sources']}",
        ("source", "last run", "outcome", "next due", "reason given"),
        (_source_cells(source, now) for source in found["sources"]),
        counts["sources"],
    )
    yield from _table(
        "sources not read at their last visit, or moved for good: "
        f"{counts['readings worth a line']}",
        ("source", "last read", "last declared", "why", "moved to"),
        (_reading_cells(reading, now) for reading in found["readings"]),
        counts["readings worth a line"],
    )
    yield (
        f"validators of {plural(found['validators'], 'URL')}, "
        f"attempts at {plural(found['attempts'], 'target')}, "
        f"{plural(found['seen_items'], 'item')} seen"
    )


def _due(row: dict[str, Any], now: float) -> str:
    due = row["next_due"]
    return "now" if due is None else when(datetime.fromisoformat(due).timestamp(), now)


def _interval_cell(host: dict[str, Any]) -> str:
    learned = host["learned"]
    why = f", learned {round(learned, 2):g} s" if learned else ""
    silent = host["silent_since"]
    why += f", no answer since {local(silent)}" if silent else ""
    return f"{round(host['interval'], 2):g} s{why}"


def _document_cells(document: dict[str, Any], now: float) -> tuple[str, ...]:
    return (
        document["kind"],
        document["key"],
        duration(round(now - document["fetched_at"])) if document["fetched_at"] else "unknown",
        "fresh" if document["fresh"] else "stale",
        f"{document['outcome']} ({document['status']})",
        str(document["octets"]),
    )


def _source_cells(source: dict[str, Any], now: float) -> tuple[str, ...]:
    return (
        source["url"],
        local(source["last_run_at"]),
        source["outcome"],
        _due(source, now),
        source["reason"] or "",
    )


def _is_worth_a_line(reading: dict[str, Any]) -> bool:
    return bool(
        reading["reason"] or reading["moved_to"] or reading["unread"] or not reading["read"]
    )


def _reading_cells(reading: dict[str, Any], now: float) -> tuple[str, ...]:
    since, declared = reading["since"], reading["declared_at"]
    return (
        reading["url"],
        f"{local(since)} ({duration(round(now - since))} ago)" if reading["read"] else "never",
        f"{duration(round(max(0.0, now - declared)))} ago",
        reading["reason"] or "",
        reading["moved_to"] or "",
    )


def _table(
    title: str, headings: tuple[str, ...], rows: Iterable[tuple[str, ...]], total: int
) -> Iterator[str]:
    """*title*, then *headings* and *rows* in columns; how many of *total* are not shown."""
    shown = list(rows)
    yield ""
    yield title
    if shown:
        yield from table(shown, headings=headings, indent=2)
    if total > len(shown):
        yield f"  ... and {total - len(shown)} more (--limit, --all)"
