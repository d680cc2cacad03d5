"""R11, D16: what an earlier version left behind is gone on with, and what a later one left is not.

``data/`` has a folder for each version that changed a stored form, as that version wrote it.
"""

from __future__ import annotations

import gzip
import json
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from scrapy.settings import Settings

from scrapy_walsh.adapters import disk_lines
from scrapy_walsh.commands.common import read_blocklist
from scrapy_walsh.commands.main import main
from scrapy_walsh.exceptions import ConfigError, StateError, StoreAway
from scrapy_walsh.fleet.store import SharedStore
from scrapy_walsh.proof.sandbox import Route
from scrapy_walsh.proof.verify import files_of, verify
from scrapy_walsh.proof.verify.terms import (
    ALL_TERMS,
    GIVES_UP,
    MOVED_LIST,
    NO_PAGE,
    RETRY_AFTER,
    SINCE,
)
from scrapy_walsh.state import forms
from scrapy_walsh.state.database import DATABASE, STEPS, read_only
from scrapy_walsh.state.files import COPIES, _digest
from scrapy_walsh.state.records import (
    BLOCKLIST,
    FLEET_EPOCHS,
    READINGS,
    TABLES,
    HostRecord,
    StoredDocument,
)
from scrapy_walsh.state.store import MemoryStore, SqliteStore
from tests.crawl.conftest import box
from tests.crawl.harness import (
    DAILY,
    LIST,
    SCHEMA,
    Crawl,
    Runs,
    crawl,
    daily_sites,
    make_project,
    site,
    targets,
)
from tests.fleet.fleet import BINARY, Server
from tests.kit import began, change, ended, header, lines_of
from tests.upgrade.make_data import END, JOB_PAGES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy_walsh.proof.sandbox import Sandbox
    from scrapy_walsh.proof.verify import Report

__all__ = ["box"]

needs_redis = pytest.mark.skipif(BINARY is None, reason="no redis-server here")
DATA = Path(__file__).parent / "data"
#: The versions whose files are in ``data/``, by their form.
OLD = {1: "0.2.0"}
#: Every form of before has its version.
assert list(OLD) == list(range(1, forms.FORM))


def copy(name: str, target: Path) -> Path:
    """A copy of folder *name* of the data at *target*."""
    shutil.copytree(DATA / name, target)
    for packed in target.rglob("*.gz"):
        packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
        packed.unlink()
    return target


@pytest.fixture
def days(tmp_path: Path) -> Path:
    """The state directory of three days, by 0.2.0."""
    return copy("0.2.0/days", tmp_path / "state")


def rows_of(directory: Path, name: str = DATABASE) -> dict[str, list[dict[str, object]]]:
    """By table, all of its rows: by column that the file has, the value."""
    with closing(read_only(directory / name)) as connection:
        connection.row_factory = sqlite3.Row
        return {
            table.name: [dict(row) for row in connection.execute(f"SELECT * FROM {table.name}")]  # noqa: S608
            for table in TABLES
        }


# -- an older file ------------------------------------------------------------------------


@pytest.mark.parametrize("form", OLD)
def test_each_older_form_gets_the_columns_of_this_one(form: int) -> None:
    """A column that is not in the text of an old form has a default, or a step makes it.

    If this fails: give the new field a default; or raise ``forms.FORM``, add a step to ``STEPS``,
    and keep the files of the version of before here (docs/versions.md).
    """
    text = (DATA / OLD[form] / "tables.sql").read_text()
    with closing(sqlite3.connect(":memory:")) as old, closing(sqlite3.connect(":memory:")) as new:
        old.executescript(text)
        old.execute(f"PRAGMA user_version={form}")
        forms.convert(old, TABLES, STEPS)
        for table in TABLES:
            new.execute(table.create)
            found = [
                sorted((name, kind, required, key) for _, name, kind, required, _, key in columns)
                for columns in (
                    each.execute(f"PRAGMA table_info({table.name})").fetchall()
                    for each in (old, new)
                )
            ]
            assert found[0] == found[1]


