"""The world is crawled twice for all tests of a process: once, and at once again."""

from __future__ import annotations

import pytest

from scrapy_walsh.proof.sandbox import Sandbox
from tests.crawl.conftest import box
from tests.sources.world import World, crawl_world, sites, world_project


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[World, World]:
    """The world crawled, and crawled again at once."""
    project = world_project(tmp_path_factory.mktemp("world") / "project")
    with Sandbox() as running:
        for each in sites():
            running.put(each)
        return crawl_world(project, running), crawl_world(project, running)


@pytest.fixture(scope="session")
def world(runs: tuple[World, World]) -> World:
    """The first run."""
    return runs[0]


__all__ = ["box"]
