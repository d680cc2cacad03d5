"""Writes the data beside this file, with the version of the package that it is run with.

    .venv/bin/python -m tests.upgrade.make_data tests/upgrade/data

The clock of each crawl of the sandbox is moved, so that three days pass within two minutes.
"""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy_walsh.proof.sandbox import Sandbox, requests
from scrapy_walsh.state.machine import OWNER
from tests.crawl.harness import begin, crawl, move_clocks, state_dir
from tests.upgrade import world
from tests.upgrade.world import BEGINNING, DAILY, DAY, HOUR

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: In place of the word for this start of this machine: no test's machine has the same.
OTHER_BOOT = "00000000-0000-4000-8000-000000000000"
#: Octets from which a file is kept compressed.
LARGE = 24 * 1024
SOURCES = f'[[source]]\nname = "feed"\nurl = "http://feed.test/"\nfeed = "{world.FEED}"\n'


def main() -> None:
    target = Path(sys.argv[1]).absolute()
    shutil.rmtree(target, ignore_errors=True)
    with tempfile.TemporaryDirectory() as directory:
        for name, make in (("days", days),):
            folder = target / name
            folder.mkdir(parents=True)
            keep(make(Path(directory) / name), folder)


def days(directory: Path) -> Path:
    """Three days of a daily job, and what else happens in them."""
    project = world.with_clocks(directory)
    (project / "sources.toml").write_text(SOURCES)
    with served() as box:

        def run(at: float, *urls: str, arguments: tuple[str, ...] = ()) -> None:
            move_clocks(project, at - time.time())
            done = crawl(project, box, *urls, arguments=arguments)
            assert done.returncode == 0, done.output
            assert "Traceback" not in done.output, done.output

        run(BEGINNING, *DAILY)
        run(BEGINNING + 3 * HOUR, *DAILY)  # slow.test's second page is due, R8 refuses the others
        run(BEGINNING + DAY + 300, *DAILY)
        run(BEGINNING + 2 * DAY + 600, *DAILY)
        run(BEGINNING + 2 * DAY + 900, world.AGAIN, arguments=("-a", "again=1"))
        reason = ("-s", f"WALSH_REVISIT_REASON={world.REASON}")
        run(BEGINNING + 2 * DAY + 1050, world.BARE, arguments=reason)
        move_clocks(project, BEGINNING + 2 * DAY + 1200 - time.time())
        done = crawl(
            project, box, spider_name="walsh_metadata",
            arguments=("-a", "sources=sources.toml"),
        )  # fmt: skip
        assert len(done.items) == 2, done.output
        move_clocks(project, world.LAST_RUN - time.time())
        killed(project, box, [world.FAILING], lambda: asked(box, "failing.test") >= 2)
    # What a killed process left open goes into the file, as after any later look at it.
    subprocess.run(
        [sys.executable, "-m", "scrapy_walsh", "state", "show", "--dir", state_dir(project)],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    return state_dir(project)


@contextmanager
def served() -> Iterator[Sandbox]:
    with Sandbox() as box:
        for each in world.sites():
            box.put(each)
        yield box


def asked(box: Sandbox, host: str) -> int:
    return sum(each.completed is not None for each in requests(box.log, host))


def wait(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert process.poll() is None, "the crawl has ended"
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.02)


def killed(project: Path, box: Sandbox, urls: list[str], condition: Callable[[], bool]) -> None:
    """A crawl of *urls* that is killed (SIGKILL) as soon as *condition* holds."""
    box.clear()
    words = ("scrapy", "crawl", "probe", "-a", f"urls={' '.join(urls)}")
    for name, value in (("BACKOFF_BASE", 30), ("BACKOFF_CAP", 60), ("MAX_RETRIES", 3)):
        words = (*words, "-s", f"WALSH_{name}={value}")
    process = begin(project, box, *words, output=subprocess.DEVNULL)
    wait(condition, process)
    time.sleep(0.5)
    process.kill()
    process.wait()


def keep(state: Path, folder: Path) -> None:
    """Copy the files of *state*, large ones compressed, and without this machine's own word."""
    for file in sorted(each for each in state.rglob("*") if each.is_file()):
        if file.name == OWNER:
            continue
        kept = folder / file.relative_to(state)
        kept.parent.mkdir(parents=True, exist_ok=True)
        content = file.read_bytes()
        if file.name == "clock.json":
            content = json.dumps({**json.loads(content), "boot": OTHER_BOOT}).encode()
        if len(content) < LARGE:
            kept.write_bytes(content)
        else:
            kept.with_name(f"{kept.name}.gz").write_bytes(gzip.compress(content, 9, mtime=0))


if __name__ == "__main__":
    main()
