"""One declaration of each record: what follows from it in SQLite, in the docs, and over the years.

What it means in a fleet is in ``tests/fleet/test_schema.py``.
"""

from __future__ import annotations

import math
import sqlite3
from contextlib import closing
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.adapters.wire.pacing import restore
from scrapy_walsh.config import WalshConfig
from scrapy_walsh.exceptions import ConfigError
from scrapy_walsh.policy.host import Host
from scrapy_walsh.policy.throttle import NOTHING, Learned, Until, Wall
from scrapy_walsh.policy.times import duration
from scrapy_walsh.policy.visits import REVISIT_FLOOR, REVISIT_LONGEST
from scrapy_walsh.state.records import (
    ATTEMPTS,
    HOSTS,
    SOURCES,
    TABLES,
    Attempts,
    DamageError,
    Deferral,
    HostRecord,
    Reading,
    SeenItem,
    Table,
    Validators,
    VisitRecord,
    moved,
)
from scrapy_walsh.state.store import SqliteStore
from tests.kit import change

if TYPE_CHECKING:
    from scrapy_walsh.state.store import Store

DAY = 86_400.0
NOW = 1_800_000_000.0
HOST = "h.test"
DOCS = Path(__file__).parents[2] / "docs"


def test_the_docs_say_how_long_each_record_is_kept() -> None:
    """C1, C16, C17: one table, from the declaration."""

    def row(table: Table[Any]) -> str:
        bound = [" + ".join(f"`{name}`" for name in each) for each in table.binds] or ["-"]
        kept = "for ever" if table.kept is None else duration(table.kept)
        shared = "yes" if table.shared else "no"
        return f"| `{table.name}` | {', '.join(bound)} | {kept} | {shared} |"

    text = (DOCS / "state.md").read_text()
    assert [row(table) for table in TABLES if row(table) not in text] == []


@pytest.mark.parametrize(
    "bound",
    [
        HostRecord(HOST, NOW - 430 * DAY, 40 * DAY),
        HostRecord(HOST, NOW - 430 * DAY, 1.0, NOW - 399 * DAY),
    ],
    ids=["Crawl-delay", "hold"],
)
def test_a_record_outlives_what_binds(tmp_path: Path, bound: HostRecord) -> None:
    """C3: what binds is counted from, and not the last use."""
    store = SqliteStore(tmp_path)
    gone = HostRecord("gone.test", NOW - 430 * DAY, 1.0)
    store.put(bound, gone, HostRecord("new.test", NOW, 1.0))
    store.prune(NOW)
    assert store.get(HostRecord, HOST) == bound
    assert store.get(HostRecord, gone.host) is None
    store.close()


def test_r8_no_interval_between_two_runs_outlives_the_record(tmp_path: Path) -> None:
    """C3: WALSH_REVISIT is a year at most, and a source is kept for longer."""
    assert SOURCES.kept is not None
    assert SOURCES.kept > REVISIT_LONGEST
    assert SOURCES.ends(VisitRecord("u", NOW, "200")) == NOW + SOURCES.kept
    yearly = VisitRecord("yearly", NOW - 700 * DAY, "200", revisit=365 * DAY)
    with closing(SqliteStore(tmp_path / "yearly")) as store:
        store.put(yearly, VisitRecord("daily", NOW - 700 * DAY, "200"))
        store.prune(NOW)
        assert list(store.rows(VisitRecord)) == [yearly]
    settings = {"WALSH_IDENTITY": "walsh-research", "WALSH_REVISIT": 366 * DAY}
    with pytest.raises(ConfigError, match=r"WALSH_REVISIT.*at most"):
        WalshConfig.from_settings(settings, lambda: str(tmp_path))


def test_attempts_are_kept_as_long_as_they_count() -> None:
    """C18."""
    assert ATTEMPTS.kept == REVISIT_FLOOR


def test_a_host_without_a_hold_has_none(store: Store) -> None:
    """C4, C6: ``last_end`` is the start of a request while it is under way, and then its end."""
    store.reserve_host(HOST, 1.0, NOW)
    assert store.get(HostRecord, HOST) == HostRecord(HOST, NOW, 1.0, under_way=1)
    store.book_host(HostRecord(HOST, NOW + 5, 1.0))
    assert store.get(HostRecord, HOST) == HostRecord(HOST, NOW + 5, 1.0)


