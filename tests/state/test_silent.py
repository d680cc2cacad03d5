"""D31: that a host gives no answer is kept by each store, over upgrades, exports and imports."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from scrapy_walsh.commands.state import forget
from scrapy_walsh.state.records import HostRecord
from scrapy_walsh.state.store import SqliteStore

if TYPE_CHECKING:
    from pathlib import Path

HOST = "h.test"


def put(store: SqliteStore, since: float | None, at: float = 1000.0) -> None:
    store.book_host(HostRecord(HOST, at, 1.0))
    store.update_host(HOST, lambda record: record and replace(record, silent_since=since))


def since(store: SqliteStore) -> float | None:
    record = store.get(HostRecord, HOST)
    assert record is not None
    return record.silent_since


def test_a_booking_leaves_it(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path)) as store:
        put(store, 990.0)
    with closing(SqliteStore(tmp_path)) as store:
        assert since(store) == 990.0
        store.reserve_host(HOST, 1.0, 2000.0)
        store.book_host(HostRecord(HOST, 2030.0, 1.0))
        assert since(store) == 990.0


def test_forget_drops_it(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path)) as store:
        put(store, 990.0)
        assert forget(store, HOST, 2000.0, 86400.0)[0]["silence"] == 1
        assert store.get(HostRecord, HOST) == HostRecord(HOST, 1000.0, 1.0)
        assert forget(store, HOST, 2000.0, 86400.0)[0]["silence"] == 0
