"""A Redis that comes back with older data, or none: what is known is written back first."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import pytest
from scrapy import Request

from scrapy_walsh.exceptions import StoreAway
from scrapy_walsh.fleet.store import SharedStore
from scrapy_walsh.state.records import BLOCKLIST, Deferral, HostRecord, StoredDocument, VisitRecord
from scrapy_walsh.state.store import MemoryStore, SqliteStore
from tests.fleet import old_data
from tests.fleet.test_scrapy_redis import _no_timers, crawl_of, finish, queue, urls_of  # noqa: F401

if TYPE_CHECKING:
    from pathlib import Path

    from scrapy_walsh.state.store import Store
    from tests.fleet.fleet import Server

HOST, URL, LIST = "h.test", "http://h.test/feed", "http://o.test/list"


def worker(server: Server, local: Store | None = None) -> SharedStore:
    store = SharedStore(MemoryStore() if local is None else local, server.url, "ExampleBot")
    assert store.link.begin() is not None
    return store


def reserve(store: SharedStore, interval: float = 1.0, host: str = HOST) -> float:
    return store.reserve_host(host, interval, time.time()).wait


def over(server: Server) -> None:
    """As if the time for which all hosts are left alone were over."""
    server.client.hset("walsh:{examplebot}:epoch", "calm", 0)


@pytest.fixture(params=["older data", "no data", "emptied"])
def lose(request: pytest.FixtureRequest, server: Server) -> Lose:
    """Loses what is written from now on."""
    return Lose(server, request.param)


class Lose:
    def __init__(self, server: Server, how: str) -> None:
        self._server, self._how = server, how
        self._snapshot = b""

    def from_now_on(self) -> None:
        self._snapshot = self._server.snapshot()

    def __call__(self) -> None:
        if self._how == "emptied":
            self._server.client.flushall()
        else:
            self._server.go_back(self._snapshot if self._how == "older data" else None)


def test_r4_all_hosts_are_left_alone_until_each_worker_has_written_back(
    server: Server, lose: Lose
) -> None:
    one, other = worker(server), worker(server)
    assert reserve(other, host="first.test") == 0
    lose.from_now_on()
    assert reserve(one) == 0
    one.book_host(HostRecord(HOST, time.time(), 1.0, time.time() + 7200.0))
    now = time.time()
    one.put(VisitRecord(URL, now, "200"))
    one.put(Deferral(URL, HOST, now + 600, "why"))
    one.put(StoredDocument(BLOCKLIST, LIST, LIST, b"list", now, 200, "held"))
    lose()
    with pytest.raises(StoreAway):
        reserve(other, host="other.test")
    other.tend()
    new = worker(server)
    with pytest.raises(StoreAway):
        reserve(new, host="new.test")
    assert one.tend() > 3
    over(server)
    for each in (one, other, new):
        assert each.tend() == 1
        assert reserve(each) > 7190
    assert 0 < reserve(new, 60.0, "new.test") <= 60.0  # all count as just requested
    for record, key in ((VisitRecord, URL), (Deferral, URL)):
        assert new.get(record, key) is not None
    found = new.get(StoredDocument, BLOCKLIST, LIST)
    assert found is not None
    assert found.body == b"list"


def test_r4_whoever_is_new_notices_it_first(server: Server) -> None:
    """Nobody else is there: the process that wrote the word is another one."""
    assert reserve(worker(server)) == 0
    snapshot = server.snapshot()
    assert reserve(worker(server), 60.0, "lost.test") == 0  # by a worker that has ended
    server.go_back(snapshot)
    new = worker(server)
    with pytest.raises(StoreAway):
        reserve(new, host="lost.test")
    assert new.tend() > 3
    over(server)
    assert new.tend() == 1
    booking = new.reserve_host("lost.test", 60.0, time.time())
    assert booking.wait > 50
    assert booking.known  # T1's exemption is for hosts that nobody has requested
    assert reserve(new, 60.0) > 50  # the record in the snapshot is older than the loss


def test_r4_the_word_is_on_each_machine_too(server: Server, tmp_path: Path) -> None:
    """Who was not there when records were lost writes back what it knows when it comes."""
    one = worker(server, SqliteStore(tmp_path))
    snapshot = server.snapshot()
    assert reserve(one) == 0
    one.book_host(HostRecord(HOST, time.time(), 1.0, time.time() + 7200.0))
    one.close()
    server.go_back(snapshot)
    other = worker(server)
    other.tend()
    over(server)
    assert other.tend() == 1
    again = worker(server, SqliteStore(tmp_path))
    assert reserve(again, host="other.test") <= 1.0  # for that, nobody waits once more
    assert reserve(other) > 7190
    again.close()


def test_much_is_written_back_in_parts(server: Server) -> None:
    local = MemoryStore()
    one = worker(server, local)
    one.tend()
    for number in range(1200):
        local.put(VisitRecord(f"http://h.test/{number}", time.time(), "200"))
    server.client.flushall()
    assert [one.tend() for _ in range(3)] == [0, 0, 5]
    assert len(server.client.keys("walsh:*:source:*")) == 1200


@pytest.mark.usefixtures("_no_timers")
@pytest.mark.parametrize("emptied", [True, False])
def test_what_the_queue_has_lost_is_an_error_with_its_number(
    server: Server, *, emptied: bool
) -> None:
    one = queue(server)
    crawl = crawl_of(one)
    one.push(Request("http://a.test/0"))
    snapshot = server.snapshot()
    for page in range(1, 4):
        one.push(Request(f"http://a.test/{page}"))
    assert urls_of(one, 1) == ["http://a.test/0"]
    server.go_back(None if emptied else snapshot)
    assert one.pop() is None
    crawl.store.tend()
    (line,) = crawl.recorder.own_faults
    assert line.startswith("lost walsh:{examplebot}:queue:probe:requests")
    over(server)
    crawl.store.tend()
    one.push(Request("http://a.test/4"))
    time.sleep(1.01)
    wanted = ["http://a.test/4"] if emptied else ["http://a.test/0"]
    assert urls_of(one, 1) == wanted
    assert len(crawl.recorder.own_faults) == 1


@pytest.mark.usefixtures("_no_timers")
def test_a_queue_that_is_done_or_cleared_has_lost_nothing(server: Server) -> None:
    one, other = queue(server), queue(server)
    one.push(Request("http://a.test/0"))
    assert urls_of(other, 1) == ["http://a.test/0"]
    finish(other)
    one.clear()
    assert urls_of(other, 1) == [None]
    assert len(one) == len(other) == 0
    for each in (one, other):
        assert not crawl_of(each).recorder.own_faults


@pytest.mark.parametrize("requests", ["", "list"])
def test_r4_a_crawl_in_which_redis_comes_back_with_old_data(tmp_path: Path, requests: str) -> None:
    """Once, of the 40 times of ``python -m tests.fleet.old_data``.

    A queue that a list in Redis fills is one queue as well.
    """
    outcome = old_data.crawl(tmp_path, 1, random.Random(1), requests)
    assert outcome.broken == []
    assert outcome.kills == 1
