"""R7: what the project has taken of an answer; only then its validators are stored (D42).

A 200 that the project did not take must come again in full: after a 304 what was in it would be
lost for good. So the validators of an answer wait until

- its callback has ended without an error;
- each request that the callback made was sent, has ended in another way, or is kept for another
  process (in a JOBDIR, or in the shared queue);
- each of its items is through the pipelines, and stored by every feed slot that accepted it.

What is known of items of earlier runs (:class:`SeenItem`) waits for the same slots. Validators
belong to the spider that took the answer. A look (``Context.look``) stores nothing.
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

#: Answers that wait for requests of their callbacks; of more, the oldest keep no validators.
MOST: Final = 10_000
#: Answers without validators that a line names.
_NAMED: Final = 10


@dataclass(slots=True, eq=False)
class _Answer:
    """An answer that the project is taking.

    ``is_taken``: its callback has ended without an error. ``links``: requests of its callback that
    are neither sent nor kept. ``slots``: that have items of it, and are not stored. ``items``: by
    identity, the records to store where all is well, less those of items that were dropped.
    ``scraped``: items that came through the pipelines. ``until_end``: it waits for the end of the
    crawl, since a pipeline may store its items only then. ``is_open``: its callback goes on.
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
    """The answers of one crawl, from the wire to wherever the project keeps what is in them."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._output = Output(context.crawler, self._stored)
        #: By request, the answers whose callbacks have not ended.
        self._open: dict[Request, _Answer] = {}
        #: Those that wait for requests, the oldest first; and for feed slots, or the end.
        self._linked: dict[_Answer, None] = {}
        self._unstored: dict[_Answer, None] = {}
        #: By key of a request that callbacks made, the answers that wait for it.
        self._links: dict[str, list[_Answer]] = {}
        #: By feed slot that is not stored, the answers that wait for it.
        self._of_slot: dict[Slot, list[_Answer]] = {}
        #: URLs of answers that were given no validators: how many, and the first of them.
        self._without, self._named = 0, list[str]()
        #: Items that a slot accepted and could not export.
        self._lost_items = 0
        self._is_full = self._is_over = False
        connect = context.crawler.signals.connect
        connect(self._scraped, signals.item_scraped)
        connect(self._dropped, signals.item_dropped)
        connect(self._failed, signals.item_error)
        connect(self._filtered, signals.request_dropped)

    # -- what comes in --------------------------------------------------------------------

    def stored(self, request: Request) -> Validators | None:
        """The validators that *request* may be sent with, those of its own spider."""
        if self._context.look is not None:
            return None
        held = self._context.store.get(Validators, *self.key_of(request))
        return held if held and validators.is_alive(held, self._context.wall()) else None

    def key_of(self, request: Request) -> tuple[str, str, str]:
        """Where the validators of the answer to *request* are kept (T20)."""
        spider = getattr(self._context.crawler.spider, "name", None) or ""
        return (*validators.key_of(request.url, header(request, "Accept")), spider)

    def answered(
        self, request: Request, kept: Validators | None, *, anew: bool, queued: bool
    ) -> None:
        """Note a 200; its validators, *kept*, wait from now on.

        *anew*: there may be stored ones, which count no more. *queued*: a callback will have it.
        """
        if self._context.look is not None:
            return
        if anew:
            self._forget_stored(request)
        if kept is not None:
            self._open[request] = _Answer(request.url, kept, is_taken=not queued)

    def forget(self, request: Request) -> None:
        """Store no validators of the answer to *request*, whatever follows, and drop stored ones.

        A later 304 would say "no new data" of what was never read.
        """
        if (answer := self._open.get(request)) is not None:
            answer.validators = None
        if self._context.look is None:
            self._forget_stored(request)

    def _forget_stored(self, request: Request) -> None:
        key, context = self.key_of(request), self._context
        context.remember(lambda: context.store.delete(Validators, *key))

    # -- what the project does with it ----------------------------------------------------

    def expects(self, request: Request, item: Any, record: SeenItem) -> None:
        """Have *record* stored once *item* of the answer to *request* is where the project keeps
        its items.
        """
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
        """Note that a request was sent, has ended, or is kept for another process; *key*: R8's."""
        for answer in self._links.pop(key, ()):
            answer.links -= 1
            if not answer.links:
                self._linked.pop(answer, None)
            self._release(answer)

    def link_replaced(self, key: str, other: str) -> None:
        """Note that a middleware has put the request *other* in the place of *key*."""
        if key != other and key in self._links:
            self._links.setdefault(other, []).extend(self._links.pop(key))

    def _filtered(self, request: Request) -> None:
        self.link_ended(key_of(request))  # whoever asked first waits for it

    def taken(self, request: Request) -> None:
        """Note that the callback of *request* has ended without an error."""
        if (answer := self._open.get(request)) is not None:
            answer.is_taken = True

    def _answer_of(self, response: Any) -> _Answer | None:
        request = getattr(response, "request", None)
        return None if request is None else self._open.get(request)

    def _scraped(self, item: Any, response: Response | None) -> None:
        slots, answer = self._output.slots_of(item), self._answer_of(response)
        if slots is None:
            self._lost_items += 1
            if answer is not None:
                answer.is_lost = True
                answer.items.pop(id(item), None)
        elif answer is not None:
            answer.scraped += 1
            answer.slots.update(each for each in slots if not each.is_stored)

    def _dropped(self, item: Any, response: Response | None) -> None:
        if (answer := self._answer_of(response)) is not None:
            answer.items.pop(id(item), None)

    def _failed(self, item: Any, response: Response | None) -> None:
        if (answer := self._answer_of(response)) is not None:
            answer.is_lost = True
            answer.items.pop(id(item), None)

    # -- when all is done -----------------------------------------------------------------

    def settle(self, under_way: Collection[Request]) -> None:
        """Look at the answers whose requests are not *under_way*: their callbacks have ended.

        So are their items through the pipelines, since Scrapy waits for that.
        """
        for request in [each for each in self._open if each not in under_way]:
            self._settle(self._open.pop(request))

    def _settle(self, answer: _Answer) -> None:
        answer.is_open = False
        if not answer.is_taken or answer.scraped != len(answer.items):
            answer.items.clear()  # of what a pipeline has made something else, none is known
        if not answer.is_taken or answer.is_lost:
            self._give_none(answer)
        if answer.validators is not None and answer.links:
            self._linked[answer] = None
        answer.slots = {each for each in answer.slots if not each.is_stored}
        for slot in answer.slots:
            self._of_slot.setdefault(slot, []).append(answer)
        if answer.slots or answer.until_end:
            self._unstored[answer] = None
        self._release(answer)
        if len(self._linked) > MOST:
            if not self._is_full:
                self._is_full = True
                logger.warning(
                    "more than %d answers wait for the requests of their callbacks: the oldest are "
                    "given no validators, and fetched in full at their next visit",
                    MOST,
                )
            self._give_none(next(iter(self._linked)))

    def _give_none(self, answer: _Answer) -> None:
        """Store no validators of *answer*: it is fetched in full at its next visit."""
        self._linked.pop(answer, None)
        if answer.validators is None:
            return
        answer.validators = None
        self._without += 1
        if len(self._named) < _NAMED:
            self._named.append(answer.url)

    def _stored(self, slot: Slot) -> None:
        for answer in self._of_slot.pop(slot, ()):
            answer.slots.discard(slot)
            self._release(answer)

    def _release(self, answer: _Answer) -> None:
        """Store the records of *answer* that wait for nothing any more."""
        if not self._is_over and (records := self._ready(answer)):
            context = self._context
            context.remember(lambda: context.store.put(*records))

    def _ready(self, answer: _Answer) -> list[SeenItem | Validators]:
        """The records of *answer* that wait for nothing any more; they wait here no longer."""
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
        """The spider is closed: no request is sent any more, and no callback begins."""
        if self._is_over:
            return
        self.settle(())
        for answer in [*self._linked]:
            self._give_none(answer)
        if not self._output.is_watched:
            for answer in [*self._unstored]:
                answer.until_end = False
                self._release(answer)
            self._finish()
        self._is_over = True

    def feeds_closed(self) -> None:
        """All feeds are closed: store what they have stored, and say what they have not."""
        self.close()
        if self._output.is_watched:
            self._output.is_watched = False
            self._put(self._unstored)
            self._finish()

    def _put(self, answers: Iterable[_Answer]) -> None:
        """Store the records of *answers*; the crawl may have closed its store by now."""
        records: list[SeenItem | Validators] = []
        for answer in [*answers]:
            if any(not slot.is_stored for slot in answer.slots):
                self._give_none(answer)
                continue
            answer.slots.clear()
            records += self._ready(answer)
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

    def _finish(self) -> None:
        lost = [each for each in self._output.slots if each.items and not each.is_stored]
        count = self._lost_items + sum(each.items for each in lost)
        self._context.recorder.unstored = count
        if count:
            where = (
                ", ".join(dict.fromkeys(each.uri for each in lost[:_NAMED])) or "see ERROR above"
            )
            self._context.recorder.own_fault(
                f"a feed was not stored ({where}): {plural(count, 'item')} of this run will be "
                "emitted again; mend FEEDS, or the rights and the disk of the output"
            )
        if self._without:
            more = f" and {self._without - _NAMED} more" if self._without > _NAMED else ""
            logger.info(
                "given no validators, and so fetched in full at their next visit, because what was "
                "in them was not taken: %s%s",
                ", ".join(self._named),
                more,
            )
