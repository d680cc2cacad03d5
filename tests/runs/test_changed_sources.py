"""A source that leaves the list and comes back: what is held about it outlives its absence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.proof.sandbox import Route
from tests.crawl.harness import Crawl, Runs, site
from tests.sources.world import rss

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FEED = Route(body=rss(), content_type="application/rss+xml", etag='"feed"')
HOSTS = ("stays.test", "goes.test", "comes.test", "named.test", "moves.test", "busy.test")
#: What every run may find there, whatever the list says of it.
RETRY_AFTER = 7200
#: Seconds: after the hour for which R8 leaves a source alone whose visit failed (D41), so that
#: the hold of its host is what refuses it. All else here is due after a day.
LATER = 4000


def source(name: str, url: str) -> str:
    return f'[[source]]\nname = "{name}"\nurl = "{url}"\n\n'


STAYS = source("stays", "http://stays.test/feed")
GOES = source("goes", "http://goes.test/feed")
BUSY = source("busy", "http://busy.test/feed")
BLOCKED = source("blocked", "http://blocked.test/feed")
CLOSED = source("closed", "http://closed.test/feed")
FIRST = (
    STAYS, GOES, BUSY, BLOCKED, CLOSED,
    source("before", "http://named.test/feed"),
    source("moves", "http://moves.test/feed"),
)  # fmt: skip
#: Removed: goes, busy, blocked and closed. Added: comes. Another name, and https in place of http.
SECOND = (
    STAYS,
    source("comes", "http://comes.test/feed"),
    source("after", "http://named.test/feed"),
    source("moves", "https://moves.test/feed"),
)
#: What was removed is there again.
THIRD = (*SECOND, GOES, BUSY, BLOCKED, CLOSED)


@dataclass
class Changed:
    """Three runs, each with a list of its own. :data:`LATER` passes before the third."""

    first: Crawl
    second: Crawl
    third: Crawl
    problems: str


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Changed]:
    directory: Path = tmp_path_factory.mktemp("changed")
    settings = {"SPIDER_MODULES": ["scrapy_walsh.spiders.walsh_metadata"]}
    sites = [site(host, {"/feed": FEED}) for host in HOSTS if host != "busy.test"]
    busy = Route(429, headers={"Retry-After": str(RETRY_AFTER)})
    sites += [site("busy.test", {"/feed": busy}), site("blocked.test")]
    sites.append(site("closed.test", robots="User-agent: *\nDisallow: /\n"))
    with Runs(directory, *sites, settings=settings) as runs:

        def run(listed: tuple[str, ...]) -> Crawl:
            (directory / "sources.toml").write_text("".join(listed))
            arguments = ("-a", "sources=sources.toml")
            return runs(spider_name="walsh_metadata", arguments=arguments)

        found = [run(listed) for listed in (FIRST, SECOND)]
        runs.pass_time(LATER)
        found.append(run(THIRD))
        with runs.store() as store:
            yield Changed(*found, problems="; ".join(store.notices))


def test_what_was_added_is_asked_and_what_stayed_is_not_due(changed: Changed) -> None:
    assert changed.first.targets("stays.test") == ["/feed"]
    assert changed.second.asked("stays.test") == []
    assert changed.second.targets("comes.test") == ["/feed"]


def test_r8_a_source_that_was_away_for_a_run_is_not_due_when_it_comes_back(
    changed: Changed,
) -> None:
    assert changed.first.targets("goes.test") == ["/feed"]
    assert changed.second.asked("goes.test") == []
    assert changed.third.asked("goes.test") == []
    assert changed.third.lines("refused", "http://goes.test/feed", "R8")


def test_r8_a_name_is_no_part_of_what_is_held_about_a_url(changed: Changed) -> None:
    assert changed.first.targets("named.test") == ["/feed"]
    assert changed.second.asked("named.test") == []


def test_r5_a_hold_outlives_the_absence_of_its_source(changed: Changed) -> None:
    assert changed.first.targets("busy.test") == ["/feed"]
    assert changed.third.asked("busy.test") == []
    assert "may not be requested before" in " ".join(changed.third.lines("deferred", "busy.test"))


def test_r2_r3_an_opt_out_outlives_the_absence_of_its_source(changed: Changed) -> None:
    assert changed.third.asked("blocked.test") == []
    assert changed.first.asked("closed.test") == ["/robots.txt"]
    assert changed.third.asked("closed.test") == []


def test_r4_http_and_https_of_a_host_are_one_host(changed: Changed) -> None:
    """The URL is another one, so it is due; robots.txt is of the other origin; the pace goes on."""
    assert changed.second.asked("moves.test") == ["/robots.txt", "/feed"]
    assert {each.scheme for each in changed.second.requests("moves.test")} == {"https"}
    assert min(changed.second.gaps("moves.test")) >= 0.98


def test_nothing_is_said_to_be_wrong(changed: Changed) -> None:
    assert changed.problems == ""
    for run in (changed.first, changed.second, changed.third):
        assert run.returncode == 0
        assert run.lines(" ERROR: ") == []
