"""The form of a ledger's lines, and its files: chained, shared, rotated, never silently short."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_walsh.exceptions import StateError
from scrapy_walsh.ledger import Ledger
from scrapy_walsh.ledger.files import (
    DOCUMENTS,
    FILE,
    GENESIS,
    HEAD,
    Bodies,
    chain_line,
    digest_of,
    parse_line,
    read_head,
    redact,
    rotated_files,
)

if TYPE_CHECKING:
    from pathlib import Path

ENTRY = {"kind": "fetched", "url": "http://h.test/a?q=1", "status": 200}


def lines(directory: Path) -> list[dict[str, Any]]:
    """Every line of every file, the chain held against what each line says."""
    found = []
    previous, number = GENESIS, 0
    for path in (*rotated_files(directory), directory / FILE):
        for raw in path.read_bytes().splitlines():
            line = parse_line(raw)
            number += 1
            assert (line["n"], line["prev"]) == (number, previous)
            assert line["hash"] == digest_of(raw)
            previous = line["hash"]
            found.append(line)
    assert read_head(directory / HEAD) == (number, previous)
    return found


def opened(directory: Path, **options: Any) -> Ledger:
    return Ledger(directory, lambda: 1_800_000_000.0, **options)


def test_a_hash_is_that_of_the_octets_before_it() -> None:
    line, digest = chain_line(ENTRY, 7, GENESIS)
    before, _, rest = line.partition(b',"hash":"')
    assert hashlib.sha256(before).hexdigest() == digest
    assert rest == digest.encode() + b'"}\n'
    assert json.loads(line)["prev"] == GENESIS


@given(st.integers(0, 300), st.integers(1, 255))
def test_no_octet_can_be_altered_unseen(place: int, change: int) -> None:
    line = chain_line(ENTRY, 7, GENESIS)[0].rstrip(b"\n")
    place %= len(line)
    altered = line[:place] + bytes([line[place] ^ change]) + line[place + 1 :]
    try:
        found = parse_line(altered)
    except ValueError:
        return
    assert found["hash"] != digest_of(altered)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"[1]",
        b'{"n":1}',
        b'{"n":true,"kind":"x","prev":"%s","hash":"%s"}' % (b"0" * 64, b"0" * 64),
        b'{"n":1,"n":2,"kind":"x","prev":"%s","hash":"%s"}' % (b"0" * 64, b"0" * 64),
        b'{"n":1,"at":NaN,"kind":"x","prev":"%s","hash":"%s"}' % (b"0" * 64, b"0" * 64),
        b"[" * 5000 + b',"hash":"%s"}' % (b"0" * 64),
    ],
)
def test_what_is_no_line_is_said_to_be_none(line: bytes) -> None:
    with pytest.raises((ValueError, RecursionError)):
        parse_line(line)


def test_what_says_nothing_is_left_out() -> None:
    line, _ = chain_line(
        {"kind": "x", "a": None, "b": "", "c": (), "d": float("inf"), "e": 0}, 1, ""
    )
    assert set(json.loads(line)) == {"n", "kind", "e", "prev", "hash"}


def test_queries_are_redacted_wherever_they_are_repeated() -> None:
    entry = {
        "kind": "refused",
        "url": "http://h.test/a?key=1&b",
        "document": "http://h.test/robots.txt",
        "via": "http://g.test/?key=2",
        "reason": "http://h.test/a?key=1&b and http://g.test/?key=2 and http://h.test/a",
        "status": 200,
    }
    found = redact(entry)
    assert "key" not in json.dumps(found)
    assert found["url"] == "http://h.test/a?redacted"
    assert found["document"] == entry["document"]
    assert entry["url"] == "http://h.test/a?key=1&b"


def test_a_ledger_goes_on_where_the_last_run_ended(tmp_path: Path) -> None:
    for run in ("a", "b"):
        ledger = opened(tmp_path)
        ledger.write(run, ENTRY)
        ledger.close()
    assert [(line["kind"], line.get("run")) for line in lines(tmp_path)] == [
        ("ledger", None),
        ("fetched", "a"),
        ("fetched", "b"),
    ]


def test_two_hands_on_one_ledger_take_turns(tmp_path: Path) -> None:
    first, second = opened(tmp_path), opened(tmp_path)
    for _ in range(3):
        first.write("first", ENTRY)
        second.write("second", ENTRY)
    assert [line.get("run") for line in lines(tmp_path)[1:]] == ["first", "second"] * 3


WRITER = """
import sys, time
from pathlib import Path
from scrapy_walsh.ledger import Ledger
ledger = Ledger(Path(sys.argv[1]), time.time)
for number in range(300):
    ledger.write(sys.argv[2], {"kind": "fetched", "url": f"http://h.test/{number}"})
