"""What ``walsh state show`` shows, as data and as tables."""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.policy import hosts
from scrapy_walsh.policy.freshness import DEFAULT_REFRESH, SCHEMA_TTL, is_fresh, robots_ttl
from scrapy_walsh.policy.learned import eased
from scrapy_walsh.policy.readings import is_unread
from scrapy_walsh.policy.recrawl import due, not_due
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
from scrapy_walsh.terminal import table, when

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from scrapy_walsh.config import WalshConfig
    from scrapy_walsh.state.base import RecordStore
    from scrapy_walsh.state.tables import Table

#: The tables of which only the number of rows is told.
_COUNTED: Final[tuple[Table[Any], ...]] = (VALIDATORS, ATTEMPTS, SEEN_ITEMS)


def summary(store: RecordStore, config: WalshConfig, directory: Path, now: float) -> dict[str, Any]:
    """Everything in *store*, as JSON data; times are Unix seconds. Raises StateError."""
    found = [_host(record, config, now) for record in store.rows(HostRecord)]
    intervals = {host["host"]: host["interval"] for host in found}
    return {
        "directory": str(directory),
        "shared": store.shared,
        "now": now,
        "hosts": found,
        "deferrals": [
            {"url": d.url, "host": d.host, "due": d.due, "reason": d.reason}
            for d in store.rows(Deferral)
        ],
        "documents": [
            _document(document, config, now, intervals)
            for kind in sorted(DOCUMENT_KINDS)
            for document in store.rows(StoredDocument, kind)
        ],
        "sources": [_source(run, config, now) for run in store.rows(SourceRun)],
        "readings": [
            {**asdict(reading), "unread": is_unread(reading, now, config.revisit)}
            for reading in store.rows(Reading)
        ],
        **{table.name: sum(1 for _ in store._rows(table)) for table in _COUNTED},
    }


def _host(record: HostRecord, config: WalshConfig, now: float) -> dict[str, Any]:
    taught = eased(record.taught, now).interval
    interval = max(record.interval, config.min_interval, taught)
    return {
        "host": record.host,
        "due": max(record.last_end + interval, record.not_before or 0.0),
        "interval": interval,
        "learned": taught or None,
        "silent_since": record.silent_since,
        "last_end": record.last_end,
        "why": record.why,
    }


def _document(
    document: StoredDocument, config: WalshConfig, now: float, intervals: Mapping[str, float]
) -> dict[str, Any]:
    keep = {
        ROBOTS: robots_ttl(config.robots_ttl, _interval(document.key, config, intervals)),
        SCHEMA: SCHEMA_TTL,
        BLOCKLIST: document.refresh or DEFAULT_REFRESH,
    }[document.kind]
    return {
        "kind": document.kind,
        "key": document.key,
        "fetched_at": document.fetched_at,
        "kept": keep,
        "fresh": is_fresh(document.fetched_at, now, keep),
        "status": document.status,
        "outcome": document.outcome,
        "octets": len(document.body),
    }


def _interval(origin: str, config: WalshConfig, intervals: Mapping[str, float]) -> float:
    try:
        return intervals.get(hosts.host_key(origin), config.min_interval)
    except ValueError:  # the key of a list, or of what another version stored
        return config.min_interval


def _source(run: SourceRun, config: WalshConfig, now: float) -> dict[str, Any]:
    bound = not_due(run.visit, now, config.revisit, None) is not None
    return {
        "url": run.url,
        "last_run_at": run.last_run_at,
        "outcome": run.outcome,
        "reason": run.reason,
        "next_run": due(run.visit, config.revisit) if bound else now,
    }


# -- tables -------------------------------------------------------------------------------


def as_lines(found: dict[str, Any], limit: int) -> Iterator[str]:
    """*found* for a person: at most *limit* lines of each table, the latest due times first."""
    now = found["now"]
    hosts, documents, sources = found["hosts"], found["documents"], found["sources"]
    waiting = sum(host["due"] > now for host in hosts)
    shared = found["shared"]
    yield visible(f"state in {found['directory']}{f' and {shared}' if shared else ''}")
    yield from _table(
        f"hosts: {len(hosts) - waiting} due, {waiting} not yet",
        ("host", "due", "interval"),
        ((h["host"], when(h["due"], now), _interval_cell(h)) for h in _last(hosts, limit)),
        len(hosts),
    )
    deferrals = found["deferrals"]
    yield from _table(
        f"deferred targets: {len(deferrals)}",
        ("target", "due", "why"),
        ((d["url"], when(d["due"], now), d["reason"]) for d in _last(deferrals, limit)),
        len(deferrals),
    )
    kinds = Counter(document["kind"] for document in documents)
    yield from _table(
        f"documents: {', '.join(f'{n} {kind}' for kind, n in kinds.items()) or 'none'}",
        ("document", "of", "age", "state", "outcome", "octets"),
        (_document_cells(document, now) for document in documents[:limit]),
        len(documents),
    )
    yield from _table(
        f"sources: {len(sources)}",
        ("source", "last run", "outcome", "next run", "reason given"),
        (_source_cells(s, now) for s in _last(sources, limit, "next_run")),
        len(sources),
    )
    unread = [r for r in found["readings"] if _is_worth_a_line(r)]
    yield from _table(
        f"sources not read at their last visit, or moved for good: {len(unread)}",
        ("source", "last read", "last declared", "why", "moved to"),
        (_reading_cells(r, now) for r in heapq.nlargest(limit, unread, key=_lately_declared)),
        len(unread),
    )
    yield (
        f"validators of {plural(found['validators'], 'URL')}, "
        f"attempts at {plural(found['attempts'], 'target')}, "
        f"{plural(found['seen_items'], 'item')} seen"
    )


def _last(rows: Sequence[dict[str, Any]], limit: int, by: str = "due") -> list[dict[str, Any]]:
    return heapq.nlargest(limit, rows, key=lambda row: row[by])


def _interval_cell(host: dict[str, Any]) -> str:
    learned = host["learned"]
    why = f", learned {round(learned, 2):g} s" if learned else ""
    silent = host["silent_since"]
    why += f", no answer since {iso(silent)}" if silent else ""
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
        iso(source["last_run_at"]),
        source["outcome"],
        when(source["next_run"], now),
        source["reason"] or "",
    )


def _is_worth_a_line(reading: dict[str, Any]) -> bool:
    return bool(
        reading["reason"] or reading["moved_to"] or reading["unread"] or not reading["read"]
    )


def _lately_declared(reading: dict[str, Any]) -> tuple[float, float]:
    """A sort key: what was declared last is largest, and of that what was not read for longest."""
    return reading["declared_at"], -reading["since"]


def _reading_cells(reading: dict[str, Any], now: float) -> tuple[str, ...]:
    since, declared = reading["since"], reading["declared_at"]
    return (
        reading["url"],
        f"{iso(since)} ({duration(round(now - since))} ago)" if reading["read"] else "never",
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
        yield f"  ... and {total - len(shown)} more (--limit, --json)"
