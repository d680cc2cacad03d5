"""R7 across runs: an item that an earlier run handed over is known, and no item is lost.

An item counts as handed over when its run has ended and its feeds are stored. Until then its
source's validators are not in the store. So after a crash, a failing pipeline or a failing
upload the source is fetched in full, and its items are emitted again: twice is better than never.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from scrapy import Request, signals
from scrapy.extensions.feedexport import FeedExporter

from scrapy_walsh.adapters.events import logger
from scrapy_walsh.exceptions import StateError
from scrapy_walsh.policy.formats.representation import header
from scrapy_walsh.policy.validators import key_of
from scrapy_walsh.sources.items import MetadataItem
from scrapy_walsh.state import open_store
from scrapy_walsh.state.records import SeenItem, Validators

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scrapy.http import Response

    from scrapy_walsh.adapters.crawl import Crawl


#: Seconds after which the record of a known item, if an answer still has it, is stored anew.
_RENEWED_AFTER: Final = 30 * 86_400.0
_FAILED_FEEDS: Final = "feedexport/failed_count/"
_T = TypeVar("_T")


@dataclass(slots=True)
class _Batch:
    """The items of one response. ``left``: by identity, less those that failed.

    ``whole``: the spider has yielded the last of them.
    """

    validators: Validators | None
    left: dict[int, MetadataItem] = field(default_factory=dict)
    scraped: int = 0
    failed: bool = False
    whole: bool = False


class Handover:
    """The items of one crawl, from the spider to wherever the project keeps them.

    With WALSH_STATE_DIR ``memory`` nothing outlives the run.
    """

    def __init__(self, crawl: Crawl) -> None:
        self._crawl = crawl
        self._batches: dict[tuple[str, str], _Batch] = {}
        #: Canonical URLs of known items whose records are to be stored again.
        self._renewed: list[str] = []
        connect = crawl.crawler.signals.connect
        connect(self._scraped, signals.item_scraped)
        connect(self._lost, signals.item_dropped)
        connect(self._lost, signals.item_error)
        connect(self._closed, signals.spider_closed)
        connect(self._settle, signals.feed_exporter_closed)

    def known(self, canonical_url: str) -> bool:
        """Whether an earlier run handed over this item, which an answer has now."""
        crawl = self._crawl
        try:
            found = crawl.store.get(SeenItem, canonical_url)
        except StateError as error:
            logger.error("%s", error)
            return False
        if found is not None and crawl.wall() - found.seen_at > _RENEWED_AFTER:
            self._renewed.append(canonical_url)
        return found is not None

    def forget(self, request: Request) -> None:
        """Delete the validators: a later 304 would say "no new data" of what was never read."""
        crawl = self._crawl
        crawl.sources.validators.pop(request, None)
        crawl.remember(lambda: crawl.store.delete(Validators, *_key(request)))

    def noted(self, response: Response, results: Iterable[_T]) -> Iterator[_T]:
        """*results* of *response*: that an item of them is to be handed over is noted before."""
        for result in results:
            if isinstance(result, MetadataItem):
                self._expect(response, result)
            yield result
        if batch := self._batch(response):
            batch.whole = True

    def _expect(self, response: Response, item: MetadataItem) -> None:
        crawl = self._crawl
        if crawl.config.state_dir is None:
            return
        request = response.request or Request(response.url)
        key = _key(request)
        if key not in self._batches:
            self._batches[key] = _Batch(crawl.sources.validators.pop(request, None))
            crawl.remember(lambda: crawl.store.delete(Validators, *key))
        self._batches[key].left[id(item)] = item

    def _scraped(self, response: Response | None) -> None:
        if batch := self._batch(response):
            batch.scraped += 1

    def _lost(self, item: Any, response: Response | None, failure: object = None) -> None:
        """The item is not handed over. That a pipeline dropped it is no *failure*."""
        if batch := self._batch(response):
            batch.left.pop(id(item), None)
            batch.failed = batch.failed or failure is not None

    def _batch(self, response: Response | None) -> _Batch | None:
        if response is None or response.request is None:
            return None
        return self._batches.get(_key(response.request))

    def _closed(self) -> None:
        if self._crawl.crawler.get_extension(FeedExporter) is None:
            self._settle()

    def _settle(self) -> None:
        """All feeds are closed. Unless one failed, store the known items and the validators."""
        if not (self._batches or self._renewed) or self._crawl.config.state_dir is None:
            return
        stats = self._crawl.crawler.stats
        if stats is not None and any(name.startswith(_FAILED_FEEDS) for name in stats.get_stats()):
            logger.warning("a feed was not stored: the items of this run will be emitted again")
            return
        batches, self._batches = self._batches.values(), {}
        whole = [batch for batch in batches if batch.whole and batch.scraped == len(batch.left)]
        handed_over = [item.canonical_url for batch in whole for item in batch.left.values()]
        now = self._crawl.wall()
        try:
            # The crawl may have closed its store by now: feeds are stored beside that.
            with closing(open_store(self._crawl.config.state_dir)) as store:
                store.put(*[SeenItem(url, now) for url in (*handed_over, *self._renewed)])
                for batch in whole:
                    held = None if batch.failed else batch.validators
                    if held and store.get(Validators, held.url, held.representation) is None:
                        store.put(held)
        except StateError as error:
            logger.error("%s", error)


def _key(request: Request) -> tuple[str, str]:
    """Where the validators of the answer to *request* are kept (T20)."""
    return key_of(request.url, header(request, "Accept"))
