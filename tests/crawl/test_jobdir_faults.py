"""A JOBDIR that cannot be read, or not be used: named in one line, never a hang, exit code 1."""

from __future__ import annotations

import pickle
import sqlite3
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.proof.sandbox import Route, Sandbox, paths
from tests.crawl.harness import Crawl, crawl, make_project, run_scrapy, site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

JOB = {"JOBDIR": "job"}

#: With ``stops`` it ends before it sends any of its urls; with ``resumed`` it names nothing.
SPIDER = """
import scrapy
from scrapy_walsh.adapters import compat

class Touchy:
    def __setstate__(self, state):
        raise OSError("it cannot be made")

class Probe(scrapy.Spider):
    name = "probe"
    urls, resumed, stops = "", "", ""

    async def start(self):
        if self.resumed:
            return
        yield scrapy.Request("http://first.test/", self.page)
        for url in self.urls.split():
            yield scrapy.Request(url, self.page, errback=self.failed, dont_filter=True)
        if self.stops:
            compat.close_spider(self.crawler, "enough")

    def page(self, response):
        yield {"url": response.url, "status": response.status}

    def failed(self, failure):
        pass
"""

Row = dict[str, Any]


def _changed(**members: Any) -> Callable[[Row], Row]:
    """The request of a row, with other members; None takes one away."""

    def change(row: Row) -> Row:
        fields = {**pickle.loads(row["request"]), **members}  # noqa: S301
        kept = {name: value for name, value in fields.items() if value is not None}
        return {"request": pickle.dumps(kept)}

    return change


#: What may have become of a row, by what the spider's code or the disk did to it.
UNREADABLE: dict[str, Callable[[Row], Row]] = {
    "callback-renamed": _changed(callback="renamed"),
    "errback-renamed": _changed(errback="renamed"),
    "request-class-gone": _changed(_class="gone.Request"),
    "class-gone": lambda _: {"request": b"cgone.module\nGone\n."},
    "class-raises": lambda _: {"request": b"cspiders\nTouchy\n)\x81}b."},
    "cut": lambda row: {"request": row["request"][:-9]},
    "empty": lambda _: {"request": b""},
    "other-octets": lambda _: {"request": b"\xff" * 200},
    "text": lambda _: {"request": "text"},
    "number": lambda _: {"request": 7},
    "no-dict": lambda _: {"request": pickle.dumps(["a", "list"])},
    "no-url": _changed(url=None),
    "other-url": _changed(url="http://elsewhere.test/"),
    "bad-url": _changed(url="no URL"),
    "meta-no-dict": _changed(meta=7),
    "url-octets": lambda row: {"url": row["url"].encode()},
    "host-octets": lambda row: {"host": row["host"].encode()},
    "source-octets": lambda row: {"source": row["source"].encode()},
}
HEALTHY = "http://healthy.test/"


def url_of(kind: str) -> str:
    return f"http://{kind}.test/"


def queue_of(project: Path) -> Path:
    return project / "job" / "requests.queue" / "requests.sqlite3"


def change(project: Path, table: str, url: str, made: Callable[[Row], Row]) -> Row:
    """Change the row of *url*; what it was before."""
    with closing(sqlite3.connect(queue_of(project))) as db, db:
        db.row_factory = sqlite3.Row
        where = "WHERE CAST(url AS TEXT) = ?"
        found = f"SELECT host, url, source, request FROM {table} {where}"  # noqa: S608
        row = dict(db.execute(found, (url,)).fetchone())
        for name, value in made(row).items():
            changed = f"UPDATE {table} SET {name} = ? {where}"  # noqa: S608
            db.execute(changed, (value, url))
    return row


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with Sandbox() as found:
        for host in ("first", "healthy", "elsewhere", *UNREADABLE):
            found.put(site(f"{host}.test"))
        yield found


