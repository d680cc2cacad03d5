"""R7: validators sent and kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scrapy_walsh.policy.validators import (
    Validators,
    conditional_headers,
    replaces_validators,
    representation_key,
    to_store,
)

URL = "https://h.test/a"
ROWS = json.loads(
    (Path(__file__).parents[1] / "data" / "validators.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_r7_1_validators_are_replayed_as_received(row: dict[str, Any]) -> None:
    kept = to_store(Validators(URL, "*/*", row["etag"], row["last_modified"], 5.0))
    sent = {} if kept is None else conditional_headers(kept.etag, kept.last_modified)
    assert sent == row["sent"]


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_own_a_damaged_record_sends_nothing_harmful(row: dict[str, Any]) -> None:
    assert conditional_headers(row["etag"], row["last_modified"]) == row["sent"]


def test_r7_1_nothing_is_sent_without_validators() -> None:
    assert conditional_headers(None, None) == {}


def test_r7_4_a_record_names_its_exact_url_and_representation() -> None:
    with_slash = to_store(Validators(URL + "/", "text/markdown", '"v2"', None, 7.0))
    assert with_slash == Validators("https://h.test/a/", "text/markdown", '"v2"', None, 7.0)


def test_r7_4_an_answer_without_validators_drops_the_stored_ones() -> None:
    assert to_store(Validators(URL, "*/*", None, None, 5.0)) is None


@pytest.mark.parametrize(
    ("method", "status", "replaces"),
    [
        ("GET", 200, True),
        ("GET", 304, False),
        ("GET", 206, False),
        ("GET", 302, False),
        ("GET", 404, False),
        ("GET", 503, False),
        ("HEAD", 200, False),
        ("POST", 200, False),
    ],
)
def test_r7_3_only_a_200_to_a_get_replaces_what_is_stored(
    method: str, status: int, replaces: bool
) -> None:
    assert replaces_validators(method, status) is replaces


def test_r7_1_representations_are_kept_apart() -> None:
    markdown = representation_key("text/markdown, text/html;q=0.8")
    assert markdown != representation_key("text/html")
    assert markdown == representation_key(" text/markdown, text/html;q=0.8 ")


@pytest.mark.parametrize("accept", [None, "", " ", "*/*"])
def test_own_no_accept_field_is_any_representation(accept: str | None) -> None:
    assert representation_key(accept) == "*/*"
