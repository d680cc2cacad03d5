"""R11: a table for each kind of record, its SQL, and the migrations between schema versions.

Rule for whoever edits this file: a step of ``MIGRATIONS`` that was released is never changed;
a new step is added after it (D16).
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, fields, replace
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from scrapy_walsh.state.records import (
    Attempts,
    Deferral,
    HostRecord,
    Reading,
    SeenItem,
    SourceRun,
    StoredDocument,
    Validators,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Mapping

R = TypeVar("R")
Key = tuple[str, ...]
Row = tuple[Any, ...]


class DamageError(Exception):
    """The file, or one of its rows, is not what was once written."""


@dataclass(frozen=True)
class Table(Generic[R]):
    """The table of one class of records.

    Its columns are the record's fields, and one more for the checksum of the row. ``missing``: how
    many of the last fields a file of an earlier schema version does not have.
    """

    name: str
    record: type[R]
    key: Key
    missing: int = 0

    @cached_property
    def columns(self) -> Key:
        names = tuple(field.name for field in fields(self.record))  # type: ignore[arg-type]
        return names[: len(names) - self.missing]

    def at(self, version: int) -> Table[R] | None:
        """This table as a file of schema *version* has it; None where it is younger than that."""
        if version < BEGUN_IN.get(self.name, 1):
            return None
        later = [columns for added, columns in ADDED.items() if added > version]
        return replace(self, missing=sum(len(columns.get(self.name, ())) for columns in later))

    def renewed(self, row: Row) -> Row:
        """An undamaged *row* of an earlier schema version, in the form of this table."""
        values = [*row[:-1], *[None] * (len(self.columns) - len(row) + 1)]
        return (*values, checksum(values))

    @cached_property
    def _times(self) -> tuple[int, ...]:
        typed = enumerate(fields(self.record))  # type: ignore[arg-type]
        return tuple(i for i, field in typed if str(field.type).startswith("float"))

    @cached_property
    def _values(self) -> Callable[[R], Row]:
        return attrgetter(*self.columns)

    @cached_property
    def _key_values(self) -> Callable[[R], Any]:
        return attrgetter(*self.key)

    def key_of(self, record: R) -> Key:
        """The key of *record*, as a tuple of str."""
        values = self._key_values(record)
        return values if len(self.key) > 1 else (values,)

    def encode(self, record: R) -> Row:
        """The row of *record*; ValueError for a NaN, which SQLite would turn into NULL."""
        values = list(self._values(record))
        for i in self._times:
            if values[i] is not None:
                values[i] = float(values[i])
                if values[i] != values[i]:
                    raise ValueError(f"{self.name}: {self.columns[i]} is not a number")
        return (*values, checksum(values))

    def decode(self, row: Row) -> R:
        """The record of *row*; DamageError when it is not what was written."""
        self.require_whole(row)
        return self.record(*row[:-1])

    def is_whole(self, row: Row) -> bool:
        """Whether *row* is what was written."""
        return bool(row[-1] == checksum(list(row[:-1])))

    def require_whole(self, row: Row) -> None:
        """DamageError when *row* is not what was written."""
        if not self.is_whole(row):
            raise DamageError(f"a row of {self.name} does not match its checksum")

    def row_key(self, row: Row) -> Key:
        """The key of a whole *row*: the first columns are the key, in every table."""
        return row[: len(self.key)]

    # The names in these statements are this file's own, never a caller's.
    @cached_property
    def select(self) -> str:
        return f"SELECT {self._names} FROM {self.name} WHERE {self._is_key}"  # noqa: S608

    @cached_property
    def select_all(self) -> str:
        return f"SELECT {self._names} FROM {self.name}"  # noqa: S608

    @cached_property
    def count(self) -> str:
        return f"SELECT count(*) FROM {self.name}"  # noqa: S608

    @cached_property
    def page(self) -> str:
        """Rows after a key, in key order; a row value compares like a tuple."""
        return self._page(">", "ASC")

    @cached_property
    def page_back(self) -> str:
        """Rows before a key, from the last."""
        return self._page("<", "DESC")

    @property
    def page_rows(self) -> int:
        """How many rows one page may have: few where they have bodies."""
        return 10 if "body" in self.columns else 500

    def _page(self, sign: str, order: str) -> str:
        keys, marks = ", ".join(self.key), self._marks(self.key)
        ordered = ", ".join(f"{name} {order}" for name in self.key)
        where = f"({keys}) {sign} ({marks}) ORDER BY {ordered} LIMIT ?"
        return f"SELECT {self._names} FROM {self.name} WHERE {where}"  # noqa: S608

    @cached_property
    def replace(self) -> str:
        marks = self._marks((*self.columns, "crc32"))
        return f"INSERT OR REPLACE INTO {self.name} ({self._names}) VALUES ({marks})"  # noqa: S608

    @cached_property
    def prune(self) -> str:
        """Deletes the records that were last of use before a time (``KEPT``)."""
        return f"DELETE FROM {self.name} WHERE {KEPT[self.name][0]} < ?"  # noqa: S608

    @cached_property
    def delete(self) -> str:
        return f"DELETE FROM {self.name} WHERE {self._is_key}"  # noqa: S608

    @cached_property
    def _names(self) -> str:
        return ", ".join((*self.columns, "crc32"))

    @cached_property
    def _is_key(self) -> str:
        return " AND ".join(f"{name} = ?" for name in self.key)

    @staticmethod
    def _marks(names: Key) -> str:
        return ", ".join("?" * len(names))


def checksum(values: list[Any]) -> int:
    """CRC-32 of a row's columns, because SQLite does not notice a bit that flips in a value.

    It is made of ``ascii()``, not ``repr()``, whose output changes with Python's Unicode tables.
    """
    crc = 0
    for i, value in enumerate(values):
        if type(value) is bytes:
            crc = zlib.crc32(value)
            values = [*values[:i], len(value), *values[i + 1 :]]
    return zlib.crc32(ascii(values).encode("ascii"), crc)


DOCUMENTS: Final = Table("documents", StoredDocument, ("kind", "key"))
VALIDATORS: Final = Table("validators", Validators, ("url", "representation"))
SOURCES: Final = Table("sources", SourceRun, ("url",))
HOSTS: Final = Table("hosts", HostRecord, ("host",))
DEFERRALS: Final = Table("deferrals", Deferral, ("url",))
ATTEMPTS: Final = Table("attempts", Attempts, ("url",))
SEEN_ITEMS: Final = Table("seen_items", SeenItem, ("canonical_url",))
READINGS: Final = Table("readings", Reading, ("url",))

TABLES: Final[tuple[Table[Any], ...]] = (
    DOCUMENTS,
    VALIDATORS,
    SOURCES,
    HOSTS,
    DEFERRALS,
    ATTEMPTS,
    SEEN_ITEMS,
    READINGS,
)
_BY_RECORD: Final = {table.record: table for table in TABLES}


def table_of(record: type[R]) -> Table[R]:
    """The table of the records of one class; KeyError for a class that has none."""
    return _BY_RECORD[record]


#: By schema version, the columns that it added at the end of tables; each may be NULL.
ADDED: Final[Mapping[int, Mapping[str, Key]]] = {
    2: {"sources": ("counted_from",), "hosts": ("visited_at",), "deferrals": ("since",)},
    3: {"hosts": ("learned", "learned_accepted", "learned_calm", "learned_at")},
    4: {"hosts": ("silent_since",)},
}
#: The schema version that a table came with, where that is not the first.
BEGUN_IN: Final[Mapping[str, int]] = {"readings": 2}

_YEAR_AND_A_BIT: Final = 400 * 86_400.0
#: Validators are dropped sooner. A source that has answered 304 for so long is then fetched in
#: full, which shows the links that it still has.
_HALF_A_YEAR: Final = 200 * 86_400.0
#: By table: when a record was last of use, as SQL over its columns, and for how many seconds after
#: that it is kept. Documents are never dropped: the last known rules stay (T6).
KEPT: Final[Mapping[str, tuple[str, float]]] = {
    "attempts": ("last_at", 86_400.0),
    "hosts": ("max(last_end + interval, coalesce(not_before, 0))", _YEAR_AND_A_BIT),
    "sources": ("last_run_at", _YEAR_AND_A_BIT),
    "validators": ("stored_at", _HALF_A_YEAR),
    "deferrals": ("due", _YEAR_AND_A_BIT),
    "seen_items": ("seen_at", _YEAR_AND_A_BIT),
    "readings": ("declared_at", _YEAR_AND_A_BIT),
}

# WITHOUT ROWID: each table is one tree, without an index that could contradict it after damage.
_VERSION_1 = (
    """CREATE TABLE documents (
        kind TEXT NOT NULL, key TEXT NOT NULL, url TEXT NOT NULL, body BLOB NOT NULL,
        fetched_at REAL NOT NULL, status INTEGER, outcome TEXT NOT NULL,
        etag TEXT, last_modified TEXT, refresh REAL, crc32 INTEGER NOT NULL,
        PRIMARY KEY (kind, key)) WITHOUT ROWID""",
    """CREATE TABLE validators (
        url TEXT NOT NULL, representation TEXT NOT NULL, etag TEXT, last_modified TEXT,
        stored_at REAL NOT NULL, content_type TEXT, crc32 INTEGER NOT NULL,
        PRIMARY KEY (url, representation)) WITHOUT ROWID""",
    """CREATE TABLE sources (
        url TEXT NOT NULL PRIMARY KEY, last_run_at REAL NOT NULL, outcome TEXT NOT NULL,
        reason TEXT, crc32 INTEGER NOT NULL) WITHOUT ROWID""",
    """CREATE TABLE hosts (
        host TEXT NOT NULL PRIMARY KEY, last_end REAL NOT NULL, interval REAL NOT NULL,
        not_before REAL, why TEXT, crc32 INTEGER NOT NULL) WITHOUT ROWID""",
    """CREATE TABLE deferrals (
        url TEXT NOT NULL PRIMARY KEY, host TEXT NOT NULL, due REAL NOT NULL,
        reason TEXT NOT NULL, crc32 INTEGER NOT NULL) WITHOUT ROWID""",
    """CREATE TABLE attempts (
        url TEXT NOT NULL PRIMARY KEY, count INTEGER NOT NULL, last_at REAL NOT NULL,
        crc32 INTEGER NOT NULL) WITHOUT ROWID""",
    """CREATE TABLE seen_items (
        canonical_url TEXT NOT NULL PRIMARY KEY, seen_at REAL NOT NULL,
        crc32 INTEGER NOT NULL) WITHOUT ROWID""",
)


def _create(connection: sqlite3.Connection) -> None:
    for statement in _VERSION_1:
        connection.execute(statement)


_READINGS: Final = """CREATE TABLE readings (
    url TEXT NOT NULL PRIMARY KEY, since REAL NOT NULL, declared_at REAL NOT NULL,
    read INTEGER NOT NULL, reason TEXT, moved_to TEXT, crc32 INTEGER NOT NULL) WITHOUT ROWID"""


def _second(connection: sqlite3.Connection) -> None:
    """Add due times (D12), visits of slow hosts (D11), the ages of deferrals, and readings."""
    connection.execute(_READINGS)
    _add_columns(connection, 2)


def _third(connection: sqlite3.Connection) -> None:
    """Add what hosts have taught by their answers 429 (D28)."""
    _add_columns(connection, 3)


def _fourth(connection: sqlite3.Connection) -> None:
    """Add since when a host has given no answer (D31)."""
    _add_columns(connection, 4)


def _add_columns(connection: sqlite3.Connection, version: int) -> None:
    """Add the columns of schema *version* to the tables of the one before."""
    for table in TABLES:
        columns = ADDED[version].get(table.name, ())
        for column in columns:
            connection.execute(f"ALTER TABLE {table.name} ADD COLUMN {column} REAL")
        old, new = table.at(version - 1), table.at(version)
        if columns and old is not None and new is not None:
            _renew_rows(connection, old, new)


def _renew_rows(connection: sqlite3.Connection, old: Table[Any], new: Table[Any]) -> None:
    """Give each undamaged row of an earlier version's table the checksum of its new columns.

    A damaged row keeps its checksum, so that it is still found to be damaged.
    """
    last: Key = ("",) * len(old.key)
    decode, connection.text_factory = connection.text_factory, _lenient
    try:
        while page := connection.execute(old.page, (*last, old.page_rows)).fetchall():
            whole = [new.renewed(row) for row in page if old.is_whole(row)]
            connection.executemany(new.replace, whole)
            last = old.row_key(page[-1])
    finally:
        connection.text_factory = decode


def _lenient(octets: bytes) -> str:
    return octets.decode(errors="replace")


#: Step n (from 0) takes a file of schema version n to n + 1.
MIGRATIONS: tuple[Callable[[sqlite3.Connection], None], ...] = (
    _create,
    _second,
    _third,
    _fourth,
)
