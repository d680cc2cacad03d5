"""The line that says how far a crawl is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.crawl.harness import Crawl, crawl, make_project, site

if TYPE_CHECKING:
    from pathlib import Path

    from scrapy_walsh.proof.sandbox import Sandbox

pytestmark = pytest.mark.crawl

LINE = re.compile(
    r"INFO: (\d+) sources done, (\d+) left; hosts: (\d+) due, (\d+) waiting; "
    r"end (not known yet|in about .+)$",
    re.MULTILINE,
)


def ran(box: Sandbox, folder: Path, *arguments: str) -> tuple[Crawl, list[tuple[str, ...]]]:
    """A crawl of three sources, two of them of a host with a Crawl-delay; what was said of it."""
    box.put(site("slow.test", robots="User-agent: *\nCrawl-delay: 3\n"))
    box.put(site("quick.test"))
    urls = ("http://slow.test/1", "http://slow.test/2", "http://quick.test/1")
    run = crawl(make_project(folder / "project"), box, *urls, arguments=arguments)
    assert len(run.items) == 3
    return run, LINE.findall(run.output)


def test_a_line_says_what_is_done_and_left_and_about_when_it_ends(
    box: Sandbox, tmp_path: Path
) -> None:
    _, said = ran(box, tmp_path, "-s", "LOGSTATS_INTERVAL=0.5")
    assert len(said) >= 3
    assert {int(done) + int(left) for done, left, *_ in said} == {3}
    done, left, due, waiting, end = said[-1]
    assert (done, left, due, waiting) == ("2", "1", "0", "1")
    assert end.startswith("in about ")


@pytest.mark.parametrize("interval", ["0", "60"])
def test_it_is_said_as_often_as_scrapys_own_line(
    box: Sandbox, tmp_path: Path, interval: str
) -> None:
    assert ran(box, tmp_path, "-s", f"LOGSTATS_INTERVAL={interval}")[1] == []