"""


def test_four_processes_write_one_chain(tmp_path: Path) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), name]) for name in "abcd"
    ]
    assert [writer.wait(60) for writer in writers] == [0] * 4
    found = lines(tmp_path)
    for name in "abcd":
        urls = [line["url"] for line in found if line.get("run") == name]
        assert urls == [f"http://h.test/{number}" for number in range(300)]


def test_full_files_are_kept_up_to_a_number(tmp_path: Path) -> None:
    ledger = opened(tmp_path, keep_octets=16_000)
    body = b"User-agent: *\nDisallow: /\n"
    digest = hashlib.sha256(body).hexdigest()
    ledger.keep("robots", body, digest)
    assert Bodies(tmp_path / DOCUMENTS).get(digest) == body
    for number in range(100):
        ledger.write("a", {**ENTRY, "number": number})
        if len(rotated_files(tmp_path)) < 2:
            whole = lines(tmp_path)
    assert [line["file"] for line in whole if line["kind"] == "ledger"] == [1, 2]
    kept = [
        parse_line(path.read_bytes().splitlines()[0])["file"] for path in rotated_files(tmp_path)
    ]
    assert kept == [*range(ledger.file - 16, ledger.file)]
    assert sum(path.stat().st_size for path in rotated_files(tmp_path)) >= 16_000
    assert Bodies(tmp_path / DOCUMENTS).get(digest) is None, "named by no file that is kept"


def test_a_line_that_was_cut_off_is_named_and_gone_on_from(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    ledger.write("a", ENTRY)
    with (tmp_path / FILE).open("ab") as file:
        file.write(b'{"n":3,"at":18')
    again = opened(tmp_path)
    again.write("b", ENTRY)
    found = lines(tmp_path)
    assert [line["kind"] for line in found] == ["ledger", "fetched", "gap", "fetched"]
    assert "14 octets" in found[2]["reason"]


@pytest.mark.parametrize("content", [b"x" * 100, b"\n", b"{}\n", b"\0" * 5000 + b"\n"])
def test_a_file_that_cannot_be_gone_on_with_is_set_aside(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    ledger = opened(tmp_path)
    ledger.write("a", ENTRY)
    found = lines(tmp_path)
    assert [line["kind"] for line in found] == ["ledger", "gap", "fetched"]
    (aside,) = tmp_path.glob("*.damaged-*")
    assert aside.read_bytes() == content
    assert aside.name in found[1]["reason"]
    assert [notice for notice in ledger.notices if aside.name in notice] == ledger.notices != []


def test_a_file_that_is_spoilt_meanwhile_is_set_aside_and_its_lines_are_missed(
    tmp_path: Path,
) -> None:
    ledger = opened(tmp_path)
    ledger.write("a", ENTRY)
    (tmp_path / FILE).write_bytes(b"{}\n")
    ledger.write("a", ENTRY)
    assert [line["kind"] for line in lines(tmp_path)] == ["ledger", "gap", "fetched"]
    assert len(ledger.notices) == len([*tmp_path.glob("*.damaged-*")]) == 1


def test_a_damaged_file_of_documents_is_set_aside_and_filled_anew(tmp_path: Path) -> None:
    digest = hashlib.sha256(b"text").hexdigest()
    (tmp_path / "ledger-documents.sqlite").write_bytes(b"no database at all" * 100)
    ledger = opened(tmp_path)
    ledger.keep("robots", b"text", digest)
    assert Bodies(tmp_path / DOCUMENTS).get(digest) == b"text"
    assert len(ledger.notices) == len([*tmp_path.glob("*.damaged-*")]) == 1


def test_what_could_not_be_written_is_counted_in_the_next_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = opened(tmp_path)
    ledger.write("a", ENTRY)

    whole = os.pwrite

    def full(descriptor: int, line: bytes, place: int) -> int:
        return whole(descriptor, line[:10], place)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        for _ in range(3):
            with pytest.raises(StateError, match="WALSH_LEDGER"):
                ledger.write("a", ENTRY)
    ledger.write("a", ENTRY)
    found = lines(tmp_path)
    assert [line["kind"] for line in found] == ["ledger", "fetched", "gap", "fetched"]
    assert found[2]["lost"] == 3


def test_a_directory_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="WALSH_LEDGER = False") as caught:
        opened(tmp_path / "file" / "below")
    assert "\n" not in str(caught.value)


def test_only_the_owner_may_read_it(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    ledger.keep("robots", b"", hashlib.sha256(b"").hexdigest())
    assert {path.stat().st_mode & 0o077 for path in tmp_path.iterdir()} == {0}


def test_lines_that_are_written_together_are_chained_and_lost_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = opened(tmp_path)
    ledger.write("a", ENTRY, ENTRY, ENTRY)
    whole = os.pwrite
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda to, text, at: whole(to, text[:300], at))
        with pytest.raises(StateError, match="WALSH_LEDGER"):
            ledger.write("a", ENTRY, ENTRY)
    ledger.write("a", ENTRY)
    found = lines(tmp_path)
    assert [line["kind"] for line in found] == ["ledger", *["fetched"] * 3, "gap", "fetched"]
    assert found[4]["lost"] == 2


def test_a_kill_within_lines_that_are_written_together_leaves_whole_ones(
    tmp_path: Path,
) -> None:
    opened(tmp_path).write("a", *[ENTRY] * 500)
    path = tmp_path / FILE
    path.write_bytes(path.read_bytes()[:-1000])
    opened(tmp_path).write("b", ENTRY)
    kinds = [line["kind"] for line in lines(tmp_path)]
    assert set(kinds[1:-2]) == {"fetched"}
    assert 490 < len(kinds) < 500
    assert kinds[-2:] == ["gap", "fetched"]


def test_it_is_said_before_the_first_lines_of_this_run_go(tmp_path: Path) -> None:
    earlier = opened(tmp_path, keep_octets=16_000)
    for _ in range(30):
        earlier.write("a", ENTRY)
    earlier.close()
    first = earlier.file
    ledger = opened(tmp_path, keep_octets=16_000)
    while not ledger.notices:
        ledger.write("b", ENTRY)
        assert ledger.file <= first + 17
    (notice,) = ledger.notices
    assert "raise WALSH_LEDGER_KEPT" in notice
    runs = [
        json.loads(line).get("run") for line in rotated_files(tmp_path)[0].read_bytes().splitlines()
    ]
    assert "b" in runs, "nothing of this run has gone yet"
    for _ in range(30):
        ledger.write("b", ENTRY)
    assert len(ledger.notices) == 1, "once a run"
