"""One command line: help, exit codes and options of every subcommand; what is left behind."""

from __future__ import annotations

import argparse
import errno
import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.adapters.context import default_state_dir
from scrapy_walsh.commands import completion, init
from scrapy_walsh.commands.main import MISUSE, SUBCOMMANDS, main, parser_of
from scrapy_walsh.proof import files
from scrapy_walsh.proof.sandbox import blocklist
from scrapy_walsh.state.records import HostRecord, Validators
from scrapy_walsh.state.store import SqliteStore
from tests.crawl.harness import put_records, walsh
from tests.kit import honest, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
BASH = shutil.which("bash") or ""
DOCUMENT = (ROOT / "docs" / "commands.md").read_text()
#: What has no answer for a program, or is JSON as it stands.
NOT_JSON = {"attest", "completion", "demo", "init", "read", "report"}
#: What reads no setting.
NO_SETTINGS = {"blocklist add", "blocklist remove", "completion", "demo", "init", "sandbox"}


def choices(parser: argparse.ArgumentParser) -> list[Any]:
    return [a.choices for a in parser._actions if isinstance(a, argparse._SubParsersAction)]


def parsers() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Each command that can be run, an action of a subcommand with its name."""
    (every,) = choices(parser_of(*SUBCOMMANDS))
    for name, parser in every.items():
        below = [(f"{name} {each}", made) for a in choices(parser) for each, made in a.items()]
        yield from below or [(name, parser)]


def options(parser: argparse.ArgumentParser) -> set[str]:
    return {option for action in parser._actions for option in action.option_strings}


# -- help ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_each_help_has_examples_that_work_and_every_exit_code(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "-h"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    shown = re.search(r"\nexamples:\n(.*?)\n\nexit codes:\n(.*)\Z", out, re.DOTALL)
    assert shown is not None
    for line in shown[1].splitlines():
        example = shlex.split(re.split("[<>]", line)[0])
        assert example[:2] == ["walsh", name]
        parser_of(name).parse_args(example[1:])
    assert shown[1]
    entry = SUBCOMMANDS[name]
    codes = [says for says in (entry.zero, entry.one) if says]
    assert [line[5:] for line in shown[2].splitlines()[: len(codes)]] == codes
    assert f"  2  {MISUSE}" in shown[2]


def test_every_option_says_what_it_does() -> None:
    for name, parser in parsers():
        for action in parser._actions:
            assert action.help, f"{name}: {action.option_strings or action.dest}"


def test_the_docs_have_every_exit_code() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*) \| ([^|]*) \| ([^|]*) \|$", DOCUMENT, re.MULTILINE)
    assert [tuple(map(str.strip, row)) for row in rows] == [
        (name, entry.zero, entry.one or "does not occur", entry.two)
        for name, entry in SUBCOMMANDS.items()
    ]
    assert f"For every command, 2 means: {MISUSE}." in DOCUMENT


def test_the_same_option_is_for_the_same_thing_everywhere() -> None:
    found = {name: options(parser) for name, parser in parsers()}
    assert {name for name in found if "--json" not in found[name]} == NOT_JSON
    for option in ("-s", "--set", "--identity"):
        assert {name for name in found if option not in found[name]} == NO_SETTINGS, option
    assert {name for name in found if "-o" in found[name]} == {"attest", "report"}
    assert {name for name in found if "--output" in found[name]} == {"attest", "report"}
    assert {name for name in found if "--ledger" in found[name]} == {"audit"}


# -- what is mistyped ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    ["check http://h.test/ --robots robots.txt", "state show", "verify", "audit access.log",
     "blocklist check http://h.test/list", "conformance", "attest", "discover h.test", "plan",
     "read h.test --identity x"],
)  # fmt: skip
def test_a_mistyped_setting_is_refused_with_the_one_that_may_be_meant(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    name, *rest = words.split()
    assert main([name, *rest, "-s", "WALSH_PATIENC=3"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"walsh {name}: -s WALSH_PATIENC is not a setting of scrapy_walsh")
    assert err.endswith("; did you mean WALSH_PATIENCE?\n")


# -- nothing is made by what only reads, or fails -----------------------------------------

READING = (
    "state show", "state verify --json",
    "state forget h.test", "read h.test", "read none.opml", "verify", "verify none", "report",
    "report none -o out.html", "plan", "plan -a sources=none.toml", "plan -a urls=http://h.test/",
    "doctor --json", "check http://h.test/ --robots robots.txt",
    "check http://h.test/ --robots none.txt", "audit none.log", "blocklist add h.test",
    "blocklist check none.json", "attest --identity walsh-research",
    "attest --identity walsh-research -o none/a.json", "attest --verify none --jwks none",
    "init --product Bot/1 --site http://b.example --dir none/new",
    "init --product Bot/1.0 --site http://b.example --dir robots.txt/new",
    "conformance --only R99", "demo --dir robots.txt", "sandbox --sites none.toml --log log",
    "sandbox --port 99999", "completion bash", "verify -s WALSH_STATE_DIR=none",
)  # fmt: skip
SETTINGS = """
SPIDER_MODULES = ["scrapy_walsh.spiders"]
ADDONS = {"scrapy_walsh.Addon": 500}
WALSH_IDENTITY = "walsh-research"
"""


def tree(folder: Path) -> dict[str, bytes | None]:
    """What is in *folder*: by path, the octets of a file, None of a directory."""
    found = sorted(path for path in folder.rglob("*") if "__pycache__" not in path.parts)
    return {str(path): None if path.is_dir() else path.read_bytes() for path in found}


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("project", [False, True], ids=["no project", "a project"])
def test_what_only_reads_or_fails_makes_nothing(project: bool, tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "robots.txt").write_text("User-agent: *\n")
    if project:
        (folder / "scrapy.cfg").write_text("[settings]\ndefault = own.settings\n")
        (folder / "own").mkdir()
        (folder / "own" / "settings.py").write_text(SETTINGS)
    before = tree(folder)
    for words in READING:
        done = walsh(folder, *shlex.split(words), HOME=str(tmp_path))
        assert done.returncode in (0, 1, 2), words
        assert "Traceback" not in done.stderr, words
        assert tree(folder) == before, words


def test_a_look_at_a_state_adds_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    state = tmp_path / ".scrapy" / "walsh"
    SqliteStore(state).close()
    write(state, honest().entries)
    before = tree(tmp_path).keys()
    for words in ("state show", "state verify", "verify", "report -o -"):
        main(words.split())
        assert tree(tmp_path).keys() == before, words
    assert capsys.readouterr().err == ""


def test_the_state_directory_is_where_scrapy_has_its_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from scrapy.utils.project import data_path  # noqa: PLC0415  it makes what it names

    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SCRAPY_SETTINGS_MODULE", raising=False)
    below = tmp_path / "project" / "below"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    for written in ("[settings]\n", f"[datadir]\ndefault = {tmp_path / 'data'}\n"):
        (tmp_path / "project" / "scrapy.cfg").write_text(written)
        found = default_state_dir()
        assert not Path(found).parent.exists()
        assert found == data_path("walsh")


# -- all or nothing -----------------------------------------------------------------------


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full when a file is to be made safe on it."""

    def fail(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", fail)


@pytest.mark.usefixtures("full_disk")
def test_a_report_that_cannot_be_written_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "ledger", honest().entries)
    (tmp_path / "run.html").write_text("the old one")
    before = tree(tmp_path)
    assert main(["report", "ledger", "-o", "run.html"]) == 2
    assert capsys.readouterr() == ("", "walsh report: run.html: No space left on device\n")
    assert tree(tmp_path) == before


