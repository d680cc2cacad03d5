"""R11: every ``Store`` method, written once in terms of four operations on a table.

A subclass says how a table is kept: ``_get``, ``_put``, ``_delete`` and ``_rows``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from scrapy_walsh.policy.throttle import shared_wait
from scrapy_walsh.state.records import (
    Attempts,
    Booking,
    Deferral,
    HostRecord,
    Reading,
    SeenItem,
    SourceRun,
    StoredDocument,
    Validators,
)
from scrapy_walsh.state.tables import (
    ATTEMPTS,
    DEFERRALS,
    DOCUMENTS,
    HOSTS,
    READINGS,
    SEEN_ITEMS,
    SOURCES,
    VALIDATORS,
    Key,
    R,
    Table,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


class RecordStore(ABC):
    """A ``Store`` that does not say yet where its records are kept; subclasses do."""

    #: URL, without password, of the Redis that records are shared through; None without one.
    shared: str | None = None

    def __init__(self) -> None:
        self.notices: list[str] = []
        #: By host, the time of the last request that was made through this store. While the record
        #: still has that time, no other process has requested the host since.
        self._own: dict[str, float] = {}

    @property
    def rows_lost(self) -> bool:
        return False

    @abstractmethod
    def _get(self, table: Table[R], key: Key) -> R | None: ...
    @abstractmethod
    def _put(self, table: Table[R], records: Sequence[R]) -> None: ...
    @abstractmethod
    def _delete(self, table: Table[Any], keys: Sequence[Key]) -> None: ...
    @abstractmethod
    def _rows(self, table: Table[R], after: Key | None = None) -> Iterator[R]: ...
    @abstractmethod
    def close(self) -> None: ...

    def get_document(self, kind: str, key: str) -> StoredDocument | None:
        return self._get(DOCUMENTS, (kind, key))

    def put_document(self, document: StoredDocument) -> None:
        self._put(DOCUMENTS, [document])

    def delete_document(self, kind: str, key: str) -> None:
        self._delete(DOCUMENTS, [(kind, key)])

    def documents(self, kind: str) -> Iterator[StoredDocument]:
        return takewhile(lambda found: found.kind == kind, self._rows(DOCUMENTS, (kind, "")))

    def get_validators(self, url: str, representation: str) -> Validators | None:
        return self._get(VALIDATORS, (url, representation))

    def put_validators(self, validators: Validators) -> None:
        self._put(VALIDATORS, [validators])

    def delete_validators(self, url: str, representation: str) -> None:
        self._delete(VALIDATORS, [(url, representation)])

    def get_source(self, url: str) -> SourceRun | None:
        return self._get(SOURCES, (url,))

    def put_source(self, source: SourceRun) -> None:
        self._put(SOURCES, [source])

    def delete_source(self, url: str) -> None:
        self._delete(SOURCES, [(url,)])

    def sources(self) -> Iterator[SourceRun]:
        return self._rows(SOURCES)

    def get_host(self, host: str) -> HostRecord | None:
        return self._get(HOSTS, (host,))

    def put_host(self, record: HostRecord) -> None:
        self._put(HOSTS, [record])

    def update_host(
        self, host: str, change: Callable[[HostRecord | None], HostRecord | None]
    ) -> None:
        changed = change(self.get_host(host))
        if changed is not None:
            self.put_host(changed)

    def reserve_host(self, host: str, interval: float, now: float) -> Booking:
        found = Booking(0.0, known=False)

        def book(record: HostRecord | None) -> HostRecord | None:
            nonlocal found
            if record is None:
                found = Booking(0.0, known=False, rested=math.inf)
                return HostRecord(host, now, interval)
            rested = max(0.0, now - record.last_end)
            found = Booking(self._wait(record, interval, now), known=True, rested=rested)
            if found.wait > 0:
                # A record from the future, since the clock was put back (D9), counts as "now". It
                # is written so, or it would count as "now" at every later look too.
                return replace(record, last_end=now) if record.last_end > now else None
            return replace(record, last_end=now, interval=interval, why=None)

        self.update_host(host, book)
        if found.wait <= 0:
            self._own[host] = now
        return found

    def _wait(self, record: HostRecord, interval: float, now: float) -> float:
        own = record.last_end == self._own.get(record.host)
        spacing = max(interval, record.interval)
        return shared_wait(record.last_end, record.not_before, spacing, now, own=own)

    def book_host(
        self, host: str, interval: float, now: float, hold: float, *, visit: bool = False
    ) -> None:
        own = True

        def merge(record: HostRecord | None) -> HostRecord:
            nonlocal own
            own = record is None or record.last_end == self._own.get(host)
            before = (record.not_before if record else None) or 0.0
            end = max(now + hold, before)
            visited_at = now if visit else record.visited_at if record else None
            # A hold that has ended is not stored: it would bind again after the clock is put back
            # (D9).
            return HostRecord(
                host, now, interval, end if end > now else None, visited_at=visited_at
            )

        self.update_host(host, merge)
        if own:
            self._own[host] = now

    def delete_host(self, host: str) -> None:
        self._delete(HOSTS, [(host,)])

    def hosts(self) -> Iterator[HostRecord]:
        return self._rows(HOSTS)

    def get_deferral(self, url: str) -> Deferral | None:
        return self._get(DEFERRALS, (url,))

    def put_deferral(self, deferral: Deferral) -> None:
        self._put(DEFERRALS, [deferral])

    def delete_deferral(self, url: str) -> None:
        self._delete(DEFERRALS, [(url,)])

    def deferrals(self) -> Iterator[Deferral]:
        return self._rows(DEFERRALS)

    def get_attempts(self, url: str) -> Attempts | None:
        return self._get(ATTEMPTS, (url,))

    def put_attempts(self, attempts: Attempts) -> None:
        self._put(ATTEMPTS, [attempts])

    def clear_attempts(self, url: str) -> None:
        self._delete(ATTEMPTS, [(url,)])

    def get_reading(self, url: str) -> Reading | None:
        return self._get(READINGS, (url,))

    def put_readings(self, readings: Iterable[Reading]) -> None:
        if kept := list(readings):
            self._put(READINGS, kept)

    def readings(self) -> Iterator[Reading]:
        return self._rows(READINGS)

    def get_seen_item(self, canonical_url: str) -> SeenItem | None:
        return self._get(SEEN_ITEMS, (canonical_url,))

    def add_seen_items(self, canonical_urls: Iterable[str], now: float) -> None:
        items = [SeenItem(url, now) for url in canonical_urls]
        if items:
            self._put(SEEN_ITEMS, items)

    def prune(self, now: float) -> None:  # noqa: B027  most stores end with their process
        """Drop nothing: a store that ends with its process does not grow over the years."""
