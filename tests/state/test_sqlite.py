"""Kill, full disk, and the blocklist that is kept twice (D3)."""

from __future__ import annotations

import hashlib
import json
import re
import signal
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.exceptions import StateError
from scrapy_walsh.state import database, files
from scrapy_walsh.state.records import DOCUMENTS, HostRecord, SeenItem, StoredDocument
from scrapy_walsh.state.store import SqliteStore
from tests.kit import (
    BLOCKLIST_URL,
    HOSTS,
    NOW,
    change,
    flip,
    give_space,
    kept_list,
    kept_robots,
    take_space,
)

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path
    from typing import Any


KILLED = """
import sys
from dataclasses import replace
from pathlib import Path
from scrapy_walsh.state.records import DOCUMENTS, HostRecord
from scrapy_walsh.state.store import SqliteStore

store = SqliteStore(Path(sys.argv[1]))
for number in range(1_000_000):
    store.put(HostRecord(f"h{number}.test", number, 1.0))
    print(number, flush=True)
"""


@pytest.mark.parametrize("after", [0, 1, 40, 700])
def test_r11_kill_loses_at_most_the_write_in_flight(tmp_path: Path, after: int) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) >= after:
                process.send_signal(signal.SIGKILL)
                break
        said = [int(line) for line in process.stdout if line.endswith("\n")]
    last = max([after, *said])
    store = SqliteStore(tmp_path)
    assert store.notices == []
    assert all(store.get(HostRecord, f"h{number}.test") for number in range(last + 1))
    assert sum(1 for _ in store.rows(HostRecord)) in (last + 1, last + 2)
    store.close()


def unlink_copies(directory: Path) -> None:
    for name in files.COPIES:
        (directory / name).unlink()


