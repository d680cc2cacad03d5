"""Writes of a crawl that wait for its next request, or for ``flush`` (D20)."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.exceptions import StateError
from scrapy_walsh.state.records import Deferral, HostRecord, StoredDocument, VisitRecord
from scrapy_walsh.state.store import SqliteStore
from tests.kit import BLOCKLIST_URL, HOSTS, NOW, give_space, kept_list, kept_robots, take_space

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator
    from pathlib import Path

HOST = "a.test"
RUN = VisitRecord("http://a.test/feed", NOW, "200")
DEFERRAL = Deferral(RUN.url, HOST, NOW + 7200, "Retry-After", NOW)


@pytest.fixture
def told() -> list[str]:
    """A word for each time that a store told that a write has begun to wait."""
    return []


@pytest.fixture
def store(tmp_path: Path, told: list[str]) -> Iterator[SqliteStore]:
    found = SqliteStore(tmp_path)
    found.let_wait(lambda: told.append("waits"))
    yield found
    found.close()


@pytest.fixture
def other(tmp_path: Path, store: SqliteStore) -> Iterator[SqliteStore]:
    """The store of another process."""
    found = SqliteStore(tmp_path)
    yield found
    found.close()


def test_what_waits_is_read_back_and_written_with_the_next_request(
    connections: list[sqlite3.Connection],
    store: SqliteStore,
    other: SqliteStore,
    told: list[str],
) -> None:
    other.put(DEFERRAL)
    store.put(RUN)
    store.delete(Deferral, RUN.url)
    store.book_host(HostRecord(HOST, NOW, 1.0))
    assert told == ["waits"]
    assert store.get(VisitRecord, RUN.url) == RUN
    assert store.get(Deferral, RUN.url) is None
    assert other.get(VisitRecord, RUN.url) is None
    assert other.get(HostRecord, HOST) is None
    assert other.get(Deferral, RUN.url) == DEFERRAL
    statements: list[str] = []
    connections[0].set_trace_callback(statements.append)
    booking = store.reserve_host("b.test", 1.0, NOW + 1)
    connections[0].set_trace_callback(None)
    assert booking.wait == 0
    assert [each.split()[0] for each in statements].count("COMMIT") == 1
    store.put(RUN)
    assert told == ["waits", "waits"]
    store.flush()
    assert other.get(VisitRecord, RUN.url) == RUN
    assert other.get(Deferral, RUN.url) is None
    assert other.get(HostRecord, HOST) == HostRecord(HOST, NOW, 1.0)
    assert other.get(HostRecord, "b.test") == HostRecord("b.test", NOW + 1, 1.0, under_way=1)


def test_r4_6_a_hold_of_another_process_is_kept_by_a_booking_that_waited(
    store: SqliteStore, other: SqliteStore
) -> None:
    assert store.reserve_host(HOST, 1.0, NOW).wait == 0
    store.book_host(HostRecord(HOST, NOW + 2, 1.0))
    other.book_host(HostRecord(HOST, NOW + 2, 5.0, NOW + 2 + 90.0))
    store.flush()
    found = other.get(HostRecord, HOST)
    assert found is not None
    assert found.not_before == NOW + 92


def test_r4_4_a_host_is_not_taken_for_new_while_its_booking_waits(store: SqliteStore) -> None:
    store.book_host(HostRecord(HOST, NOW, 30.0))
    assert store.get(HostRecord, HOST) == HostRecord(HOST, NOW, 30.0)
    store.book_host(HostRecord(HOST, NOW + 1, 30.0))
    booking = store.reserve_host(HOST, 30.0, NOW + 2)
    assert booking.known
    assert [each.host for each in store.rows(HostRecord)] == [HOST]


def test_rows_are_whole_while_some_wait(store: SqliteStore, other: SqliteStore) -> None:
    other.put(*HOSTS[:3])
    store.put(kept_robots("https://a.test"))
    store.book_host(HostRecord(HOST, NOW, 1.0))
    assert [each.host for each in store.rows(HostRecord)] == [
        HOST,
        *(each.host for each in HOSTS[:3]),
    ]
    assert [each.key for each in store.rows(StoredDocument, "robots")] == ["https://a.test"]


def test_r3_a_blocklist_never_waits(store: SqliteStore, other: SqliteStore) -> None:
    store.put(kept_list())
    assert other.get(StoredDocument, "blocklist", BLOCKLIST_URL) == kept_list()
    store.put(kept_list(NOW + 1))
    assert other.get(StoredDocument, "blocklist", BLOCKLIST_URL) == kept_list(NOW + 1)


def test_r11_what_waits_is_written_at_the_end(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    store.let_wait(lambda: None)
    store.put(RUN)
    store.book_host(HostRecord(HOST, NOW, 1.0))
    store.close()
    store = SqliteStore(tmp_path)
    assert store.get(VisitRecord, RUN.url) == RUN
    assert store.get(HostRecord, HOST) == HostRecord(HOST, NOW, 1.0)
    store.close()


def test_a_full_disk_met_by_the_next_request_loses_nothing(
    tmp_path: Path, connections: list[sqlite3.Connection], store: SqliteStore
) -> None:
    store.put(HOSTS[0])
    store.flush()
    take_space(connections[0])
    big = kept_robots("https://h.test", 100_000)
    store.put(big)
    store.book_host(HostRecord(HOST, NOW, 1.0, NOW + 60.0))
    with pytest.raises(StateError, match="full"):
        store.reserve_host("b.test", 1.0, NOW)
    assert store.get(StoredDocument, "robots", big.key) == big
    assert store.get(HostRecord, HOST) == HostRecord(HOST, NOW, 1.0, NOW + 60)
    assert store.get(HostRecord, "b.test") == HostRecord("b.test", NOW, 1.0, under_way=1)
    store.put(RUN)  # refused again, and said no more
    assert store.reserve_host("b.test", 1.0, NOW + 0.1).wait > 0
    give_space(connections[0])
    store.put(RUN)
    sibling = SqliteStore(tmp_path)
    assert sibling.get(StoredDocument, "robots", big.key) == big
    assert sibling.get(HostRecord, HOST) == HostRecord(HOST, NOW, 1.0, NOW + 60)
    assert sibling.get(VisitRecord, RUN.url) == RUN
    sibling.close()


KILLED = """
import os, sys
from pathlib import Path
from scrapy_walsh.state.records import HostRecord
from scrapy_walsh.state.store import SqliteStore

