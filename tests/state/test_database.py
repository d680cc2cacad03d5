"""A damaged file: nothing invented, nothing deleted, and the store says what it did."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.exceptions import StateError
from scrapy_walsh.state import database as opened
from scrapy_walsh.state.records import (
    Attempts,
    Deferral,
    HostRecord,
    StoredDocument,
    Validators,
    VisitRecord,
)
from scrapy_walsh.state.store import SqliteStore
from tests.kit import BLOCKLIST_URL, HOSTS, NOW, kept_list, kept_robots

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def fill(store: SqliteStore) -> None:
    store.put(kept_list())
    for record in HOSTS:
        store.put(record)
        url = f"https://{record.host}/feed"
        store.put(VisitRecord(url, NOW, "200"))
        store.put(Validators(url, "feed", '"1"', None, NOW))
        store.put(Deferral(url, record.host, NOW + 7200, "Retry-After"))
        store.put(Attempts(url, 1, NOW))
        store.put(kept_robots(url))


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state directory as a run leaves it."""
    directory = tmp_path_factory.mktemp("closed")
    store = SqliteStore(directory)
    fill(store)
    store.close()
    return directory


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state directory as a killed run leaves it: with -wal and -shm."""
    live, directory = tmp_path_factory.mktemp("live"), tmp_path_factory.mktemp("killed") / "state"
    store = SqliteStore(live)
    fill(store)
    shutil.copytree(live, directory)
    store.close()
    assert (directory / "state.sqlite3-wal").stat().st_size
    return directory


def assert_promises_kept(store: SqliteStore) -> None:
    """The invariant: a record is as it was written, or missing and the store says so."""
    found = [store.get(HostRecord, record.host) for record in HOSTS]
    assert all(found[n] in (None, record) for n, record in enumerate(HOSTS))
    assert store.get(StoredDocument, "blocklist", BLOCKLIST_URL) == kept_list()
    assert all(record in HOSTS for record in store.rows(HostRecord))
    assert len(list(store.rows(Deferral))) == len(HOSTS) or store.rows_lost
    assert None not in found or store.rows_lost
    assert all("\n" not in notice for notice in store.notices)
    if store.rows_lost:
        assert store.notices
    store.put(HostRecord("new.test", NOW, 1.0))
    assert store.get(HostRecord, "new.test") == HostRecord("new.test", NOW, 1.0)


def open_damaged(source: Path, target: Path, damaged: bytes) -> bool:
    """Open a copy of *source* whose database is *damaged*; whether damage was found."""
    shutil.copytree(source, target)
    database = target / "state.sqlite3"
    database.write_bytes(damaged)
    store = SqliteStore(target)
    assert_promises_kept(store)
    found = store.rows_lost
    if found:
        assert (target / "state.sqlite3.damaged-1").read_bytes() == damaged
    store.close()
    store = SqliteStore(target)
    assert store.notices == []
    assert store.get(StoredDocument, "blocklist", BLOCKLIST_URL) == kept_list()
    store.close()
    shutil.rmtree(target)
    return found


def test_truncated_at_many_lengths(closed: Path, tmp_path: Path) -> None:
    content = (closed / "state.sqlite3").read_bytes()
    lengths = [0, 1, 15, 99, 100, 511, 512, 4095, 4096, 4097, 8192]
    lengths += range(12288, len(content) - 1, len(content) // 20)
    for length in lengths:
        assert open_damaged(closed, tmp_path / "state", content[:length])


@pytest.mark.parametrize("left", [b"", bytes(8192), b"SQLite format 3\0"])
def test_a_cut_or_zeroed_file_is_damaged(closed: Path, tmp_path: Path, left: bytes) -> None:
    assert open_damaged(closed, tmp_path / "state", left)


def another_programs(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    connection.close()


FOREIGN = {
    "text": lambda path: path.write_bytes(b"not a database"),
    "octets": lambda path: path.write_bytes(b"\xff\xfe" * 5000),
    "another program's": another_programs,
}


@pytest.mark.parametrize("make", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("meanwhile", [False, True], ids=["before", "meanwhile"])
def test_a_file_of_another_program_is_refused_and_left(
    tmp_path: Path, make: Callable[[Path], object], meanwhile: bool
) -> None:
    store = SqliteStore(tmp_path)
    if not meanwhile:
        store.close()
    for each in tmp_path.glob("state.sqlite3*"):
        each.unlink()
    make(tmp_path / "other")
    (tmp_path / "other").rename(tmp_path / "state.sqlite3")
    before = (tmp_path / "state.sqlite3").read_bytes()
    with pytest.raises(StateError, match="not a file of this package") as caught:
        store.put(HOSTS[0]) if meanwhile else SqliteStore(tmp_path)
    assert "\n" not in str(caught.value)
    if meanwhile:  # this run still goes by what it has learned, and says what follows
        assert store.get(HostRecord, HOSTS[0].host) == HOSTS[0]
        store.close()
    assert (tmp_path / "state.sqlite3").read_bytes() == before
    assert not list(tmp_path.glob("*.damaged-*"))


@pytest.mark.parametrize("words", [b"CREATE TABLE hosts", b"PRIMARY KEY"])
@pytest.mark.parametrize("octet", [b"\xd5", b"\xff", b"\x80"])
def test_a_schema_that_is_not_utf_8(
    closed: Path, tmp_path: Path, words: bytes, octet: bytes
) -> None:
    """SQLite quotes it in its message, which Python cannot decode."""
    content = (closed / "state.sqlite3").read_bytes()
    at = content.index(words) + 2
    assert open_damaged(closed, tmp_path / "state", content[:at] + octet + content[at + 1 :])


def zero_page(content: bytes, offset: int) -> bytes:
    """*content* with zeros in place of the page at *offset*: of 512 octets, as our files have."""
    start = offset // 512 * 512
    return content[:start] + bytes(512) + content[start + 512 :]


def in_a_leaf(content: bytes) -> int:
    """Where a robots.txt from the middle is, in a page at the end of its tree.

    A page above has rows as well, and without it neither half could be read (SQLite's file format,
    1.6: type 10 is a leaf of an index).
    """
    places = (content.index(b"robotshttps://h%03d" % number) for number in range(60, 90))
    return next(at for at in places if content[at // 512 * 512] == 10)


def test_salvage_reads_from_both_ends(closed: Path, tmp_path: Path) -> None:
    target = tmp_path / "state"
    shutil.copytree(closed, target)
    database = target / "state.sqlite3"
    content = database.read_bytes()
    at = in_a_leaf(content)
    rows = zero_page(content, at).count(b"robotshttps://h")
    database.write_bytes(zero_page(content, at))
    store = SqliteStore(target)
    found = sum(1 for _ in store.rows(StoredDocument, "robots"))
    assert rows - 4 <= found <= rows  # some lie on pages of the tree above
    assert 100 < rows < len(HOSTS)
    assert store.get(StoredDocument, "robots", "https://h000.test/feed")
    assert store.get(StoredDocument, "robots", "https://h149.test/feed")
    store.close()


def test_damage_met_during_a_run(
    closed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opened, "CHECK_BELOW", 0)
    target = tmp_path / "state"
    shutil.copytree(closed, target)
    database = target / "state.sqlite3"
    content = database.read_bytes()
    database.write_bytes(zero_page(content, content.index(b"robotshttps://h070")))
    store = SqliteStore(target)
    assert not store.rows_lost
    assert len(list(store.rows(StoredDocument))) < len(HOSTS)
    assert store.rows_lost
    assert len(store.notices) == 1
    store.close()


def test_a_value_of_another_type_is_damage(closed: Path, tmp_path: Path) -> None:
    target = tmp_path / "state"
    shutil.copytree(closed, target)
    with sqlite3.connect(target / "state.sqlite3") as connection:
        connection.execute("UPDATE hosts SET last_end = 'soon' WHERE host = 'h003.test'")
    connection.close()
    store = SqliteStore(target)
    assert store.get(HostRecord, "h003.test") is None
    assert store.rows_lost
    assert sum(1 for _ in store.rows(HostRecord)) == len(HOSTS) - 1
    store.close()


def test_every_damaged_file_is_kept(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        (tmp_path / "state.sqlite3").write_bytes(bytes(number))
        SqliteStore(tmp_path).close()
        assert (tmp_path / f"state.sqlite3.damaged-{number}").read_bytes() == bytes(number)


def test_repair_that_was_cut_off_is_finished(closed: Path, tmp_path: Path) -> None:
    target = tmp_path / "state"
    shutil.copytree(closed, target)
    (target / "state.sqlite3").rename(target / "state.sqlite3.new")
    store = SqliteStore(target)
    assert store.get(HostRecord, "h001.test") == HOSTS[1]
    store.close()
    (target / "state.sqlite3.new").write_bytes(b"half a draft")
    (target / "state.sqlite3").write_bytes(b"")
    SqliteStore(target).close()
    assert not (target / "state.sqlite3.new").exists()


def test_file_replaced_by_another_process_is_opened_again(tmp_path: Path) -> None:
    store, sibling = SqliteStore(tmp_path), SqliteStore(tmp_path)
    replaced = tmp_path / "a sibling's"
    shutil.copy(tmp_path / "state.sqlite3", replaced)
    replaced.rename(tmp_path / "state.sqlite3")
    store.put(HOSTS[0])
    assert sibling.get(HostRecord, HOSTS[0].host) == HOSTS[0]
    assert "replaced during the run" in store.notices[0]
    store.close()
    sibling.close()


def test_directory_removed_during_a_run_is_made_again(tmp_path: Path) -> None:
    directory = tmp_path / "state"
    store = SqliteStore(directory)
    shutil.rmtree(directory)
    store.put(HOSTS[0])
    store.close()
    store = SqliteStore(directory)
    assert store.get(HostRecord, HOSTS[0].host) == HOSTS[0]
    store.close()


SIBLING = """
import json, sys
from pathlib import Path
from scrapy_walsh.state.records import HostRecord
from scrapy_walsh.state.store import SqliteStore

