"""Finds out which feed slots have exported an item, and which slots were stored.

Scrapy has no signal for an exported item, and sends ``feed_slot_closed`` even if the storage has
failed. So we watch three parts of each slot. Its filter is called first for an item. Its count of
items increases if the item was exported. And its storage returns when all items are stored.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred

from scrapy_walsh.adapters import compat

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.crawler import Crawler


@dataclass(slots=True, eq=False)
class Slot:
    """A feed, or one batch of it. ``items``: the number of exported items."""

    uri: str
    items: int = 0
    is_stored: bool = False


@dataclass(slots=True, eq=False)
class _Offer:
    """An item offered to a slot. ``items_before``: the slot's count of items before it."""

    slot: Slot
    scrapys: Any
    items_before: int
    is_accepted: bool = True


@dataclass(slots=True)
class Output:
    """The feed slots of a crawl. ``stored``: called with each slot that was stored."""

    crawler: Crawler
    stored: Callable[[Slot], object]
    slots: list[Slot] = field(default_factory=list)
    #: Whether there is a feed exporter that can be watched.
    is_watched: bool = False
    #: Whether feeds are set, but Scrapy could not create the exporter.
    is_broken: bool = False
    #: Offers of an item, by its identity, until it was scraped.
    _offers: dict[int, list[_Offer]] = field(default_factory=dict)
    _feeds: int = 0

    def __post_init__(self) -> None:
        """Start watching. Create this before the spider opens, so that no slot is missed."""
        exporter = compat.feed_exporter(self.crawler)
        if exporter is None:
            self.is_broken = compat.lacks_feed_exporter(self.crawler)
        else:
            self._feeds = len(exporter.feeds)
            self.is_watched = True
            compat.watch_batches(exporter, self._watch)

    def _watch(self, scrapys: Any) -> None:
        """Watch *scrapys*, a new slot of Scrapy's exporter."""
        slot = Slot(str(scrapys.uri))
        self.slots.append(slot)
        scrapys.filter = _Filter(scrapys.filter, slot, scrapys, self._offers)
        store = scrapys.storage.store

        def note_stored(result: Any) -> Any:
            slot.is_stored = True
            self.stored(slot)
            return result

        async def wait_and_note(result: Any) -> Any:
            return note_stored(await result)

        def store_and_note(file: Any) -> Any:
            result = store(file)
            if isinstance(result, Deferred):
                return result.addCallback(note_stored)
            if inspect.isawaitable(result):
                return wait_and_note(result)
            return note_stored(result)

        scrapys.storage.store = store_and_note

    def slots_of(self, item: Any) -> list[Slot] | None:
        """Return the slots that have exported *item*; None if a slot has failed.

        Call it when the item was scraped and the exporter has handled it. If a slot raises, the
        exporter does not offer the item to the others.
        """
        if self.is_broken:
            return None
        if not self.is_watched:
            return []
        offers = self._offers.pop(id(item), [])
        accepted = [offer for offer in offers if offer.is_accepted]
        if len(offers) < self._feeds or any(
            offer.scrapys.itemcount == offer.items_before for offer in accepted
        ):
            return None
        for offer in accepted:
            offer.slot.items += 1
        return [offer.slot for offer in accepted]


class _Filter:
    """Wraps the filter of a slot, and notes each item and the filter's decision."""

    def __init__(
        self, scrapys: Any, slot: Slot, feed: Any, offers: dict[int, list[_Offer]]
    ) -> None:
        self._scrapys = scrapys
        self._slot = slot
        self._feed = feed
        self._offers = offers

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scrapys, name)

    def accepts(self, item: Any) -> Any:
        """Return the filter's decision. If the filter raises, the item counts as accepted."""
        offer = _Offer(self._slot, self._feed, self._feed.itemcount)
        self._offers.setdefault(id(item), []).append(offer)
        answer = self._scrapys.accepts(item)
        offer.is_accepted = bool(answer)
        return answer
