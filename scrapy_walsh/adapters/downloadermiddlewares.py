"""The downloader middlewares. They call the parts of the crawl and carry their decisions out.

A request passes ``GateMiddleware`` (``gate.at_gate``), ``RevalidateMiddleware`` (R7) and the
handler (``gate.at_wire``, R1, R4, ``gate.after``). Its response passes ``BackoffMiddleware`` (R5),
``RevalidateMiddleware`` (304) and ``RedirectMiddleware``, and a hop begins at the gate again.
``downloader.Downloader`` records how the request ended for its spider.

Before 2.14, Scrapy also passes the spider to each method, in ``**_``.
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
    """Judges every request by ``policy/chain.py`` before it may go on."""

    def process_request(
        self, request: Request, **_: Any
    ) -> Awaitable[Request | None] | Request | None:
        """Let *request* pass, give it back to the queue (R4), or raise ``Refused``."""
        crawl = self.crawl
        ticket = crawl.tickets.of(request)
        if ticket.is_document:
            return None
        if "@" in request.url and (clean := crawl.intake.request(request)) is not request:
            return crawl.tickets.again(request, clean)
        return crawl.gate.at_gate(request, ticket)


class BackoffMiddleware(Seat):
    """Retries a failed request or gives it up, as ``gate.after`` has decided (R5)."""

    def process_response(
        self, request: Request, response: Response, **_: Any
    ) -> Request | Response:
        """Return the request to retry, or *response*. Raises ``GaveUp`` without retries left."""
        outcome = self._apply_backoff(request, response.status)
        if isinstance(outcome, GaveUp):
            raise outcome
        return outcome or response

    def process_exception(self, request: Request, exception: Exception, **_: Any) -> Request | None:
        """Return the request to retry after an error of the network; None passes the error on.

        Raises GaveUp, or BodyTooLarge if the exchange was broken off because of its size.
        """
        if (
            isinstance(exception, compat.OVER_LIMIT)
            and not self.crawl.tickets.of(request).is_document
        ):
            reason = f"refused as too large: {exception}"
            logger.error("%s is not read: %s", request.url, reason)
            raise BodyTooLarge(request.url, reason) from exception
        outcome = self._apply_backoff(request, None, faults.no_answer(exception))
        if isinstance(outcome, GaveUp):
            raise outcome
        return outcome

    def _apply_backoff(
        self, request: Request, status: int | None, error: NoAnswer | None = None
    ) -> Request | GaveUp | None:
        """Apply R5's decision on the last exchange: return a retry, GaveUp, or None."""
        crawl = self.crawl
        ticket = self.crawl.tickets.of(request)
        failure = None if ticket.is_document else ticket.failure
        if failure is None:
            return None
        ticket.failure = None
        trial = ticket.trial
        reason = crawl.pacing.tell_failure(request.url, failure, status, error, trial=trial)
        if isinstance(failure, Retry):
            crawl.retries.retry(ticket.key)
            return crawl.tickets.again(request)
        crawl.retries.give_up(ticket.key)
        return GaveUp(request.url, reason, status)


#: Scrapy's default Accept field. With it, the spider has not asked for a format.
_SCRAPYS_ACCEPT: Final = default_settings.DEFAULT_REQUEST_HEADERS["Accept"].encode("latin-1")


