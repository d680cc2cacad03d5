"""Fetches, validates, stores and adopts the operator's blocklist (R3).

``policy/list/operator.py`` decides when to request it, and what follows from each attempt. See its
docstring. ``OperatorList`` makes the requests and carries the decisions out.

A list with a million domains may take seconds to parse, check, write or read (D3). So that is done
in threads. Python code releases the interpreter lock every 5 ms. File access, hashing and SQLite
release it while they work.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from scrapy_walsh.adapters import compat
from scrapy_walsh.adapters.documents import faults
from scrapy_walsh.adapters.documents.fetcher import OPERATOR, Fetched, Fetcher
from scrapy_walsh.adapters.documents.validate import reread, validate
from scrapy_walsh.adapters.events import logger
from scrapy_walsh.adapters.outcomes import Closing, Halted, NotYet, Refused
from scrapy_walsh.exceptions import DocumentInvalid, OwnFault, StoreAway, WalshError
from scrapy_walsh.policy import hosts, validators
from scrapy_walsh.policy.backoff import REDIRECTS, GiveUp, Retry
from scrapy_walsh.policy.event import ADOPTED, TAKEN_UP, Event, EventKind
from scrapy_walsh.policy.freshness import SCHEMA_TTL, is_fresh
from scrapy_walsh.policy.list import operator, schema
from scrapy_walsh.policy.list.blocklist import (
    MAX_OCTETS,
    Blocklist,
    find_lifted,
    is_inline,
    join_lists,
)
from scrapy_walsh.policy.words import plural
from scrapy_walsh.state.records import BLOCKLIST, SCHEMA, StoredDocument

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from scrapy_walsh.adapters.context import Context
    from scrapy_walsh.adapters.wire.pacing import Pacing
    from scrapy_walsh.policy.verdict import Verdict
    from scrapy_walsh.state.store import Store

#: Seconds for the validator (D3), and further seconds for each MiB of the list.
_VALIDATION_TIMEOUT: Final = 5.0
_VALIDATION_PER_MIB: Final = 1.0
#: Seconds between two checks whether the shared store is back.
_AWAY: Final = 0.5
#: The outcome in the record of a list or a schema.
_HELD: Final = "held"
_T = TypeVar("_T")


_MAX_HOPS: Final = 5
#: Seconds between two checks whether the spider is closing.
_CLOSING_CHECK: Final = 0.2
_MAX_LIFTED_LOGGED: Final = 20


class OperatorList:
    """The blocklist of a crawl. ``state``: its current state, for others to read."""

    def __init__(self, context: Context, fetcher: Fetcher, pacing: Pacing) -> None:
        self._context = context
        self._fetcher = fetcher
        self._pacing = pacing
        self._url = context.config.blocklist_url
        self._token = context.config.identity.token.lower()
        #: The record of the list in force, without its text, for conditional requests. None if
        #: there is no list from this URL.
        self._document: StoredDocument | None = None
        self._retry = compat.Timer(lambda: compat.run(self._attempt_in_background()))
        #: Stops the attempts in the background.
        self.close = self._retry.cancel
        self._set_state(operator.State(self._url, context.config.blocklist_unreachable))

    def current(self) -> Blocklist | Verdict | None:
        """Return the list in force, or a verdict instead; None if :meth:`bring` is needed first."""
        in_force = self._in_force
        if in_force.since <= self._context.wall() < in_force.until:
            return in_force.answer
        return None

    def answered(self) -> None:
        """Let no target pass until the answer of the operator's server was read."""
        self._set_state(self.state.answered())

    def bring(self) -> Awaitable[None]:
        """Load the stored list, and request it once if it is stale."""
        return self._fetcher.alone(BLOCKLIST, self._bring)

    def _set_state(self, state: operator.State) -> None:
        self.state = state
        # Each request reads this several times, so it is computed once.
        self._in_force = state.in_force()

    async def _bring(self) -> None:
        if not self.state.begun:
            await self._load()
        wait = 0.0 if self.state.is_stale(self._context.wall()) else None
        while wait is not None:
            await _pause(self._context, wait)
            wait = await self._attempt()
        self._set_state(self.state.begin())

    async def _load(self) -> None:
        """Take up the list of an earlier run. It counts, too, as "first-ever" (T7)."""
        try:
            with faults.as_own_fault("the stored blocklist cannot be read"):
                lists = await self._read_stored(0.0)
        except (DocumentInvalid, OwnFault) as error:
            cause = f"the stored blocklist cannot be read ({error})"
            self._set_state(self.state.lose(cause))
            remedy = f"no request is sent until {self._url} can be fetched: check that it answers"
            self._context.recorder.own_fault(f"{cause}: {remedy}, or restore a backup")
            return
        if lists:
            await self._take_up(lists)

    # -- one attempt ----------------------------------------------------------------------

    async def _attempt(self) -> float | None:
        """Try once to fetch the list. Returns the seconds to the next attempt if targets wait."""
        try:
            with faults.as_own_fault("the blocklist could not be applied"):
                # If R5 holds the list's host, the attempt fails without a request.
                traffic = self._pacing.host_of(self._url).traffic
                wait = traffic.wait(self._context.monotonic())
                pause = operator.held_off(wait, traffic.interval)
                if pause is not None:
                    reason = f"its host may not be requested for {pause:.0f} s"
                    return self._record_failure(reason, Retry(pause))
                await self._renew()
        except OwnFault as fault:
            line = f"nothing is requested: could not load the blocklist (our side): {fault}"
            self._context.recorder.own_fault(line, fault.cause or str(fault))
            return self._record_failure(str(fault), None, is_own_fault=True)
        except (DocumentInvalid, Refused, _NotFetched) as error:
            reason = error.verdict.reason if isinstance(error, Refused) else str(error)
            return self._record_failure(
                reason, error.failure if isinstance(error, _NotFetched) else None
            )
        else:
            self._set_state(self.state.succeeded())
            return None
        finally:
            self._set_state(self.state.over())

    async def _renew(self) -> None:
        """Request the list, unless another process has stored a new one meanwhile (R4.6)."""
        context = self._context
        url = self._url
        look = self.state.looks_first
        while not (look and await self._use_stored()):
            look = True
            wait = self._pacing.host_of(url).traffic.wait(context.monotonic())
            if wait <= 0:
                # If lists from other URLs are binding, a 304 cannot lift them; only a 200 can.
                previous = None if self.state.elsewhere else self._document
                try:
                    await self._process_answer(await self._fetch(url, previous))
                except NotYet as error:
                    wait = error.wait
                else:
                    return
            # While another crawl of this process requests it, the wait is not known yet.
            await _pause(context, _CLOSING_CHECK if wait == math.inf else wait)

    async def _use_stored(self) -> bool:
        """Adopt the stored list if it is a later one. Returns whether it is fresh."""
        lists: list[tuple[Blocklist, StoredDocument]] = []
        with contextlib.suppress(DocumentInvalid):
            lists = await self._read_stored(self.state.newer_from)
        if not lists:
            return False
        await self._take_up(lists)
        return not self.state.is_stale(self._context.wall())

    async def _process_answer(self, fetched: Fetched) -> None:
        if fetched.status == 304 and self._document is not None:
            await self._confirm(self._document)
            return
        if len(fetched.body) >= MAX_OCTETS:
            raise DocumentInvalid(f"blocklist is longer than {MAX_OCTETS} octets")
        document = fetched.record(BLOCKLIST, self._url, fetched.body, _HELD, self._context.wall())
        blocklist = await self._validate(document.body)
        document = replace(document, refresh=blocklist.refresh, tokens=self._token)
        await self._adopt([(blocklist, document)], ADOPTED)
        await self._write(lambda store: store.hold_list(document, self._context.wall()))

    async def _validate(self, body: bytes) -> Blocklist:
        """Return the list in *body*. Raises DocumentInvalid, or OwnFault if validation fails."""
        time = _VALIDATION_TIMEOUT + _VALIDATION_PER_MIB * (len(body) // 2**20)
        content = await compat.run_in_thread(lambda: schema.read_document(body))
        standalone = None if is_inline(content) else await self._standalone_schema()
        # A short list is validated in a thread, too, because the first import takes 60 ms.
        try:
            await compat.run_in_thread(lambda: validate(content, body, standalone, time))
        finally:
            # A child that the end of the crawl has stopped is no fault: the next run asks again.
            if compat.closing(self._context.crawler):
                raise Closing
        return await compat.run_in_thread(lambda: schema.blocklist_in(content, body, self._url))

    async def _confirm(self, record: StoredDocument) -> None:
        """Make the list of *record* fresh again: the operator has not changed it (304)."""
        now = self._context.wall()

        def renew(store: Store) -> None:
            stored = store.get(StoredDocument, BLOCKLIST, self._url)
            # The disk may have refused our list. Another list there must not become fresh.
            if (
                stored is not None
                and replace(stored, body=b"", fetched_at=record.fetched_at) == record
            ):
                store.put(replace(stored, fetched_at=now))

        self._document = replace(record, fetched_at=now)
        self._set_state(self.state.confirm(now))
        await self._write(renew)
        if self.state.blocklist is not None:
            self._record_in_force(TAKEN_UP, self.state.blocklist, "304, not modified")

    async def _take_up(self, lists: list[tuple[Blocklist, StoredDocument]]) -> None:
        """Adopt stored *lists*: from this URL and, if they are binding, from others (D39)."""
        await self._adopt(lists, TAKEN_UP)
        for _, document in lists:
            if document.tokens and self._token not in document.tokens.split():
                own_document = replace(document, tokens=self._token)
                await self._write(partial(_hold, own_document))

    async def _adopt(self, lists: list[tuple[Blocklist, StoredDocument]], kind: EventKind) -> None:
        """Put *lists* into force, record that, and store their texts.

        Then log odd entries, and the opt-outs that the operator has lifted.
        """
        previous = self.state.blocklist
        adopted = join_lists([blocklist for blocklist, _ in lists])
        own_document = next((document for _, document in lists if document.key == self._url), None)
        # Drop the text, because it would take memory.
        self._document = None if own_document is None else replace(own_document, body=b"")
        fetched_at = max(document.fetched_at for _, document in lists)
        elsewhere = any(document.key != self._url for _, document in lists)
        self._set_state(self.state.adopt(adopted, fetched_at, elsewhere=elsewhere))
        for blocklist, document in lists:
            await self._record_adoption(blocklist, document, kind)
        if previous is None:
            return
        lifted_domains = await compat.run_in_thread(lambda: find_lifted(previous, adopted))
        if lifted_domains:
            names = ", ".join(sorted(lifted_domains[:_MAX_LIFTED_LOGGED]))
            logger.warning("the operator lifted the opt-out of: %s", names)

    async def _record_adoption(
        self, adopted: Blocklist, document: StoredDocument, kind: EventKind
    ) -> None:
        """Record that *adopted* is in force. Keep its text and its schema for the ledger."""
        context = self._context
        body = document.body
        digest = adopted.digest or ""
        await compat.run_in_thread(lambda: context.recorder.keep(BLOCKLIST, body, digest))
        is_own = document.key == self._url
        schema_digest = None
        schema_url = context.config.schema_url if is_own and not adopted.inline else None
        if schema_url and (record := context.store.get(StoredDocument, SCHEMA, schema_url)):
            schema_digest = hashlib.sha256(record.body).hexdigest()
            context.recorder.keep(SCHEMA, record.body, schema_digest)
        summary = f"blocklist of {plural(len(adopted), 'domain')}, refresh {adopted.refresh:g} s"
        self._record_in_force(kind, adopted, summary, schema_digest)
        for warning in adopted.warnings if kind == ADOPTED else ():
            logger.warning("blocklist: %s", warning)
        if not is_own:
            logger.info(
                "the blocklist of %s stays in force until one is adopted from %s",
                document.key,
                self._url,
            )

    def _record_in_force(
        self, kind: EventKind, adopted: Blocklist, reason: str, schema_digest: str | None = None
    ) -> None:
        """Record that *adopted* is in force.

        *schema_digest*: of the standalone schema, if one was used.
        """
        url = adopted.document or self._url
        event = Event(kind, url, "R3", reason=reason, digest=adopted.digest, schema=schema_digest)
        self._context.recorder.record(event)

    # -- the store ------------------------------------------------------------------------

    async def _read_stored(self, not_before: float) -> list[tuple[Blocklist, StoredDocument]]:
        """Read the stored lists that are binding (D39). The list from this URL comes first.

        Returns an empty list if all were fetched before *not_before* (Unix seconds). Raises
        DocumentInvalid or StateError if there is a list, or may be, and it is unreadable.

        A stored list was validated before it was adopted, and has a checksum. So only the floor
        checks are made again, without a child.
        """
        now = self._context.wall()
        while True:
            try:
                documents = await self._run_in_thread(
                    lambda store: store.binding_lists(self._url, self._token, now)
                )
                break
            except StoreAway:  # nothing is sent meanwhile; ``Pulse`` limits the wait
                await _pause(self._context, _AWAY)
        if all(document.body and document.fetched_at < not_before for document in documents):
            return []
        return await compat.run_in_thread(
            lambda: [(reread(document), document) for document in documents]
        )

    async def _write(self, write: Callable[[Store], None]) -> None:
        try:
            await self._run_in_thread(write)
        except OwnFault as error:
            self._context.recorder.own_fault(str(error))

    async def _run_in_thread(self, work: Callable[[Store], _T]) -> _T:
        """Do *work* in a thread, with its own connection. Raises StateError."""
        context = self._context
        if context.config.state_dir is None and context.config.shared_state is None:
            return work(context.store)  # it is in this process's memory

        def opened() -> _T:
            store = context.open_store()
            try:
                return work(store)
            finally:
                store.close()
                context.store.notices += store.notices  # logged at the end of the crawl

        return await compat.run_in_thread(opened)

    # -- failures -------------------------------------------------------------------------

    def _record_failure(
        self, reason: str, failure: Retry | GiveUp | None, *, is_own_fault: bool = False
    ) -> float | None:
        """Record a failed attempt. Returns the seconds to the next attempt if targets wait."""
        context = self._context
        next_step = self.state.failed(
            reason, failure, context.gates, context.rand(), own_fault=is_own_fault
        )
        context.recorder.record(next_step.event)
        self._set_state(next_step.state)
        if next_step.targets_wait:
            return next_step.delay
        self._retry.set(next_step.delay)
        return None

    async def _attempt_in_background(self) -> None:
        if not compat.closing(self._context.crawler):
            with contextlib.suppress(Closing, Halted):
                await self._fetcher.alone(BLOCKLIST, self._attempt)

    # -- the requests ---------------------------------------------------------------------

    async def _fetch(self, url: str, previous: StoredDocument | None) -> Fetched:
        """Fetch *url*, and follow redirects within its origin.

        Returns the answer 200, or 304 if *previous* is still current.
        """
        conditions = (
            validators.conditional_headers(previous.etag, previous.last_modified)
            if previous
            else {}
        )
        headers = {"Accept": "application/json", **conditions}
        origin = hosts.origin(url)
        attempt = min(self.state.failures, self._context.config.max_retries)
        for hop in range(_MAX_HOPS + 1):
            timeout = self.state.timeout
            fetched = await self._fetcher.fetch(
                url, OPERATOR, headers, timeout=timeout, limit=MAX_OCTETS, attempt=attempt, hops=hop
            )
            if fetched.status == 200 or (fetched.status == 304 and conditions):
                return fetched
            if fetched.status not in REDIRECTS or not fetched.location:
                verb = "gave" if fetched.status is None else "answered"
                raise _NotFetched(f"{url} {verb} {fetched.why}", fetched.failure)
            url = fetched.location
            if not url.startswith(f"{origin}/"):
                raise _NotFetched(f"it redirects to another origin, {url}", None)
        raise _NotFetched(f"more than {_MAX_HOPS} redirects", None)

    async def _standalone_schema(self) -> dict[str, Any] | None:
        """Return the standalone schema (R10). It is cached for seven days.

        If a refresh fails, the cached schema stays.
        """
        url = self._context.config.schema_url
        if url is None:
            return None
        stored = self._context.store.get(StoredDocument, SCHEMA, url)
        if stored is not None and is_fresh(stored.fetched_at, self._context.wall(), SCHEMA_TTL):
            return schema.read_schema(stored.body)
        try:
            fetched = await self._fetch(url, stored)
            body = fetched.body if fetched.status == 200 or stored is None else stored.body
            content = schema.read_schema(body)
        except NotYet as error:
            await _pause(self._context, error.wait)
            return await self._standalone_schema()
        except (_NotFetched, Refused, DocumentInvalid) as error:
            if stored is None:
                raise DocumentInvalid(
                    f"no inline schema, and no other is available: {error}"
                ) from error
            logger.warning("schema not refreshed: %s; the cached one is used (R10)", error)
            return schema.read_schema(stored.body)
        document = fetched.record(SCHEMA, url, body, _HELD, self._context.wall())
        self._context.remember(lambda: self._context.store.put(document))
        return content


def _hold(document: StoredDocument, store: Store) -> None:
    store.hold_list(document)


class _NotFetched(WalshError):
    """There was no usable answer. ``failure``: R5's decision."""

    def __init__(self, reason: str, failure: Retry | GiveUp | None) -> None:
        super().__init__(reason)
        self.failure = failure


async def _pause(context: Context, seconds: float) -> None:
    """Wait for *seconds*. Raises Closing if the spider is closing."""
    end = context.monotonic() + seconds
    while (remaining := end - context.monotonic()) > 0:
        if compat.closing(context.crawler):
            raise Closing
        await compat.sleep(min(remaining, _CLOSING_CHECK))
