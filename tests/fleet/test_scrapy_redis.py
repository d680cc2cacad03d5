"""scrapy-redis with DueQueue: workers share one queue, and claim what is due."""

from __future__ import annotations

import json
import re
import signal
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

import pytest
from scrapy import FormRequest, Request, Spider

from scrapy_walsh.adapters import compat
from scrapy_walsh.adapters.crawl import Crawl
from scrapy_walsh.adapters.redis_queue import DueQueue
from scrapy_walsh.exceptions import ConfigError, StoreAway
from scrapy_walsh.proof.sandbox import Route, Sandbox, hosts, paths, requests
from scrapy_walsh.state.records import ROBOTS, Deferral, HostRecord, StoredDocument, VisitRecord
from tests.crawl.harness import (
    OWN_IDENTITY,
    Run,
    idle_crawler,
    site,
    state_dir,
    targets,
    verify,
    wait_until,
)
from tests.fleet.fleet import settled, too_close, worker

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from scrapy.crawler import Crawler

    from scrapy_walsh.adapters.events import Recorder
    from scrapy_walsh.fleet.link import Command
    from scrapy_walsh.fleet.store import SharedStore
    from tests.fleet.fleet import Server

PAGES = ("http://a.test/1", "http://a.test/2")
FLEET_SPIDER = """
from pathlib import Path
import scrapy
from scrapy_redis.spiders import RedisSpider
from scrapy_walsh.adapters.redis_queue import DueSpiderMixin

class Probe(DueSpiderMixin, RedisSpider):
    name = "probe"
    max_idle_time = 5

    async def start(self):
        Path("ready").touch()
        async for request in super().start():
            yield request

    def parse(self, response):
        yield scrapy.Request("http://links.test/page/undeclared", callback=self.parse)
        yield {"url": response.url}
"""


def settings(server: Server) -> dict[str, Any]:
    return {
        "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
        "SCHEDULER_QUEUE_CLASS": "scrapy_walsh.adapters.redis_queue.DueQueue",
        "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
        "SCHEDULER_PERSIST": True,
        "REDIS_URL": server.url,
    }


def fleet(box: Sandbox, server: Server, folder: Path, count: int = 2) -> list[Run]:
    options = settings(server)
    return [
        worker(folder / str(n), box, server, spider=FLEET_SPIDER, **options) for n in range(count)
    ]


def one_after_another(box: Sandbox, server: Server, folder: Path) -> list[Run]:
    """Two workers: the first asks for a page, and goes on once the other has asked for one too."""
    first, other = folder / "first", folder / "other"
    one = worker(first, box, server, spider=FLEET_SPIDER, **settings(server))
    wait_until(lambda: targets(box.log))
    one.process.send_signal(signal.SIGSTOP)
    settled(box)
    seen = len(targets(box.log))
    try:
        two = worker(other, box, server, spider=FLEET_SPIDER, **settings(server))
        wait_until(lambda: len(targets(box.log)) > seen)
    finally:
        one.process.send_signal(signal.SIGCONT)
    return [one, two]


def test_r4_6_two_workers_of_scrapy_redis_share_the_work_and_keep_the_spacing(
    box: Sandbox, server: Server, tmp_path: Path
) -> None:
    names = [f"h{number}.test" for number in range(4)]
    urls = [f"http://{name}/page/{page}" for name in names for page in range(4)]
    for name in (*names, "links.test"):
        box.put(site(name))
    box.put(site("closed.test", robots="User-agent: *\nDisallow: /\nCrawl-delay: 20\n"))
    urls += [f"http://closed.test/page/{page}" for page in range(4)]
    for url in urls:
        server.client.rpush("probe:start_urls", json.dumps({"url": url}))
    workers = one_after_another(box, server, tmp_path)
    outputs = [each.said() for each in workers]
    fetched = sorted(f"http://{each.host}{each.path}" for each in targets(box.log))
    assert fetched == sorted(url for url in urls if "closed" not in url)
    assert too_close(box.log) == []
    assert "links.test" not in hosts(box.log)  # R6: a link is no target, whoever claims it
    assert any("out_of_scope" in output for output in outputs)
    assert paths(box.log, "closed.test") == ["/robots.txt"]
    assert all("Traceback" not in output for output in outputs)
    for each in workers:  # what another worker has declared is declared in this one's ledger
        code, printed = verify(state_dir(each.project))
        assert code == 0, printed
    shares = [len(re.findall(r"DEBUG: Crawled \(200\).*/page/", output)) for output in outputs]
    assert sum(shares) >= 16
    assert all(shares)
    # Each counts what it asked itself, and names nothing: no worker sees every answer.
    counts = [re.findall(r"walsh: .*?(\d+) of (\d+) sources? read", output) for output in outputs]
    assert [sum(map(int, each)) for each in zip(*(line for (line,) in counts), strict=True)] == [
        16,
        20,
    ]
    assert not any("not requested" in output or "'walsh/unread'" in output for output in outputs)


