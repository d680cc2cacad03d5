"""The shared store against a real Redis: workers with clocks of their own, an outage, a loss."""

from __future__ import annotations

import gc
import math
import time
import weakref
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.adapters.wire.pacing import restore
from scrapy_walsh.exceptions import StateError, StoreAway
from scrapy_walsh.fleet.store import _AHEAD, SharedStore
from scrapy_walsh.policy.host import Host
from scrapy_walsh.policy.throttle import Learned
from scrapy_walsh.state import open_store
from scrapy_walsh.state.records import (
    BLOCKLIST,
    HOSTS,
    ROBOTS,
    Deferral,
    HostRecord,
    Reading,
    StoredDocument,
    VisitRecord,
)
from scrapy_walsh.state.store import MemoryStore, SqliteStore

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fleet.fleet import Server

HOUR = 3600.0
HOST = "h.test"


class Worker(SharedStore):
    """A worker whose wall clock is *skew* seconds ahead."""

    def __init__(self, server: Server, skew: float = 0.0, bot: str = "ExampleBot") -> None:
        super().__init__(MemoryStore(), server.url, bot, wall=self.wall)
        self.skew = skew

    def wall(self) -> float:
        return time.time() + self.skew


worker = Worker


def reserve(store: SharedStore | SqliteStore, interval: float = 1.0, host: str = HOST) -> float:
    return store.reserve_host(host, interval, time.time()).wait


def document(kind: str = ROBOTS, key: str = "http://h.test", body: bytes = b"x") -> StoredDocument:
    return StoredDocument(kind, key, f"{key}/file", body, time.time() - 10, 200, "held")


# -- pacing ---------------------------------------------------------------------------------


@pytest.mark.parametrize("skew", [0.0, -HOUR, HOUR])
def test_r4_6_two_workers_keep_the_spacing_whatever_their_clocks(
    server: Server, skew: float
) -> None:
    one, other = worker(server), worker(server, skew)
    assert reserve(one, 60.0) == 0
    assert 50.0 < reserve(other, 60.0) <= 60.0
    one.book_host(HostRecord(HOST, time.time(), 60.0))
    assert 50.0 < reserve(other, 60.0) <= 60.0


def test_r4_6_a_booking_is_granted_once_the_interval_is_over(server: Server) -> None:
    one, other = worker(server), worker(server)
    assert reserve(one, 0.2) == 0
    time.sleep(0.21)
    assert reserve(other, 0.2) == 0
    assert reserve(one, 60.0) > 50.0


def test_r4_6_the_longer_of_two_workers_intervals_counts(server: Server) -> None:
    one, other = worker(server), worker(server)
    assert reserve(one, 60.0) == 0
    assert 50.0 < reserve(other, 1.0) <= 60.0


def test_r4_6_a_worker_keeps_its_own_spacing_itself(server: Server) -> None:
    one = worker(server)
    assert [reserve(one), reserve(one)] == [0, 0]


def test_the_end_of_a_long_answer_does_not_hide_who_asked_meanwhile(server: Server) -> None:
    one, other = worker(server), worker(server)
    assert reserve(one, 0.05) == 0
    time.sleep(0.06)
    assert reserve(other, 0.05) == 0
    one.book_host(HostRecord(HOST, time.time(), 60.0))
    assert reserve(one, 60.0) > 50.0
    assert reserve(other, 60.0) > 50.0


def test_only_a_request_under_way_may_reach_the_server_later(server: Server) -> None:
    one, other = worker(server), worker(server)

    def due_after() -> float:
        """Seconds from the last request on record until a worker that is new here has it due."""
        record, host = other.get(HostRecord, HOST), Host(HOST)
        assert record is not None
        restore(host, other, 1000.0, record.last_end + 0.5)
        return round(host.traffic.due - 999.5, 3)

    assert reserve(one, 0.05) == 0
    assert due_after() == 1.25
    one.book_host(HostRecord(HOST, time.time(), 0.05))
    time.sleep(_AHEAD)
    assert due_after() == 1.0
    assert reserve(other, 0.05) == 0
    # The end of an answer while another is under way.
    one.book_host(HostRecord(HOST, time.time(), 0.05))
    assert due_after() == 1.25


def test_a_booking_drops_a_hold_that_has_ended(server: Server, tmp_path: Path) -> None:
    for store in (worker(server), SqliteStore(tmp_path)):
        assert reserve(store) == 0
        store.book_host(HostRecord(HOST, time.time(), 1.0, time.time() + 0.02))
        time.sleep(0.03)
        assert reserve(store) == 0
        record = store.get(HostRecord, HOST)
        assert record is not None
        assert record.not_before is None
        store.close()


