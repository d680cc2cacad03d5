"""The connection to ``state.sqlite3``, and the repair of a damaged file (R11).

A damaged file is renamed, never deleted. A new file takes its place, with each row that SQLite
could still read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from scrapy_walsh.exceptions import StateError, one_line
from scrapy_walsh.policy.words import plural
from scrapy_walsh.state import files, forms, machine
from scrapy_walsh.state.records import HOSTS, TABLES, VALIDATORS, DamageError, HostRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from scrapy_walsh.state.records import Key, R, Row, Table

T = TypeVar("T")
#: Makes a host's new record of the old one; None leaves it as it is.
Rewrite = Callable[[HostRecord | None], HostRecord | None]

DATABASE: Final = "state.sqlite3"
COMPANIONS: Final = ("-wal", "-shm", "-journal")

#: The mark of our databases (``PRAGMA application_id``): "WALS". If a file with tables has another
#: number, it belongs to another program, and is never touched.
APPLICATION: Final = 0x57414C53
#: The schema version of a database (``PRAGMA user_version``): its form.
VERSION: Final = forms.FORM
#: The steps that bring a database of an older form to this form (D16). If you add a step,
#: :func:`salvage` must support it too, because that reads damaged files of each form.
STEPS: Final[forms.Steps] = {
    1: (  # validators are of a spider (D42), so their key has another column
        "ALTER TABLE validators RENAME TO validators_1",
        VALIDATORS.create,
        (
            "INSERT INTO validators (url, representation, etag, last_modified, stored_at,"
            " content_type, spider) SELECT url, representation, etag, last_modified, stored_at,"
            " content_type, '' FROM validators_1"
        ),
        "DROP TABLE validators_1",
    )
}
#: A table with at most one row: the number of the last ledger line that the records know; and 1 if
#: there are visits of URLs without their queries, from a redacted ledger. Without the row, no run
#: has noted a line yet.
_LEDGER: Final = (
    "CREATE TABLE IF NOT EXISTS ledger_line"
    " (id INTEGER PRIMARY KEY CHECK (id = 1), number INTEGER NOT NULL, redacted INTEGER NOT NULL)"
)
#: The price of a new directory.
PRICE: Final = (
    "in another WALSH_STATE_DIR the holds and last requests of hosts are lost, and they may be "
    "requested too early"
)

_MISUSE: Final = (sqlite3.ProgrammingError, sqlite3.IntegrityError, sqlite3.DataError)

#: Seconds to wait for another process's write.
BUSY_TIMEOUT: Final = 5.0

#: Octets. A file must open within a tenth of a second, so a larger file is not checked then.
CHECK_BELOW: Final = 32 << 20

#: The most records that are read at once, and the octets of bodies after which no more are.
PAGE_ROWS: Final = 500
PAGE_OCTETS: Final = 1 << 20

#: Octets of a page of a new file, SQLite's least. Each transaction writes whole pages, and a record
#: has some hundred octets. With SQLite's default of 4096, four times as much would be written.
_PAGE: Final = 512
#: Pages of the write-ahead log, 4 MB, that are copied into the file at once. Each page is copied
#: once, however often it has changed. A request waits some ten milliseconds for that.
_CHECKPOINT: Final = 8000

#: The first octets of a SQLite file, and the place of the application's number.
_MAGIC: Final = b"SQLite format 3\x00"
_NUMBER: Final = slice(68, 72)
_HEADER: Final = 100

#: SQLite's result codes for a damaged file. Any other error means that it cannot be used now.
_DAMAGED: Final = frozenset(
    {
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_ERROR,  # a table or a column is missing
        sqlite3.SQLITE_FORMAT,
        sqlite3.SQLITE_MISMATCH,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_SCHEMA,
    }
)


def is_damage(error: Exception) -> bool:
    """Whether *error* says that the file is damaged, not that it cannot be used now."""
    if not isinstance(error, sqlite3.DatabaseError):
        return isinstance(error, DamageError)
    # Errors of the sqlite3 module itself have no code.
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF in _DAMAGED


class Connection(sqlite3.Connection):
    """A connection that only raises errors of ``sqlite3``.

    SQLite quotes a damaged schema in its messages. If that is not UTF-8, Python raises
    UnicodeDecodeError in place of the error.
    """

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        try:
            return super().execute(*arguments)
        except UnicodeDecodeError as error:
            raise sqlite3.DatabaseError("a message about it is not UTF-8") from error


def connect(path: Path, news: list[str] | None = None) -> sqlite3.Connection:
    """Open the file at *path*; make it if it is missing.

    A file of an older form is upgraded, with a line in *news* (``state.forms``). Raises
    sqlite3.DatabaseError and DamageError, and StateError if the file is not ours to write, or if a
    later version wrote it.
    """
    _require_ours(path)
    with suppress(OSError):  # otherwise the umask would decide, also for -wal and -shm
        files.make_private(path)
    connection = _raw(path, "mode=rwc")
    try:
        connection.execute("PRAGMA cell_size_check=ON")
        is_begun_file = is_begun(connection, path)
        is_current_form = not is_begun_file or is_current(connection, path)
        # Before the first write, so that a damaged file is set aside unchanged.
        if path.stat().st_size < CHECK_BELOW:
            report = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
            if report != "ok":
                raise DamageError(report)
        if not is_current_form:
            line = forms.upgrade(connection, path, TABLES, STEPS, PRICE)
            if news is not None:
                news.append(line)
        _prepare_writing(connection, begun=is_begun_file)
    except BaseException:
        connection.close()
        raise
    return connection


def read_only(path: Path) -> sqlite3.Connection:
    """Open the file at *path* read-only, damaged or not. No file is made. Raises sqlite3.Error."""
    # If no process has it open, a reader would leave a -wal behind.
    wal = path.with_name(f"{path.name}-wal").exists()
    return _lenient(path, "mode=ro" if wal else "mode=ro&immutable=1")


def salvage(path: Path, target: sqlite3.Connection) -> int:
    """Copy the rows that SQLite can still read from *path* to *target*. Returns their number.

    Raises sqlite3.Error if *target* cannot be written.
    """
    if not path.exists():
        return 0
    row_count = 0
    with closing(_lenient(path, "mode=ro")) as source:
        target.execute("BEGIN IMMEDIATE")
        with target:
            for table in TABLES:
                target.executemany(table.replace, _readable(source, table))
                row_count += target.execute(f"SELECT count(*) FROM {table.name}").fetchone()[0]  # noqa: S608
    return row_count


def _readable(source: sqlite3.Connection, table: Table[Any]) -> Iterator[Row]:
    """Rows from the table's beginning, and from its end, up to the first that cannot be read.

    The table may lack columns, because an older version may have made it.
    """
    for order in ("", f" ORDER BY {table.back}"):
        with suppress(sqlite3.DatabaseError):
            columns = forms.columns_of(source, table.name)
            for row in source.execute(f"{table.select_from(columns)}{order}"):
                with suppress(DamageError):
                    yield table.encode(table.decode(row))


def _raw(path: Path, options: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?{options}",
        uri=True,
        timeout=BUSY_TIMEOUT,
        isolation_level=None,
        # "scrapy shell" makes the crawler in one thread and crawls in another, never at once.
        check_same_thread=False,
        factory=Connection,
    )


def _lenient(path: Path, options: str) -> sqlite3.Connection:
    """A connection that loses only the row, not a page of rows, if a value is not UTF-8."""
    connection = _raw(path, options)
    connection.text_factory = lambda octets: octets.decode(errors="replace")
    return connection


def _require_ours(path: Path) -> None:
    """Raise StateError for a file that never was our database, and DamageError for a cut file.

    Our files have SQLite's first octets or, if those are damaged, the application's number. After a
    power cut the header may be all zeros.
    """
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER)
    except FileNotFoundError:
        return
    has_number = header[_NUMBER] == APPLICATION.to_bytes(4, "big")
    if header and not (_MAGIC.startswith(header[:16]) or has_number or not any(header)):
        raise StateError(foreign(path))
    if len(header) < _HEADER:
        raise DamageError(f"its size is {len(header)}")


def foreign(path: Path) -> str:
    """A line for the log about a file of another program."""
    return (
        f"{path} is not a file of this package, and is left as it is: move it away, or set another "
        "WALSH_STATE_DIR"
    )


def is_begun(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether our tables are in the file; False if it is empty.

    Raises StateError for other tables.
    """
    (number,) = connection.execute("PRAGMA application_id").fetchone()
    if number == APPLICATION:
        return True
    if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise StateError(foreign(path))
    return False


