"""A run whose records cannot be kept is not green: exit 1, and its last line says what follows."""

from __future__ import annotations

import resource
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.proof.sandbox import Route, Sandbox
from scrapy_walsh.state.database import DATABASE
from tests.crawl.harness import LIST_SPIDER, crawl, make_project, site, state_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.crawl.harness import Crawl

ONE, TWO, THREE = (f"http://page.test/{name}" for name in ("1", "2", "3"))
FOLLOWS = "the next run may request hosts and sources again too early"


@pytest.fixture
def box() -> Iterator[Sandbox]:
    with Sandbox() as running:
        running.put(site("page.test", {f"/{n}": Route(body="x") for n in (1, 2, 3)}))
        yield running


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path / "project", LIST_SPIDER)


def last_line(run: Crawl) -> str:
    return run.output.strip().splitlines()[-1]


def assert_not_green(run: Crawl) -> None:
    assert run.returncode == 1, run.output
    assert " WARNING: " in last_line(run), run.output[-2000:]
    assert FOLLOWS in last_line(run)
    assert "Traceback" not in run.output, run.output[run.output.index("Traceback") :][:3000]
    assert "'finish_reason': 'walsh_not_well'" in run.output


def assert_healthy(run: Crawl) -> None:
    assert run.returncode == 0, run.output
    assert FOLLOWS not in run.output


def removed(path: Path) -> None:
    for each in path.parent.glob(f"{DATABASE}*"):
        each.unlink()


def emptied(path: Path) -> None:
    removed(path)
    path.write_bytes(b"")


def cut(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def foreign(path: Path) -> None:
    removed(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")


def text(path: Path) -> None:
    removed(path)
    path.write_text("somebody's notes\n" * 300)


@pytest.mark.parametrize("damage", [removed, emptied, cut], ids=lambda each: each.__name__)
def test_a_state_that_is_gone_or_cut_before_a_run(
    box: Sandbox, project: Path, damage: Callable[[Path], object]
) -> None:
    assert_healthy(crawl(project, box, ONE))
    damage(state_dir(project) / DATABASE)
    box.clear()
    run = crawl(project, box, TWO)
    assert_not_green(run)
    assert run.asked("page.test")[-1] == "/2"
    # What this run has learned was kept, so the next one knows it, and is green.
    box.clear()
    again = crawl(project, box, TWO, THREE)
    assert again.asked("page.test") == ["/3"]


@pytest.mark.parametrize("put", [foreign, text], ids=lambda each: each.__name__)
def test_another_programs_file_is_refused_and_left(
    box: Sandbox, project: Path, put: Callable[[Path], object]
) -> None:
    assert_healthy(crawl(project, box, ONE))
    database = state_dir(project) / DATABASE
    put(database)
    before = database.read_bytes()
    box.clear()
    run = crawl(project, box, TWO)
    assert run.returncode == 1
    assert run.log == []
    assert len(run.lines("is not a file of this package")) == 1
    assert "Traceback" not in run.output
    assert database.read_bytes() == before
    assert not list(state_dir(project).glob("*.damaged-*"))
    database.unlink()
    box.clear()
    assert_not_green(crawl(project, box, TWO))  # what was there before is gone, and it says so


#: A spider that does *WHAT* to the database when its first answer comes.
MEANWHILE = """
import os, pathlib, sqlite3
import scrapy

class Probe(scrapy.Spider):
    name = "probe"
    urls = ""

    async def start(self):
        for url in self.urls.split():
            yield scrapy.Request(url, self.parse)

    def parse(self, response):
        path = pathlib.Path(self.settings["WALSH_STATE_DIR"] or ".scrapy/walsh") / "state.sqlite3"
        if response.url.endswith("/1"):
            WHAT
"""
DOES = {
    "removed": "[each.unlink() for each in path.parent.glob('state.sqlite3*')]",
    "cut": "os.truncate(path, path.stat().st_size // 2)",
    "replaced": "pathlib.Path('other').write_text('notes' * 99); os.replace('other', path)",
}


@pytest.mark.parametrize("what", DOES)
def test_a_state_that_goes_in_the_middle(box: Sandbox, tmp_path: Path, what: str) -> None:
    project = make_project(tmp_path / "project", MEANWHILE.replace("WHAT", DOES[what]))
    run = crawl(project, box, ONE, TWO, THREE)
    assert_not_green(run)
    asked = run.asked("page.test")
    assert len(asked) == len(set(asked))  # nothing is sent twice for it
    if what == "replaced":
        assert (state_dir(project) / DATABASE).read_text() == "notes" * 99
        assert len(run.lines("is not a file of this package")) >= 1
        removed(state_dir(project) / DATABASE)
    (project / "probe").mkdir(exist_ok=True)


def test_a_disk_that_is_full_in_the_middle(box: Sandbox, tmp_path: Path) -> None:
    """No file may grow any more: the run goes on with what it knows, and is not green."""
    limits = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({4 << 10}, -1))"
    ignore = "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)"
    assert resource.RLIMIT_FSIZE is not None
    project = make_project(tmp_path / "project", MEANWHILE.replace("WHAT", f"{ignore}; {limits}"))
    run = crawl(project, box, ONE, TWO, THREE)
    assert_not_green(run)
    asked = run.asked("page.test")
    assert len(asked) == len(set(asked))
    healthy: Any = crawl(project, box, THREE)
    assert healthy.returncode in (0, 1)