def test_the_end_of_a_long_answer_does_not_hide_it_in_a_local_store_either(
    tmp_path: Path,
) -> None:
    one, other = SqliteStore(tmp_path), SqliteStore(tmp_path)
    assert one.reserve_host(HOST, 1.0, 100.0)[:3] == (0, False, math.inf)
    assert other.reserve_host(HOST, 1.0, 101.5)[:3] == (0, True, 1.5)
    one.book_host(HostRecord(HOST, 102.0, 1.0))
    assert one.reserve_host(HOST, 1.0, 102.1).wait == pytest.approx(0.9)
    one.close()
    other.close()


@pytest.mark.parametrize("skew", [0.0, -HOUR, HOUR])
def test_r5_a_hold_met_by_one_holds_for_the_others(server: Server, skew: float) -> None:
    one, other, now = worker(server), worker(server, skew), time.time()
    assert reserve(one) == 0
    one.book_host(HostRecord(HOST, now, 1.0, now + 7200.0))
    assert 7190 < reserve(other) <= 7200
    record = other.get(HostRecord, HOST)
    assert record is not None
    assert record.not_before == pytest.approx(time.time() + 7200, abs=1)
    other.book_host(HostRecord(HOST, time.time(), 1.0))
    assert reserve(one) > 7190


def test_a_host_is_known_once_anybody_asked_it(server: Server) -> None:
    one, other = worker(server), worker(server)
    assert one.reserve_host(HOST, 1.0, 0.0).known is False
    assert other.reserve_host(HOST, 1.0, 0.0).known is True


def test_operators_share_a_redis_without_sharing_their_pace(server: Server) -> None:
    assert reserve(worker(server)) == 0
    assert reserve(worker(server, bot="OtherBot")) == 0


def test_what_is_kept_in_redis_is_readable_and_goes_away(server: Server) -> None:
    one = worker(server)
    reserve(one)
    one.put(VisitRecord("http://h.test/", time.time(), "200"))
    one.put(Deferral("http://h.test/", HOST, time.time() + 60, "why"))
    one.put(document())
    keys = {key.decode() for key in server.client.scan_iter()}
    kinds = {key.removeprefix("walsh:{examplebot}:").partition(":")[0] for key in keys}
    assert kinds == {"epoch", "host", "source", "deferral", "document"}
    kept = [key for key in keys if "document" not in key and "epoch" not in key]
    assert all(0 < server.client.ttl(key) < 401 * 86400 for key in kept)


# -- documents and records --------------------------------------------------------------------


def stores(server: Server) -> tuple[Worker, Worker]:
    return worker(server, -HOUR), worker(server, HOUR)


def test_r11_a_robots_txt_fetched_by_one_is_held_by_all_at_its_age(server: Server) -> None:
    one, other = stores(server)
    held = document(body=b"User-agent: *\n\xff")
    one.put(StoredDocument(**{**_fields(held), "fetched_at": one.wall() - 10}))
    found = other.get(StoredDocument, ROBOTS, "http://h.test")
    assert found is not None
    assert (found.body, found.status, found.outcome) == (held.body, 200, "held")
    assert other.wall() - found.fetched_at == pytest.approx(10, abs=1)


def test_d9_a_hold_that_begins_in_the_future_begins_anew(server: Server) -> None:
    """The clock of Redis's machine was put back by a day, in a hold of a minute."""
    day, name = 86400.0, f"walsh:{{examplebot}}:host:{HOST}"
    one, other, now = worker(server), worker(server), time.time()
    reserve(one)
    one.book_host(HostRecord(HOST, now, 1.0, now + 60.0))
    for field in ("last_end", "not_before"):
        server.client.hset(name, field, float(server.client.hget(name, field) or 0) + day)
    assert 59 < reserve(other) <= 60
    time.sleep(1.0)
    assert 58 < reserve(other) <= 59.1, "once, and not at each look"
    record = one.get(HostRecord, HOST)
    assert record is not None
    assert record.not_before is not None
    assert record.not_before - time.time() < 61


def test_r11_an_answer_just_brought_is_not_of_the_future(server: Server) -> None:
    one, other = worker(server), worker(server)
    for number in range(50):
        key = f"http://h{number}.test"
        one.put(StoredDocument(ROBOTS, key, key, b"", time.time(), 200, "held"))
        found = other.get(StoredDocument, ROBOTS, key)
        assert found is not None
        assert found.fetched_at <= time.time()


