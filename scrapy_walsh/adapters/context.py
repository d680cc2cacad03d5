"""The things that all parts of a crawl share: settings, clocks, store, recorder and scope.

This module imports no part of the crawl, so every part may import it. ``crawl.Crawl`` creates the
parts and passes each one the others that it needs.
"""

from __future__ import annotations

import random
import time
from asyncio import CancelledError
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast

from scrapy import signals
from scrapy.exceptions import CloseSpider
from scrapy.utils.conf import closest_scrapy_cfg, get_config
from scrapy.utils.project import inside_project

from scrapy_walsh.adapters import compat
from scrapy_walsh.adapters.events import Recorder, logger, quiet_libraries, redact_logs
from scrapy_walsh.adapters.outcomes import Closing
from scrapy_walsh.config import LEDGER_OFF, LEDGER_REDACTED, WalshConfig, gates_of
from scrapy_walsh.exceptions import OwnFault, StateError
from scrapy_walsh.ledger import Ledger
from scrapy_walsh.ledger.recovery import recover
from scrapy_walsh.policy.scope import Scope
from scrapy_walsh.policy.summary import NOT_WELL
from scrapy_walsh.state import machine, open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from scrapy import Request
    from scrapy.crawler import Crawler

    from scrapy_walsh.policy.agenda import Load
    from scrapy_walsh.state.store import Store

    #: A URL that an earlier run left in a queue, its declared target (R6), and the target's cadence
    #: in seconds; None if WALSH_REVISIT applies (R8).
    Earlier = tuple[str, str, float | None]

_T = TypeVar("_T")
#: Seconds that a write to the store may wait for the next write.
_WRITE_WITHIN: Final = 0.01
#: The finish reason of a refused crawl.
REFUSED: Final = "walsh_refused"
#: Scrapy's finish reason of a crawl with nothing left to do.
FINISHED: Final = "finished"


class Queue(Protocol):
    """A queue of the scheduler, if hosts wait in it.

    A fleet's queue is not one, because its hosts wait in Redis.
    """

    def push(self, request: Request) -> None:
        """Take *request* in."""

    def load(self) -> Load:
        """Return the number of waiting requests, for the intake."""

    def outlook(self) -> tuple[int, int, float]:
        """Return how many hosts are due and not due, and the least seconds of work left."""

    def earlier(self) -> Iterable[Earlier]:
        """Return the URLs that an earlier run left."""

    def nudge(self, host: str) -> None:
        """Look at the due time of *host* again, after a request to it."""

    def judge_again(self, host: str) -> None:
        """Judge the requests for *host* again after a new document. Refused ones do not wait."""

    def gives_way(self, host: str) -> bool:
        """Whether the target gives way after the robots.txt of *host* was fetched for it (D30)."""

    def ahead(self) -> str | None:
        """Return the host that is probably next, to resolve its name. Each host comes once."""

    def stands_for(self, request: Request) -> bool:
        """Whether an earlier run has left the same request, so that *request* can be dropped."""


class _Closed:
    """Replaces the store after the crawl: any access raises Closing.

    For example, a refresh of the blocklist in the background may still be under way.
    """

    def __getattr__(self, name: str) -> Any:
        raise Closing


def default_state_dir() -> str:
    """Return ``.scrapy/walsh`` of the project, which DotScrapy keeps between jobs.

    Scrapy's ``data_path`` returns the same path. But it creates ``.scrapy`` at once, even for a
    command that only reads. If there is no scrapy.cfg, for example for a project in an egg, the
    path is in the working directory.
    """
    config = get_config()
    project_file = closest_scrapy_cfg()
    if inside_project() and config.has_option("datadir", "default"):
        return str(Path(config.get("datadir", "default"), "walsh"))
    data = (Path(project_file).parent / ".scrapy").resolve() if project_file else Path(".scrapy")
    return str(data / "walsh")