def test_r11_every_table_has_its_records(days: Path) -> None:
    before = rows_of(days)
    store = SqliteStore(days)
    try:
        empty = [table.name for table in TABLES if not list(store.rows(table.record))]
        assert empty == [FLEET_EPOCHS.name]  # the job is no worker of a fleet
        assert store.notices == []
        assert not store.rows_lost
        aside = f"{DATABASE}.before-{forms.WRITERS[forms.FORM]}"
        assert [line.partition(" was upgraded ")[2] for line in store.news] == [
            f"from form 1 to {forms.FORM}; {aside} is a copy of the old file"
        ]
    finally:
        store.close()
    assert rows_of(days, aside) == before
    after = rows_of(days)
    for table, rows in before.items():
        old = rows[0].keys() if rows else ()
        assert [{name: row[name] for name in old} for row in after[table]] == rows
    store = SqliteStore(days)
    assert store.news == []
    store.close()


OPEN = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("SELECT count(*) FROM hosts").fetchone()
print("open", flush=True)
sys.stdin.readline()
"""


def test_nothing_is_changed_while_another_process_has_the_file_open(
    days: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of 0.2.0 that goes on would write rows without the new columns."""
    monkeypatch.setattr("scrapy_walsh.state.database.BUSY_TIMEOUT", 0.2)
    before, pipe = (days / DATABASE).read_bytes(), subprocess.PIPE
    command = [sys.executable, "-c", OPEN, str(days / DATABASE)]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        with pytest.raises(StateError, match="another process uses it: wait until all runs"):
            SqliteStore(days)
        assert (days / DATABASE).read_bytes() == before
        assert not list(days.glob("*.before-*"))
        other.communicate("\n")
    store = SqliteStore(days)
    assert store.news
    store.close()


def test_no_other_process_can_open_the_file_meanwhile(
    days: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even between the copy and the change: it would go on with the file of before."""
    found, made = [], forms.copy_to

    def meanwhile(connection: sqlite3.Connection, copy: Path) -> None:
        with closing(sqlite3.connect(days / DATABASE, timeout=0.05)) as other:
            try:
                found.append(forms.form_of(other))
            except sqlite3.OperationalError as error:
                found.append(str(error))
        made(connection, copy)

    monkeypatch.setattr(forms, "copy_to", meanwhile)
    with closing(SqliteStore(days)):
        assert found == ["database is locked"]
        with closing(sqlite3.connect(days / DATABASE, timeout=0.05)) as later:
            assert forms.form_of(later) == forms.FORM


def test_a_step_that_fails_changes_nothing(days: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps are one transaction: a kill, or a full disk, leaves the file as it was."""
    before = rows_of(days)
    steps = ("DELETE FROM hosts", "INSERT INTO hosts VALUES (1)")
    monkeypatch.setitem(STEPS, 1, steps)
    with closing(sqlite3.connect(days / DATABASE, isolation_level=None)) as connection:
        with pytest.raises(sqlite3.OperationalError):
            forms.upgrade(connection, days / DATABASE, TABLES, STEPS, "")
        assert forms.form_of(connection) == 1
    assert rows_of(days) == before


def test_a_damaged_older_file_gives_its_rows(days: Path, tmp_path: Path) -> None:
    """It lacks columns that are read of it, and is set aside as what it was."""
    with closing(SqliteStore(copy("0.2.0/days", tmp_path / "whole"))) as store:
        whole = {table: list(store.rows(table.record)) for table in TABLES}
    with closing(read_only(days / DATABASE)) as connection:
        (root,) = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'readings'"
        ).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    octets, at = (days / DATABASE).read_bytes(), (root - 1) * size
    damaged = octets[:at] + bytes(size) + octets[at + size :]
    (days / DATABASE).write_bytes(damaged)
    store = SqliteStore(days)
    assert (days / f"{DATABASE}.damaged-1").read_bytes() == damaged
    assert store.rows_lost
    left = {table: list(store.rows(table.record)) for table in TABLES}
    store.close()
    assert left == {**whole, READINGS: []}


# -- a later file -------------------------------------------------------------------------


def refused(directory: Path, *words: str) -> None:
    """No store opens on *directory*, in one line that has the *words*; all stays as it is."""
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    with pytest.raises(StateError) as caught:
        SqliteStore(directory)
    line = str(caught.value)
    assert [
        word for word in (*words, "holds and last requests of hosts are lost") if word not in line
    ] == []
    assert "\n" not in line
    after = {path.name: path.read_bytes() for path in directory.iterdir()}
    assert {**after, "state.lock": b""} == {**before, "state.lock": b""}


