"""``walsh audit``: exit codes, what is said, and that the documentation shows what happens."""

from __future__ import annotations

import gzip
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from shutil import copy
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.commands.main import main
from scrapy_walsh.ledger.files import chain_line
from scrapy_walsh.proof.sandbox import Sandbox
from tests.crawl.harness import OWN_IDENTITY, make_project, run_scrapy
from tests.kit import T0, line, written

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parent.parent.parent
DOCUMENT = (ROOT / "docs" / "audit.md").read_text()
DATA = ROOT / "tests" / "data" / "audit"
ROBOTS = "User-agent: *\nDisallow: /private\nCrawl-delay: 2\n"
VHOSTS = [line(T0, host="a.test:443"), line(T0, host="b.test:443")]
HONEST = [line(T0, "/robots.txt"), line(T0), line(T0 + 9, "/b")]


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def run(*argv: str) -> tuple[int, str, str]:
        code = main(["audit", *argv])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the files that the documentation speaks of; the working directory."""
    monkeypatch.chdir(tmp_path)
    copy(DATA / "nginx.log", "access.log")
    for name in ("old.txt", "robots.txt"):
        Path(name).write_text(ROBOTS)
    first = T0 - 100
    asked = {
        "run": "r", "kind": "asked", "url": "http://www.site.example/", "method": "GET",
        "status": 200, "host": "www.site.example", "purpose": "target", "answered": True,
        "interval": 1.0, "exempt": False, "attempt": 0, "gives_up": False,
    }  # fmt: skip
    lines = [
        chain_line({"at": first, "kind": "ledger", "contract": "walsh-ledger/v1"}, 1, "0" * 64)[0],
        chain_line({"at": first, **asked, "started": first, "ended": first}, 2, "0" * 64)[0],
    ]
    Path("ledger.jsonl").write_bytes(b"".join(lines))
    return tmp_path


def test_honest_is_zero_broken_is_one(told: Any, tmp_path: Path) -> None:
    assert told(written(tmp_path / "a", HONEST), "--host", "site.example")[0] == 0
    hasty = written(tmp_path / "b", [*HONEST, line(T0 + 9, "/c")])
    code, out, err = told(hasty, "--host", "site.example")
    assert (code, err) == (1, "")
    assert "verdict: broken" in out
    assert f"{tmp_path / 'b'}:4: /c: under 1 s after {tmp_path / 'b'}:3, 1 s required" in out


@pytest.mark.parametrize(
    ("lines", "options", "why"),
    [
        (
            [line(T0, agent="curl/8")],
            [],
            "never seen: Walsh-Research (by its User-Agent), in 1 line",
        ),
        (HONEST, ["--ip", "203.0.113.9"], "never seen: 203.0.113.9/32, in 3 lines"),
        (["x"], [], "is not an access log: of 1 line none can be read"),
        ([], [], "nothing to read"),
        ([HONEST[0].rpartition(' "-"')[0]], [], "Lines without a User-Agent need --ip"),
        (HONEST, ["--token", "Other"], "Other is not in the User-Agent"),
        (HONEST, ["--user-agent", "Other/1.0"], "give --token and --user-agent"),
        (HONEST, ["--token", "Walsh-Research/1.2"], "give the name alone"),
        (HONEST, ["--robots", "none.txt"], "none.txt: No such file"),
        (VHOSTS, ["--robots", "robots.txt"], "--robots: of which of the 2 hosts (a.test, b.test)?"),
        (VHOSTS, ["--optout", "2026-05-24"], "--optout: of which of the 2 hosts"),
        (VHOSTS, ["--host", "c.test"], "in 2 lines, 2 requests to other hosts"),
        (HONEST, ["--host", "a b"], "not a URL: 'a b'"),
        (HONEST, [], "the log names no host, so its lines may be of several: give --host"),
        (HONEST, ["--host", "h.test", "--ledger", "robots.txt"], "robots.txt is not a ledger"),
    ],
)
def test_misuse_is_two_and_one_line(
    told: Any, folder: Path, lines: list[str], options: list[str], why: str
) -> None:
    code, out, err = told(written(folder / "a", lines), *options)
    assert (code, out) == (2, "")
    assert why in err
    assert err.startswith("walsh audit: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "options",
    [
        ["--skew", "-1"],
        ["--answer-time", "nan"],
        ["--ip", "203.0.113.9/99"],
        ["--optout", "soon"],
        ["--refresh", "6h"],
        ["--robots", "none.txt@yesterday"],
    ],
)
def test_options_that_cannot_be_used(folder: Path, options: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["audit", "access.log", *options])
    assert stopped.value.code == 2


def test_two_undated_robots_files_are_misuse(told: Any, folder: Path) -> None:
    code, _, err = told("access.log", "--robots", "old.txt", "--robots", "robots.txt")
    assert code == 2
    assert "give each version as file@time" in err.lower()


def test_the_worst_log_fits_a_screen(told: Any, folder: Path) -> None:
    """Every row broken, with long and hostile values: about forty lines, in ASCII of one line."""
    agent = "Walsh-Research/1.2 \x1b[31m" + "x" * 9000
    lines = [line(T0 - 500_000, agent="curl/8"), *["damaged"] * 30]
    lines += [
        line(T0 + n // 3, "/private/\x1b" + "y" * 9000, 429, agent=agent, address=f"192.0.2.{n}")
        for n in range(60)
    ]
    written(folder / "bad.log", lines)
    given = ["--robots", "robots.txt", "--optout", "2026-05-01", "--host", "site.example"]
    code, out, _ = told("bad.log", *given)
    assert code == 1
    rows = [each for each in out.splitlines() if re.match(r"(held|broken|not seen) ", each)]
    assert [each.split()[0] for each in rows] == ["broken"] * 6 + ["not"] * 2
    assert len(out.splitlines()) <= 42
    assert max(map(len, out.splitlines())) <= 250
    assert "\x1b" not in out
    assert out.count("... and 58 more") == 4
    assert "unreadable lines: 30\nunreadable first: bad.log:2, " in out


def test_json_says_the_same(told: Any, folder: Path) -> None:
    code, out, _ = told("access.log", "--json", "--ip", "192.0.2.0/24", "--host", "a.test")
    found = json.loads(out)
    assert code == 0
    assert (found["verdict"], found["requests"], found["lines"]) == ("held", 7, 11)
    assert [row["id"] for row in found["requirements"]] == [
        "R1", "R2", "R2", "R3", "R4", "R5", "R7", "R8",
    ]  # fmt: skip
    for name in [*found, *found["requirements"][0], "place", "what"]:
        assert f"`{name}`" in DOCUMENT


def test_one_host_of_several(told: Any, folder: Path) -> None:
    lines = [*VHOSTS, line(T0, host="a.test:80"), line(T0 + 99)]
    path = written(folder / "a", lines)
    code, out, _ = told(path, "--host", "B.test", "--robots", "robots.txt")
    assert code == 0
    assert "hosts: b.test (2)" in out  # the line that names none is its own
    assert "not judged: to other hosts (2)" in out
    assert told(path, "--host", "a.test")[0] == 1


def test_a_log_that_is_cut_off_never_looks_well(told: Any, folder: Path) -> None:
    whole = gzip.compress("".join(f"{each}\n" for each in HONEST).encode())
    Path("a.gz").write_bytes(whole[:-10])
    code, _, err = told("a.gz", "--host", "site.example")
    assert (code, "a.gz is damaged or ends too early" in err) == (2, True)
    Path("a.gz").write_bytes(whole)
    assert told("a.gz", "--host", "site.example")[0] == 0


CADDY = '{"level":"info","ts":1779530400.1,"request":{"method":"GET","uri":"/","host":"a.test"}}'
HAPROXY = (
    "haproxy[1]: 192.0.2.7:40 [23/May/2026:10:00:00.123] main be/s 0/0/1/2/3 200 512 - - ---- "
    '1/1/0/0/0 0/0 "GET / HTTP/1.1"'
)


@pytest.mark.parametrize("other", [CADDY, HAPROXY])
def test_logs_in_other_forms_are_said_not_to_be_read(told: Any, folder: Path, other: str) -> None:
    code, _, err = told(written(folder / "a", [other]))
    assert code == 2
    assert "common, combined, JSON lines and W3C extended can be read" in err
    assert "of HAProxy, S3 or a load balancer make combined lines first" in err


def test_robots_versions_by_time(told: Any, folder: Path) -> None:
    Path("old.txt").write_text("")
    lines = [line(T0, "/robots.txt"), line(T0 + 9, "/private"), line(T0 + 100_000, "/private")]
    path = written(folder / "a", lines)
    for second, code in (("2026-05-23T10:30:00Z", 1), ("2026-05-23T12:30+02:00", 1)):
        options = ["--robots", "old.txt", "--robots", f"robots.txt@{second}", "--host", "a.test"]
        assert told(path, *options)[0] == code
        assert f"{path}:3: /private: Disallow" in told(path, *options)[1]
    later = ["--robots", "old.txt", "--robots", "robots.txt@2026-05-24", "--host", "a.test"]
    assert told(path, *later)[0] == 0


def test_the_ledger_is_held_against_the_log(told: Any, folder: Path) -> None:
    options = ["access.log", "--host", "www.site.example", "--ledger", "ledger.jsonl"]
    code, out, _ = told(*options)
    assert code == 1  # the ledger's one request is not in the log
    assert "ledger.jsonl:2: /: not in the log" in out
    assert told(*options, "--skew", "20")[0] == 0  # its clock may be off by more than that


def test_gzip_on_standard_input_as_a_module(folder: Path) -> None:
    """Outside a project, as a command of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "scrapy_walsh", "audit", "-", "--host", "a.test"],
        input=gzip.compress((folder / "access.log").read_bytes()),
        capture_output=True,
        env={"PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"7 of 7 exact" in done.stdout


def test_a_project_judges_its_own_bot(folder: Path) -> None:
    project = make_project(folder / "project", settings={"WALSH_IDENTITY": OWN_IDENTITY})
    agent = "Mozilla/5.0 (compatible; ExampleBot/1.0; +http://operator.test/bot/)"
    lines = [line(T0, "/robots.txt", agent=agent), line(T0 + 9, agent=agent), line(T0 + 20)]
    path = written(folder / "a", lines)
    with Sandbox() as box:
        done = run_scrapy(project, box, "walsh", "audit", path, "--host", "a.test")
        assert box.log == []
    assert done.returncode == 0, done.stdout
    assert "2 of 2 exact" in done.stdout


# -- docs ---------------------------------------------------------------------------------


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCUMENT, re.DOTALL)


def test_docs_commands_run_and_say_what_is_shown(told: Any, folder: Path) -> None:
    commands = [shlex.split(each) for block in blocks("bash") for each in block.splitlines()]
    # That one needs a log with signatures: tests/sign/test_audit.py runs it.
    commands = [each for each in commands if "--directory" not in each]
    answers = []
    for command in commands:
        assert command[:4] == ["python", "-m", "scrapy_walsh", "audit"]
        answers.append(told(*[word.removesuffix("*") for word in command[4:]]))
    codes = [code for code, _, _ in answers]
    # Nobody of the name ExampleBot is in the log; the ledger has a request that the log has not.
    assert codes == [0, 0, 0, 2, 0, 0, 0, 1], [err for _, _, err in answers]
    assert blocks("text") == [answers[1][1]]


def test_docs_name_every_option() -> None:
    usage = subprocess.run(
        [sys.executable, "-m", "scrapy_walsh", "audit", "--help"],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT)},
        check=True,
    ).stdout
    options = set(re.findall(r"--[a-z-]+", usage)) - {"--help"}
    assert len(options) == 15
    assert {option for option in options if option not in DOCUMENT} == set()
