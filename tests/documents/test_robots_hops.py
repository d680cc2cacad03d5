"""D37: a robots.txt that redirects to another site's page passes that site's rules first."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.proof.sandbox import Request, Route, Site, requests
from scrapy_walsh.state import machine
from scrapy_walsh.state.records import HostRecord
from tests.crawl.harness import (
    DAY,
    FAR_OFF,
    ONCE,
    OWN_IDENTITY,
    TOGETHER,
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


#: Its robots.txt is read for a target of its own, and leads to another authority. A nested read
#: would refuse that, so a hop that is judged by it has waited for the read that was under way.
UNDER_WAY = (
    led("waits.test", "http://moved.test/page"),
    led("waits-too.test", "http://moved.test/private/x"),
    site("moved.test", robots=Route(302, location="http://rules.test/robots.txt", delay=1.5)),
    site("rules.test", robots=Route(body=f"User-agent: *\n{PRIVATE}\n", delay=1.5)),
    led("near.test", "http://quiet.test/page"),
    led("near-too.test", "http://quiet.test/private/x"),
    site("quiet.test", robots=Route(body=f"User-agent: *\n{PRIVATE}\n", delay=1.5)),
    site("hub.test"),
    *(led(f"ring-{n}.test", f"http://ring-{n % 3 + 1}.test/page") for n in (1, 2, 3)),
)
WAITS = ("waits.test", "waits-too.test", "near.test", "near-too.test")
RING = ("ring-1.test", "ring-2.test", "ring-3.test")
#: Asks for the hops past the queue while the robots.txt that decides about them is under way.
MEANWHILE = (
    TOGETHER
    + """
class Probe(scrapy.Spider):
    name = "probe"
    custom_settings = {"WALSH_FOLLOW_LINKS": True}

    def __init__(self, urls="", **kwargs):
        super().__init__(**kwargs)
        self.urls = urls.split()

    async def start(self):
        yield scrapy.Request("http://hub.test/page", callback=self.hub)

    async def hub(self, response):
        for url, result in zip(self.urls, await together(self, self.urls)):
            yield {"url": url, "error": type(result).__name__, "why": str(result)}
"""
)


@pytest.fixture(scope="module")
def waited(tmp_path_factory: pytest.TempPathFactory) -> Crawl:
    folder = tmp_path_factory.mktemp("waits")
    hosts = ("moved.test", *WAITS, *RING)
    urls = [f"http://{host}/page" for host in hosts]
    settings = {**FAR_OFF, "WALSH_IDENTITY": OWN_IDENTITY}
    done = solo(folder, *urls, sites=UNDER_WAY, spider=MEANWHILE, settings=settings)
    assert done.returncode == 0, done.output
    verified = walsh(folder, "verify", ".scrapy/walsh")
    assert verified.returncode == 0, verified.stdout
    return done


@pytest.mark.parametrize(
    ("decides", "last", "allowed", "refused"),
    [
        ("moved.test", "rules.test", "waits.test", "waits-too.test"),
        ("quiet.test", "quiet.test", "near.test", "near-too.test"),
    ],
)
def test_r2_a_hop_waits_for_the_robots_txt_that_is_under_way(
    waited: Crawl, decides: str, last: str, allowed: str, refused: str
) -> None:
    """``last`` has the rules in the end; another target, or another hop, has them read."""
    asked = [(each.host, each.path) for each in requests(waited.log)]
    assert asked.count((decides, "/robots.txt")) == 1
    ended = asked.index((last, "/robots.txt"))
    assert asked.index((allowed, "/robots.txt")) < ended, asked
    assert asked.index((refused, "/robots.txt")) < ended, asked
    assert waited.targets(allowed) == ["/page"], waited.output
    assert waited.targets(refused) == []
    assert "is refused: Disallow: /private/" in waited.why(f"http://{refused}/page")
    assert "/private/x" not in waited.asked(decides)


def test_r2_sites_that_redirect_to_each_other_are_refused(waited: Crawl) -> None:
    assert {path for host in RING for path in waited.asked(host)} == {"/robots.txt"}
    reasons = [waited.why(f"http://{host}/page") for host in RING]
    assert all("R2 deferred" in why for why in reasons), reasons
    assert any("waits for this one" in why for why in reasons), reasons


def test_r2_a_hop_to_a_host_that_another_process_has_booked_is_refused(tmp_path: Path) -> None:
    """By https this process has requested the host before, so it takes it for due."""
    with Runs(tmp_path, site("busy.test"), settings=ONCE) as runs:

        def meanwhile(_: Request) -> Route:
            with runs.store() as other:
                now = machine.steady_clock(runs.state)()
                other.put(HostRecord("busy.test", now, 60.0, under_way=1))
            return to("http://busy.test/page")

        runs.box.put(site("leads.test", robots=meanwhile))
        done = runs("https://busy.test/page", "http://leads.test/page")
        assert done.returncode == 0, done.output
        assert [each.scheme for each in done.requests("busy.test")] == ["https", "https"]
        assert done.asked("leads.test") == ["/robots.txt"]
        why = done.why("http://leads.test/page")
        assert "R2 deferred: robots.txt redirects to http://busy.test/page" in why, done.output
        assert "another process requests busy.test" in why
        assert done.stats["close_reason"] == "finished"
        assert len(done.lines("WARNING", "busy.test")) == 1, done.output
        verified = runs.command("verify", ".scrapy/walsh")
        assert verified.returncode == 0, verified.stdout


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
