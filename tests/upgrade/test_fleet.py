"""What version 0.1.0 left in Redis is read by a worker of today."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.proof.sandbox import Sandbox, paths
from tests.fleet.fleet import BINARY, Server, too_close
from tests.fleet.fleet import worker as start_worker
from tests.upgrade import world
from tests.upgrade.kit import DATA, UNREACHABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fleet.fleet import Worker

pytestmark = pytest.mark.skipif(
    BINARY is None, reason="no redis-server here: apt-get install redis-server"
)
LATE = "http://late.test/p"
#: Seconds between the end of the old worker and the start of the new one.
PAUSE = 60.0


def restore(server: Server) -> dict[str, bytes]:
    """Put the keys back as they would be :data:`PAUSE` seconds later; the values, moved."""
    data = json.loads((DATA / "redis.json").read_text())
    seconds, micros = server.client.time()
    by = seconds + micros / 1e6 - data["now"] - PAUSE
    values = {}
    for key, held in data["keys"].items():
        value = moved(key.partition("}:")[2], decoded(held["type"], held["value"]), by)
        put = {
            "string": server.client.set,
            "hash": lambda key, value: server.client.hset(key, mapping=value),
            "list": lambda key, value: server.client.rpush(key, *value),
            "set": lambda key, value: server.client.sadd(key, *value),
            "zset": server.client.zadd,
        }[held["type"]]
        put(key, value)
        values[key] = value
    return values


def decoded(kind: str, value: Any) -> Any:
    octets = base64.b64decode
    return {
        "string": lambda: octets(value),
        "hash": lambda: {octets(name): octets(each) for name, each in value.items()},
        "list": lambda: [octets(each) for each in value],
        "set": lambda: [octets(each) for each in value],
        "zset": lambda: {octets(each): score for each, score in value},
    }[kind]()


def moved(name: str, value: Any, by: float) -> Any:
    """*value* with every time in it *by* seconds later."""
    kind = name.partition(":")[0]
    if kind == "host":
        times = (b"last", b"until")
        return {k: b"%.6f" % (float(v) + by) if k in times else v for k, v in value.items()}
    if kind == "document":
        fields = json.loads(value[b"record"])
        at = fields["fetched_at"] + by
        record = json.dumps({**fields, "fetched_at": at}).encode()
        return {**value, b"fetched_at": b"%.6f" % at, b"record": record}
    if kind in ("source", "deferral"):
        field = "last_run_at" if kind == "source" else "due"
        fields = json.loads(value)
        return json.dumps({**fields, field: fields[field] + by}).encode()
    if name.endswith(":waiting"):
        return {host: due + by for host, due in value.items()}
    if name.endswith(":looked"):
        return {**value, b"at": b"%.6f" % (float(value[b"at"]) + by)}
    return value


class Continued:
    """A worker of today on the old keys."""

    def __init__(self, directory: Any, box: Sandbox, server: Server) -> None:
        for each in world.sites():
            box.put(each)
        for path in (world.LIST, world.SCHEMA):
            box.set_route("operator.test", path, UNREACHABLE)
        self.server, self.before = server, restore(server)
        # What the old worker was given, once more: the rows must answer for it.
        for url in (world.PAGE, world.BUSY, *world.SLOW, world.CLOSED, world.OPTED_OUT):
            server.client.rpush("probe:start_urls", json.dumps({"url": url}))
        self.worker: Worker = start_worker(
            directory / "worker",
            box,
            server,
            spider=world.FLEET_SPIDER,
            **world.fleet_settings(server.url),
        )
        self.output = self.worker.finish(90)
        self.log = box.log

    def key(self, name: str) -> str:
        return f"walsh:{{walsh-research}}:{name}"


@pytest.fixture(scope="module")
def continued(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Continued]:
    directory = tmp_path_factory.mktemp("redis")
    server = Server(directory)
    server.start()
    try:
        with Sandbox() as box:
            yield Continued(directory, box, server)
    finally:
        server.kill()


def test_own_the_old_queue_is_worked_off(continued: Continued) -> None:
    sent = {
        f"http://{host}{path}"
        for host in (*world.JOB_HOSTS, "late.test")
        for path in paths(continued.log, host)
        if path != "/robots.txt"
    }
    done = {key.partition(":source:")[2] for key in continued.before if ":source:" in key}
    assert {*sent, *done} >= {*world.JOB_PAGES, LATE}
    assert sent.isdisjoint(done)
    assert continued.server.client.zcard(continued.key("queue:probe:requests:line:job1.test")) == 0


def test_r8_what_the_old_worker_sent_is_not_due(continued: Continued) -> None:
    assert paths(continued.log, "page.test") == []
    assert world.PAGE in continued.output
    assert "not_due" in continued.output


def test_r5_the_old_hold_is_kept(continued: Continued) -> None:
    assert paths(continued.log, "busy.test") == []
    key = continued.key("host:busy.test")
    before = float(continued.before[key][b"until"])
    assert float(continued.server.client.hget(key, "until")) >= before - 1.0


def test_r4_the_old_crawl_delay_is_kept(continued: Continued) -> None:
    assert paths(continued.log, "slow.test") == []


def test_r2_r3_the_old_documents_bind_without_a_request(continued: Continued) -> None:
    for host in ("closed.test", "www.optout.test"):
        assert paths(continued.log, host) == []
    for host in world.JOB_HOSTS:
        assert "/robots.txt" not in paths(continued.log, host)


def test_r4_6_the_spacing_goes_on(continued: Continued) -> None:
    assert too_close(continued.log) == []
    assert "Traceback" not in continued.output
