"""Around the run: misuse, progress, an interrupt."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.commands import conformance as command
from scrapy_walsh.commands.main import main
from tests.zygote import ROOT

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--only", "R14"], "'R14'"),
        (["--only", "nothing"], "'nothing'"),
        (["--user-agent", "Bot/1.0"], "--user-agent goes with --command"),
        (["--time-limit", "10"], "--time-limit goes with --command"),
        (["--command", "bot", "--live"], "--live does not go with --command"),
        (["--command", "bot", "-s", "A=1"], "--set does not go with --command"),
        (["--command", "bot", "--only", "R13"], "shows none of this"),
        (["--live", "--only", "R2", "--identity", "walsh-research"], "--only"),
        (["--live"], "--identity"),
        (["--identity", "nobody"], "WALSH_IDENTITY"),
        (["-s", "WALSH_MIN_INTERVAL=0.5"], "WALSH_MIN_INTERVAL"),
        (["-s", "nonsense"], "NAME=VALUE"),
    ],
)
def test_misuse_is_one_line(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["conformance", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("walsh conformance: ")
    assert said in line


def test_progress_is_for_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command._progress("days: 4 crawls, 9 checks")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    command._progress("days: 4 crawls, 9 checks")
    assert capsys.readouterr().err == "days: 4 crawls, 9 checks\n"


@pytest.mark.crawl
def test_an_interrupted_run_stops_and_leaves_nothing_behind(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "scrapy_walsh", "conformance", "--only", "documents"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # What a shell runs in the background ignores an interrupt, and so would its children.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    while not list(temporary.glob("*/project/state")):
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == 2
    assert stdout == ""
    assert stderr == "walsh conformance: stopped\n"
    assert list(temporary.iterdir()) == []
