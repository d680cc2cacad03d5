"""The spider middleware: what a spider declares, and what reaches it (R6, R5.8)."""

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
    """R6: what ``Spider.start`` yields is declared, and nothing else.

    R5.8: no 429 or 503 reaches a spider.
    """

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """*start*, by slices, its requests noted as declared targets.

        Without those that an earlier run of the job has left in its JOBDIR: they are sent once,
        though `start` names them again, and with dont_filter, which Scrapy's `start_urls` have.
        """
        async for entry in self.crawl.intake.taken_in(start):
            taken = self._taken(entry)
            if not isinstance(taken, Request) or self._declared(taken):
                yield taken

    def _declared(self, request: Request) -> bool:
        """Note *request* as a declared target; False if it is not to be sent (again).

        An earlier run may have left it, or it repeats another of the ``start_urls``.
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
        """*result*; at its end, note that the spider has taken *response* (R7, R8)."""
        for each in result:
            yield self._taken(each, response)
        self._ended(response)

    async def process_spider_output_async(
        self, response: Response, result: AsyncIterator[Any], **_: Any
    ) -> AsyncIterator[Any]:
        """As :meth:`process_spider_output`."""
        async for each in result:
            yield self._taken(each, response)
        self._ended(response)

    def _ended(self, response: Response) -> None:
        if response.request is not None:
            try:
                self.crawl.delivery.taken(response.request)
                self.crawl.sources.taken((response.request,))
            except Exception as error:
                self.crawl.fail(error)
                raise

    def _taken(self, entry: Any, response: Response | None = None) -> Any:
        """*entry* as the crawl takes it; *response*: what led its spider to it, if any did."""
        if not isinstance(entry, Request):
            return entry
        tickets = self.crawl.tickets
        leads = None
        if response is not None and response.request is not None:
            leads = tickets.of(response.request).leads()
        tickets.forget(entry)  # a spider that copies meta makes another request
        request = self.crawl.intake.request(entry) if "@" in entry.url else entry
        if leads is not None:
            tickets.keep(request, tickets.of(request), {"led": list(leads)})
        if response is not None and response.request is not None:
            self.crawl.delivery.asks(response.request, request)
        return request

    def process_spider_input(self, response: Response, **_: Any) -> None:
        """Note *response* as read or not; raise ``GaveUp`` for 429 and 5xx (R5.8)."""
        try:
            self.crawl.sources.reached(response)
        except Exception as error:
            self.crawl.fail(error)
            raise
        if is_failure(response.status):
            raise GaveUp(response.url, f"status {response.status}", response.status)
