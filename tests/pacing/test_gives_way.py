"""D30: a target gives way after its host's robots.txt, and T1's exemption stays with it.

Judged from the server's own log, and by ``verify``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.proof.sandbox import Sandbox, max_in_flight, requests
from tests.crawl.harness import (
    Crawl,
    crawl,
    kept,
    make_project,
    rules,
    run_scrapy,
    site,
    state_dir,
    too_soon,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DELAY = 2.5
#: The second one is found to be slow after the robots.txt of the first was read.
QUICK, SLOW, SINGLE = "quick.test", "slow.test", "single.test"
URLS = [
    *(f"http://{QUICK}/{page}" for page in range(4)),
    *(f"http://{SLOW}/{page}" for page in range(3)),
    f"http://{SINGLE}/0",
]


def run_with(**settings: Any) -> Callable[[Path], tuple[Crawl, int, str]]:
    """A crawl of all three, and what ``verify`` says of its ledger."""

    def begin(directory: Path) -> tuple[Crawl, int, str]:
        with Sandbox() as box:
            for host in (QUICK, SINGLE):
                box.put(site(host))
            box.put(site(SLOW, robots=rules(f"Crawl-delay: {DELAY}")))
            project = make_project(directory, settings=settings)
            result = crawl(project, box, *URLS)
            state = str(state_dir(project))
            done = run_scrapy(project, box, "verify", state, module="scrapy_walsh")
        return result, done.returncode, done.stdout

    return begin


CRAWLS = {
    "memory": run_with(),
    "jobdir": run_with(JOBDIR="job"),
    "paced": run_with(WALSH_PACE_ROBOTS=True),
}


def order(result: Crawl) -> list[str]:
    """What was requested of the three, as ``host/path``."""
    return [
        f"{each.host}{each.path}" for each in requests(result.log) if each.host != "operator.test"
    ]


@pytest.mark.parametrize("name", CRAWLS)
def test_r4_3_every_gap_is_kept_and_verify_agrees(
    crawls: Callable[[str], tuple[Crawl, int, str]], name: str
) -> None:
    result, code, said = crawls(name)
    assert sorted(item["url"] for item in result.items) == sorted(URLS)
    assert max_in_flight(result.log) == 1
    assert too_soon(result.log) == []
    assert kept(result.gaps(SLOW)[1:], DELAY)
    assert code == 0, said


@pytest.mark.parametrize("name", ["memory", "jobdir"])
def test_a_target_gives_way_to_a_host_with_more_work_left(
    crawls: Callable[[str], tuple[Crawl, int, str]], name: str
) -> None:
    result, _, _ = crawls(name)
    first = [f"{QUICK}/robots.txt", f"{SLOW}/robots.txt", f"{SLOW}/0", f"{QUICK}/0"]
    assert [each for each in order(result) if each in first] == first


@pytest.mark.parametrize("name", ["memory", "jobdir"])
def test_t1_the_target_that_gave_way_is_still_exempt(
    crawls: Callable[[str], tuple[Crawl, int, str]], name: str
) -> None:
    result, _, _ = crawls(name)
    assert result.gaps(QUICK)[0] < 1.0
    assert result.gaps(SLOW)[0] < 1.0


@pytest.mark.parametrize("name", ["memory", "jobdir"])
def test_the_only_target_of_a_host_follows_its_robots_txt(
    crawls: Callable[[str], tuple[Crawl, int, str]], name: str
) -> None:
    asked = order(crawls(name)[0])
    at = asked.index(f"{SINGLE}/robots.txt")
    assert asked[at + 1] == f"{SINGLE}/0"


def test_r4_2_paced_it_waits_a_second_and_not_the_crawl_delay(
    crawls: Callable[[str], tuple[Crawl, int, str]],
) -> None:
    result, _, _ = crawls("paced")
    for host in (QUICK, SLOW, SINGLE):
        assert kept(result.gaps(host)[:1], 1.0)
    assert result.gaps(SLOW)[0] < DELAY - 0.2