def test_r3_an_older_blocklist_never_replaces_a_later_one(server: Server) -> None:
    one, other = worker(server), worker(server)
    key = "http://o.test/list"
    later = StoredDocument(BLOCKLIST, key, key, b"later", time.time() - 5, 200, "held")
    older = StoredDocument(BLOCKLIST, key, key, b"older", time.time() - 50, 200, "held")
    one.put(later)
    other.put(older)
    for each in (one, worker(server), other):
        found = each.get(StoredDocument, BLOCKLIST, key)
        assert found is not None
        assert found.body == b"later"


def test_r3_a_damaged_blocklist_is_not_taken_up(server: Server) -> None:
    one, other = worker(server), worker(server)
    key = "http://o.test/list"
    one.put(document(BLOCKLIST, key, b"[all of it]"))
    server.client.hset(f"walsh:{{examplebot}}:document:{BLOCKLIST} {key}", "body", b"[]")
    with pytest.raises(StoreAway):
        other.get(StoredDocument, BLOCKLIST, key)
    over(server)
    assert other.tend() == 1
    found = other.get(StoredDocument, BLOCKLIST, key)
    assert found is not None
    assert not found.body  # adopted, and not known
    one.tend()  # it writes back what it knows
    found = other.get(StoredDocument, BLOCKLIST, key)
    assert found is not None
    assert found.body == b"[all of it]"


def test_r3_a_shared_blocklist_is_kept_twice_on_each_machine(
    server: Server, tmp_path: Path
) -> None:
    key = "http://o.test/list"
    worker(server).put(document(BLOCKLIST, key, b"list"))
    here = SharedStore(open_store(tmp_path), server.url, "ExampleBot")
    assert here.get(StoredDocument, BLOCKLIST, key) is not None
    here.close()
    assert (tmp_path / "blocklist.json").exists()
    alone = open_store(tmp_path)
    found = alone.get(StoredDocument, BLOCKLIST, key)
    alone.close()
    assert found is not None
    assert found.body == b"list"


def test_r8_a_source_asked_by_one_was_asked_for_all(server: Server) -> None:
    one, other = stores(server)
    one.put(VisitRecord("http://h.test/", one.wall() - 60, "200", "why"))
    found = other.get(VisitRecord, "http://h.test/")
    assert found is not None
    assert (found.outcome, found.reason) == ("200", "why")
    assert other.wall() - found.last_run_at == pytest.approx(60, abs=1)


def test_a_source_read_by_one_was_read_for_all(server: Server) -> None:
    one, other = stores(server)
    now = one.wall()
    one.put(Reading("http://h.test/", now - 7200, now - 60, 1, "HTTP 403"))
    found = other.get(Reading, "http://h.test/")
    assert found is not None
    assert (found.read, found.reason, found.moved_to) == (1, "HTTP 403", None)
    assert other.wall() - found.since == pytest.approx(7200, abs=1)
    assert other.wall() - found.declared_at == pytest.approx(60, abs=1)


def test_d8_a_deferral_is_shared_and_dropped_together(server: Server) -> None:
    one, other = stores(server)
    one.put(Deferral("http://h.test/", HOST, one.wall() + 7200, "Retry-After"))
    found = other.get(Deferral, "http://h.test/")
    assert found is not None
    assert found.due == pytest.approx(other.wall() + 7200, abs=1)
    assert [each.url for each in other.rows(Deferral)] == ["http://h.test/"]
    other.delete(Deferral, "http://h.test/")
    assert one.get(Deferral, "http://h.test/") is None


def test_a_host_can_be_forgotten_and_exchanged(server: Server) -> None:
    one, other = worker(server), worker(server)
    reserve(one)
    other.delete(HostRecord, HOST)
    assert one.reserve_host(HOST, 1.0, 0.0).known is False
    seen = []
    other.update_host(HOST, seen.append)
    assert seen[0] is not None
    assert [record.host for record in other.rows(HostRecord)] == [HOST]


# -- what waits (D20) --------------------------------------------------------------------------


def patient(server: Server) -> tuple[Worker, list[bool]]:
    """A worker that lets its writes wait, and the times that it has said so."""
    told: list[bool] = []
    one = worker(server)
    one.tend()
    one.let_wait(lambda: told.append(True))
    return one, told


RUN = VisitRecord("http://h.test/", 1_000_000.0, "200")


def test_d20_what_follows_from_an_answer_goes_with_the_next_booking(server: Server) -> None:
    one, told = patient(server)
    assert reserve(one) == 0
    one.book_host(HostRecord(HOST, time.time(), 60.0))
    one.put(RUN)
    assert told
    assert server.client.hget(one.key(HOSTS, HOST), "interval") == b"1.0"
    assert not list(server.client.scan_iter("*source*"))  # what a kill may lose
    assert reserve(one, host="other.test") == 0
    assert reserve(worker(server)) > 50
    assert worker(server).get(VisitRecord, RUN.url) is not None


