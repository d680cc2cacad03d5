"""A log that was cut off or hit, which SQLite replays up to there without a word."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.state import wal
from scrapy_walsh.state.records import HostRecord
from scrapy_walsh.state.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DATABASE = "state.sqlite3"
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
        store.put_host(HostRecord(host, 1.0, 1.0))
    shutil.copytree(tmp_path / "live", tmp_path / "killed")
    store.close()
    return tmp_path / "killed"


def opened(directory: Path) -> tuple[int, bool, list[str]]:
    """How many hosts a store finds, whether it says that rows are lost, and its notices."""
    store = SqliteStore(directory)
    found = len(list(store.hosts())), store.rows_lost, store.notices
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
def test_own_damaged_log_is_said_once(
    tmp_path: Path, damage: Callable[[Path, float], None], at: float
) -> None:
    directory = killed(tmp_path)
    damage(directory / f"{DATABASE}-wal", at)
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


def test_own_log_that_another_process_begins_anew_is_no_loss(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    store.put_host(HostRecord(HOSTS[0], 1.0, 1.0))
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
