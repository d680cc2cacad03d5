"""What every part of one crawl needs: settings, clocks, the store, the recorder, the scope.

It knows none of the parts, so each of them may know it. A part is given the other parts that it
needs when ``crawl.Crawl`` makes it.
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
from scrapy_walsh.adapters.events import Recorder, logger, quiet_libraries
from scrapy_walsh.adapters.outcomes import Closing
from scrapy_walsh.config import LEDGER_OFF, LEDGER_REDACTED, WalshConfig, gates_of
from scrapy_walsh.exceptions import OwnFault, StateError
from scrapy_walsh.ledger import Ledger
from scrapy_walsh.policy.scope import Scope
from scrapy_walsh.policy.summary import NOT_WELL
from scrapy_walsh.state import machine, open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from scrapy import Request
    from scrapy.crawler import Crawler

    from scrapy_walsh.policy.agenda import Load
    from scrapy_walsh.state.store import Store

    #: A URL that an earlier run left in a queue, the declared target that it belongs to (R6), and
    #: the cadence of that, seconds; None where WALSH_REVISIT holds (R8).
    Earlier = tuple[str, str, float | None]

_T = TypeVar("_T")
#: Seconds that a write to the store may wait for the next request's.
_WRITE_WITHIN: Final = 0.01
#: Why the spider of a refused crawl was closed.
REFUSED: Final = "walsh_refused"
#: Scrapy's own reason of a crawl that found nothing more to do.
FINISHED: Final = "finished"


class Queue(Protocol):
    """A queue of the scheduler in which hosts wait, as the crawl calls it.

    A fleet's is none: there hosts wait in Redis.
    """

    def push(self, request: Request) -> None:
        """Take *request* in."""

    def load(self) -> Load:
        """How much waits in it: what the intake goes by."""

    def outlook(self) -> tuple[int, int, float]:
        """The number of hosts that are due, of those that are not, and the least seconds left."""

    def earlier(self) -> Iterable[Earlier]:
        """What an earlier run left in it."""

    def nudge(self, host: str) -> None:
        """*host* has been requested: look at its due time again."""

    def judge_again(self, host: str) -> None:
        """A document that concerns *host* has come: what it refuses need not wait."""

    def gives_way(self, host: str) -> bool:
        """Whether the target for which the robots.txt of *host* was fetched comes back (D30)."""

    def ahead(self) -> str | None:
        """The host that is probably requested next, once a crawl: its name may be looked up."""

    def stands_for(self, request: Request) -> bool:
        """Whether an earlier run has left the same request, so that *request* need not come in."""


class _Closed:
    """Stands in the store's place when the crawl has ended: what still needs it ends with Closing.

    A refresh beside the crawl may have been under way.
    """

    def __getattr__(self, name: str) -> Any:
        raise Closing


def default_state_dir() -> str:
    """``.scrapy/walsh`` of the project, which DotScrapy keeps between jobs.

    It is where Scrapy's ``data_path`` would put it, but that makes ``.scrapy`` at once, also for a
    command that only reads. Without a scrapy.cfg, as for a project in an egg, it is that of the
    working directory.
    """
    config, found = get_config(), closest_scrapy_cfg()
    if inside_project() and config.has_option("datadir", "default"):
        return str(Path(config.get("datadir", "default"), "walsh"))
    data = (Path(found).parent / ".scrapy").resolve() if found else Path(".scrapy")
    return str(data / "walsh")


class Context:
    """What the parts of one crawl share.

    ``monotonic`` is for waiting, ``wall`` for records of documents and sources, ``steady`` for
    those of hosts, which no setting of the clock may move (D9). Raises StateError where the state
    directory cannot be used.
    """

    def __init__(self, crawler: Crawler, config: WalshConfig) -> None:
        self.crawler, self.config = crawler, config
        quiet_libraries()
        self.monotonic: Callable[[], float] = time.monotonic
        self.wall: Callable[[], float] = time.time
        self.rand: Callable[[], float] = random.random
        self.begun = self.monotonic()
        machine.enter(self.config.state_dir)
        self.store = self.open_store()
        self.recorder = Recorder(crawler)
        if config.state_dir is not None and config.ledger != LEDGER_OFF:
            redact, kept = config.ledger == LEDGER_REDACTED, config.ledger_kept
            with self.recorder.told_once():
                ledger = Ledger(config.state_dir, self.wall, redact=redact, keep_octets=kept)
                self.recorder.ledger = ledger
        told: list[str] = []
        self.steady = machine.steady_clock(self.config.state_dir, told)
        for line in (*self.store.news, *told):
            logger.warning("%s", line)
        self.scope = Scope(self.config.follow_links, growing=True)
        self.gates = gates_of(self.config)
        self.queues: list[Queue] = []
        #: Called when the spider is closed: each cancels the timers of a queue.
        self.stops: list[Callable[[], None]] = []
        #: Whether requests come from a queue that workers share: then R8 knows no runs.
        self.fleet = False
        #: Why nothing more is requested, where the crawl was refused.
        self.halted: str | None = None
        #: The command by which a person looks at pages, once the spider is open; None for a crawl.
        #: A look is no visit: it stores none, and R8 does not refuse it.
        self.look: str | None = None
        self._write_timer = compat.Timer(self.write)

    def halt(self, why: str) -> None:
        """End the crawl: nothing is sent from now on, the spider closes, the command fails."""
        self.halted = why
        logger.critical("%s", why)
        compat.fail_command()
        self._close(REFUSED)

    def _close(self, reason: str) -> None:
        """Close the spider. No receiver takes in any more what would be lost, as scrapy-redis's."""
        self.crawler.signals.disconnect_all(signals.spider_idle)
        self.crawler.signals.connect(self.idle, signals.spider_idle)
        compat.close_spider(self.crawler, reason)

    def idle(self) -> None:
        """The spider is idle: raise CloseSpider with the reason, unless the run has gone well.

        A refused crawl is soon idle: its outcome must not read "finished".
        """
        if self.halted is not None:
            raise CloseSpider(REFUSED)
        self.remember(self.store.flush)  # what cannot be kept is known before the reason is
        if self.recorder.own_faults:
            raise CloseSpider(NOT_WELL)

    def fail(self, error: BaseException | None) -> None:
        """End the crawl as not well: after *error*, which is ours, something might wait for ever.

        Nothing is sent from now on. What waits stays in the JOBDIR, if any.
        """
        if isinstance(error, (Closing, CancelledError)) or self.halted is not None:
            return
        self.halted = self.tell_failure(error)
        self._close(NOT_WELL)

    def tell_failure(self, error: BaseException | None) -> str:
        """Say that *error*, which is ours, makes this run not well; the line that says so."""
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
        """Open one more connection to the store; for a fleet, to one that shares it through Redis.

        Raises StateError, and ConfigError for a URL that Redis's client cannot use.
        """
        config = self.config
        local = open_store(config.state_dir)
        if config.shared_state is None:
            return local
        from scrapy_walsh.fleet.store import SharedStore  # noqa: PLC0415  an extra

        # The steady clock's file is in the directory that the store makes, so it is read later.
        steady = lambda: self.steady()  # noqa: E731, PLW0108
        return SharedStore(local, config.shared_state, config.identity.token, steady=steady)

    def close_store(self) -> None:
        """Close the store: from now on, whoever reads or writes it gets Closing."""
        store, self.store = self.store, cast("Store", _Closed())
        store.close()
        self.say_lost(store)
        self._write_timer.cancel()

    def say_lost(self, store: Store) -> None:
        """What *store* found damaged, gone or unwritable means that records are lost: say it."""
        while store.notices:
            self.recorder.own_fault(store.notices.pop(0), kept=True)

    def write(self) -> None:
        """Write what waits, to the ledger and the store."""
        self.recorder.flush()
        self.remember(self.store.flush)

    def _write_soon(self) -> None:
        """Where writes wait for the next request's, they do not wait for long."""
        if not self._write_timer.pending:
            self._write_timer.set(_WRITE_WITHIN)

    def recall(self, read: Callable[[], _T | None]) -> _T | None:
        """What *read* finds in the store; None once the store is closed, and where the disk fails.

        An exchange may end after its crawl, and what follows from it must be noted all the same.
        """
        try:
            return read()
        except Closing:
            return None
        except StateError as error:
            self.recorder.own_fault(str(error), kept=True)
            return None

    def remember(self, write: Callable[[], Any]) -> None:
        """Write to the store. A disk that fails is logged (once: ``Store``) and stops nothing."""
        self.recall(write)
