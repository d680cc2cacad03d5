"""R11: the store of a one-off run. Everything in it is gone when the run ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy_walsh.state.base import Store

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scrapy_walsh.state.tables import Key, R, Table


class MemoryStore(Store):
    """A ``Store`` that keeps its records in dictionaries."""

    def __init__(self) -> None:
        super().__init__()
        self._tables: dict[str, dict[Key, Any]] = {}

    def _records(self, table: Table[R]) -> dict[Key, R]:
        return self._tables.setdefault(table.name, {})

    def _get(self, table: Table[R], key: Key) -> R | None:
        return self._records(table).get(key)

    def _put(self, table: Table[R], records: Sequence[R]) -> None:
        self._records(table).update((table.key_of(record), record) for record in records)

    def _delete(self, table: Table[Any], keys: Sequence[Key]) -> None:
        for key in keys:
            self._records(table).pop(key, None)

    def _rows(self, table: Table[R], after: Key | None = None) -> Iterator[R]:
        rows = sorted(self._records(table).items(), key=lambda row: row[0])
        return iter([record for key, record in rows if after is None or key > after])

    def close(self) -> None:
        """Nothing to release."""
