"""What somebody else has written into the fleet's Redis is data: never code, never in the way."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import msgpack
from scrapy import FormRequest, Request

from scrapy_walsh.adapters import compat
from scrapy_walsh.proof.sandbox import hosts
from tests.crawl.harness import OWN_IDENTITY, site, targets, wait_until
from tests.fleet.fleet import too_close, worker
from tests.fleet.test_scrapy_redis import LINE, crawl_of, queue

if TYPE_CHECKING:
    from pathlib import Path

    from scrapy_walsh.proof.sandbox import Sandbox
    from tests.fleet.fleet import Server

SIZE = "walsh:{examplebot}:queue:probe:requests:size"
ASIDE = "walsh:{examplebot}:queue:probe:requests:aside"
HEAD = json.dumps({"url": "http://a.test/", "source": "http://a.test/"})
SETTINGS = {
    "WALSH_IDENTITY": OWN_IDENTITY,
    "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
    "SCHEDULER_QUEUE_CLASS": "scrapy_walsh.adapters.redis_queue.DueQueue",
    "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
    "SCHEDULER_PERSIST": True,
    "MAX_IDLE_TIME_BEFORE_CLOSE": 4,
}
SPIDER = """
from scrapy_redis.spiders import RedisSpider
from scrapy_walsh.adapters.redis_queue import DueSpiderMixin

class Probe(DueSpiderMixin, RedisSpider):
    name = "probe"

    def __init__(self, urls="", **kwargs):
        super().__init__(**kwargs)

    def parse(self, response):
        print("ANSWERED", response.url, flush=True)
