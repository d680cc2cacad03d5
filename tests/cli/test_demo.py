"""``walsh demo``: outside of any project, and what it leaves behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scrapy_walsh.commands import demo
from scrapy_walsh.commands.main import main
from scrapy_walsh.proof.sandbox import demo_sources
from scrapy_walsh.sources.sources import read_sources
from tests.crawl.harness import walsh

ROOT = Path(__file__).parents[2]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "no_proxy": "*"}


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a demo printed that ran in a directory with nothing in it."""
    directory, temporary = (tmp_path_factory.mktemp(each) for each in ("elsewhere", "temporary"))
    done = walsh(directory, "demo", timeout=300, TMPDIR=str(temporary), no_proxy="*")
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_demo_names_every_source(shown: str) -> None:
    first, second = shown.split("== Second run")
    for source in demo_sources():
        assert source.name in first
        assert source.name in second
    assert "from 1 User-Agent" in first
    assert "3 x 304" in second


def test_the_tables_of_the_demo_fit_a_terminal(shown: str) -> None:
    assert "\x1b" not in shown, "colours are for a terminal"
    rows = [line for line in shown.splitlines() if not line.startswith("    ")]
    assert max(len(line) for line in rows if "/" not in line) <= 80


def test_the_legend_of_the_demo_explains_each_outcome(shown: str) -> None:
    _, tables = shown.split("== First run ==")
    rows = re.findall(r"^\S.* (\S.*?) +(R\d+) +\d+ +\d+$", tables, re.MULTILINE)
    assert len(rows) == 2 * len(demo_sources())
    legend = re.search(r"\n\n(read  .*\n(?:.+\n)+)", shown)
    assert legend is not None
    lines = legend[1].splitlines()
    assert len(lines) == 5
    words = {line[:11].strip() for line in lines}
    outcomes = set(re.findall(r"(read|unchanged|refused|left out)(?:: [\w .]+?)? +R\d", tables))
    assert outcomes | {"rule"} == words
    assert {rule for _, rule in rows} <= set(re.findall(r"R\d+", legend[1]))


@pytest.mark.parametrize(
    ("script", "on_path", "expected"),
    [
        ("bin/walsh", "bin/walsh", "walsh"),
        ("bin/walsh", None, "bin/walsh"),
        ("bin/walsh", "other/walsh", "bin/walsh"),
        ("a b/walsh", None, "'a b/walsh'"),
        ("../walsh", None, "{}/walsh"),
        (None, "other/walsh", "walsh"),
        (None, None, "{}/here/bin/python -m scrapy_walsh"),
    ],
)
def test_the_demo_names_a_command_that_can_be_typed_here(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str | None,
    on_path: str | None,
    expected: str,
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    for name in filter(None, (script, on_path)):
        path = here / name
        path.parent.mkdir(exist_ok=True)
        path.touch(mode=0o755)
    python = (here / (script or "bin/walsh")).resolve().with_name("python")
    monkeypatch.setattr(sys, "executable", str(python))
    folder = "empty" if on_path is None else str(Path(on_path).parent)
    monkeypatch.setenv("PATH", str(here / folder))
    assert demo._command() == expected.format(tmp_path)


def test_the_demo_leaves_its_report_and_names_it(shown: str) -> None:
    page = re.search(r"^the first run as a page: (.*)$", shown, re.MULTILINE)
    assert page is not None
    assert "<html" in Path(page[1]).read_text(encoding="utf-8")


def test_what_the_demo_says_to_try_next_runs(shown: str, typed_path: str) -> None:
    commands = re.findall(
        r"^  (.*walsh .*)$", shown.partition("what to try next:")[2], re.MULTILINE
    )
    assert len(commands) == 3
    codes = []
    for command in commands:
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            env={**environment(), "PATH": typed_path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout
        assert done.stderr == ""
        codes.append(done.returncode)
    assert codes == [0, 0, 0]


def test_the_demo_project_declares_what_the_sandbox_has(shown: str) -> None:
    page = re.search(r"^the first run as a page: (.*)$", shown, re.MULTILINE)
    assert page is not None
    folder = Path(page[1]).parent
    sources, problems = read_sources(folder / "sources.toml")
    assert problems == []
    assert [(s.name, s.url, s.feed) for s in sources] == [
        (s.name, s.url, s.feed) for s in demo_sources()
    ]


def test_the_demo_overwrites_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "settings.py").write_text("ours")
    assert main(["demo", "--dir", str(tmp_path)]) == 2
    assert main(["demo", "--dir", str(tmp_path / "settings.py")]) == 2
    told = capsys.readouterr().err.splitlines()
    assert told[0] == f"walsh demo: {tmp_path} is not empty; give another --dir"
    assert len(told) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["settings.py"]
