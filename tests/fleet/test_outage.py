"""Redis goes away during a crawl, or is not there yet: nothing leaves, nothing is lost."""

from __future__ import annotations

import re
import signal
import time
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.proof.sandbox import Sandbox, requests
from tests.crawl.harness import Run, site, targets, wait_until
from tests.fleet.fleet import PATIENT, Server, all_at_once, settled, too_close, worker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOSTS = ["a.test", "b.test"]
#: Of each host and worker; the hosts are asked once a second, by both workers together.
PAGES = 5


def urls(of: int) -> list[str]:
    return [f"http://{host}/page/{of}/{page}" for page in range(PAGES) for host in HOSTS]


@pytest.fixture
def lasting(tmp_path: Path) -> Iterator[Server]:
    """A Redis that keeps its records on disk."""
    running = Server(tmp_path, keep=True)
    running.start()
    yield running
    running.kill()


def begin(box: Sandbox, server: Server, tmp_path: Path, count: int = 2) -> list[Run]:
    for host in HOSTS:
        box.put(site(host))
    folders = [tmp_path / str(n) for n in range(count)]
    return [worker(each, box, server, urls(int(each.name)), spider=PATIENT) for each in folders]


def both_ask(box: Sandbox, *workers: Run) -> None:
    """Return when each of the two has asked for a page of its own."""
    all_at_once(workers)
    wait_until(lambda: {each.path.split("/")[2] for each in targets(box.log)} == {"0", "1"})


def shut(box: Sandbox, *workers: Run) -> int:
    """Return how many requests there are, once each worker has said that it waits for Redis."""
    wait_until(lambda: waits(*workers))
    said = len(requests(box.log))
    seen = settled(box)
    assert seen <= said + len(workers)  # what was booked before may still leave
    assert len(targets(box.log)) < len(workers) * len(urls(0)), "nothing was left to keep back"
    return seen


def waits(*workers: Run) -> bool:
    return all("nothing is sent until it is back" in each.output for each in workers)


def check_all_fetched(box: Sandbox, workers: int) -> None:
    wanted = sorted(url for of in range(workers) for url in urls(of))
    assert sorted(f"http://{each.host}{each.path}" for each in targets(box.log)) == wanted
    assert too_close(box.log) == []


def test_while_redis_is_away_nothing_leaves_and_then_the_crawl_goes_on(
    box: Sandbox, lasting: Server, tmp_path: Path
) -> None:
    workers = begin(box, lasting, tmp_path)
    both_ask(box, *workers)
    lasting.kill()
    seen = shut(box, *workers)
    lasting.start()
    for each in workers:
        output = each.said()
        assert len(re.findall("nothing is sent until it is back", output)) == 1, output
        assert len(re.findall(r"the shared store \S+ is back", output)) == 1
        assert "Traceback" not in output
    check_all_fetched(box, 2)
    assert requests(box.log)[seen].arrived > lasting.started


def test_a_redis_that_comes_back_empty_is_told_before_anything_leaves(
    box: Sandbox, server: Server, tmp_path: Path
) -> None:
    workers = begin(box, server, tmp_path)
    both_ask(box, *workers)
    server.kill()
    seen = shut(box, *workers)
    server.start()
    for each in workers:
        each.said()
    check_all_fetched(box, 2)
    assert requests(box.log)[seen].arrived > server.started + 2


def test_a_crawl_that_starts_without_redis_waits_for_it(box: Sandbox, tmp_path: Path) -> None:
    server = Server(tmp_path)
    (one,) = begin(box, server, tmp_path, count=1)
    all_at_once([one])
    wait_until(lambda: waits(one))
    assert not requests(box.log)
    server.start()
    one.said()
    server.kill()
    check_all_fetched(box, 1)


def test_ctrl_c_ends_a_crawl_that_waits_for_redis(box: Sandbox, tmp_path: Path) -> None:
    (one,) = begin(box, Server(tmp_path), tmp_path, count=1)
    all_at_once([one])  # Scrapy 2.13 logs a traceback where its own start task has not begun yet
    wait_until(lambda: waits(one))
    began = time.monotonic()
    one.process.send_signal(signal.SIGINT)
    output = one.said()
    assert time.monotonic() - began < 5
    assert not requests(box.log)
    assert "Traceback" not in output
