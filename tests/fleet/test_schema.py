"""One declaration of each record: a fleet keeps what one machine keeps, and as long."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.fleet import scripts
from scrapy_walsh.policy.throttle import Learned
from scrapy_walsh.state.records import (
    BLOCKLIST,
    DOCUMENTS,
    HOSTS,
    ROBOTS,
    TABLE_OF,
    Deferral,
    HostRecord,
    Reading,
    StoredDocument,
    VisitRecord,
)
from tests.fleet.test_store import HOST, HOUR, document, worker

if TYPE_CHECKING:
    from tests.fleet.fleet import Server

DAY = 86_400.0
URL = "http://h.test/"


def lifetime(server: Server, record: Any) -> float:
    """Seconds for which Redis keeps *record*."""
    table = TABLE_OF[type(record)]
    return float(server.client.ttl(worker(server).key(table, *table.key_of(record))))


def test_what_was_promised_is_kept_as_long_as_locally(server: Server) -> None:
    """C1, C3, C16, C17: each record, from the moment until which it binds."""
    one, now = worker(server), time.time()
    records = [
        VisitRecord(URL, now - DAY, "200"),
        Reading(URL, now - 9 * DAY, now - DAY, 1, None, None),
        Deferral(URL, HOST, now + 10 * DAY, "Crawl-delay"),
        HostRecord(HOST, now, 40 * DAY),
        HostRecord("held.test", now, 1.0, now + 60 * DAY),
        HostRecord("mad.test", now, 1e300),
    ]
    for record in records[:3]:
        one.put(record)
    for host in records[3:]:
        one.put(host)
    for record in records:
        table = TABLE_OF[type(record)]
        assert lifetime(server, record) == pytest.approx(table.ends(record) - now, abs=3)
    one.put(document())
    assert DOCUMENTS.kept is None
    assert lifetime(server, document()) == -1  # for ever: the last known rules stay (T6)


def test_a_booking_is_kept_until_it_binds_nobody(server: Server) -> None:
    """C1, C3: the same by the script that books a host, and by the one that ends it."""
    one = worker(server)
    one.reserve_host(HOST, 40 * DAY, 0.0)
    booked = HostRecord(HOST, 0.0, 0.0)
    assert lifetime(server, booked) == pytest.approx(440 * DAY, abs=3)
    one.book_host(HostRecord(HOST, time.time(), 1.0, time.time() + 60 * DAY))
    assert lifetime(server, booked) == pytest.approx(460 * DAY, abs=3)


def test_r5_a_hold_is_kept_whatever_else_of_the_record_changes(server: Server) -> None:
    """C2, C10."""
    one, now = worker(server), time.time()
    one.reserve_host(HOST, 1.0, now)
    one.book_host(HostRecord(HOST, now, 1.0, now + 60 * DAY))
    for since in (now, None):
        one.update_host(HOST, lambda record, at=since: record and replace(record, silent_since=at))  # type: ignore[misc]
        assert lifetime(server, HostRecord(HOST, 0.0, 0.0)) == pytest.approx(460 * DAY, abs=5)
        found = worker(server).get(HostRecord, HOST)
        assert found is not None
        assert found.not_before == pytest.approx(now + 60 * DAY, abs=3)
        assert (found.silent_since is None) == (since is None)
    assert worker(server).reserve_host(HOST, 1.0, now).wait > 59 * DAY
    assert server.client.hexists(one.key(HOSTS, HOST), "silent_since") == 0


def test_a_host_without_a_hold_has_none_in_a_fleet(server: Server) -> None:
    """C4, C6: as in ``tests/state/test_schema.py``."""
    one = worker(server)
    one.reserve_host(HOST, 1.0, 0.0)
    begun = time.time()
    time.sleep(0.2)
    under_way = worker(server).get(HostRecord, HOST)
    one.book_host(HostRecord(HOST, time.time(), 1.0))
    ended = worker(server).get(HostRecord, HOST)
    assert under_way is not None
    assert ended is not None
    assert under_way.last_end == pytest.approx(begun, abs=0.1)
    assert ended.last_end > under_way.last_end + 0.1
    assert [(each.not_before, each.under_way) for each in (under_way, ended)] == [
        (None, 1),
        (None, 0),
    ]


def test_the_times_of_hosts_are_not_by_the_wall_clock(server: Server) -> None:
    """C5: it may be set while a crawl runs (D9)."""
    one = worker(server)
    one.reserve_host(HOST, 1.0, 0.0)
    one.book_host(HostRecord(HOST, 0.0, 1.0, 0.0 + 2 * HOUR))
    one.update_host(HOST, lambda record: record and replace(record, silent_since=time.time()))
    before = worker(server).get(HostRecord, HOST)
    one.skew = HOUR
    time.sleep(0.15)
    after = one.get(HostRecord, HOST)
    assert before is not None
    assert after is not None
    assert after.last_end == pytest.approx(before.last_end, abs=0.1)
    assert after.not_before == pytest.approx(before.not_before, abs=0.1)
    assert after.silent_since == pytest.approx(before.silent_since, abs=0.1)


def test_a_target_ahead_of_the_crawl_delay_is_noted_at_its_end_in_a_fleet(
    server: Server,
) -> None:
    """C7: not when the script ran."""
    one = worker(server)
    one.tend()
    one.let_wait(lambda: None)
    one.reserve_host(HOST, 1.0, 0.0)
    one.book_host(HostRecord(HOST, 0.0, 1.0, visited_at=0.0))
    time.sleep(0.3)
    one.flush()
    found = worker(server).get(HostRecord, HOST)
    assert found is not None
    assert found.visited_at == found.last_end
    assert time.time() - (found.visited_at or 0.0) > 0.25


@pytest.mark.parametrize("interval", [3.0, 4.0, 5.0])
def test_of_two_paces_the_slower_one_stays_in_a_fleet(server: Server, interval: float) -> None:
    """C8, C9, C11: of two alike, that of the last answer."""
    one, other, now = worker(server), worker(server), time.time() - HOUR
    stored, mine = Learned(4.0, 0.0, 9, now), Learned(interval, 0.0, 3, now)
    one.reserve_host(HOST, 1.0, 0.0)
    other.book_host(HostRecord(HOST, 0.0, 1.0, taught=stored))
    one.book_host(HostRecord(HOST, 0.0, 1.0, taught=mine))
    found = worker(server).get(HostRecord, HOST)
    assert found is not None
    assert (found.interval, found.spacing) == (1.0, max(4.0, interval))
    assert found.taught.calm == (9 if interval < 4.0 else 3)


def test_a_later_record_is_not_replaced_by_an_older_one(server: Server) -> None:
    one, now = worker(server), time.time()
    one.put(VisitRecord(URL, now - 60, "200"))
    worker(server).put(VisitRecord(URL, now - DAY, "304"))
    found = worker(server).get(VisitRecord, URL)
    assert found is not None
    assert found.outcome == "200"


@pytest.mark.parametrize("shift", [-0.9, -0.01, -1e-5, 0.0, 1e-5, 0.01, 0.9])
@pytest.mark.parametrize(
    ("record", "change"),
    [
        (VisitRecord(URL, 1.0, "200"), {"gave_up_at": 2.0, "failures": 1}),
        (VisitRecord(URL, 0.0, ""), {"gave_up_at": 2.0, "failures": 3}),
        (StoredDocument(ROBOTS, URL, URL, b"", 1.0, 200, "parse"), {"pages": 1, "page_at": 2.0}),
        (StoredDocument(BLOCKLIST, URL, URL, b"{}", 1.0, 200, "held"), {"tokens": "examplebot"}),
        (Reading(URL, 0.0, 1.0, 1, ""), {"reason": "HTTP 500"}),
    ],
    ids=["failed visit", "first visit failed", "page", "token", "reading"],
)
def test_r8_a_record_that_is_read_and_changed_reaches_the_fleet(
    server: Server, record: Any, change: dict[str, Any], shift: float
) -> None:
    """Each booking looks at Redis's clock anew, and so takes the same time for another one."""
    began = time.time() - HOUR
    latest = TABLE_OF[type(record)].latest
    times = {latest: began} if getattr(record, latest) else {}
    worker(server).put(replace(record, **times))
    key = TABLE_OF[type(record)].key_of(record)
    one = worker(server)
    found = one.get(type(record), *key)
    assert found is not None
    one.link._ahead -= shift
    changed = {name: began + 1 if value == 2.0 else value for name, value in change.items()}
    one.put(replace(found, **changed))
    other = worker(server).get(type(record), *key)
    assert other is not None
    for name, value in changed.items():
        read = getattr(other, name)
        assert read == (pytest.approx(value, abs=2) if isinstance(value, float) else value)


def test_the_digest_of_a_body_is_called_so(server: Server) -> None:
    """C21."""
    one = worker(server)
    one.put(StoredDocument(BLOCKLIST, URL, URL, b"{}", time.time(), 200, "held"))
    found = server.client.hgetall(one.key(DOCUMENTS, BLOCKLIST, URL))
    assert len(found[b"digest"]) == 64
    assert found[b"body"] == b"{}"


def test_the_scripts_know_the_fields_of_a_host_by_their_names() -> None:
    """C4, C6, C8, C10: no layer has names of its own. ``by`` is the fleet's."""
    text = "".join(each for each in vars(scripts).values() if isinstance(each, str))
    named = set(re.findall(r"\brecord\.(\w+)", text))
    named |= set(re.findall(r"(?:HSET|HDEL)', KEYS\[1\], '(\w+)'", text))
    assert {"last_end", "not_before", "taught", "silent_since", "visited_at"} <= named
    assert named <= {*HOSTS.columns, "by"}
