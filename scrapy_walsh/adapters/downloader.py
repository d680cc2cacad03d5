"""R4: Scrapy's downloader, in which requests that wait for their host take up no place.

CONCURRENT_REQUESTS is 1, and a request that waits at the turnstile must not keep others from being
sent. The downloader is around all its middlewares: it sees how a request ends for its spider, and
what a middleware gives in its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy import Request
from scrapy.core.downloader import Downloader as ScrapyDownloader
from twisted.python.failure import Failure

from scrapy_walsh.adapters import compat, faults
from scrapy_walsh.adapters.crawl import Crawl
from scrapy_walsh.adapters.outcomes import Closing, GaveUp, NotYet, Refused
from scrapy_walsh.adapters.turnstile import TURNSTILE

if TYPE_CHECKING:
    from scrapy import Spider
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
        return fetched.addCallback(self._look_at, request).addBoth(self._tell_end, request)

    def _look_at(self, result: Response | Request, request: Request) -> Response | Request:
        """*result*; raises for a request that must not take the place of *request*.

        OwnFault for another in the place of a document's: it would wait for that document for ever.
        Refused for another host's in the place of a target.
        """
        crawl = self._crawl
        if not isinstance(result, Request):
            return result
        if crawl.fetcher.owns(request):
            if not crawl.fetcher.owns(result):
                raise faults.before_wire(None)
        elif result not in crawl.intake.hops:
            try:
                crawl.gate.stop_elsewhere(request.url, result.url)
            except Refused as error:
                crawl.sources.failed(request, error)
                raise
        return result

    def _tell_end(self, result: Any, request: Request) -> Any:
        if not (isinstance(result, Request) or self._crawl.fetcher.owns(request)):
            outcome: Any = result.value if isinstance(result, Failure) else result
            self._crawl.gate.over(request, outcome)
        return result

    def _process_outcome(
        self,
        request: Request,
        exception: Exception,
        spider: Spider | None = None,  # noqa: ARG002
    ) -> Request | None:
        """What a gate decided ends here: no middleware takes it for an error of the network.

        So it is not in ``downloader/exception_count``, and nothing of another project retries it.
        """
        crawl = self._crawl
        if isinstance(exception, Closing):
            return crawl.pacing.keep(request)
        if isinstance(exception, NotYet) and not crawl.fetcher.owns(request):
            return crawl.pacing.again(request)
        if isinstance(exception, (NotYet, Refused, GaveUp)):
            crawl.sources.failed(request, exception)
            raise exception
        if not crawl.fetcher.owns(request) and (fault := faults.of_machine(exception)) is not None:
            crawl.recorder.own_fault(f"{request.url} could not be requested: {fault}", fault.cause)
        return None

    def get_slot_key(self, request: Request) -> str:
        """The host of *request*, whatever ``download_slot`` is in a copied meta."""
        if self._crawl.fetcher.owns(request):
            return str(request.meta[self.DOWNLOAD_SLOT])
        return self._crawl.pacing.look_up(request.url)

    def needs_backout(self) -> bool:
        """Whether the queue must wait: its last request has not ended, or no turn is free."""
        popped: set[Any] = set(self._crawl.pacing.popped)
        if popped & self.active:
            return True
        self._crawl.pacing.popped.clear()
        return TURNSTILE.taken()
