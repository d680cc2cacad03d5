"""R11: the ``Store`` methods, written once in terms of four operations on a table.

A subclass says how a table is kept: ``_get``, ``_put``, ``_delete`` and ``_rows``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from scrapy_walsh.policy.learned import NOTHING, Learned, slower
from scrapy_walsh.policy.throttle import shared_wait
from scrapy_walsh.state.records import Booking, HostRecord
from scrapy_walsh.state.tables import table_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from scrapy_walsh.state.tables import Key, R, Table


class Store(ABC):
    """Where a crawl keeps its records. Only one thread may use it.

    ``notices``: lines for the log: what was found damaged or could not be written, and what was
    done about it. ``rows_lost``: rows may be missing, so a host without a record may have been
    requested before.

    Any method may raise ``StateError`` when the disk cannot be read. When it cannot be written, the
    first write raises it; this process still reads back what it wrote, and each later write tries
    again. ValueError is raised for text that is not valid Unicode and for a time that is NaN.
    Iterators are in key order, and records may be written while one is in use.
    """

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

    def let_wait(self, told: Callable[[], None]) -> None:  # noqa: B027
        """From now on a write may wait for the next :meth:`reserve_host`, or for :meth:`flush`.

        *told* is called when a first one begins to wait. This process reads back what waits; a
        blocklist never does. What ends the wait raises StateError for all that could not be
        written, and is kept in memory. Here nothing waits: only a disk makes it worth it.
        """

    def flush(self) -> None:  # noqa: B027
        """Write what waits."""

    def get(self, record: type[R], *key: str) -> R | None:
        """The record of class *record* with the *key*, the class's own (``tables.TABLES``)."""
        return self._get(table_of(record), key)

    def put(self, *records: Any) -> None:
        """Write *records*, which are of one class, in place of those with the same keys."""
        if records:
            self._put(table_of(type(records[0])), records)

    def delete(self, record: type[Any], *key: str) -> None:
        """Delete the record of class *record* with the *key*, if there is one."""
        self._delete(table_of(record), [key])

    def rows(self, record: type[R], *begin: str) -> Iterator[R]:
        """All records of class *record* whose keys begin with *begin*."""
        table = table_of(record)
        if not begin:
            return self._rows(table)
        found = self._rows(table, (*begin, *[""] * (len(table.key) - len(begin))))
        return takewhile(lambda each: table.key_of(each)[: len(begin)] == begin, found)

    def update_host(
        self, host: str, change: Callable[[HostRecord | None], HostRecord | None]
    ) -> None:
        """Replace the record of *host* by what *change* makes of it, in one transaction.

        *change* may be called more than once. It returns None to leave the record as it is.
        """
        changed = change(self.get(HostRecord, host))
        if changed is not None:
            self.put(changed)

    def reserve_host(self, host: str, interval: float, now: float) -> Booking:
        """Book a request to *host* at *now*, unless *interval* or a hold forbids it (R4.6).

        *interval*: seconds, without what the host has taught; the store has that.
        Read and written in one transaction, so that processes which share the store keep the
        spacing together. Raises StoreAway where a shared store does not answer: nothing is booked.
        """
        found = Booking(0.0, known=False)

        def book(record: HostRecord | None) -> HostRecord | None:
            nonlocal found
            if record is None:
                found = Booking(0.0, known=False, rested=math.inf)
                return HostRecord(host, now, interval)
            rested = max(0.0, now - record.last_end)
            wait = self._wait(record, interval, now)
            found = Booking(wait, known=True, rested=rested, taught=record.taught)
            if found.wait > 0:
                # A record from the future, since the clock was put back (D9), counts as "now". It
                # is written so, or it would count as "now" at every later look too.
                return replace(record, last_end=now) if record.last_end > now else None
            # A hold, if there was one, has ended: nothing is booked before that.
            return replace(record, last_end=now, interval=interval, not_before=None, why=None)

        self.update_host(host, book)
        if found.wait <= 0:
            self._own[host] = now
        return found

    def _wait(self, record: HostRecord, interval: float, now: float) -> float:
        own = record.last_end == self._own.get(record.host)
        spacing = max(interval, record.spacing)
        return shared_wait(record.last_end, record.not_before, spacing, now, own=own)

    def book_host(
        self,
        host: str,
        interval: float,
        now: float,
        hold: float,
        *,
        visit: bool = False,
        taught: Learned = NOTHING,
    ) -> None:
        """Store the end of a request to *host* at *now*, and a hold of *hold* seconds (R5).

        ``visit``: it was the target of a slow host that went ahead of the Crawl-delay (D11).
        ``taught``: what the host has taught by now. Where another process has requested the host
        meanwhile, the slower of this and of what is on record stays (D28).
        """
        mine = self._own.get(host)

        def merge(record: HostRecord | None) -> HostRecord:
            own = record is None or record.last_end == mine
            if own:
                self._own[host] = now
            before = (record.not_before if record else None) or 0.0
            end = max(now + hold, before)
            visited_at = now if visit else record.visited_at if record else None
            # A hold that has ended is not stored: it would bind again after the clock is put back
            # (D9).
            ended = HostRecord(
                host,
                now,
                interval,
                end if end > now else None,
                visited_at=visited_at,
                silent_since=record.silent_since if record else None,
            )
            other = NOTHING if own or record is None else record.taught
            return ended.with_taught(slower(taught, other))

        self._book(host, merge)

    def _book(self, host: str, change: Callable[[HostRecord | None], HostRecord | None]) -> None:
        """As :meth:`update_host`, for a change that nobody waits for."""
        self.update_host(host, change)

    def prune(self, now: float) -> None:  # noqa: B027  most stores end with their process
        """Drop records that nothing has used for a long time (``tables.KEPT`` says how long).

        *now*: Unix seconds; it is called when a run begins. Here nothing is dropped: a store that
        ends with its process does not grow over the years.
        """


# R11: the store of a one-off run. Everything in it is gone when the run ends.


class MemoryStore(Store):
    """A ``Store`` that keeps its records in dictionaries."""

    def __init__(self) -> None:
        super().__init__()
        self._tables: dict[str, dict[Key, Any]] = {}

    def _records(self, table: Table[R]) -> dict[Key, R]:
        return self._tables.setdefault(table.name, {})

    def _get(self, table: Table[R], key: Key) -> R | None:
        return self._records(table).get(key)

    def _put(self, table: Table[R], records: Sequence[R]) -> None:
        self._records(table).update((table.key_of(record), record) for record in records)

    def _delete(self, table: Table[Any], keys: Sequence[Key]) -> None:
        for key in keys:
            self._records(table).pop(key, None)

    def _rows(self, table: Table[R], after: Key | None = None) -> Iterator[R]:
        rows = sorted(self._records(table).items(), key=lambda row: row[0])
        return iter([record for key, record in rows if after is None or key > after])

    def close(self) -> None:
        """Nothing to release."""
