"""What ``walsh state show`` shows, as data and as tables."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from dataclasses import asdict, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.policy import hosts, recrawl
from scrapy_walsh.policy.freshness import DEFAULT_REFRESH, SCHEMA_TTL, is_fresh, robots_ttl
from scrapy_walsh.policy.learned import eased
from scrapy_walsh.policy.readings import is_unread
from scrapy_walsh.policy.times import duration, iso
from scrapy_walsh.policy.words import plural, visible
from scrapy_walsh.state.records import (
    ATTEMPTS,
    BLOCKLIST,
    DOCUMENT_KINDS,
    ROBOTS,
    SCHEMA,
    SEEN_ITEMS,
    VALIDATORS,
    Deferral,
    HostRecord,
    Reading,
    SourceRun,
    StoredDocument,
)
from scrapy_walsh.terminal import local, table, when

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from scrapy_walsh.config import WalshConfig
    from scrapy_walsh.state.schema import Table
    from scrapy_walsh.state.store import Store

#: The tables of which only the number of rows is told.
_COUNTED: Final[tuple[Table[Any], ...]] = (VALIDATORS, ATTEMPTS, SEEN_ITEMS)


def everything(store: Store, config: WalshConfig, now: float) -> Iterator[dict[str, Any]]:
    """Each record that is shown, one after the other; ``record`` says of which kind it is."""
    look = _Look(store, config, now)
    for kind, rows in look.kinds().items():
        for row in rows:
            yield {"record": kind, **look.completed(kind, row)}


def summary(
    store: Store, config: WalshConfig, directory: Path, now: float, limit: int
) -> dict[str, Any]:
    """What matters most in *store*, as JSON data: at most *limit* rows of a kind; all are counted.

    However many records there are, no more than *limit* of a kind are in memory. When sources and
    targets are next due is ISO 8601 in UTC, other times are Unix seconds. Raises StateError.
    """
    look, counts = _Look(store, config, now), Counter[str]()

    def counted(kind: str, rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for row in rows:
            counts[kind] += 1
            counts["hosts that wait"] += row.get("next_request", now) > now
            counts["silent hosts"] += row.get("silent_since") is not None
            if kind == "documents":
                counts[row["kind"]] += 1
            if kind != "readings" or _is_worth_a_line(row):
                counts["readings worth a line"] += kind == "readings"
                yield row

    found = {
        kind: heapq.nlargest(limit, counted(kind, rows), key=_MATTERS[kind])
        for kind, rows in look.kinds().items()
    }
    return {
        "directory": str(directory),
        "shared": store.shared,
        "now": now,
        **{kind: [look.completed(kind, row) for row in rows] for kind, rows in found.items()},
        **{table.name: sum(1 for _ in store._rows(table)) for table in _COUNTED},
        "counts": dict(counts),
    }


#: By kind, a sort key: the rows that matter most have the largest.
_MATTERS: Final[Mapping[str, Callable[[dict[str, Any]], Any]]] = {
    "hosts": lambda row: (row["silent_since"] is not None, row["next_request"]),
    "deferrals": lambda row: row["due"],
    "documents": lambda row: (row["kind"] != ROBOTS, row["fetched_at"]),
    "sources": lambda row: row["visit"],
    # What was declared last, and of that what was not read for longest.
    "readings": lambda row: (row["declared_at"], -row["since"]),
}


class _Look:
    """The records of a store as JSON data, each as it is read."""

    def __init__(self, store: Store, config: WalshConfig, now: float) -> None:
        self._store, self._config, self._now = store, config, now

    def kinds(self) -> dict[str, Iterator[dict[str, Any]]]:
        """By kind, the rows; :meth:`completed` adds what other records say of one."""
        store, now, revisit = self._store, self._now, self._config.revisit
        return {
            "hosts": map(self._host, store.rows(HostRecord)),
            "deferrals": map(asdict, store.rows(Deferral)),
            "documents": (
                {**asdict(replace(each, body=b"")), "octets": len(each.body)}
                for each in store.rows(StoredDocument)
            ),
            "sources": ({**asdict(run), "visit": run.visit} for run in store.rows(SourceRun)),
            "readings": (
                {**asdict(each), "unread": is_unread(each, now, revisit)}
                for each in store.rows(Reading)
            ),
        }

    def completed(self, kind: str, row: dict[str, Any]) -> dict[str, Any]:
        """*row* as it is shown."""
        if kind == "documents":
            return self._document(row)
        if kind == "deferrals":
            return _members(row, "url", "host", "reason") | {"next_due": _iso(row["due"])}
        if kind == "sources":
            held = self._record(row["url"])
            until = 0.0 if held is None else held.not_before or 0.0
            due = recrawl.next_due(row["visit"], until, self._now, self._config.revisit)
            return _members(row, "url", "last_run_at", "outcome", "reason") | {
                "next_due": _iso(due)
            }
        return row

    def _host(self, record: HostRecord) -> dict[str, Any]:
        taught = eased(record.taught, self._now).interval
        interval = max(record.interval, self._config.min_interval, taught)
        return {
            "host": record.host,
            "next_request": max(record.last_end + interval, record.not_before or 0.0),
            "interval": interval,
            "learned": taught or None,
            "silent_since": record.silent_since,
            "last_end": record.last_end,
        }

    def _document(self, row: dict[str, Any]) -> dict[str, Any]:
        config, record = self._config, self._record(row["key"])
        interval = config.min_interval if record is None else self._host(record)["interval"]
        keep = {
            ROBOTS: robots_ttl(config.robots_ttl, interval),
            SCHEMA: SCHEMA_TTL,
            BLOCKLIST: row["refresh"] or DEFAULT_REFRESH,
        }[row["kind"]]
        return {
            **_members(row, "kind", "key", "fetched_at", "status", "outcome", "octets"),
            "kept": keep,
            "fresh": is_fresh(row["fetched_at"], self._now, keep),
        }

    def _record(self, url: str) -> HostRecord | None:
        """The record of the host of *url*, which may be what another version stored."""
        try:
            return self._store.get(HostRecord, hosts.host_key(url.partition(" ")[0]))
        except ValueError:
            return None


def _members(row: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: row[name] for name in names}


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
