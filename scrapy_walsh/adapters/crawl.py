"""One crawl: what it is made of, when it begins and ends, and what it remembers.

``Crawl.of(crawler)`` makes it on first use, whoever asks first, and closes it with the spider. It
decides nothing: requests go their way by ``gate``, hosts are paced by ``pacing``, and documents
are brought by ``documents``.
"""

from __future__ import annotations

import random
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from scrapy import Request, signals
from scrapy.exceptions import CloseSpider, IgnoreRequest, NotConfigured
from scrapy.utils.project import data_path

from scrapy_walsh import fleet
from scrapy_walsh.adapters import compat, journal, seats
from scrapy_walsh.adapters.asked import Asked
from scrapy_walsh.adapters.documents import Documents
from scrapy_walsh.adapters.events import Recorder, logger, quiet_libraries
from scrapy_walsh.adapters.fetcher import Fetcher
from scrapy_walsh.adapters.gate import Gate
from scrapy_walsh.adapters.intake import Intake
from scrapy_walsh.adapters.lease import Lease
from scrapy_walsh.adapters.pacing import Pacing
from scrapy_walsh.adapters.pulse import Pulse
from scrapy_walsh.adapters.readings import Readings
from scrapy_walsh.adapters.retries import Retries
from scrapy_walsh.adapters.scraping import Scraping
from scrapy_walsh.adapters.tags import Tags
from scrapy_walsh.adapters.turnstile import TURNSTILE
from scrapy_walsh.config import SLOW_SKIP, WalshConfig
from scrapy_walsh.exceptions import StateError, WalshError
from scrapy_walsh.policy import chain
from scrapy_walsh.policy.scope import Scope
from scrapy_walsh.state import open_store
from scrapy_walsh.state.clock import steady_clock

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.crawler import Crawler

    from scrapy_walsh.adapters.redis_queue import DueQueue
    from scrapy_walsh.adapters.scheduler_queue import HostQueue
    from scrapy_walsh.state.records import Store

_T = TypeVar("_T")
_ATTRIBUTE: Final = "walsh"
#: Why the spider of a refused crawl was closed.
_REFUSED: Final = "walsh_refused"


def default_state_dir() -> str:
    """``.scrapy/walsh`` of the project, which DotScrapy keeps between jobs.

    Of the working directory where there is no scrapy.cfg, as for a project in an egg: Scrapy's
    NotConfigured for that would switch the add-on off, and crawl without it.
    """
    try:
        return data_path("walsh", createdir=False)
    except NotConfigured:
        return str(Path(".scrapy", "walsh"))


