"""The progress line: on a terminal, in one place, and nowhere else."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.proof.sandbox import Route, Sandbox
from tests.crawl.harness import make_project, site
from tests.sources.world import QUICK, entry, feed, rss

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.crawl

ERASE = "\r\x1b[K"
LINE = re.compile(
    r"walsh: (\d+)/(\d+) sources; hosts: (\d+) due, (\d+) waiting, (\d+) deferred; "
    r"([\d,]+) requests?; ([\d,]+) items?; (end (?:not known yet|in about [\d.]+ s))"
)
SITES = (
    site("a.test", feed(rss(entry("a")), delay=1.5)),
    site("later.test", {"*": Route(503, "no", headers={"Retry-After": "90000"})}),
    # What comes last takes longer than one line to the next: each line that a test wants is drawn.
    site(
        "page.test",
        {
            "/": Route(body="<p>", delay=0.5),
            "/llms.txt": Route(404, "no", delay=2.5),
            "*": Route(404, "no"),
        },
    ),
)
URLS = "http://a.test/feed http://later.test/ http://page.test/"
#: A line costs a busy machine so much that the next one would come after the crawl.
EACH_SECOND = """
from scrapy_walsh.adapters import progress
progress._SHARE = 1.0
"""


def on_a_terminal(box: Sandbox, project: Path, *arguments: str) -> tuple[int, str]:
    """``scrapy crawl walsh_metadata`` with a terminal as stderr; exit code and what it showed."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "http_proxy": box.proxy_url, "no_proxy": "", "COLUMNS": "200"}
    path = filter(None, [str(project), os.environ.get("PYTHONPATH")])
    command = ["crawl", "walsh_metadata", "-a", f"urls={URLS}", *arguments]
    with subprocess.Popen(
        [sys.executable, "-m", "scrapy", *command],
        cwd=project,
        env={**environment, "PYTHONPATH": os.pathsep.join(path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    ) as running:
        os.close(theirs)
        shown = b"".join(_read(ours, 60))
        return running.wait(20), shown.decode()


def _read(descriptor: int, seconds: float) -> list[bytes]:
    """What comes until the other end closes."""
    chunks = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not select.select([descriptor], [], [], 0.5)[0]:
            continue
        try:
            chunk = os.read(descriptor, 65536)
        except OSError:  # EIO: the last one has closed the terminal
            break
        if not chunk:
            break
        chunks.append(chunk)
    os.close(descriptor)
    return chunks


def screen(shown: str) -> list[str]:
    """The lines that stay, when each erasure takes away what stood on its line."""
    return [line.rpartition(ERASE)[2] for line in shown.replace("\r\n", "\n").split("\n")]


@pytest.fixture
def project(box: Sandbox, tmp_path: Path) -> Path:
    for each in SITES:
        box.put(each)
    settings = {**QUICK, "SPIDER_MODULES": ["scrapy_walsh.spiders"], "LOG_LEVEL": "INFO"}
    made = make_project(tmp_path / "project", settings=settings)
    with (made / "probe_settings.py").open("a") as file:
        file.write(EACH_SECOND)
    return made


def test_own_one_line_that_is_rewritten_and_gone_at_the_end(box: Sandbox, project: Path) -> None:
    code, shown = on_a_terminal(box, project)
    assert code == 0
    found = LINE.findall(shown)
    assert len(found) >= 3
    done, of, _, _, deferred, requests, items, end = found[-1]
    assert (of, deferred) == ("3", "1")
    assert int(done) >= 1
    assert 4 <= int(requests) <= len(box.log)
    assert int(items) <= 1
    assert end.startswith("end in about")
    drawn = re.findall(r"(.{4})walsh: \d+/", shown, re.DOTALL)
    assert set(drawn) == {ERASE}
    left = screen(shown)
    assert not [line for line in left if LINE.search(line)]
    assert [line for line in left if "INFO: a.test" in line]
    assert left[-1] == ""


def test_own_log_lines_stand_on_lines_of_their_own(box: Sandbox, project: Path) -> None:
    _, shown = on_a_terminal(box, project, "-s", "LOG_LEVEL=DEBUG")
    drawn = LINE.findall(shown)
    erased = re.findall(LINE.pattern + r"\r\x1b\[K", shown)
    assert len(drawn) == len(erased) >= 3


def test_own_a_log_file_has_no_progress(box: Sandbox, project: Path) -> None:
    _, shown = on_a_terminal(box, project, "-s", "LOG_FILE=run.log")
    assert LINE.search(shown)
    assert screen(shown) == [""]
    log = (project / "run.log").read_text()
    assert not LINE.search(log)
    assert "\x1b" not in log


def test_own_held_hosts_are_counted(box: Sandbox, project: Path) -> None:
    """page.test is to be asked for llms.txt, and held meanwhile."""
    box.put(site("page.test", robots="User-agent: *\nCrawl-delay: 4\n"))
    _, shown = on_a_terminal(box, project)
    held = [line for line in LINE.findall(shown) if line[3] == "1"]
    assert held
    assert all(line[-1].startswith("end in about ") for line in held[:1])
