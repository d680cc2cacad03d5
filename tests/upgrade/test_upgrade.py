"""R11: what version 0.1.0 left behind is taken over whole by the version of today."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.proof.sandbox import Route, Sandbox
from scrapy_walsh.state import files
from scrapy_walsh.state.records import HostRecord, SourceRun, StoredDocument
from scrapy_walsh.state.sqlite import SqliteStore
from scrapy_walsh.state.tables import MIGRATIONS, TABLES
from tests.runs.kit import asked_targets
from tests.upgrade import world
from tests.upgrade.kit import (
    COLUMNS,
    DATABASE,
    UNREACHABLE,
    Project,
    copy,
    ledger,
    old_rows,
    project,
)
from tests.upgrade.world import BEGINNING, DAILY, DAY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.crawl.harness import Crawl

#: Ten minutes after the old version's last run, and when the daily run of the next day begins.
AT_ONCE, NEXT_DAY = world.END + 600, BEGINNING + 3 * DAY + 1500
WARNINGS = ("WARNING", "ERROR", "CRITICAL")


# -- the records ----------------------------------------------------------------------------

OLD_TABLES = [table for table in TABLES if table.name in COLUMNS]


@pytest.mark.parametrize("table", OLD_TABLES, ids=lambda table: table.name)
def test_r11_every_old_record_is_there_as_it_was(tmp_path: Path, table: Any) -> None:
    directory = copy("days", tmp_path / "state")
    before = old_rows(directory, table.name)
    store = SqliteStore(directory)
    after = [asdict(record) for record in store._rows(table)]
    store.close()
    assert before
    assert [{name: row[name] for name in COLUMNS[table.name]} for row in after] == before
    assert store.notices == []
    assert not store.rows_lost


def test_r11_the_file_is_of_this_version_afterwards(tmp_path: Path) -> None:
    directory = copy("days", tmp_path / "state")
    for _ in range(2):
        store = SqliteStore(directory)
        store.close()
        assert store.notices == []
    with closing(sqlite3.connect(directory / DATABASE)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)


def test_r11_what_a_killed_process_had_only_logged_is_taken_over(tmp_path: Path) -> None:
    directory = copy("job", tmp_path / "state")
    assert (directory / f"{DATABASE}-wal").stat().st_size > 32 * 1024
    store = SqliteStore(directory)
    hosts, sources = list(store.rows(HostRecord)), list(store.rows(SourceRun))
    store.close()
    assert store.notices == []
    assert {record.host for record in hosts} >= set(world.JOB_HOSTS)
    assert len(sources) >= 2


def test_r3_a_large_list_in_two_files_is_taken_over(tmp_path: Path) -> None:
    directory = copy("large", tmp_path / "state")
    names = (files.COPY, files.SECOND)
    before = [(directory / name).read_bytes() for name in names]
    store = SqliteStore(directory)
    held = store.get(StoredDocument, "blocklist", world.LIST_URL)
    store.close()
    assert held is not None
    assert len(held.body) > 256 * 1024
    assert [(directory / name).read_bytes() for name in names] == before
    assert store.notices == []


# -- the runs -------------------------------------------------------------------------------


@dataclass
class Upgraded:
    """Runs of today's version on the directory; ``lines``: those of the old ledger."""

    project: Project
    old: list[dict[str, Any]]
    at_once: Crawl
    next_day: Crawl
    feed: Crawl


@pytest.fixture(scope="module")
def upgraded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Upgraded]:
    with Sandbox() as box:
        made = project(tmp_path_factory.mktemp("upgraded") / "project", box)
        old = ledger(made.state)
        box.set_route("operator.test", world.LIST, UNREACHABLE)
        box.set_route("operator.test", world.SCHEMA, UNREACHABLE)
        made.at(AT_ONCE)
        at_once = made.crawl(*DAILY)
        made.at(NEXT_DAY)
        box.set_route("dark.test", "/robots.txt", Route(503))
        next_day = made.crawl(*DAILY)
        (made.directory / "sources.toml").write_text(
            f'[[source]]\nname = "feed"\nurl = "http://feed.test/"\nfeed = "{world.FEED}"\n'
        )
        feed = made.crawl(
            spider_name="walsh_metadata",
            arguments=("-a", "sources=sources.toml", "-a", "report=report.json"),
        )
        yield Upgraded(made, old, at_once, next_day, feed)


