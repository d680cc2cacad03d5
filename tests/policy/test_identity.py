"""R1: the identity, and whose it may be."""

from __future__ import annotations

from typing import Any

import pytest

from scrapy_walsh.exceptions import ConfigError
from scrapy_walsh.policy.identity import (
    BROWSERS,
    CRAWLERS,
    WALSH_RESEARCH,
    Identity,
    identity_from,
)

OWN: dict[str, Any] = {
    "product": "ExampleBot/1.0",
    "policy_url": "https://bot.example/policy",
    "blocklist_url": "https://bot.example/blocklist.json",
}
WALSH: dict[str, Any] = {
    "product": "Walsh-Research/1.2",
    "policy_url": "https://wal.sh/bot/",
    "blocklist_url": "https://wal.sh/.well-known/walsh-research/blocklist.json",
}


def refusal(value: object) -> str:
    """The message for *value*: one line that names the setting."""
    with pytest.raises(ConfigError) as caught:
        identity_from(value)
    message = str(caught.value)
    assert message.startswith("WALSH_IDENTITY")
    assert message.isascii()
    assert message.isprintable()
    return message


def test_r1_1_the_exact_user_agent() -> None:
    agent = identity_from("walsh-research").user_agent
    assert agent == "Mozilla/5.0 (compatible; Walsh-Research/1.2; +https://wal.sh/bot/)"


def test_r4v_2_the_token_is_bare() -> None:
    assert WALSH_RESEARCH.token == "Walsh-Research"
    assert identity_from(OWN).token == "ExampleBot"


def test_r5c_1_the_canonical_urls() -> None:
    folder = "https://wal.sh/.well-known/walsh-research/"
    assert WALSH_RESEARCH.blocklist_url == folder + "blocklist.json"
    assert WALSH_RESEARCH.schema_url == folder + "blocklist.schema.json"


def test_r1_1_another_operators_user_agent() -> None:
    agent = identity_from(OWN).user_agent
    assert agent == "Mozilla/5.0 (compatible; ExampleBot/1.0; +https://bot.example/policy)"


def test_a_dict_gives_every_field() -> None:
    schema_url = "http://bot.example:8080/schema.json"
    assert identity_from(OWN | {"schema_url": schema_url}) == Identity(
        "ExampleBot/1.0",
        "https://bot.example/policy",
        "https://bot.example/blocklist.json",
        schema_url,
    )
    assert identity_from(OWN | {"schema_url": None}).schema_url is None


@pytest.mark.parametrize("value", [None, ""])
def test_r1_5_no_identity_is_the_default(value: object) -> None:
    message = refusal(value)
    assert "walsh-research" in message
    assert "product, policy_url, blocklist_url" in message


@pytest.mark.parametrize("value", ["walsh", "Walsh-Research", "ExampleBot/1.0", 7, ["x"], True])
def test_anything_else_is_refused_with_its_value(value: object) -> None:
    message = refusal(value)
    assert repr(value) in message
    assert "walsh-research" in message


@pytest.mark.parametrize("key", ["product", "policy_url", "blocklist_url"])
def test_r1_4_a_missing_key_is_named(key: str) -> None:
    without = {name: value for name, value in OWN.items() if name != key}
    assert f"has no {key}" in refusal(without)
    assert f"has no {key}" in refusal(OWN | {key: None})


def test_an_unknown_key_is_named() -> None:
    message = refusal(OWN | {"polcy_url": "https://bot.example/"})
    assert "'polcy_url'" in message
    assert "policy_url" in message


@pytest.mark.parametrize(
    "product",
    [
        "",
        "ExampleBot",
        "ExampleBot/",
        "ExampleBot/1",
        "ExampleBot/1.0.0",
        "ExampleBot/1.x",
        "ExampleBot/-1.0",
        "ExampleBot/1.\u0661",
        "/1.0",
        "Example Bot/1.0",
        "Example.Bot/1.0",
        "Bot2/1.0",
        "*/1.0",
        "B\u00f6t/1.0",
        "Bot/1.0\n",
        "Bot/1.0\r\nX: y",
        "Bot/1.0; x",
        "Bot/1.0)",
        1.0,
        b"Bot/1.0",
    ],
)
def test_r1_3_the_product_is_a_token_and_a_version(product: object) -> None:
    message = refusal(OWN | {"product": product})
    assert "Token/MAJOR.MINOR" in message
    assert ascii(product) in message


@pytest.mark.parametrize("key", ["policy_url", "blocklist_url", "schema_url"])
@pytest.mark.parametrize(
    "url",
    [
        "",
        "bot.example/policy",
        "/policy",
        "//bot.example/policy",
        "ftp://bot.example/",
        "javascript:alert",
        "https://",
        "https:///policy",
        "https://bot.example:port/",
        "https://[bot.example/",
        "https://me:word@bot.example/",
        "https://bot.example/a b",
        " https://bot.example/",
        "https://bot.example/\r\nX: y",
        "https://bot.example/\x00",
        "https://b\u00f6t.example/",
        7,
        ["https://bot.example/"],
    ],
)
def test_r1_4_urls_are_absolute(key: str, url: object) -> None:
    assert f"is not a valid {key}" in refusal(OWN | {key: url})


@pytest.mark.parametrize("char", list('();\\"<>'))
def test_r1_1_nothing_ends_the_user_agents_comment(char: str) -> None:
    assert "is not a valid policy_url" in refusal(
        OWN | {"policy_url": f"https://bot.example/{char}"}
    )


@pytest.mark.parametrize("name", ["Mozilla", "CHROME", "Safari", "Googlebot", "bingbot", "GPTBot"])
def test_r1_5_no_browser_or_other_crawler_is_impersonated(name: str) -> None:
    assert f"{name}/5.0" in refusal(OWN | {"product": f"{name}/5.0"})


def test_r1_5_every_listed_name_is_refused() -> None:
    for name in (*BROWSERS, *CRAWLERS):
        refusal(OWN | {"product": f"{name.title()}/1.0"})


@pytest.mark.parametrize("name", ["Googlebot-News", "GooglebotX", "Walsh-Research-Fork"])
def test_r1_5_no_name_that_selects_another_crawlers_group(name: str) -> None:
    refusal(OWN | {"product": f"{name}/1.0"})


@pytest.mark.parametrize("name", ["Chromatic-Bot", "OperaHouseBot", "Walsh", "_-_"])
def test_r1_5_similar_names_are_free(name: str) -> None:
    assert identity_from(OWN | {"product": f"{name}/1.0"}).token == name


@pytest.mark.parametrize(
    "change",
    [
        {"policy_url": "https://bot.example/policy"},
        {"blocklist_url": "https://bot.example/blocklist.json"},
        {"schema_url": "https://bot.example/schema.json"},
        {"product": "Walsh-Research/1.0"},
        {"product": "walsh-research/1.2"},
        {"product": "WALSH-RESEARCH/9.9", "policy_url": "https://bot.example/policy"},
    ],
)
def test_r1_5_the_walsh_research_identity_is_not_mixed(change: dict[str, str]) -> None:
    assert "belongs to the operator" in refusal(WALSH | change)


def test_r1_5_no_policy_page_is_borrowed() -> None:
    assert "policy page" in refusal(OWN | {"policy_url": "https://wal.sh/bot/"})


def test_the_whole_walsh_research_identity_may_be_spelt_out() -> None:
    assert identity_from(WALSH) == WALSH_RESEARCH


def test_a_long_value_is_cut() -> None:
    assert len(refusal("x" * 10_000)) < 500
