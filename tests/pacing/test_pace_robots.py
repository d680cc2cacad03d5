"""T1: what the first robots.txt of a host costs the target after it, switch off and on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.proof.sandbox import Route, Sandbox, max_in_flight
from tests.crawl.harness import Crawl, age_document, crawl, kept, make_project, rules, site, targets

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DELAY = 3
OPEN = rules("Allow: /")
SITES = (
    site("plain.test", robots=rules(f"Crawl-delay: {DELAY}")),
    site("none.test", robots=Route(404)),
    site("moved.test", {"/rules.txt": OPEN}, Route(301, location="/rules.txt")),
    site(
        "away.test",
        {"/0": Route(302, location="http://rules.test/0")},
        Route(302, location="http://rules.test/robots.txt"),
    ),
    site("rules.test"),
    site("retried.test", robots=Route(sequence=(Route(503), OPEN))),
    site("closed.test", robots=Route(sequence=(Route(behaviour="close"), OPEN))),
)


def both_runs(*, pace_robots: bool) -> Callable[[Path], tuple[Crawl, Crawl]]:
    """A first crawl, and a second one that has to ask for a robots.txt again."""

    def begin(directory: Path) -> tuple[Crawl, Crawl]:
        settings: dict[str, Any] = {"WALSH_BACKOFF_BASE": 0.01, "WALSH_PACE_ROBOTS": pace_robots}
        with Sandbox() as box:
            for each in SITES:
                box.put(each)
            project = make_project(directory, settings=settings)
            urls = [f"http://{each.host}/0" for each in SITES if each.host != "rules.test"]
            first = crawl(project, box, *urls, "http://plain.test/1")
            age_document(project, "robots", "http://none.test")
            return first, crawl(project, box, "http://none.test/again")

    return begin


CRAWLS = {"exempt": both_runs(pace_robots=False), "paced": both_runs(pace_robots=True)}


def gap_before(result: Crawl, host: str, path: str) -> float:
    """Seconds from the answer before to the first request for *path*."""
    return result.gaps(host)[result.asked(host).index(path) - 1]


@pytest.mark.parametrize("name", CRAWLS)
def test_r4_1_serial(crawls: Callable[[str], tuple[Crawl, Crawl]], name: str) -> None:
    first, _ = crawls(name)
    assert max_in_flight(first.log) == 1
    pages = {(each.host, each.path) for each in targets(first.log) if each.path != "/rules.txt"}
    assert pages == {*((each.host, "/0") for each in SITES), ("plain.test", "/1")}


@pytest.mark.parametrize("host", ["plain.test", "none.test"])
def test_r4_4_the_first_robots_txt_delays_its_target_by_nothing(
    crawls: Callable[[str], tuple[Crawl, Crawl]], host: str
) -> None:
    first, _ = crawls("exempt")
    assert first.asked(host)[:2] == ["/robots.txt", "/0"]
    assert gap_before(first, host, "/0") < 1.0


@pytest.mark.parametrize("host", ["plain.test", "none.test"])
def test_r4_2_paced_it_delays_its_target_by_a_second_and_not_the_crawl_delay(
    crawls: Callable[[str], tuple[Crawl, Crawl]], host: str
) -> None:
    first, _ = crawls("paced")
    assert first.asked(host)[:2] == ["/robots.txt", "/0"]
    assert kept([gap_before(first, host, "/0")], 1.0)
    assert gap_before(first, host, "/0") < DELAY - 0.2


@pytest.mark.parametrize("name", CRAWLS)
def test_r4_3_the_second_target_waits_out_the_crawl_delay(
    crawls: Callable[[str], tuple[Crawl, Crawl]], name: str
) -> None:
    first, _ = crawls(name)
    assert first.asked("plain.test") == ["/robots.txt", "/0", "/1"]
    assert kept([gap_before(first, "plain.test", "/1")], DELAY)


@pytest.mark.parametrize("name", CRAWLS)
@pytest.mark.parametrize("host", ["moved.test", "retried.test", "closed.test"])
def test_r4_2_a_robots_txt_that_took_two_requests_exempts_nothing(
    crawls: Callable[[str], tuple[Crawl, Crawl]], name: str, host: str
) -> None:
    first, _ = crawls(name)
    assert len(first.asked(host)) == 3
    assert first.asked(host)[-1] == "/0"
    assert kept(first.gaps(host), 1.0)


@pytest.mark.parametrize("name", CRAWLS)
def test_r4_2_a_hop_to_another_host_exempts_neither(
    crawls: Callable[[str], tuple[Crawl, Crawl]], name: str
) -> None:
    first, _ = crawls(name)
    assert first.asked("away.test") == ["/robots.txt", "/0"]
    assert kept(first.gaps("away.test"), 1.0)
    assert first.asked("rules.test") == ["/robots.txt", "/robots.txt", "/0"]
    assert kept(first.gaps("rules.test"), 1.0)


@pytest.mark.parametrize("name", CRAWLS)
def test_r4_2_a_host_that_an_earlier_run_asked_has_no_exemption(
    crawls: Callable[[str], tuple[Crawl, Crawl]], name: str
) -> None:
    _, second = crawls(name)
    assert second.asked("none.test") == ["/robots.txt", "/again"]
    assert kept(second.gaps("none.test"), 1.0)