REDIS_SPIDER = """
from scrapy_redis.spiders import RedisSpider

class Probe(RedisSpider):
    name = "probe"
    max_idle_time = 3

    def parse(self, response):
        yield {"url": response.url}
"""


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("spider", [REDIS_SPIDER, FLEET_SPIDER], ids=["redis", "due"])
def test_a_crawl_that_is_refused_takes_no_start_url_from_redis(
    box: Sandbox, server: Server, tmp_path: Path, *, spider: str, shared: bool
) -> None:
    """With the queue that scrapy-redis has by default, so it is told which one to set."""
    box.put(site("a.test"))
    server.client.rpush("probe:start_urls", *(json.dumps({"url": each}) for each in PAGES))
    given = {**settings(server), "SCHEDULER_QUEUE_CLASS": None}
    more = {} if shared else {"WALSH_SHARED_STATE": None}
    said = worker(tmp_path / "p", box, server, spider=spider, **given, **more).said(60, code=1)
    assert server.client.llen("probe:start_urls") == len(PAGES)
    (line,) = [each for each in said.splitlines() if "not fully installed" in each]
    assert "scrapy_walsh.adapters.redis_queue.DueQueue: set SCHEDULER_QUEUE_CLASS to it" in line
    assert ("WALSH_SHARED_STATE" in line) != shared
    assert "HostQueue" not in line
    assert not requests(box.log)


@pytest.mark.parametrize("follows", [True, False])
def test_a_spider_whose_pages_came_from_redis_is_not_told_to_write_start(
    box: Sandbox, server: Server, tmp_path: Path, *, follows: bool
) -> None:
    """Scrapy 2.19 does not call its start_requests(); its pages come whenever it is idle.

    An earlier Scrapy calls it, so the pages are declared, and requested.
    """
    box.put(site("a.test"))
    server.client.rpush("probe:start_urls", *(json.dumps({"url": each}) for each in PAGES))
    given = {"REDIS_URL": server.url, "WALSH_IDENTITY": OWN_IDENTITY, "WALSH_SHARED_STATE": None}
    more = {"WALSH_FOLLOW_LINKS": follows}
    said = worker(tmp_path / "p", box, server, spider=REDIS_SPIDER, **given, **more).said(60)
    are_declared = hasattr(Spider, "start_requests")
    assert len(targets(box.log)) == (len(PAGES) if follows or are_declared else 0)
    assert "write async def start()" not in said


def test_r8_1_workers_wait_for_the_end_of_the_hour_by_the_cadence_of_the_source(
    box: Sandbox, server: Server, tmp_path: Path
) -> None:
    """One source is hourly, and was sent almost an hour ago; one is daily, as WALSH_REVISIT is."""
    begun, left = time.time(), 20.0
    for name in ("hourly.test", "daily.test"):
        box.put(site(name))
        meta = {"walsh_revisit": "PT1H"} if name == "hourly.test" else {}
        url = f"http://{name}/page/0"
        server.client.rpush("probe:start_urls", json.dumps({"url": url, "meta": meta}))
        fields = {"last_run_at": repr(begun - 3600 + left), "outcome": "200"}
        server.client.hset(f"walsh:{{walsh-research}}:source:{url}", mapping=fields)
    workers = fleet(box, server, tmp_path)
    outputs = [each.said() for each in workers]
    (sent,) = targets(box.log)
    assert sent.host == "hourly.test", outputs
    assert sent.wall >= begun + left, outputs
    assert sum("the run waits for that (R8)" in output for output in outputs) <= 1
    record = server.client.hgetall("walsh:{walsh-research}:source:http://hourly.test/page/0")
    assert record[b"revisit"] == b"3600.0"
    assert float(record[b"last_run_at"]) > begun


