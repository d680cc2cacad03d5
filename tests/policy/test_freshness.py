"""R12: durations, refresh intervals and freshness."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_walsh.policy.freshness import (
    is_fresh,
    parse_duration,
    refresh_seconds,
)

DATA = Path(__file__).parents[1] / "data"
ROWS = [
    pytest.param(row, id=row["id"])
    for row in json.loads((DATA / "durations.json").read_text(encoding="utf-8"))
]
HOUR = 3600.0


@pytest.mark.parametrize("row", ROWS)
def test_r3_8_durations(row: dict[str, Any]) -> None:
    if row["seconds"] is None:
        with pytest.raises(ValueError, match=r"\A[^\n]+\Z"):
            parse_duration(row["value"])
    else:
        assert parse_duration(row["value"]) == row["seconds"]


@pytest.mark.parametrize("row", ROWS)
def test_r3_8_refresh_is_never_unusable(row: dict[str, Any]) -> None:
    expected = 6 * HOUR if row["seconds"] is None else min(max(row["seconds"], 60), 168 * HOUR)
    assert refresh_seconds(row["value"]) == expected


@pytest.mark.parametrize("declared", [None, 6, 3600.0, True, [], {}, ["PT1H"], b"PT1H"])
def test_r3_8_refresh_of_another_type_is_the_default(declared: object) -> None:
    assert refresh_seconds(declared) == 6 * HOUR


@pytest.mark.parametrize(
    ("age", "fresh"), [(0, True), (59.9, True), (60, False), (1e9, False), (-0.1, False)]
)
def test_r12_fresh_until_the_ttl_and_never_in_the_future(age: float, fresh: bool) -> None:
    assert is_fresh(1000.0 - age, 1000.0, 60.0) is fresh


@given(st.text(alphabet="PTWDHMS0123456789.,-", max_size=20))
def test_any_text_is_a_duration_or_a_value_error(text: str) -> None:
    try:
        seconds = parse_duration(text)
    except ValueError:
        return
    assert seconds >= 0
    assert text[0] == "P"
    assert text[-1] in "WDHMS"
