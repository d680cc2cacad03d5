"""Takes in requests and declares targets, before anything is sent or recorded.

User name and password are removed from each URL (``policy.urls.without_userinfo``), so that they
are in no log, ledger, state, JOBDIR or queue. If a request is stored in a queue, its meta keeps
only what the next process may use: declared targets (``ALSO``), sitemap indexes that may declare
sitemaps (``CHILDREN``), and the cadence of its source (``REVISIT``) (R6, R8).

``Spider.start`` is read as follows:

- Scrapy's engine asks it for requests again and again while a request is under way, and runs
  nothing else. So after each slice of 10 ms the intake rests for 10 ms. The targets of a slice are
  written to the ledger together. The rest must be that long, because the first request needs many
  turns of the event loop, for example to adopt the list and a robots.txt. With a slice before each
  turn, that would take seconds.
- While enough requests wait (``policy.agenda.enough``), the intake pauses. This limits its memory.
- Python's garbage collector checks all waiting requests again and again. With 100,000 requests that
  takes most of a second, and nothing else runs. So all objects are exempt after the first slice
  (``gc.freeze``). After each 2,000 requests, garbage is collected, and new objects are exempt, too.
  Requests are freed as usual at their end, because they are in no cycle. Cycles are freed after
  the crawl.
- The targets that an earlier run left in a JOBDIR are declared first, also in slices. If one of
  them is given out earlier, it is declared then.
- Until ``start`` has ended, it may still declare a URL (``Scope.growing``). A request for that URL
  waits in the queue, unless ``start`` yields nothing for a while (:meth:`Intake.stalled`). If the
  request bypassed the queue, it waits in :meth:`Intake.ended`. Then the intake does not pause,
  because the queue may need the answer to drain. ``start`` itself may be waiting for that answer,
  so the request waits only while ``start`` makes progress.
"""

from __future__ import annotations

import gc
import json
from typing import TYPE_CHECKING, Any, Final

from scrapy import Request, Spider

from scrapy_walsh.adapters import compat
from scrapy_walsh.adapters.events import logger
from scrapy_walsh.adapters.ticket import TICKET, Tickets, lasting_of
from scrapy_walsh.policy import visits
from scrapy_walsh.policy.agenda import enough
from scrapy_walsh.policy.scope import Digests
from scrapy_walsh.policy.urls import HAS_USERINFO, without_userinfo

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from scrapy_walsh.adapters.context import Context
    from scrapy_walsh.adapters.sources import Sources

#: The key of ``Request.meta`` for further URLs that a start request declares.
ALSO: Final = "walsh_also"
#: The key for the cadence of all its URLs: seconds or an ISO 8601 duration (R8).
REVISIT: Final = "walsh_revisit"
#: The key for the URLs that are sitemap indexes and may declare sitemaps.
CHILDREN: Final = "walsh_children"
#: Seconds of a slice, and of the rest after it.
_SLICE: Final = 0.01
#: Requests between two collections of garbage, which take about 15 ms.
_FREEZE: Final = 2_000
#: Seconds between two checks whether the queue has drained, or `start` has ended.
_LOOK: Final = 0.1
#: Seconds without a request from `start`, after which others do not wait for it any more.
_STALLED: Final = 5.0


