"""``walsh state``: shows, forgets and verifies, and breaks no promise by it."""

from __future__ import annotations

import json
import math
import re
import shlex
import sqlite3
import subprocess
import sys
import time
import tracemalloc
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.commands import state_show
from scrapy_walsh.commands.main import main
from scrapy_walsh.commands.state_show import Now, everything, summary
from scrapy_walsh.config import WalshConfig
from scrapy_walsh.ledger.files import parse_line
from scrapy_walsh.policy.throttle import NOTHING, Learned
from scrapy_walsh.policy.times import iso
from scrapy_walsh.proof.ledger import lifted_holds
from scrapy_walsh.proof.sandbox import Sandbox, blocklist
from scrapy_walsh.state.database import DATABASE
from scrapy_walsh.state.files import COPY
from scrapy_walsh.state.records import (
    DOCUMENTS,
    Attempts,
    Deferral,
    HostRecord,
    Reading,
    SeenItem,
    StoredDocument,
    Validators,
    VisitRecord,
    moved,
)
from scrapy_walsh.state.store import SqliteStore
from tests.crawl.harness import make_project, run_scrapy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from scrapy_walsh.state.store import Store

ROOT = Path(__file__).parents[2]
NOW = time.time()
LIST = "https://o.test/blocklist.json"
URL = "https://h.test/feed"
ROBOTS = StoredDocument(
    "robots", "https://h.test", "https://h.test/robots.txt", b"User-agent: *\n", NOW, 200, "parse"
)


def operator_list(*domains: str, at: float = NOW) -> StoredDocument:
    body = json.dumps(blocklist(list(domains))).encode()
    return StoredDocument("blocklist", LIST, LIST, body, at, 200, "held", '"1"', None, 21600.0)


