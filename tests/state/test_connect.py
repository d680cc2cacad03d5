"""A directory in which nothing can be written."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.exceptions import StateError
from scrapy_walsh.state.store import SqliteStore
from tests.kit import HOSTS, kept_list

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def unprivileged() -> Iterator[Path]:
    """A directory of our own in which the modes of files count, for root as well."""
    uid = os.geteuid()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)
        if uid == 0:
            os.chown(directory, 65534, 65534)
            os.seteuid(65534)
        try:
            yield directory
        finally:
            os.seteuid(uid)
            for path in (directory, *directory.rglob("*")):
                path.chmod(0o700)


@pytest.mark.parametrize("modes", ["directory", "all"])
def test_what_cannot_be_written_is_refused(modes: str) -> None:
    with unprivileged() as directory:
        store = SqliteStore(directory)
        store.put(kept_list())
        store.put(HOSTS[0])
        store.close()
        before = {path: path.read_bytes() for path in directory.iterdir()}
        if modes == "all":
            for path in directory.iterdir():
                path.chmod(0o400)
        directory.chmod(0o500)
        with pytest.raises(StateError, match="WALSH_STATE_DIR") as caught:
            SqliteStore(directory)
        assert "\n" not in str(caught.value)
        assert {path: path.read_bytes() for path in directory.iterdir()} == before


def test_read_only_directory_without_a_file_is_refused() -> None:
    with unprivileged() as base:
        base.chmod(0o500)
        with pytest.raises(StateError, match="WALSH_STATE_DIR"):
            SqliteStore(base)
        with pytest.raises(StateError, match="WALSH_STATE_DIR"):
            SqliteStore(base / "new")


def test_damaged_file_in_read_only_directory_is_refused_and_kept() -> None:
    with unprivileged() as base:
        (base / "state.sqlite3").write_bytes(b"")
        base.chmod(0o500)
        with pytest.raises(StateError, match="WALSH_STATE_DIR"):
            SqliteStore(base)
        assert (base / "state.sqlite3").read_bytes() == b""


def test_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StateError, match="WALSH_STATE_DIR") as caught:
            SqliteStore(path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("what", ["directory", "file"])
def test_where_permissions_are_wrong_it_says_who_may_mend_them(what: str) -> None:
    with unprivileged() as base:
        SqliteStore(base / "state").close()
        path = base / "state" if what == "directory" else base / "state" / "state.sqlite3"
        path.chmod(0o000)
        with pytest.raises(StateError, match="let the user of this crawl read and write it"):
            SqliteStore(base / "state")