class RevalidateMiddleware(Seat):
    """Sends stored validators, and stores new ones by URL and representation (R7, T20).

    It also sets the Accept field, which names the representation and prefers markdown (R9.2).
    """

    def process_request(self, request: Request, **_: Any) -> None:
        """Add If-None-Match and If-Modified-Since, unless the spider has set one of them."""
        if request.method != "GET" or self.crawl.tickets.of(request).is_document:
            return
        accept = request.headers.get("Accept")
        if accept in (None, _SCRAPYS_ACCEPT) and not self.crawl.config.scraping:
            request.headers["Accept"] = ACCEPT_PAGE
        if is_conditional(request):
            return
        record = self.crawl.delivery.stored(request)
        if record is not None:
            fields = validators.conditional_headers(record.etag, record.last_modified)
            request.headers.update({name: fields[name].encode("latin-1") for name in fields})

    def process_response(self, request: Request, response: Response, **_: Any) -> Response:
        """Note the validators of a 200, and return it. Raises ``NotModified`` for a 304."""
        ticket = self.crawl.tickets.of(request)
        # Without a status, a middleware has answered.
        if ticket.is_document or ticket.status is None:
            return response
        if response.status == NOT_MODIFIED and is_conditional(request):
            hints = self.crawl.sources.hear(request, response)
            self.crawl.gate.tell(events.NOT_MODIFIED, ticket, 304, "304, no new data", hints=hints)
            self.crawl.sources.taken((request,))
            self.crawl.sources.ended(request, readings.Result(readings.READ))
            record = self.crawl.delivery.stored(request)
            content_type = header(response, "Content-Type")
            raise NotModified(
                request.url, content_type or (record.content_type if record else None)
            )
        if validators.replaces_validators(request.method, response.status):
            # If it was not conditional, no validators were stored when it was sent.
            anew = is_conditional(request)
            queued = ticket.popped
            new_record = self._validators_of(request, response, ticket)
            self.crawl.delivery.answered(request, new_record, anew=anew, queued=queued)
        return response

    def _validators_of(
        self, request: Request, response: Response, ticket: Ticket
    ) -> Validators | None:
        """Return the validators of *response* to store, or None."""
        if not any(name in response.headers for name in ("ETag", "Last-Modified")):
            return None
        url, accept, spider = self.crawl.delivery.key_of(request)
        record = Validators(
            url,
            accept,
            header(response, "ETag"),
            header(response, "Last-Modified"),
            self.crawl.wall(),
            header(response, "Content-Type"),
            validators.lifetime(self.crawl.sources.interval(ticket)),
            spider,
        )
        return validators.to_store(record, header(response, "Date"))


class RedirectMiddleware(ScrapyRedirectMiddleware):
    """Follows redirects. A hop of a declared target is in scope, and passes the gates (D5)."""

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
        """Return the request for the next hop, or *response*. Raises ``TooManyRedirects``."""
        if self.crawl.tickets.of(request).status is None:
            return response  # a middleware of the project has answered, not a site
        arguments = () if spider is None else (spider,)
        try:
            result: Request | Response = super().process_response(request, response, *arguments)
        except IgnoreRequest:
            raise self._record_too_many(request, response.status) from None
        if result is response and self._is_for_spider(request, response.status):
            ticket = self.crawl.tickets.of(request)
            self.crawl.sources.answered(request, ticket, response.status, self.crawl.wall())
        if isinstance(result, Request):
            result.meta.pop(TRY_HTTPS, None)  # a host that redirects has answered
            self.crawl.intake.declare_hop(result, request)
            ticket = self.crawl.tickets.of(request)
            hop = self.crawl.tickets.of(result)
            visited = {canonical_url(url) for url in result.meta.get("redirect_urls", ())}
            not_sent = self.crawl.sources.not_sent(hop.key, ticket)
            # R7's de-duplication takes "/a" and "/a/" for one URL, but a redirect from one to the
            # other is not a duplicate. Nor is one to a source that R8 has refused, or back to one
            # that led here.
            hop.revisits = canonical_url(result.url) in visited or not_sent
            # The validators belong to the page that redirects.
            for name in ("If-None-Match", "If-Modified-Since"):
                result.headers.pop(name, None)
        return result

    def _is_for_spider(self, request: Request, status: int) -> bool:
        """Whether the spider wants this redirect as its answer."""
        if status not in REDIRECTS:
            return False
        meta = request.meta
        spider = self.crawl.crawler.spider
        if meta.get("dont_redirect") or meta.get("handle_httpstatus_all"):
            return True
        statuses = meta.get("handle_httpstatus_list") or ()
        return status in statuses or status in getattr(spider, "handle_httpstatus_list", ())

    def _record_too_many(self, request: Request, status: int) -> TooManyRedirects:
        """Record one redirect too many for *request*. Returns the error to raise."""
        followed = request.meta.get("redirect_urls") or []
        first_url = str(followed[0] if followed else request.url).partition("?")[0]
        reason = (
            f"HTTP {status} after {len(followed)} redirects from {first_url}, no more are followed"
        )
        ticket = self.crawl.tickets.of(request)
        self.crawl.gate.tell(events.TOO_MANY_REDIRECTS, ticket, status, reason, requirement="D5")
        return TooManyRedirects(request.url, reason, status)
