"""R2: which group speaks to us, what its rules cover, how long to wait between requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from protego import Protego

from scrapy_walsh.policy.robots import Robots, no_rules, parse_robots, unreachable

TOKEN = "Walsh-Research"
DATA = Path(__file__).parent.parent / "data" / "robots"
VECTORS: dict[str, list[dict[str, Any]]] = json.loads((DATA / "vectors.json").read_text("utf-8"))
DOCUMENT = "http://h.test/robots.txt"


def rows(name: str) -> Any:
    return pytest.mark.parametrize("row", VECTORS[name], ids=lambda row: str(row["id"]))


def parse(text: str, token: str = TOKEN) -> Robots:
    return parse_robots(text.encode(), token, DOCUMENT)


def everybody(*rules: str) -> Robots:
    return parse("\n".join(["User-agent: *", *rules]))


def allowed(robots: Robots, target: str) -> bool:
    return robots.decide("http://h.test" + target).allowed


def site(name: str) -> Robots:
    return parse_robots((DATA / name).read_bytes(), TOKEN)


@rows("groups")
def test_r2a_group_selection(row: dict[str, Any]) -> None:
    robots = parse(row["robots"])
    assert list(robots.group) == row["selected"]
    assert {path: allowed(robots, path) for path in row["probe"]} == row["probe"]
    if "crawl_delay" in row:
        assert robots.crawl_delay == row["crawl_delay"]


@rows("paths")
def test_r2b_path_matching(row: dict[str, Any]) -> None:
    assert allowed(everybody(*row["rules"]), row["path"]) == row["allowed"]


@rows("crawl_delay")
def test_r2d_crawl_delay(row: dict[str, Any]) -> None:
    text = row.get("robots") or f"User-agent: *\nCrawl-delay: {row['value']}\n"
    assert parse(text).crawl_delay == row["seconds"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("User-agent: *\nCrawl-delay: 2\nCrawl-delay: 7\nCrawl-delay: 3", 7.0),
        ("User-agent: walsh-research\nCrawl-delay: 2\nUser-agent: walsh-research/9\nCrawl-delay: 5", 5.0),
        ("User-agent: *\nCrawl-delay: .5", 0.5),
        ("User-agent: *\nCrawl-delay: 0", 0.0),
        ("User-agent: *\nCrawl-delay: nan", None),
        ("User-agent: *\nCrawl-delay: \u0663", None),
        ("User-agent: *\nCrawl-delay: 31536000", 31536000.0),
        ("Crawl-delay: 4\nUser-agent: *\nDisallow:", 4.0),
    ],
)  # fmt: skip
def test_r2d_largest_delay_of_the_selected_groups(text: str, expected: float | None) -> None:
    assert parse(text).crawl_delay == expected


@pytest.mark.parametrize(
    ("rules", "target", "name"),
    [
        (["Disallow: /private"], "/private/a", "disallowed_explicit"),
        (["Disallow: /private"], "/public", "allowed_implicit"),
        (["Disallow: /docs", "Allow: /docs/public"], "/docs/public/a", "allowed_explicit"),
        (["Disallow: /docs", "Allow: /docs/public"], "/docs/secret", "disallowed_explicit"),
        (["Disallow: /*.pdf$"], "/file.pdf", "disallowed_explicit"),
        (["Disallow: /*.pdf$"], "/file.pdf?x=1", "allowed_implicit"),
        (["Disallow: /"], "/robots.txt", "allowed_implicit"),
    ],
)
def test_own_webcanon_worked_examples(rules: list[str], target: str, name: str) -> None:
    assert everybody(*rules).decide("http://h.test" + target).name == name


def test_own_ladon_full_url_with_its_query_is_judged() -> None:
    robots = everybody("Disallow: /search?q=")
    assert not robots.decide("https://user@h.test:8443/search?q=foo#top").allowed
    assert robots.decide("https://h.test/search").allowed


@pytest.mark.parametrize(
    ("what", "text", "target"),
    [
        ("index.html", "User-agent: *\nDisallow: /\nAllow: /index.html", "/"),
        ("a literal $", "User-agent: *\nDisallow: /a\nAllow: /a$", "/a$b"),
        ("length of *", "User-agent: *\nAllow: /folder/page\nDisallow: /*.htm", "/folder/page.htm"),
        ("length of $", "User-agent: *\nDisallow: /abc\nAllow: /a*$", "/abc"),
        ("inside its escapes", "User-agent: *\nDisallow: /\nAllow: /*A9", "/caf%C3%A9"),
        ("half a UTF-8 sequence", "User-agent: *\nDisallow: /%C3", "/%C3%A9"),
        ("octets that are not UTF-8", "User-agent: *\nDisallow: /\nAllow: /%FE", "/%FF"),
        ("a reserved ?", "User-agent: *\nDisallow: /\nAllow: /a?b", "/a%3Fb"),
        ("a reserved =", "User-agent: *\nDisallow: /\nAllow: /a=b", "/a%3Db"),
        ("a wildcard name", "User-agent: *\nDisallow: /\n\nUser-agent: walsh*\nAllow: /", "/x"),
        ("a versioned name", "User-agent: Walsh-Research/1.2\nDisallow: /v", "/v"),
        ("a one-letter name", "User-agent: w\nDisallow: /\nUser-agent: research\nAllow: /", "/x"),
        ("a field that splits", "User-agent: w\nContent-Signal: a=b\nUser-agent: o\nDisallow: /", "/x"),
        ("no leading slash", "User-agent: *\nDisallow: private", "/private"),
        ("dot segments", "User-agent: *\nDisallow: /private", "/public/%2e%2e/private/x"),
    ],
)  # fmt: skip
def test_r2c_where_protego_alone_would_fetch(what: str, text: str, target: str) -> None:
    if what == "a one-letter name":
        text = text.replace("research", "wx")  # Protego takes the shorter w too: no difference
        assert not allowed(parse(text), target)
        return
    assert Protego.parse(text).can_fetch("http://h.test" + target, TOKEN)
    assert not allowed(parse(text), target)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("User-agent: *\nDisalow: /x\n", "/x"),
        ("User-agent *\nDisallow /x\n", "/x"),
        ("User-agent: *\nDisallow: /a?b\n", "/a%3Fb"),
        ("User-agent: *\nDisallow: https://h.test/x\n", "/https://h.test/x"),
    ],
)
def test_own_protego_can_add_a_refusal(text: str, target: str) -> None:
    assert not allowed(parse(text), target)
