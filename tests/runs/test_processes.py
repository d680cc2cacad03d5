"""R4.6: several processes on one state directory are, to a host, one bot."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from scrapy_walsh.proof import exchanges
from scrapy_walsh.proof.sandbox import LoggedRequest, Request, Route, Sandbox, exchanged, requests
from tests.crawl.harness import TOLERANCE, make_project, run_scrapy, site

PROCESSES = 3
PLAIN = [f"plain{number}.test" for number in range(6)]
DELAYED, HELD = "delayed.test", "held.test"
DELAY, RETRY_AFTER = 1.5, 4
PAGES = 2


def at_first_busy(request: Request) -> Route:
    """429 to the first target that anybody asks for, a page to all others."""
    asked = [each for each in request.log if each.host == HELD and each.path != "/robots.txt"]
    if len(asked) == 1:
        return Route(429, headers={"Retry-After": str(RETRY_AFTER)})
    return Route(body="page")


@dataclass
class Fleet:
    """What the server saw of all processes, and what each said."""

    log: list[LoggedRequest]
    outputs: list[str]
    returncodes: list[int]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    directory = tmp_path_factory.mktemp("fleet")
    shared = ("-s", f"WALSH_STATE_DIR={directory / 'state'}")
    projects = [make_project(directory / str(number)) for number in range(PROCESSES)]
    with Sandbox() as box:
        for host in PLAIN:
            box.put(site(host))
        box.put(site(DELAYED, robots=f"User-agent: *\nCrawl-delay: {DELAY}\n"))
        box.put(site(HELD, {"*": at_first_busy}))

        def work(number: int) -> tuple[str, int]:
            pages = [f"{number}/{page}" for page in range(PAGES)]
            urls = " ".join(
                f"http://{host}/{page}" for page in pages for host in (*PLAIN, DELAYED, HELD)
            )
            done = run_scrapy(
                projects[number], box, "crawl", "probe", "-a", f"urls={urls}", *shared
            )
            return done.stdout, done.returncode

        with ThreadPoolExecutor(PROCESSES) as pool:
            ended = list(pool.map(work, range(PROCESSES)))
        log = requests(box.log)
    return Fleet(log, [output for output, _ in ended], [code for _, code in ended])


def too_close(log: list[LoggedRequest], host: str, seconds: float) -> list[exchanges.Gap[Any]]:
    """Start to start, since no process knows when another's request was answered."""
    together = exchanges.by_start(exchanged(log, host))
    return exchanges.too_soon(together, seconds, TOLERANCE)


def test_r4_6_every_target_is_asked_by_its_process(fleet: Fleet) -> None:
    assert fleet.returncodes == [0] * PROCESSES
    assert not any("Traceback" in output for output in fleet.outputs)
    for host in (*PLAIN, DELAYED):
        targets = [each.path for each in requests(fleet.log, host) if each.path != "/robots.txt"]
        assert sorted(targets) == [f"/{n}/{p}" for n in range(PROCESSES) for p in range(PAGES)]


@pytest.mark.parametrize("host", PLAIN)
def test_r4_6_together_never_above_one_a_second(fleet: Fleet, host: str) -> None:
    assert len(requests(fleet.log, host)) > PROCESSES * PAGES
    assert not too_close(fleet.log, host, 1.0)


def test_r4_6_the_crawl_delay_holds_for_all_together(fleet: Fleet) -> None:
    targets = [each for each in requests(fleet.log, DELAYED) if each.path != "/robots.txt"]
    assert len(targets) > PROCESSES
    assert not too_close(targets, DELAYED, DELAY)


def test_r5_3_a_retry_after_met_by_one_holds_for_the_others(fleet: Fleet) -> None:
    asked = requests(fleet.log, HELD)
    (refused,) = [each for each in asked if each.status == 429]
    after = [each for each in asked if each.arrived > refused.arrived]
    assert len(after) >= PROCESSES * PAGES
    log = [each._replace(hold=RETRY_AFTER * (each.of is refused)) for each in exchanged(asked)]
    assert not list(exchanges.held(log, TOLERANCE))
    assert not too_close(fleet.log, HELD, 1.0)
