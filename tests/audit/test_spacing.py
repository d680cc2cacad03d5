"""The judge of spacing: what a gap's bounds and a tolerance let it say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_walsh.proof.findings import Outcome
from scrapy_walsh.proof.spacing import Span, is_short, measured, spaced, stamped

SECONDS = st.floats(0, 1e6)


@pytest.mark.parametrize(
    ("span", "tolerance", "expected"),
    [
        (measured(2.0), 0.0, Outcome.HELD),
        (measured(1.999), 0.0, Outcome.BROKEN),
        (measured(1.99), 0.02, Outcome.HELD),
        (measured(1.97), 0.02, Outcome.BROKEN),
        (stamped(3, 1), 0.0, Outcome.HELD),  # two seconds at the least
        (stamped(2, 1), 0.0, Outcome.UNSEEN),
        (stamped(1, 1), 0.0, Outcome.BROKEN),  # less than two seconds
        (Span(0.0, 9.0), 0.0, Outcome.UNSEEN),
    ],
)
def test_r4_a_gap_of_two_seconds(span: Span, tolerance: float, expected: Outcome) -> None:
    assert spaced(span, 2.0, tolerance) is expected


@given(least=SECONDS, width=SECONDS, required=SECONDS, tolerance=st.floats(0, 1))
def test_own_what_is_held_is_never_short_and_what_is_short_was_never_held(
    least: float, width: float, required: float, tolerance: float
) -> None:
    outcome = spaced(Span(least, least + width), required, tolerance)
    if outcome is Outcome.HELD:
        assert not is_short(least, required, tolerance)
    if outcome is Outcome.BROKEN:
        assert is_short(least, required, tolerance)


@given(seconds=SECONDS, required=SECONDS, tolerance=st.floats(0, 1))
def test_own_a_measured_gap_is_always_decided(
    seconds: float, required: float, tolerance: float
) -> None:
    short = spaced(measured(seconds), required, tolerance) is Outcome.BROKEN
    assert short == (seconds < required - tolerance)
    assert spaced(measured(seconds), required, tolerance) is not Outcome.UNSEEN