def runs(upgraded: Upgraded) -> list[Crawl]:
    return [upgraded.at_once, upgraded.next_day]


def test_r3_the_first_run_refuses_by_the_old_list_without_its_server(upgraded: Upgraded) -> None:
    for run in runs(upgraded):
        assert run.asked("www.optout.test") == []
        assert run.lines("refused", world.OPTED_OUT, "R3")


def test_r8_what_was_requested_this_morning_is_not_due(upgraded: Upgraded) -> None:
    for url in (world.PAGE, world.OPEN_PATH, world.BARE, world.MOVED):
        assert asked_targets(upgraded.at_once, url.split("/")[2]) == []
        assert upgraded.at_once.lines("refused", url, "R8")


def test_r8_an_old_row_is_due_a_revisit_after_it_was_sent(upgraded: Upgraded) -> None:
    due = re.search(r"next due (\S+)Z", upgraded.at_once.why(world.PAGE))
    assert due is not None
    assert due[1] == "2026-06-04T06:10:02"  # sent on 3 June, 06:10:01.8
    for url in (world.PAGE, world.OPEN_PATH, world.BARE, world.MOVED):
        host, path = url.removeprefix("http://").split("/")
        assert asked_targets(upgraded.next_day, host) == [f"/{path}"]


def test_r7_the_old_validator_is_of_another_representation(upgraded: Upgraded) -> None:
    """Since 0.2.0 a page is asked for as markdown first, so what HTML came with is not replayed."""
    (page,) = [each for each in upgraded.next_day.requests("page.test") if each.path == "/p"]
    headers = dict(page.headers)
    assert headers["Accept"].startswith("text/markdown")
    assert "If-None-Match" not in headers
    assert page.status == 200


def test_r7_an_item_that_the_old_version_gave_is_not_given_again(upgraded: Upgraded) -> None:
    assert "/feed" in upgraded.feed.asked("feed.test")
    assert upgraded.feed.items == []


def test_r5_a_hold_of_days_is_kept(upgraded: Upgraded) -> None:
    for run in runs(upgraded):
        assert run.asked("busy.test") == []
        assert "2026-06-06T06:00:0" in run.why(world.BUSY)


def test_r4_a_crawl_delay_of_hours_is_kept(upgraded: Upgraded) -> None:
    at_once, next_day = (run.asked("slow.test") for run in runs(upgraded))
    assert at_once == []  # 40 minutes after its robots.txt
    # Its robots.txt is too old. Where that leaves a target at all, it is one.
    assert next_day[0] == "/robots.txt"
    assert len(next_day) <= 2


def test_r2_an_opt_out_is_kept_without_a_request_while_it_is_fresh(upgraded: Upgraded) -> None:
    assert upgraded.at_once.asked("closed.test") == []
    assert upgraded.at_once.asked("dark.test") == []
    for url in (world.CLOSED, world.PRIVATE_PATH):
        assert upgraded.at_once.lines("refused", url, "R2")


def test_r2_old_rules_bind_where_the_file_cannot_be_had(upgraded: Upgraded) -> None:
    asked = upgraded.next_day.asked("dark.test")
    assert "/robots.txt" in asked
    assert [path for path in asked if path != "/robots.txt"] == ["/open"]
    assert upgraded.next_day.lines("refused", world.PRIVATE_PATH, "R2")
    assert upgraded.next_day.asked("closed.test") == ["/robots.txt"]


def test_own_the_first_run_says_nothing_of_the_upgrade_that_alarms(upgraded: Upgraded) -> None:
    said = [line for word in WARNINGS for line in upgraded.at_once.lines(f" {word}: ")]
    assert [line for line in said if DATABASE in line or "damaged" in line] == []
    assert upgraded.at_once.returncode == 0


