"""``walsh report``: finds the ledger, writes the page, and its exit code says what it saw."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.commands.main import main
from scrapy_walsh.proof.sandbox import Sandbox
from tests.crawl.harness import run_scrapy
from tests.kit import H, Read, header, honest, lines_of

if TYPE_CHECKING:
    from tests.report.conftest import World

ROOT = Path(__file__).parents[2]


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    honest().check(tmp_path)
    return (tmp_path / "ledger.jsonl").rename(tmp_path / "other.jsonl")


def test_a_page_is_written_and_its_place_said(
    ledger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    page = tmp_path / "out.html"
    assert main(["report", str(ledger), "--output", str(page)]) == 0
    assert capsys.readouterr().out == f"written: {page}\n"
    assert Read(page.read_text()).number("Requests") == "2"


def test_a_minus_writes_to_stdout(ledger: Path, capsysbinary: pytest.CaptureFixture[bytes]):
    assert main(["report", str(ledger), "--output", "-"]) == 0
    assert capsysbinary.readouterr().out.startswith(b"<!doctype html>\n")


def test_what_is_broken_is_written_and_is_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    forge = honest()
    forge.only("asked", f"{H}/target")["started"] -= 1.0
    forge.check(tmp_path)
    page = tmp_path / "out.html"
    assert main(["report", str(tmp_path), "--run", "all", "--output", str(page)]) == 1
    assert "the ledger does not hold, and the page says so" in capsys.readouterr().err
    assert 'role="alert"' in page.read_text()
    assert "h.test was requested 1.090 s after the end of" in Read(page.read_text()).text


def test_a_tampered_ledger_is_named_at_the_top(ledger: Path, tmp_path: Path):
    ledger.write_bytes(ledger.read_bytes().replace(b'"method":"GET"', b'"method":"PUT"', 1))
    page = tmp_path / "out.html"
    # in an earlier run, which the report on the last one does not judge
    assert main(["report", str(ledger), "--output", str(page)]) == 0
    assert main(["report", str(ledger), "--run", "all", "--output", str(page)]) == 1
    text = Read(page.read_text()).text
    assert text.index("was altered") < text.index("What the ledger shows")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["none.jsonl"], "none.jsonl: no ledger there"),
        (["other.jsonl", "--run", "x"], "no run 'x' begins"),
        (["other.jsonl", "--days", "0"], "--days 0: give 1 to 3660"),
        (["other.jsonl", "--host", "x y"], "not a URL"),
        (["other.jsonl", "--run", "one", "--days", "3"], "--run does not go together"),
        (["other.jsonl", "--output", "no/such/place"], "no/such/place: No such file"),
        ([], "no ledger .scrapy/walsh/ledger.jsonl: run it in the project, or give LEDGER"),
    ],
)
def test_misuse_is_one_line_and_exit_code_2(
    arguments: list[str],
    words: str,
    ledger: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(ledger.parent)
    assert main(["report", *arguments]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_full_files_are_read_before_the_last_one(tmp_path: Path):
    entries = honest().entries
    lines = lines_of(*entries[:9], header(2), *entries[9:])
    (tmp_path / "ledger-000001.jsonl").write_bytes(b"\n".join([*lines[:9], b""]))
    (tmp_path / "ledger.jsonl").write_bytes(b"\n".join([*lines[9:], b""]))
    page = tmp_path / "out.html"
    assert main(["report", str(tmp_path), "--run", "one", "--output", str(page)]) == 0
    assert Read(page.read_text()).number("Requests") == "7"


@pytest.mark.crawl
def test_in_a_project_the_documented_commands_work(sourced: World, tmp_path: Path):
    project = tmp_path / "project"
    shutil.copytree(sourced.project, project)
    document = (ROOT / "docs" / "report.md").read_text()
    snippets = re.findall(r"```bash\n(.*?)```", document, re.DOTALL)
    commands = [shlex.split(line) for snippet in snippets for line in snippet.splitlines()]
    commands = [command for command in commands if command[:3] == ["scrapy", "walsh", "report"]]
    assert len(commands) >= 5
    with Sandbox() as box:
        for command in commands:
            done = run_scrapy(project, box, *command[1:])
            assert done.returncode == 0, done.stderr
    pages = [Read(path.read_text()) for path in project.glob("*.html")]
    assert len(pages) == len(commands)
    owners = [page for page in pages if "For the owner of that site" in page.text]
    assert len(owners) == 2
    numbers = {page.number("Requests") for page in pages if page not in owners}
    assert numbers == {str(len(sourced.log))}


@pytest.mark.crawl
def test_a_crawl_that_kept_its_word_is_exit_code_0(world: World, tmp_path: Path):
    page = tmp_path / "out.html"
    assert main(["report", str(world.ledger), "--output", str(page)]) == 0
    assert "✗" not in Read(page.read_text()).text
