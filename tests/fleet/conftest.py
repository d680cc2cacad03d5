"""A Redis and a sandbox for each test."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.crawl.conftest import box
from tests.fleet.fleet import BINARY, Server

if TYPE_CHECKING:
    from collections.abc import Iterator


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without the program there is nothing to test against; CI installs it."""
    if BINARY is not None:
        return
    skip = pytest.mark.skip(reason="no redis-server here: apt-get install redis-server")
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(skip)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A Redis that keeps nothing on disk."""
    running = Server(tmp_path)
    running.start()
    yield running
    running.kill()


__all__ = ["box"]