@pytest.mark.usefixtures("full_disk")
def test_an_attestation_that_cannot_be_written_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["attest", "--identity", "walsh-research", "-o", "a.json"]) == 2
    assert capsys.readouterr().err == "walsh attest: a.json: No space left on device\n"
    assert tree(tmp_path) == {}


def test_an_init_that_fails_is_one_line_and_goes_on_when_called_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = init.replace_file

    def fail(path: Path, data: bytes) -> None:
        if path.name == "policy.html":
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        whole(path, data)

    monkeypatch.setattr(init, "replace_file", fail)
    words = ["--product", "OurBot/1.0", "--site", "https://bot.example", "--dir", str(tmp_path)]
    assert main(["init", *words]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "policy.html: No space left on device" in err
    monkeypatch.setattr(init, "replace_file", whole)
    assert main(["init", *words]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("blocklist.json", "policy.html", "sources.toml"),
    ]


def test_a_file_that_is_replaced_keeps_its_rights_and_a_device_stays_one(
    tmp_path: Path,
) -> None:
    kept, link = tmp_path / "kept", tmp_path / "link"
    kept.write_text("old")
    kept.chmod(0o664)
    link.symlink_to(kept)
    files.replace_file(link, b"new")
    assert (link.is_symlink(), kept.read_bytes()) == (True, b"new")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o664
    files.replace_file(kept, b"secret", 0o600)
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    files.replace_file(Path(os.devnull), b"nowhere")
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no disk that is always full")
@pytest.mark.parametrize("words", ["verify {}", "report -o - {}", "state show --dir {}"])
def test_an_output_that_nobody_takes_is_one_line(words: str, tmp_path: Path) -> None:
    SqliteStore(tmp_path).close()
    write(tmp_path, honest().entries)
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "scrapy_walsh", *words.format(tmp_path).split()],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr.endswith("No space left on device\n")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "code"),
    [("verify {}", 0), ("verify {} --head 1:{zero}", 1), ("state show --all --dir {}", 0)],
)
def test_who_reads_only_the_beginning_ends_no_command(
    words: str, code: int, tmp_path: Path
) -> None:
    """As ``walsh ... | head -1``: the exit code is that of what was found, and nothing is said."""
    put_records(tmp_path, *(HostRecord(f"h{n}.test", 1.0, 1.0) for n in range(9)))
    write(tmp_path, honest().entries)
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "scrapy_walsh", *words.format(tmp_path, zero="0" * 64).split()],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (code, "")