class Crawl:
    """What the components of one crawl share.

    ``monotonic`` is for waiting, ``wall`` for records of documents and sources, ``steady`` for
    those of hosts, which no setting of the clock may move (D9).
    """

    @classmethod
    def of(cls, crawler: Crawler) -> Crawl:
        """The crawl of *crawler*; ConfigError or StateError when it cannot be made."""
        crawl: Crawl | None = getattr(crawler, _ATTRIBUTE, None)
        if crawl is None:
            try:
                crawl = cls(crawler)
            except WalshError as error:
                compat.refuse_start(error)
            setattr(crawler, _ATTRIBUTE, crawl)
        return crawl

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        quiet_libraries()
        self.config = WalshConfig.from_settings(crawler.settings, default_state_dir)
        self.monotonic: Callable[[], float] = time.monotonic
        self.wall: Callable[[], float] = time.time
        self.rand: Callable[[], float] = random.random
        self.store = self.open_store()
        self.recorder = Recorder(crawler, journal.open_ledger(self))
        self.steady = steady_clock(self.config.state_dir, self.store.notices)
        self._lease = Lease.of_process(self.config, self.wall)
        #: Why nothing more is requested, where the crawl was refused.
        self.halted: str | None = None
        self.queues: list[HostQueue | DueQueue] = []
        #: Who is told of each request that goes on the wire.
        self.on_wire: list[Callable[[Request], None]] = []
        self.scope = Scope(self.config.follow_links)
        self.gates = _gates(self.config)
        self.turnstile = TURNSTILE
        self.pacing = Pacing(self)
        self.fetcher = Fetcher(self)
        self.documents = Documents(self)
        self.gate = Gate(self)
        self.intake = Intake(self)
        self.asked = Asked(self)
        self.retries = Retries(self)
        self.readings = Readings(self)
        self.scraping = Scraping(self)
        self.tags = Tags(self)
        #: Whether `Spider.start` has yielded its last request.
        self.started = False
        self._store_closed = False
        self.pulse = Pulse(self)
        self._connect()

    def open_store(self) -> Store:
        """One more connection to what this crawl remembers; StateError."""
        config = self.config
        local = open_store(config.state_dir)
        return fleet.join(local, config.shared_state, config.identity.token)

    def _connect(self) -> None:
        connect = self.crawler.signals.connect
        connect(self._opened, signals.spider_opened)
        connect(self._idle, signals.spider_idle)
        connect(self._closed, signals.spider_closed)
        self.turnstile.join(self)

    def _opened(self) -> None:
        self.pulse.start()
        self.remember(lambda: self.store.prune(min(self.wall(), self.steady())))
        self._tell_notices()
        if compat.is_shell(self.crawler):
            # What a person types is declared, and a reason to ask again (spec section 1.1).
            self.scope.follow_links = self.started = True
            self.gates = replace(self.gates, revisit_reason="asked from a shell")
        self.recorder.note("started", **journal.terms(self))
        for url, via in self.scope.targets():  # of a JOBDIR
            self.recorder.note("declared", url=url, via=via)
        try:
            missing = seats.missing(self.crawler)
        except Exception as error:  # the signal would swallow it, and the crawl go on unchecked
            missing = [f"the installation cannot be checked: {error!r}"]
        if missing:
            self.halt(f"scrapy_walsh is not completely installed: {'; '.join(missing)}")
        elif self._lease is not None and (overlap := self._lease.take()) is not None:
            self.halt(overlap)

    def _tell_notices(self) -> None:
        """What the store found damaged or unwritable, and what it did."""
        while self.store.notices:
            logger.warning("%s", self.store.notices.pop(0))

    def _closed(self, reason: str) -> None:
        for queue in self.queues:
            queue.stop()
        self.documents.close()
        self.pulse.stop()
        self.turnstile.leave_for_good(self)
        self.documents.count()
        self.recorder.tell_hosts()
        self.recorder.rates()
        account = "\n".join(self.recorder.account())
        logger.info("account of the crawl:\n%s", account, extra={"several_lines": True})
        self.asked.close()
        self.readings.close(reason)
        self._tell_notices()
        self.recorder.note("ended", reason=reason)
        self.recorder.close()
        self._store_closed = True
        self.store.close()
        if self._lease is not None:
            self._lease.give_back()

    def halt(self, why: str) -> None:
        """Refuse to go on: nothing is asked from now on, the spider closes, the command fails."""
        self.halted = why
        logger.critical("%s", why)
        compat.fail_command()
        compat.close_spider(self.crawler, _REFUSED)

    def _idle(self) -> None:
        # A refused crawl is soon idle: its outcome must not read "finished".
        if self.halted is not None:
            raise CloseSpider(_REFUSED)

    def stop_if_halted(self) -> None:
        """Raise IgnoreRequest when this crawl was refused."""
        if self.halted is not None:
            raise IgnoreRequest(self.halted)

    @property
    def fleet(self) -> bool:
        """Whether requests come from a queue that workers share: then R8 knows no runs."""
        return any(queue.shared for queue in self.queues)

    def host_asked(self, host: str) -> None:
        """A request to *host* has ended, in this crawl or another: look at its queue again."""
        for queue in self.queues:
            queue.nudge(host)

    # -- R11 ------------------------------------------------------------------------------

    def recall(self, read: Callable[[], _T | None]) -> _T | None:
        """What *read* finds in the store; None where a transfer outlived its crawl, or the disk.

        For the booking of an exchange, which must not fail.
        """
        if self._store_closed:
            return None
        try:
            return read()
        except StateError as error:
            logger.error("%s", error)
            return None

    def remember(self, write: Callable[[], None]) -> None:
        """Write to the store; a disk that fails is said once and does not stop the crawl."""
        if self._store_closed:
            return
        try:
            write()
        except StateError as error:
            logger.error("%s", error)


def _gates(config: WalshConfig) -> chain.Gates:
    """The settings that the way of a request goes by."""
    return chain.Gates(
        config.excluded_tlds,
        config.revisit,
        config.revisit_reason,
        config.patience,
        config.slow_hosts == SLOW_SKIP,
        config.max_retries,
        config.backoff_base,
        config.backoff_cap,
    )
