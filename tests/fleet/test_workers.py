"""Workers on one Redis and no shared disk, judged from the sandbox's log of them all."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from scrapy_walsh.proof.sandbox import Route, paths, requests
from tests.crawl.harness import LIST_URL, OPERATOR, kept, listing, site, targets
from tests.fleet.fleet import too_close, worker

if TYPE_CHECKING:
    from pathlib import Path

    from scrapy_walsh.proof.sandbox import Sandbox
    from tests.fleet.fleet import Server

HOSTS = [f"h{number}.test" for number in range(4)]


def urls(of: int, pages: int = 2, hosts: list[str] = HOSTS) -> list[str]:
    return [f"http://{host}/page/{of}/{page}" for page in range(pages) for host in hosts]


def test_r4_6_workers_on_many_machines_keep_the_spacing_together(
    box: Sandbox, server: Server, tmp_path: Path
) -> None:
    for host in HOSTS:
        box.put(site(host, {"*": Route(body="p", delay=0.05)}))
    workers = [worker(tmp_path / str(n), box, server, urls(n)) for n in range(3)]
    for each in workers:
        each.said()
    log = box.log
    assert sorted(each.path for each in targets(log)) == sorted(
        f"/page/{n}/{page}" for n in range(3) for page in range(2) for _ in HOSTS
    )
    assert too_close(log) == []
    operator = [path for path in paths(log, "operator.test") if path != "/robots.txt"]
    assert sorted(operator) == sorted(set(operator))  # one worker's blocklist is all workers'
    for host in HOSTS:
        assert paths(log, host).count("/robots.txt") == 1


def test_r5_a_retry_after_met_by_one_worker_holds_for_the_others(
    box: Sandbox, server: Server, tmp_path: Path
) -> None:
    busy = Route(status=429, headers={"Retry-After": "4"}, body="")
    box.put(site("busy.test", {"/page/first": Route(sequence=[busy, Route(body="p")])}))
    one = worker(tmp_path / "one", box, server, ["http://busy.test/page/first"])
    while not targets(box.log):
        time.sleep(0.02)
    other = worker(tmp_path / "other", box, server, ["http://busy.test/page/other"])
    one.said()
    other.said()
    first, *rest = targets(box.log, "busy.test")
    assert first.status == 429
    assert sorted(each.path for each in rest) == ["/page/first", "/page/other"]
    assert kept([rest[0].arrived - (first.completed or 0)], 4.0)
    assert too_close(box.log) == []


def test_d8_a_deferral_of_one_worker_holds_for_the_others(
    box: Sandbox, server: Server, tmp_path: Path
) -> None:
    away = Route(status=503, headers={"Retry-After": "7200"}, body="")
    box.put(site("away.test", {"*": away}))
    worker(tmp_path / "one", box, server, ["http://away.test/page/1"]).said()
    output = worker(tmp_path / "other", box, server, ["http://away.test/page/2"]).said()
    assert [each.path for each in targets(box.log, "away.test")] == ["/page/1"]
    assert "deferred" in output
    assert len(requests(box.log, "away.test")) == 2  # robots.txt, once


def test_r8_what_one_worker_asked_the_others_do_not_ask(
    box: Sandbox, server: Server, tmp_path: Path
) -> None:
    shared = [f"http://{host}/page/same" for host in HOSTS]
    for host in HOSTS:
        box.put(site(host))
    workers = [worker(tmp_path / str(n), box, server, shared) for n in range(2)]
    for each in workers:
        each.said()
    assert sorted(f"http://{each.host}{each.path}" for each in targets(box.log)) == shared


def test_r3_a_list_that_one_worker_fetched_blocks_for_the_others(
    box: Sandbox, server: Server, tmp_path: Path
) -> None:
    one = worker(tmp_path / "one", box, server, ["http://path.test/page/1"])
    one.said()
    box.put(site("operator.test", {"*": Route(status=500, body="")}))
    seen = len(requests(box.log, "operator.test"))
    given = ["http://blocked.test/page/1", "http://path.test/page/2"]
    output = worker(tmp_path / "other", box, server, given).said()
    assert "blocked_operator" in output
    assert not requests(box.log, "blocked.test")
    assert len(requests(box.log, "operator.test")) == seen
    assert OPERATOR.startswith("http://operator.test/")


def test_r3b_a_list_of_another_address_blocks_for_all_workers(
    box: Sandbox, server: Server, tmp_path: Path
) -> None:
    """D39: a mirror that has no list, or an empty one, lifts nothing of the canonical list."""
    worker(tmp_path / "one", box, server, ["http://path.test/page/1"]).said()
    mirror = {"WALSH_BLOCKLIST_URL": "http://mirror.test/list.json"}
    box.put(site("mirror.test", {"/list.json": Route(404)}))
    given = ["http://blocked.test/page/1", "http://path.test/page/2"]
    output = worker(tmp_path / "two", box, server, given, **mirror).said()
    assert not requests(box.log, "blocked.test")
    assert "no blocklist loaded yet" not in output
    assert f"from {LIST_URL}" in output
    box.put(site("mirror.test", {"/list.json": listing("other.test")}))
    given = ["http://blocked.test/page/2", "http://path.test/page/3"]
    output = worker(tmp_path / "two", box, server, given, **mirror).said()
    assert "the operator lifted the opt-out of: " in output
    assert [each.path for each in targets(box.log, "blocked.test")] == ["/page/2"]
    # A third machine, which has never had a list, goes by the canonical address again.
    box.put(site("operator.test", {"*": Route(500)}))
    given = ["http://blocked.test/page/3", "http://other.test/page/3", "http://path.test/page/4"]
    worker(tmp_path / "three", box, server, given).said()
    assert [each.path for each in targets(box.log, "blocked.test")] == ["/page/2"]
    assert not requests(box.log, "other.test")
    assert "/page/4" in [each.path for each in targets(box.log, "path.test")]
