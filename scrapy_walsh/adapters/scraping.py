"""Refuses selectors on HTML pages, because HTML is not scraped (R9.1, D15).

With the identity walsh-research, a selector raises an error. With another identity, it logs one
warning a run, unless ``WALSH_SCRAPING`` is set. In ``scrapy shell`` a person looks at a page, which
is not scraping. Selectors on feeds and other XML are allowed.

A response is recognised by its request, so that copies and other classes of responses count, too.
"""

from __future__ import annotations

from typing import Any

from scrapy.http import HtmlResponse, Request

from scrapy_walsh.adapters.events import logger
from scrapy_walsh.adapters.ticket import ticket_of
from scrapy_walsh.exceptions import ScrapingRefused
from scrapy_walsh.policy.formats.representation import header, is_html


def look(response: Any) -> None:
    """Raise ScrapingRefused, or warn once a crawl, if *response* is an HTML page of a crawl."""
    request = getattr(response, "request", None)
    ticket = ticket_of(request) if isinstance(request, Request) else None
    if ticket is None or ticket.tickets.refuses_pages is None:
        return
    content_type = header(response, "Content-Type")
    is_html_response = isinstance(response, HtmlResponse)
    if not is_html(content_type, response.body, taken_for=is_html_response):
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