sys.stdin.readline()
store = SqliteStore(Path(sys.argv[1]))
for number in range(60):
    store.put(HostRecord(f"{sys.argv[2]}-{number}.test", number, 1.0))
store.close()
print(json.dumps(store.notices))
"""


@pytest.mark.parametrize("damaged", [False, True], ids=["new", "damaged"])
def test_processes_that_open_together_repair_once(tmp_path: Path, damaged: bool) -> None:
    if damaged:
        (tmp_path / "state.sqlite3").write_bytes(bytes(2000))
    pipe = subprocess.PIPE
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SIBLING, str(tmp_path), str(n)],
            stdin=pipe,
            stdout=pipe,
            text=True,
        )
        for n in range(3)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    notices = [note for process in processes for note in json.loads(process.communicate()[0])]
    assert len(notices) == damaged
    assert len(list(tmp_path.glob("state.sqlite3.damaged-*"))) == damaged
    store = SqliteStore(tmp_path)
    assert sum(1 for _ in store.rows(HostRecord)) == 3 * 60
    store.close()


# ---- two versions


@pytest.mark.parametrize("version", [opened.VERSION + 1, 257, 0])
def test_another_version_is_refused_and_left_alone(
    closed: Path, tmp_path: Path, version: int
) -> None:
    target = tmp_path / "state"
    shutil.copytree(closed, target)
    database = target / "state.sqlite3"
    content = database.read_bytes()
    database.write_bytes(content[:60] + version.to_bytes(4, "big") + content[64:])
    before = database.read_bytes()
    told = f"schema version {version} .* writes {opened.VERSION}"
    with pytest.raises(StateError, match=told) as caught:
        SqliteStore(target)
    assert "\n" not in str(caught.value)
    assert database.read_bytes() == before
    assert not list(target.glob("*.damaged-*"))
