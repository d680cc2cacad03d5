"""The one reader of lines: strict for ``verify``, lenient for who draws and counts."""

from __future__ import annotations

from typing import Any

import pytest

from scrapy_walsh.ledger.reading import Malformed, line_of, readable

ASKED: dict[str, Any] = {
    "n": 3, "at": 5.0, "run": "r", "kind": "asked", "url": "http://h.test/", "host": "h.test",
    "purpose": "target", "started": 4.0, "ended": 5.0, "answered": True, "interval": 1.0,
    "exempt": False, "attempt": 0, "gives_up": False, "retry_after": ["7"],
}  # fmt: skip


def test_own_both_ways_read_the_same_of_a_line_that_is_right() -> None:
    assert line_of(ASKED) == readable(ASKED)
    assert readable(ASKED).retry_after == ("7",)


@pytest.mark.parametrize(
    ("member", "value", "left"),
    [
        ("started", "noon", 0.0),
        ("interval", -1, 0.0),
        ("attempt", 1.5, 0),
        ("url", None, ""),
        ("exempt", 1, False),
        ("retry_after", [7], ()),
        ("at", 1e300, 0.0),
    ],
)
def test_own_a_member_of_another_type(member: str, value: object, left: object) -> None:
    line = {**ASKED, member: value}
    with pytest.raises(Malformed, match=member):
        line_of(line)
    assert getattr(readable(line), member) == left


def test_own_a_number_that_nobody_can_draw_is_left_out() -> None:
    line = {**ASKED, "interval": 1e16}
    assert line_of(line).interval == 1e16
    assert readable(line).interval == 0.0


def test_own_a_lone_surrogate_is_a_character_like_others() -> None:
    for more in ({"\ud800": 1}, {"reason": "\ud800"}):
        assert line_of({**ASKED, **more}).reason == more.get("reason", "")
    with pytest.raises(Malformed, match="attempt"):
        line_of({**ASKED, "attempt": "\ud800"})
    assert readable({**ASKED, "attempt": "\ud800"}).attempt == 0
