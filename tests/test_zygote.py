"""What the server forks shows what an interpreter of its own shows."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests import zygote

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
SCRAPY = [sys.executable, "-m", "scrapy"]
#: Commands, in a project, whose output says where and how they run.
SHOWING = {
    "of Scrapy": ["version", "-v"],
    "of ours": ["walsh", "--help"],
    "that is wrong": ["crawl", "--nothing-of-the-kind"],
    "that finds no spider": ["crawl", "nobody", "--nolog"],
    "what a module sees": ["sees"],
}
#: A command of the project's own: what the process is.
SEES = """
import os, signal, sys, threading
from scrapy.commands import ScrapyCommand

class Command(ScrapyCommand):
    requires_project = True
    default_settings = {"LOG_ENABLED": False}

    def __del__(self):
        print("collected")

    def short_desc(self):
        return "sees"

    def run(self, args, opts):
        print(sys.argv, sys.path, os.getcwd(), sorted(os.environ.items()), sys.flags)
        print([signal.getsignal(each) for each in (signal.SIGINT, signal.SIGCHLD, signal.SIGPIPE)])
        print(threading.active_count(), sys.stdin.read(), sys.stdout.line_buffering)
        print("twisted.internet.reactor" in sys.modules, os.listdir("/proc/self/fd")[:4])
        self.myself = self
        threading.Timer(0.1, print, ["at the end"]).start()
        print("to stderr", file=sys.stderr)
        if args == ["wait"]:
            print("waits", flush=True)
            threading.Event().wait()
        if args:
            sys.exit(int(args[0]))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose module ``commands`` has a command."""
    (tmp_path / "scrapy.cfg").write_text("[settings]\ndefault = settings_of_it\n")
    (tmp_path / "settings_of_it.py").write_text(
        "BOT_NAME = 'it'\nCOMMANDS_MODULE = 'commands_of_it'\n"
    )
    (tmp_path / "commands_of_it").mkdir()
    (tmp_path / "commands_of_it" / "__init__.py").touch()
    (tmp_path / "commands_of_it" / "sees.py").write_text(SEES)
    return tmp_path


def started(project: Path, *arguments: str, **options: Any) -> zygote.Popen:
    """A forked ``scrapy ARGUMENTS``."""
    pipes = {"stdout": subprocess.PIPE, "stdin": subprocess.DEVNULL, "text": True}
    process = zygote.Popen([*SCRAPY, *arguments], cwd=project, **{**pipes, **options})
    assert process.forked
    return process


def without_times(text: str) -> str:
    """*text* with every time of a log line left out."""
    return re.sub(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "", text, flags=re.MULTILINE)


@pytest.mark.parametrize("arguments", SHOWING.values(), ids=SHOWING)
def test_a_forked_command_shows_what_any_shows(project: Path, arguments: list[str]) -> None:
    options: dict[str, Any] = {
        "cwd": project,
        "env": {**os.environ, "PYTHONPATH": str(project), "OF": "it"},
        "input": "typed",
        "capture_output": True,
        "text": True,
        "timeout": 60,
    }
    plain = subprocess.run([*SCRAPY, *arguments], check=False, **options)
    assert zygote.why_not([*SCRAPY, *arguments], project, options["env"]) is None
    forked = zygote.run([*SCRAPY, *arguments], **options)
    assert forked.returncode == plain.returncode
    assert without_times(forked.stdout) == without_times(plain.stdout)
    assert without_times(forked.stderr) == without_times(plain.stderr)
    if arguments == ["sees"]:
        assert "typed" in forked.stdout
        assert forked.stdout.endswith("at the end\ncollected\n")


def test_what_a_shell_starts_has_its_streams_and_tells_its_status(project: Path) -> None:
    with zygote.typed() as folder:
        done = subprocess.run(
            ["/bin/sh", "-c", "echo typed | scrapy sees 7; echo ended with $?; walsh chek"],
            cwd=project,
            env={**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "OF": "it"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert "1 typed\n" in done.stdout
    assert "('OF', 'it')" in done.stdout
    assert done.stdout.endswith("ended with 7\n")
    assert done.returncode == 2
    assert "no subcommand 'chek'" in done.stderr


def test_its_exit_status_is_told(project: Path) -> None:
    with started(project, "sees", "7") as process:
        assert process.wait(60) == 7
        assert process.poll() == 7


def test_check_raises(project: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError, match="status 7"):
        zygote.run([*SCRAPY, "sees", "7"], cwd=project, check=True, capture_output=True)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it(project: Path, number: signal.Signals) -> None:
    with started(project, "sees", "wait", stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert "waits\n" in iter(process.stdout.readline, "")
        assert process.poll() is None
        process.send_signal(number)
        assert process.wait(60) == -number


def test_a_time_limit_ends_it(project: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        zygote.run([*SCRAPY, "sees", "wait"], cwd=project, capture_output=True, timeout=1)


def test_several_run_at_a_time(project: Path) -> None:
    waiting, short = started(project, "sees", "wait"), started(project, "sees", "3")
    try:
        assert short.communicate(timeout=60)[0].endswith("at the end\ncollected\n")
        assert short.returncode == 3
        assert waiting.poll() is None
    finally:
        waiting.kill()
        waiting.communicate()
    assert waiting.returncode == -signal.SIGKILL


def test_a_session_of_its_own(project: Path) -> None:
    with started(project, "sees", "wait", start_new_session=True) as process:
        assert os.getsid(process.pid) == process.pid
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_what_needs_an_interpreter_of_its_own_gets_one(project: Path) -> None:
    command, plain = [*SCRAPY, "version"], dict(os.environ)
    assert zygote.why_not(command, project, plain) is None
    for name, value in (("PYTHONHASHSEED", "7"), ("PYTHONWARNINGS", "error"), ("LC_ALL", "POSIX")):
        assert name in (zygote.why_not(command, project, {**plain, name: value}) or name)
        assert zygote.why_not(command, project, {**plain, name: value}) is not None
    assert zygote.why_not([sys.executable, "-c", "pass"], project, plain) is not None
    assert zygote.why_not([sys.executable, "-m", "tests.year"], project, plain) is not None
    (project / "elsewhere").mkdir()
    path = {**plain, "PYTHONPATH": str(project / "elsewhere")}
    assert zygote.why_not(command, project, path) is None
    for name in ("sitecustomize.py", "protego.py"):
        (project / "elsewhere" / name).touch()
        assert zygote.why_not(command, project, path) is not None
        assert zygote.why_not(command, project / "elsewhere", plain) is not None
        (project / "elsewhere" / name).unlink()
    with zygote.Popen([*SCRAPY, "version"], preexec_fn=os.getpid, stdout=subprocess.DEVNULL) as own:
        assert not own.forked
        assert own.wait(60) == 0


def test_a_clock_that_was_replaced_is_replaced_wherever_it_was_kept(project: Path) -> None:
    (project / "sitecustomize.py").write_text("import time\ntime.time = lambda: 7.5\n")
    (project / "clocks_of_it.py").write_text(
        "import time\nimport scrapy.core.engine, twisted.internet.base, twisted.python.runtime\n"
        "print(time.time(), scrapy.core.engine.time(), twisted.python.runtime.seconds(),\n"
        "      twisted.python.runtime.platform.seconds(), twisted.internet.base.runtimeSeconds())\n"
    )
    command = [sys.executable, "-m", "clocks_of_it"]
    assert zygote.why_not(command, project, dict(os.environ)) is not None
    environment = {**os.environ, zygote.BROKEN: "1"}
    with zygote.Popen(command, cwd=project, env=environment, stdout=subprocess.PIPE) as process:
        assert process.forked
        assert process.communicate(timeout=60)[0].split() == [b"7.5"] * 5


def test_chance_is_not_shared(project: Path) -> None:
    """Two children draw other numbers, as two interpreters do: back-off is drawn so."""
    words = ["walsh_of_it"]
    code = "import random\nfrom scrapy.commands import ScrapyCommand\n"
    code += "class Command(ScrapyCommand):\n    def short_desc(self): return ''\n"
    code += "    def run(self, args, opts): print(random.random())\n"
    (project / "commands_of_it" / "walsh_of_it.py").write_text(code)
    drawn = {started(project, *words).communicate(timeout=60)[0] for _ in range(3)}
    assert len(drawn) == 3