def is_current(connection: sqlite3.Connection, path: Path) -> bool:
    """As ``forms.is_current``, for a file that has our tables."""
    return forms.is_current(connection, path, TABLES, STEPS, PRICE)


def _prepare_writing(connection: sqlite3.Connection, *, begun: bool) -> None:
    if (
        not begun
    ):  # before there is a write-ahead log, so that the number is in the file from the start
        connection.execute(f"PRAGMA page_size={_PAGE}")
        connection.execute("BEGIN EXCLUSIVE")
        with connection:
            if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                for table in TABLES:
                    connection.execute(table.create)
                # A new file knows no line, even if the ledger beside it has some, or if the first
                # run is killed and its write-ahead log is lost.
                connection.execute(_LEDGER)
                connection.execute("INSERT INTO ledger_line VALUES (1, 0, 0)")
                connection.execute(f"PRAGMA application_id={APPLICATION}")
                forms.sign(connection)
    # With WAL, NORMAL is safe if a process is killed. A power cut may cost the last writes.
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute(f"PRAGMA wal_autocheckpoint={_CHECKPOINT}")
    # Written at each opening: if nothing can be written, this fails now, and not later.
    connection.execute("BEGIN IMMEDIATE")
    with connection:
        connection.execute(f"PRAGMA user_version={VERSION}")
        connection.execute(_LEDGER)


