"""R11: the store in one SQLite file, and the blocklist twice beside it (D3).

A transaction costs ten times what is written in it. So a crawl lets its writes wait (``let_wait``),
and they go into the transaction that books its next request, or into one of their own when
``flush`` is called. What waits is read back by this process. Another process, or the next run after
a kill, sees the exchange as if its answer had come so much later; that is spaced from the booking
of its start (D20).

The row of a blocklist is without the text, which is in two files (``state.files`` says why). A row
without such files means that a list was adopted and cannot be read any more. It is kept, since no
crawl may go on as if there had been no list (D14).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from scrapy_walsh.exceptions import StateError
from scrapy_walsh.policy.words import plural
from scrapy_walsh.state import files, mark
from scrapy_walsh.state.base import Store
from scrapy_walsh.state.connect import explain
from scrapy_walsh.state.database import Database
from scrapy_walsh.state.records import BLOCKLIST, StoredDocument
from scrapy_walsh.state.tables import DOCUMENTS, HOSTS, KEPT, TABLES, DamageError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from scrapy_walsh.state.records import HostRecord
    from scrapy_walsh.state.tables import Key, R, Row, Table


#: Makes a host's new record of the old one; None leaves it as it is.
_Rewrite = Callable[["HostRecord | None"], "HostRecord | None"]


class _Change(NamedTuple):
    """One record to write: ``record`` and its ``row``. Both are None where it is to be deleted."""

    table: Table[Any]
    key: Key
    record: Any = None
    row: Row | None = None


class SqliteStore(Store):
    """A ``Store`` in ``state.sqlite3`` of *directory*, made when missing. Raises StateError."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory
        self._database = Database(directory, self.notices)
        #: What is not in the file yet, because it waits or because the disk refuses it.
        self._unwritten: dict[tuple[str, Key], _Change] = {}
        #: Changes of hosts that wait; each is made of the record as it is by then.
        self._bookings: list[tuple[str, _Rewrite]] = []
        self._write_failed = False
        self._told: Callable[[], None] | None = None
        self._waits = False
        #: Whether one of the blocklist's copies was damaged when they were last read.
        self._copy_damaged = False

    @property
    def rows_lost(self) -> bool:
        return self._database.rows_lost

    def close(self) -> None:
        """Close the database, after one more try to write what could not be written before.

        What fails again is lost, and later runs are told so (``state.mark``). The write-ahead log
        is copied into the database first, so that the next process need not do it.
        """
        with suppress(StateError):
            self.flush()
        if self._unwritten:
            self._write_pending([])
        if self._unwritten:
            self.notices.append(
                f"{plural(len(self._unwritten), 'record')} could not be written to "
                f"{self._directory} and were not written at the end either: "
                "the next run does not know of them"
            )
        with suppress(StateError):
            self._database.run(lambda connection: connection.execute("PRAGMA wal_checkpoint"))
        self._database.end()

    def let_wait(self, told: Callable[[], None]) -> None:
        self._told = told

    def flush(self) -> None:
        if self._waits:
            self._rewrite([])

    def get(self, record: type[R], *key: str) -> R | None:
        if record is StoredDocument and key[0] == BLOCKLIST:
            return cast("R | None", self._get_blocklist(key))
        return super().get(record, *key)

    def put(self, *records: Any) -> None:
        first = records[0] if records else None
        if isinstance(first, StoredDocument) and first.kind == BLOCKLIST and first.body:
            self._put_blocklist(first)
            return
        super().put(*records)
        if isinstance(first, StoredDocument) and first.kind == BLOCKLIST:
            self.flush()

    def delete(self, record: type[Any], *key: str) -> None:
        super().delete(record, *key)
        blocklist = record is StoredDocument and key[0] == BLOCKLIST
        if blocklist:
            self.flush()
        for name in files.COPIES if blocklist else ():
            if self._copy(key[1], name) is not None:
                self._unlink(name)

    def update_host(
        self, host: str, change: Callable[[HostRecord | None], HostRecord | None]
    ) -> None:
        if self._write_failed:
            super().update_host(host, change)
        else:
            self._rewrite([(host, change)])

    def _book(self, host: str, change: _Rewrite) -> None:
        if self._told is None or self._write_failed:
            self.update_host(host, change)
        else:
            self._bookings.append((host, change))
            self._wait_for_next(self._told)

    def _wait_for_next(self, told: Callable[[], None]) -> None:
        if not self._waits:
            self._waits = True
            told()

    def _rewrite(self, more: list[tuple[str, _Rewrite]]) -> None:
        """In one transaction, write what waits, and change the records of hosts as *more* says."""
        changes, bookings = list(self._unwritten.values()), [*self._bookings, *more]

        def exchange(connection: sqlite3.Connection) -> None:
            connection.execute("BEGIN IMMEDIATE")
            with connection:
                for each in changes:
                    _execute(connection, each)
                for host, change in bookings:
                    _change_host(connection, host, change)

        self._bookings, self._waits = [], False
        try:
            self._database.run(exchange)
            self._unwritten.clear()
        except StateError:
            self._fail(changes)
            for host, change in bookings:
                super().update_host(host, change)  # in memory
            raise

    def prune(self, now: float) -> None:
        def drop(connection: sqlite3.Connection) -> None:
            connection.execute("BEGIN IMMEDIATE")
            with connection:
                # A clock that is years ahead must not drop holds and deferrals that still bind. So
                # "now" is never later than the last request that an earlier run has recorded.
                (seen,) = connection.execute("SELECT max(last_end) FROM hosts").fetchone()
                until = min(now, now if seen is None else seen)
                for table in TABLES:
                    if table.name in KEPT:
                        connection.execute(table.prune, (until - KEPT[table.name][1],))

        if not self._write_failed:
            with suppress(StateError):  # the first write that matters will report it
                self._database.run(drop)

    def _get_blocklist(self, key: Key) -> StoredDocument | None:
        """The newest of the row and the copies; where one of them is missing, it is put back."""
        self._copy_damaged = False
        copies = [self._copy(key[1], name) for name in files.COPIES]
        try:
            row = self._get(DOCUMENTS, key)
        except StateError:
            best = files.newer(*copies)
            if best is None:
                raise
            return best
        best = files.newer(*copies, row)  # a copy has a checksum, and the row has none
        if best is None and (self._copy_damaged or self.rows_lost):
            best = files.without_text(key[1])  # stored: later runs will meet no damage any more
            with suppress(StateError):
                self._put(DOCUMENTS, [best])
                self.flush()
        elif best is not None and best.body:
            kept = copies == [best, best] and row == replace(best, body=b"")
            with suppress(StateError):
                if not kept:
                    self._put_blocklist(best)
        return best

    def _put_blocklist(self, document: StoredDocument) -> None:
        """Keep *document* in two files; where one fails, the other is written all the same.

        Its row is without the text: it says that there is a list. The list of another URL, whose
        place it takes in the files, keeps its text in its row.
        """
        other = self._other_list(document.key)
        if other is not None:
            self._put(DOCUMENTS, [other])
        failures = [self._write_copy(document, name) for name in files.COPIES]
        if not any(failures):
            self._put(DOCUMENTS, [replace(document, body=b"")])
        self.flush()
        for failure in filter(None, failures):
            raise failure

    def _write_copy(self, document: StoredDocument, name: str) -> StateError | None:
        try:
            files.write_copy(self._directory, document, name)
        except OSError as error:
            return StateError(explain(self._directory / name, "cannot be written", error))
        return None

    def _other_list(self, key: str) -> StoredDocument | None:
        """The list of another URL than *key* that the files have, None without one."""
        for name in files.COPIES:
            with suppress(DamageError):
                copy = files.read_copy(self._directory, name)
                if copy is not None and copy.key != key:
                    return copy
        return None

    def _unlink(self, name: str) -> None:
        path = self._directory / name
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise StateError(explain(path, "cannot be deleted", error)) from error

    def _copy(self, key: str, name: str) -> StoredDocument | None:
        """The copy in the file *name*, if it is of *key*; a damaged one is renamed and noted."""
        try:
            copy = files.read_copy(self._directory, name)
        except DamageError as damage:
            self._copy_damaged = True
            path = self._directory / name
            with suppress(OSError):
                aside = files.set_aside(path)
                self.notices.append(f"{path} was damaged ({damage}): set aside as {aside.name}")
            return None
        return copy if copy is not None and (copy.kind, copy.key) == (BLOCKLIST, key) else None

    def _get(self, table: Table[R], key: Key) -> R | None:
        if table is HOSTS and any(host == key[0] for host, _ in self._bookings):
            self.flush()
        if self._unwritten:
            change = self._unwritten.get((table.name, key))
            if change is not None:
                return change.record  # type: ignore[no-any-return]

        def fetch(connection: sqlite3.Connection) -> R | None:
            row = connection.execute(table.select, key).fetchone()
            return None if row is None else table.decode(row)

        return self._database.read(fetch)

    def _put(self, table: Table[R], records: Sequence[R]) -> None:
        self._write([_Change(table, table.key_of(r), r, table.encode(r)) for r in records])

    def _delete(self, table: Table[Any], keys: Sequence[Key]) -> None:
        self._write([_Change(table, key) for key in keys])

    def _rows(self, table: Table[R], after: Key | None = None) -> Iterator[R]:
        last = after or ("",) * len(table.key)
        self.flush()
        rows = iter(self._merged(table, last)) if self._unwritten else self._pages(table, last)
        return rows if table is not DOCUMENTS else map(self._with_text, rows)

    def _with_text(self, row: R) -> R:
        """A row, with its text where it is a blocklist's, which is in a file."""
        if not isinstance(row, StoredDocument) or row.kind != BLOCKLIST or row.body:
            return row
        return cast("R", self._get_blocklist((row.kind, row.key)) or row)

    def _pages(self, table: Table[R], last: Key) -> Iterator[R]:
        """Records after the key *last*, read page by page: no transaction stays open in between."""
        while True:
            page = self._page(table, last)
            yield from page
            if len(page) < table.page_rows:
                return
            last = table.key_of(page[-1])

    def _page(self, table: Table[R], last: Key) -> list[R]:
        def fetch(connection: sqlite3.Connection) -> list[R]:
            rows = connection.execute(table.page, (*last, table.page_rows))
            return [table.decode(row) for row in rows]

        return self._database.run(fetch)

    def _merged(self, table: Table[R], last: Key) -> list[R]:
        """As ``_pages``, together with the changes that could not be written yet."""
        records = {table.key_of(record): record for record in self._pages(table, last)}
        for (name, key), change in self._unwritten.items():
            if name == table.name and key > last:
                records[key] = change.record
        return [record for _, record in sorted(records.items()) if record is not None]

    def _write(self, changes: list[_Change]) -> None:
        """Write *changes*; while the disk refuses, keep them in memory. StateError, once."""
        if self._told is not None and not self._write_failed:
            self._unwritten.update({(c.table.name, c.key): c for c in changes})
            self._wait_for_next(self._told)
            return
        try:
            self._apply(changes)
        except StateError:
            failed_before = self._write_failed
            self._fail(changes)
            if not failed_before:
                raise
            return
        if self._write_failed:
            self._write_pending(changes)

    def _fail(self, changes: list[_Change]) -> None:
        """Keep *changes* in memory, since the disk refuses them."""
        mark.leave(self._directory)  # now, since this process may be killed later
        self._unwritten.update({(c.table.name, c.key): c for c in changes})
        self._write_failed = True

    def _write_pending(self, written: list[_Change]) -> None:
        for change in written:
            self._unwritten.pop((change.table.name, change.key), None)
        with suppress(StateError):
            self._apply(list(self._unwritten.values()))
            self._unwritten.clear()
            self._write_failed = False

    def _apply(self, changes: list[_Change]) -> None:
        self._database.run(lambda connection: _execute_all(connection, changes))


def _change_host(connection: sqlite3.Connection, host: str, change: _Rewrite) -> None:
    row = connection.execute(HOSTS.select, (host,)).fetchone()
    changed = change(None if row is None else HOSTS.decode(row))
    if changed is not None:
        connection.execute(HOSTS.replace, HOSTS.encode(changed))


def _execute_all(connection: sqlite3.Connection, changes: list[_Change]) -> None:
    if len(changes) == 1:
        _execute(connection, changes[0])
        return
    connection.execute("BEGIN IMMEDIATE")
    with connection:
        for change in changes:
            _execute(connection, change)


def _execute(connection: sqlite3.Connection, change: _Change) -> None:
    if change.row is None:
        connection.execute(change.table.delete, change.key)
    else:
        connection.execute(change.table.replace, change.row)
