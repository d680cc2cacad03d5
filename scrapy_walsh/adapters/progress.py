"""Shows how far a crawl is: one line, on a terminal only, that is rewritten each second."""

from __future__ import annotations

import logging
import shutil
import sys
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from scrapy_walsh.adapters import compat
from scrapy_walsh.adapters.scheduler_queue import HostQueue
from scrapy_walsh.policy.times import duration
from scrapy_walsh.policy.words import plural

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_walsh.adapters.crawl import Crawl

#: Seconds from one line to the next. Making lines may take this part of the time, not more.
_EVERY: Final = 1.0
_SHARE: Final = 0.01
#: Go back to the first column and erase the line (ECMA-48).
_ERASE: Final = "\r\x1b[K"


class Counts(NamedTuple):
    """Counts of a spider. ``ended``: sources that are finished. ``deferred``: deferred hosts."""

    sources: int
    ended: int
    deferred: int
    requests: int
    items: int


class Progress:
    """The line of one crawl, from :meth:`start` to :meth:`stop`.

    It is erased before each log line that goes to the same terminal.
    """

    def __init__(self, crawl: Crawl, counts: Callable[[], Counts]) -> None:
        self._crawl = crawl
        self._counts = counts
        self._terminal = sys.stderr
        self._begun = crawl.monotonic()
        self._timer = compat.Timer(self._show)
        self._shown = False
        self._handlers: list[logging.Handler] = []

    def start(self) -> None:
        """Show the line from now on, if stderr is a terminal."""
        # Scrapy Cloud replaces stderr by an object without ``isatty``.
        if not getattr(self._terminal, "isatty", bool)():
            return
        for handler in logging.getLogger().handlers:
            if isinstance(handler, logging.StreamHandler) and handler.stream is self._terminal:
                handler.addFilter(self._make_room)
                self._handlers.append(handler)
        self._show()

    def stop(self) -> None:
        """Erase the line, and show it no more."""
        self._timer.cancel()
        for handler in self._handlers:
            handler.removeFilter(self._make_room)
        self._handlers.clear()
        self._erase()

    def _make_room(self, record: logging.LogRecord) -> bool:  # noqa: ARG002
        self._erase()
        return True

    def _erase(self) -> None:
        if self._shown:
            self._terminal.write(_ERASE)
            self._terminal.flush()
            self._shown = False

    def _show(self) -> None:
        began = time.perf_counter()
        width = max(20, shutil.get_terminal_size().columns - 1)
        self._terminal.write(_ERASE + self._line()[:width])
        self._terminal.flush()
        self._shown = True
        cost = time.perf_counter() - began
        self._timer.set(max(_EVERY, cost / _SHARE))

    def _line(self) -> str:
        counts = self._counts()
        queues = [queue for queue in self._crawl.queues if isinstance(queue, HostQueue)]
        due = held = 0
        seconds = self._by_rate(counts)
        for queue in queues:
            queue_due, queue_held, least = queue.outlook()
            due, held, seconds = due + queue_due, held + queue_held, max(seconds, least)
        hosts = f"hosts: {due} due, {held} waiting, {counts.deferred} deferred; "
        return (
            f"walsh: {counts.ended}/{counts.sources} sources; {hosts if queues else ''}"
            f"{plural(counts.requests, 'request')}; {plural(counts.items, 'item')}; "
            f"{_end(seconds, counts)}"
        )

    def _by_rate(self, counts: Counts) -> float:
        """Seconds that the other sources take, at the pace of those that have ended."""
        elapsed = self._crawl.monotonic() - self._begun
        return (counts.sources - counts.ended) * elapsed / counts.ended if counts.ended else 0.0


def _end(seconds: float, counts: Counts) -> str:
    if not counts.ended and seconds < _EVERY:
        return "end not known yet"
    return f"end in about {duration(round(seconds))}"
