"""R9.1: HTML is not scraped: what happens when a spider makes a selector of a page (D15).

Under walsh-research that raises an error. Under an identity of one's own there is one warning a
run, unless ``WALSH_SCRAPING`` says that it is meant. In ``scrapy shell`` a person looks at a page,
which is not scraping. Selectors for feeds and other XML work as ever. Responses are recognised by
their request, so copies of them, and other classes, are noticed too.
"""

from __future__ import annotations

from typing import Any

from scrapy.http import HtmlResponse, Request

from scrapy_walsh.adapters.events import logger
from scrapy_walsh.adapters.ticket import ticket_of
from scrapy_walsh.exceptions import ScrapingRefused
from scrapy_walsh.policy.formats.representation import header, is_html


def look(response: Any) -> None:
    """Raise ScrapingRefused, or warn once a crawl, where *response* is a page of a crawl's."""
    request = getattr(response, "request", None)
    ticket = ticket_of(request) if isinstance(request, Request) else None
    if ticket is None or ticket.tickets.refuses_pages is None:
        return
    declared, html = header(response, "Content-Type"), isinstance(response, HtmlResponse)
    if not is_html(declared, response.body, taken_for=html):
        return
    if ticket.tickets.refuses_pages:
        raise ScrapingRefused(
            f"{response.url}: HTML is never scraped under walsh-research (R9): read a feed, "
            "markdown or llms.txt; WALSH_SCRAPING = True needs WALSH_IDENTITY of your own"
        )
    ticket.tickets.refuses_pages = None
    logger.warning(
        "%s: this spider scrapes HTML, which the specification forbids (R9): read a feed, "
        "markdown or llms.txt, or set WALSH_SCRAPING = True if it is meant",
        response.url,
    )
