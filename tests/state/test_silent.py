"""D31: that a host gives no answer is kept by each store, over upgrades, exports and imports."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.state import transfer
from scrapy_walsh.state.database import DATABASE
from scrapy_walsh.state.forget import forget
from scrapy_walsh.state.records import HostRecord
from scrapy_walsh.state.sqlite import SqliteStore
from scrapy_walsh.state.tables import HOSTS, MIGRATIONS, checksum

if TYPE_CHECKING:
    from pathlib import Path

HOST = "h.test"


def put(store: SqliteStore, since: float | None, at: float = 1000.0) -> None:
    store.book_host(HOST, 1.0, at, 0.0)
    store.update_host(HOST, lambda record: record and replace(record, silent_since=since))


def since(store: SqliteStore) -> float | None:
    record = store.get(HostRecord, HOST)
    assert record is not None
    return record.silent_since


def test_own_a_booking_leaves_it(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path)) as store:
        put(store, 990.0)
    with closing(SqliteStore(tmp_path)) as store:
        assert since(store) == 990.0
        store.reserve_host(HOST, 1.0, 2000.0)
        store.book_host(HOST, 1.0, 2030.0, 0.0)
        assert since(store) == 990.0


def test_r11_a_file_of_schema_version_3_is_brought_up(tmp_path: Path) -> None:
    table = HOSTS.at(3)
    assert table is not None
    with closing(sqlite3.connect(tmp_path / DATABASE)) as connection:
        for step in MIGRATIONS[:3]:
            step(connection)
        row = [HOST, 5.0, 2.5, None, None, 3.0, 4.0, 5.5, 7.0, 8.0]
        connection.execute(table.replace, (*row, checksum(row)))
        connection.execute("PRAGMA user_version = 3")
        connection.commit()
    with closing(SqliteStore(tmp_path)) as store:
        assert store.get(HostRecord, HOST) == HostRecord(*row)  # type: ignore[arg-type]
        assert since(store) is None
        assert store.notices == []


@pytest.mark.parametrize(
    ("given", "at", "kept"), [(990.0, 2000.0, 990.0), (None, 2000.0, None), (None, 500.0, 7.0)]
)
def test_own_an_import_goes_by_the_later_request(
    tmp_path: Path, given: float | None, at: float, kept: float | None
) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    with closing(SqliteStore(one)) as store:
        put(store, given, at)
        lines = [line.encode() for line in transfer.export_lines(store, one)]
    with closing(SqliteStore(other)) as store:
        put(store, 7.0)
        assert transfer.import_lines(store, other, lines, lambda *_: None, 3000.0) == (1, [])
        assert since(store) == kept


def test_own_forget_drops_it(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path)) as store:
        put(store, 990.0)
        assert forget(store, HOST, 2000.0, 86400.0).dropped["silence"] == 1
        assert store.get(HostRecord, HOST) == HostRecord(HOST, 1000.0, 1.0)
        assert forget(store, HOST, 2000.0, 86400.0).dropped["silence"] == 0
