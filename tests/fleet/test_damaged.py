"""What in Redis cannot be read: records count as lost then, whatever the kind of that one."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.exceptions import StoreAway
from scrapy_walsh.fleet.store import SharedStore
from scrapy_walsh.state.records import (
    BLOCKLIST,
    ROBOTS,
    SCHEMA,
    TABLE_OF,
    Deferral,
    HostRecord,
    Reading,
    StoredDocument,
    VisitRecord,
)
from scrapy_walsh.state.store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fleet.fleet import Server

HOST, URL, LIST = "h.test", "http://h.test/feed", "http://o.test/list"


def worker(server: Server) -> SharedStore:
    return SharedStore(MemoryStore(), server.url, "ExampleBot")


def document(kind: str, key: str) -> StoredDocument:
    return StoredDocument(kind, key, f"{key}/file", b"text", time.time() - 10, 200, "held")


def records() -> dict[str, Any]:
    now = time.time()
    return {
        "blocklist": document(BLOCKLIST, LIST),
        "robots.txt": document(ROBOTS, "http://h.test"),
        "schema": document(SCHEMA, LIST),
        "host": HostRecord(HOST, now - 60, 1.0, not_before=now + 600),
        "source": VisitRecord(URL, now - 60, "200"),
        "deferral": Deferral(URL, HOST, now + 600, "why"),
        "reading": Reading(URL, now - 600, now - 60, 1, ""),
    }


def other_value(server: Server, name: str) -> None:
    for field in server.client.hkeys(name):
        server.client.hset(name, field, b"\xff{")


def other_type(server: Server, name: str) -> None:
    server.client.delete(name)
    server.client.lpush(name, "not a record")


def gone(server: Server, name: str) -> None:
    server.client.delete(name)


DAMAGE: dict[str, Callable[[Server, str], None]] = {
    "other value": other_value,
    "other type": other_type,
    "gone": gone,
}


def shared(server: Server, record: Any) -> tuple[SharedStore, str]:
    one = worker(server)
    one.put(record)
    table = TABLE_OF[type(record)]
    return one, one.key(table, *table.key_of(record))


def found_by(store: SharedStore, record: Any) -> Any:
    return store.get(type(record), *TABLE_OF[type(record)].key_of(record))


def meets(store: SharedStore, server: Server, record: Any) -> None:
    """*store* reads *record*, and goes on once the time is over for which all hosts are left."""
    with suppress(StoreAway):
        found_by(store, record)
    over(server)
    assert store.tend() == 1


def over(server: Server) -> None:
    """As if the time for which all hosts are left alone were over."""
    server.client.hset("walsh:{examplebot}:epoch", "calm", 0)


@pytest.mark.parametrize("damage", DAMAGE)
def test_r3_a_list_that_was_adopted_and_cannot_be_read_is_not_known(
    server: Server, damage: str
) -> None:
    """D14: the record without text defers everything; None would let everything pass."""
    record = records()["blocklist"]
    one, name = shared(server, record)
    DAMAGE[damage](server, name)
    new = worker(server)
    meets(new, server, record)
    found = found_by(new, record)
    assert found is not None
    assert not found.body
    one.tend()
    assert found_by(one, record).body == b"text"  # whose copy is the one that was adopted last
    assert found_by(new, record).body == b"text"  # it is shared again


@pytest.mark.parametrize("damage", DAMAGE)
def test_r3_an_older_copy_is_not_gone_by_where_a_later_list_is_lost(
    server: Server, damage: str
) -> None:
    """The later one may name more domains."""
    record = records()["blocklist"]
    copy = MemoryStore()
    copy.put(StoredDocument(BLOCKLIST, LIST, LIST, b"old", time.time() - 500, 200, "held"))
    old = SharedStore(copy, server.url, "ExampleBot")
    _, name = shared(server, record)
    DAMAGE[damage](server, name)
    meets(old, server, record)
    assert not found_by(old, record).body
    old.put(found_by(old, record) or record)  # what is older does not take its place either
    assert not found_by(worker(server), record).body


LIFTS = "walsh:{examplebot}:lifted"
#: By name, what is in the place of a note that a hold was lifted, and a command that removes it.
LIFT_DAMAGE: dict[str, tuple[Callable[[Server], object], str]] = {
    "no JSON": (lambda server: server.client.hset(LIFTS, HOST, b"\xff{"), f"HDEL {LIFTS} {HOST}"),
    "no text": (lambda server: server.client.hset(LIFTS, HOST, b'["\xff", 1.0]'), "HDEL"),
    "another shape": (lambda server: server.client.hset(LIFTS, HOST, b'["why"]'), "HDEL"),
    "no host": (lambda server: server.client.hset(LIFTS, b"\xff\xfe", b'["why", 1.0]'), ""),
    "another type": (lambda server: server.client.lpush(LIFTS, "x"), f"DEL {LIFTS}"),
}


@pytest.mark.parametrize("damage", LIFT_DAMAGE)
def test_d40_a_damaged_note_that_a_hold_was_lifted_stops_no_worker(
    server: Server, damage: str
) -> None:
    """The hold stays, since nothing says that it was lifted; a line says how to go on."""
    do, command = LIFT_DAMAGE[damage]
    do(server)
    one, copy = worker(server), HostRecord(HOST, time.time() - 60, 1.0, time.time() + 600)
    one.put(copy)
    assert list(one.lifted_elsewhere()) == []
    assert [command in each for each in one.notices] == ([True] if command else [])
    assert all(LIFTS in each and "\n" not in each for each in one.notices)
    held = one.get(HostRecord, HOST)
    assert held is not None
    assert held.not_before
    assert one.reserve_host("other.test", 1.0, time.time()).wait == 0  # the worker goes on
    if command.startswith("DEL"):
        server.client.delete(LIFTS)
    one.lift(HOST, "a mistake")  # as ``state forget HOST --hold`` does
    one.notices.clear()
    assert list(one.lifted_elsewhere()) == [(HOST, "a mistake")]
    assert one.notices == []


@pytest.mark.parametrize("held", [None, b"old"])
def test_r3_a_list_that_another_worker_adopts_while_one_asks_is_known(
    server: Server, monkeypatch: pytest.MonkeyPatch, held: bytes | None
) -> None:
    """The list is there, so a start beside other workers does not count as a lost list."""
    record, copy = records()["blocklist"], MemoryStore()
    if held is not None:
        copy.put(StoredDocument(BLOCKLIST, LIST, LIST, held, time.time() - 500, 200, "held"))
    one, exchange = SharedStore(copy, server.url, "ExampleBot"), SharedStore.exchange
    found_by(one, records()["source"])  # connected

    def beside(self: SharedStore, *question: Any) -> Any:
        if self is one and question and question[0][0] == "HGET" and record not in adopted:
            adopted.append(record)
            worker(server).put(record)
        return exchange(self, *question)

    adopted: list[Any] = []
    monkeypatch.setattr(SharedStore, "exchange", beside)
    assert found_by(one, record).body == b"text"
    assert adopted


def test_r3_a_list_is_not_known_while_redis_is_away(server: Server) -> None:
    record = records()["blocklist"]
    one, _ = shared(server, record)
    server.kill()
    for each in (one, worker(server)):
        with pytest.raises(StoreAway):
            found_by(each, record)


@pytest.mark.parametrize("kind", [each for each in records() if each != "blocklist"])
@pytest.mark.parametrize("damage", ["other value", "other type"])
def test_one_record_that_cannot_be_read_is_set_aside_with_a_line(
    server: Server, kind: str, damage: str
) -> None:
    record = records()[kind]
    one, name = shared(server, record)
    other = worker(server)
    assert other.tend() == 1
    DAMAGE[damage](server, name)
    assert found_by(other, record) is None
    assert [name in each and "is set aside" in each for each in other.notices] == [True]
    assert server.client.exists(name.replace("}:", "}:aside:"))
    for each in (one, other):  # nothing is sent until all have written back what they know
        with pytest.raises(StoreAway):
            each.reserve_host("another.test", 1.0, time.time())
        assert each.tend() > 3
    over(server)
    for each in (one, other):
        assert each.tend() == 1
    assert 0 < other.reserve_host("another.test", 60.0, time.time()).wait <= 60
    if kind in ("host", "source", "deferral", "reading"):
        assert found_by(worker(server), record) is not None  # of which somebody has a copy


@pytest.mark.parametrize("damage", ["other value", "other type"])
def test_r4_a_host_whose_record_cannot_be_read_counts_as_just_requested(
    server: Server, damage: str
) -> None:
    _, name = shared(server, records()["host"])
    one, other = worker(server), worker(server)
    assert (one.tend(), other.tend()) == (1, 1)
    DAMAGE[damage](server, name)
    with pytest.raises(StoreAway):
        one.reserve_host(HOST, 60.0, time.time())
    assert len(one.notices) == 1
    over(server)
    for each in (one, other):
        assert each.tend() == 1
        booking = each.reserve_host(HOST, 60.0, time.time())
        assert booking.wait > 50
        assert booking.known


@pytest.mark.parametrize("kind", ["host", "source"])
def test_what_is_gone_from_redis_is_known_from_the_copy(server: Server, kind: str) -> None:
    record = records()[kind]
    one, name = shared(server, record)
    gone(server, name)
    assert found_by(one, record) == record


@pytest.mark.parametrize("kind", ["blocklist", "source"])
def test_what_this_user_may_not_read_sends_nothing(server: Server, kind: str) -> None:
    record = records()[kind]
    shared(server, record)
    server.client.execute_command(
        *("ACL", "SETUSER", "few", "on", ">word", "+@all", "resetkeys"),
        *(f"~walsh:{{examplebot}}:{each}*" for each in ("epoch", "queue", "x")),
    )
    few = SharedStore(MemoryStore(), server.url.replace("//", "//few:word@"), "ExampleBot")
    assert few.link.begin() is not None
    if kind == "blocklist":
        with pytest.raises(StoreAway):
            found_by(few, record)
    else:
        assert found_by(few, record) is None
    with pytest.raises(StoreAway, match="permission"):  # nothing is sent from now on
        few.reserve_host(HOST, 1.0, time.time())


def test_a_view_sets_nothing_aside(server: Server) -> None:
    record = records()["source"]
    _, name = shared(server, record)
    other_type(server, name)
    seen = SharedStore(MemoryStore(), server.url, "ExampleBot", writes=False)
    assert found_by(seen, record) is None
    assert server.client.exists(name)
    assert len(seen.notices) == 1
