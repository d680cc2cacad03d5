"""D37: a robots.txt that redirects to another site's page passes that site's rules first."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.proof.sandbox import Route, Site, requests
from tests.crawl.harness import (
    DAY,
    FAR_OFF,
    ONCE,
    Crawl,
    Runs,
    answer,
    rules,
    site,
    solo,
    walsh,
)

if TYPE_CHECKING:
    from pathlib import Path

PRIVATE = "Disallow: /private/"


def to(location: str) -> Route:
    return Route(302, location=location)


def led(host: str, location: str) -> Site:
    """A host whose robots.txt redirects to *location*."""
    return site(host, robots=to(location))


SITES = (
    led("attack.test", "http://victim.test/private/unsubscribe?u=1"),
    site("victim.test", robots=rules(PRIVATE)),
    led("friend.test", "http://shared.test/rules.txt"),
    site("shared.test", {"/rules.txt": rules("Disallow: /closed")}),
    led("plain.test", "http://other.test/robots.txt"),
    site("other.test", robots=rules(PRIVATE)),
    led("one.test", "http://two.test/page"),
    led("two.test", "http://one.test/page"),
    led("leaving.test", "http://nested.test/page"),
    led("nested.test", "http://else.test/robots.txt"),
    led("leads.test", "http://else.test/robots.txt"),
    site("else.test"),
    led("listed.test", "http://blocked.test/robots.txt"),
    site("blocked.test"),
    Site("own.test", {
        "/robots.txt": to("/private/rules"),
        "/private/rules": rules(PRIVATE),
        "/page": Route(body="p"),
    }),
    led("http://both.test", "https://both.test/robots.txt"),
    site("https://both.test", robots=rules(PRIVATE)),
    led("near.test", "http://busy.test/rules"),
    site("busy.test", robots=answer(status=429, headers={"Retry-After": "9999"})),
    led("query.test", "http://strict.test/robots.txt?unsubscribe=1"),
    site("strict.test", robots=rules("Disallow: /*?unsubscribe")),
    led("http://scheme.test", "https://scheme.test/private/x"),
    site("https://scheme.test", robots=rules(PRIVATE)),
)  # fmt: skip
DEFERRED = (
    *("attack.test", "one.test", "two.test", "leaving.test", "listed.test"),
    *("query.test", "scheme.test"),
)
READ = ("friend.test", "plain.test", "leads.test", "own.test", "both.test")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hops")


@pytest.fixture(scope="module")
def crawl(folder: Path) -> Crawl:
    hosts = (*DEFERRED, *READ, "near.test")
    urls = [f"http://{host}/{path}" for host in hosts for path in ("page", "private/page")]
    return solo(folder, *urls, "http://friend.test/closed", sites=SITES, settings=FAR_OFF)


def test_r2_a_page_that_its_own_site_disallows_is_not_requested(crawl: Crawl) -> None:
    assert crawl.asked("victim.test") == ["/robots.txt"]
    assert crawl.asked("strict.test") == ["/robots.txt"]
    assert {each.path for each in requests(crawl.log) if each.scheme == "https"} == {"/robots.txt"}


@pytest.mark.parametrize("host", DEFERRED)
def test_r2_a_refused_hop_defers_the_targets_and_names_the_hop(crawl: Crawl, host: str) -> None:
    assert crawl.targets(host) == []
    for path in ("page", "private/page"):
        why = crawl.why(f"http://{host}/{path}")
        assert "R2 deferred" in why, (why, crawl.output)
        assert "robots.txt redirects to http" in why


def test_r2_a_page_that_may_be_requested_is_and_its_rules_are_obeyed(crawl: Crawl) -> None:
    assert crawl.asked("shared.test") == ["/robots.txt", "/rules.txt"]
    assert crawl.targets("friend.test") == ["/page", "/private/page"]
    for host in ("plain.test", "both.test"):
        assert crawl.targets(host) == ["/page"], host


def test_a_hop_to_a_robots_txt_needs_no_other_one(crawl: Crawl) -> None:
    assert crawl.asked("other.test") == ["/robots.txt"]
    assert crawl.asked("own.test") == ["/robots.txt", "/private/rules", "/page"]


def test_a_nested_read_that_leaves_its_authority_is_no_answer_of_it(
    crawl: Crawl, folder: Path
) -> None:
    """Of a host with a target of its own, the same file is followed to where it leads."""
    assert crawl.asked("nested.test") == ["/robots.txt"]
    lines = (folder / ".scrapy/walsh/ledger.jsonl").read_text().splitlines()
    about = [json.loads(line) for line in lines if '"http://nested.test/robots.txt"' in line]
    assert [each["kind"] for each in about] == ["asked"]
    assert crawl.targets("leads.test") == ["/page", "/private/page"]
    assert crawl.asked("else.test") == ["/robots.txt"]


def test_r5_a_hop_to_a_host_that_is_held_waits_with_it(crawl: Crawl) -> None:
    assert crawl.asked("busy.test") == ["/robots.txt"]
    assert "R4 deferred: busy.test may not be requested" in crawl.why("http://near.test/page")


def test_r2_rules_that_are_known_stay_in_force_where_a_hop_is_refused(tmp_path: Path) -> None:
    known = site("moving.test", robots=rules("Disallow: /old/"))
    with Runs(tmp_path, known, site("victim.test", robots=rules(PRIVATE)), settings=ONCE) as runs:
        runs("http://moving.test/page")
        runs.serve("moving.test", "/robots.txt", to("http://victim.test/private/x"))
        runs.age("robots", "http://moving.test", 2 * DAY)
        again = runs("http://moving.test/page", "http://moving.test/old/page")
        assert again.asked("victim.test") == ["/robots.txt"]
        assert again.asked("moving.test") == ["/robots.txt", "/page"]
        assert "disallowed_explicit" in again.why("http://moving.test/old/page")
        assert len(again.lines("WARNING", "rejected", "stay in force", "victim.test")) == 1
        assert again.returncode == 0
        assert runs.command("verify", ".scrapy/walsh").returncode == 0


def test_r2_a_listed_host_is_not_requested_and_is_no_permission(crawl: Crawl) -> None:
    assert crawl.asked("blocked.test") == []


def test_a_run_with_refused_hops_is_well_and_verifies(crawl: Crawl, folder: Path) -> None:
    assert crawl.returncode == 0, crawl.output
    assert crawl.stats["close_reason"] == "finished"
    done = walsh(folder, "verify", ".scrapy/walsh")
    assert done.returncode == 0, done.stdout
