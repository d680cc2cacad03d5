"""R8, R11: which sources the processes on one machine are requesting."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.state.machine import UnderWay

if TYPE_CHECKING:
    from pathlib import Path

OTHER = """
import sys
from pathlib import Path
from scrapy_walsh.state.machine import UnderWay
locks = UnderWay(Path(sys.argv[1]))
print([locks.take(key) for key in sys.argv[2:]], flush=True)
sys.stdin.readline()
"""


def other(directory: Path, *keys: str) -> subprocess.Popen[str]:
    """Another process that tries to take *keys*, and holds what it gets until it is ended."""
    command = [sys.executable, "-c", OTHER, str(directory), *keys]
    return subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_r8_one_process_at_a_time_and_none_after_its_end(tmp_path: Path) -> None:
    locks = UnderWay(tmp_path)
    assert locks.take("http://a.test/")
    assert locks.take("http://a.test/")
    with other(tmp_path, "http://a.test/", "http://b.test/") as process:
        assert said(process) == "[False, True]"
        assert not locks.take("http://b.test/")
        locks.drop("http://a.test/")
        with other(tmp_path, "http://a.test/") as third:
            assert said(third) == "[True]"
            third.kill()
        process.kill()
    assert locks.take("http://b.test/")
    assert locks.take("http://a.test/")
    locks.close()
    with other(tmp_path, "http://a.test/") as last:
        assert said(last) == "[True]"
        last.kill()


@pytest.mark.parametrize("directory", [None, "missing"])
def test_where_nothing_can_be_locked_every_source_is_free(
    tmp_path: Path, directory: str | None
) -> None:
    locks = UnderWay(None if directory is None else tmp_path / directory)
    assert locks.take("http://a.test/")
    locks.drop("http://a.test/")
    locks.close()
