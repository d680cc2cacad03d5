"""What every store does with its records, in memory and in SQLite alike."""

from __future__ import annotations

import math
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.policy.throttle import Learned
from scrapy_walsh.state import open_store
from scrapy_walsh.state.database import VERSION
from scrapy_walsh.state.records import (
    TABLE_OF,
    TABLES,
    Attempts,
    Deferral,
    HostRecord,
    SeenItem,
    StoredDocument,
    Validators,
    VisitRecord,
)
from scrapy_walsh.state.store import MemoryStore, SqliteStore

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

    from scrapy_walsh.state.store import Store

NOW = 1_700_000_000.125
URL = "https://h.test/a?b=1"


def document(kind: str = "robots", key: str = "https://h.test", **other: Any) -> StoredDocument:
    values = {"url": f"{key}/robots.txt", "body": b"User-agent: *\n", "fetched_at": NOW}
    return StoredDocument(kind, key, **{**values, "status": 200, "outcome": "ok", **other})


# a name, a record, another value under the same key
RECORDS = [
    ("document", document(), document(body=b"\x00\xff\r\n", etag='W/"1"', refresh=21600.0)),
    (
        "validators",
        Validators(URL, "feed", '"1"', None, NOW),
        Validators(URL, "feed", None, "x", 2.0),
    ),
    ("source", VisitRecord(URL, NOW, "304"), VisitRecord(URL, NOW, "200", "a release is out")),
    (
        "host",
        HostRecord("h.test:81", NOW, 2.5),
        HostRecord("h.test:81", 1.0, 1.0, NOW + 7200, taught=Learned(4.0, 5.5, 7, NOW)),
    ),
    ("deferral", Deferral(URL, "h.test", NOW, "Crawl-delay"), Deferral(URL, "h.test", 3.0, "503")),
    ("attempts", Attempts(URL, 1, NOW), Attempts(URL, 2, NOW + 1)),
]


def key_of(record: Any) -> tuple[str, ...]:
    return TABLE_OF[type(record)].key_of(record)


@pytest.mark.parametrize(
    ("first", "second"), [row[1:] for row in RECORDS], ids=[row[0] for row in RECORDS]
)
def test_r11_record_is_kept_replaced_and_deleted(store: Store, first: Any, second: Any) -> None:
    key = key_of(first)
    get, put, delete = (
        partial(store.get, type(first)),
        store.put,
        partial(store.delete, type(first)),
    )
    assert get(*key) is None
    put(first)
    assert get(*key) == first
    put(second)
    assert get(*key) == second
    delete(*key)
    assert get(*key) is None
    delete(*key)


@pytest.mark.parametrize("record", [row[2] for row in RECORDS], ids=[row[0] for row in RECORDS])
def test_r11_record_outlives_the_process_with_its_types(tmp_path: Path, record: Any) -> None:
    store = SqliteStore(tmp_path)
    store.put(record)
    store.close()
    store = SqliteStore(tmp_path)
    found = store.get(type(record), *key_of(record))
    store.close()
    assert found == record
    for field in fields(record):
        assert type(getattr(found, field.name)) is type(getattr(record, field.name))


@pytest.mark.parametrize("kind", ["page", "", "Robots", "llms.txt"])
def test_d10_no_other_body_is_kept(kind: str) -> None:
    with pytest.raises(ValueError, match="no body of kind"):
        document(kind)


def test_d10_only_documents_have_a_body() -> None:
    with_bytes = [table.name for table in TABLES if "body" in table.columns]
    assert with_bytes == ["documents"]


def test_t20_validators_of_representations_and_spiders_are_apart(store: Store) -> None:
    store.put(Validators(URL, "markdown", '"m"', None, NOW))
    store.put(Validators(URL, "markdown", '"another"', None, NOW, spider="another"))
    store.put(Validators(URL, "html", '"h"', None, NOW))
    store.put(Validators(URL + "/", "html", '"slash"', None, NOW))
    found = [store.get(Validators, URL, name, "") for name in ("markdown", "html", "feed")]
    assert [each and each.etag for each in found] == ['"m"', '"h"', None]


