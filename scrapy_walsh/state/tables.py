"""R11: a table for each kind of record, and its SQL. All of it follows from the record's fields."""

from __future__ import annotations

from dataclasses import dataclass, fields
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
    from collections.abc import Callable, Mapping

R = TypeVar("R")
Key = tuple[str, ...]
Row = tuple[Any, ...]

#: Written into each database of ours (``PRAGMA application_id``): "WALS". Another number, with
#: tables, is another program's file, which is never touched.
APPLICATION: Final = 0x57414C53
#: The version of the tables below. A database of another one is refused (D16).
VERSION: Final = 1

#: By the declared type of a field: SQLite's type, and the types of its values.
_TYPES: Final[Mapping[str, tuple[str, tuple[type, ...]]]] = {
    "str": ("TEXT NOT NULL", (str,)),
    "str | None": ("TEXT", (str, type(None))),
    "bytes": ("BLOB NOT NULL", (bytes,)),
    "float": ("REAL NOT NULL", (float,)),
    "float | None": ("REAL", (float, type(None))),
    "int": ("INTEGER NOT NULL", (int,)),
    "int | None": ("INTEGER", (int, type(None))),
}


class DamageError(Exception):
    """The file, or one of its rows, is not what was once written."""


@dataclass(frozen=True)
class Table(Generic[R]):
    """The table of one class of records. Its columns are the record's fields, the key first."""

    name: str
    record: type[R]
    key: Key

    @cached_property
    def _declared(self) -> dict[str, str]:
        return {field.name: str(field.type) for field in fields(self.record)}  # type: ignore[arg-type]

    @cached_property
    def columns(self) -> Key:
        return tuple(self._declared)

    @cached_property
    def _times(self) -> tuple[int, ...]:
        declared = enumerate(self._declared.values())
        return tuple(i for i, each in declared if each.startswith("float"))

    @cached_property
    def _accepted(self) -> tuple[tuple[type, ...], ...]:
        return tuple(_TYPES[each][1] for each in self._declared.values())

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
        return tuple(values)

    def decode(self, row: Row) -> R:
        """The record of *row*; DamageError where a value is of another type than was written."""
        if not self.fits(row):
            raise DamageError(f"a row of {self.name} has a value of another type")
        return self.record(*row)

    def fits(self, row: Row) -> bool:
        """Whether each value of *row* is of its column's type. SQLite itself takes any."""
        return all(isinstance(v, types) for v, types in zip(row, self._accepted, strict=True))

    # The names in these statements are this file's own, never a caller's.
    @cached_property
    def create(self) -> str:
        # WITHOUT ROWID: one tree, without an index that could contradict it after damage.
        columns = ", ".join(f"{name} {_TYPES[kind][0]}" for name, kind in self._declared.items())
        key = ", ".join(self.key)
        return f"CREATE TABLE {self.name} ({columns}, PRIMARY KEY ({key})) WITHOUT ROWID"

    @cached_property
    def select(self) -> str:
        return f"{self.select_all} WHERE {self._is_key}"

    @cached_property
    def select_all(self) -> str:
        return f"SELECT {self._names} FROM {self.name}"  # noqa: S608

    @cached_property
    def select_back(self) -> str:
        """All rows, from the last one on."""
        return f"{self.select_all} ORDER BY {', '.join(f'{name} DESC' for name in self.key)}"

    @cached_property
    def count(self) -> str:
        return f"SELECT count(*) FROM {self.name}"  # noqa: S608

    @cached_property
    def page(self) -> str:
        """Rows after a key, in key order; a row value compares like a tuple."""
        keys, marks = ", ".join(self.key), self._marks(self.key)
        return f"{self.select_all} WHERE ({keys}) > ({marks}) ORDER BY {keys} LIMIT ?"

    @property
    def page_rows(self) -> int:
        """How many rows one page may have: few where they have bodies."""
        return 10 if "body" in self.columns else 500

    @cached_property
    def replace(self) -> str:
        marks = self._marks(self.columns)
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
        return ", ".join(self.columns)

    @cached_property
    def _is_key(self) -> str:
        return " AND ".join(f"{name} = ?" for name in self.key)

    @staticmethod
    def _marks(names: Key) -> str:
        return ", ".join("?" * len(names))


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
