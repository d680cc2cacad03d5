"""The one reader of lines: strict for ``verify``, lenient for who draws and counts."""

from __future__ import annotations

from typing import Any

import pytest

from scrapy_walsh.proof.ledger import Malformed, line_of

ASKED: dict[str, Any] = {
    "n": 3, "at": 5.0, "run": "r", "kind": "asked", "url": "http://h.test/", "host": "h.test",
    "purpose": "target", "started": 4.0, "ended": 5.0, "answered": True, "interval": 1.0,
    "exempt": False, "attempt": 0, "gives_up": False, "retry_after": ["7"],
}  # fmt: skip


def test_a_line_that_is_right_is_read() -> None:
    assert line_of(ASKED).retry_after == ("7",)


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("started", "noon"),
        ("interval", -1),
        ("attempt", 1.5),
        ("url", None),
        ("exempt", 1),
        ("retry_after", [7]),
        ("at", 1e300),
    ],
)
def test_a_member_of_another_type(member: str, value: object) -> None:
    line = {**ASKED, member: value}
    with pytest.raises(Malformed, match=member):
        line_of(line)


def test_a_lone_surrogate_is_a_character_like_others_in_a_text() -> None:
    assert line_of({**ASKED, "reason": "\ud800"}).reason == "\ud800"
    for more in ({"\ud800": 1}, {"attempt": "\ud800"}):
        with pytest.raises(Malformed):
            line_of({**ASKED, **more})