def test_the_end_of_an_answer_leaves_the_other_fields(store: Store) -> None:
    """C2, C10: what a booking does not say stays."""
    held = HostRecord(HOST, NOW, 1.0, NOW + 60 * DAY, NOW - DAY, silent_since=NOW - 2 * DAY)
    store.put(held)
    store.book_host(HostRecord(HOST, NOW + 9, 2.0))
    assert store.get(HostRecord, HOST) == replace(held, last_end=NOW + 9, interval=2.0)
    store.update_host(HOST, lambda record: record and replace(record, silent_since=None))
    record = store.get(HostRecord, HOST)
    assert record is not None
    assert (record.not_before, record.silent_since) == (NOW + 60 * DAY, None)


@pytest.mark.parametrize("looks", ["restore", "reserve"])
def test_r5_a_hold_that_begins_in_the_future_begins_anew_once(store: Store, looks: str) -> None:
    """D9: the clock was a year ahead when a host asked for three days; looked at day by day."""
    ahead = NOW + 365 * DAY
    store.put(HostRecord(HOST, ahead, 1.0, ahead + 3 * DAY, visited_at=ahead))
    left = []
    for day in range(5):
        host, now = Host(HOST), NOW + day * DAY
        if looks == "restore":
            restore(host, store, 0.0, now)
            left.append(max(0.0, host.traffic.not_before))
        else:
            left.append(store.reserve_host(HOST, 1.0, now).wait)
    assert left == pytest.approx([3 * DAY, 2 * DAY, DAY, 0, 0], abs=2)
    record = store.get(HostRecord, HOST)
    assert record is not None
    assert record.last_end <= NOW + 4 * DAY
    assert record.visited_at == NOW


def test_r5_an_answer_does_not_bring_back_a_hold_of_the_future(store: Store) -> None:
    ahead = NOW + 365 * DAY
    store.put(HostRecord(HOST, ahead, 1.0, ahead + 900))
    store.book_host(HostRecord(HOST, NOW, 1.0, NOW + 60.0))
    record = store.get(HostRecord, HOST)
    assert record is not None
    assert record.not_before == NOW + 900


def test_a_target_ahead_of_the_crawl_delay_is_noted_at_its_end(store: Store) -> None:
    """C7."""
    store.reserve_host(HOST, 1.0, NOW)
    store.book_host(HostRecord(HOST, NOW + 7, 1.0, visited_at=NOW + 7))
    record = store.get(HostRecord, HOST)
    assert record is not None
    assert record.visited_at == record.last_end == NOW + 7


def test_of_two_paces_alike_the_later_one_stays(store: Store) -> None:
    """C9, C11: the store keeps it beside the host's own interval."""
    stored, mine = Learned(4.0, 0.0, 9, NOW), Learned(4.0, 0.0, 3, NOW - 60)
    store.put(HostRecord(HOST, NOW, 1.0, taught=stored))
    store.book_host(HostRecord(HOST, NOW + 9, 1.0, taught=mine))
    record = store.get(HostRecord, HOST)
    assert record is not None
    assert (record.interval, record.taught, record.spacing) == (1.0, stored, 4.0)


def test_what_a_host_has_taught_is_one_value(tmp_path: Path) -> None:
    """C8: its count is a count, and what is not known is not there."""
    store = SqliteStore(tmp_path)
    store.put(HostRecord(HOST, NOW, 1.0, taught=Learned(4.0, 5.5, 7, NOW)))
    store.put(HostRecord("b.test", NOW, 1.0))
    store.close()
    store = SqliteStore(tmp_path)
    found = [each.taught for each in store.rows(HostRecord)]
    store.close()
    kept = change(tmp_path, "SELECT taught FROM hosts")
    assert found == [NOTHING, Learned(4.0, 5.5, 7, NOW)]
    assert type(found[1].calm) is int
    assert kept[0] == (None,)