def test_r11_documents_are_listed_by_kind(store: Store) -> None:
    for number in range(25):
        store.put(document(key=f"https://h{number:02}.test"))
    store.put(document("schema", "https://o.test/s"))
    store.put(document("blocklist", "https://o.test/b"))
    assert [found.key for found in store.rows(StoredDocument, "schema")] == ["https://o.test/s"]
    assert [found.key for found in store.rows(StoredDocument, "blocklist")] == ["https://o.test/b"]
    assert [found.key for found in store.rows(StoredDocument, "robots")] == [
        f"https://h{number:02}.test" for number in range(25)
    ]


def test_r11_listings_are_in_key_order_beyond_one_page(store: Store) -> None:
    names = [f"h{number:04}.test" for number in range(1203)]
    for name in reversed(names):
        store.put(HostRecord(name, NOW, 1.0))
    assert [record.host for record in store.rows(HostRecord)] == names
    store.put(VisitRecord(URL, NOW, "200"))
    assert list(store.rows(VisitRecord)) == [VisitRecord(URL, NOW, "200")]
    store.put(Deferral(URL, "h.test", NOW, "429"))
    assert list(store.rows(Deferral)) == [Deferral(URL, "h.test", NOW, "429")]


def test_r11_listing_bears_writes_between_its_steps(store: Store) -> None:
    for number in range(600):
        store.put(Deferral(f"https://h.test/{number:03}", "h.test", NOW, "429"))
    for deferral in store.rows(Deferral):
        store.delete(Deferral, deferral.url)
    assert list(store.rows(Deferral)) == []


def test_r7_seen_items(store: Store) -> None:
    store.put()
    store.put(SeenItem("https://a.test/1", NOW), SeenItem("https://a.test/2", NOW))
    store.put(SeenItem("https://a.test/2", NOW + 1), SeenItem("https://a.test/3", NOW + 1))
    urls = [f"https://a.test/{number}" for number in range(5)]
    seen = [store.get(SeenItem, url) is not None for url in urls]
    assert seen == [False, True, True, True, False]


def test_odd_text_and_times_come_back_as_they_were(tmp_path: Path) -> None:
    odd = ["é\u200f", "a\x00b", "'; DROP TABLE hosts --", "\U0001f600", "\\u0041", " "]
    store = SqliteStore(tmp_path)
    for text in odd:
        store.put(HostRecord(text, 0.1 + 0.2, 1e-300, math.inf))
    store.close()
    store = SqliteStore(tmp_path)
    assert [store.get(HostRecord, text) for text in odd] == [
        HostRecord(text, 0.1 + 0.2, 1e-300, math.inf) for text in odd
    ]
    assert {record.host for record in store.rows(HostRecord)} == set(odd)
    store.close()


@pytest.mark.parametrize(
    "record", [HostRecord("h", math.nan, 1.0), HostRecord("h\udc80", 1.0, 1.0)]
)
def test_value_that_cannot_be_kept_is_the_callers_fault(tmp_path: Path, record: Any) -> None:
    store = SqliteStore(tmp_path)
    with pytest.raises(ValueError, match=r"not a number|surrogates"):
        store.put(record)
    assert store.notices == []
    assert list(store.rows(HostRecord)) == []
    store.close()


def test_open_store(tmp_path: Path) -> None:
    assert isinstance(open_store(None), MemoryStore)
    store = open_store(tmp_path / "a" / "b")
    assert isinstance(store, SqliteStore)
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    assert not store.rows_lost
    store.close()


def test_schema_has_every_field_of_every_record(
    tmp_path: Path, connections: list[sqlite3.Connection]
) -> None:
    store = SqliteStore(tmp_path)
    (connection,) = connections
    for table in TABLES:
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table.name})")]
        assert sorted(columns) == sorted(table.columns)
        assert table.columns[: len(table.key)] == table.key
    assert connection.execute("PRAGMA user_version").fetchone() == (VERSION,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    store.close()
