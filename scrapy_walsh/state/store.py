"""The stores of a process: in memory, or a SQLite file with the blocklist beside it (R11).

A transaction writes whole pages, and locks the file. So a crawl lets writes wait (``let_wait``).
They go into the transaction that books its next request, or into their own when ``flush`` is
called. This process reads waiting writes back. For another process, or for the next run after a
kill, the exchange looks as if it were still under way, so spacing counts from its booking (D20).
Nothing is sent before all waiting writes are stored. If a spider has taken a source's answer, that
is written at once, with all that waits.

The row of a blocklist has no text. The text is in two files, for the reasons in ``state.files``. A
row without such files means that a list was adopted and cannot be read any more. The row stays,
because no crawl may go on as if there had been no list (D14).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import replace
from itertools import filterfalse, takewhile
from typing import TYPE_CHECKING, Any

from scrapy_walsh.exceptions import StateError
from scrapy_walsh.policy.list.operator import SAME_FETCH, still_binds
from scrapy_walsh.policy.throttle import NOTHING, shared_wait, slower
from scrapy_walsh.state import files, machine
from scrapy_walsh.state.database import Database
from scrapy_walsh.state.files import without_text
from scrapy_walsh.state.records import (
    BLOCKLIST,
    DOCUMENTS,
    HOSTS,
    TABLE_OF,
    Booking,
    DamageError,
    HostRecord,
    StoredDocument,
    VisitRecord,
    without_query,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from scrapy_walsh.policy.visits import Visit
    from scrapy_walsh.state.database import Rewrite
    from scrapy_walsh.state.records import Key, R, Row, Table


class Store(ABC):
    """The records of a crawl. Only one thread may use a store.

    ``notices``: lines for the log about damage, failed writes and repairs. ``news``: other lines
    for the log. ``rows_lost``: rows may be missing, so a host without a record may have been
    requested before.

    Any method may raise ``StateError`` when the disk cannot be read. When it cannot be written, the
    first write raises it. :meth:`get` still finds this process's records, and each later write
    tries again. ValueError is raised for text that is not valid Unicode and for a time that is NaN.
    Iterators are in key order, and records may be written while one is in use.
    """

    #: URL, without password, of the Redis that shares the records, or None.
    shared: str | None = None

    def __init__(self) -> None:
        self.notices: list[str] = []
        self.news: list[str] = []
        #: The time of each host's last request through this store. While the record still has that
        #: time, no other process has requested the host since.
        self._own: dict[str, float] = {}

    @property
    def rows_lost(self) -> bool:
        return False

    @abstractmethod
    def get(self, record: type[R], *key: str) -> R | None:
        """The record of class *record* with the *key*, the class's own (``records.TABLES``)."""

    def visit_of(self, key: str) -> Visit | None:
        """The record of the visits of the source *key*; None without one (R8)."""
        record = self.get(VisitRecord, key)
        return None if record is None else record.visit

    @abstractmethod
    def put(self, *records: Any) -> None:
        """Write *records*, all of the same class, in place of records with the same keys."""

    @abstractmethod
    def delete(self, record: type[Any], *key: str) -> None:
        """Delete the record of class *record* with the *key*, if there is one.

        No caller deletes a blocklist: its files would bring it back (T13).
        """

    @abstractmethod
    def _rows(self, table: Table[R], last_key: Key) -> Iterator[R]:
        """The records after the key *last_key*, in key order."""

    def crawls(self) -> int:
        """How many crawls share these records through Redis right now. Raises StoreAway."""
        return 0

    def close(self) -> None:  # noqa: B027
        """Release all resources. This class has none."""

    # -- the ledger beside it -----------------------------------------------------------------

    def follow(self, line: Callable[[], int]) -> int | None:  # noqa: ARG002
        """From now on note, with each write, the number of the last ledger line that *line* gives.

        Returns the number that the records know, or None if it is not known, so that nothing can be
        missing. Without a file it is not known.
        """
        return None

    def let_wait(self, notify: Callable[[], None]) -> None:  # noqa: B027
        """Let writes wait for the next :meth:`reserve_host`, or for :meth:`flush`.

        *notify* is called when a first write begins to wait. This process reads waiting writes
        back. A blocklist never waits. The call that ends the wait raises StateError if it cannot
        write, and then the records stay in memory. In this class nothing waits, because only a disk
        makes that worth it.
        """

    def flush(self) -> None:  # noqa: B027
        """Write everything that waits."""

    # -- the blocklists of one bot (D39) ------------------------------------------------------

    def _list_heads(self) -> Iterator[StoredDocument]:
        """The records of all blocklists, with or without their texts."""
        return self.rows(StoredDocument, BLOCKLIST)

    def list_times(self, token: str = "") -> dict[str, float]:
        """When each blocklist of the bot *token* was fetched, in Unix seconds, by URL.

        0 if that is not known. *token*: in lower case; if empty, the lists of all bots.
        """
        times: dict[str, float] = {}
        for head in self._list_heads():
            if not token or not head.tokens or token in head.tokens.split():
                times[head.key] = max(head.fetched_at, times.get(head.key, 0.0))
        return times

    def binding_lists(self, url: str, token: str, now: float) -> list[StoredDocument]:
        """The blocklists that bind the bot *token*; the list of its address *url* comes first.

        A list without text was stored and is lost. *now*: Unix seconds. Raises StoreAway if a
        shared store does not answer.
        """
        own_list = self.get(StoredDocument, BLOCKLIST, url)
        own_at = 0.0 if own_list is None else own_list.fetched_at
        other_lists = [
            self.get(StoredDocument, BLOCKLIST, key) or without_text(key)
            for key, at in sorted(self.list_times(token).items())
            if key != url and still_binds(at, own_at, now)
        ]
        return [*([] if own_list is None else [own_list]), *other_lists]

    def hold_list(self, document: StoredDocument, adopted_at: float | None = None) -> None:
        """Store a blocklist of a bot. The tokens of other bots that use it stay on record.

        ``adopted_at``: the time now, Unix seconds, if the bot has just adopted it. Then the older
        lists are dated before it, in their order, even if their times were too near or wrong. So no
        clock changes which of two lists was adopted later.
        """
        times = {} if adopted_at is None else self.list_times()
        stored, own_at = self.get(StoredDocument, BLOCKLIST, document.key), document.fetched_at
        if stored is not None:
            tokens = {*stored.tokens.split(), *document.tokens.split()}
            are_known = stored.tokens and document.tokens
            document = replace(document, tokens=" ".join(sorted(tokens)) if are_known else "")
        self.put(document)
        latest = own_at - 2 * SAME_FETCH
        # If a list's time is not known, only this list is known to be later.
        for key in sorted(times, key=lambda url: times[url] or math.inf, reverse=True):
            # A list that came after this fetch belongs to a run beside this run: both bind.
            beside = own_at < times[key] <= (adopted_at or 0.0) + SAME_FETCH
            if key == document.key or beside:
                continue
            if not 0.0 < times[key] <= latest:
                older = self.get(StoredDocument, BLOCKLIST, key) or without_text(key)
                self.put(replace(older, fetched_at=latest))
            latest = min(times[key] or latest, latest) - 2 * SAME_FETCH

    def rows(self, record: type[R], *begin: str) -> Iterator[R]:
        """All records of class *record* with keys that begin with *begin*."""
        table = TABLE_OF[record]
        records = self._rows(table, (*begin, *[""] * (len(table.key) - len(begin))))
        return takewhile(lambda row: table.key_of(row)[: len(begin)] == begin, records)

    def count(self, record: type[Any]) -> int:
        """How many records of class *record* there are."""
        return sum(1 for _ in self.rows(record))

    def servers(self) -> dict[str, HostRecord]:
        """The records of servers, by their keys, which begin with ``@`` (T43)."""
        rows = takewhile(lambda row: row.host.startswith("@"), self._rows(HOSTS, ("@",)))
        return {row.host: row for row in rows}

    def update_host(self, host: str, change: Rewrite, *, waits: bool = False) -> None:  # noqa: ARG002
        """Replace the record of *host* by the result of *change*, in one transaction.

        *change* may be called more than once. It returns None to leave the record as it is.
        ``waits``: the write may wait (:meth:`let_wait`).
        """
        new_record = change(self.get(HostRecord, host))
        if new_record is not None:
            self.put(new_record)

    def reserve_host(
        self, host: str, interval: float, now: float, server: str = "", least: float = 0.0
    ) -> Booking:
        """Book a request to *host* at *now*, unless *interval* or a hold forbids it (R4.6).

        *interval*: seconds, without the learned interval, because the store has that. It reads and
        writes in one transaction, so that processes that share the store keep the spacing together.
        *server*: the key of the host's server, booked before it if its hosts are paced together;
        *least*: seconds between two requests to it, if the operator says so, else 0 (T43). Raises
        StoreAway, without a booking, if a shared store does not answer.
        """
        together = self.get(HostRecord, server) if server else None
        if least or (together is not None and together.binds(now)):
            booking = self.reserve_host(server, least, now)
            if booking.wait > 0:
                return booking._replace(server=together)
        else:
            together = None
        booking = Booking(0.0, known=False)

        def book(record: HostRecord | None) -> HostRecord | None:
            nonlocal booking
            if record is None:
                booking = Booking(0.0, known=False, rested=math.inf)
                return HostRecord(host, now, interval, under_way=1)
            is_own, spacing = record.last_end == self._own.get(host), max(interval, record.spacing)
            current = record.at(now)
            rested = now - current.last_end
            wait = shared_wait(current.last_end, current.not_before, spacing, now, own=is_own)
            booking = Booking(wait, known=True, rested=rested, taught=record.taught)
            if booking.wait > 0:
                return None if current is record else current
            # A hold, if there was one, has ended, because nothing is booked before its end.
            return replace(record, last_end=now, interval=interval, not_before=None, under_way=1)

        self.update_host(host, book)
        if booking.wait <= 0:
            self._own[host] = now
        return booking._replace(server=together)

    def book_host(self, update: HostRecord) -> None:
        """Store the end of a request to a host: its ``last_end`` is now.

        ``not_before``: the end of a hold that begins, or None (R5). ``visited_at``: now if a slow
        host's target went ahead of the Crawl-delay (D11). ``taught``: the learned pace by now. If
        another process has requested the host meanwhile, the slower of this pace and the stored
        pace stays (D28). ``address``: empty if it is not known. The other fields stay as stored.
        """
        host, now = update.host, update.last_end
        own_end = self._own.get(host)

        def merge(record: HostRecord | None) -> HostRecord:
            is_own = record is None or record.last_end == own_end
            if is_own:
                self._own[host] = now
            record = (record or update).at(now)
            end = max(update.not_before or 0.0, record.not_before or 0.0)
            return replace(
                record,
                last_end=now,
                interval=update.interval,
                # A hold that has ended is not stored: it would bind again after the clock is put
                # back (D9).
                not_before=end if end > now else None,
                visited_at=record.visited_at if update.visited_at is None else now,
                taught=slower(update.taught, NOTHING if is_own else record.taught),
                under_way=0 if is_own else record.under_way,
                address=update.address or record.address,
            )

        self.update_host(host, merge, waits=True)

    def lift(self, host: str, reason: str) -> None:  # noqa: ARG002  only a fleet passes it on
        """End the hold of *host*. A person has lifted it for that *reason* (D40)."""
        self.update_host(host, _without_hold)

    def lifted_elsewhere(self) -> Iterator[tuple[str, str]]:
        """The hosts with holds that were lifted on another machine, each with the reason.

        This machine's copy of a hold is removed as the iterator goes on. Raises StoreAway.
        """
        return iter(())

    def prune(self, now: float) -> None:  # noqa: B027  most stores end with their process
        """Delete records that nothing has used for a long time (``records.TABLES``).

        *now*: Unix seconds. A run calls it at its beginning. This class deletes nothing, because a
        store that ends with its process does not grow over the years.
        """


