"""R4: AutoThrottle may only slow a host down, never below max(1 s, Crawl-delay)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from scrapy.extensions.throttle import AutoThrottle as ScrapyAutoThrottle

from scrapy_walsh.adapters.crawl import Crawl

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response

#: The name under which the throttle has AutoThrottle's delays, beside a host's Crawl-delay.
_SOURCE: Final = "autothrottle"


class AutoThrottle(ScrapyAutoThrottle):
    """Scrapy's AutoThrottle; what it learns is one of the host's intervals, of which the largest
    counts.
    """

    def _response_downloaded(self, response: Response, request: Request, spider: Any) -> None:
        super()._response_downloaded(response, request, spider)
        _, slot = self._get_slot(request, spider)
        if slot is not None and not request.meta.get("autothrottle_dont_adjust_delay"):
            # Not before: DotScrapy, an extension too, must have restored the state.
            traffic = Crawl.of(self.crawler).pacing.host_of(request.url).traffic
            traffic.set_interval(slot.delay, source=_SOURCE)
