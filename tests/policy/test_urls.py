"""R7: the canonical URL, key of de-duplication."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scrapy_walsh.policy.urls import canonical_url

DATA = Path(__file__).parents[1] / "data"


def rows(name: str) -> list[Any]:
    return [
        pytest.param(row, id=row["id"])
        for row in json.loads((DATA / name).read_text(encoding="utf-8"))
    ]


@pytest.mark.parametrize("row", rows("canonical_urls.json"))
def test_r7_5_canonical_url(row: dict[str, Any]) -> None:
    assert canonical_url(row["url"]) == row["key"]


@pytest.mark.parametrize("row", rows("duplicates.json"))
def test_r7_6_duplicates(row: dict[str, Any]) -> None:
    assert (canonical_url(row["a"]) == canonical_url(row["b"])) is row["same"]


@given(st.text(max_size=60), st.sampled_from(["", "http://", "https://u@X.test:443/", "HTTP:"]))
def test_any_text_has_a_key_without_a_fragment(text: str, scheme: str) -> None:
    assert "#" not in canonical_url(scheme + text)


@given(st.from_regex(r"(/[a-z]{1,3}){0,3}", fullmatch=True), st.from_regex(r"[a-z=&]{1,8}"))
@example("", "= #")  # white space that only the fragment keeps from the end
def test_a_key_is_its_own_key(path: str, query: str) -> None:
    key = canonical_url(f"HTTPS://X.test:443{path}?{query}")
    assert canonical_url(key) == key
