"""R4 stands in two texts, Python's and Redis's Lua: they say the same of any record."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec import json

from scrapy_walsh.fleet import scripts
from scrapy_walsh.policy.throttle import Learned, shared_wait

if TYPE_CHECKING:
    from tests.fleet.fleet import Server

ASK = scripts.LIBRARY + (
    "local record = {last_end = ARGV[1], interval = ARGV[2], by = ARGV[4], taught = ARGV[8]} "
    "if ARGV[3] ~= '' then record.not_before = ARGV[3] end "
    "return text(wait_for(record, ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])))"
)
NOW = 1_800_000_000.0
#: Seconds; whole milliseconds, as clocks and headers have them.
SECONDS = st.integers(-400_000_000, 400_000_000).map(lambda each: each / 1000)
INTERVALS = st.integers(1_000, 200_000_000).map(lambda each: each / 1000)
#: What the host has taught (D28): nothing, what is in force, what will bind later.
LONGER = st.integers(1_001, 60_000).map(lambda each: each / 1000)
TAUGHT = st.just(Learned()) | st.builds(
    Learned, LONGER, calm=st.sampled_from([None, 0, 3]), before=st.just(0.0) | LONGER
)
#: Redis is told times with six places.
NEAR = 2e-6


@pytest.mark.crawl
@settings(
    max_examples=3 * settings.default.max_examples,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(SECONDS, INTERVALS, st.none() | SECONDS, st.booleans(), INTERVALS, TAUGHT)
@example(-1.0, 1.0, None, False, 1.0, Learned())
@example(-1.0, 1.0, None, False, 1.0, Learned(4.0, 0.0, 3))
@example(-1.0, 1.0, None, False, 1.0, Learned(8.0, 0.0, 0, before=4.0))
@example(-0.997, 1.0, None, True, 1.0, Learned())
@example(50.0, 2.0, 0.004, True, 1.0, Learned())
@example(50.0, 2.0, -0.004, False, 1.0, Learned())
@example(-1.0, 600.0, None, False, 1.0, Learned())
@example(-1.0, 200_000.0, None, True, 1.0, Learned())
def test_r4_6_lua_and_python_wait_alike(  # noqa: PLR0917  hypothesis gives them
    server: Server,
    last: float,
    kept: float,
    hold: float | None,
    own: bool,
    interval: float,
    taught: Learned,
) -> None:
    """*last*, *hold*: from now; *kept*, *taught*: on record; *interval*: the worker's own."""
    until = None if hold is None else NOW + hold
    record = (f"{NOW + last:.6f}", f"{kept:.6f}", "" if until is None else f"{until:.6f}")
    me = "" if kept > 100_000 else "me"  # C19: who has no name has booked nothing
    asked = server.client.eval(
        ASK,
        1,
        "a key, which the queue's functions have",
        *record,
        me if own else "another",
        me,
        f"{interval:.6f}",
        f"{NOW:.6f}",
        "" if taught == Learned() else json.encode(taught),
    )
    expected = shared_wait(
        NOW + last, until, max(interval, kept, taught.in_force), NOW, own=own and bool(me)
    )
    assert float(asked) == pytest.approx(expected, abs=NEAR)
