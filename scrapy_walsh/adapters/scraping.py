"""R9.1: HTML is not scraped: what happens when a spider makes a selector of a page (D15).

Under walsh-research that raises an error. Under an identity of one's own there is one warning a
run, unless ``WALSH_SCRAPING`` says that it is meant. In ``scrapy shell`` a person looks at a page,
which is not scraping. Selectors for feeds and other XML work as ever. Responses are recognised by
their request, so copies of them, and other classes, are noticed too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy.http import HtmlResponse

from scrapy_walsh.adapters import compat
from scrapy_walsh.adapters.events import logger
from scrapy_walsh.adapters.ticket import TICKET, Ticket
from scrapy_walsh.exceptions import ScrapingRefused
from scrapy_walsh.policy.formats.representation import header, is_html

if TYPE_CHECKING:
    from scrapy_walsh.adapters.context import Context


class Scraping:
    """Raises or warns in one crawl."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._warned = False

    def look(self, response: Any) -> None:
        """Raise ScrapingRefused, or warn, where *response* is a page."""
        declared, html = header(response, "Content-Type"), isinstance(response, HtmlResponse)
        if self._warned or not is_html(declared, response.body, taken_for=html):
            return
        if self._context.config.is_walsh_research:
            raise ScrapingRefused(
                f"{response.url}: HTML is never scraped under walsh-research (R9): read a feed, "
                "markdown or llms.txt; WALSH_SCRAPING = True needs WALSH_IDENTITY of your own"
            )
        self._warned = True
        logger.warning(
            "%s: this spider scrapes HTML, which the specification forbids (R9): read a feed, "
            "markdown or llms.txt, or set WALSH_SCRAPING = True if it is meant",
            response.url,
        )


def _look(response: Any) -> None:
    meta = getattr(getattr(response, "request", None), "meta", None)
    ticket = meta.get(TICKET) if isinstance(meta, dict) else None
    if isinstance(ticket, Ticket) and ticket.tickets.watch is not None:
        ticket.tickets.watch(response)


compat.watch_selectors(_look)