def test_a_host_has_no_field_that_nothing_writes() -> None:
    """C12: ``why`` is gone."""
    assert [each.name for each in fields(HostRecord)] == [
        "host", "last_end", "interval", "not_before", "visited_at", "taught", "silent_since",
        "under_way", "address", "refusal",
    ]  # fmt: skip


def test_text_that_cannot_be_kept_poisons_nothing(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    store.let_wait(lambda: None)
    for bad in (HostRecord("h\udc80", NOW, 1.0), HostRecord(HOST, math.nan, 1.0)):
        with pytest.raises(ValueError, match=r"not a number|surrogates"):
            store.put(bad)
    store.put(HostRecord(HOST, NOW, 1.0))
    store.close()
    store = SqliteStore(tmp_path)
    assert [each.host for each in store.rows(HostRecord)] == [HOST]
    store.close()


def test_the_key_of_a_table_comes_first() -> None:
    assert [table.name for table in TABLES if table.columns[: len(table.key)] != table.key] == []
    assert HOSTS.latest == "last_end"


@dataclass(frozen=True)
class Odd:
    """A record with a field of each kind."""

    name: str
    at: Wall
    until: Until | None = None
    count: int = 0
    body: bytes = b""
    taught: Learned = NOTHING


@pytest.mark.parametrize(
    "odd",
    [
        Odd("a", 1.5),
        Odd("é b", 0.1 + 0.2, math.inf, -3, b"\x00\xff", Learned(4.0, 5.5, 7, NOW)),
    ],
)
def test_a_field_is_declared_once(odd: Odd) -> None:
    """Its column, its member of a hash and its clock follow from the declaration."""
    table = Table("odds", Odd, ("name",), "at", (("at",),), DAY)
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(table.create)
        connection.execute(table.replace, table.encode(odd))
        (row,) = connection.execute(table.select, ("é b" if odd.count else "a",)).fetchall()
    found = {name.encode(): each for name, each in table.hash_of(odd).items()}
    coded = {
        name: each if isinstance(each, bytes) else each.encode() for name, each in found.items()
    }
    assert table.decode(row) == table.of_hash((odd.name,), coded) == odd
    assert b"name" not in coded
    there = moved(odd, {"Wall": lambda at: at + 60, "Until": lambda at: at - 60})
    assert (there.at, there.until) == (odd.at + 60, odd.until and odd.until - 60)
    assert there.taught == odd.taught


@pytest.mark.parametrize("value", ["soon", None, b"1"])
def test_a_value_of_another_type_is_no_record(value: Any) -> None:
    table = Table("odds", Odd, ("name",), "at", (("at",),), DAY)
    with pytest.raises(DamageError, match="odds: a row has a value of another type"):
        table.decode(("a", value, None, 0, b"", None))
    with pytest.raises(DamageError):
        table.decode(("a", 1.0, None, 0, b"", "{}x"))


@pytest.mark.parametrize("years", [0, 1, 5, 70])
def test_d9_a_clock_that_is_years_ahead_drops_nothing_that_binds(
    tmp_path: Path, years: int
) -> None:
    """The time of the last request bounds it: no clock that was wrong today is believed."""
    binding = [
        HostRecord(HOST, NOW, 1.0, NOW + DAY),
        HostRecord("before.test", NOW - 300 * DAY, 1.0, NOW - 290 * DAY),
        Deferral("http://h.test/late", HOST, NOW + DAY, "Retry-After"),
        VisitRecord("http://h.test/p", NOW - DAY, "200"),
        Attempts("http://h.test/q", 3, NOW - 60),
        SeenItem("http://h.test/i", NOW - DAY),
        Reading("http://h.test/p", NOW - DAY, NOW - DAY, 1),
        Validators("http://h.test/p", "*/*", '"v"', None, NOW - DAY, "text/xml"),
    ]
    expired = HostRecord("gone.test", NOW - 430 * DAY, 1.0)
    with closing(SqliteStore(tmp_path)) as store:
        for record in [*binding, expired]:
            store.put(record)
        store.prune(NOW + years * 365 * DAY)
        kept = [record for table in TABLES for record in store.rows(table.record)]
    assert {type(record) for record in kept} == {type(record) for record in binding}
    assert len(kept) == len(binding)
