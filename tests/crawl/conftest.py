"""A sandbox and a project for each test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.proof.sandbox import Sandbox, Site
from tests.crawl.harness import LIST_SPIDER, Crawl, crawl, make_project

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def box() -> Iterator[Sandbox]:
    """The default sites; a test adds its own with ``box.put``."""
    with Sandbox() as running:
        yield running


@pytest.fixture
def run(box: Sandbox, tmp_path: Path) -> Callable[..., Crawl]:
    """Make a project and crawl with it: ``run("http://h.test/", sites=[...], settings={...})``."""

    def _run(
        *urls: str,
        sites: tuple[Site, ...] = (),
        spider: str = LIST_SPIDER,
        settings: dict[str, Any] | None = None,
        **options: Any,
    ) -> Crawl:
        for site in sites:
            box.put(site)
        project = make_project(tmp_path / "project", spider, settings)
        return crawl(project, box, *urls, **options)

    return _run