# The store of a one-off run (R11). Its records are gone when the run ends.


class MemoryStore(Store):
    """A ``Store`` that keeps its records in dictionaries."""

    def __init__(self) -> None:
        super().__init__()
        self._tables: dict[type, dict[Key, Any]] = {record_type: {} for record_type in TABLE_OF}

    def get(self, record: type[R], *key: str) -> R | None:
        return self._tables[record].get(key)

    def put(self, *records: Any) -> None:
        for record in records:
            self._tables[type(record)][TABLE_OF[type(record)].key_of(record)] = record

    def delete(self, record: type[Any], *key: str) -> None:
        self._tables[record].pop(key, None)

    def _rows(self, table: Table[R], last_key: Key) -> Iterator[R]:
        rows = self._tables[table.record]
        return iter([rows[key] for key in sorted(rows) if key > last_key])


class SqliteStore(Store):
    """A ``Store`` in ``state.sqlite3`` of *directory*, made when missing. Raises StateError."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory
        self._database = Database(directory, self.notices, self.news)
        #: Records that are not in the file yet, because they wait or because the disk fails: the
        #: record and its row, by table and key; None if it is deleted.
        self._unwritten: dict[tuple[Table[Any], Key], tuple[Any, Row | None]] = {}
        #: Waiting changes of hosts. Each is applied to the record as it is by then.
        self._bookings: list[tuple[str, Rewrite]] = []
        self._write_failed = False
        self._told: Callable[[], None] | None = None
        self._waits = False
        #: The number of the last ledger line of this process, and the number that was noted last.
        self._line: Callable[[], int] = int
        self._noted = 0
        #: Whether there are visits of URLs without their queries; None if that was not read yet.
        self._redacted: bool | None = None

    @property
    def rows_lost(self) -> bool:
        return self._database.rows_lost

    def close(self) -> None:
        """Close the database, after one more try to write the records that could not be written.

        If that fails again, they are lost. This run has logged it, and later runs find a mark
        (``machine.mark_lost``).
        """
        try:
            if self._waits or self._unwritten or self._line() > self._noted:
                self._commit()
        except StateError as error:
            self.notices.append(str(error))
        self._database.end()

    def follow(self, line: Callable[[], int]) -> int | None:
        self._line = line
        known = self._database.known_line()
        return None if known is None else known[0]

    def know(self, number: int) -> None:
        """Note that the records know the ledger up to line *number*, perhaps an earlier one."""
        self._database.set_line(number, redacted=self._has_redacted())
        self._noted = number

    def take_over(
        self,
        records: Iterable[Any],
        rewrites: Iterable[tuple[str, Rewrite]],
        dropped: Iterable[tuple[type, Key]],
        line: int,
        *,
        redacted: bool,
    ) -> None:
        """Store what the ledger's lines up to *line* say and the records lack, in one transaction.

        *rewrites*: changes of hosts, in order. *dropped*: keys of records to delete. ``redacted``:
        there are visits of URLs without their queries, which count for all queries.
        """
        if redacted and not self._has_redacted():  # first, because the next write notes the line
            self._database.set_line(0, redacted=True)
            self._redacted = True
        for record_type, key in dropped:
            self._unwritten[TABLE_OF[record_type], key] = None, None
        for record in records:
            table = TABLE_OF[type(record)]
            self._unwritten[table, table.key_of(record)] = record, table.encode(record)
        self._bookings += rewrites
        self._commit(line)

    def lose(self) -> None:
        """Let each host count as just requested in this run, because lines are missing."""
        self._database.rows_lost = True

    def _has_redacted(self) -> bool:
        if self._redacted is None:
            known = self._database.known_line()
            self._redacted = known is not None and known[1]
        return self._redacted

    def let_wait(self, notify: Callable[[], None]) -> None:
        self._told = notify

    def flush(self) -> None:
        if self._waits:
            self._commit()

    # -- reading --------------------------------------------------------------------------

    def get(self, record: type[R], *key: str) -> R | None:
        if record is StoredDocument and key[0] == BLOCKLIST:
            return self._get_blocklist(key[1])  # type: ignore[return-value]
        if record is VisitRecord and "?" in key[0] and self._has_redacted():
            return self._get_visit(key[0])  # type: ignore[return-value]
        return self._read(record, key)

    def _get_visit(self, key: str) -> VisitRecord | None:
        """The later visit of the source *key*, or of any query of its path (redacted lines)."""
        own, any_query = (self._read(VisitRecord, (name,)) for name in (key, without_query(key)))
        if any_query is None or (own is not None and own.latest >= any_query.latest):
            return own
        return replace(any_query, url=key)

    def _read(self, record: type[R], key: Key) -> R | None:
        if record is HostRecord and any(host == key[0] for host, _ in self._bookings):
            self.flush()
        table = TABLE_OF[record]
        change = self._unwritten.get((table, key))
        result: R | None = self._database.get(table, key) if change is None else change[0]
        return result

    def _rows(self, table: Table[R], last_key: Key) -> Iterator[R]:
        """Read records page by page, so that no transaction stays open in between."""
        self.flush()
        while page := self._database.page(table, last_key):
            last_key = table.key_of(page[-1])
            for record in page:  # the text of a list is in a file
                yield self._whole(table, record) if _is_list(record) else record

    def _whole(self, table: Table[R], record: R) -> R:
        return self.get(table.record, *table.key_of(record)) or record

    def count(self, record: type[Any]) -> int:
        self.flush()
        return self._database.count(TABLE_OF[record])

    # -- writing --------------------------------------------------------------------------

    def put(self, *records: Any) -> None:
        for record in filter(_is_list, records):
            self._put_blocklist(record)
        self._put(*filterfalse(_is_list, records))

    def _put(self, *records: Any) -> None:
        changes: dict[tuple[Table[Any], Key], tuple[Any, Row]] = {}
        for record in records:
            table = TABLE_OF[type(record)]
            changes[table, table.key_of(record)] = record, table.encode(record)
        self._unwritten |= changes
        if changes:
            self._commit_soon()

    def delete(self, record: type[Any], *key: str) -> None:
        self._unwritten[TABLE_OF[record], key] = None, None
        self._commit_soon()

    def update_host(self, host: str, change: Rewrite, *, waits: bool = False) -> None:
        if self._write_failed:
            super().update_host(host, change)
            return
        self._bookings.append((host, change))
        if waits:
            self._commit_soon()
        else:
            self._commit()

    def _commit_soon(self) -> None:
        if self._told is None or self._write_failed:
            self._commit()
        elif not self._waits:
            self._waits = True
            self._told()

    def _commit(self, line: int = 0) -> None:
        """Write everything that waits in one transaction.

        If that fails, all of it stays in memory. Only the first failure raises StateError. *line*:
        of the ledger, that the records know by then; 0 for the last line of this process.
        """
        had_failed, bookings = self._write_failed, self._bookings
        self._bookings, self._waits = [], False
        try:
            rows = {place: row for place, (_, row) in self._unwritten.items()}
            line = line or self._line()
            self._database.write(rows, bookings, line)
            self._noted = line
        except StateError:
            machine.mark_lost(self._directory)  # now, because this process may be killed later
            self._write_failed = True
            for host, change in bookings:
                super().update_host(host, change)
            if not had_failed:
                raise
        else:
            self._unwritten.clear()
            self._write_failed = False

    def prune(self, now: float) -> None:
        def drop(connection: sqlite3.Connection) -> None:
            connection.execute("BEGIN IMMEDIATE")
            with connection:
                # A clock that is years ahead must not drop holds and deferrals that still bind. So
                # "now" is never later than the last request that an earlier run has recorded.
                (last_end,) = connection.execute("SELECT max(last_end) FROM hosts").fetchone()
                until = min(now, now if last_end is None else last_end)
                for table in TABLE_OF.values():
                    if table.kept is not None:
                        connection.execute(table.prune, (until - table.kept,))

        if not self._write_failed:
            with suppress(StateError):  # the first write that matters will report it
                self._database.run(drop)

    # -- the blocklist --------------------------------------------------------------------

    def _list_heads(self) -> Iterator[StoredDocument]:
        """The rows, without text; if a list's row is lost, the record in its file."""
        heads = [record for record, _ in self._unwritten.values() if _is_list(record)]
        last_key: Key = (BLOCKLIST, "")
        while page := self._database.page(DOCUMENTS, last_key):
            heads += filter(_is_list, page)
            last_key = DOCUMENTS.key_of(page[-1])
            if last_key[0] != BLOCKLIST:
                break
        keys = {head.key for head in heads}
        for name in files.list_files(self._directory):
            if files.key_in(self._directory / name) not in keys:
                with suppress(DamageError):
                    heads += filter(None, [files.read_copy(self._directory, name)])
        return iter(heads)

    def _get_blocklist(self, url: str) -> StoredDocument | None:
        """The later of the two copies; it replaces the other. If there is no copy, the row."""
        copies = files.read_copies(self._directory, url, self.notices)
        best = files.newer(*copies)
        if best is None or not best.body:
            # If the text of a list is lost, the row still has the time when it was fetched.
            row = self._read(StoredDocument, (BLOCKLIST, url))
            if row is not None or (best is None and not self.rows_lost):
                return row
        best = best or without_text(url)
        if self.rows_lost or not best.body or copies != [best, best]:
            with suppress(StateError):
                self._put_blocklist(best)
        return best

    def lose_list(self, url: str, fetched_at: float) -> None:
        """Note that a list of *url* was adopted and its text is lost, so that all waits (D14).

        Copies of an earlier list are set aside, because that list is not in force any more.
        """
        for name in files.copies_of(self._directory, url):
            if files.key_in(self._directory / name) == url:
                files.set_aside(self._directory / name)
        self._put(replace(without_text(url), fetched_at=fetched_at))

    def _put_blocklist(self, document: StoredDocument) -> None:
        """Write the text to two files, and a row without it, which shows that there is a list."""
        try:
            if document.body:
                files.write_copies(self._directory, document)
            self._put(replace(document, body=b""))
        finally:
            self.flush()


def open_store(directory: Path | None) -> Store:
    """The store in *directory*, which is made if it is missing; None for a store in memory.

    Raises StateError if the directory cannot be used, or if its database is a later version's (D16)
    or another program's.
    """
    return MemoryStore() if directory is None else SqliteStore(directory)


def _without_hold(record: HostRecord | None) -> HostRecord | None:
    return None if record is None else replace(record, not_before=None)


def _is_list(record: Any) -> bool:
    return isinstance(record, StoredDocument) and record.kind == BLOCKLIST
