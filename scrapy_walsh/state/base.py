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

    def let_wait(self, told: Callable[[], None]) -> None:  # noqa: B027
        """Write at once all the same: only a disk makes it worth waiting."""

    def flush(self) -> None:  # noqa: B027
        """Do nothing, since nothing waits."""

    def get(self, record: type[R], *key: str) -> R | None:
        return self._get(table_of(record), key)

    def put(self, *records: Any) -> None:
        if records:
            self._put(table_of(type(records[0])), records)

    def delete(self, record: type[Any], *key: str) -> None:
        self._delete(table_of(record), [key])

    def rows(self, record: type[R], *begin: str) -> Iterator[R]:
        table = table_of(record)
        if not begin:
            return self._rows(table)
        found = self._rows(table, (*begin, *[""] * (len(table.key) - len(begin))))
        return takewhile(lambda each: table.key_of(each)[: len(begin)] == begin, found)

    def update_host(
        self, host: str, change: Callable[[HostRecord | None], HostRecord | None]
    ) -> None:
        changed = change(self.get(HostRecord, host))
        if changed is not None:
            self.put(changed)

    def reserve_host(self, host: str, interval: float, now: float) -> Booking:
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
        """Drop nothing: a store that ends with its process does not grow over the years."""
