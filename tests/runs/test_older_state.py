"""A state that is older than its ledger: what binds is read from the ledger (R2 to R5, R8, R11)."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.ledger.files import FILE
from scrapy_walsh.proof.sandbox import Route, blocklist
from scrapy_walsh.state.database import COMPANIONS, DATABASE
from tests.crawl.harness import (
    HOUR,
    LIST,
    LIST_URL,
    Crawl,
    Runs,
    listing,
    rules,
    served,
    site,
    targets,
    walsh,
)

if TYPE_CHECKING:
    from pathlib import Path

OLDER = "older than its ledger"
FIRST = "http://first.test/p"
#: By host, the target of the second run, and its answer.
ANSWERS: dict[str, Route] = {
    "page.test": Route(body="page"),
    "busy.test": Route(429, headers={"Retry-After": f"{2 * HOUR:.0f}"}),
    "broken.test": Route(500),
    "gone.test": Route(410),
    "leads.test": Route(302, location="http://lead.test/p"),
    "query.test": Route(body="page"),
}
TARGETS = [
    *(f"http://{host}/p" for host in ANSWERS if host != "query.test"),
    "http://query.test/p?id=1",
]
QUICK: dict[str, Any] = {"WALSH_MAX_RETRIES": 0, "WALSH_PATIENCE": 20}


def sites() -> list[Any]:
    hosts = [site(host, {"/p": answer}) for host, answer in ANSWERS.items()]
    lists = site("operator.test", {LIST: served(blocklist("http://operator.test", "out.test"))})
    return [site("first.test"), site("lead.test"), site("new.test"), lists, *hosts]


def save(runs: Runs, copy: Path) -> None:
    """Copy the database, as ``cp *.sqlite3`` does after a run."""
    copy.mkdir(exist_ok=True)
    for name in (DATABASE, *(DATABASE + suffix for suffix in COMPANIONS)):
        if (runs.state / name).exists():
            shutil.copy(runs.state / name, copy)


def put_back(runs: Runs, copy: Path) -> None:
    for suffix in ("", *COMPANIONS):
        (runs.state / (DATABASE + suffix)).unlink(missing_ok=True)
    for path in copy.glob(f"{DATABASE}*"):
        shutil.copy(path, runs.state)


@dataclass
class Back:
    """The run before the copy, the run after it, and the run with the copy in place."""

    before: Crawl
    lost: Crawl
    back: Crawl
    again: Crawl
    verified: str


WAYS = ("plain", "redacted", "rotated", "off")


def go_back(directory: Path, way: str) -> Back:
    ledger: dict[str, Any] = {"redacted": "redact", "off": False}
    settings = {**QUICK, "WALSH_LEDGER": ledger.get(way, True)}
    if way == "rotated":
        settings["WALSH_LEDGER_KEPT"] = 1 << 20
    with Runs(directory / "project", *sites(), settings=settings) as runs:
        before = runs(FIRST)
        save(runs, directory / "copy")
        lost = runs(*TARGETS)
        if way == "rotated":  # each file has 64 KiB, and 16 are kept
            runs(*(f"http://out.test/{number:0300d}" for number in range(1500)))
        put_back(runs, directory / "copy")
        back = runs(FIRST, *TARGETS, "http://query.test/p?id=2")
        again = runs(*TARGETS)
        verified = runs.command("verify").stdout
    return Back(before, lost, back, again, verified)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Back]:
    made: dict[str, Back] = {}
    for way in WAYS:
        made[way] = go_back(tmp_path_factory.mktemp(way), way)
    return made


@pytest.mark.parametrize("way", ["plain", "redacted"])
def test_r8_r5_nothing_is_sent_again(made: dict[str, Back], way: str) -> None:
    runs = made[way]
    for url in TARGETS:
        host = url.split("/")[2]
        assert runs.lost.targets(host), host
        # In the plain ledger, the other query of this host is another source.
        allowed = 1 if (host, way) == ("query.test", "plain") else 0
        assert len(runs.back.targets(host)) == allowed, runs.back.output
        assert not runs.again.targets(host), host
    assert not runs.back.targets("lead.test")


@pytest.mark.parametrize("way", ["plain", "redacted", "rotated"])
def test_one_error_says_it_and_the_run_is_not_green(made: dict[str, Back], way: str) -> None:
    back, again = made[way].back, made[way].again
    lines = [line for line in back.output.splitlines() if OLDER in line]
    assert len(lines) == 1, back.output
    assert "ERROR" in lines[0]
    assert back.returncode == 1
    assert back.stats["finish_reason"] == "walsh_not_well"
    assert OLDER not in again.output
    assert again.returncode == 0, again.output


def test_the_error_says_which_lines_are_gone(made: dict[str, Back]) -> None:
    output = made["rotated"].back.output
    assert "are gone, so holds and visits may be unknown" in output


def test_a_redacted_visit_counts_for_each_query(made: dict[str, Back]) -> None:
    assert len(made["plain"].back.targets("query.test")) == 1
    assert not made["redacted"].back.targets("query.test")


def test_without_a_ledger_nothing_can_be_noticed(made: dict[str, Back]) -> None:
    assert OLDER not in made["off"].back.output
    assert made["off"].back.returncode == 0


def test_a_backup_is_made_beside_a_crawl_and_restored(tmp_path: Path) -> None:
    with Runs(tmp_path / "project", *sites(), settings=QUICK) as runs:
        runs(FIRST)
        going = runs.start(f"http://first.test/{number}" for number in range(60))
        assert going.comes_to(lambda log: len(log) > 1)
        done = runs.command("state", "backup", str(tmp_path / "copy"))
        going.kill()
        assert done.returncode == 0, done.stderr
        names = {path.name for path in (tmp_path / "copy").iterdir()}
        assert names == {DATABASE, "blocklist.json", "blocklist-2.json"}
        assert runs.command("state", "verify", "--dir", str(tmp_path / "copy")).returncode == 0
        assert runs.command("state", "backup", str(runs.state)).returncode == 2
        runs("http://busy.test/p")
        put_back(runs, tmp_path / "copy")
        back = runs("http://busy.test/p")
        assert back.returncode == 1
        assert not back.asked("busy.test"), back.output


def test_r8_a_clock_that_was_put_back_sends_no_source_again(tmp_path: Path) -> None:
    with Runs(tmp_path / "project", *sites(), settings={"WALSH_REVISIT": HOUR}) as runs:
        begin = time.time()
        runs.at(begin)
        runs(FIRST)
        for minutes in (5, 10):
            runs.at(begin + 60 * minutes, -25 * HOUR)
            assert not runs(FIRST).targets("first.test")
        runs.at(begin + 2 * HOUR, -25 * HOUR)  # an hour after the visit was rewritten
        assert runs(FIRST).targets("first.test") == ["/p"]


def remove_log(runs: Runs) -> None:
    """Remove the write-ahead log alone, as a clean-up or a snapshot of one file does."""
    for suffix in COMPANIONS:
        (runs.state / (DATABASE + suffix)).unlink(missing_ok=True)


@pytest.mark.parametrize("earlier", [(), (FIRST,)], ids=["of the first run", "of a later run"])
def test_r8_r5_a_lost_write_ahead_log(tmp_path: Path, earlier: tuple[str, ...]) -> None:
    urls = [f"http://host{number}.test/p" for number in range(30)]
    names = [url.split("/")[2] for url in urls]
    busy = Route(429, headers={"Retry-After": f"{2 * HOUR:.0f}"})
    hosts = [site("busy.test", {"/p": busy}), *map(site, names)]
    with Runs(tmp_path / "project", *sites()[:-5], *hosts, settings=QUICK) as runs:
        for url in earlier:
            runs(url)
        going = runs.start([*urls, "http://busy.test/p"])
        assert going.comes_to(lambda log: len(targets(log)) > 8)
        going.kill()
        assert (runs.state / f"{DATABASE}-wal").stat().st_size
        remove_log(runs)
        lines = (runs.state / FILE).read_text().splitlines()
        exchanges = [line for line in map(json.loads, lines) if line["kind"] == "asked"]
        sent = {line["host"] for line in exchanges if line["purpose"] == "target"}
        assert "busy.test" in sent
        verified = runs.command("state", "verify")
        assert OLDER in verified.stdout
        back = runs(*(f"http://{host}/p" for host in sent))
        assert back.returncode == 1
        assert len(back.lines(OLDER, "ERROR")) == 1, back.output
        assert not [host for host in sent if back.targets(host)], back.output
        assert not back.asked("busy.test")


@dataclass
class Adopted:
    """Runs after an older state was put in place of one with newer documents.

    ``away``: the list's server fails. ``there``: it answers again.
    """

    doctor: str
    plan: dict[str, Any]
    away: Crawl
    there: Crawl


NEWER = [f"http://{host}/p" for host in ("opted.test", "ruled.test", "open.test", "plain.test")]


def adopt_and_go_back(directory: Path, *, bodies: bool) -> Adopted:
    """A newer list blocks opted.test, a newer robots.txt closes ruled.test, and a copy lacks both.

    *bodies*: the ledger still has the texts.
    """
    hosts = [site(url.split("/")[2]) for url in NEWER]
    with Runs(directory / "project", *sites()[:4], *hosts, settings=QUICK) as runs:
        runs(FIRST, "http://ruled.test/q", "http://open.test/q")
        save(runs, directory / "copy")
        for name in runs.state.glob("blocklist*.json"):
            shutil.copy(name, directory / "copy")
        runs.age("blocklist", LIST_URL, 7 * HOUR)
        for host in ("ruled.test", "open.test"):
            runs.age("robots", f"http://{host}", 25 * HOUR)
        runs.serve("operator.test", LIST, listing("opted.test"))
        runs.serve("ruled.test", "/robots.txt", rules("Disallow: /p"))
        runs("http://ruled.test/p", "http://open.test/r", "http://opted.test/q")
        put_back(runs, directory / "copy")
        for name in (directory / "copy").glob("blocklist*.json"):
            shutil.copy(name, runs.state)
        if not bodies:
            (runs.state / "ledger-documents.sqlite").unlink()
        runs.serve("operator.test", LIST, Route(500))
        runs.serve("ruled.test", "/robots.txt", Route(503))
        doctor = runs.command("doctor").stdout
        words = ("plan", "probe", "-a", f"urls={' '.join(NEWER)}", "--json")
        planned = walsh(runs.project, *words, box=runs.box)
        assert OLDER in planned.stderr
        away = runs(*NEWER)
        runs.serve("operator.test", LIST, listing("opted.test"))
        there = runs(*NEWER)
    return Adopted(doctor, json.loads(planned.stdout), away, there)


@pytest.fixture(scope="module")
def with_bodies(tmp_path_factory: pytest.TempPathFactory) -> Adopted:
    return adopt_and_go_back(tmp_path_factory.mktemp("bodies"), bodies=True)


@pytest.fixture(scope="module")
def without_bodies(tmp_path_factory: pytest.TempPathFactory) -> Adopted:
    return adopt_and_go_back(tmp_path_factory.mktemp("none"), bodies=False)


def test_r3_r2_adopted_documents_are_in_force_again(with_bodies: Adopted) -> None:
    away = with_bodies.away
    assert not away.asked("operator.test"), "the newer list is fresh"
    assert not away.asked("opted.test")
    assert not away.asked("ruled.test"), "its newer rules are known, and fresh"
    assert away.targets("open.test") == away.targets("plain.test") == ["/p"]
    assert away.lines(OLDER, "ERROR")
    assert away.returncode == 1


def test_the_plan_knows_what_the_next_run_will_read(with_bodies: Adopted) -> None:
    decisions = {target["url"]: target["decision"] for target in with_bodies.plan["targets"]}
    assert [decisions[url] for url in NEWER] == ["skip", "skip", "ask", "ask"]


def test_doctor_names_an_older_state(with_bodies: Adopted) -> None:
    (line,) = [line for line in with_bodies.doctor.splitlines() if "next crawl will log" in line]
    assert line.startswith("FAIL")


def test_r3_d14_everything_waits_if_the_text_of_the_list_is_gone(without_bodies: Adopted) -> None:
    away = without_bodies.away
    for url in NEWER:
        assert not away.targets(url.split("/")[2]), away.output
    assert away.asked("operator.test")
    assert away.returncode == 1


def test_r2_a_host_waits_if_the_text_of_its_robots_txt_is_gone(without_bodies: Adopted) -> None:
    there = without_bodies.there
    assert not there.asked("opted.test")
    assert there.asked("ruled.test") == ["/robots.txt"], "its fresh answer is no answer"
    assert "its last known text is lost" in there.output
    assert there.asked("open.test") == ["/robots.txt", "/p"]
    assert there.targets("plain.test") == ["/p"]


@pytest.mark.parametrize("way", ["plain", "redacted", "rotated"])
def test_the_ledger_holds(made: dict[str, Back], way: str) -> None:
    assert "line " not in made[way].verified.replace("lines", ""), made[way].verified
