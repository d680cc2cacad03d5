"""A log that was cut off or hit, which SQLite replays up to there without a word."""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.state import wal
from scrapy_walsh.state.records import HostRecord
from scrapy_walsh.state.sqlite import SqliteStore
from scrapy_walsh.state.tables import HOSTS as TABLE

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable
    from pathlib import Path

DATABASE = "state.sqlite3"
#: Octets of a frame of its log.
FRAME = 24 + 4096
#: As many single writes, each of one frame or more.
HOSTS = [f"h{number}.test" for number in range(12)]

#: Begins the log anew all the time, until its input ends.
BUSY = """
import sqlite3, sys, threading
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=10)
connection.execute("PRAGMA wal_autocheckpoint=3")
over = threading.Thread(target=sys.stdin.read, daemon=True)
over.start()
print("begun", flush=True)
while over.is_alive():
    connection.execute("REPLACE INTO hosts SELECT * FROM hosts")
"""


def killed(tmp_path: Path) -> Path:
    """The directory of a store that was never closed."""
    store = SqliteStore(tmp_path / "live")
    for host in HOSTS:
        store.put(HostRecord(host, 1.0, 1.0))
    shutil.copytree(tmp_path / "live", tmp_path / "killed")
    store.close()
    return tmp_path / "killed"


def opened(directory: Path) -> tuple[int, bool, list[str]]:
    """How many hosts a store finds, whether it says that rows are lost, and its notices."""
    store = SqliteStore(directory)
    found = len(list(store.rows(HostRecord))), store.rows_lost, store.notices
    store.close()
    return found


def cut(path: Path, at: float) -> None:
    octets = path.read_bytes()
    path.write_bytes(octets[: int(len(octets) * at)])


def flip(path: Path, at: float) -> None:
    octets = bytearray(path.read_bytes())
    octets[int(len(octets) * at)] ^= 1
    path.write_bytes(octets)


@pytest.mark.parametrize("at", [0.0, 0.002, 0.1, 0.4, 0.8, 0.999])
@pytest.mark.parametrize("damage", [cut, flip])
@pytest.mark.parametrize("index", [True, False], ids=["killed", "crash of the machine"])
def test_own_damaged_log_is_said_once(
    tmp_path: Path, damage: Callable[[Path, float], None], at: float, *, index: bool
) -> None:
    directory = killed(tmp_path)
    damage(directory / f"{DATABASE}-wal", at)
    if not index:
        (directory / f"{DATABASE}-shm").unlink()
    found, lost, notices = opened(directory)
    assert found < len(HOSTS)
    assert lost
    assert len(notices) == 1
    assert opened(directory) == (found, False, [])


def test_own_log_cut_to_nothing_is_said_where_the_file_holds_the_tables(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "live").close()
    directory = killed(tmp_path)
    (directory / f"{DATABASE}-wal").unlink()
    found, lost, notices = opened(directory)
    assert (found, lost) == (0, True)
    assert "its log was cut off" in notices[0]


def test_own_killed_store_has_lost_nothing(tmp_path: Path) -> None:
    assert opened(killed(tmp_path)) == (len(HOSTS), False, [])


def test_own_write_that_a_kill_cut_off_was_never_committed(tmp_path: Path) -> None:
    directory = killed(tmp_path)
    with (directory / f"{DATABASE}-wal").open("ab") as log:
        log.write(random.Random(1).randbytes(3000))
    assert opened(directory) == (len(HOSTS), False, [])


def test_own_closed_store_has_lost_nothing(tmp_path: Path) -> None:
    killed(tmp_path)
    assert opened(tmp_path / "live") == (len(HOSTS), False, [])


@pytest.mark.parametrize("octets", [b"", b"\0" * 136, b"\xff" * 20, bytes(range(136))])
def test_own_index_that_says_nothing_is_no_loss(tmp_path: Path, octets: bytes) -> None:
    directory = killed(tmp_path)
    (directory / f"{DATABASE}-shm").write_bytes(octets)
    assert opened(directory) == (len(HOSTS), False, [])


