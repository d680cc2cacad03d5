"""D28: what hosts have taught is kept by each store, over upgrades, exports and imports."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.commands.state import forget
from scrapy_walsh.policy.throttle import NOTHING, Learned
from scrapy_walsh.state.records import HostRecord
from scrapy_walsh.state.store import MemoryStore, SqliteStore

if TYPE_CHECKING:
    from pathlib import Path

HOST = "h.test"
TAUGHT = Learned(4.0, 5.5, 7, 1000.0)
SLOWER = Learned(8.0, 0.0, 0, 900.0)
ONE_REFUSAL = Learned(calm=3, at=1000.0)


def reads(store: SqliteStore | MemoryStore) -> Learned:
    record = store.get(HostRecord, HOST)
    assert record is not None
    return record.taught


@pytest.mark.parametrize("taught", [NOTHING, ONE_REFUSAL, TAUGHT])
def test_what_was_booked_is_read_back_by_the_next_run(tmp_path: Path, taught: Learned) -> None:
    with closing(SqliteStore(tmp_path)) as store:
        store.book_host(HostRecord(HOST, 1000.0, 1.0, taught=taught))
    with closing(SqliteStore(tmp_path)) as store:
        assert reads(store) == taught
        assert store.reserve_host(HOST, 1.0, 2000.0).taught == taught
        assert reads(store) == taught


def test_another_process_waits_for_the_learned_interval(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path)) as one, closing(SqliteStore(tmp_path)) as other:
        one.book_host(HostRecord(HOST, 1000.0, 1.0, taught=TAUGHT))
        booking = other.reserve_host(HOST, 1.0, 1001.0)
        assert (booking.wait, booking.taught) == (3.0, TAUGHT)


def test_a_process_replaces_what_it_alone_knows_of() -> None:
    store = MemoryStore()
    store.book_host(HostRecord(HOST, 1000.0, 1.0, taught=SLOWER))
    store.book_host(HostRecord(HOST, 1010.0, 1.0, taught=TAUGHT))
    assert reads(store) == TAUGHT
    store.book_host(HostRecord(HOST, 1020.0, 1.0))
    assert reads(store) == NOTHING


def test_where_another_one_was_there_meanwhile_the_slower_stays(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path)) as one, closing(SqliteStore(tmp_path)) as other:
        one.reserve_host(HOST, 1.0, 1000.0)
        other.book_host(HostRecord(HOST, 1010.0, 1.0, taught=SLOWER))
        one.book_host(HostRecord(HOST, 1011.0, 1.0, taught=TAUGHT))
        assert reads(one) == SLOWER


def test_forget_drops_it_and_nothing_that_was_promised(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path)) as store:
        store.book_host(HostRecord(HOST, 1000.0, 2.5, 1000.0 + 60.0, taught=TAUGHT))
        dropped, _ = forget(store, HOST, 2000.0, 86400.0)
        assert dropped["learned interval"] == 1
        assert store.get(HostRecord, HOST) == HostRecord(HOST, 1000.0, 2.5, 1060.0)
