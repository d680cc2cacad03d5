"""R7: validators sent and kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scrapy_walsh.policy.validators import (
    LIFETIME,
    Validators,
    conditional_headers,
    is_alive,
    lifetime,
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
    # Stored long after each date, since a Last-Modified in the future is not kept.
    kept = to_store(Validators(URL, "*/*", row["etag"], row["last_modified"], 5e9))
    sent = {} if kept is None else conditional_headers(kept.etag, kept.last_modified)
    assert sent == row["sent"]


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_a_damaged_record_sends_nothing_harmful(row: dict[str, Any]) -> None:
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
def test_no_accept_field_is_any_representation(accept: str | None) -> None:
    assert representation_key(accept) == "*/*"


NOW = 1795737600.0  # 2026-11-27T00:00:00Z
DATE = "Fri, 27 Nov 2026 00:00:00 GMT"


@pytest.mark.parametrize(
    ("modified", "date", "is_kept"),
    [
        ("Thu, 26 Nov 2026 23:59:59 GMT", DATE, True),
        (DATE, DATE, True),
        ("Fri, 27 Nov 2026 00:00:01 GMT", DATE, False),
        ("Sat, 16 Nov 2041 18:11:00 GMT", DATE, False),
        ("Saturday, 16-Nov-41 18:11:00 GMT", DATE, False),
        ("Sat Nov 16 18:11:00 2041", DATE, False),
        ("Fri, 31 Dec 9999 23:59:59 GMT", DATE, False),
        # By the server's own clock, which may be years ahead of ours, or behind it.
        ("Sat, 16 Nov 2041 18:11:00 GMT", "Sun, 17 Nov 2041 00:00:00 GMT", True),
        ("Thu, 26 Nov 2026 00:00:00 GMT", "Thu, 01 Jan 1970 00:00:00 GMT", False),
        # Without a Date that can be read, by our clock.
        ("Sat, 16 Nov 2041 18:11:00 GMT", None, False),
        ("Sat, 16 Nov 2041 18:11:00 GMT", "tomorrow", False),
        ("Thu, 26 Nov 2026 23:59:59 GMT", None, True),
        # What is no date cannot be later than one: the server knows what it means.
        ("yesterday", DATE, True),
        ("Fri, 99 Nov 2026 00:00:00 GMT", DATE, True),
    ],
)
def test_r7_2_a_last_modified_later_than_the_date_is_not_stored(
    modified: str, date: str | None, is_kept: bool
) -> None:
    kept = to_store(Validators(URL, "*/*", '"tag"', modified, NOW), date)
    assert kept is not None
    assert kept.last_modified == (modified if is_kept else None)
    alone = to_store(Validators(URL, "*/*", None, modified, NOW), date)
    assert (alone is None) is not is_kept


@pytest.mark.parametrize(
    ("interval", "days"), [(3600, 30), (86400, 30), (15 * 86400, 30), (16 * 86400, 32),
                           (365 * 86400, 730)],
)  # fmt: skip
def test_validators_live_for_thirty_days_or_two_intervals(interval: float, days: float) -> None:
    assert lifetime(interval) == days * 86400
    stored = Validators(URL, "*/*", '"tag"', None, NOW, lifetime=lifetime(interval))
    for age, alive in ((0, True), (days * 86400 - 1, True), (days * 86400, False), (-1, False)):
        assert is_alive(stored, NOW + age) is alive
    assert Validators(URL, "*/*", '"tag"', None, NOW).lifetime == LIFETIME
