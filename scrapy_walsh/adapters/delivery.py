"""Stores the validators of an answer when the project has taken its content (R7, D42).

If the project has not taken a 200, the page must be fetched in full again. With validators, the
site would answer 304, and the content would be lost. So the validators of an answer wait until

- its callback has ended without an error;
- each request of the callback was sent, has ended otherwise, or is stored for another process, for
  example in a JOBDIR;
- each item has passed the pipelines, and every feed slot that accepted it has stored it.

Records of seen items (:class:`SeenItem`) wait for the same slots. Validators belong to the spider
that took the answer. A look (``Context.look``) stores nothing.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from scrapy import signals

from scrapy_walsh.adapters.events import logger
from scrapy_walsh.adapters.outcomes import Closing
from scrapy_walsh.adapters.output import Output, Slot
from scrapy_walsh.adapters.ticket import key_of
from scrapy_walsh.exceptions import StateError
from scrapy_walsh.policy import validators
from scrapy_walsh.policy.formats.representation import header
from scrapy_walsh.policy.words import plural
from scrapy_walsh.state import open_store
from scrapy_walsh.state.records import SeenItem, Validators

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from scrapy import Request
    from scrapy.http import Response

    from scrapy_walsh.adapters.context import Context

#: Answers that may wait for requests of their callbacks. Beyond that the oldest get no validators.
MOST: Final = 10_000
#: Answers without validators that a log line names.
_MAX_EXAMPLES: Final = 10


@dataclass(slots=True, eq=False)
class _Answer:
    """An answer whose content the project is taking.

    ``is_taken``: its callback has ended without an error. ``is_lost``: an item failed. ``links``:
    the number of its callback's requests that are neither sent nor stored. ``slots``: feed slots
    with its items that are not stored yet. ``items``: by identity of the item, the records to
    store. ``scraped``: the number of items that passed the pipelines. ``until_end``: it waits for
    the end of the crawl, because a pipeline may store its items only then. ``is_open``: its
    callback has not ended.
    """

    url: str
    validators: Validators | None = None
    is_taken: bool = False
    is_lost: bool = False
    links: int = 0
    slots: set[Slot] = field(default_factory=set)
    items: dict[int, SeenItem] = field(default_factory=dict)
    scraped: int = 0
    until_end: bool = False
    is_open: bool = True


class Delivery:
    """The answers of a crawl, until the project has stored their content."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._output = Output(context.crawler, self._on_slot_stored)
        #: Answers whose callbacks have not ended, by request.
        self._open: dict[Request, _Answer] = {}
        #: Answers that wait for requests, the oldest first.
        self._linked: dict[_Answer, None] = {}
        #: Answers that wait for feed slots, or for the end of the crawl.
        self._unstored: dict[_Answer, None] = {}
        #: Answers that wait for a request of their callbacks, by its key.
        self._links: dict[str, list[_Answer]] = {}
        #: Answers that wait for a feed slot.
        self._of_slot: dict[Slot, list[_Answer]] = {}
        #: The number of answers without validators, and the first of their URLs.
        self._without_count = 0
        self._example_urls: list[str] = []
        #: Items that a slot accepted and could not export.
        self._lost_items = 0
        self._is_full = self._is_over = False
        connect = context.crawler.signals.connect
        connect(self._on_scraped, signals.item_scraped)
        connect(self._on_dropped, signals.item_dropped)
        connect(self._on_item_error, signals.item_error)
        connect(self._on_filtered, signals.request_dropped)

    # -- answers --------------------------------------------------------------------------

    def stored(self, request: Request) -> Validators | None:
        """Return the stored validators for *request* and its spider, or None."""
        if self._context.look is not None:
            return None
        record = self._context.store.get(Validators, *self.key_of(request))
        if record is None or not validators.is_alive(record, self._context.wall()):
            return None
        return record

    def key_of(self, request: Request) -> tuple[str, str, str]:
        """Return the key of the validators for *request*: URL, Accept field, spider (T20)."""
        spider = getattr(self._context.crawler.spider, "name", None) or ""
        return (*validators.key_of(request.url, header(request, "Accept")), spider)

    def answered(
        self, request: Request, record: Validators | None, *, anew: bool, queued: bool
    ) -> None:
        """Note a 200 with its new validators, *record*.

        *anew*: delete stored validators, which are outdated. *queued*: the answer has a callback.
        """
        if self._context.look is not None:
            return
        if anew:
            self._forget_stored(request)
        if record is not None:
            self._open[request] = _Answer(request.url, record, is_taken=not queued)

    def forget(self, request: Request) -> None:
        """Store no validators of the answer to *request*, and delete stored ones.

        Otherwise a later 304 would report "no new data", although the page was never read.
        """
        answer = self._open.get(request)
        if answer is not None:
            answer.validators = None
        if self._context.look is None:
            self._forget_stored(request)

    def _forget_stored(self, request: Request) -> None:
        key = self.key_of(request)
        context = self._context
        context.remember(lambda: context.store.delete(Validators, *key))

    # -- callbacks and items --------------------------------------------------------------

    def expects(self, request: Request, item: Any, record: SeenItem) -> None:
        """Store *record* when the project has stored *item*, from the answer to *request*."""
        if self._context.look is not None:
            return
        answer = self._open.setdefault(request, _Answer(request.url))
        answer.until_end = not self._output.is_watched
        answer.items[id(item)] = record

    def asks(self, request: Request, link: Request) -> None:
        """Note that the callback of *request* has made *link*."""
        answer = self._open.get(request)
        if answer is not None and answer.validators is not None:
            self._links.setdefault(key_of(link), []).append(answer)
            answer.links += 1

    def link_ended(self, key: str) -> None:
        """Note that a request was sent, has ended, or is stored for another process.

        *key*: R8's key of the request.
        """
        for answer in self._links.pop(key, ()):
            answer.links -= 1
            if not answer.links:
                self._linked.pop(answer, None)
            self._release(answer)

    def link_replaced(self, key: str, new_key: str) -> None:
        """Note that a middleware has replaced the request *key* by *new_key*."""
        if key != new_key and key in self._links:
            self._links.setdefault(new_key, []).extend(self._links.pop(key))

    def _on_filtered(self, request: Request) -> None:
        self.link_ended(key_of(request))  # the answer with the first such link waits for it

    def taken(self, request: Request) -> None:
        """Note that the callback of *request* has ended without an error."""
        answer = self._open.get(request)
        if answer is not None:
            answer.is_taken = True

    def _answer_of(self, response: Any) -> _Answer | None:
        request = getattr(response, "request", None)
        if request is None:
            return None
        return self._open.get(request)

    def _on_scraped(self, item: Any, response: Response | None) -> None:
        slots = self._output.slots_of(item)
        answer = self._answer_of(response)
        if slots is None:
            self._lost_items += 1
            if answer is not None:
                answer.is_lost = True
                answer.items.pop(id(item), None)
        elif answer is not None:
            answer.scraped += 1
            answer.slots.update(slot for slot in slots if not slot.is_stored)

    def _on_dropped(self, item: Any, response: Response | None) -> None:
        answer = self._answer_of(response)
        if answer is not None:
            answer.items.pop(id(item), None)

    def _on_item_error(self, item: Any, response: Response | None) -> None:
        answer = self._answer_of(response)
        if answer is not None:
            answer.is_lost = True
            answer.items.pop(id(item), None)

    # -- after the callback ---------------------------------------------------------------

    def settle(self, under_way: Collection[Request]) -> None:
        """Settle the answers whose requests are not *under_way*: their callbacks have ended.

        Their items have passed the pipelines, too, because Scrapy waits for that.
        """
        for request in [request for request in self._open if request not in under_way]:
            self._settle(self._open.pop(request))

    def _settle(self, answer: _Answer) -> None:
        answer.is_open = False
        if not answer.is_taken or answer.scraped != len(answer.items):
            answer.items.clear()  # a pipeline has replaced items, so we cannot recognise them
        if not answer.is_taken or answer.is_lost:
            self._give_none(answer)
        if answer.validators is not None and answer.links:
            self._linked[answer] = None
        answer.slots = {slot for slot in answer.slots if not slot.is_stored}
        for slot in answer.slots:
            self._of_slot.setdefault(slot, []).append(answer)
        if answer.slots or answer.until_end:
            self._unstored[answer] = None
        self._release(answer)
        if len(self._linked) > MOST:
            if not self._is_full:
                self._is_full = True
                logger.warning(
                    "more than %d answers wait for the requests of their callbacks: "
                    "the oldest get no validators, so they are fetched in full next time",
                    MOST,
                )
            self._give_none(next(iter(self._linked)))

    def _give_none(self, answer: _Answer) -> None:
        """Store no validators of *answer*, so that its next visit fetches it in full."""
        self._linked.pop(answer, None)
        if answer.validators is None:
            return
        answer.validators = None
        self._without_count += 1
        if len(self._example_urls) < _MAX_EXAMPLES:
            self._example_urls.append(answer.url)

    def _on_slot_stored(self, slot: Slot) -> None:
        for answer in self._of_slot.pop(slot, ()):
            answer.slots.discard(slot)
            self._release(answer)

    def _release(self, answer: _Answer) -> None:
        """Store the records of *answer* that are ready."""
        if not self._is_over and (records := self._take_ready_records(answer)):
            context = self._context
            context.remember(lambda: context.store.put(*records))

    def _take_ready_records(self, answer: _Answer) -> list[SeenItem | Validators]:
        """Take out and return the records of *answer* that are ready to be stored."""
        if answer.slots or answer.until_end or answer.is_open:
            return []
        self._unstored.pop(answer, None)
        records: list[SeenItem | Validators] = [*answer.items.values()]
        answer.items = {}
        if answer.validators is not None and not answer.links:
            records.append(answer.validators)
            answer.validators = None
        return records

    # -- the end of the crawl -------------------------------------------------------------

    def close(self) -> None:
        """Settle all answers after the spider has closed."""
        if self._is_over:
            return
        self.settle(())
        for answer in [*self._linked]:
            self._give_none(answer)
        if not self._output.is_watched:
            for answer in [*self._unstored]:
                answer.until_end = False
                self._release(answer)
            self._report_losses()
        self._is_over = True

    def feeds_closed(self) -> None:
        """Store the records of stored feeds, and report feeds that were not stored."""
        self.close()
        if self._output.is_watched:
            self._output.is_watched = False
            self._store_records(self._unstored)
            self._report_losses()

    def _store_records(self, answers: Iterable[_Answer]) -> None:
        """Store the ready records of *answers*. The crawl may have closed its store already."""
        records: list[SeenItem | Validators] = []
        for answer in [*answers]:
            if any(not slot.is_stored for slot in answer.slots):
                self._give_none(answer)
                continue
            answer.slots.clear()
            records += self._take_ready_records(answer)
        directory = self._context.config.state_dir
        if not records or directory is None:
            return
        try:
            try:
                self._context.store.put(*records)
            except Closing:
                with closing(open_store(directory)) as store:
                    store.put(*records)
        except StateError as error:
            self._context.recorder.own_fault(str(error), kept=True)

    def _report_losses(self) -> None:
        unstored = [slot for slot in self._output.slots if slot.items and not slot.is_stored]
        count = self._lost_items + sum(slot.items for slot in unstored)
        self._context.recorder.unstored = count
        if count:
            uris = [slot.uri for slot in unstored[:_MAX_EXAMPLES]]
            remedy = "correct FEEDS, or the permissions or the disk of the output"
            if uris and all(uri.startswith("stdout:") for uri in uris):
                uris = ["standard output"]
                remedy = "let its reader take all of it"
            place = ", ".join(dict.fromkeys(uris)) or "see ERROR above"
            self._context.recorder.own_fault(
                f"a feed was not stored ({place}): {plural(count, 'item')} of this run will be "
                f"emitted again; {remedy}"
            )
        if self._without_count:
            suffix = (
                f" and {self._without_count - _MAX_EXAMPLES} more"
                if self._without_count > _MAX_EXAMPLES
                else ""
            )
            logger.info(
                "fetched in full next time, because the project did not take all of "
                "their data: %s%s",
                ", ".join(self._example_urls),
                suffix,
            )
