"""R3, R4: canonical hosts, their forms, throttle keys, origins and excluded suffixes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_walsh.policy.hosts import (
    excluded_suffix,
    host_forms,
    host_key,
    host_of,
    origin,
    robots_url,
)

DATA = Path(__file__).parents[1] / "data"
LABEL = st.from_regex(r"[a-z_]([a-z0-9_-]{0,10}[a-z0-9])?", fullmatch=True)
NAME = st.lists(LABEL, min_size=1, max_size=4).map(".".join)


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("http://example.com/", "example.com"),
        ("HTTPS://WWW.Example.COM:443/a?b#c", "www.example.com"),
        ("example.com", "example.com"),
        ("Example.com:8080", "example.com"),
        ("http://example.com.", "example.com"),
        ("http://.example.com", "example.com"),
        ("http://u:p@example.com", "example.com"),
        ("http://a@b@example.com", "example.com"),
        ("http://example%2ecom", "example.com"),
        ("http://b%C3%BCcher.example", "xn--bcher-kva.example"),
        ("_dmarc.example.com", "_dmarc.example.com"),
        ("http://[2001:DB8:0::1]:80/", "2001:db8::1"),
        ("2001:db8::1", "2001:db8::1"),
        ("http://[::ffff:192.0.2.7]", "192.0.2.7"),
        ("http://3221225991", "192.0.2.7"),
        ("http://0xc0.0.2.7", "192.0.2.7"),
        ("http://0300.0.2.7", "192.0.2.7"),
        ("http://1\uff0e2\u30023.4", "1.2.3.4"),
        ("localhost", "localhost"),
        ("ftp://example.com/x", "example.com"),
        ("http://example.com\\@evil.test/", "example.com"),
    ],
)
def test_canonical_host(text: str, host: str) -> None:
    assert host_of(text) == host
    assert host_forms(text)[0] == host


@pytest.mark.parametrize(
    ("text", "forms"),
    [
        ("http://example.com\\@evil.test/", {"example.com", "evil.test"}),
        ("http://stra\u00dfe.example/", {"xn--strae-oqa.example", "strasse.example"}),
        ("http://192.0.2.010/", {"192.0.2.8", "192.0.2.10"}),
        ("http://example.com/\\@evil.test", {"example.com"}),
    ],
)
def test_every_defensible_form(text: str, forms: set[str]) -> None:
    assert forms <= set(host_forms(text))


@pytest.mark.parametrize("reader", [host_of, host_forms, host_key, origin])
@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "/path",
        "?q",
        "http://",
        "http:///",
        "http://./",
        "http://?q",
        "http://user@/",
        "http://:80/",
        "file:///etc/passwd",
        "http://exa mple.com/",
        "http://example.com%00.evil.test/",
        "http://example.com%2fevil.test/",
        "http://example%252ecom/",
        "http://%ff.test/",
        "http://\ud800.test/",
        "http://example.com\uff0fevil.test/",
        "http://user\uff20example.com/",
        "http://\u00ad/",
        "http://example.com:8a/",
        "http://example.com:80:80/",
        "http://example.com:\u0668\u0660/",
        "http://[example.com]/",
        "http://[2001:db8::1/",
        "http://[2001:db8::1]x/",
        "http://[::g]/",
        "http://2001:db8::1/",
        "https:////2001:db8::1:80#f",
        "http://[]/",
        "http://exa mple.com\\@evil.test/",
        "http://256.1.1.1/",
        "http://1.256.1.1/",
        "http://1.2.3.256/",
        "http://1.2.3.4.5/",
        "http://example.1/",
        "http://0x1ffffffff/",
        "http://" + "a." * 200 + "test/",
    ],
)
def test_an_unreadable_host_is_one_line(reader: Any, text: str) -> None:
    with pytest.raises(ValueError, match=r"\A[^\n]{1,300}\Z"):
        reader(text)


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("http://h.test/", "h.test"),
        ("https://H.test./x", "h.test"),
        ("http://h.test:80", "h.test"),
        ("https://h.test:443/", "h.test"),
        ("http://h.test:443/", "h.test"),
        ("https://h.test:80/", "h.test"),
        ("http://h.test:/", "h.test"),
        ("http://h.test:8080/", "h.test:8080"),
        ("http://h.test:08080/", "h.test:8080"),
        ("https://u@h.test:8080/", "h.test:8080"),
        ("http://h.test:0/", "h.test:0"),
        ("http://[2001:db8::1]/", "2001:db8::1"),
        ("http://[2001:DB8::1]:81/", "[2001:db8::1]:81"),
    ],
)
def test_r4_5_throttle_key(url: str, key: str) -> None:
    assert host_key(url) == key


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("HTTP://Example.com:80/a?b", "http://example.com"),
        ("https://example.com:443", "https://example.com"),
        ("https://example.com:80/", "https://example.com:80"),
        ("http://example.com:443/", "http://example.com:443"),
        ("http://user:pw@example.com:8080/x", "http://example.com:8080"),
        ("http://[2001:DB8::1]:8080/x", "http://[2001:db8::1]:8080"),
        ("http://b\u00fccher.example/x", "http://xn--bcher-kva.example"),
    ],
)
def test_r2_4_robots_url_is_of_the_origin(url: str, expected: str) -> None:
    assert origin(url) == expected
    assert robots_url(url) == f"{expected}/robots.txt"


@pytest.mark.parametrize("url", ["http://h.test:65536/", "http://h.test:99999999999/"])
def test_no_such_port(url: str) -> None:
    with pytest.raises(ValueError, match="port"):
        host_key(url)
    with pytest.raises(ValueError, match="port"):
        origin(url)


@pytest.mark.parametrize("text", ["example.com", "example.com:80", "//example.com/"])
def test_an_origin_needs_a_scheme(text: str) -> None:
    with pytest.raises(ValueError, match="scheme"):
        origin(text)


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=row["id"])
        for row in json.loads((DATA / "excluded_suffixes.json").read_text(encoding="utf-8"))
    ],
)
def test_excluded_suffix(row: dict[str, Any]) -> None:
    assert (excluded_suffix(row["host"], row["excluded"]) is not None) is row["skip"]


def test_excluded_suffix_is_named() -> None:
    assert excluded_suffix("a.example.mil", [".GOV", "*.Mil "]) == "mil"


@given(name=NAME, port=st.integers(0, 65535), user=st.sampled_from(["", "u@", "u:p@"]))
def test_spelling_does_not_change_the_host(name: str, port: int, user: str) -> None:
    spellings = [name, name.upper(), f"{name}.", f"http://{user}{name}:{port}/x", f"//{name}?q"]
    assert {host_of(spelling) for spelling in spellings} == {name}
    assert {host_forms(spelling) for spelling in spellings} == {(name,)}


@given(st.text(max_size=40), st.sampled_from(["", "http://", "http:\\\\", "//", "x://"]))
def test_any_text_gives_ascii_forms_or_a_value_error(text: str, scheme: str) -> None:
    try:
        forms = host_forms(scheme + text)
    except ValueError:
        return
    for form in forms:
        assert form.isascii()
        assert form == form.lower()
        assert host_of(form) == form
        assert not set(form) & set(" /\\@?#%")


@given(st.integers(0, 2**32 - 1))
def test_one_address_has_one_host(number: int) -> None:
    octets = number.to_bytes(4, "big")
    dotted = ".".join(map(str, octets))
    octal = ".".join(f"0{octet:o}" for octet in octets)
    spellings = [dotted, str(number), hex(number), f"[::ffff:{dotted}]", octal]
    assert {host_of(f"http://{spelling}/") for spelling in spellings} == {dotted}
