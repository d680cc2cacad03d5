"""A robots.txt that somebody hands over, and the names by which it may know a bot."""

from __future__ import annotations

import pytest

from scrapy_walsh import check, robots
from scrapy_walsh.policy.given import tokens_of

TEXT = "User-agent: *\nDisallow: /é\nCrawl-delay: 3\nSitemap: https://h.test/s.xml\n"


@pytest.mark.parametrize("text", [TEXT, TEXT.encode(), "\ufeff" + TEXT])
def test_a_file_is_read_once_and_asked_often(text: str | bytes) -> None:
    rules = robots(text, "ExampleBot")
    answers = [rules.decide(f"https://h.test/{path}") for path in ("%C3%A9/1", "open")]
    assert [(each.allowed, each.line) for each in answers] == [(False, 2), (True, None)]
    assert rules.crawl_delay == 3.0
    assert rules.sitemaps == ("https://h.test/s.xml",)
    assert not check("https://h.test/%C3%A9", robots=text, token="ExampleBot").allowed


def test_text_and_octets_are_one_file_also_where_they_are_no_utf_8() -> None:
    octets = b"User-agent: *\nDisallow: /\xff\n"
    text = octets.decode("utf-8", "surrogateescape")
    assert not robots(octets, "Bot").decide("https://h.test/%FF").allowed
    assert robots(text, "Bot").decide("https://h.test/").allowed  # and nothing raises


def test_a_name_with_a_version_is_no_token() -> None:
    with pytest.raises(ValueError, match="give the name alone"):
        robots(TEXT, "ExampleBot/1.0")


@pytest.mark.parametrize(
    ("user_agent", "names"),
    [
        ("Mozilla/5.0 (compatible; ExampleBot/1.0; +https://b.example/2/x)",
         ["Mozilla", "ExampleBot"]),
        ("Scrapy/2.19.0 (+https://scrapy.org)", ["Scrapy"]),
        ("One-Bot/1 two_bot/2 One-Bot/1", ["One-Bot", "two_bot"]),
        ("ExampleBot", ["ExampleBot"]),
        ("My crawler (+http://b.example/1)", ["My"]),
        ("", ["*"]),
        ("(+https://b.example/7)", ["*"]),
    ],
)  # fmt: skip
def test_r2_the_names_in_a_user_agent(user_agent: str, names: list[str]) -> None:
    assert tokens_of(user_agent) == names