def test_d3_copy_counts_when_the_row_is_missing(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    store.put(kept_list())
    change(tmp_path, DOCUMENTS.delete, "blocklist", BLOCKLIST_URL)
    assert store.get(StoredDocument, "blocklist", BLOCKLIST_URL) == kept_list()
    store.close()


@pytest.mark.parametrize("newer", [0, 1])
def test_d3_newer_of_the_two_counts_and_replaces_the_other(tmp_path: Path, newer: int) -> None:
    store = SqliteStore(tmp_path)
    old, new = kept_list(NOW), kept_list(NOW + 1, b"{}")
    store.put(old)
    files.write_copies(tmp_path, new, files.COPIES[newer])
    assert store.get(StoredDocument, "blocklist", BLOCKLIST_URL) == new
    assert list(store.rows(StoredDocument, "blocklist")) == [new]
    assert [files.read_copy(tmp_path, name) for name in files.COPIES] == [new, new]
    store.close()


def test_d3_a_refresh_without_a_body_never_hides_the_list(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    store.put(kept_list())
    store.put(kept_list(NOW + 9, b""))
    assert store.get(StoredDocument, "blocklist", BLOCKLIST_URL) == kept_list()
    store.close()


def test_d3_copy_of_another_list_does_not_count(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    store.put(kept_list())
    assert store.get(StoredDocument, "blocklist", "https://other.test/b.json") is None
    assert store.get(StoredDocument, "schema", BLOCKLIST_URL) is None
    store.close()


def test_d3_damaged_copy_is_set_aside_and_made_anew(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    store.put(kept_list())
    copy = tmp_path / "blocklist.json"
    content = copy.read_bytes()
    cases = [flip(content, offset, offset % 8) for offset in range(0, len(content), 5)]
    cases += [content[:length] for length in (0, 1, 70, 80, 81, 90, len(content) - 1)]
    cases += [b"\xff\xfe", content + b"x"]
    for number, damaged in enumerate(cases, 1):
        copy.write_bytes(damaged)
        assert store.get(StoredDocument, "blocklist", BLOCKLIST_URL) == kept_list()
        assert (tmp_path / f"blocklist.json.damaged-{number}").read_bytes() == damaged
        assert copy.read_bytes() == content
        assert len(store.notices) == number
    store.close()


def test_d16_copy_of_a_later_version_is_refused_and_stays(tmp_path: Path) -> None:
    """It is not damaged: what this package does not know is refused, not set aside."""
    store = SqliteStore(tmp_path)
    rest = b'{"kind": "blocklist", "novel": 1}\n{}'
    checksum = json.dumps({"sha256": hashlib.sha256(rest).hexdigest()}).encode()
    copy = tmp_path / "blocklist.json"
    copy.write_bytes(checksum + b"\n" + rest)
    with pytest.raises(StateError, match="written by a later version of scrapy-walsh"):
        store.get(StoredDocument, "blocklist", BLOCKLIST_URL)
    assert copy.read_bytes() == checksum + b"\n" + rest
    store.close()


@pytest.mark.parametrize("name", files.COPIES)
def test_d3_a_failing_copy_still_writes_the_other(tmp_path: Path, name: str) -> None:
    store = SqliteStore(tmp_path)
    store.put(kept_list())
    draft = tmp_path / f"{name}.new"
    draft.mkdir()
    new = kept_list(NOW + 1, b"{}")
    with pytest.raises(StateError, match=rf"{re.escape(name)} cannot be written"):
        store.put(new)
    draft.rmdir()
    assert files.read_copy(tmp_path, name) == kept_list()
    assert store.get(StoredDocument, "blocklist", BLOCKLIST_URL) == new
    assert [files.read_copy(tmp_path, each) for each in files.COPIES] == [new, new]
    store.close()


def test_d3_copy_is_json_a_reader_can_take_apart(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    store.put(kept_list())
    store.close()
    _, head, body = (tmp_path / "blocklist.json").read_bytes().split(b"\n", 2)
    values: dict[str, Any] = json.loads(head)
    assert StoredDocument(body=body, **values) == kept_list()


def test_rows_come_by_many_but_large_bodies_by_few(tmp_path: Path) -> None:
    """All come in key order; what is in memory at once has a bound, whatever the bodies are."""
    store = SqliteStore(tmp_path)
    origins = [f"https://h{number}.test" for number in range(700)]
    for number, origin in enumerate(origins):
        store.put(kept_robots(origin, 400_000 if 100 <= number < 110 else 10))
    read: list[list[StoredDocument]] = []
    page = database.Database.page

    def noted(*given: Any) -> Any:
        read.append(page(*given))
        return read[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database.Database, "page", noted)
        assert [each.key for each in store.rows(StoredDocument)] == sorted(origins)
    assert store.count(StoredDocument) == 700
    assert len(read) < 12
    assert max(sum(len(each.body) for each in records) for records in read) < 2_000_000
    store.close()


def test_full_disk_is_said_once_and_made_good_later(
    tmp_path: Path, connections: list[sqlite3.Connection]
) -> None:
    store = SqliteStore(tmp_path)
    (disk,) = connections
    store.put(HOSTS[0])
    take_space(disk)
    big = kept_robots("https://h.test", 100_000)
    with pytest.raises(StateError, match="full") as caught:
        store.put(big)
    assert "\n" not in str(caught.value)
    store.put(kept_robots("https://g.test", 90_000))
    assert store.get(StoredDocument, "robots", "https://h.test") == big
    store.put(replace(big, kind="schema"))
    assert store.get(StoredDocument, "schema", "https://h.test") == replace(big, kind="schema")
    store.delete(StoredDocument, "robots", "https://g.test")
    assert store.get(StoredDocument, "robots", "https://g.test") is None
    assert store.get(HostRecord, HOSTS[0].host) == HOSTS[0]
    give_space(disk)
    store.put(HOSTS[1])
    sibling = SqliteStore(tmp_path)
    assert list(sibling.rows(StoredDocument, "robots")) == [big]
    sibling.put(kept_robots("https://h.test", 1))
    assert store.get(StoredDocument, "robots", "https://h.test") == kept_robots("https://h.test", 1)
    sibling.close()
    store.close()
    store = SqliteStore(tmp_path)
    assert list(store.rows(HostRecord)) == HOSTS[:2]
    store.close()


def test_full_disk_is_said_again_after_it_was_free(
    tmp_path: Path, connections: list[sqlite3.Connection]
) -> None:
    store = SqliteStore(tmp_path)
    (disk,) = connections
    for _ in range(2):
        take_space(disk)
        with pytest.raises(StateError):
            store.put(kept_robots("https://h.test", 100_000))
        give_space(disk)
        store.put(kept_robots("https://h.test", 1))
    assert store.get(StoredDocument, "robots", "https://h.test") == kept_robots("https://h.test", 1)
    store.close()


def test_locked_file_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connections: list[sqlite3.Connection]
) -> None:
    monkeypatch.setattr(database, "BUSY_TIMEOUT", 0.01)
    store, other = SqliteStore(tmp_path), SqliteStore(tmp_path)
    connections[-1].execute("BEGIN IMMEDIATE")
    with pytest.raises(StateError, match="locked"):
        store.put(HOSTS[0])
    assert store.get(HostRecord, HOSTS[0].host) == HOSTS[0]
    connections[-1].execute("ROLLBACK")
    store.put(HOSTS[1])
    assert list(other.rows(HostRecord)) == HOSTS[:2]
    assert store.notices == []
    store.close()
    other.close()


def test_items_of_one_page_are_one_transaction(
    tmp_path: Path, connections: list[sqlite3.Connection]
) -> None:
    store = SqliteStore(tmp_path)
    statements: list[str] = []
    connections[-1].set_trace_callback(statements.append)
    store.put(*[SeenItem(f"https://a.test/{number}", NOW) for number in range(9)])
    connections[-1].set_trace_callback(None)
    assert [found.split()[0] for found in statements] == ["BEGIN", *["INSERT"] * 9, "COMMIT"]
    store.close()


def test_d3_copy_counts_when_the_database_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> Any:
        raise StateError("the disk")

    store = SqliteStore(tmp_path)
    store.put(kept_list())
    monkeypatch.setattr(database.Database, "run", broken)
    assert store.get(StoredDocument, "blocklist", BLOCKLIST_URL) == kept_list()
    with pytest.raises(StateError, match="the disk"):
        store.get(StoredDocument, "robots", "https://h.test")
    unlink_copies(tmp_path)
    with pytest.raises(StateError, match="the disk"):
        store.get(StoredDocument, "blocklist", BLOCKLIST_URL)
    store.close()
