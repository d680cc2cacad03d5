"""R7 across runs: an item that an earlier run handed over is known, and no item is lost.

An item counts as handed over when each feed slot that accepted it was stored; in a project without
feeds, when its run has ended. Until then its record, and its source's validators, wait in
``adapters/delivery.py``. So after a crash, a failing pipeline or a failing upload the source is
fetched in full, and its items are emitted again: twice is better than never.
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


#: Seconds after which the record of a known item, if an answer still has it, is stored anew.
_RENEWED_AFTER: Final = 30 * 86_400.0
_T = TypeVar("_T")


class Handover:
    """The items of one crawl, from the spider to wherever the project keeps them.

    With WALSH_STATE_DIR ``memory`` nothing outlives the run.
    """

    def __init__(self, crawl: Crawl) -> None:
        self._crawl = crawl

    def known(self, canonical_url: str) -> bool:
        """Whether an earlier run handed over this item, which an answer has now."""
        crawl, now = self._crawl, self._crawl.wall()
        try:
            found = crawl.store.get(SeenItem, canonical_url)
        except StateError as error:
            logger.error("%s", error)
            return False
        if found is not None and now - found.seen_at > _RENEWED_AFTER:
            crawl.remember(lambda: crawl.store.put(SeenItem(canonical_url, now)))
        return found is not None

    def noted(self, response: Response, results: Iterable[_T]) -> Iterator[_T]:
        """*results* of *response*: that an item of them is to be handed over is noted before."""
        for result in results:
            if isinstance(result, MetadataItem) and response.request is not None:
                record = SeenItem(result.canonical_url, self._crawl.wall())
                self._crawl.delivery.expects(response.request, result, record)
            yield result
