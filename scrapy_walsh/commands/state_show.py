"""What ``walsh state show`` shows, as data and as tables."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.policy import hosts, recrawl
from scrapy_walsh.policy.freshness import DEFAULT_REFRESH, SCHEMA_TTL, is_fresh, robots_ttl
from scrapy_walsh.policy.learned import eased
from scrapy_walsh.policy.readings import is_unread
from scrapy_walsh.policy.times import duration, iso
from scrapy_walsh.policy.words import plural, visible
from scrapy_walsh.state.records import (
    BLOCKLIST,
    DOCUMENT_KINDS,
    ROBOTS,
    SCHEMA,
    Deferral,
    HostRecord,
    Reading,
    SourceRun,
    StoredDocument,
)
from scrapy_walsh.state.tables import ATTEMPTS, SEEN_ITEMS, VALIDATORS
from scrapy_walsh.terminal import local, table, when

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from scrapy_walsh.config import WalshConfig
    from scrapy_walsh.state.base import Store
    from scrapy_walsh.state.tables import Table

    #: A class of records; what is shown of one; and a sort key: what matters most has the largest.
    Kind = tuple[type[Any], Callable[[Any], dict[str, Any]], Callable[[Any], Any]]

#: The tables of which only the number of rows is told.
_COUNTED: Final[tuple[Table[Any], ...]] = (VALIDATORS, ATTEMPTS, SEEN_ITEMS)


def everything(store: Store, config: WalshConfig, now: float) -> Iterator[dict[str, Any]]:
    """Each record that is shown, one after the other; ``record`` says of which kind it is."""
    for name, (record, members, _) in _Look(store, config, now).kinds().items():
        for each in store.rows(record):
            yield {"record": name, **members(each)}


def summary(
    store: Store, config: WalshConfig, directory: Path, now: float, limit: int
) -> dict[str, Any]:
    """What matters most in *store*, as JSON data: at most *limit* rows of a kind; all are counted.

    However many records there are, no more than *limit* of a kind are in memory. When sources and
    targets are next due is ISO 8601 in UTC, other times are Unix seconds. Raises StateError.
    """
    look, found = _Look(store, config, now), {}
    for name, (record, members, weight) in look.kinds().items():
        first = heapq.nlargest(limit, look.counted(name, record), key=weight)
        found[name] = [members(each) for each in first]
    return {
        "directory": str(directory),
        "shared": store.shared,
        "now": now,
        **found,
        **{table.name: sum(1 for _ in store._rows(table)) for table in _COUNTED},
        "counts": dict(look.counts),
    }


class _Look:
    """The records of a store as JSON data."""

    def __init__(self, store: Store, config: WalshConfig, now: float) -> None:
        self._store, self._config, self._now = store, config, now
        self.counts: Counter[str] = Counter()

    def kinds(self) -> dict[str, Kind]:
        """By name, each kind of records that is shown."""
        return {
            "hosts": (
                HostRecord,
                self._host,
                lambda host: (host.silent_since is not None, self._next_request(host)),
            ),
            "deferrals": (Deferral, self._deferral, lambda each: each.due),
            "documents": (
                StoredDocument,
                self._document,
                lambda each: (each.kind != ROBOTS, each.fetched_at),
            ),
            "sources": (SourceRun, self._source, lambda run: run.visit),
            # What was declared last, and of that what was not read for longest.
            "readings": (Reading, self._reading, lambda each: (each.declared_at, -each.since)),
        }

    def counted(self, name: str, record: type[Any]) -> Iterator[Any]:
        """The records of a kind that are worth a line; all are counted."""
        for each in self._store.rows(record):
            self.counts[name] += 1
            if isinstance(each, HostRecord):
                self.counts["hosts that wait"] += self._next_request(each) > self._now
                self.counts["silent hosts"] += each.silent_since is not None
            if isinstance(each, StoredDocument):
                self.counts[each.kind] += 1
            if isinstance(each, Reading):
                if each.read and not (each.reason or each.moved_to or self._is_unread(each)):
                    continue
                self.counts["readings worth a line"] += 1
            yield each

    def _taught(self, record: HostRecord) -> float:
        return eased(record.taught, self._now).interval

    def _interval(self, record: HostRecord | None) -> float:
        least = self._config.min_interval
        return least if record is None else max(record.interval, least, self._taught(record))

    def _next_request(self, record: HostRecord) -> float:
        return max(record.last_end + self._interval(record), record.not_before or 0.0)

    def _host(self, record: HostRecord) -> dict[str, Any]:
        return {
            "host": record.host,
            "next_request": self._next_request(record),
            "interval": self._interval(record),
            "learned": self._taught(record) or None,
            **_members(record, "silent_since", "last_end", "why"),
        }

    def _deferral(self, record: Deferral) -> dict[str, Any]:
        return {**_members(record, "url", "host", "reason"), "next_due": _iso(record.due)}

    def _document(self, record: StoredDocument) -> dict[str, Any]:
        interval = self._interval(self._record(record.key))
        keep = {
            ROBOTS: robots_ttl(self._config.robots_ttl, interval),
            SCHEMA: SCHEMA_TTL,
            BLOCKLIST: record.refresh or DEFAULT_REFRESH,
        }[record.kind]
        return {
            **_members(record, "kind", "key", "fetched_at", "status", "outcome"),
            "octets": len(record.body),
            "kept": keep,
            "fresh": is_fresh(record.fetched_at, self._now, keep),
        }

    def _source(self, run: SourceRun) -> dict[str, Any]:
        host = self._record(run.url)
        until = 0.0 if host is None else host.not_before or 0.0
        due = recrawl.next_due(run.visit, until, self._now, self._config.revisit)
        return {**_members(run, "url", "last_run_at", "outcome", "reason"), "next_due": _iso(due)}

    def _reading(self, record: Reading) -> dict[str, Any]:
        return {**asdict(record), "unread": self._is_unread(record)}

    def _is_unread(self, record: Reading) -> bool:
        return is_unread(record, self._now, self._config.revisit)

    def _record(self, url: str) -> HostRecord | None:
        """The record of the host of *url*, which may be what another version stored."""
        try:
            return self._store.get(HostRecord, hosts.host_key(url.partition(" ")[0]))
        except ValueError:
            return None


def _members(record: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(record, name) for name in names}


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
        (
            (
                *(each["kind"], each["key"]),
                duration(round(now - each["fetched_at"])) if each["fetched_at"] else "unknown",
                "fresh" if each["fresh"] else "stale",
                *(f"{each['outcome']} ({each['status']})", str(each["octets"])),
            )
            for each in found["documents"]
        ),
        counts["documents"],
    )
    yield from _table(
        f"sources: {counts['sources']}",
        ("source", "last run", "outcome", "next due", "reason given"),
        (
            (
                *(each["url"], local(each["last_run_at"]), each["outcome"]),
                *(_due(each, now), each["reason"] or ""),
            )
            for each in found["sources"]
        ),
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
    learned, silent = host["learned"], host["silent_since"]
    why = f", learned {round(learned, 2):g} s" if learned else ""
    why += f", no answer since {local(silent)}" if silent else ""
    return f"{round(host['interval'], 2):g} s{why}"


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
