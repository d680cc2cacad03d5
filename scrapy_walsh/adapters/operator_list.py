"""R3's document: the operator's blocklist, validated, refreshed, and never lost.

The first target waits for one attempt to fetch it, and a target waits again when the list's
own ``refresh`` has run out (R12). When an attempt fails, what is held stays in force and the
next attempts are made beside the context, on R5's schedule: no target waits for those. Only where
nothing may be requested without a list (``chain.without_list``) do targets wait for R5's retries;
those that are left then are deferred or refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from scrapy.exceptions import IgnoreRequest

from scrapy_walsh.adapters import bulk, compat, validate
from scrapy_walsh.adapters.events import logger
from scrapy_walsh.adapters.fetcher import Mark
from scrapy_walsh.adapters.outcomes import Closing, NotYet, Refused
from scrapy_walsh.exceptions import DocumentInvalid, StateError
from scrapy_walsh.ledger.documents import DOCUMENTS
from scrapy_walsh.policy import chain, hosts, revalidate, schema
from scrapy_walsh.policy import event as events
from scrapy_walsh.policy.backoff import BACKOFF_CAP, GiveUp, Retry, backoff_delay
from scrapy_walsh.policy.blocklist import Blocklist, BlocklistBuilder, lifted
from scrapy_walsh.policy.event import Event
from scrapy_walsh.policy.freshness import SCHEMA_TTL, is_fresh
from scrapy_walsh.state.files import COPY, LARGE, SECOND
from scrapy_walsh.state.records import BLOCKLIST, SCHEMA, StoredDocument

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scrapy_walsh.adapters.context import Context
    from scrapy_walsh.adapters.fetcher import Fetched, Fetcher
    from scrapy_walsh.adapters.pacing import Pacing
    from scrapy_walsh.policy.verdict import Verdict
    from scrapy_walsh.state.records import Store

#: Octets of a blocklist that are read; a longer one is not adopted.
_LIMIT: Final = 256 * 1024 * 1024
#: Octets that are searched in one step.
_STEP: Final = 4 * 1024 * 1024
#: Domains that are put into a list in one step.
_DOMAINS: Final = 2_000
#: Seconds that a target may wait for the operator's documents.
_TIMEOUT: Final = 30.0
#: Seconds that an attempt beside the crawl may keep the wire from the targets.
_TIMEOUT_BESIDE: Final = 5.0
#: Seconds that the validator may take (D3), and more for each MiB: a million entries need some.
_VALIDATION_TIMEOUT: Final = 5.0
_VALIDATION_PER_MIB: Final = 1.0
#: Seconds by which two workers may differ over the time of one fetch.
_SAME: Final = 1.0
_MAX_HOPS: Final = 5
#: Seconds between looks at whether the spider is closing.
_CLOSING_CHECK: Final = 0.2
_MAX_LIFTED_LOGGED: Final = 20
_T = TypeVar("_T")
_Answer = TypeVar("_Answer", validate.Output, "validate.Output | None")


class OperatorList:
    """The blocklist of one crawl."""

    def __init__(self, context: Context, fetcher: Fetcher, pacing: Pacing) -> None:
        self._context = context
        self._fetcher = fetcher
        self._pacing = pacing
        self._list: Blocklist | None = None
        #: Whether an answer has come that is not yet adopted or rejected: no target may pass it.
        self.arrived = False
        #: Grows with each list that is adopted.
        self.serial = 0
        self._document: StoredDocument | None = None
        self._loaded = False
        self._failures = 0
        self._beside = False
        #: Why the list that was held cannot be read, if one was.
        self._lost: str | None = None
        #: Seconds until the next attempt, where targets wait for it.
        self._next: float | None = None
        self._cancel_retry: Callable[[], None] | None = None
        self._end_validation: Callable[[], None] | None = None

    def current(self) -> Blocklist | Verdict | None:
        """The list to go by now, or what stands for it; None: await :meth:`bring` first."""
        if not self._loaded or self.arrived or (self._stale() and not self._beside):
            return None
        if self._list is None:
            return self._without() or _NOTHING
        return self._list

    def _without(self) -> Verdict | None:
        """The verdict about every target while no list is in force; None: nothing is blocked."""
        config = self._context.config
        lost = self._lost is not None
        return chain.without_list(config.blocklist_unreachable, config.blocklist_url, lost=lost)

    async def bring(self) -> None:
        """Load what earlier runs held and, when that is stale, ask for the list once."""
        await self._fetcher.flights.run(BLOCKLIST, self._bring)

    async def _pause(self, seconds: float) -> None:
        """Let others run for *seconds*; raises Closing when the spider is being closed."""
        context = self._context
        end = context.monotonic() + seconds
        while (left := end - context.monotonic()) > 0:
            if compat.closing(context.crawler):
                raise Closing
            await compat.sleep(min(left, _CLOSING_CHECK))

    def close(self) -> None:
        """Stop the attempts beside the crawl."""
        for end in (self._cancel_retry, self._end_validation):
            if end is not None:
                end()

    def _stale(self) -> bool:
        document, held = self._document, self._list
        if document is None or held is None:
            return True
        return not is_fresh(document.fetched_at, self._context.wall(), held.refresh)

    async def _bring(self) -> None:
        if not self._loaded:
            await self._load()
        if self._stale():
            await self._refresh()
        while self._next is not None:
            await self._pause(self._next)
            await self._refresh()
        self._loaded = True

    async def _load(self) -> None:
        """Take up the copy of an earlier run: "first-ever" counts that one too (T7)."""
        try:
            found = await self._stored(0.0)
        except (DocumentInvalid, StateError) as error:
            self._lost = str(error)
            url, place = self._context.config.blocklist_url, self._context.config.state_dir
            logger.error(
                "the blocklist that was held cannot be read (%s): no request is sent before %s can "
                "be had: see that it answers, or put %s of a backup into %s",
                error,
                url,
                COPY,
                place,
            )
            return
        if found is not None:
            self._list, self._document = found.blocklist, found.document
            self.serial += 1
            await self._record(events.TAKEN_UP, found, "held from an earlier run")

    # -- one attempt ----------------------------------------------------------------------

    async def _refresh(self) -> None:
        self._next = None
        held = self._held_for()
        if held is not None:
            self._retain(f"its host may not be asked for {held:.0f} s", Retry(held, ""))
            return
        try:
            await self._renew()
        except Closing:
            raise
        except DocumentInvalid as error:
            self._retain(str(error), None)
        except _NotFetched as error:
            self._retain(str(error), error.failure)
        except Refused as error:
            self._retain(error.verdict.reason, None)
        except IgnoreRequest as error:
            self._retain(str(error), None)
        else:
            self._failures, self._beside = 0, False
        finally:
            self.arrived = False

    async def _renew(self) -> None:
        """Ask for the list, unless another process has brought it meanwhile (R4.6)."""
        context, url = self._context, self._context.config.blocklist_url
        look = self._loaded or self._failures > 0
        while not (look and await self._taken_up()):
            look = True
            wait = self._pacing.throttle.wait(self._pacing.look_up(url), context.monotonic())
            if wait <= 0:
                try:
                    await self._take(await self._fetch(url, self._document))
                except NotYet as error:
                    wait = error.wait
                else:
                    return
            await self._pause(wait)

    async def _taken_up(self) -> bool:
        """Go by the list in the store where that is a later one; whether it is fresh."""
        held = self._document
        try:
            found = await self._stored(0.0 if held is None else held.fetched_at + _SAME)
        except (DocumentInvalid, StateError):
            return False
        if found is None:
            return False
        await self._adopt(found, events.TAKEN_UP)
        return not self._stale()

    def _held_for(self) -> float | None:
        """Seconds until the list's host may be asked, where that is more than its spacing (R5)."""
        context = self._context
        host = self._pacing.look_up(context.config.blocklist_url)
        wait = self._pacing.throttle.wait(host, context.monotonic())
        return wait if self._pacing.throttle.interval(host) < wait < math.inf else None

    async def _take(self, fetched: Fetched) -> None:
        if fetched.status == 304 and self._document is not None:
            await self._renewed(self._document)
            return
        if len(fetched.body) >= _LIMIT:
            raise DocumentInvalid(f"blocklist is longer than {_LIMIT} octets")
        inline = await _has_schema(fetched.body)
        standalone = None if inline else await self._standalone_schema()
        document = StoredDocument(
            kind=BLOCKLIST,
            key=self._context.config.blocklist_url,
            url=fetched.url,
            body=fetched.body,
            fetched_at=self._context.wall(),
            status=fetched.status,
            outcome="held",
            etag=fetched.headers.get("etag"),
            last_modified=fetched.headers.get("last-modified"),
        )
        place = self._place()
        if place is not None and len(fetched.body) >= LARGE:
            await self._adopt(await self._kept_in_child(place, document, standalone))
            return
        adopted = await self._parse(fetched.body, standalone)
        document = replace(document, refresh=adopted.refresh)
        await self._adopt(_Found(adopted, document, inline))
        self._context.remember(lambda: self._context.store.put_document(document))

    async def _renewed(self, document: StoredDocument) -> None:
        """Hold *document* anew from now on: it is still the operator's (304)."""
        self._document = document = replace(document, fetched_at=self._context.wall())
        place = self._place()
        if document.body or place is None:
            self._context.remember(lambda: self._context.store.put_document(document))
        else:
            try:
                await self._in_child(
                    lambda: bulk.renew(place, document.fetched_at, self._time(), self._started)
                )
            except DocumentInvalid as error:  # no child could be started
                logger.error("%s", error)
        if self._list is not None:
            self._tell(events.TAKEN_UP, self._list, "304, not modified")

    # -- the store ------------------------------------------------------------------------

    async def _stored(self, not_before: float) -> _Found | None:
        """The list that is kept, fetched at *not_before* or later.

        Raises DocumentInvalid or StateError where there is one, or may be, and it cannot be read.
        What was adopted was validated, and what is read is what was adopted (its checksum): so
        the floor checks alone are made again, and no child decides whether it is in force.
        """
        config = self._context.config
        directory, place = config.state_dir, self._place()
        size = 0 if directory is None else max(_size(directory / name) for name in (COPY, SECOND))
        if place is not None and size >= LARGE:
            try:
                return await self._found_in_child(place, not_before, size)
            except validate.NoAnswer as error:
                logger.warning("the stored blocklist is read in the crawl's process: %s", error)
        elif config.shared_state is None:
            return await self._reread(self._find(self._context.store), not_before)
        return await self._reread(await self._beside_the_loop(self._find), not_before)

    def _find(self, store: Store) -> StoredDocument | None:
        return store.get_document(BLOCKLIST, self._context.config.blocklist_url)

    async def _reread(self, stored: StoredDocument | None, not_before: float) -> _Found | None:
        """The list in *stored*, made step by step, if it was fetched at *not_before* or later."""
        if stored is None or (stored.body and stored.fetched_at < not_before):
            return None
        body = bulk.require_text(stored).body
        parsed = await compat.run_in_thread(lambda: schema.reread(body))
        facts = schema.facts_of(parsed, self._context.config.blocklist_url)
        builder = BlocklistBuilder(facts, len(parsed.domains), validate.zeroed_memory)
        for start in range(0, len(parsed.domains), _DOMAINS):
            builder.add(parsed.domains[start : start + _DOMAINS])
            await compat.sleep(0)
        if len(body) >= LARGE:  # as a child leaves it
            await self._keep_for_ledger(BLOCKLIST, body)
            stored = replace(stored, body=b"")
        return _Found(builder.build(), stored, parsed.inline)

    async def _beside_the_loop(self, use: Callable[[Store], _T]) -> _T:
        """Use the store from a thread, over a connection of its own. StateError."""

        def work() -> _T:
            store = self._context.open_store()
            try:
                return use(store)
            finally:
                self._context.store.notices += store.notices  # told at the end of the crawl
                store.close()

        return await compat.run_in_thread(work)

    def _place(self) -> bulk.Place | None:
        """Where a child can find what is kept; None where that is this process's memory."""
        config, ledger = self._context.config, self._context.recorder.ledger
        directory, shared = config.state_dir, config.shared_state
        if directory is None and shared is None:
            return None
        return bulk.Place(
            config.blocklist_url,
            None if directory is None else str(directory.absolute()),
            shared,
            config.identity.token,
            None if ledger is None else str((ledger.directory / DOCUMENTS).absolute()),
            0 if ledger is None else ledger.file,
        )

    async def _found_in_child(
        self, place: bulk.Place, not_before: float, size: int
    ) -> _Found | None:
        time = self._time(size)
        output = await self._in_child(lambda: bulk.take_up(place, not_before, time, self._started))
        if output is None:
            return None
        document = StoredDocument(body=b"", **output.head["record"])
        return _Found(await _built(output), document, output.head["inline"])

    async def _kept_in_child(
        self, place: bulk.Place, document: StoredDocument, standalone: dict[str, Any] | None
    ) -> _Found:
        time = self._time(len(document.body))
        output = await self._in_child(
            lambda: bulk.keep(place, document, standalone, time, self._started)
        )
        adopted = await _built(output)
        document = replace(document, body=b"", refresh=adopted.refresh)
        return _Found(adopted, document, output.head["inline"])

    async def _in_child(self, ask: Callable[[], _Answer]) -> _Answer:
        output = await compat.run_in_thread(ask)
        for error in () if output is None else output.tail["errors"]:
            logger.error("%s", error)
        return output

    def _time(self, octets: int = 0) -> float:
        """Seconds that the child may take over a list of that length."""
        return _VALIDATION_TIMEOUT + _VALIDATION_PER_MIB * (octets // 2**20)

    def _started(self, end: Callable[[], None]) -> None:
        self._end_validation = end

    async def _adopt(self, found: _Found, kind: str = events.ADOPTED) -> None:
        """Go by *found* from now on, and say which opt-outs the operator lifted (bd-14)."""
        before, self._list, self._document = self._list, found.blocklist, found.document
        adopted = found.blocklist
        self.serial += 1
        told = f"blocklist of {len(adopted)} domains, refresh {adopted.refresh:g} s"
        await self._record(kind, found, told)
        for warning in adopted.warnings:
            logger.warning("blocklist: %s", warning)
        if before is None:
            return
        gone: list[str] = []
        steps = lifted(before, adopted)
        del before  # or all of it would be freed at once
        for domains in steps:
            gone += domains[: _MAX_LIFTED_LOGGED - len(gone)]
            await compat.sleep(0)
        if gone:
            logger.warning("the operator lifted the opt-out of: %s", ", ".join(gone))

    async def _record(self, kind: str, found: _Found, reason: str) -> None:
        """Record which list is in force now, and keep what it and its schema were read from."""
        standalone = None if found.inline else self._schema_beside()
        for name, octets in ((BLOCKLIST, found.document.body), (SCHEMA, standalone)):
            if octets:
                await self._keep_for_ledger(name, octets)
        self._tell(kind, found.blocklist, reason, standalone)

    def _tell(
        self, kind: str, adopted: Blocklist, reason: str, standalone: bytes | None = None
    ) -> None:
        self._context.recorder.record(
            Event(
                kind,
                self._context.config.blocklist_url,
                "R3",
                reason=reason,
                digest=adopted.digest,
                schema=None if standalone is None else hashlib.sha256(standalone).hexdigest(),
            )
        )

    def _schema_beside(self) -> bytes | None:
        """The standalone schema that a list without one was validated with."""
        url = self._context.config.schema_url
        stored = None if url is None else self._context.store.get_document(SCHEMA, url)
        return None if stored is None else stored.body

    async def _keep_for_ledger(self, kind: str, body: bytes) -> None:
        keep = self._context.recorder.keep
        if len(body) < LARGE:
            keep(kind, body, hashlib.sha256(body).hexdigest())
        else:
            await compat.run_in_thread(lambda: keep(kind, body, hashlib.sha256(body).hexdigest()))

    def _retain(self, why: str, failure: Retry | GiveUp | None) -> None:
        """R3b: what is held stays; R5's schedule for the next attempt, which nobody waits for."""
        context, without = self._context, self._without() if self._list is None else None
        if self._list is not None:
            held = f"the last list stays in force ({len(self._list)} domains)"
        elif without is not None:
            held = f"no target is requested: {without.reason}"
        else:
            held = "NO LIST WAS EVER HELD: no opt-out is known, nothing is blocked by R3"
        context.recorder.record(
            Event(
                events.REJECTED,
                context.config.blocklist_url,
                "R3",
                "" if without is None else without.name,
                f"blocklist not refreshed: {why}; {held}",
            )
        )
        self._failures += 1
        delay = backoff_delay(
            self._failures - 1,
            context.rand(),
            context.config.backoff_base,
            context.config.backoff_cap,
        )
        if isinstance(failure, Retry):
            delay = max(delay, failure.delay)
        elif isinstance(failure, GiveUp):
            delay, self._failures = max(failure.hold, BACKOFF_CAP), 0
        retried = 0 < self._failures <= context.config.max_retries
        if (
            without is not None
            and not self._loaded
            and retried
            and delay <= context.config.patience
        ):
            self._next = delay
            return
        self._beside = True
        self._cancel_retry = compat.call_later(delay, self._retry)

    def _retry(self) -> None:
        if not compat.closing(self._context.crawler):
            compat.run(self._beside_the_crawl())

    async def _beside_the_crawl(self) -> None:
        with contextlib.suppress(Closing):
            await self._fetcher.flights.run(BLOCKLIST, self._refresh)

    # -- the requests ---------------------------------------------------------------------

    async def _fetch(self, url: str, held: StoredDocument | None) -> Fetched:
        """The answer 200 (or 304 to *held*) from *url*, redirects within its origin followed."""
        conditions = revalidate.conditional_headers(held)
        headers = {"Accept": "application/json", **conditions}
        origin = hosts.origin(url)
        for hop in range(_MAX_HOPS + 1):
            mark = Mark(
                "operator", _LIMIT, min(self._failures, self._context.config.max_retries), hop
            )
            timeout = _TIMEOUT_BESIDE if self._beside else _TIMEOUT
            fetched = await self._fetcher.fetch(url, mark, headers, timeout)
            if fetched.status == 200 or (fetched.status == 304 and conditions):
                return fetched
            if fetched.status not in (301, 302, 303, 307, 308) or not fetched.location:
                raise _NotFetched(f"{url} answered {fetched.why}", fetched.failure)
            url = fetched.location
            if not url.startswith(f"{origin}/"):
                raise _NotFetched(f"it redirects to another origin, {url}", None)
        raise _NotFetched(f"more than {_MAX_HOPS} redirects", None)

    async def _standalone_schema(self) -> dict[str, Any] | None:
        """The schema beside the list (R10): cached seven days, kept when a refresh fails."""
        url = self._context.config.schema_url
        if url is None:
            return None
        stored = self._context.store.get_document(SCHEMA, url)
        if stored is not None and is_fresh(stored.fetched_at, self._context.wall(), SCHEMA_TTL):
            return _schema_of(stored.body)
        try:
            fetched = await self._fetch(url, stored)
            body = fetched.body if fetched.status == 200 or stored is None else stored.body
            found = _schema_of(body)
        except NotYet as error:
            await self._pause(error.wait)
            return await self._standalone_schema()
        except (_NotFetched, IgnoreRequest, DocumentInvalid) as error:
            if stored is None:
                raise DocumentInvalid(f"no schema inline, and none to be had: {error}") from error
            logger.warning("schema not refreshed: %s; the cached one is used (R10)", error)
            return _schema_of(stored.body)
        kept = StoredDocument(
            kind=SCHEMA,
            key=url,
            url=fetched.url,
            body=body,
            fetched_at=self._context.wall(),
            status=fetched.status,
            outcome="held",
            etag=fetched.headers.get("etag"),
            last_modified=fetched.headers.get("last-modified"),
        )
        self._context.remember(lambda: self._context.store.put_document(kept))
        return found

    async def _parse(self, body: bytes, standalone: dict[str, Any] | None) -> Blocklist:
        """The list in *body*: here when that is sure to be quick, else in a child process (D3)."""
        url = self._context.config.blocklist_url
        if schema.is_tame(body, standalone):
            return schema.parse_blocklist(body, standalone, url)
        timeout = self._time(len(body))
        return await _built(
            await compat.run_in_thread(
                lambda: validate.validate_in_child(body, standalone, url, timeout, self._started)
            )
        )


@dataclass(frozen=True, slots=True)
class _Found:
    """A list, and the record of the document it was read from.

    The record is without its body where a child has kept that, for the ledger as well.
    ``inline``: the document brings its schema.
    """

    blocklist: Blocklist
    document: StoredDocument
    inline: bool


class _NotFetched(Exception):
    """No usable answer; ``failure`` is what R5 says of it."""

    def __init__(self, why: str, failure: Retry | GiveUp | None) -> None:
        super().__init__(why)
        self.failure = failure


_NOTHING: Final = Blocklist.empty()


def _schema_of(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise DocumentInvalid("the standalone schema is not JSON") from error
    if not isinstance(found, dict):
        raise DocumentInvalid("the standalone schema is not a JSON object")
    return found


async def _has_schema(body: bytes) -> bool:
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


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
