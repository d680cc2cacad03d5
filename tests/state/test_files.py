"""What may lie in the place of a state file, who may read it, and one that is gone."""

from __future__ import annotations

import os
import stat
import threading
import time
import tracemalloc
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.commands import state_verify
from scrapy_walsh.exceptions import StateError
from scrapy_walsh.ledger import Ledger
from scrapy_walsh.ledger.files import FILE, HEAD, parse_line
from scrapy_walsh.ledger.files import LOCK as LEDGER_LOCK
from scrapy_walsh.state import files, machine
from scrapy_walsh.state.records import StoredDocument
from scrapy_walsh.state.store import SqliteStore
from tests.kit import BLOCKLIST_URL, HOSTS, NOW, kept_list, kept_robots

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

#: Every file that a crawl may make in its state directory.
NAMES = (
    "state.sqlite3",
    "state.sqlite3-wal",
    "state.sqlite3-shm",
    files.LOCK,
    files.COPY,
    files.SECOND,
    machine.READY,
    machine.LOST,
    machine.CLOCK,
    FILE,
    HEAD,
    LEDGER_LOCK,
    "ledger-000001.jsonl",
    "ledger-documents.sqlite",
)
LIST = kept_list(NOW)


def run(directory: Path) -> None:
    """What a crawl does with its state directory."""
    store = SqliteStore(directory)
    ledger = Ledger(directory, time.time)
    machine.steady_clock(directory)
    store.put(HOSTS[0])
    store.put(LIST)
    store.put(kept_robots("https://h.test"))
    ledger.keep("robots", b"x", "0" * 64)
    ledger.write("run", {"kind": "ended"})
    ledger.close()
    store.close()


def link(path: Path) -> None:
    path.symlink_to(path.with_name("elsewhere"))


def link_to_a_file(path: Path) -> None:
    path.with_name("elsewhere").write_bytes(b"")
    link(path)


@pytest.fixture
def watchdog() -> Iterator[None]:
    """What hangs is ended, and fails: a FIFO is opened for ever."""
    timer = threading.Timer(20, os._exit, (70,))
    timer.start()
    yield
    timer.cancel()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("other", [os.mkfifo, os.mkdir, link, link_to_a_file])
@pytest.mark.usefixtures("watchdog")
def test_only_a_file_may_be_in_the_place_of_a_state_file(
    tmp_path: Path, name: str, other: Callable[[Path], object]
) -> None:
    directory = tmp_path / "state"
    directory.mkdir()
    other(directory / name)
    with pytest.raises(StateError, match=rf"{name} is not a file .*(remove|move) it") as refused:
        SqliteStore(directory)
    assert "\n" not in str(refused.value)
    (found,) = state_verify.problems(directory, lambda body, url: None)
    assert found.startswith(f"{name}: not a file")


def test_a_directory_that_is_a_link_is_fine(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "state").symlink_to(tmp_path / "disk")
    run(tmp_path / "state")
    assert (tmp_path / "disk" / "state.sqlite3").exists()


