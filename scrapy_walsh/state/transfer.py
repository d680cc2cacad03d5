"""R11: export of the store to JSON lines, and import of such lines.

A line is one record: the member ``record`` names its table, the others are its fields, and a body
is base64. An import breaks no promise to a host: of two records with one key the one that binds
longer, or is later, stays. No hold gets shorter, and no older document replaces a newer one.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.exceptions import WalshError
from scrapy_walsh.policy import robots_fetch
from scrapy_walsh.policy.learned import slower
from scrapy_walsh.state import files
from scrapy_walsh.state.records import (
    BLOCKLIST,
    ROBOTS,
    SCHEMA,
    Attempts,
    HostRecord,
    StoredDocument,
)
from scrapy_walsh.state.tables import ADDED, DOCUMENTS, MIGRATIONS, TABLES, DamageError, Table

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from scrapy_walsh.state.sqlite import SqliteStore

#: The schema version that this package writes.
LATEST: Final = len(MIGRATIONS)
#: Records that one transaction of an import writes.
_BATCH: Final = 500

_Found = tuple[Table[Any], Any]
#: Called with the octets of a blocklist and its URL; raises WalshError where a crawl would not
#: adopt it.
Adopt = Callable[[bytes, str], object]
_BY_NAME: Final = {table.name: table for table in TABLES}


# -- out ----------------------------------------------------------------------------------


def export_lines(store: SqliteStore, directory: Path, version: int = LATEST) -> Iterator[str]:
    """Every record of *store*, whose files are in *directory*, a line each. Raises StateError.

    *version*: the schema version of the package that is to read the lines (D16).
    """
    _heal(store, directory)
    for table in TABLES:
        there = table.at(version)
        if there is None:
            continue
        for record in store._rows(table):
            if isinstance(record, StoredDocument) and record.kind == BLOCKLIST and not record.body:
                continue  # a list that was adopted and cannot be read any more
            members = {name: getattr(record, name) for name in there.columns}
            if "body" in members:
                members["body"] = base64.b64encode(members["body"]).decode("ascii")
            yield json.dumps({"record": table.name, **members})


def _heal(store: SqliteStore, directory: Path) -> None:
    """Have the store write its row of the blocklist anew, where the copy in a file is newer."""
    try:
        copy = files.read_copy(directory)
    except DamageError:
        return
    if copy is not None:
        store.get(StoredDocument, BLOCKLIST, copy.key)


# -- in -----------------------------------------------------------------------------------


def import_lines(
    store: SqliteStore, directory: Path, lines: Iterable[bytes], adopt: Adopt, now: float
) -> tuple[int, list[str]]:
    """Import *lines* into *store*, whose files are in *directory*.

    Returns the number of lines that were taken, and a line of text, which begins with ``line N``,
    for each that was not. *now*: Unix seconds. Raises StateError where the store cannot be written.
    """
    taken = 0
    problems: list[str] = []
    waiting: list[_Found] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found = _read(line, adopt, now)
        except (ValueError, WalshError) as error:
            problems.append(f"line {number}: {error}")
            continue
        taken += 1
        if isinstance(found[1], StoredDocument) and found[1].kind == BLOCKLIST:
            _take_blocklist(store, directory, found[1])
            continue
        waiting.append(found)
        if len(waiting) >= _BATCH:
            _take(store, waiting)
            waiting = []
    _take(store, waiting)
    return taken, problems


def _take(store: SqliteStore, found: list[_Found]) -> None:
    """Compare and write in one transaction: a crawl may lengthen a hold at the same time."""

    def work(connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        with connection:
            for table, record in found:
                row = connection.execute(table.select, table.key_of(record)).fetchone()
                held = None if row is None else table.decode(row)
                kept = record if held is None else _merged(table, held, record)
                if kept != held:
                    connection.execute(table.replace, table.encode(kept))

    if found:
        store._database.run(work)


def _take_blocklist(store: SqliteStore, directory: Path, given: StoredDocument) -> None:
    held = store.get(StoredDocument, BLOCKLIST, given.key)
    if held is not None and _merged(DOCUMENTS, held, given) is held:
        return
    try:
        copy = files.read_copy(directory)
    except DamageError:
        copy = None
    if copy is None or copy.key == given.key:
        store.put(given)
    else:  # the copy in a file is of another list, the one in use
        store._put(DOCUMENTS, [given])


def _merged(table: Table[Any], held: Any, given: Any) -> Any:
    if isinstance(held, HostRecord):
        return _merged_hosts(held, given)
    if isinstance(held, Attempts):
        return replace(
            held, count=max(held.count, given.count), last_at=max(held.last_at, given.last_at)
        )
    rank = _RANK[table.name]
    return given if rank(given) > rank(held) else held


def _merged_hosts(held: HostRecord, given: HostRecord) -> HostRecord:
    """A record with the later value of each field, so that what either promised is kept."""
    longer = max(held, given, key=lambda record: record.not_before or 0.0)
    longer = longer.with_taught(slower(held.taught, given.taught))
    later = max(held, given, key=lambda record: record.last_end)
    return replace(
        longer,
        last_end=later.last_end,
        silent_since=later.silent_since,
        interval=max(held.interval, given.interval),
        visited_at=max(
            (each.visited_at for each in (held, given) if each.visited_at is not None),
            default=None,
        ),
    )


#: By table, the rank of a record. Of two with one key the higher rank stays; of equals, the one
#: that was there.
_RANK: Final[Mapping[str, Callable[[Any], Any]]] = {
    "documents": lambda record: (bool(record.body) or record.kind == ROBOTS, record.fetched_at),
    "validators": lambda record: record.stored_at,
    "sources": lambda record: record.last_run_at,
    "deferrals": lambda record: record.due,
    "seen_items": lambda record: record.seen_at,
    "readings": lambda record: record.declared_at,
}


# -- one line -----------------------------------------------------------------------------


def _read(line: bytes, adopt: Adopt, now: float) -> _Found:
    """The record in *line*, with its table; ValueError or WalshError say what is wrong with it."""
    try:
        members = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        members = None
    if not isinstance(members, dict):
        raise ValueError("not a JSON object")
    table = _BY_NAME.get(str(members.pop("record", None)))
    if table is None:
        raise ValueError(f"no 'record' out of {', '.join(_BY_NAME)}")
    record = table.record(**_values(table, members))
    if isinstance(record, StoredDocument):
        record = _checked(record, adopt, now)
    return table, record


def _values(table: Table[Any], members: dict[str, Any]) -> dict[str, Any]:
    types = {field.name: str(field.type) for field in fields(table.record)}
    added = {name for columns in ADDED.values() for name in columns.get(table.name, ())}
    members = {**dict.fromkeys(added), **members}  # an earlier version did not write them
    if wrong := sorted(types.keys() ^ members.keys()):
        raise ValueError(f"{table.name}: {wrong[0]!r} is missing or unknown")
    return {name: _value(name, members[name], types[name]) for name in types}


def _value(name: str, value: Any, declared: str) -> Any:
    kind, _, optional = declared.partition(" | ")
    if value is None and optional:
        return None
    accepted, convert = _TYPES[kind]
    try:
        return convert(value)
    except (TypeError, ValueError, OverflowError, binascii.Error):
        raise ValueError(f"{name!r} is not {accepted}") from None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    value.encode()
    return value


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
        raise TypeError
    return value


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError
    number = float(value)
    if not (math.isfinite(number) and number >= 0):
        raise ValueError
    return number


def _octets(value: Any) -> bytes:
    return base64.b64decode(_text(value), validate=True)


#: By the declared type of a field: what is accepted, in words, and the conversion.
_TYPES: Final[Mapping[str, tuple[str, Callable[[Any], Any]]]] = {
    "str": ("text", _text),
    "int": ("a whole number", _whole),
    "float": ("a number of seconds, at least 0", _seconds),
    "bytes": ("base64", _octets),
}


def _checked(document: StoredDocument, adopt: Adopt, now: float) -> StoredDocument:
    """*document*, if a crawl could have adopted it; one from the future counts as oldest (D9)."""
    if document.kind == BLOCKLIST:
        adopt(document.body, document.key)
    if document.kind == SCHEMA and not _is_object(document.body):
        raise ValueError("the schema is not a JSON object")
    if document.kind == ROBOTS and document.outcome not in _ROBOTS_OUTCOMES:
        raise ValueError(f"'outcome' is not one of {', '.join(sorted(_ROBOTS_OUTCOMES))}")
    return document if document.fetched_at <= now else replace(document, fetched_at=0.0)


_ROBOTS_OUTCOMES: Final = frozenset({robots_fetch.PARSE, robots_fetch.NO_RULES})


def _is_object(body: bytes) -> bool:
    try:
        return isinstance(json.loads(body), dict)
    except (ValueError, RecursionError):
        return False