def fill(store: Store) -> None:
    store.put(operator_list("blocked.test"))
    for name in ("h.test", "other.test"):
        url = f"https://{name}/feed"
        store.put(replace(ROBOTS, key=f"https://{name}", url=f"https://{name}/robots.txt"))
        store.put(HostRecord(name, NOW - 60, 30.0, NOW + 7200))
        store.put(Validators(url, "*/*", '"v"', None, NOW, "text/xml"))
        store.put(VisitRecord(url, NOW - 60, "200"))
        store.put(Deferral(f"https://{name}/late", name, NOW + 7200, "Retry-After"))
        store.put(Attempts(f"https://{name}/late", 3, NOW))
        store.put(SeenItem(f"https://{name}/1", NOW))
        store.put(Reading(url, NOW - 10 * 86400, NOW, 1, "HTTP 403", f"{url}/new"))
    store.put(HostRecord("free.test", NOW - 600, 1.0))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory outside any project, with a state directory ``state``."""
    monkeypatch.chdir(tmp_path)
    store = SqliteStore(tmp_path / "state")
    fill(store)
    store.close()
    return tmp_path


@pytest.fixture
def store(folder: Path) -> Iterator[SqliteStore]:
    """What a command left behind, read by another connection."""
    opened = SqliteStore(folder / "state")
    yield opened
    opened.close()


@pytest.fixture
def told(folder: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run ``state ACTION --dir state ARGUMENTS``; exit code, stdout, stderr."""

    def _told(action: str, *arguments: str, directory: str = "state") -> tuple[int, str, str]:
        code = main(["state", action, "--dir", directory, *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return _told


# -- show ---------------------------------------------------------------------------------


def test_r11_show_tells_what_is_due_and_deferred(told: Any) -> None:
    code, out, err = told("show")
    assert (code, err) == (0, "")
    assert "wait longest first: 3" in out
    assert re.search(r"h\.test +\S+ \S+ \(in (?:2 h|1 h \d+ min)\) +30 s", out)
    assert re.search(r"free\.test +now +1 s", out)
    assert re.search(r"https://h\.test/late +\S+ \S+ \(in (?:2 h|1 h \d+ min)\) +Retry-After", out)
    assert re.search(
        r"blocklist +https://o\.test/blocklist\.json +\S+ \S+ +\d[\d dhmins]* +held +200", out
    )
    due = r"https://h\.test/feed +\S+ \S+ +200 +1 d +0 +\S+ \S+ \(in (?:22|21) h[^)]*\)"
    assert re.search(due, out)


def test_show_has_a_limit_and_says_so(told: Any) -> None:
    _, out, _ = told("show", "--limit", "1")
    assert "  ... and 2 more (--limit, --all)" in out
    assert "free.test" not in out


def test_show_as_json_is_complete(told: Any) -> None:
    code, out, _ = told("show", "--json")
    found = json.loads(out)
    assert code == 0
    due = {each["host"]: each["next_request"] for each in found["hosts"]}
    assert due == {"free.test": NOW - 599, "h.test": NOW + 7200, "other.test": NOW + 7200}
    assert [each["kind"] for each in found["documents"]] == ["blocklist", "robots", "robots"]
    opens = iso(math.ceil(NOW - 60 + 0.9 * 86400))
    assert {each["next_due"] for each in found["sources"]} == {opens}
    assert (found["validators"], found["attempts"], found["seen_items"]) == (2, 2, 2)


def test_show_holds_no_more_of_a_state_with_many_hosts(folder: Path) -> None:
    """All are counted; some pages of rows are in memory at a time, not a row for each host."""
    config = WalshConfig.from_settings({"WALSH_IDENTITY": "walsh-research"}, lambda: folder)
    peaks = []
    with closing(SqliteStore(folder / "many")) as store:
        for hosts in (1_500, 6_000):
            names = [f"{number}.test" for number in range(hosts)]
            store.put(*(HostRecord(name, NOW - 600, 1.0) for name in names))
            store.put(*(VisitRecord(f"https://{name}/", NOW, "200") for name in names))
            store.put(HostRecord("held.test", NOW, 1.0, NOW + 7200))
            tracemalloc.start()
            found = summary(store, config, folder, Now(NOW, NOW), 5)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
            assert found["counts"]["hosts"] == hosts + 1
            assert [found["hosts"][0]["host"], len(found["hosts"])] == ["held.test", 5]
    assert (peaks[1] - peaks[0]) / 4_500 < 100  # octets a host; its two rows take some 600


def test_show_chooses_as_if_each_row_were_shown_and_converts_only_the_chosen(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with servers, silent hosts, taught intervals, and a clock that was put back."""
    config = WalshConfig.from_settings({"WALSH_IDENTITY": "walsh-research"}, lambda: folder)
    taught = Learned(30.0, 0.0, 2, NOW, 1.0)
    shown: list[object] = []

    def noted(record: Any, converters: Any) -> Any:
        shown.append(record)
        return moved(record, converters)

    monkeypatch.setattr(state_show, "moved", noted)
    with closing(SqliteStore(folder / "mixed")) as store:
        for number in range(40):
            name = f"{number}.test"
            at = NOW - number * 7 + (100 if number % 9 == 0 else 0)
            host = HostRecord(name, at, 1.0, at + 50 if number % 5 == 0 else None)
            address = f"192.0.2.{number % 4}" if number % 2 else ""
            silent = NOW - number if number % 7 == 0 else None
            learned = taught if number % 11 == 0 else NOTHING
            store.put(replace(host, address=address, silent_since=silent, taught=learned))
            store.put(VisitRecord(f"https://{name}/", at, "200"))
            store.put(Deferral(f"https://{name}/late", name, at + 90, "429"))
            store.put(replace(ROBOTS, key=f"https://{name}", fetched_at=at))
            reason = "HTTP 403" if number % 3 else None
            store.put(Reading(f"https://{name}/", at, at - number % 4, number % 2, reason))
        store.put(HostRecord("@192.0.2.1", NOW, 0.0, NOW + 600))  # binds its hosts
        store.put(HostRecord("@192.0.2.3", NOW, 0.0))
        for now in (Now(NOW, NOW), Now(NOW, NOW - 20), Now(NOW, NOW + 300)):
            rows = list(everything(store, config, now))
            shown.clear()
            chosen = summary(store, config, folder, now, 6)
            assert len(shown) == 5 * 6 + 6  # a source's row has its host's hold
            for kind, key in MATTERS.items():
                of_kind = [dict(row) for row in rows if row["record"] == kind]
                if kind == "readings":
                    of_kind = [row for row in of_kind if row["reason"] or not row["read"]]
                for row in of_kind:
                    del row["record"]
                assert chosen[kind] == sorted(of_kind, key=key, reverse=True)[:6], kind
                assert chosen["counts"][kind] == len(of_kind)
            assert chosen["hosts"][0]["silent_since"]
        paced = [row for row in rows if row.get("server")]
        assert {row["server"] for row in paced} == {"@192.0.2.1"}
        assert min(row["next_request"] for row in paced) >= NOW - 300 + 600


#: By kind, a sort key of rows: those that matter most have the largest.
MATTERS: Mapping[str, Callable[[dict[str, Any]], Any]] = {
    "hosts": lambda row: (row["silent_since"] is not None, row["next_request"]),
    "deferrals": lambda row: row["due"],
    "documents": lambda row: (row["kind"] != "robots", row["fetched_at"]),
    "sources": lambda row: row["last_run_at"],
    "readings": lambda row: (row["declared_at"], -row["since"]),
}


@pytest.mark.parametrize("action", ["show", "verify"])
def test_no_state_is_misuse_and_makes_none(told: Any, folder: Path, action: str) -> None:
    code, out, err = told(action, directory="none")
    assert (code, out) == (2, "")
    assert (
        err
        == "walsh state: no state in none: no crawl kept any; run in the project, or give --dir\n"
    )
    assert not (folder / "none").exists()


def test_a_newer_versions_file_is_one_line(told: Any, folder: Path) -> None:
    with closing(sqlite3.connect(folder / "state" / "state.sqlite3")) as connection:
        connection.execute("PRAGMA user_version=99")
    code, out, err = told("show")
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert "has schema version 99" in err


def test_in_a_project_its_directory_is_taken(folder: Path) -> None:
    project = make_project(folder / "project", settings={"WALSH_STATE_DIR": str(folder / "state")})
    with Sandbox() as box:
        done = run_scrapy(project, box, "walsh", "state", "show")
        assert done.returncode == 0, done.stdout
        assert "wait longest first: 3" in done.stdout
        assert box.log == []


def test_show_names_what_is_not_read(told: Any, store: SqliteStore) -> None:
    read = Reading("https://read.test/", NOW, NOW, 1)
    cut_off = Reading("https://cutoff.test/", NOW - 4 * 86400, NOW, 1)
    never = Reading("https://never.test/", NOW, NOW - 5 * 86400, 0, "HTTP 404")
    store.put(read, cut_off, never)
    _, out, _ = told("show")
    assert "sources not read at their last visit, or moved for good: 4" in out
    table = out.partition("moved for good: 4\n")[2].splitlines()[:5]
    assert re.split(r"  +", table[0].strip()) == [
        "url", "read", "since", "declared at", "reason", "moved to",
    ]  # fmt: skip
    urls = [URL, "https://other.test/feed", "https://cutoff.test/", "https://never.test/"]
    assert [line.split()[0] for line in table[1:]] == urls
    assert re.fullmatch(rf"  {URL} +1 +\S+ \S+ +\S+ \S+ +HTTP 403 +{URL}/new", table[1])
    assert re.fullmatch(r"  https://never\.test/ +0 +\S+ \S+ +\S+ \S+ +HTTP 404", table[4])
    found = [json.loads(line) for line in told("show", "--all")[1].splitlines()]
    unread = {each["url"]: each["unread"] for each in found if each["record"] == "readings"}
    assert unread == dict.fromkeys(urls, True) | {never.url: False, read.url: False}


# -- forget -------------------------------------------------------------------------------


def test_r4_forget_keeps_every_promise_to_the_host(told: Any, store: SqliteStore) -> None:
    code, out, _ = told("forget", "https://H.test/anything")
    assert code == 0
    assert out.splitlines()[0] == (
        "forgotten of h.test: validators 1, attempts 1, readings 1, seen_items 1, "
        "freshness of robots.txt 1"
    )
    assert out.splitlines()[1].startswith("kept: sources 1, pacing 1, deferrals 1: last requests")
    assert store.get(HostRecord, "h.test") == HostRecord("h.test", NOW - 60, 30.0, NOW + 7200)
    assert store.get(Deferral, "https://h.test/late") is not None
    assert store.get(VisitRecord, URL) is not None
    assert store.get(Validators, URL, "*/*", "") is None
    assert store.get(Attempts, "https://h.test/late") is None
    assert store.get(Reading, URL) is None
    assert not store.get(SeenItem, "https://h.test/1")


def test_r2_forget_keeps_the_last_known_rules_but_not_their_freshness(
    told: Any, store: SqliteStore
) -> None:
    told("forget", "h.test")
    assert store.get(StoredDocument, "robots", "https://h.test") == replace(ROBOTS, fetched_at=0.0)


def test_r8_forget_drops_only_a_run_that_is_due_again(told: Any, store: SqliteStore) -> None:
    store.put(VisitRecord(URL, NOW - 90_000, "200"))
    weekly = VisitRecord("https://h.test/weekly", NOW - 90_000, "200", revisit=604_800.0)
    store.put(weekly)
    told("forget", "h.test")
    assert store.get(VisitRecord, URL) is None
    assert store.get(VisitRecord, weekly.url) == weekly
    _, out, _ = told("show")
    assert re.search(r"https://h\.test/weekly .* 7 d +0 +\S+ \S+ \(in 5 d [^)]*\)", out), out


WHY = "the owner says that it was a mistake"


def test_d40_a_hold_is_lifted_with_its_deferrals_and_nothing_else(
    told: Any, folder: Path, store: SqliteStore
) -> None:
    before = {each: list(store.rows(each)) for each in (Validators, VisitRecord, Reading, Attempts)}
    code, out, _ = told("forget", "h.test", "--hold", WHY, "--json")
    assert (code, json.loads(out)["lifted"], json.loads(out)["deferrals"]) == (0, True, 1)
    record = store.get(HostRecord, "h.test")
    assert record == HostRecord("h.test", NOW - 60, 30.0)
    assert [each.host for each in store.rows(Deferral)] == ["other.test"]
    assert store.get(HostRecord, "other.test") == HostRecord(
        "other.test", NOW - 60, 30.0, NOW + 7200
    )
    assert {each: list(store.rows(each)) for each in before} == before
    (line,) = [each for each in map(parse_line, lines_of(folder)) if each["kind"] == "lifted"]
    assert (line["host"], line["reason"]) == ("h.test", WHY)
    assert list(lifted_holds(folder / "state")) == [
        {"host": "h.test", "reason": WHY, "at": iso(line["at"])}
    ]
    code, out, _ = told("forget", "h.test", "--hold", WHY)
    assert (code, out) == (1, "h.test has no hold\n")
    assert main(["verify", str(folder / "state")]) == 0


def lines_of(folder: Path) -> list[bytes]:
    return (folder / "state" / "ledger.jsonl").read_bytes().splitlines()


def test_d40_a_hold_is_not_lifted_without_a_reason_or_beside_a_crawl(
    told: Any, folder: Path, store: SqliteStore
) -> None:
    code, _, err = told("forget", "h.test", "--hold", "  ")
    assert (code, "--hold needs a reason" in err) == (2, True)
    script = (
        "import sys, pathlib; from scrapy_walsh.state.machine import UnderWay; "
        "UnderWay(pathlib.Path('state')).begin(); print('up', flush=True); sys.stdin.read()"
    )
    crawl = subprocess.Popen(
        [sys.executable, "-c", script], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with crawl:
        assert crawl.stdout is not None
        assert crawl.stdout.readline() == b"up\n"
        code, _, err = told("forget", "h.test", "--hold", WHY)
        assert (code, "a crawl runs in" in err) == (2, True)
        crawl.communicate()
    assert store.get(HostRecord, "h.test") == HostRecord("h.test", NOW - 60, 30.0, NOW + 7200)
    assert not (folder / "state" / "ledger.jsonl").exists()
    assert told("forget", "h.test", "--hold", WHY)[0] == 0


def test_forget_leaves_others_alone(told: Any, store: SqliteStore) -> None:
    before = {each.url for each in store.rows(VisitRecord)}
    assert told("forget", "h.test:8080")[0] == told("forget", "nobody.test")[0] == 1
    told("forget", "h.test")
    assert {each.url for each in store.rows(VisitRecord)} == before
    assert store.get(Reading, "https://other.test/feed") is not None
    assert store.get(SeenItem, "https://other.test/1")
    assert store.get(Validators, "https://other.test/feed", "*/*", "") is not None
    found = store.get(StoredDocument, "robots", "https://other.test")
    assert found is not None
    assert found.fetched_at == NOW


# -- verify -------------------------------------------------------------------------------


def test_verify_in_order(told: Any, folder: Path) -> None:
    before = {path.name for path in (folder / "state").iterdir()}
    assert told("verify") == (0, "state: in order\n", "")
    assert {path.name for path in (folder / "state").iterdir()} == before


def test_verify_beside_an_open_store(told: Any, store: SqliteStore) -> None:
    store.put(HostRecord("late.test", NOW, 1.0))
    assert told("verify")[0] == 0
    assert store.get(HostRecord, "late.test") is not None


def spoil(folder: Path, statement: str, *values: Any) -> None:
    with closing(sqlite3.connect(folder / "state" / "state.sqlite3")) as connection:
        connection.execute(statement, values)
        connection.commit()


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE hosts SET not_before='soon'", "hosts: a row has a value of another type"),
        ("PRAGMA user_version=7", "has schema version 7"),
        ("DROP TABLE sources", "no such table: sources"),
    ],
)
def test_verify_says_what_is_wrong_and_repairs_nothing(
    told: Any, folder: Path, statement: str, said: str
) -> None:
    spoil(folder, statement)
    before = (folder / "state" / "state.sqlite3").read_bytes()
    code, out, _ = told("verify")
    assert code == 1
    assert said in out
    assert re.search(r"^state: \d+ problems?$", out, re.MULTILINE)
    assert (folder / "state" / "state.sqlite3").read_bytes() == before


def test_verify_of_octets_that_are_no_database(told: Any, folder: Path) -> None:
    (folder / "state" / "state.sqlite3").write_bytes(b"x" * 5000)
    code, out, _ = told("verify")
    assert code == 1
    assert "state.sqlite3: file is not a database" in out
    assert (folder / "state" / "state.sqlite3").read_bytes() == b"x" * 5000


def test_d3_verify_looks_at_the_second_copy(told: Any, folder: Path) -> None:
    copy = folder / "state" / COPY
    whole = copy.read_bytes()
    copy.write_bytes(whole.replace(b"blocked.test", b"bl0cked.test"))
    assert "blocklist.json: its checksum does not match" in told("verify")[1]
    copy.unlink()
    assert "blocklist.json: missing, although a blocklist is cached" in told("verify")[1]
    copy.write_bytes(whole)
    assert told("verify")[0] == 0


def test_d3_verify_finds_a_list_of_no_use(told: Any, folder: Path, store: SqliteStore) -> None:
    newer = replace(operator_list(at=NOW + 5), body=b"{}")
    with closing(sqlite3.connect(folder / "state" / DATABASE)) as connection, connection:
        connection.execute(DOCUMENTS.replace, DOCUMENTS.encode(newer))
    _, out, _ = told("verify")
    assert f"the cached blocklist of {LIST} cannot be adopted" in out


def test_verify_lists_what_was_set_aside(told: Any, folder: Path) -> None:
    (folder / "state" / "state.sqlite3.damaged-1").write_bytes(b"")
    code, out, _ = told("verify")
    assert code == 0
    assert "set aside by an earlier run: state.sqlite3.damaged-1" in out


def test_an_unwritable_directory_can_be_verified(told: Any, folder: Path) -> None:
    (folder / "state" / "state.sqlite3").chmod(0o400)
    (folder / "state").chmod(0o500)
    try:
        assert told("verify")[0] == 0
    finally:
        (folder / "state").chmod(0o700)


# -- docs ---------------------------------------------------------------------------------


def test_docs_state_commands_run(folder: Path, tmp_path: Path) -> None:
    text = (ROOT / "docs/state.md").read_text()
    blocks = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    commands = [shlex.split(line) for line in lines if line.startswith("scrapy ")]
    assert {command[3] for command in commands if command[2] == "state"} == {
        "show", "forget", "verify", "backup",
    }  # fmt: skip
    settings = {"WALSH_STATE_DIR": str(folder / "state")}
    project = make_project(tmp_path / "project", settings=settings)
    (project / "sources.toml").write_text('[[source]]\nurl = "https://h.test/feed"\n')
    with Sandbox() as box:
        for command in commands:
            assert command[:2] == ["scrapy", "walsh"]
            words = [word.replace("site.example", "h.test") for word in command[1:]]
            done = run_scrapy(project, box, *words)
            assert done.returncode == (words[1] == "plan"), done.stdout  # h.test is not due
        assert box.log == []
