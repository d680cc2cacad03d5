"""Where the items of a crawl go: which feed slots have an item, and which slots were stored.

Scrapy says of no item that it was exported, and ``feed_slot_closed`` is sent after a store that
failed as well. So each slot is watched: its filter, which is asked first, its count of items, which
goes up when one was exported, and its storage, which returns when all is stored.
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
    """A feed, or one batch of it. ``items``: how many were exported to it."""

    uri: str
    items: int = 0
    is_stored: bool = False


@dataclass(slots=True, eq=False)
class _Offer:
    """An item that a slot was asked to take; ``before``: items that it had by then."""

    slot: Slot
    scrapys: Any
    before: int
    is_accepted: bool = True


@dataclass(slots=True)
class Output:
    """The feed slots of one crawl. ``stored``: called with each slot that was stored."""

    crawler: Crawler
    stored: Callable[[Slot], object]
    slots: list[Slot] = field(default_factory=list)
    #: Whether there is a feed exporter that can be watched.
    is_watched: bool = False
    #: Whether feeds are set, and Scrapy could make none of them.
    is_broken: bool = False
    #: By identity of an item, what the slots were asked that has no answer yet.
    _offers: dict[int, list[_Offer]] = field(default_factory=dict)
    _feeds: int = 0

    def __post_init__(self) -> None:
        """To be made before the spider opens: then the slots of the first batches are watched."""
        exporter = compat.feed_exporter(self.crawler)
        if exporter is None:
            self.is_broken = compat.lacks_feed_exporter(self.crawler)
        else:
            self._feeds = len(exporter.feeds)
            self.is_watched = True
            compat.watch_batches(exporter, self._watch)

    def _watch(self, scrapys: Any) -> None:
        """Watch *scrapys*, a new slot of the exporter."""
        slot = Slot(str(scrapys.uri))
        self.slots.append(slot)
        scrapys.filter = _Filter(scrapys.filter, slot, scrapys, self._offers)
        store = scrapys.storage.store

        def done(result: Any) -> Any:
            slot.is_stored = True
            self.stored(slot)
            return result

        async def awaited(result: Any) -> Any:
            return done(await result)

        def watched(file: Any) -> Any:
            result = store(file)
            if isinstance(result, Deferred):
                return result.addCallback(done)
            return awaited(result) if inspect.isawaitable(result) else done(result)

        scrapys.storage.store = watched

    def slots_of(self, item: Any) -> list[Slot] | None:
        """The slots that have exported *item*, which was just scraped; None where one has failed.

        To be asked when the exporter has heard of the item. A slot that raises keeps the exporter
        from asking the others.
        """
        if self.is_broken:
            return None
        if not self.is_watched:
            return []
        offers = self._offers.pop(id(item), [])
        accepted = [each for each in offers if each.is_accepted]
        if len(offers) < self._feeds or any(e.scrapys.itemcount == e.before for e in accepted):
            return None
        for each in accepted:
            each.slot.items += 1
        return [each.slot for each in accepted]


class _Filter:
    """The filter of a slot, which notes what it is asked and says; all else is its own."""

    def __init__(
        self, scrapys: Any, slot: Slot, feed: Any, offers: dict[int, list[_Offer]]
    ) -> None:
        self._scrapys, self._slot, self._feed, self._offers = scrapys, slot, feed, offers

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scrapys, name)

    def accepts(self, item: Any) -> Any:
        """As the filter says. One that raises has declined nothing."""
        offer = _Offer(self._slot, self._feed, self._feed.itemcount)
        self._offers.setdefault(id(item), []).append(offer)
        said = self._scrapys.accepts(item)
        offer.is_accepted = bool(said)
        return said
