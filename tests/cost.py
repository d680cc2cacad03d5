"""``pytest --cost``: the processor seconds that tests took, what they started included.

By test (the dearest ones), by file and by folder. What several tests share is told of the first.

What is reaped by nobody here (an orphan, a server of another session) is not counted.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

_TICKS: Final = os.sysconf("SC_CLK_TCK")
#: What no test took: imports, collection, fixtures of a session.
ELSEWHERE: Final = "(collection)"
#: How many tests are shown.
DEAREST: Final = 60


def spent(process: int) -> float:
    """Seconds of *process* and of all below it, those that it has reaped included."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
        threads = list(Path(f"/proc/{process}/task").iterdir())
        below = " ".join((each / "children").read_text() for each in threads).split()
    except OSError:  # it has ended, and its parent counts it
        return 0.0
    own = sum(map(int, stat.rpartition(")")[2].split()[11:15])) / _TICKS
    return own + sum(spent(int(each)) for each in below)


class Cost:
    """Adds up what the tests of a process, or of pytest-xdist's workers, took."""

    def __init__(self) -> None:
        self._before = 0.0
        self._files: Counter[str] = Counter()
        self._tests: Counter[str] = Counter()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Any:
        """A report carries what its phase took."""
        report = yield
        now = spent(os.getpid())
        report.cost, self._before = now - self._before, now
        return report

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Of every worker, in the process that has them."""
        self._files[report.nodeid.partition("::")[0]] += report.cost
        self._tests[report.nodeid] += report.cost

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._before = spent(os.getpid())
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["cost"] = self._before
        else:
            self._files[ELSEWHERE] += self._before

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._files[ELSEWHERE] += node.workeroutput.get("cost", 0.0)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        folders: Counter[str] = Counter()
        for name, seconds in self._files.items():
            folders[name.rpartition("/")[0] or name] += seconds
        tables = {"test": self._tests, "file": self._files, "folder": folders}
        for title, table in tables.items():
            terminalreporter.section(f"processor seconds by {title}")
            for name, seconds in table.most_common(DEAREST if title == "test" else None):
                terminalreporter.line(f"{seconds:8.2f}  {name}")
        terminalreporter.line(f"{folders.total():8.2f}  in all")
