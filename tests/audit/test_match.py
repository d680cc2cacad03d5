"""The log and the operator's ledger, matched one to one: what one omits shows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_walsh.ledger.files import chain_line
from scrapy_walsh.proof.audit.match import Ledgers, Sent, match_rows, pair, read_ledgers
from scrapy_walsh.proof.audit.reading import Entry, Log, Unreadable
from tests.crawl.harness import USER_AGENT
from tests.kit import T0

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

HOST = "site.example"


def logged(at: int, target: str = "/a", status: int = 200, method: str = "GET") -> Entry:
    return Entry(at, "log", at - T0, HOST, HOST, target, "", method, status, USER_AGENT)


def told(
    start: float,
    target: str = "/a",
    status: int = 200,
    *,
    took: float = 0.1,
    redacted: bool = False,
) -> Sent:
    place = f"ledger:{start - T0:g}"
    return Sent(start, start + took, HOST, "GET", target, status, redacted, place)


def asked_line(number: int, at: float, url: str, **members: Any) -> bytes:
    entry = {
        "at": at, "run": "r", "kind": "asked", "url": url, "method": "GET", "started": at - 0.1,
        "host": HOST, "purpose": "target", "answered": True, "interval": 1.0, "exempt": False,
        "attempt": 0, "gives_up": False,
        "ended": at, "status": 200, **members,
    }  # fmt: skip
    return chain_line(entry, number, "0" * 64)[0]


def test_each_request_is_matched_once() -> None:
    entries = [logged(T0), logged(T0), logged(T0 + 9, "/b", 404)]
    sent = [told(T0 + 0.2), told(T0 + 9.1, "/b", 404)]
    assert pair(entries, sent, 0.0) == ([entries[1]], [])
    assert pair(entries[1:], [*sent, told(T0 + 0.9)], 0.0)[1] == [told(T0 + 0.9)]


@pytest.mark.parametrize(
    ("other", "matches"),
    [
        (told(T0 - 0.5, took=0.4), False),  # over before the second began
        (told(T0 - 0.5, took=0.6), True),
        (told(T0 - 5, took=9), True),  # a log of the starts, or of the ends
        (told(T0 + 0.99), True),
        (told(T0 + 1.0), False),
        (told(T0, "/A"), False),
        (told(T0, status=304), False),
        (told(T0, status=0), True),  # the bot saw no answer; the server sent one
        (told(T0 - 30, status=0), True),  # and may have been late with it
        (told(T0 - 90, status=0), False),
        (told(T0)._replace(method="HEAD"), False),
        (told(T0)._replace(host="other.example"), False),
    ],
)
def test_what_may_be_the_same_request(other: Sent, matches: bool) -> None:
    assert pair([logged(T0)], [other], 0.0)[0] == ([] if matches else [logged(T0)])


def test_skew_widens_the_bounds() -> None:
    assert pair([logged(T0)], [told(T0 + 2.5)], 1.0)[0]
    assert not pair([logged(T0)], [told(T0 + 2.5)], 2.0)[0]


def test_a_redacted_ledger_matches_by_path() -> None:
    entries = [logged(T0, "/a?secret=1"), logged(T0 + 5, "/b?x")]
    assert pair(entries, [told(T0, "/a", redacted=True)], 0.0) == ([entries[1]], [])


@given(
    st.lists(st.tuples(st.integers(0, 6), st.booleans()), max_size=8),
    st.lists(st.tuples(st.floats(0, 6), st.floats(0, 2)), max_size=8),
)
def test_no_pair_is_left_over_and_none_is_impossible(
    stamps: list[tuple[int, bool]], exchanges: list[tuple[float, float]]
) -> None:
    entries = sorted(logged(T0 + at, "/a" if first else "/b") for at, first in stamps)
    sent = [told(T0 + start, took=took) for start, took in exchanges]
    alone, untold = pair(entries, sent, 0.0)
    assert len(entries) - len(alone) == len(sent) - len(untold)
    for entry in alone:
        for each in untold:
            may_be = each.start < entry.time + 1 and each.end >= entry.time
            assert not (may_be and entry.target == each.target)


def test_rows_name_what_either_side_omits() -> None:
    log = Log([logged(T0 + 10), logged(T0 + 20), logged(T0 + 95)], 3, T0, T0 + 100)
    sent = [told(T0 + 10.1), told(T0 + 30.1), told(T0 + 31, status=0), told(T0 + 200)]
    ledgers = Ledgers(sent, [(T0, T0 + 80.0)])
    by_ledger, by_log = match_rows(log, ledgers, 2.0)
    assert (by_ledger.outcome.value, by_ledger.seen, by_ledger.undecided) == ("broken", 1, 1)
    assert [finding.place for finding in by_ledger.findings] == ["log:20"]
    assert (by_log.outcome.value, by_log.seen, by_log.undecided) == ("broken", 1, 2)
    assert [finding.place for finding in by_log.findings] == ["ledger:30.1"]


def test_nothing_in_common_is_not_held() -> None:
    log = Log([logged(T0 + 90)], 1, T0 + 90, T0 + 90)
    for row in match_rows(log, Ledgers([], [(T0, T0 + 80.0)]), 2.0):
        assert row.outcome.value == "not seen"


# -- reading ------------------------------------------------------------------------------


def written(path: Path, lines: Iterable[bytes]) -> str:
    path.write_bytes(b"".join(lines))
    return str(path)


def test_ledgers_are_read_by_host(tmp_path: Path) -> None:
    lines = [
        chain_line({"at": T0, "kind": "ledger", "contract": "walsh-ledger/v1"}, 1, "0" * 64)[0],
        asked_line(2, T0 + 1, "https://site.example"),
        asked_line(3, T0 + 2, "https://other.example/x"),
        asked_line(4, T0 + 3, "https://site.example:443/a?b#c", sent="https://site.example/a?t"),
        asked_line(5, T0 + 4, "https://site.example/s?redacted", status=None),
        chain_line({"at": T0 + 5, "kind": "gap", "reason": "disk", "lost": 3}, 6, "0" * 64)[0],
        b"damaged\n",
        asked_line(8, T0 + 9, "https://[/"),
    ]
    found = read_ledgers([written(tmp_path / "ledger.jsonl", lines)], {HOST})
    assert [(each.target, each.status, each.redacted) for each in found.sent] == [
        ("/", 200, False),
        ("/a?t", 200, False),
        ("/s", 0, True),
    ]
    assert found.sent[0].place == f"{tmp_path / 'ledger.jsonl'}:2"
    assert found.spans == [(T0, T0 + 9)]
    assert found.faults == 5


def test_a_directory_is_read_with_its_full_files(tmp_path: Path) -> None:
    written(tmp_path / "ledger-000001.jsonl", [asked_line(1, T0, "https://site.example/1")])
    written(tmp_path / "ledger.jsonl", [asked_line(2, T0 + 9, "https://site.example/2")])
    found = read_ledgers([str(tmp_path)], {HOST})
    assert [each.target for each in found.sent] == ["/1", "/2"]
    assert found.spans == [(T0, T0 + 9)]


def test_something_else_is_no_ledger(tmp_path: Path) -> None:
    path = written(tmp_path / "x.jsonl", [json.dumps({"at": 1}).encode()])
    with pytest.raises(Unreadable, match="is not a ledger"):
        read_ledgers([path], {HOST})