@pytest.fixture
def today(tmp_path: Path) -> Path:
    """A state directory of this version, with one host that is held."""
    store = SqliteStore(tmp_path / "today")
    store.put(HostRecord("held.test", 1.8e9, 1.0, 1.8e9 + 3000))
    store.close()
    return tmp_path / "today"


def test_r5_a_column_more_is_refused_and_the_hold_stays(today: Path) -> None:
    change(today, "ALTER TABLE hosts ADD COLUMN zone TEXT NOT NULL DEFAULT 'x'")
    change(today, "UPDATE writer SET version = '0.3.7'")
    refused(today, "with hosts.zone", " of scrapy-walsh 0.3.7, and", "install scrapy-walsh 0.3.7")


@pytest.mark.parametrize("column", ["zone", "rl", "values", "validators", "etag"])
def test_a_column_more_is_refused_in_an_older_file(days: Path, column: str) -> None:
    """Also if a step has its name in another word, or as a column of another table."""
    change(days, f'ALTER TABLE hosts ADD COLUMN "{column}" TEXT')
    # 0.2.0, the only version of that form that is known, cannot have written it.
    words = f"schema version 1 with hosts.{column} of another version"
    refused(days, words, "install that version")


def test_a_column_that_a_step_takes_away_is_not_refused(
    days: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(days, "ALTER TABLE hosts ADD COLUMN zone TEXT")
    steps = (*STEPS[1], "ALTER TABLE hosts DROP COLUMN zone")
    monkeypatch.setitem(STEPS, 1, steps)
    with closing(SqliteStore(days)) as store:
        assert store.news
    assert "zone" not in rows_of(days)["hosts"][0]


def test_a_later_form_is_refused_with_the_version_that_reads_it(today: Path) -> None:
    change(today, "UPDATE writer SET version = '1.4.0'")
    change(today, "CREATE TABLE later (name TEXT)")
    change(today, f"PRAGMA user_version={forms.FORM + 1}")
    refused(today, f"schema version {forms.FORM + 1}", "install scrapy-walsh 1.4.0")


def test_a_column_with_a_default_that_is_not_there_is_added(today: Path) -> None:
    """The same form, by a version of before: nothing is damaged, and a copy is kept."""
    change(today, "ALTER TABLE hosts DROP COLUMN silent_since")
    change(today, "ALTER TABLE hosts DROP COLUMN under_way")
    store = SqliteStore(today)
    record = store.get(HostRecord, "held.test")
    assert record == HostRecord("held.test", 1.8e9, 1.0, 1.8e9 + 3000)
    assert (len(store.news), store.notices) == (1, [])
    store.close()


def test_a_column_that_every_version_has_is_damage_if_it_is_gone(today: Path) -> None:
    change(today, "ALTER TABLE deferrals DROP COLUMN host")
    store = SqliteStore(today)
    assert "no such column: deferrals.host" in store.notices[0]
    assert store.get(HostRecord, "held.test") is not None
    store.close()


# -- a JOBDIR -----------------------------------------------------------------------------


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """The folder of the requests of a paused job, by 0.2.0."""
    return copy("0.2.0/job", tmp_path / "job") / "requests.queue"


def in_job(folder: Path, sql: str) -> None:
    with closing(sqlite3.connect(folder / "requests.sqlite3")) as connection, connection:
        connection.execute(sql)


def urls_in(folder: Path) -> list[str]:
    with closing(sqlite3.connect(folder / "requests.sqlite3")) as connection:
        found = connection.execute("SELECT url FROM line ORDER BY url").fetchall()
    return [url for (url,) in found]


def test_an_older_job_is_taken_up_after_a_copy(job: Path) -> None:
    left = urls_in(job)
    assert 0 < len(left) < len(JOB_PAGES)
    connection = disk_lines.open_job(Settings({"JOBDIR": str(job.parent)}))
    assert connection is not None
    assert forms.form_of(connection) == forms.FORM
    connection.close()
    assert urls_in(job) == left
    aside = job / f"requests.sqlite3.before-{forms.WRITERS[forms.FORM]}"
    with closing(sqlite3.connect(aside)) as before:
        assert before.execute("SELECT count(*) FROM line").fetchone() == (len(left),)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("PRAGMA user_version=9", "schema version 9 of another version"),
        ("ALTER TABLE line ADD COLUMN lane TEXT", "with line.lane"),
    ],
)
def test_the_job_of_a_later_version_is_refused(job: Path, change: str, words: str) -> None:
    in_job(job, change)
    left = urls_in(job)
    with pytest.raises(StateError, match=f"{words}.*the requests waiting in this one are lost"):
        disk_lines.open_job(Settings({"JOBDIR": str(job.parent)}))
    assert urls_in(job) == left