def test_d20_a_booking_sees_what_waited(server: Server) -> None:
    one, _ = patient(server)
    one.book_host(HostRecord(HOST, time.time(), 1.0, time.time() + 7200.0))
    assert reserve(one) > 7190


def test_d20_what_waits_is_read_back(server: Server) -> None:
    one, _ = patient(server)
    one.put(Deferral("http://h.test/", HOST, time.time() + 60, "why"))
    assert one.get(Deferral, "http://h.test/") is not None
    one.delete(Deferral, "http://h.test/")
    assert one.get(Deferral, "http://h.test/") is None
    one.put(Deferral("http://h.test/", HOST, time.time() + 60, "why"))
    assert len(list(one.rows(Deferral))) == 1


def test_d20_a_flush_writes_what_waits(server: Server) -> None:
    one, _ = patient(server)
    one.put(RUN)
    assert worker(server).get(VisitRecord, RUN.url) is None
    one.flush()
    assert worker(server).get(VisitRecord, RUN.url) is not None


def test_d20_a_store_that_is_closed_has_written_what_waited(server: Server) -> None:
    one, _ = patient(server)
    one.put(RUN)
    one.close()
    assert worker(server).get(VisitRecord, RUN.url) is not None


def test_d20_a_blocklist_does_not_wait(server: Server) -> None:
    one, _ = patient(server)
    one.put(document(BLOCKLIST, "http://o.test/list", b"list"))
    assert worker(server).get(StoredDocument, BLOCKLIST, "http://o.test/list") is not None


def test_what_is_no_record_is_set_aside_and_the_rest_is_written(server: Server) -> None:
    one, _ = patient(server)
    server.client.lpush(one.key(HOSTS, HOST), "not a record")
    one.book_host(HostRecord(HOST, time.time(), 60.0))
    one.put(RUN)
    with pytest.raises(StoreAway):  # records count as lost: all hosts are left alone
        reserve(one, host="other.test")
    assert one.tend() > 3
    over(server)
    assert one.tend() == 1
    assert 0 < reserve(one, 60.0, "other.test") <= 60.0  # all count as just requested
    assert worker(server).get(VisitRecord, RUN.url) is not None
    assert reserve(worker(server)) > 50


def test_a_booking_is_as_good_as_a_look_at_redis(server: Server) -> None:
    one, _ = patient(server)
    assert reserve(one) == 0
    assert 0 < one.beat() < 1
    server.client.flushall()
    with pytest.raises(StoreAway):
        reserve(one, host="other.test")
    assert one.beat() > 3  # it looks at once, and has found that its records are lost


def test_what_waits_when_redis_goes_away_is_told_when_it_is_back(server: Server) -> None:
    one, _ = patient(server)
    one.book_host(HostRecord(HOST, time.time(), 60.0))
    one.put(RUN)
    server.kill()
    with pytest.raises(StoreAway):
        reserve(one, host="other.test")
    server.start()
    assert one.tend() > 1  # it has forgotten
    assert reserve_calmly(server) > 50
    assert worker(server).get(VisitRecord, RUN.url) is not None


def over(server: Server) -> None:
    """As if the time for which all hosts are left alone were over."""
    server.client.hset("walsh:{examplebot}:epoch", "calm", 0)


def reserve_calmly(server: Server) -> float:
    over(server)
    return reserve(worker(server))


def test_a_redis_that_knows_no_scripts_any_more_is_told_them(server: Server) -> None:
    one, _ = patient(server)
    assert reserve(one) == 0
    server.client.script_flush()
    one.book_host(HostRecord(HOST, time.time(), 1.0, time.time() + 7200.0))
    one.put(RUN)
    with pytest.raises(StoreAway):
        reserve(one)
    assert one.tend() == 1  # it was the same Redis, and lost no record
    assert reserve(one) > 7190
    assert (one._unbooked, one._unsent) == ({}, {})


# -- an outage --------------------------------------------------------------------------------


def test_nothing_is_booked_while_redis_is_away(server: Server) -> None:
    one = worker(server)
    assert reserve(one) == 0
    server.kill()
    for _ in range(3):
        with pytest.raises(StoreAway, match=r"127\.0\.0\.1:\d+/0 cannot be relied on"):
            reserve(one, host="other.test")
    assert issubclass(StoreAway, StateError)


def test_without_redis_at_the_start_nothing_is_booked(server: Server) -> None:
    server.kill()
    with pytest.raises(StoreAway):
        reserve(worker(server))


