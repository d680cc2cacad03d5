from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.state.store import MemoryStore, SqliteStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scrapy_walsh.state.store import Store


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[sqlite3.Connection]:
    """What stores open from now on, the last one last: to fill its disk, or to listen."""
    opened: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def remembered(*arguments: Any, **options: Any) -> sqlite3.Connection:
        opened.append(connect(*arguments, **options))
        return opened[-1]

    monkeypatch.setattr(sqlite3, "connect", remembered)
    return opened


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    found = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "state")
    yield found
    found.close()
