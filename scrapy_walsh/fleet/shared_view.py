"""R11: a fleet's shared records for a command that only reads: nothing is written anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import redis

from scrapy_walsh.exceptions import StoreAway
from scrapy_walsh.fleet.link import BEAT
from scrapy_walsh.fleet.store import SharedStore, supersedes
from scrapy_walsh.state.records import StoredDocument
from scrapy_walsh.state.tables import DEFERRALS, DOCUMENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scrapy_walsh.state.tables import Key, R, Table


class SharedView(SharedStore):
    """A ``SharedStore`` that only reads: the local copy while Redis is away, with a notice."""

    def tend(self) -> float:
        """Ask Redis for its time, and write nothing there."""
        self.link.asked = True
        try:
            seconds, micros = self.link.client.time()
        except redis.RedisError as error:
            self.link.lose(error)
        else:
            self.link.set_time(f"{seconds}.{micros:06}".encode())
        return BEAT

    def ask(self, question: Callable[[], Any]) -> Any:
        """As ``SharedStore.ask``, with a notice where Redis does not answer."""
        try:
            return super().ask(question)
        except StoreAway as error:
            notice = f"{error}; this machine's copy is read instead"
            if notice not in self.notices:
                self.notices.append(notice)
            raise

    def _newest(self, key: Key) -> StoredDocument | None:
        """The later of the shared document and the local one."""
        local, found = self._local.get(StoredDocument, *key), self._found(DOCUMENTS, key)
        return found if found is not None and supersedes(found, local) else local

    def _rows(self, table: Table[R], after: Key | None = None) -> Iterator[R]:
        rows = list(super()._rows(table, after))
        shared = set(self._shared_keys(table)) if table is DEFERRALS else set()
        if table is DEFERRALS and self.link.away is None:  # another worker may have dropped it
            rows = [row for row in rows if table.key_of(row) in shared]
        return iter(rows)

    def _share(self, table: Table[Any], key: Key, record: Any) -> None:
        raise NotImplementedError("a view writes nothing")
