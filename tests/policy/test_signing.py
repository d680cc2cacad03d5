"""R1: what a signed request says."""

from __future__ import annotations

import pytest

from scrapy_walsh.exceptions import ConfigError
from scrapy_walsh.policy import signing
from scrapy_walsh.policy.signing import directory_url, is_signature_field
from scrapy_walsh.policy.urls import Target, target

DIRECTORY = "https://bot.example/.well-known/http-message-signatures-directory"


@pytest.mark.parametrize(
    ("scheme", "host", "path", "expected"),
    [
        ("http", "A.example", "/x", ("a.example", "/x")),
        ("http", "a.example:80", "", ("a.example", "/")),
        ("https", "a.example:443", "/", ("a.example", "/")),
        ("https", "a.example:80", "/", ("a.example:80", "/")),
        ("http", "a.example:8080", "/%2F", ("a.example:8080", "/%2F")),
        ("http", "[::1]", "/", ("[::1]", "/")),
        ("http", "[::1]:80", "/", ("[::1]", "/")),
    ],
)
def test_the_authority_has_a_port_unless_it_is_the_schemes_own(
    scheme: str, host: str, path: str, expected: tuple[str, str]
) -> None:
    """RFC 9421 section 2.2.3."""
    assert target("GET", scheme, host, path) == Target("GET", *expected)


@pytest.mark.parametrize(
    "policy_url",
    ["https://bot.example/policy", "https://BOT.example", "https://me:pw@bot.example/?x#y"],
)
def test_the_directory_is_on_the_policy_pages_host(policy_url: str) -> None:
    assert directory_url(policy_url) == DIRECTORY


def test_no_directory_is_published_by_http() -> None:
    with pytest.raises(ConfigError, match="WALSH_SIGN_REQUESTS is True, and the policy_url http:"):
        directory_url("http://bot.example/policy")


def test_a_signature_holds_for_five_minutes() -> None:
    assert signing.window(1_800_000_000.9) == (1_800_000_000, 1_800_000_300)


def test_the_three_fields_share_one_label() -> None:
    fields = signing.header_fields(DIRECTORY, "();created=1", b"\x00\xff")
    assert fields == {
        "Signature-Agent": f'sig="{DIRECTORY}"',
        "Signature-Input": "sig=();created=1",
        "Signature": "sig=:AP8=:",
    }


def test_what_is_covered_has_its_values_in_its_order() -> None:
    values = signing.covered_values(Target("GET", "a.example", "/x"), DIRECTORY)
    assert list(values) == list(signing.COVERED)
    assert list(values.values()) == ["a.example", f'"{DIRECTORY}"', "GET", "/x"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (b"Signature", True),
        (b"signature-agent", True),
        (b"Signature_Input", True),
        (b"Signature-Key", False),
        (b"X-Signature", False),
    ],
)
def test_fields_that_pass_for_a_signature(name: bytes, expected: bool) -> None:
    assert is_signature_field(name) is expected
