"""A state that is older than its ledger: what binds is read from the ledger (R2 to R5, R8, R11)."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.proof.sandbox import Route, blocklist
from scrapy_walsh.state.database import COMPANIONS, DATABASE
from tests.crawl.harness import HOUR, LIST, Crawl, Runs, served, site

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


@pytest.mark.parametrize("way", ["plain", "redacted", "rotated"])
def test_the_ledger_holds(made: dict[str, Back], way: str) -> None:
    assert "line " not in made[way].verified.replace("lines", ""), made[way].verified
