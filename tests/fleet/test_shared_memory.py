"""What one worker of a fleet has seen counts for the others, too."""

from __future__ import annotations

import json
import signal
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from scrapy_walsh.proof.ledger import lifted_holds
from scrapy_walsh.proof.sandbox import Route
from scrapy_walsh.state import open_store
from scrapy_walsh.state.records import ROBOTS, StoredDocument, Validators
from tests.crawl.harness import (
    DAY,
    OWN_IDENTITY,
    Run,
    run_scrapy,
    site,
    state_dir,
    targets,
    verify,
)
from tests.fleet.fleet import worker
from tests.fleet.test_scrapy_redis import FLEET_SPIDER, settings

if TYPE_CHECKING:
    from pathlib import Path

    from scrapy_walsh.proof.sandbox import LoggedRequest, Sandbox
    from tests.fleet.fleet import Server

RULES = "User-agent: *\nDisallow: /private/\n"
ORIGIN = "http://h.test"
PAGE = Route(body="<!DOCTYPE html><title>Parked</title>", content_type="text/html")


def _document(server: Server) -> str:
    (name,) = server.client.keys(f"*document:{ROBOTS} {ORIGIN}")
    return str(name.decode())


def a_day_passes(server: Server, *workers: Path) -> None:
    """Make the robots.txt a day older in Redis and in each worker's copy."""
    name = _document(server)
    for field in ("fetched_at", "page_at"):
        if server.client.hexists(name, field):
            server.client.hincrbyfloat(name, field, -DAY)
    for project in workers:
        store = open_store(state_dir(project))
        found = store.get(StoredDocument, ROBOTS, ORIGIN)
        if found is not None:
            at = None if found.page_at is None else found.page_at - DAY
            store.put(replace(found, fetched_at=found.fetched_at - DAY, page_at=at))
        store.close()


def test_r2_the_days_of_a_page_are_counted_for_the_whole_fleet(
    box: Sandbox, server: Server, tmp_path: Path
) -> None:
    """D44: neither believes it before its third day, and both count on one tally."""
    one, two = tmp_path / "one", tmp_path / "two"
    box.put(site("h.test", robots=RULES))
    worker(one, box, server, [f"{ORIGIN}/open/0"]).said()
    box.set_route("h.test", "/robots.txt", PAGE)
    counts = []
    for day, project in enumerate((two, one, two), 1):
        a_day_passes(server, one, two)
        box.clear()
        urls = [f"{ORIGIN}/open/{day}", f"{ORIGIN}/private/{day}"]
        worker(project, box, server, urls).said()
        asked = [each.path for each in targets(box.log, "h.test")]
        believed = day == 3
        assert asked == ([f"/open/{day}", f"/private/{day}"] if believed else [f"/open/{day}"])
        counts.append(int(float(server.client.hget(_document(server), "pages") or 0)))
    assert counts == [1, 2, 0]


LINKS = FLEET_SPIDER.replace("http://links.test/page/undeclared", "http://slow.test/next")


def queue(server: Server) -> dict[str, Any]:
    return {**settings(server), "WALSH_IDENTITY": OWN_IDENTITY, "WALSH_FOLLOW_LINKS": True}


def test_r7_a_link_in_the_shared_queue_counts_as_delivered(
    box: Sandbox, server: Server, tmp_path: Path
) -> None:
    """D42: the worker that took the page is stopped before the link is sent, by another one."""
    routes = {"/index": Route(body="page", etag='"1"'), "/next": Route(body="next")}
    box.put(site("index.test", routes))
    box.put(site("slow.test", routes, "User-agent: *\nCrawl-delay: 6\n"))
    server.client.rpush("probe:start_urls", json.dumps({"url": "http://slow.test/index"}))

    def taken(log: list[LoggedRequest]) -> bool:
        return any(each.path == "/index" and each.completed for each in log)

    one: Run = worker(tmp_path / "one", box, server, spider=LINKS, **queue(server))
    assert one.comes_to(taken)
    time.sleep(1.0)  # the callback ends, and its link goes to Redis
    one.process.send_signal(signal.SIGINT)
    assert one.finish().returncode == 0
    assert [each.path for each in targets(box.log)] == ["/index"]
    store = open_store(state_dir(one.project))
    assert [each.url for each in store.rows(Validators)] == ["http://slow.test/index"]
    store.close()
    worker(tmp_path / "two", box, server, spider=LINKS, **queue(server)).said()
    assert [each.path for each in targets(box.log)] == ["/index", "/next"]


def test_d40_each_worker_writes_down_a_hold_that_was_lifted_on_another_machine(
    box: Sandbox, server: Server, tmp_path: Path
) -> None:
    """So `verify` accepts what the worker that was told to wait sends after it."""
    wait = Route(status=429, headers={"Retry-After": "9999999999"}, body="")
    box.put(site("h.test", {"*": wait}))
    one, two = tmp_path / "one", tmp_path / "two"
    worker(one, box, server, ["http://h.test/a"]).said()
    box.put(site("h.test"))
    worker(two, box, server, ["http://h.test/b"]).said()
    assert [each.path for each in targets(box.log, "h.test")] == ["/a"]
    lift = ("walsh", "state", "forget", "h.test", "--hold", "a mistake, says the owner")
    assert run_scrapy(two, box, *lift).returncode == 0
    for number in range(2):  # the second run writes no second line
        worker(one, box, server, [f"http://h.test/c{number}"]).said()
    assert [each.path for each in targets(box.log, "h.test")] == ["/a", "/c0", "/c1"]
    for project in (one, two):
        assert [each["host"] for each in lifted_holds(state_dir(project))] == ["h.test"]
        code, printed = verify(state_dir(project))
        assert code == 0, printed
    # A hold that begins later is nobody's mistake.
    box.put(site("h.test", {"*": wait}))
    worker(one, box, server, ["http://h.test/d"]).said()
    worker(one, box, server, ["http://h.test/e"]).said()
    assert [each.path for each in targets(box.log, "h.test")][-1] == "/d"