"""
#: Imported, it leaves a file behind.
MARKER = "from pathlib import Path\nPath('imported').touch()\nclass Request: pass\n"


def entry(**members: Any) -> bytes:
    """An entry as a worker writes it, with other *members*."""
    plain = {"url": "http://a.test/page/x", "headers": {}, "body": b"", "meta": {}}
    return HEAD.encode() + b"\n" + msgpack.encode({**plain, **members})


UNREADABLE = {
    "no JSON": "{",
    "no object": HEAD.encode() + b"\n" + msgpack.encode([]),
    "no head": b"[]\n" + msgpack.encode({}),
    "another module's class": entry(_class="marker.Request"),
    "a class of the standard library": entry(_class="subprocess.Popen"),
    "a class beside Scrapy's requests": entry(_class="scrapy.http.request.form.os.system"),
    "no method of the spider": entry(callback="nothing"),
    "what is no method": entry(callback="name"),
    "a method of Python's": entry(errback="__init__"),
    "no URL": entry(url=5),
    "headers that are no object": entry(headers=[1]),
    "a priority that is no number": entry(priority="x"),
    "meta that is no object": entry(meta=7),
    "depth": HEAD.encode() + b"\n" + b"\x91" * 100_000,
    "octets": b"\xff\xfe\x00",
}


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """No timers, and an engine that is done with everything at once."""
    monkeypatch.setattr("scrapy_walsh.adapters.compat.Timer.set", lambda *_: None)
    monkeypatch.setattr(compat, "under_way", lambda _: ())


def put(server: Server, name: str, data: str | bytes, arrival: str = "") -> None:
    """Write an entry into the line of a host, as a worker would."""
    number = (
        arrival or f"{server.client.incr('walsh:{examplebot}:queue:probe:requests:serial'):016}"
    )
    octets = data.encode() if isinstance(data, str) else data
    server.client.zadd(f"{LINE}{name}", {number.encode() + octets: 1})
    server.client.zadd("walsh:{examplebot}:queue:probe:requests", {name: 1})
    server.client.incr(SIZE)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("what", UNREADABLE)
def test_an_entry_that_cannot_be_read_is_set_aside_and_the_next_is_sent(
    server: Server, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    one = queue(server)
    put(server, "a.test", UNREADABLE[what])
    one.push(Request("http://a.test/page/good"))
    came = one.pop()
    assert came is not None
    assert came.url == "http://a.test/page/good"
    assert one.pop() is None
    assert len(one) == 0
    (kept,) = server.client.lrange(ASIDE, 0, -1)
    data = UNREADABLE[what]
    assert kept == (data.encode() if isinstance(data, str) else data)[: 64 * 1024]
    assert crawl_of(one).crawler.stats is not None
    assert crawl_of(one).crawler.stats.get_value("walsh/fleet/set_aside") == 1
    (line,) = [record.getMessage() for record in caplog.records if "set aside" in record.message]
    assert line.isprintable()


@pytest.mark.usefixtures("quiet")
def test_the_lines_about_what_is_set_aside_are_bounded(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    one = queue(server)
    for number in range(1100):
        put(server, f"h{number}.test", f"bad {number}")
    one.push(Request("http://a.test/page/good"))
    came = [one.pop() for _ in range(20)]
    assert [each.url for each in came if each is not None] == ["http://a.test/page/good"]
    assert server.client.llen(ASIDE) == 1000
    assert 0 < len([r for r in caplog.records if "set aside" in r.getMessage()]) < 30
    assert len(one) == 0


@pytest.mark.usefixtures("quiet")
def test_what_no_worker_has_written_is_set_aside(server: Server) -> None:
    one = queue(server)
    one.push(Request("http://b.test/page/good"))
    server.client.zadd(f"{LINE}a.test", {b"raw": 1})
    server.client.zadd("walsh:{examplebot}:queue:probe:requests", {"a.test": 9, "gone.test": 8})
    came = [one.pop() for _ in range(3)]
    assert [each.url for each in came if each is not None] == ["http://b.test/page/good"]
    assert len(one) == 0


@pytest.mark.usefixtures("quiet")
def test_an_entry_comes_out_as_a_plain_request(server: Server) -> None:
    one = queue(server)
    one.push(
        FormRequest(
            "http://a.test/page", formdata={"a": "b"}, callback=crawl_of(one).crawler.spider.parse
        )
    )
    (data,) = server.client.zrange(f"{LINE}a.test", 0, -1)
    assert b"_class" not in data
    came = one.pop()
    assert type(came) is Request
    assert (came.method, came.body) == ("POST", b"a=b")
    assert came.callback == crawl_of(one).crawler.spider.parse


@pytest.mark.usefixtures("quiet")
def test_r6_a_callback_declares_nothing_by_way_of_the_queue(server: Server) -> None:
    one, other = queue(server), queue(server)
    for each in (one, other):
        crawl_of(each).scope.follow_links = False
    crawl_of(one).intake.declare(
        Request("http://a.test/", meta={"walsh_also": ["http://a.test/also"]})
    )
    meta = {"walsh_also": ["http://a.test/also", "http://evil.test/"]}
    one.push(Request("http://a.test/", meta=meta))
    assert other.pop() is not None
    assert crawl_of(other).scope.refuses("http://a.test/also") is None
    assert crawl_of(other).scope.refuses("http://evil.test/") is not None


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("declared", [True, False])
def test_r6_a_callback_lets_no_sitemap_index_declare_by_way_of_the_queue(
    server: Server, declared: bool
) -> None:
    one, other = queue(server), queue(server)
    meta = {"walsh_children": ["http://a.test/", "http://evil.test/"]}
    if declared:
        given = {"walsh_children": ["http://a.test/"]}
        crawl_of(one).intake.declare(Request("http://a.test/", meta=given))
    one.push(Request("http://a.test/", meta=meta))
    assert other.pop() is not None
    assert crawl_of(other).scope.allows_children("http://a.test/") is declared
    assert not crawl_of(other).scope.allows_children("http://evil.test/")


@pytest.mark.usefixtures("quiet")
def test_the_queue_holds_no_password(server: Server) -> None:
    one = queue(server)
    one.push(
        Request(
            "http://me:hidden@a.test/page",
            meta={"proxy": "http://p.test", "_scheme_proxy": True, "_auth_proxy": "http://p.test"},
            headers={"Proxy-Authorization": "Basic hidden"},
        )
    )
    (data,) = server.client.zrange(f"{LINE}a.test", 0, -1)
    assert b"hidden" not in data
    came = one.pop()
    assert came is not None
    assert came.url == "http://a.test/page"


def test_bad_lines_of_the_list_lose_nothing_but_themselves(
    box: Sandbox, server: Server, tmp_path: Path
) -> None:
    box.put(site("a.test"))
    box.put(site("b.test"))
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "marker.py").write_text(MARKER)
    lines = [
        "{",
        "no url at all",
        "5",
        json.dumps({"method": "GET"}),
        json.dumps({"url": "http://a.test/page/1"}),
        json.dumps({"url": "http://a.test/page/2", "meta": 5}),
        json.dumps({"url": "http://a.test/page/3", "method": 7}),
        b"\xff\x1b[31m",
        json.dumps({"url": "http://me:hidden@b.test/page/4"}),
    ]
    server.client.rpush("probe:start_urls", *lines)
    for _ in range(5):
        put(server, "a.test", entry(_class="marker.Request"))
    crawl = worker(tmp_path / "one", box, server, spider=SPIDER, **SETTINGS, REDIS_URL=server.url)
    said = crawl.said(code=1)
    assert sorted(each.path for each in targets(box.log)) == ["/page/1", "/page/4"]
    assert too_close(box.log) == []
    assert "a.test" in hosts(box.log)
    assert not (tmp_path / "one" / "imported").exists()
    assert server.client.llen("probe:start_urls:aside") == 7
    assert said.count("is set aside in probe:start_urls:aside") == 7
    assert "Traceback" not in said
    assert "\x1b[31m" not in said  # scrapy-redis's own colour is another
    assert "hidden" not in said
    wait_until(lambda: server.client.get(SIZE) in (None, b"0"), 5)
