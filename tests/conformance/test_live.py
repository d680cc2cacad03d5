"""``--live`` against a copy of the operator's site, which the environment's proxy leads to."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.proof.conformance.check import read_record
from scrapy_walsh.proof.sandbox import Route, Sandbox, Site, blocklist, gaps, hosts, requests
from tests.crawl.harness import USER_AGENT
from tests.kit import Done, conformance

if TYPE_CHECKING:
    from pathlib import Path

    from scrapy_walsh.proof.sandbox import LoggedRequest

WELL_KNOWN = "/.well-known/walsh-research"
CANARIES = "/research/bots/dogfood"
ROBOTS = f"""\
User-agent: *
Disallow: {CANARIES}-walsh-only

User-agent: Walsh-Research
Disallow: {CANARIES}-disallow
Allow: {CANARIES}-allow
Allow: {CANARIES}-walsh-only
Crawl-delay: 2
"""
FIXTURES = {
    "robots_allowed_sentinel": f"https://wal.sh{CANARIES}-allow",
    "robots_disallowed": f"https://wal.sh{CANARIES}-disallow",
    "walsh_only_allowed": f"https://wal.sh{CANARIES}-walsh-only",
    "external_positive": "https://external.test/project/jsonschema/",
    "operator_blocked_host": "blocked.test",
    "flaky_429_endpoint": None,
}


def site(robots: str = ROBOTS) -> list[Site]:
    document = {"contract": "walsh-research-test-fixtures/v1", "fixtures": FIXTURES}
    routes: dict[str, Any] = {
        "/robots.txt": Route(body=robots, content_type="text/plain"),
        f"{WELL_KNOWN}/blocklist.json": Route(body=json.dumps(blocklist("https://wal.sh"))),
        f"{WELL_KNOWN}/test-fixtures.json": Route(body=json.dumps(document)),
        "*": Route(body="<p>canary</p>"),
    }
    external = {"/robots.txt": Route(404), "*": Route(body="<p>project</p>")}
    return [Site("https://wal.sh", routes), Site("https://external.test", external)]


def live(folder: Path, sites: list[Site]) -> tuple[Done, list[LoggedRequest]]:
    with Sandbox(sites) as box:
        proxies = dict.fromkeys(("http_proxy", "https_proxy"), box.proxy_url)
        done = conformance(
            folder, "--live", "--identity", "walsh-research", "--json",
            "-s", "LOG_LEVEL=DEBUG", **proxies,
            GITHUB_REPOSITORY="example/fork", GITHUB_SHA="0123abcdef", no_proxy="",
        )  # fmt: skip
        return done, box.log


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("live")


@pytest.fixture(scope="module")
def copied(folder: Path) -> tuple[Done, list[LoggedRequest]]:
    return live(folder, site())


@pytest.mark.crawl
def test_r16_the_fixtures_and_canaries_behave_as_listed(
    copied: tuple[Done, list[LoggedRequest]],
) -> None:
    done, _ = copied
    assert done.code == 0, done.stdout + done.stderr
    assert [(check["id"], check["outcome"]) for check in done.found["checks"]] == [
        (identity, "PASS") for identity in ("R2", "R2", "R2a", "R2c", "R3", "R4b", "R13")
    ]
    details = {check["title"]: check["detail"] for check in done.found["checks"]}
    assert (
        "disallowed_explicit by Disallow:"
        in details["canary dogfood-disallow refused (bare, .html, .md)"]
    )
    assert details["fixture operator_blocked_host refused"] == "blocked_operator by blocked.test"


@pytest.mark.crawl
def test_r13_1_nobody_is_asked_anything_else_and_the_operator_sees_tags(
    copied: tuple[Done, list[LoggedRequest]],
) -> None:
    _, log = copied
    assert sorted(hosts(log)) == ["external.test", "wal.sh"]
    asked = requests(log, "wal.sh")
    assert [each.path for each in asked] == [
        f"{WELL_KNOWN}/blocklist.json",
        "/robots.txt",
        f"{WELL_KNOWN}/test-fixtures.json",
        f"{CANARIES}-allow",
        f"{CANARIES}-walsh-only",
    ]
    assert all("?impl=example/fork&sha=0123abc&spec=" in each.target for each in asked)
    other = requests(log, "external.test")
    assert [each.path for each in other] == ["/robots.txt", "/project/jsonschema/"]
    assert not any("impl=" in each.target for each in other)
    assert {each.values("User-Agent")[0] for each in requests(log)} == {USER_AGENT}
    assert min(gaps(log, "wal.sh")[2:]) >= 1.98


@pytest.mark.crawl
def test_the_record_of_a_live_run_says_so(
    copied: tuple[Done, list[LoggedRequest]], folder: Path
) -> None:
    done, _ = copied
    record = read_record(folder / ".scrapy" / "walsh" / "conformance-live.json")
    assert record == done.found
    assert record["live"] is True
    assert record["settings"]["mirrored"] is False
    assert not (folder / ".scrapy" / "walsh" / "conformance.json").exists()


@pytest.mark.crawl
def test_a_site_that_serves_no_fixtures_is_said_in_one_line(tmp_path: Path) -> None:
    document = f"{WELL_KNOWN}/test-fixtures.json"
    sites = site("User-agent: *\nDisallow: /.well-known/\n")
    done, log = live(tmp_path, sites)
    assert done.code == 2
    assert document not in [each.path for each in log]
    (line,) = done.stderr.splitlines()
    assert f"https://wal.sh{document}: not fetched" in line
