"""The crawl that ``walsh plan`` tells of: a real one, but for its clock, its state and its wire.

Scrapy's engine, our queue, gates, pacing and throttle go their way by a virtual clock and with a
copy of the state. Where the download handler would send a request, :class:`Wire` notes it, and
lets the time pass that an answer is assumed to take. What it then answers is what is assumed: a
document that is known has not changed, one that is not known has nothing in it, and a target
answers 200, of which the spider hears nothing.
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
from scrapy.utils.misc import load_object
from scrapy.utils.project import get_project_settings

from scrapy_walsh import fleet
from scrapy_walsh.adapters import compat
from scrapy_walsh.adapters.addon import Addon
from scrapy_walsh.adapters.context import default_state_dir
from scrapy_walsh.adapters.crawl import Crawl
from scrapy_walsh.adapters.outcomes import Refused
from scrapy_walsh.commands.check_answer import Misuse
from scrapy_walsh.commands.own_process import APART, shut_network
from scrapy_walsh.commands.plan_clock import Loop
from scrapy_walsh.commands.project import NO_IDENTITY
from scrapy_walsh.config import LEDGER_OFF, WalshConfig, has_identity, is_shared
from scrapy_walsh.exceptions import WalshError
from scrapy_walsh.policy import hosts
from scrapy_walsh.policy.event import TARGET
from scrapy_walsh.policy.robots.fetch import NO_RULES
from scrapy_walsh.policy.scope import MAX_CHILDREN
from scrapy_walsh.policy.times import iso
from scrapy_walsh.proof.sandbox import blocklist
from scrapy_walsh.signals import walsh_asked, walsh_taken_up
from scrapy_walsh.state.database import copy_to, has_records
from scrapy_walsh.state.records import BLOCKLIST, ROBOTS, SCHEMA, HostRecord, StoredDocument
from scrapy_walsh.state.sqlite import SqliteStore
from scrapy_walsh.state.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings, Settings
    from twisted.python.failure import Failure

    from scrapy_walsh.policy.event import Event, Exchange
    from scrapy_walsh.policy.verdict import Verdict

#: What stands in the place of a project's own: it would write, or send past our handler.
_APART: Final[dict[str, Any]] = {
    **APART,
    **{f"{chain}_MIDDLEWARES": {} for chain in ("DOWNLOADER", "SPIDER")},
    **{name: {} for name in ("EXTENSIONS", "EXTENSIONS_BASE")},
    **dict.fromkeys(("WALSH_SIGN_REQUESTS", "WALSH_SIGNING_KEY")),
    "WALSH_LEDGER": LEDGER_OFF,
    "LOG_ENABLED": False,
    "ASYNCIO_EVENT_LOOP": Loop,
    "TWISTED_REACTOR": "twisted.internet.asyncioreactor.AsyncioSelectorReactor",
    **{
        name: getattr(default_settings, name)
        for name in ("SCHEDULER", "DUPEFILTER_CLASS", "STATS_CLASS")
    },
}
#: A robots.txt that asks for an interval.
_DELAY: Final = b"User-agent: *\nCrawl-delay: %r\n"


def look(given: dict[str, Any]) -> dict[str, Any]:
    """The plan as JSON data, or ``misuse``: why there is none.

    *given*: ``spider``, its ``arguments``, ``settings`` of the command line, ``latency`` in
    seconds.
    """
    said = _Said()
    logging.getLogger().addHandler(said)
    settings = get_project_settings()
    for name, value in given["settings"].items():
        settings.set(name, value, priority="cmdline")
    if not is_shared(settings):
        shut_network()
    with tempfile.TemporaryDirectory() as copy:
        try:
            return _Plan(given, said.lines, Path(copy)).made(settings)
        except (WalshError, ImportError) as error:
            return {"misuse": str(error)}


class _Said(logging.Handler):
    """What the crawl logs as worth a warning."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        if line not in self.lines and not hasattr(record, "walsh_event"):  # those the plan has
            self.lines.append(line)


