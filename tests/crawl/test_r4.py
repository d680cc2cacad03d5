"""R4: one request at a time, a host not before its time, judged by the sandbox's clock."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.proof.sandbox import Route, Sandbox, gaps, max_in_flight, requests
from tests.crawl.harness import Crawl, crawl, kept, make_project, run_scrapy, site, solo

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FRESH = [f"fresh{number}.test" for number in range(5)]


@pytest.fixture(scope="module")
def paced(tmp_path_factory: pytest.TempPathFactory) -> Crawl:
    sites = (
        site("each.test", {"*": Route(body="p", delay=0.1)}),
        site("fraction.test", robots="User-agent: *\nCrawl-delay: 0.5\n"),
        site("words.test", robots="User-agent: *\nCrawl-delay: soon\n"),
        site("ports.test"),
        site("ports.test:8080"),
        site("both.test"),
        *(site(host) for host in FRESH),
    )
    return solo(
        tmp_path_factory.mktemp("paced"),
        *(f"http://each.test/{number}" for number in range(3)),
        *(f"http://delay.test/{number}" for number in range(3)),
        *(f"http://fraction.test/{number}" for number in range(2)),
        *(f"http://words.test/{number}" for number in range(2)),
        "http://ports.test/a",
        "http://ports.test:8080/a",
        "http://both.test/a",
        "https://both.test/a",
        *(f"http://{host}/a" for host in FRESH),
        sites=sites,
        settings={"DOWNLOAD_DELAY": 1, "RANDOMIZE_DOWNLOAD_DELAY": True, "CONCURRENT_REQUESTS": 32},
    )


def test_r4_1_requests_are_serial(paced: Crawl) -> None:
    assert len(requests(paced.log)) > 20
    assert max_in_flight(paced.log) == 1
    assert min(gaps(paced.log)) >= 0


@pytest.mark.parametrize("host", ["each.test", "fraction.test", "words.test"])
def test_r4_2_never_above_one_request_per_second_per_host(paced: Crawl, host: str) -> None:
    assert kept(paced.gaps(host)[1:], 1.0)  # after robots.txt and the first target (T1)


def test_r4_3_the_crawl_delay_is_the_spacing_where_it_is_longer(paced: Crawl) -> None:
    assert kept(paced.gaps("delay.test")[1:], 2.0)


def test_r4_4_the_first_request_to_an_unseen_host_is_not_delayed(paced: Crawl) -> None:
    asked = [requests(paced.log, host) for host in FRESH]
    assert [[each.path for each in host] for host in asked] == [["/robots.txt", "/a"]] * 5
    arrivals = sorted(each.arrived for host in asked for each in host)
    assert arrivals[-1] - arrivals[0] < 5 * 1.0


def test_r4_5_the_throttle_key_is_the_host_with_its_port(paced: Crawl) -> None:
    (plain,), (other,) = paced.gaps("ports.test"), paced.gaps("ports.test:8080")
    assert plain < 1.0
    assert other < 1.0


def test_r4_5_http_and_https_of_one_host_share_it(paced: Crawl) -> None:
    asked = [each for each in requests(paced.log) if each.host.partition(":")[0] == "both.test"]
    assert [each.path for each in asked].count("/a") == 2
    between = [later.arrived - (earlier.completed or 0) for earlier, later in pairwise(asked)]
    assert kept(between[1:], 1.0)


def test_r4_2_with_paced_robots_txt_every_gap_counts(run: Callable[..., Crawl]) -> None:
    result = run("http://path.test/a", settings={"WALSH_PACE_ROBOTS": True})
    assert kept(result.gaps("path.test"), 1.0)


def test_r4_6_a_run_that_follows_another_at_once_keeps_the_gap(
    run: Callable[..., Crawl], box: Sandbox, tmp_path: Path
) -> None:
    first = run("http://delay.test/a")
    second = crawl(tmp_path / "project", box, "http://delay.test/b")
    last, (asked,) = first.requests("delay.test")[-1], second.requests("delay.test")
    assert kept([asked.arrived - (last.completed or 0)], 2.0)


def test_r4_6_processes_side_by_side_keep_the_gap(box: Sandbox, tmp_path: Path) -> None:
    projects = [make_project(tmp_path / name) for name in ("one", "two")]
    shared = ("-s", f"WALSH_STATE_DIR={tmp_path / 'state'}")

    def start(number: int) -> int:
        urls = " ".join(f"http://path.test/{number}/{page}" for page in range(3))
        command = ("crawl", "probe", "-a", f"urls={urls}", *shared)
        return run_scrapy(projects[number], box, *command).returncode

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(start, range(2))) == [0, 0]
    targets = [each for each in requests(box.log, "path.test") if each.path != "/robots.txt"]
    assert len(targets) == 6
    assert kept(gaps(targets), 1.0)


TWO_CRAWLERS = """
import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.utils.project import get_project_settings

class Probe(scrapy.Spider):
    name = "two"

    def parse(self, response):
        pass

if __name__ == "__main__":
    process = CrawlerProcess(get_project_settings())
    for number in range(2):
        process.crawl(Probe, start_urls=[f"http://path.test/{number}/{page}" for page in (1, 2)])
    process.start()
"""


def test_r4_1_two_crawlers_in_one_process_take_turns(box: Sandbox, tmp_path: Path) -> None:
    project = make_project(tmp_path / "project", TWO_CRAWLERS)
    done = run_scrapy(project, box, module="spiders")
    assert done.returncode == 0, done.stdout
    targets = [each for each in requests(box.log, "path.test") if each.path != "/robots.txt"]
    assert len(targets) == 4
    assert max_in_flight(box.log) == 1
    assert kept(gaps(targets), 1.0)
