"""What holds for every subcommand."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh import SPEC_VERSION, __version__
from scrapy_walsh import __main__ as module
from scrapy_walsh.commands import main as commands
from tests.crawl.harness import walsh

if TYPE_CHECKING:
    import subprocess

ROOT = Path(__file__).parents[2]


def test_a_file_that_is_not_there_is_named_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = tmp_path / "none" / "file"
    for name, *options in (("attest", "--identity", "walsh-research", "--sign", str(there)),):
        assert commands.main([name, *options]) == 2
        assert capsys.readouterr().err == f"walsh {name}: {there}: No such file or directory\n"


def test_ctrl_c_ends_a_command_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(args: object) -> int:
        raise KeyboardInterrupt

    module = SimpleNamespace(add_options=lambda parser: None, run=interrupted)
    monkeypatch.setattr(commands, "import_module", lambda _: module)
    for name in commands.SUBCOMMANDS:
        assert commands.main([name]) == 2
        assert capsys.readouterr() == ("", f"walsh {name}: stopped\n")


MODULES = ("scrapy walsh", "scrapy_walsh")


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    module, *more = words
    return walsh(folder, *more, module=module)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_lists_every_subcommand(tmp_path: Path, module: str, option: str) -> None:
    done = run(tmp_path, *module.split(), option)
    assert (done.returncode, done.stderr) == (0, "")
    said = " ".join(done.stdout.split())
    for name, entry in commands.SUBCOMMANDS.items():
        assert f" {name} {entry.summary}" in said


@pytest.mark.parametrize("module", MODULES)
def test_r4v_3_version_names_the_tool_and_the_specification(tmp_path: Path, module: str) -> None:
    done = run(tmp_path, *module.split(), "--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"scrapy-walsh {__version__}, for {SPEC_VERSION}\n"


@pytest.mark.parametrize("module", MODULES)
def test_help_after_a_subcommand_is_its_own(tmp_path: Path, module: str) -> None:
    done = run(tmp_path, *module.split(), "check", "-h")
    assert done.returncode == 0
    assert done.stdout.startswith("usage: walsh check ")


@pytest.mark.parametrize(
    ("written", "meant"),
    [("chek", "check"), ("Verify", "verify"), ("conform", "conformance")],
)
def test_an_unknown_subcommand_names_the_nearest(
    written: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commands.main([written, "-h"]) == 2
    assert capsys.readouterr() == (
        "",
        f"walsh: no subcommand {written!r}; did you mean {meant}?\n",
    )


def test_one_that_is_like_none_is_answered_with_all(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        commands.main(["xyzzy", "-h"])
    out, err = capsys.readouterr()
    assert out == ""
    assert all(name in err for name in ["SUBCOMMAND", *commands.SUBCOMMANDS])


def test_the_name_alone_lists_all(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["-h"]):
        with pytest.raises(SystemExit, match="0"):
            commands.main(words)
        out, err = capsys.readouterr()
        assert err == ""
        lines = out.splitlines()  # a long name has its own line on older Pythons
        assert all(
            any(line.split()[:1] == [name] for line in lines) for name in commands.SUBCOMMANDS
        )


def test_the_console_script_is_the_module(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == dict.fromkeys(("walsh", "scrapy-walsh"), f"{commands.__name__}:run")
    assert module.run is commands.run
    monkeypatch.setattr(sys, "argv", ["walsh", "--version"])
    with pytest.raises(SystemExit, match="0"):
        commands.run()
    assert capsys.readouterr().out == f"scrapy-walsh {__version__}, for {SPEC_VERSION}\n"
