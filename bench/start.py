"""The processor time of starting: a crawl of an empty spider, and commands that read files.

Run: ``python bench/start.py [--json FILE] [--quick] [--rounds N]``.

User and system time of each whole process, in turns; the least of the rounds, since another process
can only lengthen it. ``ratio``: of a crawl with the add-on to one without, and of ``walsh check``
with a robots.txt and a blocklist on disk, outside a project, to ``scrapy version``, which does
nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])  # bench/queue.py is not Python's queue

from bench.report import Row, show, write  # noqa: E402

SETTINGS = """
SPIDER_MODULES = ["spiders"]
LOG_LEVEL = "ERROR"
"""
OURS = """
ADDONS = {"scrapy_walsh.Addon": 500}
WALSH_IDENTITY = {
    "product": "ExampleBot/1.0",
    "policy_url": "http://operator.test/bot",
    "blocklist_url": "http://operator.test/blocklist.json",
}
"""
SPIDER = """
import scrapy

class Empty(scrapy.Spider):
    name = "empty"

    async def start(self):
        return
        yield
"""
LIST = {
    "contract": "walsh-research-blocklist/v1",
    "schema": {"type": "object"},
    "refresh": "PT6H",
    "blocked": [{"domain": "blocked.test"}],
}
CHECK = (
    *("-m", "scrapy_walsh", "check", "http://a.test/x", "--token", "ExampleBot"),
    *("--robots", "robots.txt", "--blocklist", "blocklist.json"),
)
#: By row: the words of the command, its settings, and the row that it is compared with.
COMMANDS: dict[str, tuple[tuple[str, ...], str, str]] = {
    "scrapy crawl, stock": (("-m", "scrapy", "crawl", "empty"), "stock", ""),
    "scrapy crawl, ours": (("-m", "scrapy", "crawl", "empty"), "ours", "scrapy crawl, stock"),
    "scrapy version": (("-m", "scrapy", "version"), "stock", ""),
    "walsh check": (CHECK, "files", "scrapy version"),
}
COLUMNS = {"command": "<20", "cpu s": ">6.2f", "ratio": ">6.2f"}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the rows to this file as well")
    parser.add_argument("--quick", action="store_true", help="one round, to see that it works")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    found: dict[str, list[float]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory() as folder:
        make_projects(Path(folder))
        for _ in range(1 if options.quick else options.rounds):
            for name, (words, project, _) in COMMANDS.items():
                found[name].append(cpu_of(words, Path(folder, project)))
    least = {name: min(costs) for name, costs in found.items()}
    rows: list[Row] = [
        {"command": name, "cpu s": least[name], "ratio": least[name] / least[against or name]}
        for name, (_, _, against) in COMMANDS.items()
    ]
    write(options.json, benchmark="start", rows=show(rows, COLUMNS))


def make_projects(folder: Path) -> None:
    for name, settings in (("stock", SETTINGS), ("ours", SETTINGS + OURS)):
        project = folder / name
        project.mkdir()
        (project / "scrapy.cfg").write_text("[settings]\ndefault = project_settings\n")
        (project / "project_settings.py").write_text(settings)
        (project / "spiders.py").write_text(SPIDER)
    files = folder / "files"
    files.mkdir()
    (files / "robots.txt").write_text("User-agent: *\nDisallow: /private/\n")
    (files / "blocklist.json").write_text(json.dumps(LIST))


def cpu_of(words: tuple[str, ...], directory: Path) -> float:
    """Seconds of processor time that the command took, from its start to its end."""
    process = subprocess.Popen(
        [sys.executable, *words],
        cwd=directory,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": sys.path[0]},
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, f"{' '.join(words)}: exit code {process.returncode}"
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
