"""D28, T43: what a host, or a server of many hosts, has taught one worker binds the others."""

from __future__ import annotations

import itertools
import json
import time
from typing import TYPE_CHECKING

from scrapy_walsh.commands.main import main
from scrapy_walsh.policy.throttle import Learned
from scrapy_walsh.proof.sandbox import Route, requests
from scrapy_walsh.state.records import HostRecord
from tests.crawl.harness import TOLERANCE, Limit, site, state_dir, targets
from tests.fleet.fleet import PATIENT, all_at_once, too_close, worker
from tests.fleet.test_scrapy_redis import crawl_of, queue
from tests.ledger.test_crawl import ledger_of

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from scrapy_walsh.proof.sandbox import Sandbox
    from tests.fleet.fleet import Server

HOST = "limited.test"
PAUSE = 2.0


def urls(of: str, pages: int) -> list[str]:
    return [f"http://{HOST}/page/{of}/{page}" for page in range(pages)]


def refused(box: Sandbox) -> int:
    return sum(each.status == 429 for each in requests(box.log, HOST))


def test_a_worker_begins_with_what_another_one_has_learned(
    box: Sandbox, server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limit = Limit(PAUSE)
    box.put(site(HOST, {"*": limit, "/robots.txt": limit}))
    first = worker(tmp_path / "one", box, server, urls("one", 6)).said()
    before = refused(box)
    assert (before <= 4, "after its next accepted answer" in first) == (True, True)
    worker(tmp_path / "other", box, server, urls("other", 4)).said()
    assert refused(box) == before
    assert too_close([each for each in targets(box.log) if "other" in each.path], PAUSE) == []
    taken = [line for line in ledger_of(tmp_path / "other") if line.get("taught")]
    assert [line["host"] for line in taken] == [HOST]
    for name in ("one", "other"):
        capsys.readouterr()
        main(["verify", str(state_dir(tmp_path / name)), "--json"])
        assert json.loads(capsys.readouterr().out)["findings"] == []


def test_workers_space_the_hosts_of_one_server_together(
    box: Sandbox, server: Server, tmp_path: Path
) -> None:
    """Each worker has hosts of its own, and the first answer of one is a 429."""
    names = [f"{number}.blog.test" for number in range(4)]
    for name in names:
        refusing = Route(sequence=(Route(429, headers={"Retry-After": "3"}), Route(body="page")))
        box.put(site(name, {"/page": refusing if name == names[0] else Route(body="page")}))
    pace_by = {"*.blog.test": "blogs"}
    crews = [
        worker(
            tmp_path / name,
            box,
            server,
            [f"http://{host}/page" for host in hosts],
            spider=PATIENT,
            WALSH_PACE_BY=pace_by,
        )
        for name, hosts in (("one", names[:2]), ("two", names[2:]))
    ]
    all_at_once(crews)
    for each in crews:
        each.said()
    log = sorted(
        (each for each in requests(box.log) if each.host.endswith(".blog.test")),
        key=lambda each: each.arrived,
    )
    assert len(log) == 2 * len(names) + 1
    for earlier, later in itertools.pairwise(log):
        least = 3.0 if earlier.status == 429 else 1.0
        assert later.arrived - earlier.arrived >= least - TOLERANCE
    for name in ("one", "two"):
        assert main(["verify", str(state_dir(tmp_path / name))]) == 0


def test_a_worker_takes_it_with_its_next_booking(server: Server) -> None:
    """It began before the others had learned anything."""
    one, other = queue(server), queue(server)
    pacing = crawl_of(one).pacing
    host = pacing.host_of("http://a.test/")
    taught = Learned(4.0, 0.0, 3, time.time())
    crawl_of(other).store.book_host(HostRecord(host.key, time.time(), 1.0, taught=taught))
    assert host.traffic.interval == 1.0
    booking = pacing.reserve(host)
    assert booking is not None
    assert 1.0 < booking.wait <= 4.0
    assert host.traffic.interval == 4.0
    assert host.newly_taken()[:3] == (4.0, 0.0, 3.0)
    assert host.newly_taken() == ()


def test_workers_side_by_side_learn_together(
    box: Sandbox, server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limit = Limit(PAUSE)
    box.put(site(HOST, {"*": limit, "/robots.txt": limit}))
    names = ("one", "other")
    workers = [worker(tmp_path / name, box, server, urls(name, 7)) for name in names]
    for each in workers:
        each.said()
    assert len({each.path for each in targets(box.log) if each.status == 200}) == 14
    assert refused(box) <= 4
    for name in names:
        capsys.readouterr()
        main(["verify", str(state_dir(tmp_path / name)), "--json"])
        assert json.loads(capsys.readouterr().out)["findings"] == []
