"""A source written as a bare host: https first, and http when nobody answers there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.proof.sandbox import Route, Site, requests
from tests.crawl.harness import Crawl, crawl, make_project, state_dir
from tests.kit import report_of, wrong_in
from tests.sources.world import MARKDOWN, QUICK

if TYPE_CHECKING:
    from pathlib import Path

    from scrapy_walsh.proof.sandbox import Sandbox

pytestmark = pytest.mark.crawl

ROUTES = {"/robots.txt": Route(body="", content_type="text/plain"), "/": MARKDOWN}


def test_https_and_then_http(box: Sandbox, tmp_path: Path) -> None:
    box.put(Site("clear.test", ROUTES, tls=False))
    box.put(Site("secure.test", ROUTES))
    settings = {**QUICK, "WALSH_MAX_RETRIES": 0, "SPIDER_MODULES": ["scrapy_walsh.spiders"]}
    project = make_project(tmp_path / "project", settings=settings)
    written = ("-a", "report=report.json")
    run = crawl(
        project,
        box,
        "clear.test",
        "secure.test",
        spider_name="walsh_metadata",
        arguments=written,
    )
    tried = [request.method for request in run.log if request.host.startswith("clear.test")]
    assert tried[0] == "CONNECT"
    asked = [(r.scheme, r.path) for r in requests(run.log, "clear.test")]
    assert asked == [("http", "/robots.txt"), ("http", "/")]
    asked = [(r.scheme, r.path) for r in requests(run.log, "secure.test")]
    assert asked == [("https", "/robots.txt"), ("https", "/")]
    clear, secure = json.loads((project / "report.json").read_text())["sources"]
    assert clear["outcome"] == secure["outcome"] == "negotiated"
    assert clear["next_due"] is not None
    # Its robots.txt had no answer by https, so the page was not requested by https.
    assert (clear["requests"], secure["requests"]) == (1, 1)


def bare(box: Sandbox, tmp_path: Path, host: str, **settings: Any) -> tuple[Crawl, dict[str, Any]]:
    """A crawl of one bare host with the retries of R5, and its line of the report."""
    more = {"WALSH_BACKOFF_BASE": 0.01, "DOWNLOAD_TIMEOUT": 1, **settings}
    more["SPIDER_MODULES"] = ["scrapy_walsh.spiders"]
    project = make_project(tmp_path / "project", settings=more)
    written = ("-a", "report=report.json")
    run = crawl(project, box, host, spider_name="walsh_metadata", arguments=written)
    report = report_of(state_dir(project))
    assert wrong_in(report) == []
    (row,) = json.loads((project / "report.json").read_text())["sources"]
    return run, row


def asked(run: Crawl, host: str) -> list[tuple[str, str, str]]:
    """Every request that *host* saw, the tunnels to it included."""
    return [(r.scheme, r.method, r.path) for r in run.log if r.host.partition(":")[0] == host]


@pytest.mark.parametrize(
    ("position", "retries"), [("allow", 5), ("defer", 5), ("deny", 5), ("defer", 0), ("deny", 0)]
)
def test_r5_6_https_that_is_refused_is_asked_once(
    box: Sandbox, tmp_path: Path, position: str, retries: int
) -> None:
    box.put(Site("clear.test", ROUTES, tls=False))
    settings = {"WALSH_ROBOTS_UNREACHABLE": position, "WALSH_MAX_RETRIES": retries}
    run, row = bare(box, tmp_path, "clear.test", **settings)
    by_http = [("http", "GET", "/robots.txt"), ("http", "GET", "/")]
    assert asked(run, "clear.test") == [("https", "CONNECT", ""), *by_http]
    assert row["outcome"] == "negotiated"


def test_r5_6_https_that_answers_robots_txt_alone_is_asked_twice(
    box: Sandbox, tmp_path: Path
) -> None:
    half = {**ROUTES, "/": Route(behaviour="hang")}
    box.put(Site("https://half.test", half))
    box.put(Site("http://half.test", ROUTES))
    run, row = bare(box, tmp_path, "half.test")
    seen = [(r.scheme, r.path) for r in requests(run.log, "half.test")]
    assert seen == [(scheme, path) for scheme in ("https", "http") for path in ("/robots.txt", "/")]
    assert row["outcome"] == "negotiated"


def test_the_trial_of_https_leaves_http_all_its_attempts(box: Sandbox, tmp_path: Path) -> None:
    late = Route(sequence=(*[Route(behaviour="close")] * 5, MARKDOWN))
    box.put(Site("late.test", {**ROUTES, "/": late}, tls=False))
    run, row = bare(box, tmp_path, "late.test")
    assert [path for _, _, path in asked(run, "late.test")[1:]] == ["/robots.txt", *["/"] * 6]
    assert row["outcome"] == "negotiated"


def test_r2_7_a_robots_txt_that_is_once_not_answered_opens_nothing(
    box: Sandbox, tmp_path: Path
) -> None:
    """By https it was asked once only, so its rules may be there: http redirects to them."""
    refusing = Route(body="User-agent: *\nDisallow: /\n", content_type="text/plain")
    once = Route(sequence=(Route(behaviour="close"), refusing))
    box.put(Site("https://moved.test", {"/robots.txt": once, "/": MARKDOWN}))
    moved = {"/robots.txt": ROUTES["/robots.txt"], "/": Route(301, location="https://moved.test/")}
    box.put(Site("http://moved.test", moved))
    run, row = bare(box, tmp_path, "moved.test")
    seen = [(r.scheme, r.path) for r in requests(run.log, "moved.test")]
    robots = ("https", "/robots.txt")
    assert seen == [robots, ("http", "/robots.txt"), ("http", "/"), robots]
    assert (row["outcome"], row["requirement"]) == ("refused", "R2")
