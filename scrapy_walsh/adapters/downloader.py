"""R4: Scrapy's downloader, in which requests that wait for their host take up no place.

CONCURRENT_REQUESTS is 1, and a request that waits at the turnstile must not keep others from being
sent. The downloader is around all its middlewares: it sees how a request ends for its spider, and
what a middleware gives in its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy.core.downloader import Downloader as ScrapyDownloader
from twisted.python.failure import Failure

from scrapy_walsh.adapters import compat, faults
from scrapy_walsh.adapters.crawl import Crawl
from scrapy_walsh.adapters.outcomes import Closing, GaveUp, NotYet, Refused
from scrapy_walsh.adapters.ticket import TICKET, Ticket
from scrapy_walsh.adapters.turnstile import TURNSTILE

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from twisted.internet.defer import Deferred


class Downloader(ScrapyDownloader):
    """As Scrapy's, but the turnstile decides whether the queue may give out a request."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._crawl = Crawl.of(crawler)
        compat.hear_exceptions_first(self, self._process_outcome)

    def fetch(self, request: Request, *args: Any) -> Deferred[Response | Request]:
        """As Scrapy's; then record how *request* ended. *args*: the spider, before 2.14."""
        fetched: Deferred[Response | Request] = super().fetch(request, *args)
        return fetched.addBoth(self._over, request)

    def _over(self, result: Any, request: Request) -> Any:
        outcome: Any = result.value if isinstance(result, Failure) else result
        try:
            self._crawl.gate.over(request, outcome)
        except Refused as error:
            self._crawl.sources.failed(request, error)
            raise
        return result

    def _process_outcome(self, request: Request, exception: Exception, **_: Any) -> Request | None:
        """What a gate decided ends here: no middleware takes it for an error of the network.

        So it is not in ``downloader/exception_count``, and nothing of another project retries it.
        """
        crawl = self._crawl
        if isinstance(exception, Closing):
            return crawl.tickets.keep(request)
        ours = crawl.tickets.of(request).ours
        if isinstance(exception, NotYet) and not ours:
            return crawl.tickets.again(request)
        if isinstance(exception, (NotYet, Refused, GaveUp)):
            crawl.sources.failed(request, exception)
            raise exception
        if not ours and (fault := faults.of_machine(exception)) is not None:
            crawl.recorder.own_fault(f"{request.url} could not be requested: {fault}", fault.cause)
        return None

    def get_slot_key(self, request: Request) -> str:
        """The host of *request*, whatever ``download_slot`` is in a copied meta."""
        ticket = self._crawl.tickets.of(request)
        return str(request.meta[self.DOWNLOAD_SLOT]) if ticket.ours else ticket.host

    def needs_backout(self) -> bool:
        """Whether the queue must wait: its last request has not ended, or no turn is free."""
        for request in self.active:
            ticket = request.meta.get(TICKET)
            if isinstance(ticket, Ticket) and ticket.popped:
                return True
        return TURNSTILE.taken()
