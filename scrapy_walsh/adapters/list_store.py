"""R3's list on its way into a crawl and into the store: read, validated, kept, and read again.

Whatever takes long for a list of a million domains is done in a child process or in a thread, or in
steps between which the event loop goes on (D3). Lists from ``LARGE`` octets on are validated and
kept by a child alone (``bulk``): the crawl gets their domains, and never has their body stored.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from scrapy_walsh.adapters import bulk, compat, validate
from scrapy_walsh.adapters.events import logger
from scrapy_walsh.exceptions import DocumentInvalid
from scrapy_walsh.ledger.documents import DOCUMENTS
from scrapy_walsh.policy import schema
from scrapy_walsh.policy.blocklist import Blocklist, BlocklistBuilder
from scrapy_walsh.state.files import COPY, LARGE, SECOND
from scrapy_walsh.state.records import BLOCKLIST, SCHEMA, StoredDocument

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scrapy_walsh.adapters.context import Context
    from scrapy_walsh.state.records import Store

#: Octets that are searched in one step.
_STEP: Final = 4 * 1024 * 1024
#: Domains that are put into a list in one step.
_DOMAINS: Final = 2_000
#: Seconds that the validator may take (D3), and more for each MiB: a million entries need some.
_VALIDATION_TIMEOUT: Final = 5.0
_VALIDATION_PER_MIB: Final = 1.0
_Answer = TypeVar("_Answer", validate.Output, "validate.Output | None")


@dataclass(frozen=True, slots=True)
class Found:
    """A list, and the record of the document it was read from.

    The record is without its body where a child has kept that, for the ledger as well.
    ``inline``: the document brings its schema.
    """

    blocklist: Blocklist
    document: StoredDocument
    inline: bool


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
        self, document: StoredDocument, standalone: dict[str, Any] | None, *, inline: bool
    ) -> Found:
        """The list in *document*; a large one is kept then. Raises DocumentInvalid.

        *standalone*: the schema beside it, for a list that brings none (R10).
        """
        body, place = document.body, self._place()
        if place is None or len(body) < LARGE:
            adopted = await self._parsed(body, standalone)
            return Found(adopted, replace(document, refresh=adopted.refresh), inline)
        time = _time(len(body))
        output = await self._in_child(
            lambda: bulk.keep(place, document, standalone, time, self._started)
        )
        adopted = await _built(output)
        document = replace(document, body=b"", refresh=adopted.refresh)
        return Found(adopted, document, output.head["inline"])

    async def _parsed(self, body: bytes, standalone: dict[str, Any] | None) -> Blocklist:
        """The list in *body*: here when that is sure to be quick, else in a child process (D3)."""
        if schema.is_tame(body, standalone):
            # In a thread, because the first list imports jsonschema, which takes 60 ms.
            return await compat.run_in_thread(
                lambda: schema.parse_blocklist(body, standalone, self._url)
            )
        time = _time(len(body))
        return await _built(
            await compat.run_in_thread(
                lambda: validate.validate_in_child(body, standalone, self._url, time, self._started)
            )
        )

    def put(self, document: StoredDocument) -> None:
        """Keep *document* for later runs, where no child has done so."""
        if document.body:
            self._context.remember(lambda: self._context.store.put(document))

    async def confirm(self, document: StoredDocument) -> None:
        """Keep the list that is there as fetched when *document* says (304)."""
        place = self._place()
        if document.body or place is None:
            self._context.remember(lambda: self._context.store.put(document))
            return
        try:
            await self._in_child(
                lambda: bulk.renew(place, document.fetched_at, _time(), self._started)
            )
        except DocumentInvalid as error:  # no child could be started
            logger.error("%s", error)

    # -- the list that is kept ------------------------------------------------------------

    async def stored(self, not_before: float) -> Found | None:
        """The list that is kept, fetched at *not_before* (Unix seconds) or later.

        Raises DocumentInvalid or StateError where there is one, or may be, and it cannot be read.
        What was adopted was validated, and what is read is what was adopted (its checksum): so
        the floor checks alone are made again, and no child decides whether it is in force.
        """
        config, place = self._context.config, self._place()
        directory = config.state_dir
        size = 0 if directory is None else max(_size(directory / name) for name in (COPY, SECOND))
        if place is not None and size >= LARGE:
            try:
                return await self._found_in_child(place, not_before, size)
            except validate.NoAnswer as error:
                logger.warning("the stored blocklist is read in the crawl's process: %s", error)
        elif config.shared_state is None:
            return await self._reread(self._find(self._context.store), not_before)
        return await self._reread(await compat.run_in_thread(self._find_apart), not_before)

    def _find(self, store: Store) -> StoredDocument | None:
        return store.get(StoredDocument, BLOCKLIST, self._url)

    async def _reread(self, stored: StoredDocument | None, not_before: float) -> Found | None:
        """The list in *stored*, made step by step, if it was fetched at *not_before* or later."""
        if stored is None or (stored.body and stored.fetched_at < not_before):
            return None
        body = bulk.require_text(stored).body
        parsed = await compat.run_in_thread(lambda: schema.reread(body))
        facts = schema.facts_of(parsed, self._url)
        builder = BlocklistBuilder(facts, len(parsed.domains), validate.zeroed_memory)
        for start in range(0, len(parsed.domains), _DOMAINS):
            builder.add(parsed.domains[start : start + _DOMAINS])
            await compat.sleep(0)
        if len(body) >= LARGE:  # as a child leaves it
            await self._keep_for_ledger(BLOCKLIST, body)
            stored = replace(stored, body=b"")
        return Found(builder.build(), stored, parsed.inline)

    def _find_apart(self) -> StoredDocument | None:
        """As :meth:`_find`, for a thread: over a connection of its own. StateError."""
        store = self._context.open_store()
        try:
            return self._find(store)
        finally:
            self._context.store.notices += store.notices  # told at the end of the crawl
            store.close()

    async def _found_in_child(
        self, place: bulk.Place, not_before: float, size: int
    ) -> Found | None:
        time = _time(size)
        output = await self._in_child(lambda: bulk.take_up(place, not_before, time, self._started))
        if output is None:
            return None
        document = StoredDocument(body=b"", **output.head["record"])
        return Found(await _built(output), document, output.head["inline"])

    # -- the ledger -----------------------------------------------------------------------

    async def keep_for_ledger(self, found: Found) -> bytes | None:
        """Keep what *found* was read from, and the standalone schema that it was validated with.

        Returns that schema, None where the list brought its own, or none is kept.
        """
        url = None if found.inline else self._context.config.schema_url
        stored = None if url is None else self._context.store.get(StoredDocument, SCHEMA, url)
        standalone = None if stored is None else stored.body
        for name, octets in ((BLOCKLIST, found.document.body), (SCHEMA, standalone)):
            if octets:
                await self._keep_for_ledger(name, octets)
        return standalone

    async def _keep_for_ledger(self, kind: str, body: bytes) -> None:
        def keep() -> None:
            self._context.recorder.keep(kind, body, hashlib.sha256(body).hexdigest())

        if len(body) < LARGE:
            keep()
        else:
            await compat.run_in_thread(keep)

    # -- the child ------------------------------------------------------------------------

    def _place(self) -> bulk.Place | None:
        """Where a child can find what is kept; None where that is this process's memory."""
        config, ledger = self._context.config, self._context.recorder.ledger
        directory, shared = config.state_dir, config.shared_state
        if directory is None and shared is None:
            return None
        return bulk.Place(
            self._url,
            None if directory is None else str(directory.absolute()),
            shared,
            config.identity.token,
            None if ledger is None else str((ledger.directory / DOCUMENTS).absolute()),
            0 if ledger is None else ledger.file,
        )

    async def _in_child(self, ask: Callable[[], _Answer]) -> _Answer:
        output = await compat.run_in_thread(ask)
        for error in () if output is None else output.tail["errors"]:
            logger.error("%s", error)
        return output

    def _started(self, end: Callable[[], None]) -> None:
        self._end_child = end


async def has_schema(body: bytes) -> bool:
    """Whether a list brings its schema: read where that is quick, else looked for (R10.1)."""
    if len(body) < LARGE:
        return not schema.needs_standalone_schema(body)
    member = b'"schema"'
    if body.find(member, len(body) - LARGE) >= 0:
        return True
    for start in range(0, len(body), _STEP):
        if body.find(member, start, start + _STEP + len(member)) >= 0:
            return True
        await compat.sleep(0)
    return False


async def _built(output: validate.Output) -> Blocklist:
    """The list of a child's *output*, made step by step."""
    builder = validate.builder_of(output)
    for domains in validate.blocklist_chunks(output):
        builder.add(domains)
        await compat.sleep(0)
    return builder.build()


def _time(octets: int = 0) -> float:
    """Seconds that the child may take over a list of that length."""
    return _VALIDATION_TIMEOUT + _VALIDATION_PER_MIB * (octets // 2**20)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
