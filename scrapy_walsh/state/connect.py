"""R11: opening a SQLite file: checks, migrations, and saving rows out of a damaged one."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from scrapy_walsh.exceptions import StateError
from scrapy_walsh.state import files, wal
from scrapy_walsh.state.tables import MIGRATIONS, TABLES, DamageError, Key, Row, Table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Seconds to wait for another process's write.
BUSY_TIMEOUT: Final = 5.0

#: Octets. A file is to be opened within a tenth of a second, so the pages, and the rows, of a
#: larger one are not all checked then. Each row is checked again whenever it is read.
CHECK_PAGES_BELOW: Final = 32 << 20
CHECK_ROWS_BELOW: Final = 2 << 20

#: A schema version above this must be damage: no version of this package will write it.
PLAUSIBLE_VERSION: Final = 1000

_READ_ONLY: Final = frozenset(
    {
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_READONLY,
    }
)

#: SQLite's result codes for "no file can be used here" and "not at this moment". Any other error
#: of a database counts as damage.
_UNUSABLE: Final = _READ_ONLY | {
    sqlite3.SQLITE_ABORT,
    sqlite3.SQLITE_AUTH,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOLFS,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_TOOBIG,
}

#: Where the -shm can be neither read nor made, a WAL file can be opened only in this way.
_AS_IT_IS: Final = "mode=ro&immutable=1"

#: Sorts before and after every key.
_FIRST: Final = ""
_LAST: Final = "\U0010ffff"


def is_damage(error: Exception) -> bool:
    """Whether *error* says that the file is damaged, not that it cannot be used now."""
    if not isinstance(error, sqlite3.DatabaseError):
        return isinstance(error, DamageError)
    return _code(error) not in _UNUSABLE


def explain(path: Path, what: str, error: Exception | None) -> str:
    """One line on a file that cannot be used."""
    why = one_line(error)
    return f"{path} {what} ({why}): free or repair the disk, or set another WALSH_STATE_DIR"


def one_line(error: Exception | None) -> str:
    """*error* as readable text: SQLite quotes damaged octets."""
    return "".join(c if c.isprintable() else " " for c in str(error))[:200]


class Connection(sqlite3.Connection):
    """A connection whose errors are all of ``sqlite3``.

    SQLite quotes a damaged schema in its messages, and Python raises UnicodeDecodeError for one
    that is not UTF-8, in place of the error.
    """

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        try:
            return super().execute(*arguments)
        except UnicodeDecodeError as error:
            raise sqlite3.DatabaseError("a message about it is not UTF-8") from error


class Opened(NamedTuple):
    """A connection to a SQLite file.

    ``writable``: False where the file can only be read. ``cut``: its write-ahead log was found
    shorter than what had been committed to it.
    """

    connection: sqlite3.Connection
    writable: bool = False
    cut: bool = False


def connect(path: Path, *, alone: bool = False) -> Opened:
    """Open the file at *path*, which is made where it is missing.

    ``alone``: this process has no other connection to it, so its write-ahead log may be read.
    Raises sqlite3.DatabaseError and DamageError; StateError for a schema version that this
    package does not write.
    """
    try:
        return _opened(path, "mode=rwc", wal.committed(path) if alone else None)
    except sqlite3.OperationalError as error:
        if _code(error) not in _READ_ONLY or not path.exists():
            raise
        if error.sqlite_errorcode == sqlite3.SQLITE_READONLY and _may_write(path):
            raise DamageError("its header forbids writing") from error
    try:
        return _opened(path, "mode=ro")
    except sqlite3.OperationalError as error:
        if _code(error) not in _READ_ONLY:
            raise
    return _opened(path, _AS_IT_IS)


def read_only(path: Path) -> sqlite3.Connection:
    """Open the file at *path*, damaged or not, to read only; no file is made. sqlite3.Error."""
    if not path.with_name(f"{path.name}-wal").exists():
        return _read(path, _AS_IT_IS)  # nobody has it open: a reader would leave a -wal behind
    try:
        return _read(path, "mode=ro")
    except sqlite3.OperationalError:
        return _read(path, _AS_IT_IS)


def _read(path: Path, options: str) -> sqlite3.Connection:
    connection = _lenient(path, options)
    try:
        connection.execute("PRAGMA schema_version").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def salvage(path: Path, target: sqlite3.Connection) -> int:
    """Copy every undamaged row of the file at *path* to *target*; returns their number.

    Raises sqlite3.Error.
    """
    if not path.exists():
        return 0
    kept = 0
    with closing(_lenient(path, "mode=ro")) as source:
        tables = [(table, table.at(_version_of(source))) for table in TABLES]
        target.execute("BEGIN IMMEDIATE")
        with target:
            for table, old in tables:
                if old is None:
                    continue
                for statement, start in ((old.page, _FIRST), (old.page_back, _LAST)):
                    for rows in _whole_rows(source, old, statement, start):
                        target.executemany(table.replace, map(table.renewed, rows))
                kept += target.execute(table.count).fetchone()[0]
    return kept


def _version_of(source: sqlite3.Connection) -> int:
    """The schema version of a damaged file; where it cannot be read, the latest is assumed."""
    try:
        version = int(source.execute("PRAGMA user_version").fetchone()[0])
    except sqlite3.DatabaseError:
        return len(MIGRATIONS)
    return version if 0 < version < len(MIGRATIONS) else len(MIGRATIONS)


def _whole_rows(
    source: sqlite3.Connection, table: Table[Any], statement: str, start: str
) -> Iterator[list[Row]]:
    """Pages of undamaged rows, from *start* up to the first place that cannot be read any more."""
    last: Key = (start,) * len(table.key)
    sizes = [table.page_rows, 1]
    while sizes:
        try:
            page = source.execute(statement, (*last, sizes[0])).fetchall()
        except sqlite3.DatabaseError:
            sizes.pop(0)
            continue
        rows = [row for row in page if table.is_whole(row)]
        keys = [table.row_key(row) for row in rows]
        if not rows or not (last < keys[-1] if start == _FIRST else keys[-1] < last):
            return
        yield rows
        last = keys[-1]


def _raw(path: Path, options: str) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?{options}"
    # "scrapy shell" makes the crawler in one thread and crawls in another, never at once.
    return sqlite3.connect(
        uri,
        uri=True,
        timeout=BUSY_TIMEOUT,
        isolation_level=None,
        check_same_thread=False,
        factory=Connection,
    )


def _lenient(path: Path, options: str) -> sqlite3.Connection:
    """A connection for which a value that is not UTF-8 costs its own row, not a page of rows."""
    connection = _raw(path, options)
    connection.text_factory = lambda octets: octets.decode(errors="replace")
    return connection


def _opened(path: Path, options: str, log: wal.Log | None = None) -> Opened:
    writable, cut = options == "mode=rwc", False
    if writable:  # SQLite would make it by the umask, and give -wal and -shm the same rights
        with suppress(OSError):
            files.make_private(path)
    connection = _raw(path, options)
    try:
        connection.execute("PRAGMA cell_size_check=ON")
        version = _version(connection, path, writable=writable)
        # Before the first write: a damaged file is to be set aside as it was found.
        _check(connection, path.stat().st_size, TABLES if version == len(MIGRATIONS) else ())
        if writable:
            cut = log is not None and wal.was_cut(connection, path, log)
            _prepare_writing(connection, version)
    except BaseException:
        connection.close()
        raise
    return Opened(connection, writable, cut)


def _version(connection: sqlite3.Connection, path: Path, *, writable: bool) -> int:
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    latest = len(MIGRATIONS)
    if not 0 <= version <= PLAUSIBLE_VERSION:
        raise DamageError(f"its schema version is {version}")
    if version > latest or (version < latest and not writable):
        raise StateError(
            f"{path} has schema version {version} and this package writes {latest}: "
            "use the version of the package that wrote it, or set another WALSH_STATE_DIR"
        )
    return version


def _check(connection: sqlite3.Connection, size: int, tables: tuple[Table[Any], ...]) -> None:
    """Look for damage; raises DamageError or sqlite3.DatabaseError at the first that is found."""
    if size < CHECK_PAGES_BELOW:
        found = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
        if found != "ok":
            raise DamageError(found)
    if size < CHECK_ROWS_BELOW:
        for table in tables:
            last: Key = ()
            for row in connection.execute(table.select_all):
                table.require_whole(row)
                if not last < table.row_key(row):
                    raise DamageError(f"the rows of {table.name} are out of order")
                last = table.row_key(row)


def _prepare_writing(connection: sqlite3.Connection, version: int) -> None:
    # With WAL, NORMAL is enough for a process that is killed; a power cut may cost the last writes.
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    latest = len(MIGRATIONS)
    connection.execute("BEGIN IMMEDIATE")
    with connection:
        for step in MIGRATIONS[version:]:
            step(connection)
        # Written at every opening: where nothing can be written this fails, here and not later.
        connection.execute(f"PRAGMA user_version={latest}")


def _may_write(path: Path) -> bool:
    effective = os.access in os.supports_effective_ids
    return os.access(path, os.W_OK, effective_ids=effective)


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary result code. Errors of the sqlite3 module itself have none."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