def test_a_redis_that_is_away_is_looked_at_each_five_seconds(server: Server) -> None:
    one = worker(server)
    assert one.tend() == 1
    server.kill()
    assert [one.tend() for _ in range(2)] == [5, 5]
    server.start()
    assert one.tend() > 1  # it has forgotten


def test_reads_are_answered_from_here_and_writes_are_told_later(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = worker(server)
    one.put(document())
    client = one.link.client
    monkeypatch.setattr(one.link, "away", "it does not answer")
    assert one.get(StoredDocument, ROBOTS, "http://h.test") is not None
    one.put(VisitRecord("http://h.test/", time.time(), "200"))
    one.book_host(HostRecord(HOST, time.time(), 1.0, time.time() + 7200.0))
    assert not list(client.scan_iter("*source*"))
    assert one.tend() == 1
    assert worker(server).get(VisitRecord, "http://h.test/") is not None
    assert reserve(worker(server)) > 7190


def test_a_redis_that_forgot_books_nothing_until_the_workers_have_told_it(
    server: Server,
) -> None:
    one, other = worker(server), worker(server)
    assert reserve(one) == 0
    one.book_host(HostRecord(HOST, time.time(), 1.0, time.time() + 7200.0))
    assert reserve(other, host="other.test") == 0
    server.client.flushall()
    with pytest.raises(StoreAway):
        reserve(other)
    assert 3 < other.tend() < 6
    with pytest.raises(StoreAway):
        reserve(worker(server), host="new.test")
    assert one.tend() > 3
    over(server)
    assert (one.tend(), other.tend()) == (1, 1)
    assert reserve(other) > 7190
    assert 0 < reserve(other, 60.0, "new.test") <= 60.0  # all hosts count as just requested


def test_a_store_that_nobody_holds_is_gone_at_once() -> None:
    """With its copy and its connections, without a look for cycles, which may come much later."""
    store = SharedStore(MemoryStore(), "redis://localhost", "ExampleBot")
    gone = weakref.ref(store)
    gc.disable()
    try:
        del store
        assert gone() is None
    finally:
        gc.enable()


def test_a_password_is_never_shown(server: Server) -> None:
    url = server.url.replace("redis://", "redis://user:secret@")
    store = SharedStore(MemoryStore(), url, "ExampleBot")
    with pytest.raises(StoreAway) as caught:
        reserve(store)
    assert "secret" not in str(caught.value)


def _fields(held: StoredDocument) -> dict[str, object]:
    return {name: getattr(held, name) for name in StoredDocument.__slots__}


TAUGHT = Learned(4.0, 5.5, 7, 0.0)


def taught_at(ago: float = 60.0) -> Learned:
    return replace(TAUGHT, at=time.time() - ago)


def test_what_a_host_has_taught_one_worker_the_others_know(server: Server) -> None:
    one, other = worker(server), worker(server, HOUR)
    one.reserve_host(HOST, 1.0, time.time())
    one.book_host(HostRecord(HOST, time.time(), 1.0, taught=taught_at()))
    booking = other.reserve_host(HOST, 1.0, time.time())
    assert booking.wait == pytest.approx(4.0, abs=0.5)
    assert replace(booking.taught, at=0.0) == TAUGHT
    assert booking.taught.at == pytest.approx(taught_at().at, abs=1.0)
    record = other.get(HostRecord, HOST)
    assert record is not None
    assert (record.interval, replace(record.taught, at=0.0)) == (1.0, TAUGHT)


def test_where_another_worker_was_there_meanwhile_the_slower_stays(server: Server) -> None:
    one, other = worker(server), worker(server, HOUR)
    one.reserve_host(HOST, 1.0, time.time())
    other.book_host(HostRecord(HOST, time.time(), 1.0, taught=taught_at()))
    one.book_host(HostRecord(HOST, time.time(), 1.0, taught=replace(taught_at(), interval=2.0)))
    record = one.get(HostRecord, HOST)
    assert record is not None
    assert record.taught.interval == 4.0


def test_r5_a_hold_that_redis_does_not_know_yet_outlives_the_next_answer(
    server: Server,
) -> None:
    one, _ = patient(server)
    assert reserve(one) == 0
    one.book_host(HostRecord(HOST, time.time(), 1.0, time.time() + 7200.0))
    one.book_host(HostRecord(HOST, time.time(), 1.0))
    one.book_host(HostRecord(HOST, time.time(), 1.0, time.time() + 60.0))
    one.flush()
    assert 7190 < reserve(worker(server)) <= 7200