def known_line(connection: sqlite3.Connection) -> tuple[int, bool] | None:
    """The last ledger line that the file knows, and whether it has records of redacted URLs.

    None if it has none noted. Raises sqlite3.Error.
    """
    if not forms.columns_of(connection, "ledger_line"):
        return None
    row = connection.execute("SELECT number, redacted FROM ledger_line").fetchone()
    return None if row is None else (int(row[0]), bool(row[1]))


def back_up(path: Path, copy: Path) -> None:
    """Copy the database at *path* to *copy*, beside a running crawl too, all of it or nothing.

    Raises sqlite3.Error and OSError.
    """
    with closing(_raw(path, "mode=rw")) as connection:
        forms.copy_to(connection, copy)


def has_records(directory: Path) -> bool:
    """Whether there is a database, or a copy of a blocklist, in *directory*."""
    if not directory.is_dir():
        return False
    return (directory / DATABASE).exists() or bool(files.list_files(directory))


class Database:
    """The database of *directory*. Raises StateError if it cannot be used.

    Damage and repairs are added to *notices*, a line each; an upgrade of the file is added to
    *news*.
    """

    def __init__(self, directory: Path, notices: list[str], news: list[str]) -> None:
        self.notices, self._news = notices, news
        self.rows_lost = False
        #: Whether the file has lost records since it was opened. Then it knows no further ledger
        #: line, and the next run reads from the ledger what is missing.
        self._behind = False
        self._directory = directory
        self._path, self._draft = directory / DATABASE, directory / f"{DATABASE}.new"
        self._inode: int | None = None
        self._open()
        if machine.is_marked(directory) and not self.rows_lost:
            self._lose("could not be written by an earlier run")

    def end(self) -> None:
        """Close it, after a check whether the file still has this run's records."""
        with suppress(StateError):
            self._current()
            self._reopen()
        self._connection.close()

    def get(self, table: Table[R], key: Key) -> R | None:
        """The record with the *key*."""
        return next(iter(self._select(table, table.select, key)), None)

    def page(self, table: Table[R], last: Key) -> list[R]:
        """The next records after the key *last*: at most :data:`PAGE_ROWS`, and fewer if large."""

        def read(connection: sqlite3.Connection) -> list[R]:
            records: list[R] = []
            room = PAGE_OCTETS
            with closing(connection.execute(table.page, (*last, PAGE_ROWS))) as cursor:
                for row in cursor:
                    records.append(table.decode(row))
                    if table.body is not None:
                        room -= len(row[table.body])
                    if room < 0:
                        break
            return records

        return self.run(read)

    def count(self, table: Table[Any]) -> int:
        """How many records *table* has."""
        count = f"SELECT count(*) FROM {table.name}"  # noqa: S608
        return int(self.run(lambda connection: connection.execute(count).fetchone()[0]))

    def _select(self, table: Table[R], statement: str, values: Row) -> list[R]:
        return self.run(
            lambda connection: list(map(table.decode, connection.execute(statement, values)))
        )

    def write(
        self,
        changes: Mapping[tuple[Table[Any], Key], Row | None],
        bookings: Sequence[tuple[str, Rewrite]] = (),
        line: int = 0,
    ) -> None:
        """Write rows in one transaction, delete those that are None, and rewrite hosts' records.

        *line*: the number of the last ledger line that the records know by then.
        """

        def exchange(connection: sqlite3.Connection) -> None:
            connection.execute("BEGIN IMMEDIATE")
            with connection:
                for (table, key), row in changes.items():
                    if row is None:
                        connection.execute(table.delete, key)
                    else:
                        connection.execute(table.replace, row)
                # A host may come twice, when a request ends and the next begins. Its row is written
                # once.
                records: dict[str, HostRecord | None] = {}
                for host, rewrite in bookings:
                    if host not in records:
                        row = connection.execute(HOSTS.select, (host,)).fetchone()
                        records[host] = None if row is None else HOSTS.decode(row)
                    records[host] = rewrite(records[host]) or records[host]
                for record in filter(None, records.values()):
                    connection.execute(HOSTS.replace, HOSTS.encode(record))
                if line and not self._behind:
                    connection.execute("UPDATE ledger_line SET number = max(number, ?)", (line,))

        self.run(exchange)

    def known_line(self) -> tuple[int, bool] | None:
        """As the function of that name. Raises StateError."""
        return self.run(known_line)

    def set_line(self, number: int, *, redacted: bool) -> None:
        """Note the last ledger line that the records know, also an earlier one."""
        values = (1, number, int(redacted))
        self.run(lambda file: file.execute("REPLACE INTO ledger_line VALUES (?, ?, ?)", values))

    def run(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        """Call *operation* with the connection and return its value.

        If there is damage, the file is repaired, and *operation* is called again. Raises StateError
        if that does not help.
        """
        damage: Exception | None = None
        for _ in range(3):
            try:
                return operation(self._current())
            except _MISUSE:
                raise
            except (sqlite3.DatabaseError, DamageError) as error:
                if not is_damage(error):
                    raise files.unusable(self._path, "cannot be used", error) from error
                # The check at opening may not find this damage. So if it comes a second time, the
                # file is replaced anyway.
                self._reopen(damage)
                self._behind = self._behind or self.rows_lost
                damage = error
        raise files.unusable(self._path, "stays damaged", damage) from damage

    def _current(self) -> sqlite3.Connection:
        """The connection. If another process has replaced the file, it is to the new file."""
        try:
            inode = self._path.stat().st_ino
        except OSError:
            inode = -1
        if inode != self._inode:
            if self._inode is not None:
                self._lose("was removed or replaced during the run, and opened again")
                self._behind = True
            self._reopen()
        return self._connection

    def _reopen(self, damage: Exception | None = None) -> None:
        self._connection.close()
        self._inode = None
        self._open(damage)

    def _open(self, damage: Exception | None = None) -> None:
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            files.claim(self._directory)
            with files.exclusive(self._directory):
                self._connection = self._connect(damage)
                self._inode = self._path.stat().st_ino
        except StateError:
            raise
        except (OSError, sqlite3.Error, DamageError) as error:
            raise files.unusable(self._path, "cannot be used", error) from error

    def _connect(self, damage: Exception | None) -> sqlite3.Connection:
        if self._draft.exists() and not self._path.exists():  # a process ended within _replace
            self._draft.rename(self._path)
        if not self._path.exists() and (remnant := files.left_behind(self._directory)) is not None:
            self._lose(f"is missing, but {remnant} beside it is there")
        if damage is None:
            try:
                return connect(self._path, self._news)
            except (sqlite3.DatabaseError, DamageError) as error:
                if not is_damage(error):
                    raise
                damage = error
        self._replace(damage)
        return connect(self._path)

    def _lose(self, event: str) -> None:
        """Note that records may be lost: a host without a record may have been requested."""
        self.rows_lost = True
        consequence = "holds and last requests may be lost, and sources may be sent again"
        self.notices.append(f"{self._path} {event}; {consequence}")

    def _replace(self, damage: Exception) -> None:
        """Copy the rows that can be read to a new file, and rename the damaged one."""
        for suffix in ("", *COMPANIONS):
            self._draft.with_name(self._draft.name + suffix).unlink(missing_ok=True)
        with closing(connect(self._draft)) as target:
            row_count = salvage(self._path, target)
        aside = files.set_aside(self._path, COMPANIONS)
        self._draft.rename(self._path)
        self._lose(
            f"was damaged ({one_line(damage, 200)}): set aside as {aside.name}, and "
            f"a new one was made from the {plural(row_count, 'row')} that could be read"
        )
