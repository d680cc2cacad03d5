"""The spider middleware. It declares targets, and checks responses for the spider (R6, R5.8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy.http import Request, Response

from scrapy_walsh.adapters import compat
from scrapy_walsh.adapters.crawl import Seat
from scrapy_walsh.adapters.outcomes import GaveUp
from scrapy_walsh.policy.backoff import is_failure

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator


class ScopeMiddleware(Seat):
    """Declares the requests of ``Spider.start``, and no others (R6).

    It lets no 429 or 503 reach a spider (R5.8).
    """

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Declare the requests of *start* as targets, and yield them in slices.

        If an earlier run of the job left a request in its JOBDIR, `start` yields it again, perhaps
        with dont_filter. Such a request is dropped here, so that it is sent only once.
        """
        async for entry in self.crawl.intake.taken_in(start):
            output = self._take_in(entry)
            if not isinstance(output, Request) or self._declare(output):
                yield output

    def _declare(self, request: Request) -> bool:
        """Declare *request* as a target. Returns whether to yield it.

        It is not yielded if an earlier run has left it, or if it repeats another of the
        ``start_urls``.
        """
        try:
            self.crawl.intake.declare(request)
            if self.crawl.intake.is_repeated(request):
                compat.note_duplicate(self.crawl.crawler, request)
                return False
            self.crawl.sources.declare(request)
            self.crawl.intake.note_start(request)
            return not any(queue.stands_for(request) for queue in self.crawl.queues)
        except Exception as error:  # Scrapy would log it and go on
            self.crawl.fail(error)
            raise

    def process_spider_output(
        self, response: Response, result: Iterable[Any], **_: Any
    ) -> Iterator[Any]:
        """Yield *result*. At its end, note that the spider has taken *response* (R7, R8)."""
        for entry in result:
            yield self._take_in(entry, response)
        self._note_taken(response)

    async def process_spider_output_async(
        self, response: Response, result: AsyncIterator[Any], **_: Any
    ) -> AsyncIterator[Any]:
        """Do the same as :meth:`process_spider_output`."""
        async for entry in result:
            yield self._take_in(entry, response)
        self._note_taken(response)

    def _note_taken(self, response: Response) -> None:
        if response.request is not None:
            try:
                self.crawl.delivery.taken(response.request)
                self.crawl.sources.taken((response.request,))
            except Exception as error:
                self.crawl.fail(error)
                raise

    def _take_in(self, entry: Any, response: Response | None = None) -> Any:
        """Return *entry* for the crawl, without userinfo and with a new ticket if it is a request.

        *response*: the response of its callback, if it comes from one.
        """
        if not isinstance(entry, Request):
            return entry
        tickets = self.crawl.tickets
        leads = None
        if response is not None and response.request is not None:
            leads = tickets.of(response.request).leads()
        tickets.forget(entry)  # a spider may have copied the meta of another request
        request = self.crawl.intake.request(entry) if "@" in entry.url else entry
        if leads is not None:
            tickets.keep(request, tickets.of(request), {"led": list(leads)})
        if response is not None and response.request is not None:
            self.crawl.delivery.asks(response.request, request)
        return request

    def process_spider_input(self, response: Response, **_: Any) -> None:
        """Note whether *response* is read. Raises ``GaveUp`` for 429 and 5xx (R5.8)."""
        try:
            self.crawl.sources.reached(response)
        except Exception as error:
            self.crawl.fail(error)
            raise
        if is_failure(response.status):
            raise GaveUp(response.url, f"status {response.status}", response.status)
