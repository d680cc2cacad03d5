"""A state directory of a newer version: refused in one line, and left as it is."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.proof.sandbox import Sandbox
from scrapy_walsh.state.database import DATABASE
from scrapy_walsh.state.tables import MIGRATIONS
from tests.crawl.harness import crawl, make_project, run_scrapy, site, state_dir

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

URL = "http://page.test/p"
NEWER = len(MIGRATIONS) + 1
WORDS = (DATABASE, f"has schema version {NEWER}", f"this package writes {len(MIGRATIONS)}")


@pytest.fixture
def newer(tmp_path: Path) -> Iterator[tuple[Path, Sandbox]]:
    """A project whose state a newer version has written."""
    with Sandbox() as box:
        box.put(site("page.test"))
        project = make_project(tmp_path / "project")
        assert crawl(project, box, URL).returncode == 0
        with closing(sqlite3.connect(state_dir(project) / DATABASE)) as connection:
            connection.execute(f"PRAGMA user_version={NEWER}")
        yield project, box


def content(project: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in state_dir(project).iterdir()}


def test_own_a_newer_directory_is_refused_in_one_line(newer: tuple[Path, Sandbox]) -> None:
    project, box = newer
    before = content(project)
    done = crawl(project, box, URL)
    assert done.returncode == 1
    assert done.log == []
    assert len(done.lines(*WORDS)) == 1
    assert "Traceback" not in done.output
    assert content(project) == before


@pytest.mark.parametrize(
    "command",
    [
        ("state", "show"), ("state", "export"), ("state", "forget", "page.test"),
        ("plan", "-a", f"urls={URL}"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_own_a_command_refuses_it_in_one_line(
    newer: tuple[Path, Sandbox], command: tuple[str, ...]
) -> None:
    project, box = newer
    before = content(project)
    done = run_scrapy(project, box, *command, module="scrapy_walsh")
    assert done.returncode == 2
    (line,) = done.stdout.strip().splitlines()
    assert all(word in line for word in WORDS)
    assert content(project) == before


def test_own_state_verify_says_that_and_nothing_else(newer: tuple[Path, Sandbox]) -> None:
    project, box = newer
    done = run_scrapy(project, box, "state", "verify", module="scrapy_walsh")
    assert done.returncode == 1
    assert done.stdout.splitlines()[0] == (
        f"{DATABASE}: its schema version is {NEWER}; this package reads {len(MIGRATIONS)}"
    )
    assert "1 problem" in done.stdout.splitlines()[1]
