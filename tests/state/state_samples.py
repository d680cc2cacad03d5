"""A state directory to damage, and what it holds."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

from scrapy_walsh.state.database import DATABASE
from scrapy_walsh.state.records import (
    Attempts,
    Deferral,
    HostRecord,
    SourceRun,
    StoredDocument,
    Validators,
)

if TYPE_CHECKING:
    from pathlib import Path

    from scrapy_walsh.state.store import SqliteStore

NOW = 1_700_000_000.0
BLOCKLIST_URL = "https://o.test/blocklist.json"
HOSTS = [HostRecord(f"h{n:03}.test", NOW + n, 1.0, NOW + 7200) for n in range(150)]


def blocklist(fetched_at: float = NOW, body: bytes = b'{"blocked": []}') -> StoredDocument:
    url = BLOCKLIST_URL
    return StoredDocument("blocklist", url, url, body, fetched_at, 200, "ok", '"é"', None, 21600.0)


def robots(key: str, size: int = 480) -> StoredDocument:
    return StoredDocument("robots", key, key, b"#" * size, NOW, 200, "ok")


def fill(store: SqliteStore) -> None:
    store.put(blocklist())
    for record in HOSTS:
        store.put(record)
        url = f"https://{record.host}/feed"
        store.put(SourceRun(url, NOW, "200"))
        store.put(Validators(url, "feed", '"1"', None, NOW))
        store.put(Deferral(url, record.host, NOW + 7200, "Retry-After"))
        store.put(Attempts(url, 1, NOW))
        store.put(robots(url))


def take_space(connection: sqlite3.Connection) -> None:
    """From now on the database of *connection* cannot grow: its disk is full."""
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count={pages}")


def give_space(connection: sqlite3.Connection) -> None:
    """The disk has space again."""
    connection.execute("PRAGMA max_page_count=100000")


def change(directory: Path, sql: str, *values: Any) -> list[Any]:
    """What *sql* answers on the database in *directory*, by a connection of its own."""
    with closing(sqlite3.connect(directory / DATABASE)) as connection, connection:
        return connection.execute(sql, values).fetchall()


def flip(content: bytes, offset: int, bit: int) -> bytes:
    return content[:offset] + bytes([content[offset] ^ 1 << bit]) + content[offset + 1 :]
