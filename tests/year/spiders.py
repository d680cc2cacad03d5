"""A second spider for the year: three questions to one URL, by POST."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy import Request, Spider

from tests.year.world import forms

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class FormSpider(Spider):
    """Asks a form for three pages of its answer."""

    name = "form"

    async def start(self) -> AsyncIterator[Any]:
        """A request for each body."""
        for form in forms():
            yield Request(form.url, method="POST", body=form.body, errback=self.failed)

    def parse(self, response: Any) -> None:
        """Nothing is made of an answer."""

    def failed(self, failure: Any) -> None:
        """Nor of none."""
