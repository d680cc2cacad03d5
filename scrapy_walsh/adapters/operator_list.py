"""R3's document: the operator's blocklist, validated, refreshed, and never lost.

The first target waits for one attempt to fetch it, and a target waits again when the list's
own ``refresh`` has run out (R12). When an attempt fails, what is held stays in force and the
next attempts are made beside the crawl, on R5's schedule: no target waits for those.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from scrapy.exceptions import IgnoreRequest

from scrapy_walsh.adapters import compat, validate
from scrapy_walsh.adapters.events import logger
from scrapy_walsh.adapters.fetcher import Mark
from scrapy_walsh.adapters.outcomes import Closing, NotYet, Refused
from scrapy_walsh.errors import DocumentInvalid, StateError
from scrapy_walsh.policy import event as events
from scrapy_walsh.policy import hosts, revalidate, schema
from scrapy_walsh.policy.backoff import BACKOFF_CAP, GiveUp, Retry, backoff_delay
from scrapy_walsh.policy.blocklist import Blocklist, lifted
from scrapy_walsh.policy.event import Event
from scrapy_walsh.policy.freshness import SCHEMA_TTL, is_fresh
from scrapy_walsh.state.files import COPY
from scrapy_walsh.state.records import BLOCKLIST, SCHEMA, StoredDocument

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scrapy_walsh.adapters.core import Core
    from scrapy_walsh.adapters.fetcher import Fetched
    from scrapy_walsh.state.records import Store

#: Octets of a blocklist that are read; a longer one is not adopted.
_LIMIT: Final = 256 * 1024 * 1024
#: Octets from which a list is read, written and validated beside the event loop.
_LARGE: Final = 256 * 1024
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
_MAX_LIFTED_LOGGED: Final = 20
_T = TypeVar("_T")


class OperatorList:
    """The blocklist of one crawl."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._list: Blocklist | None = None
        #: Whether an answer has come that is not yet adopted or rejected: no target may pass it.
        self.arrived = False
        #: Grows with each list that is adopted.
        self.serial = 0
        self._document: StoredDocument | None = None
        self._loaded = False
        self._failures = 0
        self._beside = False
        self._cancel_retry: Callable[[], None] | None = None
        self._end_validation: Callable[[], None] | None = None

    def current(self) -> Blocklist | None:
        """The list to go by now; None when :meth:`bring` must be awaited first."""
        if not self._loaded or self.arrived or (self._stale() and not self._beside):
            return None
        return _NOTHING if self._list is None else self._list

    async def bring(self) -> None:
        """Load what earlier runs held and, when that is stale, ask for the list once."""
        await self._core.fetcher.flights.run(BLOCKLIST, self._bring)

    def close(self) -> None:
        """Stop the attempts beside the crawl."""
        for end in (self._cancel_retry, self._end_validation):
            if end is not None:
                end()

    def _stale(self) -> bool:
        document, held = self._document, self._list
        if document is None or held is None:
            return True
        return not is_fresh(document.fetched_at, self._core.wall(), held.refresh)

    async def _bring(self) -> None:
        if not self._loaded:
            await self._load()
        if self._stale():
            await self._refresh()
        self._loaded = True

    async def _load(self) -> None:
        """Take up the copy of an earlier run: "first-ever" counts that one too (T7)."""
        stored = await self._stored()
        if stored is None:
            return
        try:
            self._list = await self._parse(stored.body, self._stored_schema())
            self.serial += 1
            self._document = stored
            await self._record(events.TAKEN_UP, self._list, stored.body, "held from an earlier run")
        except DocumentInvalid as error:
            logger.error("the stored blocklist of %s is damaged: %s", stored.url, error)

    # -- one attempt ----------------------------------------------------------------------

    async def _refresh(self) -> None:
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
        core, url = self._core, self._core.config.blocklist_url
        look = self._loaded
        while not (look and await self._taken_up()):
            look = True
            wait = core.throttle.wait(core.host_of(url), core.monotonic())
            if wait <= 0:
                try:
                    await self._take(await self._fetch(url, self._document))
                except NotYet as error:
                    wait = error.wait
                else:
                    return
            await core.pause(wait)

    async def _taken_up(self) -> bool:
        """Go by the list in the store where that is a later one; whether it is fresh."""
        stored, held = await self._stored(), self._document
        if stored is None or (held is not None and stored.fetched_at < held.fetched_at + _SAME):
            return False
        try:
            adopted = await self._parse(stored.body, self._stored_schema())
        except DocumentInvalid:
            return False
        await self._adopt(adopted, stored.body)
        self._document = stored
        return not self._stale()

    def _held_for(self) -> float | None:
        """Seconds until the list's host may be asked, where that is more than its spacing (R5)."""
        core = self._core
        host = core.host_of(core.config.blocklist_url)
        wait = core.throttle.wait(host, core.monotonic())
        return wait if core.throttle.interval(host) < wait < math.inf else None

    async def _take(self, fetched: Fetched) -> None:
        if fetched.status == 304 and self._document is not None:
            await self._keep(replace(self._document, fetched_at=self._core.wall()))
            if self._list is not None:
                await self._record(events.TAKEN_UP, self._list, b"", "304, not modified")
            return
        if len(fetched.body) >= _LIMIT:
            raise DocumentInvalid(f"blocklist is longer than {_LIMIT} octets")
        standalone = None if _has_schema(fetched.body) else await self._standalone_schema()
        adopted = await self._parse(fetched.body, standalone)
        await self._adopt(adopted, fetched.body)
        document = StoredDocument(
            kind=BLOCKLIST,
            key=self._core.config.blocklist_url,
            url=fetched.url,
            body=fetched.body,
            fetched_at=self._core.wall(),
            status=fetched.status,
            outcome="held",
            etag=fetched.headers.get("etag"),
            last_modified=fetched.headers.get("last-modified"),
            refresh=adopted.refresh,
        )
        await self._keep(document)

    async def _keep(self, document: StoredDocument) -> None:
        self._document = document
        if len(document.body) < _LARGE:
            self._core.remember(lambda: self._core.store.put_document(document))
        else:
            await self._beside_the_loop(lambda store: store.put_document(document))

    async def _stored(self) -> StoredDocument | None:
        config = self._core.config
        url, directory = config.blocklist_url, config.state_dir
        small = directory is None or _size(directory / COPY) < _LARGE
        if config.shared_state is None and small:
            return self._core.store.get_document(BLOCKLIST, url)
        return await self._beside_the_loop(lambda store: store.get_document(BLOCKLIST, url))

    async def _beside_the_loop(self, use: Callable[[Store], _T]) -> _T | None:
        """Use the store from a thread, over a connection of its own; what fails is said once."""
        config = self._core.config
        if config.state_dir is None and config.shared_state is None:
            return use(self._core.store)

        def work() -> _T:
            store = self._core.open_store()
            try:
                return use(store)
            finally:
                store.close()

        try:
            return await compat.run_in_thread(work)
        except StateError as error:
            logger.error("%s", error)
            return None

    async def _adopt(self, adopted: Blocklist, body: bytes) -> None:
        """Go by *adopted* from now on, and say which opt-outs the operator lifted (bd-14)."""
        before, self._list = self._list, adopted
        self.serial += 1
        told = f"blocklist of {len(adopted)} domains, refresh {adopted.refresh:g} s"
        await self._record(events.ADOPTED, adopted, body, told)
        for warning in adopted.warnings:
            logger.warning("blocklist: %s", warning)
        if before is None:
            return
        gone: list[str] = []
        for domains in lifted(before, adopted):
            gone += domains[: _MAX_LIFTED_LOGGED - len(gone)]
            await compat.sleep(0)
        if gone:
            logger.warning("the operator lifted the opt-out of: %s", ", ".join(gone))

    async def _record(self, kind: str, adopted: Blocklist, body: bytes, reason: str) -> None:
        """Record which list is in force now, and keep what it and its schema were read from."""
        recorder, standalone = self._core.recorder, None
        if body:
            standalone = self._schema_beside(body)
            for name, octets in ((BLOCKLIST, body), (SCHEMA, standalone)):
                if octets is not None:
                    await self._keep_for_ledger(name, octets)
        recorder.record(
            Event(
                kind,
                self._core.config.blocklist_url,
                "R3",
                reason=reason,
                digest=adopted.digest,
                schema=None if standalone is None else hashlib.sha256(standalone).hexdigest(),
            )
        )

    def _schema_beside(self, body: bytes) -> bytes | None:
        """The standalone schema that *body* was validated with, if it has none inline."""
        url = self._core.config.schema_url
        if url is None or _has_schema(body):
            return None
        stored = self._core.store.get_document(SCHEMA, url)
        return None if stored is None else stored.body

    async def _keep_for_ledger(self, kind: str, body: bytes) -> None:
        keep = self._core.recorder.keep
        if len(body) < _LARGE:
            keep(kind, body, hashlib.sha256(body).hexdigest())
        else:
            await compat.run_in_thread(lambda: keep(kind, body, hashlib.sha256(body).hexdigest()))

    def _retain(self, why: str, failure: Retry | GiveUp | None) -> None:
        """R3b: what is held stays; R5's schedule for the next attempt, which nobody waits for."""
        held = (
            f"the last list stays in force ({len(self._list)} domains)"
            if self._list is not None
            else "NO LIST WAS EVER HELD: no opt-out is known, nothing is blocked by R3"
        )
        core = self._core
        core.recorder.record(
            Event(
                events.REJECTED,
                core.config.blocklist_url,
                "R3",
                reason=f"blocklist not refreshed: {why}; {held}",
            )
        )
        self._failures += 1
        delay = backoff_delay(
            self._failures - 1, core.rand(), core.config.backoff_base, core.config.backoff_cap
        )
        if isinstance(failure, Retry):
            delay = max(delay, failure.delay)
        elif isinstance(failure, GiveUp):
            delay, self._failures = max(failure.hold, BACKOFF_CAP), 0
        self._beside = True
        self._cancel_retry = compat.call_later(delay, self._retry)

    def _retry(self) -> None:
        if not compat.closing(self._core.crawler):
            compat.run(self._beside_the_crawl())

    async def _beside_the_crawl(self) -> None:
        with contextlib.suppress(Closing):
            await self._core.fetcher.flights.run(BLOCKLIST, self._refresh)

    # -- the requests ---------------------------------------------------------------------

    async def _fetch(self, url: str, held: StoredDocument | None) -> Fetched:
        """The answer 200 (or 304 to *held*) from *url*, redirects within its origin followed."""
        conditions = revalidate.conditional_headers(held)
        headers = {"Accept": "application/json", **conditions}
        origin = hosts.origin(url)
        for hop in range(_MAX_HOPS + 1):
            mark = Mark("operator", _LIMIT, min(self._failures, self._core.config.max_retries), hop)
            timeout = _TIMEOUT_BESIDE if self._beside else _TIMEOUT
            fetched = await self._core.fetcher.fetch(url, mark, headers, timeout)
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
        url = self._core.config.schema_url
        if url is None:
            return None
        stored = self._core.store.get_document(SCHEMA, url)
        if stored is not None and is_fresh(stored.fetched_at, self._core.wall(), SCHEMA_TTL):
            return _schema_of(stored.body)
        try:
            fetched = await self._fetch(url, stored)
            body = fetched.body if fetched.status == 200 or stored is None else stored.body
            found = _schema_of(body)
        except NotYet as error:
            await self._core.pause(error.wait)
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
            fetched_at=self._core.wall(),
            status=fetched.status,
            outcome="held",
            etag=fetched.headers.get("etag"),
            last_modified=fetched.headers.get("last-modified"),
        )
        self._core.remember(lambda: self._core.store.put_document(kept))
        return found

    def _stored_schema(self) -> dict[str, Any] | None:
        url = self._core.config.schema_url
        stored = self._core.store.get_document(SCHEMA, url) if url is not None else None
        try:
            return None if stored is None else _schema_of(stored.body)
        except DocumentInvalid:
            return None

    async def _parse(self, body: bytes, standalone: dict[str, Any] | None) -> Blocklist:
        """The list in *body*: here when that is sure to be quick, else in a child process (D3)."""
        url = self._core.config.blocklist_url
        if schema.is_tame(body, standalone):
            return schema.parse_blocklist(body, standalone, url)

        timeout = _VALIDATION_TIMEOUT + _VALIDATION_PER_MIB * (len(body) // 2**20)

        def started(end: Callable[[], None]) -> None:
            self._end_validation = end

        output = await compat.run_in_thread(
            lambda: validate.validate_in_child(body, standalone, url, timeout, started)
        )
        builder = validate.builder_of(output)
        for domains in validate.blocklist_chunks(output):
            builder.add(domains)
            await compat.sleep(0)
        return builder.build()


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


def _has_schema(body: bytes) -> bool:
    """Whether a list brings its schema: read where that is quick, else looked for (R10.1)."""
    if len(body) < _LARGE:
        return not schema.needs_standalone_schema(body)
    return b'"schema"' in body[:_LARGE] or b'"schema"' in body[-_LARGE:] or b'"schema"' in body


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