def test_a_crawl_goes_on_with_an_older_job(tmp_path: Path, box: Sandbox) -> None:
    for name in ("one", "two"):
        box.put(site(f"{name}.test"))
    project = make_project(tmp_path / "project", settings={"JOBDIR": "job"})
    left = urls_in(copy("0.2.0/job", project / "job") / "requests.queue")
    done = crawl(project, box, arguments=("-a", f"urls={JOB_PAGES[0]}"))
    assert done.returncode == 0, done.output
    sent = sorted(f"http://{each.host}{each.path}" for each in targets(done.log))
    assert sent == left  # and not the page that it names, which 0.2.0 has sent
    assert done.output.count("was upgraded from form 1") == 1


# -- a fleet's Redis ----------------------------------------------------------------------


@pytest.fixture
def old_redis(tmp_path: Path) -> Iterator[Server]:
    """The Redis of a worker of 0.2.0."""
    running = Server(copy("0.2.0/fleet", tmp_path / "redis"))
    running.start()
    yield running
    running.kill()


def worker_of(server: Server) -> SharedStore:
    return SharedStore(MemoryStore(), server.url, "Walsh-Research")


@needs_redis
def test_r5_a_fleet_goes_on_with_the_holds_of_an_older_one(
    old_redis: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All hosts are left alone at first: no worker that knows only the form of before may book."""
    monkeypatch.setattr("scrapy_walsh.fleet.link.CALM", 0.5)
    store = worker_of(old_redis)
    assert store.link.begin() is not None
    assert old_redis.client.hget(store.link.epoch_key, "form") == str(forms.FORM).encode()
    with pytest.raises(StoreAway, match="all hosts are left alone"):
        store.reserve_host("held.test", 1.0, 0.0)
    time.sleep(0.6)
    store.tend()
    assert store.reserve_host("held.test", 1.0, 0.0).wait > 1e8


@needs_redis
def test_a_worker_of_an_older_version_does_not_join(
    old_redis: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = worker_of(old_redis)
    assert running.link.begin() is not None
    later = worker_of(old_redis)
    monkeypatch.setattr("scrapy_walsh.fleet.link.FORM", forms.FORM + 1)
    monkeypatch.setattr("scrapy_walsh.fleet.link.__version__", "1.4.0")
    assert later.link.begin() is not None
    monkeypatch.undo()
    line = f"stored form {forms.FORM + 1} of scrapy-walsh 1.4.0, and this package"
    with pytest.raises(ConfigError, match=line):
        worker_of(old_redis).link.begin()
    # One that runs books nothing any more, and ends.
    with pytest.raises(StoreAway, match=line):
        running.reserve_host("page.test", 1.0, 0.0)
    assert running.link.given_up
    view = SharedStore(MemoryStore(), old_redis.url, "Walsh-Research", writes=False)
    assert list(view.rows(HostRecord)) == []
    assert any(line in notice for notice in view.notices)


# -- a ledger -----------------------------------------------------------------------------


def test_the_lines_of_a_later_version_are_refused(tmp_path: Path) -> None:
    later = began(stored_form=forms.FORM + 1, version="1.4.0", novel=[1])
    with pytest.raises(
        StateError, match=r"stored form 3 of scrapy-walsh 1\.4\.0, and this package"
    ):
        verify_lines(tmp_path, later)


def test_a_run_of_form_1_may_lack_a_setting_that_came_later(tmp_path: Path) -> None:
    """0.2.0 wrote no form; whoever names one names all of its terms."""
    members = began()
    del members["settings"]["usage"]
    assert "usage" in str(verify_lines(tmp_path / "today", members).findings)
    del members["stored_form"]
    report = verify_lines(tmp_path / "before", members)
    assert report.findings == []
    assert [note for note in report.notes if ALL_TERMS in note]
    members["stored_form"] = 1
    assert verify_lines(tmp_path / "forged", members).findings


def test_verify_holds_no_older_run_to_a_newer_rule(tmp_path: Path) -> None:
    """The ledger of 0.2.0 in which that found nothing wrong; a rule that it broke would be found.

    If this fails after a rule has changed: add it to ``SINCE``.
    """
    ledger = copy("0.2.0/rules", tmp_path / "rules") / "ledger.jsonl"
    report = verify(files_of(ledger), (), read_blocklist)
    assert report.findings == []
    assert (report.runs, report.requests) == (5, 250)
    assert report.derived > 500
    newer = [rule for rule, since in SINCE.items() if since > 1]
    (note,) = [each for each in report.notes if "of the stored form 1" in each]
    assert all(rule in note for rule in newer)


@pytest.mark.parametrize("rule", [RETRY_AFTER, GIVES_UP, NO_PAGE, MOVED_LIST])
def test_a_run_of_this_form_is_held_to_each_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: str
) -> None:
    monkeypatch.setattr("scrapy_walsh.proof.verify.terms.SINCE", {**SINCE, rule: 1})
    ledger = copy("0.2.0/rules", tmp_path / "rules") / "ledger.jsonl"
    assert verify(files_of(ledger), (), read_blocklist).findings


def verify_lines(directory: Path, *entries: dict[str, Any]) -> Report:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "ledger.jsonl"
    path.write_bytes(b"\n".join(lines_of(header(), *entries, ended())) + b"\n")
    return verify(files_of(path), (), read_blocklist)


# -- a crawl ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def taken_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Runs, Crawl]]:
    """A run ten minutes after the last one of the data, without the operator's server."""
    directory = tmp_path_factory.mktemp("taken-up") / "project"
    with Runs(directory, *daily_sites(), settings={"WALSH_MAX_RETRIES": 1}) as made:
        made.state.parent.mkdir(parents=True)
        copy("0.2.0/days", made.state)
        for path in (LIST, SCHEMA):
            made.serve("operator.test", path, Route(behaviour="reset"))
        made.at(END + 600)
        yield made, made(*DAILY)


def test_r3_the_list_of_the_data_refuses(taken_up: tuple[Runs, Crawl]) -> None:
    _, run = taken_up
    assert run.asked("www.optout.test") == []
    assert run.lines("refused", "http://www.optout.test/p", "R3")


def test_r8_r5_r4_what_was_sent_or_held_is_not_due(taken_up: tuple[Runs, Crawl]) -> None:
    _, run = taken_up
    for host in ("page.test", "busy.test", "slow.test", "closed.test"):
        assert run.asked(host) == []


def test_the_crawl_says_that_the_file_was_upgraded_and_is_green(
    taken_up: tuple[Runs, Crawl],
) -> None:
    _, run = taken_up
    assert run.output.count("was upgraded from form 1") == 1
    assert run.returncode == 0, run.output


def test_verify_takes_the_ledger_and_its_continuation(
    taken_up: tuple[Runs, Crawl],
) -> None:
    made, _ = taken_up
    done = made.command("verify", str(made.state))
    lines = done.stdout.splitlines()
    # The runs of the data backed off more quickly than R5 allows, so that they were made soon.
    broken = [each for each in lines if each.startswith("line ") and "R5: backoff_base" not in each]
    assert broken == [], done.stdout
    told = [each for each in lines if "of the stored form 1: not judged by newer rules" in each]
    assert len(told) == 1, done.stdout
    assert all(rule in told[0] for rule, since in SINCE.items() if since > 1)


# -- commands that look -------------------------------------------------------------------


def test_a_look_for_damage_changes_no_older_file(
    days: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path.name: path.read_bytes() for path in days.iterdir()}
    assert main(["state", "verify", "--dir", str(days)]) == 0
    assert capsys.readouterr().out.endswith(": in order\n")
    assert {path.name: path.read_bytes() for path in days.iterdir()} == before


def test_d3_a_copy_of_the_blocklist_by_a_later_version_is_not_set_aside(days: Path) -> None:
    for name in COPIES:
        _, head, body = (days / name).read_bytes().split(b"\n", 2)
        later = json.dumps({**json.loads(head), "novel": 1}).encode() + b"\n"
        (days / name).write_bytes(_digest(later, body) + b"\n" + later + body)
    store = SqliteStore(days)
    with pytest.raises(StateError, match=r"by a later version of scrapy-walsh \(with novel\)"):
        list(store.rows(StoredDocument, BLOCKLIST))
    store.close()
    assert not list(days.glob("*.damaged-*"))