def stopped(directory: Path, box: Sandbox, *urls: str) -> Path:
    """A project whose job was stopped while *urls* waited in its JOBDIR."""
    project = make_project(directory, SPIDER, JOB)
    first = crawl(project, box, *urls, arguments=("-a", "stops=1"))
    assert {each.host for each in first.log} <= {"operator.test", "first.test"}, first.output
    assert first.stats["close_reason"] == "enough", first.output
    return project


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, box: Sandbox) -> tuple[Path, Crawl, Crawl]:
    """A row of each kind, and a healthy one: a run that meets them, and one when all is mended."""
    urls = [url_of(kind) for kind in UNREADABLE]
    project = stopped(tmp_path_factory.mktemp("rows"), box, *urls, HEALTHY)
    before = {
        kind: change(project, "line", url_of(kind), made) for kind, made in UNREADABLE.items()
    }
    second = crawl(project, box, arguments=("-a", "resumed=1"), timeout=60)
    for kind, row in before.items():
        change(project, "aside", url_of(kind), lambda _, row=row: row)
    return project, second, crawl(project, box, arguments=("-a", "resumed=1"), timeout=60)


@pytest.mark.parametrize("kind", UNREADABLE)
def test_an_unreadable_row_is_named_kept_and_not_sent(
    runs: tuple[Path, Crawl, Crawl], kind: str
) -> None:
    _, second, third = runs
    (line,) = second.lines(url_of(kind), "cannot be read: ", "the table aside of ")
    assert str(queue_of(runs[0]).name) in line
    assert second.asked(f"{kind}.test") == []
    assert third.asked(f"{kind}.test") == ["/robots.txt", "/"], third.output


def test_unreadable_rows_do_not_keep_the_others_and_the_run_is_not_green(
    runs: tuple[Path, Crawl, Crawl],
) -> None:
    _, second, third = runs
    assert second.fetched(HEALTHY), second.output
    assert second.returncode == 1
    assert second.stats["close_reason"] == "walsh_not_well"
    assert "Traceback" not in second.output
    assert second.stats["walsh/jobdir/set_aside"] == len(UNREADABLE)
    assert second.asked("elsewhere.test") == []
    assert (third.returncode, third.stats["close_reason"]) == (0, "finished"), third.output


def test_what_start_names_again_is_sent_though_its_row_cannot_be_read(
    tmp_path: Path, box: Sandbox
) -> None:
    project = stopped(tmp_path, box, HEALTHY)
    change(project, "line", HEALTHY, _changed(callback="renamed"))
    again = crawl(project, box, HEALTHY, timeout=60)
    assert again.asked("healthy.test").count("/") == 1, again.output
    assert again.returncode == 1


def test_a_second_process_on_a_jobdir_stops_at_its_start(tmp_path: Path) -> None:
    with Sandbox() as box, ThreadPoolExecutor(1) as pool:
        for host in ("first.test", "healthy.test"):
            box.put(site(host, {"/": Route(body="<p>slow</p>", delay=4.0)}))
        project = make_project(tmp_path, SPIDER, {**JOB, "WALSH_STATE_DIR": "memory"})
        first = pool.submit(crawl, project, box, HEALTHY)
        while "/" not in paths(box.log, "first.test") + paths(box.log, "healthy.test"):
            assert not first.done(), first.result().output
            time.sleep(0.05)
        for arguments in (("crawl", "probe"), ("crawl", "probe", "-a", "resumed=1")):
            second = run_scrapy(project, box, *arguments, timeout=60)
            assert second.returncode == 1, second.stdout
            (line,) = [each for each in second.stdout.splitlines() if "scrapy_walsh: " in each]
            assert "is in use by another process: wait until it ends" in line
            assert "Traceback" not in second.stdout
        done = first.result()
        assert (done.returncode, done.stats["close_reason"]) == (0, "finished"), done.output
        assert done.asked("first.test") == done.asked("healthy.test") == ["/robots.txt", "/"]
        assert done.fetched(HEALTHY)


def test_the_jobdirs_file_is_its_owners_alone(tmp_path: Path, box: Sandbox) -> None:
    assert stat.S_IMODE(queue_of(stopped(tmp_path / "new", box)).stat().st_mode) == 0o600


def _text(path: Path) -> None:
    path.write_text("This is a file of another program, and no database.\n" * 40)


