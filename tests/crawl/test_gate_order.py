"""Section 7: R3, then R2, in this order; and R2.4: a robots.txt for each origin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.proof.sandbox import Route, hosts
from tests.crawl.harness import Crawl, site, solo

if TYPE_CHECKING:
    from collections.abc import Callable

CLOSED = Route(behaviour="close")


@pytest.fixture(scope="module")
def order(tmp_path_factory: pytest.TempPathFactory) -> Crawl:
    dead = site("dead.blocked.test", {"*": CLOSED}, robots=CLOSED)
    ports = [site(f"ports.test{port}") for port in ("", ":8080")]
    return solo(
        tmp_path_factory.mktemp("order"),
        "http://blocked.test/x",
        "http://dead.blocked.test/x",
        "http://path.test/private/x",
        "http://ports.test/a",
        "http://ports.test:8080/a",
        "https://ports.test/a",
        sites=(dead, *ports),
    )


def test_r7g_1_a_blocked_host_is_not_even_asked_for_robots_txt(order: Crawl) -> None:
    assert not {"blocked.test", "dead.blocked.test"} & set(hosts(order.log))
    assert "R3 blocked_operator" in order.why("http://blocked.test/x")


def test_r7g_2_the_first_refusal_stops(order: Crawl) -> None:
    assert order.asked("path.test") == ["/robots.txt"]
    assert order.why("http://blocked.test/x").count("R2") == 0


def test_r7g_3_an_opt_out_holds_where_robots_txt_is_unreachable(order: Crawl) -> None:
    assert "R3 blocked_operator" in order.why("http://dead.blocked.test/x")


def test_r7g_4_what_is_allowed_goes_out_conditionally_and_backs_off(
    run: Callable[..., Crawl],
) -> None:
    again = (Route(body="p", etag='"1"'), Route(429, headers={"Retry-After": "1"}), Route(304))
    sites = (site("again.test", {"/p": Route(sequence=again)}),)
    reason = {"WALSH_REVISIT_REASON": "test"}
    run("http://again.test/p", sites=sites, settings=reason)
    second = run("http://again.test/p", settings=reason)
    assert [each.status for each in second.requests("again.test")] == [429, 304]
    asked = [each.values("If-None-Match") for each in second.requests("again.test")]
    assert asked == [['"1"'], ['"1"']]


def test_r2_4_one_robots_txt_per_scheme_host_and_port(order: Crawl) -> None:
    asked = [
        (each.scheme, each.host)
        for each in order.log
        if each.path == "/robots.txt" and each.host.startswith("ports.test")
    ]
    assert sorted(asked) == [
        ("http", "ports.test"),
        ("http", "ports.test:8080"),
        ("https", "ports.test"),
    ] or sorted(asked) == [
        ("http", "ports.test"),
        ("http", "ports.test:8080"),
        ("https", "ports.test:443"),
    ]
    assert sum(each.path == "/a" for each in order.log) == 3
