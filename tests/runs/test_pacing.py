"""R4 and R5 over several runs: spacing, Crawl-delay and Retry-After outlive a process."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.proof.sandbox import Route, requests
from scrapy_walsh.state.records import Deferral, HostRecord
from tests.crawl.harness import AGAIN, HOUR, Crawl, Runs, kept, site

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def between(first: Crawl, second: Crawl, host: str) -> float:
    """Seconds from the end of the last answer of *first* to the first request of *second*."""
    last, next_one = first.requests(host)[-1], second.requests(host)[0]
    return next_one.arrived - (last.completed or last.arrived)


@pytest.fixture(scope="module")
def restarted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Crawl]]:
    """Three runs, each begun as soon as the one before has ended."""
    sites = (
        site("plain.test"),
        site("delayed.test", robots="User-agent: *\nCrawl-delay: 3.5\n"),
    )
    hosts = [each.host for each in sites]
    with Runs(tmp_path_factory.mktemp("restarted"), *sites, settings=AGAIN) as runs:
        yield [runs(*(f"http://{host}/{page}" for host in hosts)) for page in "abc"]


@pytest.mark.parametrize(("host", "seconds"), [("plain.test", 1.0), ("delayed.test", 3.5)])
def test_r4_3_a_restart_keeps_the_spacing(
    restarted: list[Crawl], host: str, seconds: float
) -> None:
    assert [run.targets(host) for run in restarted] == [["/a"], ["/b"], ["/c"]]
    pairs = pairwise(restarted)
    assert kept([between(first, second, host) for first, second in pairs], seconds)


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Crawl]]:
    """A host says "in two hours"; runs before and after that time."""
    routes = {"/p": Route(sequence=(Route(429, headers={"Retry-After": "7200"}), Route(body="p")))}
    url = "http://held.test/p"
    with Runs(tmp_path_factory.mktemp("held"), site("held.test", routes), settings=AGAIN) as runs:
        begun = time.time()
        found = {"first": runs(url), "second": runs(url), "third": runs("http://held.test/other")}
        with runs.store() as store:
            found["third"].stats["deferrals"] = {each.url: each for each in store.rows(Deferral)}
            record = store.get(HostRecord, "held.test")
            assert record is not None
            found["third"].stats["held for"] = (record.not_before or 0.0) - begun
            store.put(replace(record, not_before=time.time() + 600))
        found["ten minutes early"] = runs(url)
        with runs.store() as store:
            store.put(replace(record, last_end=record.last_end - 2 * HOUR, not_before=None))
        found["when due"] = runs(url)
        with runs.store() as store:
            found["when due"].stats["deferrals"] = [each.url for each in store.rows(Deferral)]
        yield found


def test_r5_3_a_retry_after_of_two_hours_is_kept_by_the_run_after_next(
    held: dict[str, Crawl],
) -> None:
    assert held["first"].targets("held.test") == ["/p"]
    for run in ("second", "third", "ten minutes early"):
        assert held[run].asked("held.test") == []
    assert 7200 <= held["third"].stats["held for"] <= 7260


def test_r5_3_what_is_deferred_is_listed_with_its_due_time(held: dict[str, Crawl]) -> None:
    deferrals = held["third"].stats["deferrals"]
    assert set(deferrals) == {"http://held.test/p", "http://held.test/other"}
    due = [each.due - time.time() for each in deferrals.values()]
    assert 7100 < min(due) <= max(due) <= 7260
    for run, level in {"first": "WARNING", "second": "INFO"}.items():  # said once
        line = f"{level}: deferred", "http://held.test/p", "not be requested"
        assert len(held[run].lines(*line)) == 1
    assert held["second"].stats["walsh/deferred"] == 1


def test_r5_3_it_comes_back_when_the_time_has_come(held: dict[str, Crawl]) -> None:
    assert held["when due"].targets("held.test") == ["/p"]
    assert "http://held.test/p" not in held["when due"].stats["deferrals"]


def test_r4_4_a_seen_host_has_no_exemption_in_a_later_run(tmp_path: Path) -> None:
    with Runs(tmp_path, site("plain.test"), settings=AGAIN) as runs:
        runs("http://plain.test/a")
        runs.age("robots", "http://plain.test", 90_000)
        run = runs("http://plain.test/b")
    assert run.asked("plain.test") == ["/robots.txt", "/b"]
    assert kept(run.gaps("plain.test"), 1.0)
    assert len(requests(run.log, "plain.test")) == 2
