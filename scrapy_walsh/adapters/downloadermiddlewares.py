"""The downloader middlewares: each one calls the parts of the crawl, and does what they answer.

One request's way: ``GateMiddleware`` (``gate.at_gate``), ``RevalidateMiddleware`` (R7), the handler
(``gate.at_wire``, R1, R4, ``gate.after``), and back: ``BackoffMiddleware`` (R5),
``RevalidateMiddleware`` (304), ``RedirectMiddleware`` (each hop starts again at the gate). How the
request has ended for its spider, ``downloader.Downloader`` records.

``**_`` of a method: the spider, which Scrapy names before 2.14.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from scrapy.downloadermiddlewares.redirect import RedirectMiddleware as ScrapyRedirectMiddleware
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Request, Response
from scrapy.settings import default_settings

from scrapy_walsh.adapters import compat
from scrapy_walsh.adapters.crawl import Crawl, Seat
from scrapy_walsh.adapters.documents import faults
from scrapy_walsh.adapters.events import logger
from scrapy_walsh.adapters.outcomes import BodyTooLarge, GaveUp, NotModified, TooManyRedirects
from scrapy_walsh.adapters.ticket import TRY_HTTPS, is_conditional
from scrapy_walsh.policy import event as events
from scrapy_walsh.policy import readings, validators
from scrapy_walsh.policy.backoff import REDIRECTS, Retry
from scrapy_walsh.policy.formats.representation import ACCEPT_PAGE, header
from scrapy_walsh.policy.urls import canonical_url
from scrapy_walsh.policy.visits import NOT_MODIFIED
from scrapy_walsh.state.records import Validators

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from scrapy.crawler import Crawler

    from scrapy_walsh.adapters.ticket import Ticket
    from scrapy_walsh.policy.backoff import NoAnswer


class GateMiddleware(Seat):
    """Every request passes ``policy/chain.py`` here before it may go on."""

    def process_request(
        self, request: Request, **_: Any
    ) -> Awaitable[Request | None] | Request | None:
        """Let *request* pass, give it back to the queue (R4), or raise ``Refused``."""
        crawl = self.crawl
        ticket = crawl.tickets.of(request)
        if ticket.ours:
            return None
        if "@" in request.url and (clean := crawl.intake.request(request)) is not request:
            return crawl.tickets.again(request, clean)
        return crawl.gate.at_gate(request, ticket)


class BackoffMiddleware(Seat):
    """R5: a request that failed, as ``gate.after`` concluded, is sent again later or given up."""

    def process_response(
        self, request: Request, response: Response, **_: Any
    ) -> Request | Response:
        """The request to send again, or *response*; raises ``GaveUp`` in place of a failure."""
        follows = self._follows(request, response.status)
        if isinstance(follows, GaveUp):
            raise follows
        return follows or response

    def process_exception(self, request: Request, exception: Exception, **_: Any) -> Request | None:
        """The request to send again after a transport error; None lets the error go on.

        Raises GaveUp, and BodyTooLarge where that is why the transport was broken off.
        """
        if isinstance(exception, compat.OVER_LIMIT) and not self.crawl.tickets.of(request).ours:
            reason = f"refused as too large: {exception}"
            logger.error("%s is not read: %s", request.url, reason)
            raise BodyTooLarge(request.url, reason) from exception
        follows = self._follows(request, None, faults.no_answer(exception))
        if isinstance(follows, GaveUp):
            raise follows
        return follows

    def _follows(
        self, request: Request, status: int | None, error: NoAnswer | None = None
    ) -> Request | GaveUp | None:
        """What R5 has decided on the exchange that has ended; None for nothing."""
        crawl, ticket = self.crawl, self.crawl.tickets.of(request)
        failure = None if ticket.ours else ticket.failure
        if failure is None:
            return None
        ticket.failure = None
        trial = ticket.trial
        why = crawl.pacing.tell_failure(request.url, failure, status, error, trial=trial)
        if isinstance(failure, Retry):
            crawl.retries.retry(ticket.key)
            return crawl.tickets.again(request)
        crawl.retries.give_up(ticket.key)
        return GaveUp(request.url, why, status)


#: Scrapy's default Accept field: the spider has not said which format it wants.
_SCRAPYS_ACCEPT: Final = default_settings.DEFAULT_REQUEST_HEADERS["Accept"].encode("latin-1")


class RevalidateMiddleware(Seat):
    """R7: sends stored validators, and has new ones stored by URL and representation (T20).

    R9.2 is done here too, since the Accept field names the representation: it prefers markdown.
    """

    def process_request(self, request: Request, **_: Any) -> None:
        """Add If-None-Match and If-Modified-Since, unless the spider has set one of them."""
        if request.method != "GET" or self.crawl.tickets.of(request).ours:
            return
        accept = request.headers.get("Accept")
        if accept in (None, _SCRAPYS_ACCEPT) and not self.crawl.config.scraping:
            request.headers["Accept"] = ACCEPT_PAGE
        if is_conditional(request):
            return
        held = self.crawl.delivery.stored(request)
        if held is not None:
            fields = validators.conditional_headers(held.etag, held.last_modified)
            request.headers.update({name: fields[name].encode("latin-1") for name in fields})

    def process_response(self, request: Request, response: Response, **_: Any) -> Response:
        """*response*; raises ``NotModified`` for a 304. A 200 replaces the validators."""
        ticket = self.crawl.tickets.of(request)
        if ticket.ours or ticket.status is None:  # or a middleware of the project has answered
            return response
        if response.status == NOT_MODIFIED and is_conditional(request):
            self.crawl.gate.tell(events.NOT_MODIFIED, ticket, 304, "304, no new data")
            self.crawl.sources.taken((request,))
            self.crawl.sources.ended(request, readings.Result(readings.READ))
            held = self.crawl.delivery.stored(request)
            content_type = header(response, "Content-Type")
            raise NotModified(request.url, content_type or (held.content_type if held else None))
        if validators.replaces_validators(request.method, response.status):
            # If it was not conditional, no validators were stored when it was sent.
            anew, queued = is_conditional(request), ticket.popped
            kept = self._validators(request, response, ticket)
            self.crawl.delivery.answered(request, kept, anew=anew, queued=queued)
        return response

    def _validators(
        self, request: Request, response: Response, ticket: Ticket
    ) -> Validators | None:
        """The validators of *response* that are to be stored, if it has any."""
        if not any(name in response.headers for name in ("ETag", "Last-Modified")):
            return None
        url, accept, spider = self.crawl.delivery.key_of(request)
        answered = Validators(
            url,
            accept,
            header(response, "ETag"),
            header(response, "Last-Modified"),
            self.crawl.wall(),
            header(response, "Content-Type"),
            validators.lifetime(self.crawl.sources.interval(ticket)),
            spider,
        )
        return validators.to_store(answered, header(response, "Date"))


class RedirectMiddleware(ScrapyRedirectMiddleware):
    """D5: a hop of a declared target is within scope; the gates then see it like any other."""

    crawl: Crawl

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Any:
        """Make the seat."""
        seat = super().from_crawler(crawler)
        seat.crawl = Crawl.of(crawler)
        return seat

    def process_response(
        self, request: Request, response: Response, spider: Any = None
    ) -> Request | Response:
        """The request to the next hop, now within scope, or *response*; ``TooManyRedirects``."""
        if self.crawl.tickets.of(request).status is None:
            return response  # no site has redirected there: a middleware of the project says so
        arguments = () if spider is None else (spider,)
        try:
            result: Request | Response = super().process_response(request, response, *arguments)
        except IgnoreRequest:
            raise self._too_many(request, response.status) from None
        if result is response and self._is_for_spider(request, response.status):
            ticket = self.crawl.tickets.of(request)
            self.crawl.sources.answered(request, ticket, str(response.status), self.crawl.wall())
        if isinstance(result, Request):
            result.meta.pop(TRY_HTTPS, None)  # a host that redirects has answered
            self.crawl.intake.declare_hop(result, request)
            ticket, hop = self.crawl.tickets.of(request), self.crawl.tickets.of(result)
            visited = {canonical_url(url) for url in result.meta.get("redirect_urls", ())}
            not_sent = self.crawl.sources.not_sent(hop.key, ticket)
            # R7's de-duplication takes "/a" and "/a/" for one URL, but a redirect from one to the
            # other is not a duplicate. Nor is one to a source that R8 has refused, or back to one
            # that led here.
            hop.revisits = canonical_url(result.url) in visited or not_sent
            for name in ("If-None-Match", "If-Modified-Since"):
                result.headers.pop(name, None)  # of the page that redirects
        return result

    def _is_for_spider(self, request: Request, status: int) -> bool:
        """Whether *status* is that of a redirect that the spider wants as its answer."""
        if status not in REDIRECTS:
            return False
        meta, spider = request.meta, self.crawl.crawler.spider
        if meta.get("dont_redirect") or meta.get("handle_httpstatus_all"):
            return True
        wanted = meta.get("handle_httpstatus_list") or ()
        return status in wanted or status in getattr(spider, "handle_httpstatus_list", ())

    def _too_many(self, request: Request, status: int) -> TooManyRedirects:
        """Record that *request* was redirected once more than the limit; the error to raise."""
        followed = request.meta.get("redirect_urls") or []
        first = str(followed[0] if followed else request.url).partition("?")[0]
        why = f"HTTP {status} after {len(followed)} redirects from {first}, no more are followed"
        ticket = self.crawl.tickets.of(request)
        self.crawl.gate.tell(events.TOO_MANY_REDIRECTS, ticket, status, why, requirement="D5")
        return TooManyRedirects(request.url, why, status)
