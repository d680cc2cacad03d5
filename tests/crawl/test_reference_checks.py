"""The reference bot's 21 checks, judged from the log of three runs that share their state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.policy.backoff import backoff_delay, parse_retry_after
from scrapy_walsh.policy.urls import canonical_url
from scrapy_walsh.proof.sandbox import Route, Sandbox
from scrapy_walsh.state import open_store
from scrapy_walsh.state.records import HostRecord
from tests.crawl.harness import (
    USER_AGENT,
    Crawl,
    age_blocklist,
    crawl,
    kept,
    make_project,
    state_dir,
)

if TYPE_CHECKING:
    from pathlib import Path

HOST = "http://reference.test"
BLOCKLIST = "/.well-known/walsh-research/blocklist.json"
BLOCKED = ("http://blocked.test/x", "http://www.blocked.test/x")
AGAIN = ("-s", "WALSH_REVISIT_REASON=the reference checks ask twice")


@dataclass
class Runs:
    project: Path
    first: Crawl
    list_gone: Crawl
    list_unreadable: Crawl


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    project = make_project(tmp_path_factory.mktemp("reference"))
    with Sandbox() as box:
        targets = [f"{HOST}/{name}" for name in ("allowed", "denied", "flaky")]
        first = crawl(project, box, *targets, *BLOCKED, "http://path.test/public")
        age_blocklist(project)
        box.set_route("operator.test", BLOCKLIST, Route(404))
        list_gone = crawl(project, box, f"{HOST}/allowed", *BLOCKED, arguments=AGAIN)
        age_blocklist(project)
        box.set_route("operator.test", BLOCKLIST, Route(body="User-agent: *\nDisallow: /denied\n"))
        list_unreadable = crawl(project, box, *BLOCKED, arguments=AGAIN)
    return Runs(project, first, list_gone, list_unreadable)


def agents(run: Crawl, host: str, path: str) -> list[list[str]]:
    return [each.values("User-Agent") for each in run.requests(host) if each.path == path]


def test_r1_exact_user_agent_on_the_target(runs: Runs) -> None:
    assert agents(runs.first, "reference.test", "/allowed") == [[USER_AGENT]]


def test_r1_exact_user_agent_on_robots_txt(runs: Runs) -> None:
    assert agents(runs.first, "reference.test", "/robots.txt") == [[USER_AGENT]]


def test_r1_exact_user_agent_on_the_blocklist(runs: Runs) -> None:
    assert agents(runs.first, "operator.test", BLOCKLIST) == [[USER_AGENT]]


def test_r2_robots_txt_refuses_the_denied_path_by_name(runs: Runs) -> None:
    assert "R2 disallowed_explicit" in runs.first.why(f"{HOST}/denied")


def test_r2_no_get_of_the_denied_path_is_ever_sent(runs: Runs) -> None:
    assert "/denied" not in runs.first.asked("reference.test")


def test_r2a_the_named_group_overrides_the_star(runs: Runs) -> None:
    assert "/allowed" in runs.first.asked("reference.test")  # * disallows it


def test_r2d_crawl_delay_is_read_from_the_named_group(runs: Runs) -> None:
    store = open_store(state_dir(runs.project))
    record = store.get(HostRecord, "reference.test")
    store.close()
    assert record is not None
    assert record.interval == 2.0


def test_r3_the_apex_is_blocked(runs: Runs) -> None:
    assert runs.first.asked("blocked.test") == []
    assert "R3" in runs.first.why("http://blocked.test/x")


def test_r3a_the_subdomain_is_blocked_by_the_apex_entry(runs: Runs) -> None:
    assert runs.first.asked("www.blocked.test") == []
    assert "R3" in runs.first.why("http://www.blocked.test/x")


def test_r3_an_unrelated_host_is_not_blocked(runs: Runs) -> None:
    assert runs.first.asked("path.test") == ["/robots.txt", "/public"]


def test_r3b_the_last_list_is_retained_on_a_404(runs: Runs) -> None:
    assert BLOCKLIST in runs.list_gone.asked("operator.test"), "the list was not asked for again"
    assert runs.list_gone.asked("blocked.test") == []
    assert runs.list_gone.asked("www.blocked.test") == []


def test_r3c_an_unreadable_document_is_not_adopted(runs: Runs) -> None:
    assert BLOCKLIST in runs.list_unreadable.asked("operator.test")
    assert runs.list_unreadable.asked("blocked.test") == []
    assert runs.list_unreadable.asked("www.blocked.test") == []


def test_r4b_spacing_honours_the_crawl_delay(runs: Runs) -> None:
    # robots.txt and the first target may follow each other at once (T1)
    assert kept(runs.first.gaps("reference.test")[1:], 2.0)


def test_r4c_the_first_request_to_an_unseen_host_is_not_delayed(runs: Runs) -> None:
    assert runs.first.gaps("path.test")[0] < 1.0


def test_r5_flaky_is_asked_until_200(runs: Runs) -> None:
    assert runs.first.asked("reference.test").count("/flaky") == 3
    assert runs.first.fetched(f"{HOST}/flaky")


def test_r5b_retry_after_in_seconds() -> None:
    assert parse_retry_after("120", now=0.0) == 120.0


def test_r5b_no_retry_after() -> None:
    assert parse_retry_after(None, now=0.0) is None
    assert parse_retry_after("", now=0.0) is None


def test_r5a_full_jitter_has_variance() -> None:
    delays = [backoff_delay(2, step / 20) for step in range(20)]
    assert 0.0 <= min(delays) < max(delays) < 4.0
    assert max(delays) - min(delays) > 0.5


def test_r6_no_unexpected_url_is_fetched(runs: Runs) -> None:
    asked = {(each.host, each.path) for each in runs.first.log}
    assert asked == {
        ("operator.test", BLOCKLIST),
        ("path.test", "/robots.txt"),
        ("path.test", "/public"),
        *(("reference.test", path) for path in ("/robots.txt", "/allowed", "/flaky")),
    }


def test_r7_an_unchanged_page_is_a_304_and_no_item(runs: Runs) -> None:
    (asked,) = runs.list_gone.requests("reference.test")
    assert asked.values("If-None-Match") == ['"allowed-1"']
    assert asked.status == 304
    assert not runs.list_gone.fetched(f"{HOST}/allowed")


def test_r7b_the_canonical_url_has_no_fragment() -> None:
    assert canonical_url("http://h.test/a#part") == "http://h.test/a"