@pytest.mark.parametrize("index", [True, False], ids=["killed", "crash of the machine"])
@pytest.mark.parametrize("octet", [0, 7, 8, 15, 16, 23, 24, 4119])
@pytest.mark.parametrize("back", [1, 2])
def test_own_no_octet_of_the_last_frames_can_be_hit_unseen(
    tmp_path: Path, octet: int, back: int, *, index: bool
) -> None:
    """Its page, the size that makes it a commit, its salts, its checksum, and what it covers."""
    directory = killed(tmp_path)
    log = directory / f"{DATABASE}-wal"
    flip(log, (log.stat().st_size - back * FRAME + octet + 0.5) / log.stat().st_size)
    if not index:
        (directory / f"{DATABASE}-shm").unlink()
    found, lost, _ = opened(directory)
    assert (found, lost) == (len(HOSTS) - back, True)


def test_own_index_that_is_older_than_the_log_hides_no_damage(tmp_path: Path) -> None:
    """A crash of the machine leaves of each file what it had written back."""
    directory = killed(tmp_path)
    index = bytearray((directory / f"{DATABASE}-shm").read_bytes())
    index[16:20] = index[64:68] = struct.pack("=I", 3)  # mxFrame
    (directory / f"{DATABASE}-shm").write_bytes(index)
    assert opened(directory) == (len(HOSTS), False, [])
    directory = killed(tmp_path / "again")
    (directory / f"{DATABASE}-shm").write_bytes(index)
    flip(directory / f"{DATABASE}-wal", 0.6)
    assert opened(directory)[1]


def test_own_frames_from_before_the_log_was_begun_anew_are_no_loss(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "live")
    for host in HOSTS:
        store.put(HostRecord(host, 1.0, 1.0))
    store._database.run(lambda connection: connection.execute("PRAGMA wal_checkpoint").fetchall())
    store.put(HostRecord(HOSTS[0], 2.0, 1.0))
    shutil.copytree(tmp_path / "live", tmp_path / "killed")
    store.close()
    log = tmp_path / "killed" / f"{DATABASE}-wal"
    (tmp_path / "killed" / f"{DATABASE}-shm").unlink()
    assert log.stat().st_size > 10 * FRAME
    assert opened(tmp_path / "killed") == (len(HOSTS), False, [])


@pytest.mark.parametrize("more", [0, 1], ids=["last", "written over"])
def test_own_transaction_that_never_ended_is_no_loss(tmp_path: Path, more: int) -> None:
    store = SqliteStore(tmp_path / "live")
    for host in HOSTS:
        store.put(HostRecord(host, 1.0, 1.0))

    def begin(connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA cache_size=10")  # so that it reaches the log
        connection.execute("BEGIN IMMEDIATE")
        for number in range(300):
            host = HostRecord(f"{number}{'x' * 500}.test", 1.0, 1.0)
            connection.execute(TABLE.replace, TABLE.encode(host))

    store._database.run(begin)
    log = tmp_path / "live" / f"{DATABASE}-wal"
    assert log.stat().st_size > 2 * len(HOSTS) * FRAME
    if more:
        store._database.run(lambda connection: connection.rollback())
        store.put(HostRecord(HOSTS[0], 2.0, 1.0))
    shutil.copytree(tmp_path / "live", tmp_path / "killed")
    store.close()
    (tmp_path / "killed" / f"{DATABASE}-shm").unlink()
    assert opened(tmp_path / "killed") == (len(HOSTS), False, [])


def test_own_log_that_another_process_begins_anew_is_no_loss(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    store.put(HostRecord(HOSTS[0], 1.0, 1.0))
    store.close()
    command = [sys.executable, "-c", BUSY, str(tmp_path / DATABASE)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as busy:
        assert busy.stdout is not None
        assert busy.stdout.readline() == b"begun\n"
        found = [opened(tmp_path) for _ in range(25)]
    assert busy.returncode == 0
    assert found == [(1, False, [])] * 25


def test_own_log_is_looked_at_only_without_another_connection_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing the -shm would drop the locks of the first store."""
    looked: list[Path] = []
    monkeypatch.setattr(wal, "committed", looked.append)
    first = SqliteStore(tmp_path)
    SqliteStore(tmp_path).close()
    assert len(looked) == 1
    first.close()
    SqliteStore(tmp_path).close()
    assert len(looked) == 2
