"""R7 across runs: items that an earlier run handed over are known, and no item is lost.

An item is handed over when each feed slot that accepted it was stored; in a project without feeds,
when its run has ended. Until then its record, and its source's validators, wait in
``adapters/delivery.py``. So if the crawl crashes, or a pipeline or an upload fails, the source is
fetched in full and its items are emitted again: twice is better than never.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from scrapy_walsh.adapters.events import logger
from scrapy_walsh.exceptions import StateError
from scrapy_walsh.sources.items import MetadataItem
from scrapy_walsh.state.records import SeenItem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scrapy.http import Response

    from scrapy_walsh.adapters.crawl import Crawl


#: Seconds after which we store the record of a known item anew, if an answer still has the item.
_RENEWED_AFTER: Final = 30 * 86_400.0
_T = TypeVar("_T")


class Handover:
    """The items of a crawl, until the project has stored them.

    With WALSH_STATE_DIR ``memory`` their records end with the run.
    """

    def __init__(self, crawl: Crawl) -> None:
        self._crawl = crawl

    def known(self, canonical_url: str) -> bool:
        """Whether an earlier run handed over the item with this URL."""
        crawl = self._crawl
        now = crawl.wall()
        try:
            record = crawl.store.get(SeenItem, canonical_url)
        except StateError as error:
            logger.error("%s", error)
            return False
        if record is None:
            return False
        if now - record.seen_at > _RENEWED_AFTER:
            crawl.remember(lambda: crawl.store.put(SeenItem(canonical_url, now)))
        return True

    def noted(self, response: Response, results: Iterable[_T]) -> Iterator[_T]:
        """Yield the *results* of *response*, and note each item before, because it is expected."""
        for result in results:
            if isinstance(result, MetadataItem) and response.request is not None:
                record = SeenItem(result.canonical_url, self._crawl.wall())
                self._crawl.delivery.expects(response.request, result, record)
            yield result