def test_workers_of_scrapy_redis_outlast_an_outage(
    box: Sandbox, server: Server, tmp_path: Path
) -> None:
    for name in ("a.test", "b.test"):
        box.put(site(name))
    urls = [f"http://{name}/page/{page}" for name in ("a.test", "b.test") for page in range(3)]
    server.kill()
    server.__init__(tmp_path, keep=True)  # type: ignore[misc]
    server.start()
    for url in urls:
        server.client.rpush("probe:start_urls", json.dumps({"url": url}))
    workers = fleet(box, server, tmp_path)
    # scrapy-redis's scheduler refuses to start without Redis.
    wait_until(lambda: all((each.project / "ready").exists() for each in workers))
    wait_until(lambda: len(targets(box.log)) >= 2)
    server.kill()
    time.sleep(2)
    server.start()
    for each in workers:
        each.said(code=1)  # what was queued last may be lost
    fetched = sorted(f"http://{each.host}{each.path}" for each in targets(box.log))
    assert fetched == sorted(urls)
    assert too_close(box.log) == []


QUICK = """
from scrapy_walsh.adapters.redis_queue import DueQueue

class Quick(DueQueue):
    lease = 2.0
"""


def taken_over(box: Sandbox, server: Server, folder: Path) -> list[Run]:
    """Two workers: the first is in the midst of a request, which the other waits for."""
    box.put(site("slow.test", {"/page/slow": Route(sequence=[Route(delay=15), Route(body="p")])}))
    server.client.rpush("probe:start_urls", json.dumps({"url": "http://slow.test/page/slow"}))
    options = {**settings(server), "SCHEDULER_QUEUE_CLASS": "spiders.Quick"}
    workers = []
    for name in ("first", "other"):
        started = worker(folder / name, box, server, spider=FLEET_SPIDER + QUICK, **options)
        wait_until(lambda path=started.project: (path / "ready").exists())
        wait_until(lambda: targets(box.log))
        workers.append(started)
    return workers


def test_what_a_killed_worker_was_asking_is_asked_by_another(
    box: Sandbox, server: Server, tmp_path: Path
) -> None:
    first, other = taken_over(box, server, tmp_path)
    time.sleep(2.5)  # the lease of one that lives is renewed, and nobody ends meanwhile
    assert len(targets(box.log)) == 1
    assert other.process.poll() is None
    first.process.kill()
    killed = time.monotonic()
    first.process.communicate()
    assert "http://slow.test/page/slow> (referer" in other.said()
    again = targets(box.log)[1:]
    assert len(again) == 1
    assert again[0].arrived > killed + 1.0
    assert too_close(box.log) == []


def test_a_worker_that_was_stopped_for_longer_than_its_lease_goes_on(
    box: Sandbox, server: Server, tmp_path: Path
) -> None:
    first, other = taken_over(box, server, tmp_path)
    first.process.send_signal(signal.SIGSTOP)
    try:
        other.said()
    finally:
        first.process.send_signal(signal.SIGCONT)
    server.client.rpush("probe:start_urls", json.dumps({"url": "http://slow.test/page/next"}))
    first.said()
    asked = [each.path for each in targets(box.log)]
    assert asked == ["/page/slow", "/page/slow", "/page/next"]
    assert too_close(box.log) == []
    (size,) = server.client.keys("walsh:*:queue:probe:requests:size")
    assert server.client.get(size) == b"0"


# -- the queue alone --------------------------------------------------------------------------


class Probe(Spider):
    name = "probe"

    def page(self, response: object) -> None:
        """A callback by name."""


def queue(server: Server | None, **more: Any) -> DueQueue:
    """The queue of one worker, with every URL in scope and no list to fetch."""
    shared = {} if server is None else {"WALSH_SHARED_STATE": server.url}
    spider = Probe()
    spider.crawler = crawler = idle_crawler(spider, {**shared, **more})
    made = DueQueue(None, spider, "%(spider)s:requests")
    own = _CRAWLS[made] = Crawl.of(crawler)
    own.scope.follow_links = True
    own.pacing.traffic = {}  # the process's own remembers other tests
    return made


_CRAWLS: WeakKeyDictionary[DueQueue, Crawl] = WeakKeyDictionary()


