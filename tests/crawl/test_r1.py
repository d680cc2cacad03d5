"""R1: who the bot says it is, on every line of the log."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.proof.sandbox import Route, blocklist, user_agents
from tests.crawl.harness import OWN_IDENTITY, USER_AGENT, Crawl, site, solo

if TYPE_CHECKING:
    from collections.abc import Callable

STANDALONE = Route(body=json.dumps(blocklist(inline=False)), content_type="application/json")


@pytest.fixture(scope="module")
def every_kind(tmp_path_factory: pytest.TempPathFactory) -> Crawl:
    """Targets, robots.txt, the list and its schema, redirect hops, retries, https."""
    operator = site(
        "http://operator.test",
        {
            "/.well-known/walsh-research/blocklist.json": STANDALONE,
            "/.well-known/walsh-research/blocklist.schema.json": Route(
                body=json.dumps(blocklist()["schema"]), content_type="application/schema+json"
            ),
        },
    )
    upper = site("upper.test", robots="User-agent: *\nDisallow: /\n\nUSER-AGENT: WALSH-RESEARCH\n")
    moved = site("moved.test", robots=Route(302, location="/robots2.txt"))
    return solo(
        tmp_path_factory.mktemp("every_kind"),
        "http://path.test/public",
        "http://redirect.test/other",
        "http://flaky.test/feed.xml",
        "http://secure.test/",
        "http://robots-404.test/x",
        "http://broken.test/reset",
        "http://named-allow.test/x",
        "http://named-deny.test/x",
        "http://upper.test/x",
        "http://moved.test/x",
        sites=(operator, upper, moved),
        settings={"WALSH_MAX_RETRIES": 2, "WALSH_BACKOFF_BASE": 0.01},
    )


def test_r1_1_every_request_carries_the_exact_user_agent(every_kind: Crawl) -> None:
    asked = {(each.scheme, each.host, each.path) for each in every_kind.log}
    for kind in (
        ("http", "operator.test", "/.well-known/walsh-research/blocklist.json"),
        ("http", "operator.test", "/.well-known/walsh-research/blocklist.schema.json"),
        ("http", "path.test", "/robots.txt"),
        ("http", "redirect.test", "/other"),
        ("http", "moved.test", "/robots2.txt"),
        ("https", "secure.test", "/"),
        ("http", "broken.test", "/reset"),
    ):
        assert kind in asked
    lines = [each.values("User-Agent") for each in every_kind.log if each.method != "CONNECT"]
    assert lines
    assert all(line == [USER_AGENT] for line in lines)


def test_r1_1_a_tunnel_is_not_opened_under_another_name(every_kind: Crawl) -> None:
    tunnels = [each for each in every_kind.log if each.method == "CONNECT"]
    assert tunnels
    assert all(each.values("User-Agent") in ([], [USER_AGENT]) for each in tunnels)


def test_r1_1_the_metadata_spider_too(run: Callable[..., Crawl]) -> None:
    result = run(
        "http://llms.test/",
        "http://markdown.test/notes",
        settings={"SPIDER_MODULES": ["spiders", "scrapy_walsh.spiders"]},
        spider_name="walsh_metadata",
    )
    assert "/llms.txt" in result.asked("llms.test")
    assert "/notes" in result.asked("markdown.test")
    assert user_agents(result.log) == {USER_AGENT}


def test_r1_1_an_identity_of_ones_own_says_its_own_name(run: Callable[..., Crawl]) -> None:
    named = site("own.test", robots="User-agent: *\nDisallow: /\n\nUser-agent: examplebot\n")
    result = run(
        "http://own.test/x",
        "http://named-allow.test/x",
        sites=(named,),
        settings={"WALSH_IDENTITY": OWN_IDENTITY},
    )
    own = "Mozilla/5.0 (compatible; ExampleBot/1.0; +http://operator.test/bot/)"
    assert user_agents(result.log) == {own}
    assert result.asked("own.test") == ["/robots.txt", "/x"]
    assert result.asked("named-allow.test") == ["/robots.txt"]


@pytest.mark.parametrize(
    ("identity", "named"),
    [
        ({**OWN_IDENTITY, "product": "Googlebot/2.1"}, "Googlebot"),
        ({**OWN_IDENTITY, "product": "Mozilla/5.0"}, "Mozilla"),
        ({**OWN_IDENTITY, "product": "Walsh-Research/9.9"}, "Walsh-Research"),
    ],
)
def test_r1_5_another_bots_or_browsers_name_is_refused(
    run: Callable[..., Crawl], identity: dict[str, Any], named: str
) -> None:
    assert_refused(run("http://path.test/public", settings={"WALSH_IDENTITY": identity}), named)


def test_r1_4_an_identity_without_a_policy_page_is_refused(run: Callable[..., Crawl]) -> None:
    identity = {key: value for key, value in OWN_IDENTITY.items() if key != "policy_url"}
    result = run("http://path.test/public", settings={"WALSH_IDENTITY": identity})
    assert_refused(result, "policy_url")


@pytest.mark.parametrize("product", ["ExampleBot", "Example Bot/1.0", ""])
def test_r1_6_the_token_is_never_omitted(run: Callable[..., Crawl], product: str) -> None:
    identity = {**OWN_IDENTITY, "product": product}
    assert_refused(run("http://path.test/public", settings={"WALSH_IDENTITY": identity}), "product")


def assert_refused(result: Crawl, word: str) -> None:
    assert result.returncode != 0
    assert result.lines("WALSH_IDENTITY", word), result.output
    assert "Traceback" not in result.output
    assert result.log == []