def modes(directory: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_state_files_are_their_owners_alone(tmp_path: Path, mask: int) -> None:
    directory = tmp_path / "state"
    directory.mkdir(mode=0o755)
    before = os.umask(mask)
    try:
        run(directory)
        store = SqliteStore(directory)  # open: -wal and -shm are there
        machine.mark_lost(directory)
        found = modes(directory)
        store.close()
    finally:
        os.umask(before)
    assert {
        "state.sqlite3-wal",
        "state.sqlite3-shm",
        machine.LOST,
        machine.CLOCK,
    } <= found.keys()
    assert {name: mode for name, mode in found.items() if mode != 0o600} == {}


def test_a_stricter_umask_holds(tmp_path: Path) -> None:
    before = os.umask(0o277)
    try:
        with files.private(tmp_path / "x", "wb"):
            pass
    finally:
        os.umask(before)
    assert modes(tmp_path) == {"x": 0o400}


def test_files_that_others_can_read_are_closed_to_them(tmp_path: Path) -> None:
    run(tmp_path)
    (tmp_path / "notes.txt").write_text("")
    for path in tmp_path.iterdir():
        path.chmod(0o644)
    SqliteStore(tmp_path).close()
    assert set(modes(tmp_path).values()) >= {0o644}, "a look changes nothing"
    machine.enter(tmp_path)
    found = modes(tmp_path)
    assert found.pop("notes.txt") == 0o644
    assert set(found.values()) == {0o600}


# -- one that is gone ---------------------------------------------------------------------


def lost(directory: Path) -> tuple[bool, list[str]]:
    store = SqliteStore(directory)
    found = store.rows_lost, store.notices
    store.close()
    return found


@pytest.mark.parametrize(
    "left",
    [files.COPY, files.SECOND, HEAD, FILE, machine.CLOCK, machine.READY, "state.sqlite3-shm"],
)
def test_of_r4_a_database_that_is_gone_is_said_while_anything_of_it_is_left(
    tmp_path: Path, left: str
) -> None:
    run(tmp_path)
    for path in tmp_path.iterdir():
        if path.name != left:
            path.unlink()
    if left.endswith("-shm"):
        (tmp_path / left).write_bytes(bytes(32768))
    rows_lost, notices = lost(tmp_path)
    assert rows_lost
    (notice,) = notices
    assert "state.sqlite3 is missing" in notice
    assert "holds and last requests may be lost" in notice
    assert "\n" not in notice


def test_a_first_run_lost_nothing(tmp_path: Path) -> None:
    (tmp_path / files.LOCK).touch()  # of a process that was killed at its start
    assert lost(tmp_path) == (False, [])
    assert lost(tmp_path) == (False, [])


def test_of_r3_a_list_that_may_have_been_lost_with_the_database_is_not_forgotten(
    tmp_path: Path,
) -> None:
    run(tmp_path)
    for path in (*tmp_path.glob("state.sqlite3*"), *tmp_path.glob("blocklist*")):
        path.unlink()
    for _ in range(2):
        store = SqliteStore(tmp_path)
        found = store.get(StoredDocument, "blocklist", BLOCKLIST_URL)
        store.close()
        assert found is not None
        assert found.body == b""


@pytest.mark.parametrize("kept", [(HEAD,), (HEAD, "ledger-documents.sqlite")])
def test_a_ledger_that_is_gone_is_said(tmp_path: Path, kept: tuple[str, ...]) -> None:
    run(tmp_path)
    (tmp_path / FILE).unlink()
    ledger = Ledger(tmp_path, time.time)
    ledger.close()
    (notice,) = ledger.notices
    assert f"{FILE} is gone" in notice
    lines = [parse_line(line) for line in (tmp_path / FILE).read_bytes().splitlines()]
    assert [line["kind"] for line in lines] == ["ledger", "gap"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_files_of_another_user_are_named_and_not_set_aside(tmp_path: Path) -> None:
    """One run as root has made them; the next one is nobody's."""
    for folder in (*tmp_path.parents, tmp_path):
        if folder.stat().st_uid == 0 and folder != folder.parent:
            folder.chmod(folder.stat().st_mode | 0o055)
    state = tmp_path / "state"
    state.mkdir()
    store = SqliteStore(state)
    store.put(LIST)
    store.close()
    nobody = 65534
    for path in (state, *state.iterdir()):
        os.chown(path, nobody, nobody)
    for name in files.COPIES:
        os.chown(state / name, 0, 0)
    os.seteuid(nobody)
    try:
        store = SqliteStore(state)
        found = store.get(StoredDocument, "blocklist", BLOCKLIST_URL)
        notices = list(store.notices)
        store.close()
        assert found is not None, "it is known that there was a list"
        assert found.body == b""
        assert [notice.partition(" cannot be read (")[0] for notice in notices] == [
            str(state / name) for name in files.COPIES
        ]
        for notice in notices:
            assert "belongs to root, and this runs as nobody: let the user of this crawl" in notice
    finally:
        os.seteuid(0)
    assert not [path for path in state.iterdir() if "damaged" in path.name]
    os.chown(state / "state.sqlite3", 0, 0)
    os.seteuid(nobody)
    try:
        with pytest.raises(StateError, match=r"state.sqlite3 belongs to root"):
            SqliteStore(state).get(StoredDocument, "blocklist", BLOCKLIST_URL)
    finally:
        os.seteuid(0)


@pytest.mark.parametrize(
    "name", [files.COPY, files.SECOND, machine.CLOCK, machine.OWNER, FILE, HEAD]
)
def test_a_file_that_something_has_grown_is_not_read(tmp_path: Path, name: str) -> None:
    """A copy of the list of 3 GiB was read whole, in 84 s and as much memory."""
    machine.enter(tmp_path)
    run(tmp_path)
    if not (tmp_path / name).exists():
        pytest.skip("this machine has none")
    os.truncate(tmp_path / name, 3 << 30)  # sparse: it takes no space on the disk
    tracemalloc.start()
    try:
        machine.enter(tmp_path)
        store = SqliteStore(tmp_path)
        assert store.get(StoredDocument, "blocklist", BLOCKLIST_URL) == LIST
        store.close()
        run(tmp_path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 32 << 20
    grown = [path.name for path in tmp_path.iterdir() if path.stat().st_size > 1 << 20]
    assert name not in grown or name == HEAD  # only its first line is ever read or written


def test_files_that_root_makes_belong_to_the_owner_of_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run as root leaves nothing that the bot's own next run cannot read."""
    is_root = os.geteuid() == 0
    if is_root:
        os.chown(tmp_path, 12345, 12346)
    given = []
    change = os.fchown

    def fchown(descriptor: int, uid: int, gid: int) -> None:
        given.append((uid, gid))
        if is_root:
            change(descriptor, uid, gid)

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "fchown", fchown)
    run(tmp_path)
    directory = tmp_path.stat()
    assert set(given) == {(directory.st_uid, directory.st_gid)}
    for path in tmp_path.iterdir():
        assert path.stat().st_uid == directory.st_uid, path.name


def test_a_file_that_exists_keeps_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a user could have root give another's file away, for example by a hard link."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "fchown", lambda *_: pytest.fail("the owner was changed"))
    path = tmp_path / files.LOCK
    path.write_bytes(b"theirs")
    os.close(files.open_private(path))
    assert path.read_bytes() == b"theirs"
