"""R3's document: the operator's blocklist, requested, validated, kept, and put into force.

``policy/list/operator.py`` decides when it is requested and what follows from each attempt; its
docstring says how. ``OperatorList`` makes the requests, and does what was decided. A list goes into
the crawl and into the store in threads, since it may take seconds with a million domains (D3): to
parse and to look at each entry, to write it to the disk, and to read it from there. Python code
lets go of the interpreter lock every 5 ms, and file, hash and SQLite while they work.
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
    is_inline,
    lifted,
    together,
)
from scrapy_walsh.policy.words import plural
from scrapy_walsh.state.records import BLOCKLIST, SCHEMA, StoredDocument

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from scrapy_walsh.adapters.context import Context
    from scrapy_walsh.adapters.wire.pacing import Pacing
    from scrapy_walsh.policy.verdict import Verdict
    from scrapy_walsh.state.store import Store

#: Seconds that the validator may take (D3), and more for each MiB: a million entries need some.
_VALIDATION_TIMEOUT: Final = 5.0
_VALIDATION_PER_MIB: Final = 1.0
#: Seconds between two looks at whether the shared store is back.
_AWAY: Final = 0.5
#: What the store says of a list or a schema.
_HELD: Final = "held"
_T = TypeVar("_T")


_MAX_HOPS: Final = 5
#: Seconds between looks at whether the spider is closing.
_CLOSING_CHECK: Final = 0.2
_MAX_LIFTED_LOGGED: Final = 20


class OperatorList:
    """The blocklist of one crawl. ``state``: how the crawl stands with it, for others to read."""

    def __init__(self, context: Context, fetcher: Fetcher, pacing: Pacing) -> None:
        self._context = context
        self._fetcher = fetcher
        self._pacing = pacing
        self._url = context.config.blocklist_url
        self._token = context.config.identity.token.lower()
        #: The record of the list in force, without its text: what a conditional request is made
        #: from. None where no list of this address is held.
        self._document: StoredDocument | None = None
        self._retry = compat.Timer(lambda: compat.run(self._beside_the_crawl()))
        #: Stops the attempts beside the crawl.
        self.close = self._retry.cancel
        self._change(operator.State(self._url, context.config.blocklist_unreachable))

    def current(self) -> Blocklist | Verdict | None:
        """The list to go by now, or what stands for it; None: await :meth:`bring` first."""
        now = self._in_force
        return now.answer if now.since <= self._context.wall() < now.until else None

    def answered(self) -> None:
        """Let no target pass before what the operator's server has answered was read."""
        self._change(self.state.answered())

    def bring(self) -> Awaitable[None]:
        """Load what earlier runs held and, when that is stale, ask for the list once."""
        return self._fetcher.alone(BLOCKLIST, self._bring)

    def _change(self, state: operator.State) -> None:
        # What is in force is asked for several times a request: it is worked out once.
        self.state, self._in_force = state, state.in_force()

    async def _bring(self) -> None:
        if not self.state.begun:
            await self._load()
        wait = 0.0 if self.state.is_stale(self._context.wall()) else None
        while wait is not None:
            await _pause(self._context, wait)
            wait = await self._attempt()
        self._change(self.state.begin())

    async def _load(self) -> None:
        """Take up the copy of an earlier run: "first-ever" counts that one too (T7)."""
        try:
            with faults.ours("the blocklist that was held cannot be read"):
                found = await self._stored(0.0)
        except (DocumentInvalid, OwnFault) as error:
            cause = f"the blocklist that was held cannot be read ({error})"
            self._change(self.state.lose(cause))
            remedy = f"no request is sent before {self._url} can be had: see that it answers"
            self._context.recorder.own_fault(f"{cause}: {remedy}, or bring a backup back")
            return
        if found:
            await self._take_up(found)

    # -- one attempt ----------------------------------------------------------------------

    async def _attempt(self) -> float | None:
        """Try once to get the list; the seconds for which targets wait for the next attempt."""
        try:
            with faults.ours("the blocklist could not be put in force"):
                # R5 may leave the list's host alone.
                traffic = self._pacing.host_of(self._url).traffic
                wait = traffic.wait(self._context.monotonic())
                if (held := operator.held_off(wait, traffic.interval)) is not None:
                    why = f"its host may not be asked for {held:.0f} s"
                    return self._failed(why, Retry(held))
                await self._renew()
        except OwnFault as fault:
            line = f"nothing is requested: the blocklist is not known because of us: {fault}"
            self._context.recorder.own_fault(line, fault.cause or str(fault))
            return self._failed(str(fault), None, ours=True)
        except (DocumentInvalid, Refused, _NotFetched) as error:
            why = error.verdict.reason if isinstance(error, Refused) else str(error)
            return self._failed(why, error.failure if isinstance(error, _NotFetched) else None)
        else:
            self._change(self.state.succeeded())
            return None
        finally:
            self._change(self.state.over())

    async def _renew(self) -> None:
        """Ask for the list, unless another process has brought it meanwhile (R4.6)."""
        context, url = self._context, self._url
        look = self.state.looks_first
        while not (look and await self._taken_up()):
            look = True
            wait = self._pacing.host_of(url).traffic.wait(context.monotonic())
            if wait <= 0:
                # Where lists of other addresses bind, only a list that is adopted lifts them.
                held = None if self.state.elsewhere else self._document
                try:
                    await self._take(await self._fetch(url, held))
                except NotYet as error:
                    wait = error.wait
                else:
                    return
            # While another crawl of the process requests it, only the end of that says how long.
            await _pause(context, _CLOSING_CHECK if wait == math.inf else wait)

    async def _taken_up(self) -> bool:
        """Go by the list in the store where that is a later one; whether it is fresh."""
        found: list[tuple[Blocklist, StoredDocument]] = []
        with contextlib.suppress(DocumentInvalid):
            found = await self._stored(self.state.newer_from)
        if not found:
            return False
        await self._take_up(found)
        return not self.state.is_stale(self._context.wall())

    async def _take(self, fetched: Fetched) -> None:
        if fetched.status == 304 and self._document is not None:
            await self._confirm(self._document)
            return
        if len(fetched.body) >= MAX_OCTETS:
            raise DocumentInvalid(f"blocklist is longer than {MAX_OCTETS} octets")
        document = fetched.record(BLOCKLIST, self._url, fetched.body, _HELD, self._context.wall())
        blocklist = await self._validated(document.body)
        document = replace(document, refresh=blocklist.refresh, tokens=self._token)
        await self._adopt([(blocklist, document)], ADOPTED)
        await self._write(lambda store: store.hold_list(document, self._context.wall()))

    async def _validated(self, body: bytes) -> Blocklist:
        """The list in *body*. Raises DocumentInvalid; OwnFault where nobody can validate it."""
        time = _VALIDATION_TIMEOUT + _VALIDATION_PER_MIB * (len(body) // 2**20)
        found = await compat.run_in_thread(lambda: schema.read_document(body))
        standalone = None if is_inline(found) else await self._standalone_schema()
        # In a thread also where it is short: the first list imports jsonschema (60 ms).
        try:
            await compat.run_in_thread(lambda: validate(found, body, standalone, time))
        finally:
            # A child that the end of the crawl has stopped is no fault: the next run asks again.
            if compat.closing(self._context.crawler):
                raise Closing
        return await compat.run_in_thread(lambda: schema.blocklist_in(found, body, self._url))

    async def _confirm(self, record: StoredDocument) -> None:
        """Hold the list of *record* anew from now on: it is still the operator's (304)."""
        now = self._context.wall()

        def renew(store: Store) -> None:
            kept = store.get(StoredDocument, BLOCKLIST, self._url)
            # Another one must not pass for fresh: the disk may have refused to keep ours.
            if kept is not None and replace(kept, body=b"", fetched_at=record.fetched_at) == record:
                store.put(replace(kept, fetched_at=now))

        self._document = replace(record, fetched_at=now)
        self._change(self.state.confirm(now))
        await self._write(renew)
        if self.state.blocklist is not None:
            self._tell(TAKEN_UP, self.state.blocklist, "304, not modified")

    async def _take_up(self, found: list[tuple[Blocklist, StoredDocument]]) -> None:
        """Go by lists that the store has: that of this address, and those of others (D39)."""
        await self._adopt(found, TAKEN_UP)
        for _, document in found:
            if document.tokens and self._token not in document.tokens.split():
                held = replace(document, tokens=self._token)
                await self._write(partial(_hold, held))

    async def _adopt(self, found: list[tuple[Blocklist, StoredDocument]], kind: EventKind) -> None:
        """Go by the lists *found*, record that, and keep what they were read from.

        Then say what a person should see: odd entries, and which opt-outs the operator lifted.
        """
        before, adopted = self.state.blocklist, together([each for each, _ in found])
        own = next((document for _, document in found if document.key == self._url), None)
        # The text would take memory from now on.
        self._document = None if own is None else replace(own, body=b"")
        fetched_at = max(document.fetched_at for _, document in found)
        elsewhere = any(document.key != self._url for _, document in found)
        self._change(self.state.adopt(adopted, fetched_at, elsewhere=elsewhere))
        for each, document in found:
            await self._note(each, document, kind)
        if before is None:
            return
        if gone := await compat.run_in_thread(lambda: lifted(before, adopted)):
            shown = ", ".join(sorted(gone[:_MAX_LIFTED_LOGGED]))
            logger.warning("the operator lifted the opt-out of: %s", shown)

    async def _note(self, adopted: Blocklist, document: StoredDocument, kind: EventKind) -> None:
        """Record that *adopted* is in force; keep what it was read from and validated with."""
        context = self._context
        body, digest = document.body, adopted.digest or ""
        await compat.run_in_thread(lambda: context.recorder.keep(BLOCKLIST, body, digest))
        is_own = document.key == self._url
        by, schema_url = None, context.config.schema_url if is_own and not adopted.inline else None
        if schema_url and (stored := context.store.get(StoredDocument, SCHEMA, schema_url)):
            by = hashlib.sha256(stored.body).hexdigest()
            context.recorder.keep(SCHEMA, stored.body, by)
        told = f"blocklist of {plural(len(adopted), 'domain')}, refresh {adopted.refresh:g} s"
        self._tell(kind, adopted, told, by)
        for warning in adopted.warnings if kind == ADOPTED else ():
            logger.warning("blocklist: %s", warning)
        if not is_own:
            logger.info(
                "the blocklist of %s was held and stays in force until one is adopted from %s",
                document.key,
                self._url,
            )

    def _tell(
        self, kind: EventKind, adopted: Blocklist, reason: str, by: str | None = None
    ) -> None:
        """Record that *adopted* is in force. *by*: digest of the standalone schema, if one."""
        url = adopted.document or self._url
        event = Event(kind, url, "R3", reason=reason, digest=adopted.digest, schema=by)
        self._context.recorder.record(event)

    # -- the list that is kept ------------------------------------------------------------

    async def _stored(self, not_before: float) -> list[tuple[Blocklist, StoredDocument]]:
        """The lists that are kept and bind (D39), that of this address first.

        None where all of them were fetched before *not_before* (Unix seconds).
        Raises DocumentInvalid or StateError where there is one, or may be, and it cannot be read.
        What was adopted was validated, and what is read is what was adopted (its checksum): so
        the floor checks alone are made again, and no child decides whether it is in force.
        """
        now = self._context.wall()
        while True:
            try:
                kept = await self._apart(
                    lambda store: store.binding_lists(self._url, self._token, now)
                )
                break
            except StoreAway:  # nothing is sent meanwhile, and ``Pulse`` ends the wait
                await _pause(self._context, _AWAY)
        if all(each.body and each.fetched_at < not_before for each in kept):
            return []
        return await compat.run_in_thread(lambda: [(reread(each), each) for each in kept])

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

    # -- what follows from a failure ------------------------------------------------------

    def _failed(
        self, why: str, failure: Retry | GiveUp | None, *, ours: bool = False
    ) -> float | None:
        """Go on as the state machine says; the seconds for which targets wait, if they do."""
        context = self._context
        follows = self.state.failed(why, failure, context.gates, context.rand(), own_fault=ours)
        context.recorder.record(follows.event)
        self._change(follows.state)
        if follows.targets_wait:
            return follows.delay
        self._retry.set(follows.delay)
        return None

    async def _beside_the_crawl(self) -> None:
        if not compat.closing(self._context.crawler):
            with contextlib.suppress(Closing, Halted):
                await self._fetcher.alone(BLOCKLIST, self._attempt)

    # -- the requests ---------------------------------------------------------------------

    async def _fetch(self, url: str, held: StoredDocument | None) -> Fetched:
        """The answer 200 (or 304 to *held*) from *url*, redirects within its origin followed."""
        conditions = validators.conditional_headers(held.etag, held.last_modified) if held else {}
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
        """The schema beside the list (R10): cached seven days, kept when a refresh fails."""
        url = self._context.config.schema_url
        if url is None:
            return None
        stored = self._context.store.get(StoredDocument, SCHEMA, url)
        if stored is not None and is_fresh(stored.fetched_at, self._context.wall(), SCHEMA_TTL):
            return schema.read_schema(stored.body)
        try:
            fetched = await self._fetch(url, stored)
            body = fetched.body if fetched.status == 200 or stored is None else stored.body
            found = schema.read_schema(body)
        except NotYet as error:
            await _pause(self._context, error.wait)
            return await self._standalone_schema()
        except (_NotFetched, Refused, DocumentInvalid) as error:
            if stored is None:
                raise DocumentInvalid(f"no schema inline, and none to be had: {error}") from error
            logger.warning("schema not refreshed: %s; the cached one is used (R10)", error)
            return schema.read_schema(stored.body)
        document = fetched.record(SCHEMA, url, body, _HELD, self._context.wall())
        self._context.remember(lambda: self._context.store.put(document))
        return found


def _hold(document: StoredDocument, store: Store) -> None:
    store.hold_list(document)


class _NotFetched(WalshError):
    """No usable answer; ``failure`` is what R5 says of it."""

    def __init__(self, why: str, failure: Retry | GiveUp | None) -> None:
        super().__init__(why)
        self.failure = failure


async def _pause(context: Context, seconds: float) -> None:
    """Let others run for *seconds*; raises Closing when the spider is being closed."""
    end = context.monotonic() + seconds
    while (left := end - context.monotonic()) > 0:
        if compat.closing(context.crawler):
            raise Closing
        await compat.sleep(min(left, _CLOSING_CHECK))
