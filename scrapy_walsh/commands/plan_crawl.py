"""The crawl that ``walsh plan`` tells of: a real one, but for its clock, its state and its wire.

Scrapy's engine, our queue, gates, pacing and throttle go their way by a virtual clock and with a
copy of the state. When the download handler would send a request, :class:`Wire` notes it, and lets
the time pass that an answer is assumed to take. It returns assumed answers: a known document has
not changed, an unknown robots.txt is not there, a list names no host, and a target answers 200. The
spider gets none of these answers.
"""

from __future__ import annotations

import json
import logging
import math
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from scrapy import Request, Spider, signals
from scrapy.crawler import CrawlerProcess
from scrapy.exceptions import DontCloseSpider
from scrapy.http import Response
from scrapy.settings import default_settings

from scrapy_walsh.adapters import compat
from scrapy_walsh.adapters.context import default_state_dir
from scrapy_walsh.adapters.crawl import Crawl
from scrapy_walsh.adapters.documents.validate import reread
from scrapy_walsh.adapters.outcomes import Refused
from scrapy_walsh.adapters.seats import tell_plugins
from scrapy_walsh.commands.common import (
    NO_IDENTITY,
    Misuse,
    heed,
    project_settings,
    view,
)
from scrapy_walsh.commands.doctor_state import copy_to
from scrapy_walsh.commands.own_crawl import add_addon
from scrapy_walsh.commands.own_process import APART, heard, shut_network
from scrapy_walsh.commands.plan import LATENCY
from scrapy_walsh.commands.plan_clock import Loop
from scrapy_walsh.config import LEDGER_OFF, WalshConfig, identity_given, is_shared
from scrapy_walsh.exceptions import WalshError, one_line
from scrapy_walsh.ledger.recovery import last_line, recover, unknown_lines
from scrapy_walsh.policy import hosts
from scrapy_walsh.policy.event import TARGET
from scrapy_walsh.policy.robots.fetch import NO_RULES
from scrapy_walsh.policy.times import iso
from scrapy_walsh.proof.sandbox import blocklist
from scrapy_walsh.state.database import has_records
from scrapy_walsh.state.machine import steady_clock
from scrapy_walsh.state.records import (
    BLOCKLIST,
    ROBOTS,
    SCHEMA,
    TABLES,
    StoredDocument,
)
from scrapy_walsh.state.store import SqliteStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from logging import LogRecord

    from scrapy.settings import BaseSettings, Settings
    from twisted.python.failure import Failure

    from scrapy_walsh.policy.verdict import Verdict

#: The settings in place of a project's own, which would write, or send past our handler.
_APART: Final[dict[str, Any]] = {
    **APART,
    **{f"{chain}_MIDDLEWARES": {} for chain in ("DOWNLOADER", "SPIDER")},
    **{name: {} for name in ("EXTENSIONS", "EXTENSIONS_BASE")},
    **dict.fromkeys(("WALSH_SIGN_REQUESTS", "WALSH_SIGNING_KEY")),
    "WALSH_SHARED_STATE": None,
    "WALSH_LEDGER": False,
    "LOG_ENABLED": False,
    "ASYNCIO_EVENT_LOOP": Loop,
    "TWISTED_REACTOR": "twisted.internet.asyncioreactor.AsyncioSelectorReactor",
    **{
        name: getattr(default_settings, name)
        for name in ("SCHEDULER", "DUPEFILTER_CLASS", "STATS_CLASS")
    },
}
#: Notices of the plan's own go the way of the crawl's.
_warn: Final = logging.getLogger(__name__).warning


def look(arguments: dict[str, Any]) -> dict[str, Any]:
    """The plan as JSON data, or ``misuse``: why there is none.

    *arguments*: ``spider``, its ``arguments``, ``settings`` of the command line.
    """
    with tempfile.TemporaryDirectory() as copy, heard("") as records:
        settings = project_settings(arguments["settings"])
        if not is_shared(settings):
            shut_network()
        try:
            return _Plan(arguments, records, Path(copy)).made(settings)
        except (WalshError, ImportError) as error:
            return {"misuse": str(error)}


