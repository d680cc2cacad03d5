"""A verdict is a frozen value, however it is made."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, asdict, fields, replace

import pytest

from scrapy_walsh.policy.verdict import (
    BLOCKED_OPERATOR,
    DEFERRED,
    OUT_OF_SCOPE,
    REMEDIES,
    Unanswered,
    Verdict,
    remedy_of,
)
from scrapy_walsh.policy.visits import INTERVAL

FACTS = {
    "allowed": False, "name": BLOCKED_OPERATOR, "requirement": "R3", "reason": "listed",
    "document": "https://ops.test/", "line": 7, "group": ("*",), "readings": (("ours", False),),
    "rule": "a.test", "digest": "ab", "address": "192.0.2.1",
    "unanswered": Unanswered("a.test", 3), "cause": INTERVAL, "due": 5.0, "brief": "sent",
}  # fmt: skip
MADE = Verdict(**FACTS)  # type: ignore[arg-type]


def test_a_verdict_keeps_every_field() -> None:
    assert asdict(MADE) == FACTS
    assert [field.name for field in fields(Verdict)] == list(FACTS)
    assert type(MADE) is Verdict


@pytest.mark.parametrize("name", [*FACTS, "other"])
def test_a_verdict_is_frozen(name: str) -> None:
    with pytest.raises((FrozenInstanceError, TypeError)):
        setattr(MADE, name, None)
    with pytest.raises((FrozenInstanceError, TypeError)):
        delattr(MADE, name)


@pytest.mark.parametrize("name", FACTS)
def test_verdicts_are_equal_by_every_field(name: str) -> None:
    other = replace(MADE, **{name: "other"})
    assert other != MADE
    assert hash(other) != hash(MADE)
    assert replace(other, **{name: FACTS[name]}) == MADE


def test_a_verdict_is_copied_as_it_is() -> None:
    unpickled = pickle.loads(pickle.dumps(MADE))  # noqa: S301 - our own octets
    for again in (copy.copy(MADE), copy.deepcopy(MADE), unpickled):
        assert again == MADE
        assert hash(again) == hash(MADE)
        assert type(again) is Verdict


def test_no_setting_is_named_where_the_scheme_is_the_reason() -> None:
    assert "WALSH_FOLLOW_LINKS" in remedy_of("R6", OUT_OF_SCOPE, "HTTPS://a.test/")
    assert remedy_of("R6", OUT_OF_SCOPE, "ftp://a.test/") == ""
    assert remedy_of("R2", DEFERRED, "ftp://a.test/") == REMEDIES["R2", DEFERRED]
