"""The judges of spacing: what a gap's bounds, or a tolerance, let them say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_walsh.proof.audit.pace_rows import spaced
from scrapy_walsh.proof.findings import Outcome
from scrapy_walsh.proof.spacing import is_short

SECONDS = st.floats(0, 1e6)


@pytest.mark.parametrize(
    ("least", "most", "expected"),
    [
        (2, 4, Outcome.HELD),  # three seconds in the log
        (1, 3, Outcome.UNSEEN),
        (0, 2, Outcome.BROKEN),  # less than two seconds
        (0, 9, Outcome.UNSEEN),
    ],
)
def test_r4_a_gap_of_two_seconds(least: float, most: float, expected: Outcome) -> None:
    assert spaced(least, most, 2.0) is expected


@pytest.mark.parametrize(
    ("seconds", "tolerance", "short"),
    [(2.0, 0.0, False), (1.999, 0.0, True), (1.99, 0.02, False), (1.97, 0.02, True)],
)
def test_r4_a_measured_gap_of_two_seconds(seconds: float, tolerance: float, short: bool) -> None:
    assert is_short(seconds, 2.0, tolerance) is short


@given(least=SECONDS, width=st.floats(0.001, 1e6), required=SECONDS)
def test_what_is_held_is_never_short_and_what_is_short_was_never_held(
    least: float, width: float, required: float
) -> None:
    outcome = spaced(least, least + width, required)
    if outcome is Outcome.HELD:
        assert not is_short(least, required, 0.0)
    if outcome is Outcome.BROKEN:
        assert is_short(least, required, 0.0)
