"""A system without file locks, such as Windows: one process works, a second one is refused."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.exceptions import StateError
from scrapy_walsh.proof.sandbox import Sandbox
from scrapy_walsh.state import machine, open_store
from tests import zygote
from tests.crawl.harness import LIST_SPIDER, crawl, make_project, run_scrapy, site, state_dir

if TYPE_CHECKING:
    from collections.abc import Iterator

#: What a process without fcntl does with the directory that it is given, until it is told to end.
OTHER = """
import sys
from pathlib import Path
from scrapy_walsh.state import machine
machine.fcntl = None
machine.enter(Path(sys.argv[1]))
print("entered", flush=True)
sys.stdin.read()
"""
#: Python imports this module first: fcntl is missing, for this package alone.
SITECUSTOMIZE = """
import builtins

found = builtins.__import__

def missing(name, globals=None, *rest, **named):
    if name == "fcntl" and str((globals or {}).get("__name__", "")).startswith("scrapy_walsh"):
        raise ImportError("No module named 'fcntl'")
    return found(name, globals, *rest, **named)

builtins.__import__ = missing
"""

ROOT = Path(__file__).parents[2]


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "fcntl", None)


@pytest.fixture
def other(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process, which is using the directory."""
    process = subprocess.Popen(
        [sys.executable, "-c", OTHER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "entered\n"
    yield process
    process.kill()
    process.communicate()


@pytest.mark.usefixtures("no_locks")
def test_own_a_second_process_is_refused(other: subprocess.Popen[str], tmp_path: Path) -> None:
    with pytest.raises(StateError) as refusal:
        machine.enter(tmp_path)
    line = str(refusal.value)
    assert line.startswith(f"{tmp_path} is in use by another process")
    shown = " ".join((ROOT / "docs/compatibility.md").read_text().split())
    assert line.removeprefix(str(tmp_path)) in shown
    assert "\n" not in line
    assert "WALSH_STATE_DIR" in line
    other.kill()  # the system drops the lock, however the process ends
    other.wait()
    machine.enter(tmp_path)


@pytest.mark.usefixtures("no_locks")
def test_own_crawls_of_one_process_share_the_directory(tmp_path: Path) -> None:
    def can_enter() -> bool:
        done = subprocess.run(
            [sys.executable, "-c", OTHER, str(tmp_path)],
            input="",
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode == 0

    machine.enter(tmp_path)
    machine.enter(tmp_path)
    open_store(tmp_path).close()  # the store's own locks are other ones
    assert not can_enter()


@pytest.mark.usefixtures("other")
def test_own_with_locks_processes_share_the_directory(tmp_path: Path) -> None:
    if machine.fcntl is None:
        pytest.skip("this system has none")
    machine.enter(tmp_path)


@pytest.mark.usefixtures("no_locks")
def test_own_what_cannot_be_locked_is_refused_too(tmp_path: Path) -> None:
    (tmp_path / machine.ALONE).mkdir()
    with pytest.raises(StateError, match="cannot be locked"):
        machine.enter(tmp_path)


@pytest.mark.crawl
def test_own_without_fcntl_one_crawl_works_and_a_second_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(zygote.BROKEN, "1")  # the package is imported anew, without fcntl
    project = make_project(tmp_path / "project", LIST_SPIDER)
    (project / "sitecustomize.py").write_text(textwrap.dedent(SITECUSTOMIZE))
    with Sandbox() as box:
        box.put(site("h.test"))
        done = crawl(project, box, "http://h.test/a")
        assert done.fetched("http://h.test/a"), done.output
        again = crawl(project, box, "http://h.test/b")
        assert again.asked("h.test") == ["/b"]  # its robots.txt is cached: what is kept is used
        with subprocess.Popen(
            [sys.executable, "-c", OTHER, str(state_dir(project))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as using:
            assert using.stdout is not None
            assert using.stdout.readline() == "entered\n"
            box.clear()
            refused = run_scrapy(project, box, "crawl", "probe", "-a", "urls=http://h.test/c")
            using.kill()
    assert refused.returncode == 1
    said = [line for line in refused.stdout.splitlines() if "is in use by another" in line]
    assert len(said) == 1
    assert "Traceback" not in refused.stdout
    assert box.log == []
