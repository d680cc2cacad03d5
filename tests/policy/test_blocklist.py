"""R3: which hosts a list blocks, how entries are read, and lists of any length."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_walsh.policy.list.blocklist import Blocklist, find_lifted, normalise
from scrapy_walsh.policy.verdict import BLOCKED_OPERATOR

DATA = Path(__file__).parents[1] / "data"
LABEL = st.from_regex(r"[a-z]([a-z0-9-]{0,4}[a-z])?", fullmatch=True)
NAME = st.lists(LABEL, min_size=1, max_size=4).map(".".join)


def rows(name: str) -> list[Any]:
    return [
        pytest.param(row, id=row["id"])
        for row in json.loads((DATA / name).read_text(encoding="utf-8"))
    ]


def listing(*entries: str, **facts: Any) -> Blocklist:
    return Blocklist(domains=set(normalise(entries)[0]), **facts)


@pytest.mark.parametrize("row", rows("blocklist_match.json"))
def test_r3_2_match(row: dict[str, Any]) -> None:
    verdict = listing("example.com").blocks(row["url"])
    assert (verdict is not None) is row["blocked"]


@pytest.mark.parametrize("row", rows("blocklist_entries.json"))
def test_r3_2_entry_forms(row: dict[str, Any]) -> None:
    verdict = listing(row["listed"]).blocks(row["url"])
    assert (verdict is not None) is row["blocked"]


def test_r3_2_the_verdict_names_host_domain_and_document() -> None:
    document = "https://ops.test/blocklist.json"
    verdict = listing("example.com", document=document).blocks("http://www.Example.com/x")
    assert verdict is not None
    assert (verdict.allowed, verdict.name, verdict.requirement) == (False, BLOCKED_OPERATOR, "R3")
    assert "www.example.com" in verdict.reason
    assert "below example.com" in verdict.reason
    assert verdict.document == document


def test_r3_10_the_empty_list_blocks_nothing() -> None:
    empty = Blocklist()
    assert len(empty) == 0
    assert empty.refresh == 21600
    assert empty.blocks("http://example.com/") is None


@pytest.mark.parametrize(
    "url",
    [
        "",
        "http:///",
        "http://a b/",
        "http://256.1.1.1/",
        "https:////2001:db8::1:80#f",
        "http:////other.test/",
        "http:///other.test/",
        "https:/other.test/",
    ],
)
def test_r3_2_no_readable_host_is_no_permission(url: str) -> None:
    with pytest.raises(ValueError, match="host"):
        Blocklist().blocks(url)


@pytest.mark.parametrize(
    "host",
    [
        "[64:ff9b::192.0.2.7]",
        "[64:FF9B::C000:0207]",
        "[64:ff9b:1:c000:2:700::]",
        "[64:ff9b:1:99c0:0:207::]",
        "[64:ff9b:1:7:c0:2:700:0]",
        "[64:ff9b:1:abcd::192.0.2.7]",
        "[2002:c000:207::1]",
        "[2002:c000:207:1:2:3:4:5]",
        "[::ffff:192.0.2.7]",
    ],
)
def test_r3_2_a_listed_ipv4_address_is_refused_where_ipv6_carries_it(host: str) -> None:
    verdict = listing("192.0.2.7").blocks(f"http://{host}:8080/")
    assert verdict is not None
    assert verdict.rule == "192.0.2.7"
    assert "192.0.2.7 is on the operator blocklist" in verdict.reason
    assert listing("192.0.2.8").blocks(f"http://{host}/") is None


def test_r3_2_an_ipv6_address_is_carried_by_no_other() -> None:
    assert listing("192.0.2.7").blocks("http://[2001:db8::c000:207]/") is None
    assert listing("[64:ff9b::192.0.2.7]").blocks("http://192.0.2.7/") is None
    assert listing("64:ff9b::c000:207").blocks("http://[64:ff9b::192.0.2.7]/") is not None


@pytest.mark.parametrize(
    ("entry", "read"),
    [
        ("", ""),
        (" \t", ""),
        ("com", "com"),
        ("*.com", "com"),
        ("co.uk", "co.uk"),
        ("CO.JP", "co.jp"),
        ("*", ""),
        ("example.*", ""),
        ("exa mple", ""),
        ("256.1.1.1", ""),
        ("192.0.2.0/24", "192.0.2.0"),
        ("127.0.0.1 localhost", "127.0.0.1"),
        ("ample.org and more", "ample.org"),
        ("ample.org, http://[bad", "ample.org"),
        ("ample.org*", "ample.org"),
        ("a.test, b.test|c.test", "a.test, b.test, c.test"),
        ("\x00\n" * 100, ""),
    ],
)
def test_an_odd_entry_is_named(entry: str, read: str) -> None:
    found = normalise([entry, "example.com", "example.co.uk"])
    assert found[0] == [*filter(None, read.split(", ")), "example.com", "example.co.uk"]
    assert len(found[1]) == 1
    below = "" if read[:1].isdigit() else "every host below "  # no host is below an address
    assert found[1][0].endswith(f" it blocks {below}{read}" if read else "nothing")
    assert "\n" not in found[1][0]


def test_a_public_suffix_is_warned_of_and_obeyed() -> None:
    assert listing("co.uk").blocks("http://www.example.co.uk/") is not None


def test_warnings_are_bounded_and_counted() -> None:
    domains, warnings = normalise(["com"] * 1000)
    assert len(domains) == 1000
    assert len(warnings) < 30
    assert "980 more" in warnings[-1]


def test_a_list_keeps_its_facts_and_its_domains() -> None:
    made = listing("b.test", "A.test", "a.test", refresh=60.0, updated="now", warnings=("w",))
    assert sorted(made) == ["a.test", "b.test"]
    assert len(made) == 2
    assert (made.refresh, made.updated, made.warnings) == (60.0, "now", ("w",))


def test_a_long_list_blocks_what_it_lists_and_no_more() -> None:
    made = listing(*(f"h{number}.test" for number in range(100_000)))
    assert len(made) == 100_000
    picked = random.Random(7).sample(range(100_000), 200)
    assert all(made.blocks(f"http://www.h{number}.test/") for number in picked)
    assert not any(made.blocks(f"http://h{number + 100_000}.test/") for number in picked)


def test_bd14_lifted_names_what_is_no_longer_blocked() -> None:
    old = listing("a.test", "www.b.test", "c.test", "d.test")
    new = listing("a.test", "b.test", "e.test")
    assert sorted(find_lifted(old, new)) == ["c.test", "d.test"]


def test_lifted_leaves_a_shared_list_whole() -> None:
    old = listing("a.test")
    assert find_lifted(old, Blocklist()) == ["a.test"]
    assert old.blocks("http://a.test/") is not None


@pytest.mark.slow
@given(st.lists(NAME, max_size=6), NAME)
def test_r3_2_blocked_means_equal_or_below(listed: list[str], host: str) -> None:
    literal = any(host == domain or host.endswith("." + domain) for domain in listed)
    assert (listing(*listed).blocks(f"http://{host}/") is not None) is literal


@given(st.text(max_size=30))
def test_an_entry_blocks_itself_or_is_named(entry: str) -> None:
    domains, warnings = normalise([entry])
    assert domains or warnings
    made = listing(entry)
    assert all(made.blocks(domain) for domain in domains)


@pytest.mark.parametrize("labels", [1, 2, 9, 10, 11, 63, 110])
@pytest.mark.parametrize("below", [True, False])
def test_r3_2_a_name_under_any_number_of_labels_is_blocked(labels: int, below: bool) -> None:
    """A name has at most 127 labels (RFC 1035)."""
    deep = "a." * labels
    for name in ("xn--bcher-kva.test", "late.test"):
        listed, host = (name, deep + name) if below else (deep + name, name)
        urls = [f"http://{host}/", f"http://{host.upper()}./", f"http://user@{host}:8080/p", host]
        for url in urls:
            assert (listing(listed).blocks(url) is not None) == below, url
    assert listing(deep + "late.test").blocks(f"http://b.{deep}late.test/") is not None
