"""R11: drops what is stored about a host, except what was promised to it.

Promises stay: its last request and its hold (R4, R5), deferrals (D8), and the last run of a source
that is not due yet (R8). An interval that its answers 429 have taught (D28) was not promised, and
goes; so does that the host gives no answer (D31). Its robots.txt stays too, but counts as stale: it
is requested again before the next target, and if there is no answer its rules are still in force
(T6).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from scrapy_walsh.policy import hosts, recrawl
from scrapy_walsh.policy.throttle import NOTHING
from scrapy_walsh.state.records import (
    ATTEMPTS,
    READINGS,
    ROBOTS,
    SEEN_ITEMS,
    VALIDATORS,
    Deferral,
    HostRecord,
    SourceRun,
    StoredDocument,
)

if TYPE_CHECKING:
    from scrapy_walsh.state.records import Table
    from scrapy_walsh.state.store import Store


@dataclass(slots=True)
class Forgotten:
    """How many records of each kind were dropped, and how many were kept as promises."""

    dropped: Counter[str] = field(default_factory=Counter)
    kept: Counter[str] = field(default_factory=Counter)


def forget(store: Store, host: str, now: float, revisit: float) -> Forgotten:
    """Drop from *store* what concerns *host* (a ``hosts.host_key``) and is not a promise to it.

    *now*: Unix seconds. *revisit*: WALSH_REVISIT in seconds. Raises StateError.
    """
    done = Forgotten()
    tables: tuple[Table[Any], ...] = (VALIDATORS, ATTEMPTS, READINGS, SEEN_ITEMS)
    for table in tables:  # the first of a key is a URL
        keys = [table.key_of(record) for record in store.rows(table.record)]
        ours = [key for key in keys if _is_of(key[0], host)]
        done.dropped[table.name] += len(ours)
        for key in ours:
            store.delete(table.record, *key)
    for run in list(store.rows(SourceRun)):
        if _is_of(run.url, host):
            bound = recrawl.not_due(run.visit, now, revisit, None) is not None
            (done.kept if bound else done.dropped)["sources"] += 1
            if not bound:
                store.delete(SourceRun, run.url)
    for document in store.rows(StoredDocument, ROBOTS):
        if _is_of(document.key, host):
            store.put(replace(document, fetched_at=0.0))
            done.dropped["freshness of robots.txt"] += 1
    record = store.get(HostRecord, host)
    done.kept["pacing"] = int(record is not None)
    if record is not None:
        done.dropped["learned interval"] = int(record.taught != NOTHING)
        done.dropped["silence"] = int(record.silent_since is not None)
        store.put(replace(record, taught=NOTHING, silent_since=None))
    done.kept["deferrals"] = sum(deferral.host == host for deferral in store.rows(Deferral))
    return done


def _is_of(url: str, host: str) -> bool:
    try:
        return hosts.host_key(url) == host
    except ValueError:
        return False