class Context:
    """The shared things of a crawl.

    It has three clocks: ``monotonic`` for waiting, ``wall`` for records of documents and sources,
    and ``steady`` for records of hosts. If a person sets the clock, ``steady`` does not move (D9).
    Raises StateError if the state directory is unusable.
    """

    def __init__(self, crawler: Crawler, config: WalshConfig) -> None:
        self.crawler = crawler
        self.config = config
        quiet_libraries()
        if redacts := config.ledger == LEDGER_REDACTED:
            redact_logs()
        self.monotonic: Callable[[], float] = time.monotonic
        self.wall: Callable[[], float] = time.time
        self.rand: Callable[[], float] = random.random
        self.begun = self.monotonic()
        machine.enter(self.config.state_dir)
        self.store = self.open_store()
        self.recorder = Recorder(crawler)
        if config.state_dir is not None and config.ledger != LEDGER_OFF:
            limit = config.ledger_kept
            with self.recorder.told_once():
                ledger = Ledger(config.state_dir, self.wall, redact=redacts, keep_octets=limit)
                self.recorder.ledger = ledger
                number = lambda: ledger.number  # noqa: E731
                line = recover(self.store, config.state_dir, number, config.revisit)
                if line is not None:
                    self.recorder.own_fault(line)
        notices: list[str] = []
        self.steady = machine.steady_clock(self.config.state_dir, notices)
        for line in (*self.store.news, *notices):
            logger.warning("%s", line)
        self.scope = Scope(self.config.follow_links, growing=True)
        self.gates = gates_of(self.config)
        self.queues: list[Queue] = []
        #: Called when the spider closes. Each cancels the timers of a queue.
        self.stops: list[Callable[[], None]] = []
        #: Whether workers share the queue. Then R8 does not know the runs.
        self.fleet = False
        #: The reason if the crawl was refused and sends nothing; else None.
        self.halted: str | None = None
        #: The command if a person looks at pages, for example ``shell``; else None. It is set when
        #: the spider opens. A look is not stored as a visit, and R8 does not refuse it (D46).
        self.look: str | None = None
        self._write_timer = compat.Timer(self.write)

    def halt(self, reason: str) -> None:
        """Stop the crawl: send nothing more, close the spider, and let the command fail."""
        self.halted = reason
        logger.critical("%s", reason)
        compat.fail_command()
        self._close(REFUSED)

    def _close(self, reason: str) -> None:
        """Close the spider."""
        # A receiver of spider_idle, for example scrapy-redis's, must not take in further requests,
        # because they would be lost.
        self.crawler.signals.disconnect_all(signals.spider_idle)
        self.crawler.signals.connect(self.idle, signals.spider_idle)
        compat.close_spider(self.crawler, reason)

    def idle(self) -> None:
        """Handle spider_idle: if the run has not gone well, raise CloseSpider with the reason.

        A refused crawl is idle soon, and its finish reason must not be "finished".
        """
        if self.halted is not None:
            raise CloseSpider(REFUSED)
        self.remember(self.store.flush)  # first, because a failure changes the finish reason
        if self.recorder.own_faults:
            raise CloseSpider(NOT_WELL)

    def fail(self, error: BaseException | None) -> None:
        """Abort the crawl after *error* of our own, because a request might wait for ever.

        Nothing more is sent. Waiting requests stay in the JOBDIR, if there is one.
        """
        if isinstance(error, (Closing, CancelledError)) or self.halted is not None:
            return
        self.halted = self.tell_failure(error)
        self._close(NOT_WELL)

    def tell_failure(self, error: BaseException | None) -> str:
        """Log *error*, which is our own, so that the run fails. Returns the line."""
        line = str(error)
        if not isinstance(error, OwnFault):
            line = (
                f"scrapy_walsh has failed and ends the crawl ({type(error).__name__}: {error}): "
                "LOG_LEVEL=DEBUG shows where: please report it"
            )
            logger.debug("where it failed", exc_info=error)
        self.recorder.own_fault(line, kept=isinstance(error, StateError))
        return line

    # -- R11 ------------------------------------------------------------------------------

    def open_store(self) -> Store:
        """Open another connection to the store, which is in Redis for a fleet.

        Raises StateError, and ConfigError if Redis's client cannot read the URL.
        """
        config = self.config
        local = open_store(config.state_dir)
        if config.shared_state is None:
            return local
        from scrapy_walsh.fleet.store import SharedStore  # noqa: PLC0415  an extra

        # The steady clock is read later, because its file is in the directory of the store.
        steady = lambda: self.steady()  # noqa: E731, PLW0108
        return SharedStore(local, config.shared_state, config.identity.token, steady=steady)

    def close_store(self) -> None:
        """Close the store. From now on, any access to it raises Closing."""
        store = self.store
        self.store = cast("Store", _Closed())
        store.close()
        self.say_lost(store)
        self._write_timer.cancel()

    def say_lost(self, store: Store) -> None:
        """Log the notices of *store* about damaged, missing or unwritable records."""
        while store.notices:
            self.recorder.own_fault(store.notices.pop(0), kept=True)

    def write(self) -> None:
        """Write all waiting lines and records to the ledger and the store."""
        self.recorder.flush()
        self.remember(self.store.flush)

    def _write_soon(self) -> None:
        """Write soon, if no later request causes a write before."""
        if not self._write_timer.pending:
            self._write_timer.set(_WRITE_WITHIN)

    def recall(self, read: Callable[[], _T | None]) -> _T | None:
        """Return the result of *read*; None if the store is closed or the disk fails.

        An exchange may end after its crawl. Its effects must be noted nevertheless.
        """
        try:
            return read()
        except Closing:
            return None
        except StateError as error:
            self.recorder.own_fault(str(error), kept=True)
            return None

    def remember(self, write: Callable[[], Any]) -> None:
        """Write to the store. If the disk fails, log that once, and go on."""
        self.recall(write)
