"""Where code of this package raises, nothing waits for ever: the crawl ends, with exit code 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.crawl.harness import LIST_SPIDER, site, solo

if TYPE_CHECKING:
    from pathlib import Path

BROKEN = """
from scrapy_walsh.adapters import compat, disk_lines, intake, scheduler_queue, sources
from scrapy_walsh.adapters.wire import pacing
from scrapy_walsh.policy import host

def broken(*args, **kwargs):
    raise RuntimeError("broken on purpose")

{where} = broken
"""
POINTS = [
    "scheduler_queue.MemoryLines.push",
    "scheduler_queue.MemoryLines.pop",
    "scheduler_queue.HostQueue._wake_later",
    "disk_lines.DiskLines.push",
    "disk_lines.DiskLines.pop",
    "pacing.Pacing.reserve",
    "host.Traffic.started",
    "intake.Intake._give_way",
    "sources.Sources.declare",
    "sources.Sources.reached",
    "sources.Sources.taken",
    "compat.wake_engine",  # of a timer, among others
]


@pytest.mark.parametrize("where", POINTS)
def test_what_we_raise_ends_the_crawl(tmp_path: Path, where: str) -> None:
    settings = {"JOBDIR": "job"} if "disk_lines" in where else {}
    spider = BROKEN.format(where=where) + LIST_SPIDER
    urls = [f"http://one.test/{number}" for number in range(3)]
    done = solo(
        tmp_path, *urls, sites=(site("one.test"),), spider=spider, settings=settings, timeout=45
    )
    said = done.lines("ERROR: scrapy_walsh has failed and ends the crawl", "broken on purpose")
    assert (done.returncode, len(said)) == (1, 1), done.output
    assert done.stats["close_reason"] == "walsh_not_well"