class Intake:
    """The intake of a crawl."""

    def __init__(self, context: Context, tickets: Tickets, sources: Sources) -> None:
        self._context = context
        self._tickets = tickets
        self._sources = sources
        #: Whether a URL with userinfo was logged.
        self._has_warned = False
        #: Monotonic seconds: the beginning of the slice.
        self._slice_start = 0.0
        #: Monotonic seconds: when `start` was asked for its next request; None if it was not.
        self._owed_since: float | None = None
        #: The number of requests from `start`, and their number at the next gc.freeze.
        self._taken_count = self._exempt_at = 0
        #: The number of requests that wait in :meth:`ended`.
        self._waiters = 0
        #: Fingerprints of requests that `start` yields with dont_filter.
        self._pages = Digests()
        #: The same, with their callbacks.
        self._calls = Digests()
        #: Whether the spider uses Scrapy's own `start`.
        self._is_scrapys = _starts_as_scrapy(context.crawler.spidercls)
        #: By fingerprint, whether R6 has refused the request, and none like it has come since.
        self._refused = Digests()

    # -- Spider.start ---------------------------------------------------------------------

    async def taken_in(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Yield the requests of *start* in slices. After its end nothing more is declared (R6)."""
        context = self._context
        self._slice_start = context.monotonic()
        try:
            await self._take_up()
            while context.halted is None and not compat.closing(context.crawler):
                self._owed_since = context.monotonic()
                try:
                    entry = await anext(start)
                except StopAsyncIteration:
                    break
                self._owed_since = None
                if compat.closing(context.crawler):
                    break
                yield entry
                self._taken_count += 1
                await self._give_way()
        except Exception as error:  # Scrapy would log it, and go on without the other requests
            if self._owed_since is None:  # it does not come from `start`
                context.fail(error)
            raise
        finally:
            context.scope.growing = False
            try:
                context.recorder.flush()
                compat.wake_engine(context.crawler)
            except Exception as error:
                context.fail(error)

    async def _take_up(self) -> None:
        """Declare the targets that earlier runs left in the queues."""
        for queue in self._context.queues:
            for entry in queue.earlier():
                self.restore(*entry)
                await self._give_way()
                if compat.closing(self._context.crawler):  # the JOBDIR closes, too
                    return

    async def _give_way(self) -> None:
        """Rest at the end of a slice, and pause while enough requests wait."""
        context = self._context
        if context.monotonic() - self._slice_start < _SLICE:
            return
        context.recorder.flush()
        await compat.sleep(_SLICE)
        if self._taken_count >= self._exempt_at:
            if self._exempt_at:
                gc.collect()
            gc.freeze()
            self._exempt_at = self._taken_count + _FREEZE
        while self._is_full() and not compat.closing(context.crawler):
            await compat.sleep(_LOOK)
        self._slice_start = context.monotonic()
        # Meanwhile the scheduler may have become empty, and `start` may wait for that. Wake the
        # engine, so that `start` need not wait for its next heartbeat.
        compat.wake_engine(context.crawler)

    def close(self) -> None:
        """End the exemption from garbage collection at the end of the crawl."""
        if self._exempt_at:
            gc.unfreeze()

    def _is_full(self) -> bool:
        return not self._waiters and any(enough(queue.load()) for queue in self._context.queues)

    def stalled(self) -> bool:
        """Whether `start` has yielded no request for a while, although it was asked."""
        return (
            self._owed_since is not None and self._context.monotonic() - self._owed_since > _STALLED
        )

    async def ended(self) -> None:
        """Wait until `start` has ended or stalls, at most for WALSH_PATIENCE."""
        context = self._context
        start_time = context.monotonic()
        self._waiters += 1
        try:
            while context.scope.growing and not compat.closing(context.crawler):
                if self.stalled() or context.monotonic() - start_time > context.config.patience:
                    return
                await compat.sleep(_LOOK)
        finally:
            self._waiters -= 1

    # -- Scrapy's duplicate filter --------------------------------------------------------
    #
    # It does not see requests with dont_filter, for example those for Scrapy's `start_urls`.

    def note_start(self, request: Request) -> None:
        """Note *request* of `start` if the duplicate filter does not see it."""
        if request.dont_filter and not self._context.fleet:
            page = self._fingerprint(request)
            self._pages.add(page)
            call = _callback_key(request, self._context.crawler.spider)
            if call is not None:
                self._calls.add(f"{page} {call}")

    def is_repeated(self, request: Request) -> bool:
        """Whether Scrapy's own `start` has yielded the page of *request* before.

        Scrapy's `start` bypasses the duplicate filter. But one page is one request, unless the
        project's own `start` requests it again (R7).
        """
        if not (request.dont_filter and self._is_scrapys):
            return False
        return self._fingerprint(request) in self._pages

    def note_refused(self, request: Request) -> None:
        """Note that R6 has refused *request*, so that a later declared one is no duplicate."""
        if not self._context.fleet:
            self._refused.add(self._fingerprint(request), 1)

    def is_duplicate(self, request: Request) -> bool | None:
        """Whether *request* repeats a request of `start`; None if the duplicate filter decides.

        It is a duplicate if page, callback and arguments are the same. With another callback it is
        a different request. A redirect's hop is a duplicate if only the page is the same, because
        the page's result counts for the redirect, too. If R6 refused a request before it was
        declared, the declared one is no duplicate of it.
        """
        context = self._context
        ticket = self._tickets.of(request)
        if ticket.revisits:
            return False
        if context.fleet or not (self._pages or self._refused):
            return None
        page = self._fingerprint(request)
        if self._refused.mark(page) and context.scope.refuses(request.url) is None:
            self._refused.add(page, 0)
            return False
        if page not in self._pages:
            return None
        call = _callback_key(request, context.crawler.spider)
        repeats = ticket.hop or (call is not None and f"{page} {call}" in self._calls)
        return repeats or None

    def _fingerprint(self, request: Request) -> str:
        fingerprinter: Any = self._context.crawler.request_fingerprinter
        return str(fingerprinter.fingerprint(request).hex())

    # -- a request ------------------------------------------------------------------------

    def url(self, url: str) -> str:
        """Return *url* without userinfo. The first URL with userinfo is logged."""
        if "@" not in url or (bare := without_userinfo(url)) == url:
            return url
        if not self._has_warned:
            self._has_warned = True
            logger.warning("a URL %s: %s", HAS_USERINFO, bare)
        return bare

    def request(self, request: Request) -> Request:
        """Return *request*, or a copy with its URL without userinfo."""
        url = self.url(request.url)
        if url == request.url:
            return request
        return request.replace(url=url)

    def declare(self, request: Request) -> None:
        """Declare *request*, and the further URLs in its meta, as targets (R6).

        It is called for requests of `Spider.start`, and for those of earlier runs in a JOBDIR or a
        fleet's queue. Requests of callbacks declare nothing.
        """
        indexes = set(self._urls_in(request, CHILDREN))
        if indexes and self._context.config.is_walsh_research:
            indexes.clear()  # this identity requests no URLs from documents (R6)
        revisit = self.cadence_of(request)
        for url in (request.url, *self._urls_in(request, ALSO)):
            self._declare(url, children=url in indexes, revisit=revisit)

    def cadence_of(self, request: Request) -> float | None:
        """Return the cadence in the meta of *request*. An unusable one is logged: None."""
        value = request.meta.get(REVISIT)
        try:
            if value is None:
                return None
            return visits.cadence(value)
        except ValueError as error:
            logger.error(
                "%s of %s is %s; WALSH_REVISIT is used instead", REVISIT, request.url, error
            )
            return None

    def resume(self, request: Request, source: str | None) -> None:
        """Restore the URL of a queued *request*, and what it declares (:meth:`restore`)."""
        if source is not None:
            self.restore(request.url, source, self.cadence_of(request))
        if self._context.scope.is_source(request.url):
            self.declare(request)

    def restore(self, url: str, source: str, revisit: float | None) -> None:
        """Declare *url* of the target *source*, from an earlier run or another worker.

        *revisit*: that target's cadence; None if WALSH_REVISIT applies.
        """
        context = self._context
        if revisit is not None or not context.scope.is_source(source):
            self._declare(source, revisit=revisit)
        if context.scope.source_of(url) is None:
            context.scope.declare_hop(url, source)
            context.recorder.declare(url=url, via=source)

    def _declare(self, url: str, *, children: bool = False, revisit: float | None = None) -> None:
        scope = self._context.scope
        is_new = scope.declare(url, revisit)
        if not is_new and (scope.allows_children(url) or not children):
            return
        if children:
            scope.allow_children(url)
        self._context.recorder.declare(url=url, children=children or None, revisit=revisit)

    def declare_child(self, url: str, index: str) -> str | None:
        """Declare *url*, which the sitemap index *index* lists, as a target.

        Returns the URL to request. Returns None if R6 does not permit it (``Scope.declare_child``),
        or if it is no URL.
        """
        scope = self._context.scope
        try:
            url = Request(self.url(url)).url
            index = Request(index).url
        except ValueError:
            return None
        is_known = scope.is_source(url)
        if not scope.declare_child(url, index):
            return None
        if not is_known:
            self._context.recorder.declare(url=url, by=index)
        return url

    def declare_hop(self, hop: Request, request: Request) -> None:
        """Note that *hop* is within scope, because *request* was redirected there (D5)."""
        context = self._context
        ticket = self._tickets.of(hop)
        ticket.hop = True
        context.scope.declare_hop(hop.url, request.url)
        previous = self._tickets.of(request)
        via = self._sources.hop(ticket.key, previous)
        led = list(previous.leads())
        self._tickets.keep(hop, ticket, {**ticket.lasting(), "via": via, "led": led})
        if context.scope.source_of(hop.url) is not None:
            context.recorder.note("declared", url=hop.url, via=request.url, form=ticket.form)

    def _urls_in(self, request: Request, key: str) -> Iterator[str]:
        """Yield the URLs under *key* in the meta of *request*, with Scrapy's escaping."""
        value = request.meta.get(key, ())
        if not isinstance(value, (list, tuple, set, frozenset)):
            value = (value,)
        for url in value:
            try:
                yield Request(self.url(url)).url
            except (TypeError, ValueError) as error:  # the spider may have written anything
                text = str(url).rpartition("@")[2]
                logger.error("%s of %s: %r is not a URL: %s", key, request.url, text, error)

    def kept(self, request: Request) -> dict[str, Any]:
        """Return *request* as a dict, for a queue that another process reads.

        The other process declares the URLs in its meta (R6). A proxy from the environment is left
        out, because its password must not be in a file or in Redis. The other process has its own
        environment.
        """
        fields: dict[str, Any] = request.to_dict(spider=self._context.crawler.spider)
        meta: dict[str, Any] = dict(fields["meta"])
        scope = self._context.scope
        for key, is_valid in ((ALSO, scope.is_source), (CHILDREN, scope.allows_children)):
            if key in meta:
                meta[key] = [url for url in self._urls_in(request, key) if is_valid(url)]
        meta.pop(REVISIT, None)
        revisit = scope.cadence(scope.source_of(request.url) or "")
        if revisit is not None:
            meta[REVISIT] = visits.as_written(revisit)
        meta.pop(TICKET, None)
        lasting = lasting_of(request)
        if lasting:
            meta[TICKET] = lasting
        if meta.pop("_scheme_proxy", False):
            meta.pop("proxy", None)
            meta.pop("_auth_proxy", None)
            fields["headers"].pop(b"Proxy-Authorization", None)  # only from the copy
        return {**fields, "meta": meta}


def _starts_as_scrapy(spider: type[Spider]) -> bool:
    """Whether the class *spider* uses Scrapy's own `start` for its ``start_urls``."""
    owners = [cls for cls in spider.__mro__ if vars(cls).keys() & {"start", "start_requests"}]
    return all(cls.__module__.partition(".")[0] in ("scrapy", "scrapy_walsh") for cls in owners)


def _callback_key(request: Request, spider: Spider | None) -> str | None:
    """Return the callback of *request* and its arguments as text.

    Returns None if the callback is no method of *spider*, or JSON cannot express an argument.
    """
    if request.callback is None:
        plain = getattr(type(spider), "_parse", None) is Spider._parse
        name = "parse" if plain else "_parse"
    elif getattr(request.callback, "__self__", None) is spider:
        name = request.callback.__name__
    else:
        return None
    try:
        return f"{name} {json.dumps(request.cb_kwargs, sort_keys=True)}"
    except (TypeError, ValueError):
        return None