class _Plan:
    """What is found while the crawl goes on. All times are Unix seconds."""

    def __init__(self, given: dict[str, Any], said: list[str], copy: Path) -> None:
        self._given, self._said, self._copy = given, said, copy
        self.latency: float = given["latency"]
        self._now = time.time()
        self._ended = self._now
        self._requests: list[dict[str, Any]] = []
        self._documents: dict[tuple[str, str], dict[str, Any]] = {}
        self._targets: dict[str, dict[str, Any]] = {}
        self._hosts: dict[str, dict[str, Any]] = {}
        self._token = self._place = ""
        self._idle = False

    def made(self, settings: Settings) -> dict[str, Any]:
        """Run the crawl; the plan as JSON data. Raises WalshError."""
        addons = settings.getdict("ADDONS")
        if not any(load_object(each) is Addon for each in addons):
            settings.set("ADDONS", {**addons, Addon: 500}, priority="cmdline")
        process = CrawlerProcess(settings, install_root_handler=False)
        spider = self._spider(process)
        shut_network()
        process.crawl(spider, **self._given["arguments"]).addErrback(self._failed)
        process.start(install_signal_handlers=False)
        if not self._idle:
            raise Misuse(([*self._notices()] or ["the crawl ended before it had begun"])[-1])
        asked = [each for each in self._targets.values() if each["decision"] == "ask"]
        return {
            "token": self._token,
            "spider": self._given["spider"],
            "now": self._now,
            "latency": self.latency,
            "documents": sorted(self._documents.values(), key=lambda d: (d["kind"], d["key"])),
            "targets": [
                {name: value for name, value in each.items() if name not in ("also", "children")}
                for each in self._targets.values()
            ],
            "hosts": list(self._hosts.values()),
            "order": self._requests,
            "requests": len(self._requests),
            "more": sum(each["also"] for each in asked),
            "children": sum(each["children"] for each in asked),
            "seconds": self._ended - self._now,
            "notices": [*self._notices()],
        }

    def _notices(self) -> Iterator[str]:
        """What was said, with the state directory in the place of its copy."""
        yield from (each.replace(str(self._copy), self._place) for each in self._said)

    def _failed(self, failure: Failure) -> None:
        self._said.append(str(failure.value))

    # -- the spider, and the state that it would meet -------------------------------------

    def _spider(self, process: CrawlerProcess) -> type[Spider]:
        name = self._given["spider"]
        try:
            cls = process.spider_loader.load(name)
        except KeyError:
            known = ", ".join(sorted(process.spider_loader.list()))
            raise Misuse(f"no spider {name!r} here; there are: {known}") from None
        settings = process.settings.copy()
        cls.update_settings(settings)
        if not has_identity(settings):
            raise Misuse(NO_IDENTITY)
        config = WalshConfig.from_settings(settings, default_state_dir)
        if settings.get("JOBDIR"):
            self._said.append("JOBDIR is left out: what waits there is not in this plan")
        self._token = config.identity.token
        self._copy_state(config)
        apart = {
            **_APART,
            "WALSH_STATE_DIR": str(self._copy),
            "DOWNLOAD_HANDLERS_BASE": dict.fromkeys(("http", "https"), self._wire()),
        }
        process.settings.setdict(apart, priority="cmdline")
        return self._planned(cls, apart)

    def _copy_state(self, config: WalshConfig) -> None:
        """Copy what is stored: nothing is written there, whatever the crawl finds or does."""
        directory, self._place = config.state_dir, str(config.state_dir)
        if directory is not None and has_records(directory):
            copy_to(directory, self._copy)
        if config.shared_state is None:
            return
        with closing(SqliteStore(self._copy)) as local:
            shared = fleet.view(local, config.shared_state, self._token)
            for table in TABLES:
                local.put(*list(shared.rows(table.record)))
            self._said += shared.notices

    def _planned(self, cls: Any, apart: dict[str, Any]) -> type[Spider]:
        """The spider *cls*, whose start requests are those of the plan, and that gets no answer."""
        plan = self

        class Planned(cls):  # type: ignore[misc]
            @classmethod
            def update_settings(cls_, settings: BaseSettings) -> None:  # noqa: N804
                cls.update_settings(settings)
                settings.setdict(apart, priority="cmdline")

            @classmethod
            def from_crawler(cls_, crawler: Crawler, *args: Any, **kwargs: Any) -> Any:  # noqa: N804
                spider = super().from_crawler(crawler, *args, **kwargs)
                plan.begin(crawler, spider)
                return spider

            async def start(self) -> AsyncIterator[Any]:
                async for each in super().start():
                    if isinstance(each, Request):
                        plan.declared(self, each)
                        yield each.replace(callback=plan.passed, errback=plan.refused)

        return Planned

    def begin(self, crawler: Crawler, spider: Spider) -> None:
        """A spider was made: hear what becomes of its requests."""
        self._crawl = Crawl.of(crawler)
        for problem in getattr(spider, "problems", ()):
            self._said.append(str(problem))
        for hear, signal in (
            (self._exchanged, walsh_asked),
            (self._taken_up, walsh_taken_up),
            (self._is_idle, signals.spider_idle),
        ):
            crawler.signals.connect(hear, signal)

    def _is_idle(self, spider: Spider) -> None:
        if refusal := getattr(spider, "refusal", None):
            self._said.append(refusal)
        else:
            self._idle = True
        sys.modules["twisted.internet.reactor"].crash()
        raise DontCloseSpider  # what a spider does at its end is not done

    # -- what becomes of its requests -----------------------------------------------------

    def declared(self, spider: Spider, request: Request) -> None:
        """``start`` has named *request*."""
        number = request.meta.get("walsh_source")
        visits = getattr(spider, "visits", None)
        also = {Request(url).url for url in request.meta.get("walsh_also", ())} - {request.url}
        url = self._crawl.intake.url(request.url)
        self._targets.setdefault(
            url,
            {
                "source": visits[number].row.source if visits and number is not None else url,
                "url": url,
                "host": self._crawl.pacing.look_up(url),
                "decision": "defer",
                "verdict": None,
                "robots": None,
                "next_due": None,
                "also": len(also),
                "children": MAX_CHILDREN * len(request.meta.get("walsh_children", ())),
            },
        )

    def passed(self, response: Response, **_: Any) -> None:
        """Callback of every target."""
        assert response.request is not None  # noqa: S101  Scrapy sets it
        self._decide(response.request.url, "ask", self._crawl.gate.passed(response.request))

    def refused(self, failure: Failure) -> None:
        """Errback of every target."""
        url, error = failure.request.url, failure.value  # type: ignore[attr-defined]
        if not isinstance(error, Refused):
            self._said.append(f"{url}: {error}")
            return
        self._decide(url, "skip" if error.due is None else "defer", error.verdict)
        if (due := error.due or self._crawl.asked.next_due(url)) is not None:
            self._targets[url]["next_due"] = iso(math.ceil(due))

    def _decide(self, url: str, decision: str, verdict: Verdict | None) -> None:
        target = self._targets[url]
        origin = hosts.origin(url) if verdict is None or verdict.requirement != "R6" else ""
        document = self._documents.get((ROBOTS, origin))
        if verdict is not None and verdict.requirement == "R2" and document is not None:
            target["robots"] = document["action"]
            if document["action"] == "fetch" and decision == "ask":
                verdict = None
        target |= {"decision": decision, "verdict": None if verdict is None else asdict(verdict)}

    def _taken_up(self, event: Event) -> None:
        kind = BLOCKLIST if event.requirement == "R3" else ROBOTS
        key = event.url if kind == BLOCKLIST else hosts.origin(event.url)
        stored = self._crawl.store.get(StoredDocument, kind, key)
        if (kind, key) not in self._documents:
            self._document(kind, key, "held", stored)

    def _document(self, kind: str, key: str, action: str, stored: StoredDocument | None) -> None:
        self._documents[kind, key] = {
            "kind": kind,
            "key": key,
            "action": action,
            "fetched_at": None if stored is None else stored.fetched_at,
        }

    def _exchanged(self, exchange: Exchange) -> None:
        self._ended = time.time()
        at = self._ended - (exchange.ended - exchange.started)
        self._requests.append({"at": at, "url": exchange.url, "purpose": exchange.purpose})
        if exchange.purpose == "operator":
            return
        host = self._hosts[exchange.host]
        host["interval"] = self._crawl.pacing.host(exchange.host).traffic.interval
        if exchange.purpose == TARGET:
            host["urls"].append(exchange.url)
        else:
            host["robots"] += 1

    # -- the wire -------------------------------------------------------------------------

    def _wire(self) -> type:
        plan = self

        class Wire:
            """A download handler that sends nothing, and answers as it is assumed."""

            lazy = False

            def __init__(self, *_: Any) -> None:
                # What compat.no_persistent_connections asks of Scrapy's own handler.
                self._pool = SimpleNamespace(persistent=True, retryAutomatically=True)

            async def download_request(self, request: Request, *_: Any) -> Response:
                answer = plan.answer(request)
                await compat.sleep(plan.latency)
                request.meta["download_latency"] = plan.latency
                return answer

            async def close(self) -> None: ...

        compat.trust_handler(Wire)
        return Wire

    def answer(self, request: Request) -> Response:
        """What *request*, which is about to be sent, is assumed to be answered with."""
        crawl, url = self._crawl, request.url
        purpose, host = crawl.fetcher.purpose(request), crawl.pacing.look_up(url)
        if purpose != "operator" and host not in self._hosts:
            record = crawl.store.get(HostRecord, host)
            self._hosts[host] = {
                "host": host,
                "first_request": time.time(),
                "interval": 0.0,
                "urls": [],
                "robots": 0,
                "learned": crawl.pacing.host(host).learned.interval or None,
                "silent_since": None if record is None else record.silent_since,
            }
        if purpose == TARGET:
            return Response(url)
        kind, key = ROBOTS, url
        if purpose == ROBOTS:
            key = hosts.origin(url)
        else:
            kind = BLOCKLIST if url == crawl.config.blocklist_url else SCHEMA
        stored = crawl.store.get(StoredDocument, kind, key)
        known = stored is not None and bool(stored.body or stored.outcome == NO_RULES)
        self._document(kind, key, "refresh" if known else "fetch", stored if known else None)
        if kind == ROBOTS and known and stored and stored.outcome == NO_RULES:
            return Response(url, status=404)
        return Response(url, body=stored.body if known and stored else self._empty(url, kind))

    def _empty(self, url: str, kind: str) -> bytes:
        """A robots.txt with the interval of an earlier run; a list that names nobody; a schema."""
        if kind == ROBOTS:
            record = self._crawl.store.get(HostRecord, hosts.host_key(url))
            return b"" if record is None else _DELAY % record.interval
        document: dict[str, Any] = {"type": "object"}
        if kind == BLOCKLIST:
            document = {**blocklist(inline=False), "blocked": []}
            if self._crawl.config.schema_url is None:
                document["schema"] = {"type": "object"}
        return json.dumps(document).encode()