def crawl_of(line: DueQueue) -> Crawl:
    """What :func:`queue` made *line* for."""
    return _CRAWLS[line]


LINE = "walsh:{examplebot}:queue:probe:requests:line:"


#: What the engine of each crawler would be busy with.
UNDER_WAY: dict[Crawler, list[Request]] = {}


def claimed(line: DueQueue, count: int) -> list[str | None]:
    """As ``urls_of``; the engine is done with none of them."""
    found = []
    for _ in range(count):
        request = line.pop()
        UNDER_WAY.setdefault(crawl_of(line).crawler, []).extend(filter(None, [request]))
        found.append(None if request is None else request.url)
    return found


def finish(line: DueQueue) -> None:
    """The engine is done with all of them."""
    UNDER_WAY.pop(crawl_of(line).crawler, None)
    line._renew()


def urls_of(line: DueQueue, count: int) -> list[str | None]:
    popped = [line.pop() for _ in range(count)]
    return [None if request is None else request.url for request in popped]


@pytest.fixture(autouse=True)
def _no_timers(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if "tmp_path" not in request.fixturenames or "box" not in request.fixturenames:
        monkeypatch.setattr("scrapy_walsh.adapters.compat.Timer.set", lambda *_: None)
        monkeypatch.setattr(compat, "under_way", lambda crawler: UNDER_WAY.get(crawler, ()))


def test_a_host_is_claimed_once_an_interval_by_whoever_comes(server: Server) -> None:
    one, other = queue(server), queue(server)
    for page in range(3):
        one.push(Request(f"http://a.test/{page}"))
    one.push(Request("http://b.test/0"))
    assert len(other) == 4
    assert urls_of(one, 1) == ["http://a.test/0"]  # most work left first
    assert urls_of(other, 2) == ["http://b.test/0", None]
    assert len(one) == 3  # two wait, and one is under way
    time.sleep(1.01)
    assert urls_of(other, 2) == ["http://a.test/1", None]


def test_a_host_that_another_asked_or_that_holds_is_not_claimed(server: Server) -> None:
    one, other = queue(server), queue(server)
    store = crawl_of(other).store
    store.reserve_host("a.test", 1.0, time.time())
    store.book_host(HostRecord("b.test", time.time(), 1.0, time.time() + 60.0))
    for name in ("a.test", "b.test", "c.test"):
        one.push(Request(f"http://{name}/"))
    assert urls_of(one, 2) == ["http://c.test/", None]


def test_d8_a_hold_beyond_patience_is_handed_out_for_the_gate_to_defer(server: Server) -> None:
    one = queue(server, WALSH_PATIENCE=10)
    crawl_of(one).store.book_host(HostRecord("a.test", time.time(), 1.0, time.time() + 60.0))
    one.push(Request("http://a.test/1"))
    one.push(Request("http://a.test/2"))
    assert urls_of(one, 3) == ["http://a.test/1", "http://a.test/2", None]


def silent(line: DueQueue, host: str) -> None:
    """An earlier run had no answer of *host* (D31)."""
    ago = time.time() - 100
    crawl_of(line).store.put(HostRecord(host, ago, 1.0, silent_since=ago))


def test_a_host_that_gives_no_answer_is_claimed_after_all_others(server: Server) -> None:
    one, other = queue(server), queue(server)
    silent(one, "dead.test")
    for page in range(5):
        one.push(Request(f"http://dead.test/{page}"))
    for page in range(2):
        one.push(Request(f"http://live.test/{page}"))
    assert urls_of(one, 2) == ["http://live.test/0", None]  # the other page is due in a second
    time.sleep(1.01)
    assert urls_of(other, 2) == ["http://live.test/1", "http://dead.test/0"]
    answered = crawl_of(other).store
    answered.update_host("dead.test", lambda record: record and replace(record, silent_since=None))
    one.push(Request("http://live.test/2"))
    time.sleep(1.01)
    assert urls_of(one, 1) == ["http://dead.test/1"]  # most work left


def test_a_host_that_gave_no_answer_in_this_run_is_claimed_after_all_others(
    server: Server,
) -> None:
    """Before any record says so: from the first request on that got no answer (D13)."""
    one, other = queue(server), queue(server)
    for name in ("dead.test", "gone.test"):
        crawl_of(one).pacing.host(name).silence.note(crawl_of(one).monotonic(), robots=True)
        one.push(crawl_of(one).tickets.again(Request(f"http://{name}/")))
    one.push(Request("http://live.test/0"))
    one.push(Request("http://live.test/1"))
    assert urls_of(other, 2) == ["http://live.test/0", None]  # the other page is due in a second
    time.sleep(1.01)
    assert urls_of(one, 1) == ["http://live.test/1"]
    assert set(urls_of(other, 2)) == {"http://dead.test/", "http://gone.test/"}
    one.push(Request("http://dead.test/1"))  # before the answer has come
    crawl_of(one).pacing.host("dead.test").silence.answered(crawl_of(one).monotonic())
    one.push(Request("http://dead.test/2"))
    one.push(Request("http://live.test/2"))
    time.sleep(1.01)
    assert urls_of(other, 1) == ["http://dead.test/1"]


def test_a_worker_reads_that_a_host_gives_no_answer(server: Server) -> None:
    one, other = queue(server), queue(server)
    silent(one, "dead.test")
    crawl_of(one).store.book_host(HostRecord("dead.test", time.time(), 1.0))
    assert crawl_of(other).pacing.host("dead.test").goes_last(0.0)
    assert not crawl_of(other).pacing.host("live.test").goes_last(0.0)


def test_retries_go_first_then_priority_then_arrival(server: Server) -> None:
    one = queue(server, WALSH_PATIENCE=0)
    crawl_of(one).store.book_host(
        HostRecord("a.test", time.time(), 1.0, time.time() + 60.0)
    )  # beyond patience: all at once
    for name, priority in (("x", 0), ("y", 0), ("z", 5)):
        one.push(Request(f"http://a.test/{name}", priority=priority))
    retried = Request("http://a.test/retried", priority=-5)
    one.push(crawl_of(one).tickets.again(retried))
    assert [url and url[-1] for url in urls_of(one, 4)] == ["d", "z", "x", "y"]


def test_a_request_comes_out_as_it_went_in(server: Server) -> None:
    one = queue(server)
    went = FormRequest(
        "http://a.test/é",
        method="POST",
        body=b"\x00\xff",
        headers={"X-Odd": b"\xff", "Accept": ["a", "b"]},
        meta={"depth": 2},
        cb_kwargs={"key": "k"},
        callback=crawl_of(one).crawler.spider.page,  # type: ignore[attr-defined]
        flags=["f"],
    )
    one.push(went)
    (data,) = server.client.zrange(f"{LINE}a.test", 0, -1)
    assert b"http://a.test/" in data  # readable
    came = one.pop()
    assert came is not None
    spider = crawl_of(one).crawler.spider
    assert came.to_dict(spider=spider) == went.replace(cls=Request).to_dict(spider=spider)


def test_r8_1_a_claim_carries_the_cadence_of_its_source(server: Server) -> None:
    one, other = queue(server), queue(server)
    for url, meta in (("http://a.test/", {"walsh_revisit": "P7D"}), ("http://b.test/", {})):
        crawl_of(one).intake.declare(Request(url, meta=meta))
        # What a callback writes into meta is no declaration.
        one.push(Request(url, meta={"walsh_revisit": 3600}))
    assert sorted(filter(None, urls_of(other, 2))) == ["http://a.test/", "http://b.test/"]
    week = 7 * 86400.0
    for line in (one, other):
        assert crawl_of(line).scope.cadence("http://a.test/") == week
        assert crawl_of(line).scope.cadence("http://b.test/") is None


def test_r6_a_claim_carries_the_declared_target_and_no_other(server: Server) -> None:
    one, other = queue(server), queue(server)
    for each in (one, other):
        crawl_of(each).scope.follow_links = False
    crawl_of(one).scope.declare("http://a.test/")
    crawl_of(one).scope.declare_hop("http://b.test/moved", "http://a.test/")
    one.push(Request("http://b.test/moved"))
    one.push(Request("http://c.test/link"))
    assert server.client.get("walsh:{examplebot}:queue:probe:requests:size") == b"1"
    assert urls_of(other, 1) == ["http://b.test/moved"]
    assert crawl_of(other).scope.refuses("http://b.test/moved") is None
    assert crawl_of(other).scope.refuses("http://c.test/link") is not None


def test_what_cannot_be_written_is_said(server: Server) -> None:
    with pytest.raises(
        ValueError, match=r"http://a\.test/ cannot be queued as MessagePack.*SERIALIZER"
    ):
        queue(server).push(Request("http://a.test/", meta={"x": object()}))


def silence(line: DueQueue, *others: DueQueue, lease: float = 0.0) -> None:
    """The lease of *line* ends, while *others* are seen."""
    line.lease = lease
    line._renew()
    for each in others:
        each._renew()


def test_a_claim_is_put_back_once_its_worker_is_silent(server: Server) -> None:
    one, other = queue(server), queue(server)
    for page, priority in ((0, 5), (1, 0)):
        one.push(Request(f"http://a.test/{page}", priority=priority))
    assert claimed(one, 1) == ["http://a.test/0"]
    other._renew()
    assert len(other) == 2
    time.sleep(1.01)
    silence(one, other)
    # Before the other, as ever; then the host is spaced.
    assert claimed(other, 2) == ["http://a.test/0", None]
    finish(other)
    finish(one)  # it comes back, and its claim is no more
    assert len(other) == 1


def test_r8_1_what_waits_for_its_hour_is_put_back_when_its_worker_ends(server: Server) -> None:
    one, other = queue(server), queue(server)
    one.push(Request("http://a.test/"))
    (request,) = (one.pop(),)
    assert request is not None
    one._soon.append((time.monotonic() + 300, 1, request))
    one._renew()  # it is neither under way nor done
    assert len(other) == 1
    time.sleep(1.01)
    assert urls_of(other, 1) == [None]
    one.stop()
    assert urls_of(other, 1) == ["http://a.test/"]


def test_an_answer_of_redis_that_was_lost_loses_no_request(server: Server) -> None:
    one = queue(server)
    one.push(Request("http://a.test/"))
    one._claim()  # nobody learns of it
    time.sleep(1.01)
    assert urls_of(one, 1) == ["http://a.test/"]
    finish(one)
    assert len(one) == 0


def test_leases_do_not_run_while_nobody_is_seen(server: Server) -> None:
    """Redis was away for an hour: the workers were not silent, it was."""
    one, other = queue(server), queue(server)
    one.push(Request("http://a.test/"))
    claimed(one, 1)
    looked = "walsh:{examplebot}:queue:probe:requests:looked"
    server.client.hset(looked, "at", time.time() - 3600)
    time.sleep(1.01)
    assert urls_of(other, 1) == [None]


def test_a_claim_that_cannot_be_read_is_made_once(server: Server) -> None:
    one = queue(server)
    one.push(Request("http://a.test/"))
    (data,) = server.client.zrange(f"{LINE}a.test", 0, -1)
    server.client.delete(f"{LINE}a.test")
    server.client.zadd(f"{LINE}a.test", {data[:16] + b"{}": 1})
    assert one.pop() is None
    time.sleep(1.01)
    assert urls_of(one, 1) == [None]
    assert len(one) == 0


# -- round trips --------------------------------------------------------------------------------


def waiting(line: DueQueue) -> tuple[SharedStore, list[tuple[Command, ...]]]:
    """The store of *line*, which lets its writes wait; what it sends from now on, by round trip."""
    store = cast("SharedStore", crawl_of(line).store)
    store.let_wait(lambda: None)
    store.tend()
    sent: list[tuple[Command, ...]] = []
    exchange = store.link.exchange

    def noted(commands: Sequence[Command]) -> list[Any]:
        sent.append(tuple(commands))
        return exchange(commands)

    store.link.exchange = noted  # type: ignore[method-assign]
    return store, sent


def test_d20_a_request_takes_three_round_trips(
    server: Server,
) -> None:
    one = queue(server)
    crawl_of(one).store.put(VisitRecord("http://b.test/", 1.0, "200"))  # Redis knows the script
    store, trips = waiting(one)
    for page in range(2):
        one.push(Request(f"http://a.test/{page}"))
    assert trips == []
    assert claimed(one, 1) == ["http://a.test/0"]
    crawl_of(one).pacing.host_of("http://a.test/0")
    assert store.get(VisitRecord, "http://a.test/0") is None
    assert store.get(StoredDocument, ROBOTS, "http://a.test") is None
    assert store.reserve_host("a.test", 1.0, time.time()).wait == 0
    assert len(trips) == 2
    crawl_of(one).pacing.named("a.test").traffic.started()
    crawl_of(one).pacing.named("a.test").traffic.finished(time.monotonic())
    store.book_host(HostRecord("a.test", time.time(), 1.0))
    store.put(VisitRecord("http://a.test/0", time.time(), "200"))
    store.delete(Deferral, "http://a.test/0")
    assert len(trips) == 2
    store.flush()  # as when the spider has taken the answer
    assert len(trips) == 3
    assert len(trips[2]) == 3
    assert claimed(one, 1) == [None]
    assert len(trips) == 4
    assert len(one) == 2
    assert trips[3][-1] == trips[0][-1][:2] + trips[3][-1][2:]  # what is asked comes last


def test_a_claim_brings_what_its_worker_reads_next(server: Server) -> None:
    one, other = queue(server), queue(server)
    theirs = cast("SharedStore", crawl_of(other).store)
    theirs.put(VisitRecord("http://a.test/0", time.time() - 60, "200"))
    theirs.put(StoredDocument(ROBOTS, "http://a.test", "u", b"rules", time.time() - 9, 200, "held"))
    theirs.book_host(HostRecord("a.test", time.time() - 60, 5.0))
    other.push(Request("http://a.test/0"))
    time.sleep(1.01)
    store, trips = waiting(one)
    server.client.hset("walsh:{examplebot}:host:a.test", "last_end", time.time() - 60)
    assert urls_of(one, 1) == ["http://a.test/0"]
    run = store.get(VisitRecord, "http://a.test/0")
    rules = store.get(StoredDocument, ROBOTS, "http://a.test")
    host = store.get(HostRecord, "a.test")
    assert run is not None
    assert rules is not None
    assert host is not None
    assert (run.outcome, rules.body, host.interval) == ("200", b"rules", 5.0)
    assert len(trips) == 1
    time.sleep(0.11)
    store.get(VisitRecord, "http://a.test/0")
    assert len(trips) == 2  # what came with a claim counts for a moment only


def test_a_record_that_nobody_can_read_keeps_no_request_back(server: Server) -> None:
    one = queue(server)
    for key in ("source:http://a.test/", "document:robots http://a.test"):
        server.client.lpush(f"walsh:{{examplebot}}:{key}", "x")
    one.push(Request("http://a.test/"))
    assert one._claim()[1]


def test_a_claim_lasts_until_redis_has_what_came_of_it(server: Server) -> None:
    one = queue(server)
    waiting(one)
    one.push(Request("http://a.test/"))
    assert claimed(one, 1) == ["http://a.test/"]
    UNDER_WAY.pop(crawl_of(one).crawler)
    serial = "walsh:{examplebot}:queue:probe:requests:serial"
    kept = server.client.get(serial)
    server.client.delete(serial)
    server.client.lpush(serial, "x")  # so Redis refuses every new entry
    one.push(crawl_of(one).tickets.again(Request("http://a.test/")))
    with pytest.raises(StoreAway):
        one._renew()
    (claim,) = server.client.hvals(
        f"{LINE.removesuffix('line:')}claims:{crawl_of(one).store.worker}"
    )
    assert b"http://a.test/" in claim
    server.client.delete(serial)
    server.client.set(serial, kept)
    assert crawl_of(one).store.tend() == 1
    one._renew()  # with the entry; the next one says that the claim has ended
    one._renew()
    assert (len(one), server.client.zcard(f"{LINE}a.test")) == (1, 1)


def test_a_long_list_goes_to_redis_by_hundreds(server: Server) -> None:
    one = queue(server)
    _, trips = waiting(one)
    for page in range(250):
        one.push(Request(f"http://a.test/{page}"))
    assert {len(each) for each in trips} == {100}
    assert server.client.zcard(f"{LINE}a.test") == 200
    one.stop()
    assert server.client.zcard(f"{LINE}a.test") == 250


def hold(one: DueQueue, seconds: float) -> None:
    """As the gate does before it gives a request back: its host waits for *seconds*."""
    crawl = crawl_of(one)
    crawl.pacing.host("a.test").traffic.hold(crawl.monotonic() + seconds)


def test_a_request_that_comes_back_has_its_host_wait_as_long_as_it_says(server: Server) -> None:
    one, other = queue(server), queue(server)
    for page in range(2):
        one.push(Request(f"http://a.test/{page}"))
    (claim,) = (one.pop() for _ in range(1))
    assert claim is not None
    hold(one, 0.2)
    one.push(crawl_of(one).tickets.again(claim))
    assert urls_of(other, 1) == [None]
    time.sleep(0.21)
    assert urls_of(other, 1) == ["http://a.test/0"]


def test_r4_a_request_that_comes_back_does_not_bring_its_host_nearer(server: Server) -> None:
    one, other = queue(server), queue(server)
    for page in range(2):
        one.push(Request(f"http://a.test/{page}"))
    claim = one.pop()
    assert claim is not None
    crawl_of(other).store.reserve_host("a.test", 30.0, time.time())
    hold(one, 0.01)
    one.push(crawl_of(one).tickets.again(claim))
    time.sleep(0.02)
    assert urls_of(other, 1) == [None]


def test_work_left_counts_at_the_hosts_own_interval(server: Server) -> None:
    one = queue(server)
    slow = "walsh:{examplebot}:host:slow.test"
    crawl_of(one).store.book_host(HostRecord("slow.test", time.time(), 5.0))
    for name, pages in (("slow.test", 2), ("quick.test", 4)):
        for page in range(pages):
            one.push(Request(f"http://{name}/{page}"))
    server.client.hset(slow, "last_end", time.time() - 60)
    ready, waits = (LINE.removesuffix(":line:") + end for end in ("", ":waiting"))
    for key in (ready, waits):  # both were not due, and are now
        server.client.zrem(key, "slow.test", "quick.test")
    server.client.zadd(waits, {"slow.test": 1, "quick.test": 2})
    assert urls_of(one, 2) == ["http://slow.test/0", "http://quick.test/0"]


def test_the_queue_can_be_cleared(server: Server) -> None:
    one = queue(server)
    one.push(Request("http://a.test/"))
    one.clear()
    assert (len(one), one.pop()) == (0, None)


def test_what_comes_during_an_outage_is_sent_later(server: Server) -> None:
    one = queue(server)
    server.kill()
    one.push(Request("http://a.test/"))
    assert len(one) > 0
    assert one.pop() is None
    server.start()
    crawl_of(one).store.tend()  # type: ignore[attr-defined]
    server.client.delete("walsh:{examplebot}:calm")
    crawl_of(one).store.tend()  # type: ignore[attr-defined]
    assert urls_of(one, 1) == ["http://a.test/"]


def test_without_a_shared_store_there_is_no_queue() -> None:
    with pytest.raises(ConfigError, match="WALSH_SHARED_STATE"):
        queue(None)


def holds_of(line: DueQueue) -> list[tuple[str, float]]:
    """A list of the events that are recorded from now on: URL and wait in seconds."""
    found: list[tuple[str, float]] = []
    recorder = SimpleNamespace(record=lambda event: found.append((event.url, event.wait)))
    crawl_of(line).recorder = cast("Recorder", recorder)
    return found


def test_a_hold_is_told_once_by_who_asked_the_host(server: Server) -> None:
    one, other = queue(server), queue(server)
    crawl_of(one).pacing.named("a.test").traffic.raise_minimum(30.0)
    told, told_by_other = holds_of(one), holds_of(other)
    for page in range(3):
        one.push(Request(f"http://a.test/{page}"))
    assert urls_of(one, 1) == ["http://a.test/0"]
    assert told == []  # under way: its end says how long the hold is
    crawl_of(one).pacing.named("a.test").traffic.started()
    crawl_of(one).pacing.named("a.test").traffic.finished(time.monotonic())
    for _ in range(2):
        one.push(Request("http://a.test/3"))
    ((url, wait),) = told
    assert url == "http://a.test/3"
    assert 15 < wait <= 30
    assert urls_of(other, 1) == [None]
    assert told_by_other == []


def test_a_host_is_held_in_redis_until_its_own_interval_is_over(server: Server) -> None:
    one, other = queue(server), queue(server)
    one.push(Request("http://a.test/0"))
    one.push(Request("http://a.test/1"))
    assert urls_of(one, 1) == ["http://a.test/0"]
    crawl_of(one).store.reserve_host("a.test", 1.0, time.time())
    crawl_of(one).store.book_host(HostRecord("a.test", time.time(), 2.0))
    time.sleep(1.1)
    assert urls_of(other, 1) == [None]
    time.sleep(1.0)
    assert urls_of(other, 1) == ["http://a.test/1"]
