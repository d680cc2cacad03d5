"""R4's hold as an event: once for each time that a host is not due and requests to it wait."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.proof.sandbox import Route, Sandbox
from tests.crawl.harness import TOLERANCE, Crawl, crawl, make_project, rules, site, solo
from tests.ledger.test_crawl import ledger_of

if TYPE_CHECKING:
    from pathlib import Path

QUEUED = [f"http://queued.test/{page}" for page in range(3)]
BUSY = [f"http://busy.test/{page}" for page in range(2)]
SITES = (
    site("queued.test"),
    site("busy.test", {"/0": Route(sequence=(Route(429, headers={"Retry-After": "3"}), Route()))}),
    site("away.test", robots=rules("Crawl-delay: 3600")),
)
#: Seconds that a busy machine may take between two steps.
SLACK = 0.4


class Written:
    """A crawl, and the lines of its ledger."""

    def __init__(self, directory: Path, settings: dict[str, Any]) -> None:
        urls = (*QUEUED, *BUSY, "http://away.test/0", "http://away.test/1")
        self.run: Crawl = solo(directory, *urls, sites=SITES, settings=settings)
        self.lines = ledger_of(directory)

    def of(self, host: str, *kinds: str) -> list[dict[str, Any]]:
        of_host = (line for line in self.lines if line.get("host") == host)
        return [line for line in of_host if line["kind"] in kinds]


@pytest.fixture(scope="module", params=["memory", "jobdir"])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Written:
    settings = {} if request.param == "memory" else {"JOBDIR": "job"}
    return Written(tmp_path_factory.mktemp(request.param), settings)


def test_each_hold_is_one_line_and_names_what_goes_first(written: Written) -> None:
    held = written.of("queued.test", "held")
    # The first target follows its robots.txt at once (T1).
    assert [line["url"] for line in held] == QUEUED[1:]
    assert written.run.asked("queued.test") == ["/robots.txt", "/0", "/1", "/2"]


def test_a_hold_ends_when_the_host_is_asked_again(written: Written) -> None:
    for host in ("queued.test", "busy.test"):
        lines = written.of(host, "held", "asked")
        after = [(one, later) for one, later in pairwise(lines) if one["kind"] == "held"]
        assert after
        for held, asked in after:
            assert asked["kind"] == "asked", "told twice"
            if host == "queued.test":  # elsewhere a retry takes the first place
                assert asked["url"] == held["url"]
            assert asked["started"] >= held["due"] - TOLERANCE
            assert held["due"] == pytest.approx(held["at"] + held["wait"], abs=SLACK)


def test_r5_the_hold_after_a_retry_after_is_as_long(written: Written) -> None:
    first, second = written.of("busy.test", "held")
    assert 3 - SLACK < first["wait"] <= 3
    assert 1 - SLACK < second["wait"] <= 1


def test_what_is_deferred_is_not_held(written: Written) -> None:
    (deferred,) = written.of("away.test", "deferred")
    (held,) = written.of("away.test", "held")  # the one target of a slow host follows robots.txt
    assert (held["url"], deferred["url"]) == ("http://away.test/0", "http://away.test/1")
    assert held["wait"] <= 1


def test_holds_are_in_the_log_and_the_stats_as_well(written: Written) -> None:
    held = [line for line in written.lines if line["kind"] == "held"]
    assert written.run.stats["walsh/held"] == len(held)
    for line in held:
        assert written.run.lines("DEBUG", "held", line["url"], line["reason"])


def test_what_a_job_left_waiting_is_held_in_the_next_run(tmp_path: Path) -> None:
    left = {"JOBDIR": "job", "CLOSESPIDER_PAGECOUNT": 1}  # documents do not count (D43)
    with Sandbox() as box:
        box.put(site("queued.test", robots=rules("Crawl-delay: 8")))
        crawl(make_project(tmp_path, settings=left), box, *QUEUED[:2])
        second = crawl(make_project(tmp_path, settings=left), box)
    lines = ledger_of(tmp_path)
    run = lines[-1]["run"]
    held = [line for line in lines if line["kind"] == "held" and line.get("run") == run]
    assert [line["url"] for line in held] == QUEUED[1:2]
    assert second.asked("queued.test")[-1] == "/1"
