"""R3's list on its way into a crawl and into the store: read, validated, kept, and read again.

All of it is done in threads, since it may take seconds with a list of a million domains (D3): to
parse and to look at each entry, to write it to the disk, and to read it from there. Python code
lets go of the interpreter lock every 5 ms, and file, hash and SQLite while they work.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from scrapy_walsh.adapters import compat
from scrapy_walsh.adapters.documents.validate import text_of, validate
from scrapy_walsh.adapters.outcomes import Closing
from scrapy_walsh.exceptions import OwnFault
from scrapy_walsh.policy.list import schema
from scrapy_walsh.policy.list.blocklist import is_inline
from scrapy_walsh.state.records import BLOCKLIST, SCHEMA, StoredDocument

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from scrapy_walsh.adapters.context import Context
    from scrapy_walsh.policy.list.blocklist import Blocklist
    from scrapy_walsh.state.store import Store

#: Seconds that the validator may take (D3), and more for each MiB: a million entries need some.
_VALIDATION_TIMEOUT: Final = 5.0
_VALIDATION_PER_MIB: Final = 1.0
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Found:
    """A list, and the record of the document it was read from, with its text."""

    blocklist: Blocklist
    document: StoredDocument

    @property
    def record(self) -> StoredDocument:
        """The record without the text, which would take memory for the rest of the crawl."""
        return replace(self.document, body=b"")


class ListStore:
    """Where the list of one crawl is kept, in the store and for the ledger."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._url = context.config.blocklist_url
        self._end_child: Callable[[], None] | None = None

    def close(self) -> None:
        """End the child process that is at work, if any."""
        if self._end_child is not None:
            self._end_child()

    # -- a list that comes ----------------------------------------------------------------

    async def validated(
        self,
        document: StoredDocument,
        standalone_schema: Callable[[], Awaitable[dict[str, Any] | None]],
    ) -> Found:
        """The list in *document*. Raises DocumentInvalid; OwnFault where nobody can validate it.

        *standalone_schema*: brings the schema beside it, for a list that has none (R10).
        """
        body = document.body
        time = _VALIDATION_TIMEOUT + _VALIDATION_PER_MIB * (len(body) // 2**20)
        found = await compat.run_in_thread(lambda: schema.read_document(body))
        standalone = None if is_inline(found) else await standalone_schema()
        try:
            # In a thread also where it is short: the first list imports jsonschema (60 ms).
            await compat.run_in_thread(
                lambda: validate(found, body, standalone, time, self._started)
            )
        except OwnFault:
            if compat.closing(self._context.crawler):  # we have ended the child
                raise Closing from None
            raise
        adopted = await compat.run_in_thread(lambda: schema.blocklist_in(found, body, self._url))
        return Found(adopted, replace(document, refresh=adopted.refresh))

    def _started(self, end: Callable[[], None]) -> None:
        self._end_child = end

    # -- the list that is kept ------------------------------------------------------------

    async def put(self, found: Found) -> None:
        """Keep *found* for later runs."""
        await self._write(lambda store: store.put(found.document))

    async def confirm(self, record: StoredDocument) -> None:
        """Keep the list that is there as fetched when *record* says (304)."""

        def renew(store: Store) -> None:
            kept = store.get(StoredDocument, BLOCKLIST, self._url)
            # Another one must not pass for fresh: the disk may have refused to keep ours.
            if kept is not None and replace(kept, body=b"", fetched_at=record.fetched_at) == record:
                store.put(replace(kept, fetched_at=record.fetched_at))

        await self._write(renew)

    async def stored(self, not_before: float) -> Found | None:
        """The list that is kept, fetched at *not_before* (Unix seconds) or later.

        Raises DocumentInvalid or StateError where there is one, or may be, and it cannot be read.
        What was adopted was validated, and what is read is what was adopted (its checksum): so
        the floor checks alone are made again, and no child decides whether it is in force.
        """
        kept = await self._apart(lambda store: store.get(StoredDocument, BLOCKLIST, self._url))
        if kept is None or (kept.body and kept.fetched_at < not_before):
            return None
        body = text_of(kept)
        found = await compat.run_in_thread(lambda: schema.reread_blocklist(body, self._url))
        return Found(found, kept)

    async def _write(self, write: Callable[[Store], None]) -> None:
        try:
            await self._apart(write)
        except OwnFault as error:
            self._context.recorder.own_fault(str(error))

    async def _apart(self, work: Callable[[Store], _T]) -> _T:
        """Do *work* in a thread, over a connection of its own. Raises StateError."""
        context = self._context
        if context.config.state_dir is None and context.config.shared_state is None:
            return work(context.store)  # this process's memory

        def opened() -> _T:
            store = context.open_store()
            try:
                return work(store)
            finally:
                store.close()
                context.store.notices += store.notices  # told at the end of the crawl

        return await compat.run_in_thread(opened)

    # -- the ledger -----------------------------------------------------------------------

    async def keep_for_ledger(self, found: Found) -> bytes | None:
        """Keep what *found* was read from, and the standalone schema that it was validated with.

        Returns that schema, None where the list brought its own, or none is kept.
        """
        context, body, digest = self._context, found.document.body, found.blocklist.digest or ""
        url = None if found.blocklist.inline else context.config.schema_url
        stored = None if url is None else context.store.get(StoredDocument, SCHEMA, url)
        standalone = None if stored is None else stored.body
        await compat.run_in_thread(lambda: context.recorder.keep(BLOCKLIST, body, digest))
        if standalone:
            context.recorder.keep(SCHEMA, standalone, hashlib.sha256(standalone).hexdigest())
        return standalone
