from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.state.store import MemoryStore, SqliteStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scrapy_walsh.state.store import Store


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    found = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "state")
    yield found
    found.close()