class _Plan:
    """The notices while the crawl goes on. All times are Unix seconds."""

    def __init__(self, arguments: dict[str, Any], records: list[LogRecord], copy: Path) -> None:
        self._given = arguments
        self._records = records
        self._copy = copy
        self._now = self._ended = time.time()
        self._requests: list[dict[str, Any]] = []
        self._targets: dict[str, dict[str, Any]] = {}
        self._token = self._place = ""
        self._idle = False
        #: Why ``start`` did not come to its end; empty if it did.
        self.fault = ""

    def made(self, settings: Settings) -> dict[str, Any]:
        """Run the crawl; the plan as JSON data. Raises WalshError."""
        add_addon(settings)
        process = CrawlerProcess(settings, install_root_handler=False)
        spider = self._spider(process)
        shut_network()
        crawled = process.crawl(spider, **self._given["arguments"])
        crawled.addErrback(lambda failure: _warn("%s", failure.value))
        process.start(install_signal_handlers=False)
        notices = self._notices()
        if self.fault:
            raise Misuse(f"the start() of {self._given['spider']} cannot be planned: {self.fault}")
        if not self._idle:
            raise Misuse((notices or ["the crawl ended before it had begun"])[-1])
        return {
            "token": self._token,
            "spider": self._given["spider"],
            "now": self._now,
            "requests": self._requests,
            "targets": list(self._targets.values()),
            "seconds": self._ended - self._now,
            "notices": notices,
        }

    def _notices(self) -> list[str]:
        """The notices that deserve a warning, each once, with the state directory in the place of
        its copy.

        Requests are left out: the plan has them.
        """
        notices = (
            record.getMessage().replace(str(self._copy), self._place)
            for record in self._records
            if record.levelno >= logging.WARNING and not hasattr(record, "walsh_event")
        )
        return list(dict.fromkeys(notices))

    # -- the spider, and the state that it would meet -------------------------------------

    def _spider(self, process: CrawlerProcess) -> type[Spider]:
        name = self._given["spider"]
        try:
            cls = process.spider_loader.load(name)
        except KeyError:
            names = ", ".join(sorted(process.spider_loader.list()))
            raise Misuse(f"no spider {name!r} here; there are: {names}") from None
        settings = process.settings.copy()
        cls.update_settings(settings)
        if not identity_given(settings):
            raise Misuse(NO_IDENTITY)
        config = WalshConfig.from_settings(settings, default_state_dir)
        heed(settings)
        tell_plugins(settings)  # before they are set apart
        if settings.get("JOBDIR"):
            _warn("JOBDIR is left out: what waits there is not in this plan")
        self._token = config.identity.token
        self._copy_state(config)
        apart = {
            **_APART,
            "WALSH_STATE_DIR": str(self._copy),
            "DOWNLOAD_HANDLERS_BASE": dict.fromkeys(("http", "https"), self._wire()),
        }
        return self._planned(cls, apart)

    def _copy_state(self, config: WalshConfig) -> None:
        """Copy what is stored: nothing is written there, whatever the crawl finds or does."""
        directory = config.state_dir
        self._place = str(config.state_dir)
        if directory is not None and has_records(directory):
            last = last_line(directory)  # before the copy, because a crawl writes both
            copy_to(directory, self._copy)
            if config.ledger != LEDGER_OFF and unknown_lines(directory) is not None:
                with closing(SqliteStore(self._copy)) as local:
                    line = recover(local, directory, lambda: last, config.revisit)
                    for notice in filter(None, (line, *local.news, *local.notices)):
                        _warn("%s", notice)
        if config.shared_state is None:
            return
        with closing(SqliteStore(self._copy)) as local:
            steady = steady_clock(self._copy, may_write=False)
            shared = view(local, config.shared_state, self._token, steady)
            for table in TABLES:
                local.put(*list(shared.rows(table.record)))
            for notice in shared.notices:
                _warn("%s", notice)

    def _planned(self, cls: Any, apart: dict[str, Any]) -> type[Spider]:
        """The spider *cls*: the plan is made of its start requests, and it gets no answer."""
        plan = self

        class Planned(cls):  # type: ignore[misc]
            @classmethod
            def update_settings(cls_, settings: BaseSettings) -> None:  # noqa: N804
                super().update_settings(settings)
                settings.setdict(apart, priority="cmdline")

            async def start(self) -> AsyncIterator[Any]:
                plan.begin(self)
                try:
                    async for request in super().start():
                        if isinstance(request, Request):
                            if not 0 < self.settings.getint("URLLENGTH_LIMIT") < len(request.url):
                                plan.target(plan.crawl.intake.url(request.url))
                            yield request.replace(callback=plan.passed, errback=plan.refused)
                except Exception as error:  # a plan of half of it would be none
                    plan.fault = f"{type(error).__name__}: {one_line(error)}"

        return Planned

    def begin(self, spider: Spider) -> None:
        """The crawl begins; it ends when the *spider* is idle."""
        self.crawl = Crawl.of(spider.crawler)
        spider.crawler.signals.connect(self._is_idle, signals.spider_idle)

    def _is_idle(self, spider: Spider) -> None:
        self._idle = not getattr(spider, "refusal", None)  # which it has told of by now
        sys.modules["twisted.internet.reactor"].crash()
        raise DontCloseSpider  # what a spider does at its end is not done

    # -- what becomes of its requests -----------------------------------------------------

    def target(self, url: str) -> dict[str, Any]:
        """The record of the target *url*: of most, ``start`` has named it."""
        host = self.crawl.pacing.host_of(url).key
        unknown = dict.fromkeys(("verdict", "next_due", "revisit"))
        target = {"url": url, "host": host, "decision": "defer", **unknown}
        return self._targets.setdefault(url, target)

    def passed(self, response: Response, **_: Any) -> None:
        """Callback of every target: the spider hears nothing."""

    def refused(self, failure: Failure) -> None:
        """Errback of every target."""
        url = failure.request.url  # type: ignore[attr-defined]
        error = failure.value
        if not isinstance(error, Refused):
            _warn("%s: %s", url, error)
            return
        self._decide(url, "skip" if error.due is None else "defer", error.verdict)
        if (due := error.due or self.crawl.sources.next_due(url)) is not None:
            self._targets[url]["next_due"] = iso(math.ceil(due))

    def _decide(self, url: str, decision: str, verdict: Verdict | None) -> None:
        """Note what becomes of *url*; *verdict*: why not, None if it is requested."""
        self.target(url).update(
            decision=decision,
            verdict=None if verdict is None else asdict(verdict),
            revisit=self.crawl.sources.account.interval_of(url),
        )

    # -- the wire -------------------------------------------------------------------------

    def _wire(self) -> type:
        plan = self

        class Wire:
            """A download handler that sends nothing, and answers as it is assumed."""

            lazy = False

            def __init__(self, *_: Any) -> None:
                # What ``compat`` changes of Scrapy's own handler. No connection is made.
                self._pool = SimpleNamespace(
                    persistent=True,
                    retryAutomatically=True,
                    _newConnection=None,
                )

            async def download_request(self, request: Request, *_: Any) -> Response:
                answer = plan.answer(request)
                await compat.sleep(LATENCY)
                request.meta["download_latency"] = LATENCY
                return answer

            async def close(self) -> None: ...

        compat.trust_handler(Wire)
        return Wire

    def answer(self, request: Request) -> Response:
        """What *request*, which is about to be sent, is assumed to be answered with."""
        crawl = self.crawl
        ticket = self.crawl.tickets.of(request)
        now = time.time()
        url = ticket.url
        purpose = ticket.purpose
        exchange = {
            "at": now,
            "url": url,
            "host": ticket.host.key,
            "purpose": purpose,
        }
        self._requests.append(exchange)
        self._ended = now + LATENCY
        if purpose == TARGET:
            self._decide(url, "ask", None)
            return Response(url)
        kind = ROBOTS
        key = hosts.origin(url)
        if purpose != ROBOTS:
            kind = BLOCKLIST if url == crawl.config.blocklist_url else SCHEMA
            key = url
        stored = crawl.store.get(StoredDocument, kind, key)
        exchange["purpose"] = kind
        exchange["known"] = stored is not None and bool(stored.body or stored.outcome == NO_RULES)
        if stored is not None and stored.body:
            return Response(url, body=stored.body)
        if kind == ROBOTS:
            return Response(url, status=404)
        document: dict[str, Any] = {"type": "object"}
        if kind == BLOCKLIST:
            # Domains that lists from other addresses block are assumed to be on this list, too
            # (D39).
            token = crawl.config.identity.token.lower()
            bound = crawl.store.binding_lists(key, token, now)
            names = sorted(
                {name for document in bound if document.body for name in reread(document)}
            )
            domains = [{"domain": name} for name in names]
            document = {**blocklist(inline=False), "blocked": domains}
            if crawl.config.schema_url is None:
                document["schema"] = {"type": "object"}
        return Response(url, body=json.dumps(document).encode())
