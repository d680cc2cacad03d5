"""Eight workers on 30 hosts: the spacing is kept, and while hosts are plenty they do not idle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_walsh.proof.sandbox import Route, hosts
from tests.crawl.harness import Run, site, targets
from tests.fleet.fleet import PATIENT, all_at_once, too_close, worker

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pytest

    from scrapy_walsh.proof.sandbox import LoggedRequest, Sandbox
    from tests.fleet.fleet import Server

WORKERS = 8
HOSTS = [f"h{number:02}.test" for number in range(30)]
#: Pages of each worker, and seconds of an answer: the wire is the limit, not the processor, and
#: eight workers leave each host alone for half of its time.
PAGES = 8
LATENCY = 0.8


def run(box: Sandbox, server: Server, folder: Path, count: int, pages: int) -> list[LoggedRequest]:
    """What *count* workers asked the hosts for, and nothing of an earlier run."""
    box.clear()
    server.client.flushall()
    workers: list[Run] = []
    for number in range(count):
        shifted = HOSTS[number * 30 // count :] + HOSTS
        urls = [f"http://{host}/page/{number}" for host in shifted[:pages]]
        options = {"WALSH_STATE_DIR": "memory", "LOG_LEVEL": "INFO"}
        each = worker(folder / f"{count}.{number}", box, server, urls, spider=PATIENT, **options)
        workers.append(each)
    all_at_once(workers)
    for each in workers:
        each.said()
    return [each for each in box.log if each.host in HOSTS]


def rate(log: Sequence[LoggedRequest], count: int) -> float:
    """Requests a second, until a first worker has asked for its last page."""
    ends = sorted(
        max(each.arrived for each in targets(log) if each.path == f"/page/{number}")
        for number in range(count)
    )
    begin, end = min(each.arrived for each in log), ends[0]
    return sum(each.arrived < end for each in log) / (end - begin)


def test_r4_6_eight_workers_on_thirty_hosts(
    box: Sandbox, server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for host in HOSTS:
        robots = Route(body="User-agent: *\nAllow: /\n", content_type="text/plain", delay=LATENCY)
        box.put(site(host, {"*": Route(body="p", delay=LATENCY)}, robots))
    one = rate(run(box, server, tmp_path, 1, 4), 1)
    log = run(box, server, tmp_path, WORKERS, PAGES)
    ratio = rate(log, WORKERS) / (WORKERS * one)
    with capsys.disabled():
        print(f"\none worker {one:.2f} requests/s, {WORKERS} workers {ratio:.2f} of {WORKERS} such")
    assert too_close(log) == []
    assert len(targets(log)) == WORKERS * PAGES
    assert len({(each.host, each.path) for each in log}) == len(log) == WORKERS * PAGES + 30
    assert sorted(hosts(log)) == HOSTS
    assert ratio >= 0.5
