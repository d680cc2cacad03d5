"""The first step for each request, before anything is declared, sent or written down.

A URL loses its user name and its password (``policy.urls.without_userinfo``): then they are in no
log, ledger, state, JOBDIR or queue. A request that is written to a queue names in its meta only
those further targets (``ALSO``) that have been declared already, and only those sitemap indexes
(``CHILDREN``) that may declare sitemaps (R6).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from scrapy import Request

from scrapy_walsh.adapters.asked import VIA, form_of
from scrapy_walsh.adapters.events import logger
from scrapy_walsh.policy import hosts
from scrapy_walsh.policy.urls import without_userinfo

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy.http import Response

    from scrapy_walsh.adapters.asked import Asked
    from scrapy_walsh.adapters.context import Context

#: The key of ``Request.meta`` for the URLs that a start request declares beside its own.
ALSO: Final = "walsh_also"
#: The key for those of them that are sitemap indexes and may declare sitemaps.
CHILDREN: Final = "walsh_children"
#: The most hosts that get a warning.
_HOSTS_NAMED: Final = 100
_REMEDY: Final = (
    "it is not used: give a target's credentials by Scrapy's http_user, http_pass and "
    "http_auth_domain"
)


class Intake:
    """The intake of one crawl."""

    def __init__(self, context: Context, asked: Asked) -> None:
        self._context = context
        self._asked = asked
        self._named: set[str] = set()
        #: Requests to which a declared target, or a document of ours, was redirected.
        self.hops: WeakSet[Request] = WeakSet()
        for name in context.config.with_userinfo:
            logger.warning("%s holds a user name or a password; %s", name, _REMEDY)

    def url(self, url: str) -> str:
        """*url* without userinfo; each host is named once in a warning."""
        if "@" not in url or (bare := without_userinfo(url)) == url:
            return url
        try:
            host = hosts.host_of(bare)
        except ValueError:
            host = "a URL without a readable host"
        if host not in self._named and len(self._named) < _HOSTS_NAMED:
            self._named.add(host)
            logger.warning("a URL of %s holds a user name or a password; %s", host, _REMEDY)
        return bare

    def request(self, request: Request) -> Request:
        """*request* itself, or a copy whose URL has no userinfo."""
        url = self.url(request.url)
        return request if url == request.url else request.replace(url=url)

    def answer(self, response: Response) -> Response:
        """*response*, with the userinfo taken off its Location, before a redirect reads it."""
        location = response.headers.get("Location")
        if location is not None and b"@" in location:
            response.headers["Location"] = self.url(location.decode("latin-1")).encode("latin-1")
        return response

    def declare(self, request: Request) -> None:
        """Take *request*, and what it declares beside its own URL, as targets (R6).

        For what `Spider.start` yields, and for what a JOBDIR or a fleet's queue has of earlier
        runs; not for anything that a callback makes.
        """
        indexes = set(self._urls_in(request, CHILDREN))
        for url in (request.url, *self._urls_in(request, ALSO)):
            self._declare(url, children=url in indexes)

    def _declare(self, url: str, *, children: bool) -> None:
        scope, more = self._context.scope, {"children": True} if children else {}
        if scope.is_source(url) and (scope.allows_children(url) or not children):
            return
        scope.declare(url)
        if children:
            scope.allow_children(url)
        self._context.recorder.note("declared", url=url, **more)

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
            self._context.recorder.note("declared", url=url, by=index)
        return url

    def declare_hop(self, hop: Request, request: Request) -> None:
        """Take *hop*, to which *request* was redirected, as within scope (D5)."""
        context, form = self._context, form_of(hop)
        self.hops.add(hop)
        context.scope.declare_hop(hop.url, request.url)
        hop.meta[VIA] = self._asked.hop(hop.url, request, form)
        if context.scope.source_of(hop.url) is not None:
            told = {"form": form} if form else {}
            context.recorder.note("declared", url=hop.url, via=request.url, **told)

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
        if meta.pop("_scheme_proxy", False):
            meta.pop("proxy", None)
            meta.pop("_auth_proxy", None)
            headers = dict(fields["headers"])
            headers.pop(b"Proxy-Authorization", None)
            fields["headers"] = headers
        return {**fields, "meta": meta}