# -- the ledger -----------------------------------------------------------------------------


def test_own_the_ledger_goes_on(upgraded: Upgraded) -> None:
    lines, old = ledger(upgraded.project.state), upgraded.old
    assert lines[: len(old)] == old
    assert [line["n"] for line in lines] == list(range(1, len(lines) + 1))
    assert lines[len(old)]["prev"] == old[-1]["hash"]
    versions = [line["version"] for line in lines if line["kind"] == "started"]
    assert versions[0] == "0.1.0"


def test_own_old_runs_have_what_only_the_old_rules_refuse(upgraded: Upgraded) -> None:
    """A source is refused by R8 in the very run that has sent it."""
    (run,) = {line["run"] for line in upgraded.old if line.get("url") == world.AGAIN}
    of_run = [line for line in upgraded.old if line.get("run") == run]
    assert any(line["kind"] == "asked" and line["url"] == world.AGAIN for line in of_run)
    refusals = [line for line in of_run if line.get("verdict") == "not_due"]
    assert [line["url"] for line in refusals] == [world.AGAIN]


def found_in(shown: str) -> list[str]:
    """What ``verify`` found, but that the back-off of these runs was quicker than R5 allows."""
    found = [line for line in shown.splitlines() if line.startswith("line ")]
    return [line for line in found if "backoff_base is 0.01 s" not in line]


def test_own_verify_judges_each_run_by_the_rules_of_its_version(upgraded: Upgraded) -> None:
    done = upgraded.project.command("verify", str(upgraded.project.state))
    assert found_in(done.stdout) == []


@pytest.mark.parametrize("name", ["days", "large", "job"])
def test_own_verify_reads_what_the_old_version_wrote(tmp_path: Path, name: str) -> None:
    directory = copy(name, tmp_path / "state")
    done = Project(tmp_path, Sandbox()).command("verify", str(directory))
    assert found_in(done.stdout) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"url":"http://page.test/p"', '"url":"http://page.test/q"'),
        ('"status":200', '"status":304'),
    ],
)
def test_own_verify_still_finds_a_change_in_an_old_line(tmp_path: Path, old: str, new: str) -> None:
    directory = copy("days", tmp_path / "state")
    path = directory / "ledger.jsonl"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    done = Project(tmp_path, Sandbox()).command("verify", str(directory))
    assert found_in(done.stdout) != []


# -- the commands ---------------------------------------------------------------------------


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Project]:
    """A project that no crawl of today's version has touched."""
    with Sandbox() as box:
        yield project(tmp_path / "project", box)


def test_own_state_verify_finds_an_old_directory_in_order(old: Project) -> None:
    before = {each.name: each.read_bytes() for each in old.state.iterdir()}
    done = old.command("state", "verify")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "in order" in done.stdout
    assert {each.name: each.read_bytes() for each in old.state.iterdir()} == before


def test_own_state_verify_finds_damage_in_an_old_file(old: Project) -> None:
    damage_row(old.state)
    done = old.command("state", "verify")
    assert done.returncode == 1
    assert "hosts: 1 row without a right checksum" in done.stdout


