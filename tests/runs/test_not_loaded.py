"""A project that uses our spider or settings, but not the add-on, is refused at its start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.proof.sandbox import Sandbox
from tests.crawl.harness import LIST_SPIDER, crawl, make_project, site

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("spider", ["walsh_metadata", "probe"])
def test_a_crawl_without_the_addon_is_refused_at_the_start(tmp_path: Path, spider: str) -> None:
    project = make_project(tmp_path / "project", LIST_SPIDER)
    with Sandbox() as box:
        box.put(site("page.test"))
        run = crawl(
            project, box, spider_name=spider,
            arguments=("-a", "urls=http://page.test/", "-s", "ADDONS={}",
                       *(("-s", "SPIDER_MODULES=scrapy_walsh.spiders") * (spider != "probe"))),
        )  # fmt: skip
    assert run.log == []
    assert run.returncode == 1
    assert "Traceback" not in run.output
    assert len(run.lines("ADDONS")) == 1
