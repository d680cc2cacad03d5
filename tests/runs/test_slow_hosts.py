"""R4, D8: a host whose Crawl-delay is longer than WALSH_PATIENCE is sent one target a visit.

The days go by in the store alone, so a ledger says here that they were seconds: ``tests/year`` has
runs whose ledgers ``verify`` can judge.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.proof.sandbox import Route, gaps
from scrapy_walsh.state.records import ROBOTS, Deferral, HostRecord, StoredDocument, VisitRecord
from tests.crawl.harness import DAY, OPEN, TOLERANCE, Crawl, Runs, rules, site
from tests.ledger.test_crawl import ledger_of

if TYPE_CHECKING:
    from pathlib import Path

HOST = "slow.test"
URLS = [f"http://{HOST}/{page}" for page in range(4)]
SLOW = rules("Crawl-delay: 600")


def a_day_later(runs: Runs, seconds: float = DAY) -> None:
    """Move what is on record *seconds* into the past: hosts, sources, documents, deferrals."""
    with runs.store() as store:
        for host in list(store.rows(HostRecord)):
            visited = None if host.visited_at is None else host.visited_at - seconds
            earlier = replace(host, last_end=host.last_end - seconds, visited_at=visited)
            store.put(earlier)
        for source in list(store.rows(VisitRecord)):
            since = None if source.counted_from is None else source.counted_from - seconds
            at = source.last_run_at - seconds
            store.put(replace(source, last_run_at=at, counted_from=since))
        for document in list(store.rows(StoredDocument, ROBOTS)):
            store.put(replace(document, fetched_at=document.fetched_at - seconds))
        for put_off in list(store.rows(Deferral)):
            since = None if put_off.since is None else put_off.since - seconds
            store.put(replace(put_off, due=put_off.due - seconds, since=since))


def days(
    directory: Path, number: int, settings: dict[str, Any] | None = None, robots: str | Route = SLOW
) -> list[Crawl]:
    """That many daily runs over the four targets."""
    found = []
    with Runs(directory, site(HOST, robots=robots), settings=settings) as runs:
        for _ in range(number):
            found.append(runs(*URLS))
            a_day_later(runs)
    return found


def test_r4_a_slow_host_gets_one_target_a_visit_the_longest_put_off_first(tmp_path: Path) -> None:
    found = days(tmp_path, 6)
    assert [each.targets(HOST) for each in found] == [
        ["/0"], ["/1"], ["/2"], ["/3"], ["/0"], ["/1"],
    ]  # fmt: skip
    assert all(each.asked(HOST)[0] == "/robots.txt" for each in found)  # stale each day
    for each in found:
        assert min(gaps(each.log, HOST)) >= 1 - TOLERANCE
        assert len(each.lines("deferred http", HOST)) >= 3
        assert each.stats["walsh/slow_visits"] == 1
    assert len(found[0].lines("WARNING: deferred", HOST)) == 1  # the first of its host
    visits = [line for line in ledger_of(tmp_path) if line.get("visit")]
    assert [line["url"] for line in visits] == [*URLS, *URLS[:2]]


def test_r4_a_fresh_robots_txt_needs_no_exemption(tmp_path: Path) -> None:
    with Runs(tmp_path, site(HOST, robots=SLOW)) as runs:
        runs(*URLS)
        a_day_later(runs, 700)
        second = runs(*URLS)
    assert second.asked(HOST) == ["/1"]
    assert "walsh/slow_visits" not in second.stats


def test_r4_not_twice_in_a_day_and_not_before_the_host_has_rested(tmp_path: Path) -> None:
    settings = {"WALSH_ROBOTS_TTL": 60}
    with Runs(tmp_path, site(HOST, robots=SLOW), settings=settings) as runs:
        first = runs(*URLS)
        a_day_later(runs, 2000)  # robots.txt is read again, and the day is not over
        second = runs(*URLS)
        a_day_later(runs, 250)  # the host has not rested: nothing at all is sent
        third = runs(*URLS)
        a_day_later(runs, DAY - 2200)
        fourth = runs(*URLS)
    asked = [each.asked(HOST) for each in (first, second, third, fourth)]
    assert asked == [["/robots.txt", "/0"], ["/robots.txt"], [], ["/robots.txt", "/1"]]


def test_r4_a_crawl_delay_that_has_grown_binds_before_the_visit(tmp_path: Path) -> None:
    """The new delay counts: the host had rested the old one, not the new one."""
    settings = {"WALSH_ROBOTS_TTL": 60}
    with Runs(tmp_path, site(HOST, robots=OPEN), settings=settings) as runs:
        runs(URLS[0])
        runs.serve(HOST, "/robots.txt", SLOW)
        a_day_later(runs, 100)
        second = runs(*URLS)
        a_day_later(runs)
        third = runs(*URLS)
    assert second.asked(HOST) == ["/robots.txt"]
    assert third.asked(HOST) == ["/robots.txt", "/1"]


def test_slow_hosts_are_only_ever_put_off_where_the_project_says_so(tmp_path: Path) -> None:
    found = days(tmp_path, 3, {"WALSH_SLOW_HOSTS": "skip"})
    assert [each.targets(HOST) for each in found] == [[], [], []]
    for each, level in zip(found, ["WARNING", "INFO", "INFO"], strict=True):
        targets = len(each.lines(": deferred http", "WALSH_SLOW_HOSTS"))
        assert len(each.lines(f"{level}: deferred http", "WALSH_SLOW_HOSTS")) == 1
        assert targets == len(URLS)
        # At the end of the crawl all that is put off is listed by host.
        assert len(each.lines(f"INFO: deferred (R4): {targets} targets of {HOST} until 20")) == 1


@pytest.mark.parametrize("value", ["never", 1])
def test_a_bad_value_is_refused_at_the_start(tmp_path: Path, value: Any) -> None:
    with Runs(tmp_path, settings={"WALSH_SLOW_HOSTS": value}) as runs:
        refused = runs(*URLS)
    assert refused.returncode != 0
    assert len(refused.lines("WALSH_SLOW_HOSTS", "visit, skip")) == 1


def test_r4_hosts_that_a_run_can_keep_pace_with_are_spaced_as_before(tmp_path: Path) -> None:
    """T1 alone: from the second day on a target waits its whole Crawl-delay after robots.txt."""
    found = days(tmp_path, 2, robots=rules("Crawl-delay: 2"))
    assert found[1].targets(HOST) == ["/0", "/1", "/2", "/3"]
    assert min(gaps(found[1].log, HOST)) >= 2 - TOLERANCE
