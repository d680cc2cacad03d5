"""Redirects (D5): each hop of a declared target passes R3, R2 and R4 before it is asked."""

from __future__ import annotations

import pytest

from scrapy_walsh.proof.sandbox import Route, requests
from tests.crawl.harness import Crawl, kept, site, solo


def to(location: str) -> Route:
    return Route(302, location=location)


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Crawl:
    sites = (
        site("three.test", {"/src": to("/src/")}, "User-agent: *\nDisallow: /src/\n"),
        site("four.test", {"/ok": to("http://goal.test/ok")}),
        site("goal.test"),
        site("five.test", {"/a": to("/b")}),
        site("http://six.test", {"/": to("https://six.test/")}),
        site("https://six.test", {"/": Route(body="p")}),
        site("nine.test", {"/ok": to("file:///etc/passwd")}),
        site("loop.test", {"/a": to("/b"), "/b": to("/a")}),
        site("slash.test", {"/a": to("/a/")}),
        site("robots-loop.test", robots=to("/robots.txt")),
        site("robots-moved.test", {"/rules": Route(body="User-agent: *\nDisallow: /private/\n")},
             to("/rules")),
    )  # fmt: skip
    return solo(
        tmp_path_factory.mktemp("moved"),
        "http://three.test/src",
        "http://four.test/ok",
        "http://five.test/a",
        "http://six.test/",
        "http://nine.test/ok",
        "http://loop.test/a",
        "http://slash.test/a",
        "http://robots-loop.test/a",
        "http://robots-moved.test/private/a",
        "http://robots-moved.test/a",
        "http://redirect.test/hops/9",
        sites=sites,
        settings={"REDIRECT_MAX_TIMES": 20},
    )


def test_rd_3_a_hop_to_the_same_path_with_a_slash_is_judged(moved: Crawl) -> None:
    assert moved.asked("three.test") == ["/robots.txt", "/src"]


def test_rd_4_a_hop_to_another_host_asks_its_robots_txt_first(moved: Crawl) -> None:
    both = {"four.test", "goal.test"}
    asked = [(each.host, each.path) for each in requests(moved.log) if each.host in both]
    assert asked == [
        ("four.test", "/robots.txt"),
        ("four.test", "/ok"),
        ("goal.test", "/robots.txt"),
        ("goal.test", "/ok"),
    ]


def test_rd_5_a_hop_on_the_same_host_is_spaced(moved: Crawl) -> None:
    assert moved.asked("five.test") == ["/robots.txt", "/a", "/b"]
    assert kept(moved.gaps("five.test")[1:], 1.0)


def test_rd_6_a_hop_to_https_asks_the_robots_txt_of_https(moved: Crawl) -> None:
    asked = [
        (each.scheme, each.path)
        for each in requests(moved.log)
        if each.host.partition(":")[0] == "six.test"
    ]
    assert asked == [
        ("http", "/robots.txt"),
        ("http", "/"),
        ("https", "/robots.txt"),
        ("https", "/"),
    ]


def test_rd_9_a_hop_to_a_file_is_not_followed(moved: Crawl) -> None:
    assert moved.asked("nine.test") == ["/robots.txt", "/ok"]
    assert not [item for item in moved.items if item["url"].startswith("file:")]


def test_r2_31_at_most_five_hops(moved: Crawl) -> None:
    assert moved.asked("redirect.test") == ["/robots.txt", *(f"/hops/{n}" for n in range(9, 3, -1))]
    assert len(moved.asked("loop.test")) <= 1 + 1 + 5


def test_a_hop_to_the_same_page_with_a_slash_is_no_duplicate(moved: Crawl) -> None:
    assert moved.asked("slash.test") == ["/robots.txt", "/a", "/a/"]


def test_rf_15_a_redirected_robots_txt_rules_the_first_host(moved: Crawl) -> None:
    assert moved.asked("robots-moved.test") == ["/robots.txt", "/rules", "/a"]


def test_rf_17_a_redirect_loop_of_robots_txt_ends(moved: Crawl) -> None:
    assert moved.asked("robots-loop.test").count("/robots.txt") == 6
