"""What a full disk kept from being written, and the runs after it."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.exceptions import StateError
from scrapy_walsh.state import machine
from scrapy_walsh.state.records import HostRecord
from scrapy_walsh.state.store import SqliteStore
from tests.kit import HOSTS

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

FIRST, SECOND = HOSTS[:2]


Failing = Callable[["Path"], SqliteStore]


def fill(connection: sqlite3.Connection, *, full: bool = True) -> None:
    connection.execute(f"PRAGMA query_only={int(full)}")


@pytest.fixture
def failing(connections: list[sqlite3.Connection]) -> Failing:
    """Makes a store that has kept one host, and could not keep another."""

    def made(directory: Path) -> SqliteStore:
        store = SqliteStore(directory)
        store.put(FIRST)
        fill(connections[-1])
        with pytest.raises(StateError):
            store.put(SECOND)
        return store

    return made


def opened(directory: Path) -> tuple[bool, list[str]]:
    store = SqliteStore(directory)
    found = store.rows_lost, store.notices
    store.close()
    return found


def test_what_could_not_be_written_is_written_at_the_end(
    tmp_path: Path, failing: Failing, connections: list[sqlite3.Connection]
) -> None:
    store = failing(tmp_path)
    fill(connections[-1], full=False)
    store.close()
    store = SqliteStore(tmp_path)
    assert list(store.rows(HostRecord)) == [FIRST, SECOND]
    store.close()


@pytest.mark.parametrize("killed", [True, False])
def test_bookings_that_were_never_written_are_said(
    tmp_path: Path, failing: Failing, *, killed: bool
) -> None:
    store = failing(tmp_path / "live")
    if killed:
        shutil.copytree(tmp_path / "live", tmp_path / "state")
    store.close()
    if not killed:
        shutil.copytree(tmp_path / "live", tmp_path / "state")
    lost, notices = opened(tmp_path / "state")
    assert lost
    assert len(notices) == 1
    assert "could not be written by an earlier run" in notices[0]


def test_runs_beside_the_next_one_know_it_too(tmp_path: Path, failing: Failing) -> None:
    failing(tmp_path).close()
    stores = [SqliteStore(tmp_path) for _ in range(3)]
    assert [store.rows_lost for store in stores] == [True] * 3
    for store in stores:
        store.close()


def test_the_mark_is_made_while_no_file_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connections: list[sqlite3.Connection]
) -> None:
    """To the last inode."""
    store = SqliteStore(tmp_path)
    fill(connections[-1])
    there = os.open

    def full(path: str, flags: int, *more: int) -> int:
        if flags & os.O_CREAT and not os.path.exists(path):  # noqa: PTH110
            raise OSError(28, "No space left on device", path)
        return there(path, flags, *more)

    monkeypatch.setattr(os, "open", full)
    with pytest.raises(StateError):
        store.put(FIRST)
    monkeypatch.undo()
    store.close()
    assert opened(tmp_path)[0]


@pytest.mark.parametrize("hours", [2, -2])
def test_the_mark_is_taken_up_by_the_first_run_long_after_it(
    tmp_path: Path, failing: Failing, hours: int
) -> None:
    """One from the future is no younger (D9)."""
    failing(tmp_path).close()
    then = time.time() - 3600 * hours
    os.utime(tmp_path / machine.LOST, (then, then))
    assert [opened(tmp_path)[0] for _ in range(2)] == [True, False]
    failing(tmp_path).close()
    assert opened(tmp_path)[0]


def test_nothing_is_marked_where_all_was_written(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    store.put(FIRST)
    store.close()
    assert opened(tmp_path) == (False, [])