store = SqliteStore(Path(sys.argv[1]))
store.let_wait(lambda: None)
store.reserve_host("a.test", 1.0, 1000.0)
store.book_host(HostRecord("a.test", 1002.0, 1.0))
os._exit(9)
"""


def test_r11_a_kill_leaves_the_booking_of_the_start(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    store = SqliteStore(tmp_path)
    assert store.get(HostRecord, "a.test") == HostRecord("a.test", 1000.0, 1.0, under_way=1)
    store.close()


def test_a_request_takes_few_transactions(
    connections: list[sqlite3.Connection], store: SqliteStore
) -> None:
    """A host's robots.txt and its target: a transaction each (D20).

    What one request leaves is written with the booking of the next.
    """
    statements: list[str] = []
    store.book_host(HostRecord("before.test", NOW, 1.0))
    store.put(replace(RUN, url="http://before.test/"))
    connections[0].set_trace_callback(statements.append)
    store.reserve_host(HOST, 1.0, NOW)
    store.book_host(HostRecord(HOST, NOW + 0.1, 1.0))
    store.put(kept_robots("http://a.test"))
    store.reserve_host(HOST, 0.0, NOW + 0.1)
    store.book_host(HostRecord(HOST, NOW + 0.2, 1.0))
    store.put(RUN)
    written = [each.split()[4] for each in statements if each.startswith("INSERT")]
    assert written == ["sources", "hosts", "hosts", "documents", "hosts"]
    assert statements.count("COMMIT") == 2
