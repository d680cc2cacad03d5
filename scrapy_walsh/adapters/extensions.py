"""AutoThrottle, which may only slow a host down, never below max(1 s, Crawl-delay) (R4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from scrapy import signals
from scrapy.extensions.throttle import AutoThrottle as ScrapyAutoThrottle

from scrapy_walsh.adapters import seats
from scrapy_walsh.adapters.crawl import Crawl

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from scrapy.http import Request, Response

    from scrapy_walsh.policy.host import Traffic

#: The source of AutoThrottle's delays among the intervals of a host.
_SOURCE: Final = "autothrottle"


class AutoThrottle(ScrapyAutoThrottle):
    """Scrapy's AutoThrottle with a minimum. Its delay becomes part of the host's interval."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Any:
        """Create the seat. Scrapy leaves it out without AUTOTHROTTLE_ENABLED."""
        seats.check(crawler)
        return super().from_crawler(crawler)

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        crawler.signals.connect(self._reached, signal=signals.request_reached_downloader)

    def _traffic(self, request: Request) -> Traffic:
        # The crawl is created at first use, because DotScrapy, also an extension, must restore the
        # state before.
        return Crawl.of(self.crawler).pacing.host_of(request.url).traffic

    def _response_downloaded(self, response: Response, request: Request, spider: Any) -> None:
        self._request = request  # the response does not have it yet
        super()._response_downloaded(response, request, spider)

    def _adjust_delay(self, slot: Any, latency: float, response: Response) -> None:
        """As Scrapy's, with the minimum, before AUTOTHROTTLE_DEBUG prints the delay."""
        super()._adjust_delay(slot, latency, response)
        traffic = self._traffic(self._request)
        traffic.set_interval(0.0, source=_SOURCE)
        slot.delay = max(slot.delay, traffic.interval)
        traffic.set_interval(slot.delay, source=_SOURCE)

    def _reached(self, request: Request, spider: Any) -> None:
        """Set the minimum of a slot again, because Scrapy deletes idle slots with their delay."""
        _, slot = self._get_slot(request, spider)
        if slot is not None:
            slot.delay = max(slot.delay, self._traffic(request).interval)
