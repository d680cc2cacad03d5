"""R11: opening a SQLite file: whose it is, whether it is damaged, and what can still be read."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.exceptions import StateError
from scrapy_walsh.state import files
from scrapy_walsh.state.tables import APPLICATION, TABLES, VERSION, DamageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scrapy_walsh.state.tables import Row, Table

#: Seconds to wait for another process's write.
BUSY_TIMEOUT: Final = 5.0

#: Octets. A file is to be opened within a tenth of a second, so a larger one is not checked then.
CHECK_BELOW: Final = 32 << 20

#: What a SQLite file begins with, and where in it the application's number is, four octets.
_MAGIC: Final = b"SQLite format 3\x00"
_NUMBER: Final = slice(68, 72)
_HEADER: Final = 100

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


def connect(path: Path) -> tuple[sqlite3.Connection, bool]:
    """Open the file at *path*, which is made where it is missing; and whether it can be written.

    Raises sqlite3.DatabaseError and DamageError; StateError for a file that is not ours to write.
    """
    _require_ours(path)
    try:
        return _opened(path, "mode=rwc"), True
    except sqlite3.OperationalError as error:
        if _code(error) not in _READ_ONLY or not path.exists():
            raise
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_READONLY and _may_write(path):
            # Nothing in the way but the file's own header, and that is damage.
            raise DamageError("its header forbids writing") from error
    try:
        return _opened(path, "mode=ro"), False
    except sqlite3.OperationalError as error:
        if _code(error) not in _READ_ONLY:
            raise
    return _opened(path, _AS_IT_IS), False


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
    """Copy the rows that SQLite can still read from *path* to *target*; returns their number.

    Raises sqlite3.Error where *target* cannot be written.
    """
    if not path.exists():
        return 0
    kept = 0
    with closing(_lenient(path, "mode=ro")) as source:
        target.execute("BEGIN IMMEDIATE")
        with target:
            for table in TABLES:
                target.executemany(table.replace, _readable(source, table))
                kept += target.execute(table.count).fetchone()[0]
    return kept


def _readable(source: sqlite3.Connection, table: Table[Any]) -> Iterator[Row]:
    """Rows from the table's beginning, and from its end, up to what cannot be read any more."""
    for statement in (table.select_all, table.select_back):
        with suppress(sqlite3.DatabaseError):
            yield from filter(table.fits, source.execute(statement))


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


def _require_ours(path: Path) -> None:
    """Raise StateError for a file that never was a database of ours, and DamageError for a cut one.

    Ours are told by SQLite's first octets or, where damage has taken those, by the application's
    number; a header of zeros is what a power cut may leave.
    """
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER)
    except FileNotFoundError:
        return
    number = header[_NUMBER] == APPLICATION.to_bytes(4, "big")
    if header and not (_MAGIC.startswith(header[:16]) or number or not any(header)):
        raise StateError(foreign(path))
    if len(header) < _HEADER:
        raise DamageError(f"its size is {len(header)}")


def foreign(path: Path) -> str:
    """One line on a file of another program, which is left as it is."""
    return (
        f"{path} is not a file of this package, and is left as it is: move it away, or set another "
        "WALSH_STATE_DIR"
    )


def _opened(path: Path, options: str) -> sqlite3.Connection:
    writable = options == "mode=rwc"
    if writable:  # SQLite would make it by the umask, and give -wal and -shm the same rights
        with suppress(OSError):
            files.make_private(path)
    connection = _raw(path, options)
    try:
        connection.execute("PRAGMA cell_size_check=ON")
        begun = _is_begun(connection, path)
        # Before the first write: a damaged file is to be set aside as it was found.
        if path.stat().st_size < CHECK_BELOW:
            found = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
            if found != "ok":
                raise DamageError(found)
        if writable:
            _prepare_writing(connection, begun=begun)
    except BaseException:
        connection.close()
        raise
    return connection


def _is_begun(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether our tables are in the file; False for an empty one. StateError for any other."""
    (number,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if number != APPLICATION:
        if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise StateError(foreign(path))
        return False
    if version != VERSION:
        raise StateError(
            f"{path} has schema version {version} and this package writes {VERSION}: "
            "use the version of the package that wrote it, or set another WALSH_STATE_DIR"
        )
    return True


def _prepare_writing(connection: sqlite3.Connection, *, begun: bool) -> None:
    if not begun:  # before there is a write-ahead log: so the number is in the file from the start
        connection.execute("BEGIN EXCLUSIVE")
        with connection:
            if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                for table in TABLES:
                    connection.execute(table.create)
                connection.execute(f"PRAGMA application_id={APPLICATION}")
                connection.execute(f"PRAGMA user_version={VERSION}")
    # With WAL, NORMAL is enough for a process that is killed; a power cut may cost the last writes.
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    # Written at every opening: where nothing can be written this fails, here and not later.
    connection.execute("BEGIN IMMEDIATE")
    with connection:
        connection.execute(f"PRAGMA user_version={VERSION}")


def _may_write(path: Path) -> bool:
    effective = os.access in os.supports_effective_ids
    return os.access(path, os.W_OK, effective_ids=effective)


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary result code. Errors of the sqlite3 module itself have none."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
