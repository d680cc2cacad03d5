"""R11: what follows from the declaration of a record: its table, its hash in Redis, its lifetime.

A record is a frozen dataclass, and each of its fields is declared there and nowhere else. The
declared type says how a store keeps it: ``policy.times`` has the names of times; a field whose type
is another dataclass is kept as a JSON object, and as nothing where it has its default. How long a
record is kept is declared once as well, for SQLite, for Redis and for the docs (``state.records``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, get_type_hints

from msgspec import DecodeError, convert, json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

R = TypeVar("R")
Key = tuple[str, ...]
Row = tuple[Any, ...]

#: By the declared type of a field, SQLite's type. Any other is a dataclass of its own.
_TYPES: Final = {
    "str": "TEXT",
    "bytes": "BLOB",
    "int": "INTEGER",
    **dict.fromkeys(("float", "Wall", "Due", "Steady", "Until"), "REAL"),
}
#: Seconds: no lifetime counts a term as longer, or Redis could not.
_LONGEST: Final = 3e9


class DamageError(Exception):
    """The file, or one of its rows, is not what was once written."""


@cache
def kinds_of(record: Any) -> dict[str, str]:
    """By field of the class *record*, its declared type, without ``| None``."""
    return {each.name: str(each.type).removesuffix(" | None") for each in fields(record)}


def moved(record: R, by: Mapping[str, Callable[[float], float]]) -> R:
    """*record* with its times by another clock; *by*: by declared type, what converts one."""
    changes: dict[str, Any] = {}
    declared: Any = type(record)
    for name, kind in kinds_of(declared).items():
        value = getattr(record, name)
        if kind in by and value:  # neither None nor 0, which is no time either
            changes[name] = by[kind](value)
        elif kind not in _TYPES and value != type(value)():
            changes[name] = moved(value, by)
    return replace(record, **changes) if changes else record  # type: ignore[type-var]


@dataclass(frozen=True)
class Table(Generic[R]):
    """The table of one class of records. Its columns are the record's fields, the key first.

    ``latest``: the time by which the later of two records with one key counts. A record *binds*
    until the latest of ``binds``, each a sum of fields, and is kept for ``kept`` seconds after
    that; None: for ever. ``shared``: a fleet keeps it in Redis as well, as long.
    """

    name: str
    record: type[R]
    key: Key
    latest: str
    binds: tuple[Key, ...] = ()
    kept: float | None = None
    shared: bool = False

    # -- a record and its values ----------------------------------------------------------

    @cached_property
    def kinds(self) -> dict[str, str]:
        return kinds_of(self.record)  # type: ignore[arg-type]

    @cached_property
    def columns(self) -> Key:
        return tuple(self.kinds)

    @cached_property
    def _optional(self) -> frozenset[str]:
        """The fields that may be None."""
        found = fields(self.record)  # type: ignore[arg-type]
        return frozenset(each.name for each in found if str(each.type).endswith(" | None"))

    @cached_property
    def _nested(self) -> dict[str, Any]:
        found = get_type_hints(self.record)
        return {name: found[name] for name, kind in self.kinds.items() if kind not in _TYPES}

    def key_of(self, record: R) -> Key:
        return tuple([getattr(record, name) for name in self.key])

    def encode(self, record: R) -> Row:
        """The row of *record*; ValueError for a NaN, which SQLite would turn into NULL, and for
        text that is not Unicode.
        """
        values = {name: getattr(record, name) for name in self.columns}
        for name, kind in self._nested.items():
            values[name] = None if values[name] == kind() else json.encode(values[name]).decode()
        for name, value in values.items():
            if isinstance(value, float) and math.isnan(value):
                raise ValueError(f"{self.name}: {name} is not a number")
            if isinstance(value, str):
                value.encode()
        return tuple(values.values())

    def decode(self, row: Sequence[Any], *, strict: bool = True) -> R:
        """The record of *row*; DamageError where a value is of another type than was written.

        SQLite itself takes any. ``strict``: numbers are numbers, and not text.
        """
        cells = zip(self.columns, row, strict=True)
        found = {name: each for name, each in cells if each is not None or name in self._optional}
        try:
            for name in self._nested.keys() & found.keys():
                found[name] = json.decode(found[name], type=self._nested[name])
            return convert(found, self.record, strict=strict, builtin_types=(bytes,))
        except (DecodeError, TypeError, UnicodeError) as error:
            raise DamageError(f"{self.name}: a row has a value of another type") from error

    # -- how long it is kept --------------------------------------------------------------

    def ends(self, record: R) -> float:
        """Until when *record* is kept: a time by the clock of its own times."""
        bound = max(sum(_term(getattr(record, name)) for name in each) for each in self.binds)
        return bound + (self.kept or 0.0)

    @cached_property
    def lua_ends(self) -> str:
        """As :meth:`ends`, in Lua, of ``record``, a table with the fields of a hash."""
        sums = [" + ".join(f"term(record.{name})" for name in each) for each in self.binds]
        return f"math.max({', '.join(sums)}) + {self.kept or 0}"

    @cached_property
    def prune(self) -> str:
        """Deletes the records that bound nobody any more at a time."""
        sums = [" + ".join(f"coalesce({name}, 0)" for name in each) for each in self.binds]
        return f"DELETE FROM {self.name} WHERE max(0, {', '.join(sums)}) < ?"  # noqa: S608

    # -- Redis ----------------------------------------------------------------------------

    def hash_of(self, record: R) -> dict[str, Any]:
        """The fields of the hash of *record*: its own, but for those of its key, and None."""
        found = zip(self.columns, self.encode(record), strict=True)
        return {
            name: value if isinstance(value, str | bytes) else repr(value)
            for name, value in found
            if value is not None and name not in self.key
        }

    def of_hash(self, key: Key, found: Mapping[bytes, bytes]) -> R:
        """The record with the *key* and the hash *found*; DamageError as for :meth:`decode`."""
        values = dict(zip(self.key, key, strict=True))
        row = [values.get(name, found.get(name.encode())) for name in self.columns]
        try:
            text = [
                value.decode() if isinstance(value, bytes) and kind != "bytes" else value
                for value, kind in zip(row, self.kinds.values(), strict=True)
            ]
        except UnicodeError as error:
            raise DamageError(f"{self.name}: a hash is not text") from error
        return self.decode(text, strict=False)

    # -- SQL. The names in these statements are this package's own, never a caller's. ------

    @cached_property
    def create(self) -> str:
        # WITHOUT ROWID: one tree, without an index that could contradict it after damage.
        loose = self._optional | self._nested.keys()
        columns = [
            f"{name} {_TYPES.get(kind, 'TEXT')}{'' if name in loose else ' NOT NULL'}"
            for name, kind in self.kinds.items()
        ]
        key = ", ".join(self.key)
        return f"CREATE TABLE {self.name} ({', '.join(columns)}, PRIMARY KEY ({key})) WITHOUT ROWID"

    @cached_property
    def select(self) -> str:
        return f"{self.select_all} WHERE {self._is_key}"

    @cached_property
    def select_all(self) -> str:
        return f"SELECT {', '.join(self.columns)} FROM {self.name}"  # noqa: S608

    @cached_property
    def select_back(self) -> str:
        """All rows, from the last one on."""
        return f"{self.select_all} ORDER BY {', '.join(f'{name} DESC' for name in self.key)}"

    @cached_property
    def page(self) -> str:
        """Rows after a key, in key order; a row value compares like a tuple."""
        keys = ", ".join(self.key)
        return f"{self.select_all} WHERE ({keys}) > ({_marks(self.key)}) ORDER BY {keys} LIMIT ?"

    @property
    def page_rows(self) -> int:
        """How many rows one page may have: few where they have bodies."""
        return 10 if "body" in self.columns else 500

    @cached_property
    def replace(self) -> str:
        names, marks = ", ".join(self.columns), _marks(self.columns)
        return f"INSERT OR REPLACE INTO {self.name} ({names}) VALUES ({marks})"  # noqa: S608

    @cached_property
    def delete(self) -> str:
        return f"DELETE FROM {self.name} WHERE {self._is_key}"  # noqa: S608

    @cached_property
    def _is_key(self) -> str:
        return " AND ".join(f"{name} = ?" for name in self.key)


def _term(seconds: float | None) -> float:
    return min(seconds or 0.0, _LONGEST)


def _marks(names: Key) -> str:
    return ", ".join("?" * len(names))