# -- completion ---------------------------------------------------------------------------


@pytest.mark.skipif(not BASH, reason="no bash")
def test_bash_completes_commands_actions_options_and_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "walsh"
    script.write_text(capsys.readouterr().out)
    (tmp_path / "ledger.jsonl").touch()

    def completed(*words: str) -> set[str]:
        line = " ".join(map(shlex.quote, ("walsh", *words)))
        ask = (
            f"source {script}; COMP_WORDS=({line}); COMP_CWORD={len(words)};"
            ' _shtab_walsh; echo "${COMPREPLY[@]}"'
        )
        done = subprocess.run(
            [BASH, "--norc", "-c", ask], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return set(done.stdout.split())

    assert completed("ver") == {"verify"}
    assert completed("state", "fo") == {"forget"}
    assert completed("check", "--ro") == {"--robots"}
    assert "ledger.jsonl" in completed("verify", "ledger")


def test_zsh_has_a_script_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "zsh"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("#compdef walsh")
    assert all(f"{name}:" in out for name in SUBCOMMANDS)


def test_completion_says_which_package_it_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missing: Any = lambda name: None  # noqa: E731
    monkeypatch.setattr(completion.importlib.util, "find_spec", missing)
    assert main(["completion", "bash"]) == 2
    assert "pip install 'scrapy-walsh[completion]'" in capsys.readouterr().err


# -- answers for a program ----------------------------------------------------------------


@pytest.fixture
def answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, Any]]:
    """Runs a command with ``--json`` in a directory: exit code, and its one object."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, Any]:
        code = main([*words, "--json"])
        out, err = capsys.readouterr()
        assert (out.count("\n"), err) == (1, "")
        return code, json.loads(out)

    return run


def test_the_actions_on_a_list_answer_a_program(answer: Any, tmp_path: Path) -> None:
    (tmp_path / "blocklist.json").write_text(json.dumps(blocklist()))
    code, found = answer("blocklist", "add", "shop.test")
    updated = found.pop("updated")
    assert (code, found) == (
        0,
        {"added": ["shop.test"], "on_the_list_already": [], "domains": 2, "refresh": 21600.0},
    )
    assert answer("blocklist", "add", "shop.test")[1]["on_the_list_already"] == ["shop.test"]
    assert answer("blocklist", "check") == (
        0,
        {"adopted": True, "domains": 2, "refresh": 21600.0, "updated": updated, "warnings": []},
    )
    assert answer("blocklist", "remove", "shop.test")[1]["removed"] == ["shop.test"]
    (tmp_path / "bad.json").write_text("{}")
    code, found = answer("blocklist", "check", "bad.json")
    assert (code, found["adopted"]) == (1, False)
    assert found["reason"]


def test_the_actions_on_the_state_answer_a_program(answer: Any, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "state")
    store.put(Validators("https://h.test/", "*/*", '"v"', None, 1.0, "text/xml"))
    store.close()
    where = ("--dir", "state")
    code, found = answer("state", "forget", *where, "h.test")
    assert (code, found["host"], found["dropped"]["validators"]) == (0, "h.test", 1)
    assert answer("state", "forget", *where, "nobody.test")[0] == 1
    assert answer("state", "verify", *where) == (
        0,
        {"directory": "state", "problems": [], "set_aside": []},
    )
    (tmp_path / "state" / "state.sqlite3.damaged-1").touch()
    (tmp_path / "state" / "blocklist.json").write_text("no copy")
    code, found = answer("state", "verify", *where)
    assert (code, found["set_aside"]) == (1, ["state.sqlite3.damaged-1"])
    assert found["problems"][0].startswith("blocklist.json: ")


def test_doctor_looks_at_the_project_as_the_command_line_would_have_it(tmp_path: Path) -> None:
    (tmp_path / "scrapy.cfg").write_text("[settings]\ndefault = own.settings\n")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "settings.py").write_text(SETTINGS)
    words = ["-s", "CONCURRENT_REQUESTS=8", "-s", "WALSH_PATIENCE=long"]
    done = walsh(tmp_path, "doctor", "--json", *words, HOME=str(tmp_path))
    assert done.returncode == 1, done.stderr
    found = [(each["mark"], each["text"]) for each in json.loads(done.stdout)["findings"]]
    assert any(m == "FAIL" and t.startswith("WALSH_PATIENCE is 'long'") for m, t in found)
