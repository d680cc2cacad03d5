"""The crawls of a module, side by side: most of their time is waiting."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Crawls at a time.
_WORKERS = 4


@pytest.fixture(scope="module")
def crawls(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Any]]:
    """What each of the module's ``CRAWLS``, all begun at once, came to: ``crawls("name")``."""
    pool = ThreadPoolExecutor(_WORKERS)
    begun = {
        name: pool.submit(begin, tmp_path_factory.mktemp("crawl"))
        for name, begin in request.module.CRAWLS.items()
    }
    yield lambda name: begun[name].result()
    pool.shutdown(cancel_futures=True)