def test_own_state_show_of_an_old_directory(old: Project) -> None:
    done = old.command("state", "show", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    shown = json.loads(done.stdout)
    (page,) = [each for each in shown["sources"] if each["url"] == world.PAGE]
    assert page["next_run"] == pytest.approx(page["last_run_at"] + DAY)
    assert {each["url"] for each in shown["deferrals"]} >= {world.BUSY, *world.SLOW}


def test_own_plan_of_an_old_directory_is_what_the_run_does(old: Project) -> None:
    given = ("plan", "-a", f"urls={' '.join(DAILY)}", "--json")
    old.at(AT_ONCE)
    now = old.command(*given)
    assert now.returncode == 1, now.stdout  # nothing is due
    old.at(NEXT_DAY)
    later = old.command(*given)
    assert later.returncode == 0, later.stderr
    assert world.PAGE in later.stdout


def test_own_report_of_an_old_ledger(old: Project) -> None:
    done = old.command("report", "--run", "all", "--output", "-")
    assert done.returncode == 0, done.stderr
    assert "again.test" in done.stdout


def test_own_export_of_an_old_directory_has_every_record(old: Project) -> None:
    before = {table: old_rows(old.state, table) for table in COLUMNS}
    done = old.command("state", "export")
    assert (done.returncode, done.stderr) == (0, "")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    for table, rows in before.items():
        found = [line for line in lines if line["record"] == table]
        assert len(found) == len(rows) > 0
        for line, row in zip(found, rows, strict=True):
            kept = {name: line[name] for name in COLUMNS[table] if name != "body"}
            assert kept == {name: value for name, value in row.items() if name != "body"}


def test_own_an_export_for_the_old_version_has_its_tables_and_fields(old: Project) -> None:
    """What its import demands: a line with another field would be refused."""
    before = {table: len(old_rows(old.state, table)) for table in COLUMNS}
    made = old.crawl(world.PAGE)  # rows in the tables that the old version does not have
    assert made.returncode == 0
    done = old.command("state", "export", "--schema", "1")
    assert (done.returncode, done.stderr) == (0, "")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    for line in lines:
        assert set(line) == {"record", *COLUMNS[line["record"]]}
    del before["attempts"]  # a run drops those that are a day old
    for table, rows in before.items():
        assert sum(line["record"] == table for line in lines) >= rows > 0


def test_own_an_old_export_is_imported(old: Project, tmp_path: Path) -> None:
    """The lines of version 0.1.0 have its fields alone."""
    lines = [
        json.dumps({"record": table, **row})
        for table in COLUMNS
        if table != "documents"
        for row in old_rows(old.state, table)
    ]
    (tmp_path / "old.jsonl").write_text("\n".join(lines) + "\n")
    target = str(tmp_path / "new")
    done = old.command("state", "import", str(tmp_path / "old.jsonl"), "--dir", target)
    assert done.returncode == 0, done.stderr
    assert f"records read: {len(lines)}; lines that could not be: 0" in done.stdout


# -- damage and kills -----------------------------------------------------------------------


def damage_row(directory: Path) -> None:
    """Change a value of the row of slow.test behind its checksum."""
    with closing(sqlite3.connect(directory / DATABASE)) as connection, connection:
        connection.execute("UPDATE hosts SET interval = 1.0 WHERE host = 'slow.test'")


def test_own_a_damaged_row_of_an_old_file_is_not_made_a_good_one(tmp_path: Path) -> None:
    directory = copy("days", tmp_path / "state")
    before = {name: old_rows(directory, name) for name in COLUMNS}
    damage_row(directory)
    store = SqliteStore(directory)
    assert store.get(HostRecord, "slow.test") is None
    assert store.rows_lost
    (notice,) = store.notices
    assert "damaged" in notice
    assert "set aside" in notice
    for table in OLD_TABLES:
        lost = 1 if table.name == "hosts" else 0
        assert len(list(store._rows(table))) == len(before[table.name]) - lost
    store.close()


def test_own_old_rows_beside_a_damaged_page_are_kept(tmp_path: Path) -> None:
    directory = copy("days", tmp_path / "state")
    before = {name: old_rows(directory, name) for name in COLUMNS}
    with closing(sqlite3.connect(directory / DATABASE)) as connection:
        (page,) = connection.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'seen_items'"
        ).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    octets = bytearray((directory / DATABASE).read_bytes())
    octets[(page - 1) * size : page * size] = b"\xff" * size
    (directory / DATABASE).write_bytes(octets)
    store = SqliteStore(directory)
    assert store.rows_lost
    for table in OLD_TABLES:
        if table.name != "seen_items":
            assert len(list(store._rows(table))) == len(before[table.name]), table.name
    store.close()
