"""The strict reader of JSON: what two readers could understand differently is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.exceptions import DocumentInvalid
from scrapy_walsh.policy.strict_json import json_object
from tests.policy.test_linear import is_linear

if TYPE_CHECKING:
    from collections.abc import Callable

REFUSED = {
    "nothing": (b"", "it is not JSON"),
    "a list": (b"[]", "it is not a JSON object"),
    "text after it": (b"{} {}", "it is not JSON"),
    "a member twice": (b'{"a": 1, "a": 1}', "it has two members named 'a'"),
    "a member twice, within": (b'{"b": [{"a": 1, "a": 2}]}', "it has two members named 'a'"),
    "a member twice, spelled twice": (b'{"a": 1, "\\u0061": 2}', "it has two members named 'a'"),
    "NaN": (b'{"a": NaN}', "NaN is not a number"),
    "Infinity": (b'{"a": [-Infinity]}', "-Infinity is not a number"),
    "a byte order mark": (b"\xef\xbb\xbf{}", "it is not JSON"),
    "UTF-16": ('{"a": 1}'.encode("utf-16"), "it is not UTF-8"),
    "Latin-1": (b'{"a": "\xe9"}', "it is not UTF-8"),
    "nesting": (b'{"a":' * 100_000, "it is nested too deeply"),
}


@pytest.mark.parametrize(("body", "named"), REFUSED.values(), ids=REFUSED)
def test_what_two_readers_could_read_differently_is_refused(body: bytes, named: str) -> None:
    with pytest.raises(DocumentInvalid, match=named.replace("[", r"\[")):
        json_object(body)


def test_json_is_read() -> None:
    text = '{"a": [1, 2.5, null, true, "\u00e9"], "b": {"a": {}}}'
    assert json_object(text.encode()) == {"a": [1, 2.5, None, True, "\u00e9"], "b": {"a": {}}}


@pytest.mark.parametrize(
    "body", [b'{"x": 1, "x": 2, "a": 1}', b'\xef\xbb\xbf{"a": 1}', '{"a": 1}'.encode("utf-16")]
)
def test_a_list_that_can_be_understood_is_read(body: bytes) -> None:
    """Only the members that are named count there: to refuse the list would refuse its opt-outs."""
    assert json_object(body, "the list", once={"a"})["a"] == 1
    with pytest.raises(DocumentInvalid, match="the list has two members named 'a'"):
        json_object(b'{"a": 1, "a": 2}', "the list", once={"a"})


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_no_list_has_what_is_not_a_number(number: str) -> None:
    with pytest.raises(DocumentInvalid, match=f"the list is not JSON: {number} is not a number"):
        json_object(b'{"a": 1, "x": [%s]}' % number.encode(), "the list", once={"a"})


def test_members_are_counted_in_one_pass() -> None:
    def work(members: int) -> Callable[[], object]:
        body = b"{%s}" % b",".join(b'"%d":0' % (number // 2) for number in range(members))
        names = {"none", str(members // 2 - 1)}
        return lambda: json_object(body, once=names)

    assert is_linear(work)