def _other_program(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.executescript("CREATE TABLE bookmarks (url TEXT); INSERT INTO bookmarks VALUES ('x');")


def _same_name(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.executescript("CREATE TABLE line (words TEXT); INSERT INTO line VALUES ('x');")


FOREIGN: dict[str, Callable[[Path], None]] = {
    "text": _text,
    "another program's": _other_program,
    "another line": _same_name,
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_foreign_file_is_told_and_left_as_it_is(tmp_path: Path, box: Sandbox, kind: str) -> None:
    project = make_project(tmp_path, SPIDER, JOB)
    path = queue_of(project)
    path.parent.mkdir(parents=True)
    FOREIGN[kind](path)
    before = path.read_bytes()
    _refused(crawl(project, box, HEALTHY, timeout=60), "is not a queue of scrapy_walsh")
    assert path.read_bytes() == before


def _refused(done: Crawl, *words: str) -> None:
    assert done.returncode == 1, done.output
    assert len(done.lines("scrapy_walsh: ", *words)) == 1, done.output
    assert "Traceback" not in done.output
    assert done.log == []


def test_a_locked_file_is_told(tmp_path: Path, box: Sandbox) -> None:
    project = stopped(tmp_path, box, HEALTHY)
    with closing(sqlite3.connect(queue_of(project), isolation_level=None)) as db:
        db.execute("BEGIN EXCLUSIVE")
        _refused(crawl(project, box, HEALTHY, timeout=60), "is in use by another process")


def test_a_directory_in_the_files_place_is_told(tmp_path: Path, box: Sandbox) -> None:
    project = make_project(tmp_path, SPIDER, JOB)
    queue_of(project).mkdir(parents=True)
    _refused(crawl(project, box, HEALTHY, timeout=60), "requests.sqlite3 cannot be used (")


@pytest.mark.parametrize("place", ["spiders.py/job", "/proc/job", "spiders.py"])
def test_a_jobdir_that_cannot_be_written_is_told(tmp_path: Path, box: Sandbox, place: str) -> None:
    project = make_project(tmp_path, SPIDER, {"JOBDIR": place})
    _refused(crawl(project, box, HEALTHY, timeout=60), f"JOBDIR {place} cannot be written (")


#: The disk is full from the first page on: no file may grow beyond what its queue has by then.
FULL = """
import resource
import scrapy

class Probe(scrapy.Spider):
    name = "probe"
    full = ""

    async def start(self):
        yield scrapy.Request("http://first.test/", meta={"walsh_also": self.links()})
        yield scrapy.Request("http://waits.test/", self.page, priority=-1)

    def links(self):
        return [f"http://linked.test/{number}" for number in range(20)]

    def parse(self, response):
        if self.full:
            hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
        for url in self.links():
            yield scrapy.Request(url, self.page, meta={"large": "x" * 20_000})

    def page(self, response):
        raise scrapy.exceptions.CloseSpider("enough")
"""


def test_a_disk_that_fills_up_ends_the_crawl_and_nothing_is_lost(tmp_path: Path) -> None:
    settings = {**JOB, "WALSH_STATE_DIR": "memory"}
    with Sandbox() as box:
        for host in ("first.test", "linked.test", "waits.test"):
            box.put(site(host))
        project = make_project(tmp_path, FULL, settings)
        first = crawl(project, box, arguments=("-a", "full=1"), timeout=60)
        assert first.returncode == 1, first.output
        assert len(first.lines("ERROR", "requests.sqlite3 cannot be used (")) == 1, first.output
        assert first.stats["close_reason"] == "walsh_not_well"
        assert "Traceback" not in first.output
        second = crawl(project, box, timeout=60)
        assert second.stats["close_reason"] == "enough", second.output
        with closing(sqlite3.connect(queue_of(project))) as db:
            left = {url for (url,) in db.execute("SELECT url FROM line")}
        asked = {f"http://{each.host}{each.path}" for each in [*first.log, *second.log]}
        linked = {f"http://linked.test/{number}" for number in range(20)}
        assert {*linked, "http://waits.test/", "http://first.test/"} <= left | asked
