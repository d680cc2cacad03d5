"""R13: tags of a conformance run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_walsh.policy.tagging import is_operator_url, tag_url

SPEC = "walsh-research-compliance/v1.3"
TAGS = {"impl": ["org/repo"], "sha": ["afd2c01"], "spec": [SPEC]}
OPERATOR = ["https://wal.sh/bot/", "https://wal.sh/.well-known/walsh-research/blocklist.json"]
DATA = Path(__file__).parents[1] / "data"


def rows(name: str) -> list[Any]:
    found = json.loads((DATA / name).read_text(encoding="utf-8"))
    return [pytest.param(row, id=row.get("id", row["url"])) for row in found]


@pytest.mark.parametrize("row", rows("tagged_urls.json"))
def test_r13_1_the_tags_follow_the_urls_own_query(row: dict[str, Any]) -> None:
    tagged = tag_url(row["url"], "org/repo", "afd2c01", SPEC)
    assert tagged.startswith(row["before"])
    assert tagged.endswith(row["after"])
    tags = tagged.removeprefix(row["before"]).removesuffix(row["after"])
    assert parse_qs(tags, strict_parsing=True) == TAGS


@given(impl=st.text(min_size=1), sha=st.text(min_size=1), spec=st.text(min_size=1))
def test_r13_2_any_tag_text_reads_back_and_changes_nothing_else(
    impl: str, sha: str, spec: str
) -> None:
    parts = urlsplit(tag_url("https://wal.sh/bot/?a=1#f", impl, sha, spec))
    assert (parts.scheme, parts.netloc, parts.path) == ("https", "wal.sh", "/bot/")
    assert (parts.fragment, parts.query.isascii()) == ("f", True)
    assert parse_qs(parts.query) == {"a": ["1"], "impl": [impl], "sha": [sha], "spec": [spec]}


@pytest.mark.parametrize("row", rows("tagged_urls.json"))
def test_tagging_twice_is_tagging_once(row: dict[str, Any]) -> None:
    once = tag_url(row["url"], "org/repo", "afd2c01", SPEC)
    assert tag_url(once, "org/repo", "afd2c01", SPEC) == once


@pytest.mark.parametrize("impl", [None, ""])
def test_r13_4_without_an_implementation_nothing_is_added(impl: str | None) -> None:
    assert tag_url("https://wal.sh/bot/#f", impl, "afd2c01", SPEC) == "https://wal.sh/bot/#f"


def test_r13_4_an_unknown_commit_is_left_out() -> None:
    tagged = tag_url("https://wal.sh/bot/", "org/repo", None, SPEC)
    assert parse_qs(urlsplit(tagged).query) == {"impl": ["org/repo"], "spec": [SPEC]}


@pytest.mark.parametrize("row", rows("operator_urls.json"))
def test_r13_2_only_the_operators_own_origin_is_tagged(row: dict[str, Any]) -> None:
    assert is_operator_url(row["url"], OPERATOR) is row["operator"]


def test_an_unreadable_operator_url_matches_nothing() -> None:
    assert not is_operator_url("nonsense", ["nonsense"])
    assert not is_operator_url("https://wal.sh/", [])
