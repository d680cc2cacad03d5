"""A sandbox and a project for each test, as those of tests/crawl have them."""

from __future__ import annotations

from tests.crawl.conftest import box, run

__all__ = ["box", "run"]
