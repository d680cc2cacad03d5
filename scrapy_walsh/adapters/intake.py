"""The first step for each request, before anything is declared, sent or written down.

A URL loses its user name and its password (``policy.urls.without_userinfo``): then they are in no
log, ledger, state, JOBDIR or queue. A request that is written to a queue names in its meta only
those further targets (``ALSO``) that have been declared already, and only those sitemap indexes
(``CHILDREN``) that may declare sitemaps (R6), and the cadence of its source (``REVISIT``).

How ``Spider.start`` is taken in:

- Scrapy's engine asks it for the next request again and again, and gives nothing else a turn while
  a request is under way. So after each slice of 10 ms the intake rests for as long, and the targets
  of the slice are written to the ledger together. The rest is long, so that the first request is
  sent at once: until then come the list, a robots.txt and their adoption, some hundred turns of the
  event loop, and with a slice before each turn they would take seconds.
- While enough requests wait (``policy.agenda.enough``), no further one is asked for. The queue
  drains meanwhile, and then the intake goes on: so the memory that it takes has a limit.
- Python's garbage collector looks at every request that waits, again and again: with 100,000 of
  them that takes most of a second, in which nothing else runs. So what is there after the first
  slice is exempt from then on (``gc.freeze``), and after each 2,000 requests garbage is collected
  and the rest is exempt, too. A request is in no cycle, so it is freed at its end as ever; what is
  in one is freed after the crawl.
- Before the first of them, and by slices too, the targets that an earlier run left in a JOBDIR are
  declared again. One of them that is given out sooner is declared then.
- A URL that is not declared may be yet, until ``start`` has ended (``Scope.growing``). A request
  for it waits in the queue, unless all stands still (:meth:`Intake.stalled`). What did not come
  from the queue waits in :meth:`Intake.ended`, and then the limit does not hold, because the queue
  may need its answer to drain. It could be ``start`` itself that waits for it, so it waits only as
  long as ``start`` goes on.
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

#: The key of ``Request.meta`` for the URLs that a start request declares beside its own.
ALSO: Final = "walsh_also"
#: The key for the cadence of all these, seconds or an ISO 8601 duration (R8).
REVISIT: Final = "walsh_revisit"
#: The key for those of them that are sitemap indexes and may declare sitemaps.
CHILDREN: Final = "walsh_children"
#: Seconds for which requests are taken in, and then for which the event loop goes on.
_SLICE: Final = 0.01
#: Requests that are taken in between two collections of garbage: some 15 ms each.
_FREEZE: Final = 2_000
#: Seconds between two looks at whether the queue has drained, or `start` has ended.
_LOOK: Final = 0.1
#: Seconds after which a `start` that yields nothing is not waited for any more.
_STALLED: Final = 5.0


class Intake:
    """The intake of one crawl."""

    def __init__(self, context: Context, tickets: Tickets, sources: Sources) -> None:
        self._context, self._tickets, self._sources = context, tickets, sources
        #: Whether a warning has named a URL with userinfo.
        self._told = False
        #: When the slice began, monotonic seconds; since when `start` owes its next request.
        self._began = 0.0
        self._owed: float | None = None
        #: How many were taken in; at how many the garbage collector is given less to look at.
        self._taken = self._exempt_at = 0
        #: How many requests wait in :meth:`ended`.
        self._waiters = 0
        #: The fingerprints of what `start` yields past the duplicate filter; and with its callback.
        self._pages, self._calls = Digests(), Digests()
        #: Whether no class of the project's has a `start`.
        self._is_scrapys = _starts_as_scrapy(context.crawler.spidercls)
        #: By fingerprint, whether it is that of a request that R6 has refused, and nothing since.
        self._refused = Digests()

    # -- Spider.start ---------------------------------------------------------------------

    async def taken_in(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """What *start* yields, by slices; at the end, nothing is declared any more (R6)."""
        context = self._context
        self._began = context.monotonic()
        try:
            await self._take_up()
            while context.halted is None and not compat.closing(context.crawler):
                self._owed = context.monotonic()
                try:
                    entry = await anext(start)
                except StopAsyncIteration:
                    break
                self._owed = None
                if compat.closing(context.crawler):
                    break
                yield entry
                self._taken += 1
                await self._give_way()
        except Exception as error:  # Scrapy would log it and go on without the rest
            if self._owed is None:  # it is not `start` that has raised it
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
        """Declare what earlier runs have left in the queues."""
        for queue in self._context.queues:
            for each in queue.earlier():
                self.restore(*each)
                await self._give_way()
                if compat.closing(self._context.crawler):  # and the JOBDIR with it
                    return

    async def _give_way(self) -> None:
        """At the end of a slice rest for as long, and wait while enough requests wait."""
        context = self._context
        if context.monotonic() - self._began < _SLICE:
            return
        context.recorder.flush()
        await compat.sleep(_SLICE)
        if self._taken >= self._exempt_at:
            if self._exempt_at:
                gc.collect()
            gc.freeze()
            self._exempt_at = self._taken + _FREEZE
        while self._full() and not compat.closing(context.crawler):
            await compat.sleep(_LOOK)
        self._began = context.monotonic()
        # Meanwhile the scheduler may have been empty. A `start` that waits to hear so hears it now,
        # and not at the engine's next heartbeat.
        compat.wake_engine(context.crawler)

    def close(self) -> None:
        """The crawl is over: what was exempt from the garbage collector's looks is so no more."""
        if self._exempt_at:
            gc.unfreeze()

    def _full(self) -> bool:
        return not self._waiters and any(enough(queue.load()) for queue in self._context.queues)

    def stalled(self) -> bool:
        """Whether `start` was asked for its next request a while ago, and has yielded none."""
        return self._owed is not None and self._context.monotonic() - self._owed > _STALLED

    async def ended(self) -> None:
        """Wait until `start` has ended: WALSH_PATIENCE at most, and while it goes on."""
        context, begun = self._context, self._context.monotonic()
        self._waiters += 1
        try:
            while context.scope.growing and not compat.closing(context.crawler):
                if self.stalled() or context.monotonic() - begun > context.config.patience:
                    return
                await compat.sleep(_LOOK)
        finally:
            self._waiters -= 1

    # -- Scrapy's duplicate filter --------------------------------------------------------
    #
    # It knows no request with dont_filter, which Scrapy's `start_urls` have.

    def note_start(self, request: Request) -> None:
        """Note *request*, which `start` yields, if the duplicate filter will not see it."""
        if request.dont_filter and not self._context.fleet:
            page = self._fingerprint(request)
            self._pages.add(page)
            if (call := _call(request, self._context.crawler.spider)) is not None:
                self._calls.add(f"{page} {call}")

    def is_repeated(self, request: Request) -> bool:
        """Whether `start` has yielded the page of *request* before, and only Scrapy's wrote it.

        Scrapy's own `start` has no duplicate filter. One page is one request (R7): only a `start`
        that a project has written may ask for it again.
        """
        if not (request.dont_filter and self._is_scrapys):
            return False
        return self._fingerprint(request) in self._pages

    def note_refused(self, request: Request) -> None:
        """Note that R6 has refused *request*: what declares it later is not its duplicate."""
        if not self._context.fleet:
            self._refused.add(self._fingerprint(request), 1)

    def is_duplicate(self, request: Request) -> bool | None:
        """Whether *request* repeats one of `start`'s; None if the duplicate filter knows.

        It repeats it if page, callback and the arguments of that are the same: any other is a
        request of its own, whose callback waits for its answer. A redirect's hop repeats it if its
        page is the same: what came of that page counts for what redirects there. What R6 refused
        before it was declared is no duplicate of that.
        """
        context, ticket = self._context, self._tickets.of(request)
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
        call = _call(request, context.crawler.spider)
        repeats = ticket.hop or (call is not None and f"{page} {call}" in self._calls)
        return repeats or None

    def _fingerprint(self, request: Request) -> str:
        fingerprinter: Any = self._context.crawler.request_fingerprinter
        return str(fingerprinter.fingerprint(request).hex())

    # -- one request ----------------------------------------------------------------------

    def url(self, url: str) -> str:
        """*url* without userinfo; the first one that has some is named in a warning."""
        if "@" not in url or (bare := without_userinfo(url)) == url:
            return url
        if not self._told:
            self._told = True
            logger.warning("a URL %s: %s", HAS_USERINFO, bare)
        return bare

    def request(self, request: Request) -> Request:
        """*request* itself, or a copy whose URL has no userinfo."""
        url = self.url(request.url)
        return request if url == request.url else request.replace(url=url)

    def declare(self, request: Request) -> None:
        """Take *request*, and what it declares beside its own URL, as targets (R6).

        For what `Spider.start` yields, and for what a JOBDIR or a fleet's queue has of earlier
        runs; not for anything that a callback makes.
        """
        indexes = set(self._urls_in(request, CHILDREN))
        if indexes and self._context.config.is_walsh_research:
            indexes.clear()  # it requests nothing that a document lists (R6)
        revisit = self.cadence_of(request)
        for url in (request.url, *self._urls_in(request, ALSO)):
            self._declare(url, children=url in indexes, revisit=revisit)

    def cadence_of(self, request: Request) -> float | None:
        """The cadence that the meta of *request* names; None, and a line, where it is unusable."""
        written = request.meta.get(REVISIT)
        try:
            return None if written is None else visits.cadence(written)
        except ValueError as error:
            logger.error("%s of %s is %s; WALSH_REVISIT holds", REVISIT, request.url, error)
            return None

    def resume(self, request: Request, source: str | None) -> None:
        """As :meth:`restore`, for a request that was queued there; with what it declares."""
        if source is not None:
            self.restore(request.url, source, self.cadence_of(request))
        if self._context.scope.is_source(request.url):
            self.declare(request)

    def restore(self, url: str, source: str, revisit: float | None) -> None:
        """Take *url* over from an earlier run or another worker, where it belonged to *source*.

        *revisit*: that target's cadence; None where WALSH_REVISIT holds.
        """
        context = self._context
        if revisit is not None or not context.scope.is_source(source):
            self._declare(source, revisit=revisit)
        if context.scope.source_of(url) is None:
            context.scope.declare_hop(url, source)
            context.recorder.declare(url=url, via=source)

    def _declare(self, url: str, *, children: bool = False, revisit: float | None = None) -> None:
        scope = self._context.scope
        new = scope.declare(url, revisit)
        if not new and (scope.allows_children(url) or not children):
            return
        if children:
            scope.allow_children(url)
        self._context.recorder.declare(url=url, children=children or None, revisit=revisit)

    def declare_child(self, url: str, index: str) -> str | None:
        """Take *url*, which the sitemap index *index* lists, as a target that *index* declares.

        Returns it as it is to be requested; None where R6 does not let it be declared
        (``Scope.declare_child``), or it is not a URL.
        """
        scope = self._context.scope
        try:
            url, index = Request(self.url(url)).url, Request(index).url
        except ValueError:
            return None
        known = scope.is_source(url)
        if not scope.declare_child(url, index):
            return None
        if not known:
            self._context.recorder.declare(url=url, by=index)
        return url

    def declare_hop(self, hop: Request, request: Request) -> None:
        """Take *hop*, to which *request* was redirected, as within scope (D5)."""
        context, ticket = self._context, self._tickets.of(hop)
        ticket.hop = True
        context.scope.declare_hop(hop.url, request.url)
        before = self._tickets.of(request)
        via = self._sources.hop(ticket.key, before)
        led = list(before.leads())
        self._tickets.keep(hop, ticket, {**ticket.lasting(), "via": via, "led": led})
        if context.scope.source_of(hop.url) is not None:
            context.recorder.note("declared", url=hop.url, via=request.url, form=ticket.form)

    def _urls_in(self, request: Request, key: str) -> Iterator[str]:
        """The URLs that *request* names under *key* of its meta, as Scrapy writes them."""
        named = request.meta.get(key, ())
        for url in named if isinstance(named, (list, tuple, set, frozenset)) else (named,):
            try:
                yield Request(self.url(url)).url
            except (TypeError, ValueError) as error:  # of what a spider wrote
                shown = str(url).rpartition("@")[2]
                logger.error("%s of %s: %r is not a URL: %s", key, request.url, shown, error)

    def kept(self, request: Request) -> dict[str, Any]:
        """*request* as a queue keeps it for another process, which declares what it names (R6).

        What HttpProxyMiddleware took from the environment is left out: the other process takes it
        from its own, and the proxy's password must not be written to a file or to Redis.
        """
        fields: dict[str, Any] = request.to_dict(spider=self._context.crawler.spider)
        meta: dict[str, Any] = dict(fields["meta"])
        scope = self._context.scope
        for key, known in ((ALSO, scope.is_source), (CHILDREN, scope.allows_children)):
            if key in meta:
                meta[key] = [url for url in self._urls_in(request, key) if known(url)]
        meta.pop(REVISIT, None)
        if (own := scope.cadence(scope.source_of(request.url) or "")) is not None:
            meta[REVISIT] = own
        meta.pop(TICKET, None)
        if lasting := lasting_of(request):
            meta[TICKET] = lasting
        if meta.pop("_scheme_proxy", False):
            meta.pop("proxy", None)
            meta.pop("_auth_proxy", None)
            fields["headers"].pop(b"Proxy-Authorization", None)  # of the copy
        return {**fields, "meta": meta}


def _starts_as_scrapy(spider: type[Spider]) -> bool:
    """Whether Scrapy's own `start` requests the ``start_urls`` of the class *spider*."""
    owners = [each for each in spider.__mro__ if vars(each).keys() & {"start", "start_requests"}]
    return all(each.__module__.partition(".")[0] in ("scrapy", "scrapy_walsh") for each in owners)


def _call(request: Request, spider: Spider | None) -> str | None:
    """Which method of *spider* gets the answer to *request*, and with which arguments, as text.

    None if it is no method of the spider, or an argument has no text of its own.
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
