"""The machine on which the year goes by: one forked process a run, one state directory for all.

Import :mod:`tests.year.clock` and call ``install`` before this module: everything that it imports
must read the virtual clock.
"""

from __future__ import annotations

import gc
import importlib
import json
import logging
import os
import random
import signal
import sqlite3
import sys
import time
from contextlib import closing, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from scrapy.crawler import CrawlerProcess
from scrapy.settings import default_settings

from scrapy_walsh.state import machine as steady
from scrapy_walsh.state.database import DATABASE
from tests.year import wire
from tests.year.clock import CLOCK, off_by
from tests.year.log import Ran
from tests.year.schedule import MAIN, Schedule
from tests.year.world import as_file, forms

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.year.schedule import Planned
    from tests.year.world import World

#: What a run imports, besides what Scrapy's settings name: see ``warm_up``.
_WARM: Final = (
    *("certifi", "feedparser", "itemadapter", "jsonschema", "markdown_it"),
    *("requests", "resource"),
    *("scrapy.core.engine", "scrapy.core.scheduler", "scrapy.core.scraper", "scrapy.dupefilters"),
    *("scrapy.exporters", "scrapy.extensions.remote_control", "scrapy.logformatter"),
    *("scrapy.squeues", "scrapy.statscollectors", "scrapy.utils.serialize", "tests.year.spiders"),
    *("scrapy_walsh.adapters.seats", "scrapy_walsh.adapters.downloader"),
    *("scrapy_walsh.adapters.downloadermiddlewares", "scrapy_walsh.adapters.extensions"),
    *("scrapy_walsh.adapters.scheduler_queue", "scrapy_walsh.adapters.handler"),
    *("scrapy_walsh.spiders.walsh_metadata", "xml.sax.expatreader"),
)
#: Real seconds after which a run is stuck.
_STUCK: Final = 120
#: Return code of a run that was killed.
KILLED: Final = 137


class Machine:
    """Runs of one world, one after the other; everything is kept in *directory*."""

    def __init__(
        self, directory: Path, world: World, settings: Mapping[str, Any] | None = None
    ) -> None:
        warm_up()
        self.directory = directory
        self.world = world
        self.schedule = Schedule(world)
        self.log = directory / "server.jsonl"
        self.state = directory / "state"
        self._report = directory / "report.json"
        self._settings = settings or {}
        self._free = 0.0
        self._number = 0
        (directory / "logs").mkdir(parents=True, exist_ok=True)
        self.log.touch()

    def year(self) -> list[Ran]:
        """Every run of the schedule."""
        return [self.run(planned) for planned in self.schedule.runs()]

    def run(self, planned: Planned) -> Ran:
        """One run, in a process of its own, from its beginning to its end."""
        self._number += 1
        sources = self.world.declared(self._number) if planned.spider == MAIN else forms()
        start = max(planned.at, self._free)  # a job that is still running is waited for
        ran = Ran(
            self._number,
            planned.spider,
            planned.why,
            start,
            start + off_by(self.schedule.shifts, start),
            declared=[f"{s.method} {s.url} {s.body}" for s in sources],
        )
        (self.directory / "sources.jsonl").write_text(as_file(sources))
        ended = self.directory / "ended.json"
        for left in (ended, self._report):
            left.unlink(missing_ok=True)
        real = time.perf_counter()
        child = os.fork()
        if child == 0:
            self._in_child(ran, planned, ended)
        _, status = os.waitpid(child, 0)
        ran.seconds = time.perf_counter() - real
        ran.code = os.waitstatus_to_exitcode(status)
        if not ended.exists():
            raise RuntimeError(
                f"run {ran.number} ended with {ran.code}: {self._output(ran)[-3000:]}"
            )
        for name, value in json.loads(ended.read_text()).items():
            setattr(ran, name, value)
        self._free = ran.end + 5
        self._look(ran)
        return ran

    def _look(self, ran: Ran) -> None:
        """What an operator sees of *ran*: its return code, its log, the state directory."""
        output = self._output(ran)
        if ran.killed:
            return
        if ran.code != 0:
            ran.trouble.append(f"return code {ran.code}")
        if "Traceback" in output:
            ran.trouble.append(output[output.index("Traceback") :][-500:])
        if self._report.exists():
            rows = json.loads(self._report.read_text())["sources"]
            due = {row["url"]: row["next_due"] for row in rows if row["next_due"]}
            ran.promised = {u: datetime.fromisoformat(at).timestamp() for u, at in due.items()}
        uri = f"file:{self.state / DATABASE}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            query = "SELECT name FROM sqlite_master WHERE type = 'table'"
            for (name,) in connection.execute(query).fetchall():
                count = f"SELECT count(*) FROM {name}"  # noqa: S608  its own names
                ran.rows[name] = connection.execute(count).fetchone()[0]
        sizes = {each: each.stat().st_size for each in self.state.rglob("*") if each.is_file()}
        for each, size in sizes.items():
            kind = "database" if each.name.startswith(DATABASE) else "other"
            if each.name.startswith("ledger"):
                kind = "ledger"
            elif each.parent != self.state:
                kind = "documents"
            ran.octets[kind] = ran.octets.get(kind, 0) + size

    def _output(self, ran: Ran) -> str:
        path = self._log_of(ran)
        return path.read_text(errors="replace") if path.exists() else ""

    def _log_of(self, ran: Ran) -> Path:
        return self.directory / "logs" / f"{ran.number:04}.log"

    # -- in the child ---------------------------------------------------------------------

    def _in_child(self, ran: Ran, planned: Planned, ended: Path) -> None:
        """The run; never returns."""
        code = 1
        try:
            signal.alarm(_STUCK)
            self._redirect(self._log_of(ran))
            code = self._crawl(ran, planned, ended)
            self._tell(ran, ended)
        except BaseException:
            logging.exception("the run failed")
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _crawl(self, ran: Ran, planned: Planned, ended: Path) -> int:
        boot = self.schedule.booted(ran.start)
        CLOCK.start(ran.start, boot, self.schedule.shifts)
        self._boot_id(boot)
        random.seed(f"{self.world.seed} {ran.number}")
        server = wire.Server(self.world.answer, self.log, ran.number)
        wire.SERVERS.append(server)

        def begun() -> None:
            ran.startup = time.process_time()

        def kill() -> None:
            server.cut()
            ran.killed = True
            self._tell(ran, ended)
            os._exit(KILLED)

        server.first = begun
        if planned.kill is not None:
            CLOCK.alarm(ran.start + planned.kill, kill)
        process = CrawlerProcess(self._all_settings(planned.spider))
        arguments = {"sources": "sources.jsonl", "report": "report.json"}
        process.crawl(planned.spider, **(arguments if planned.spider == MAIN else {}))
        process.start()
        return int(process.bootstrap_failed)

    def _tell(self, ran: Ran, ended: Path) -> None:
        known = {"end": CLOCK.true(), "killed": ran.killed, "startup": ran.startup}
        ended.write_text(json.dumps(known))

    def _boot_id(self, boot: float) -> None:
        """Each start of the machine has another name; this one's is not the real machine's."""
        path = self.directory / "boot_id"
        path.write_text(f"{boot:.0f}\n")
        setattr(steady, "_BOOT_ID", path)  # noqa: B010  it is final, for everybody else

    def _redirect(self, path: Path) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.chdir(self.directory)

    def _all_settings(self, spider: str) -> dict[str, Any]:
        feeds = {"items.jsonl": {"format": "jsonlines"}} if spider == MAIN else {}
        return {
            "BOT_NAME": "year",
            "SPIDER_MODULES": ["scrapy_walsh.spiders", "tests.year.spiders"],
            "ADDONS": {"scrapy_walsh.Addon": 500},
            "WALSH_IDENTITY": "walsh-research",
            "WALSH_STATE_DIR": str(self.state),
            "DOWNLOAD_HANDLERS_BASE": dict.fromkeys(_SCHEMES, "tests.year.wire.Handler"),
            "ASYNCIO_EVENT_LOOP": "tests.year.clock.Loop",
            "FEEDS": feeds,
            "LOG_LEVEL": "INFO",
            **self._settings,
        }


_SCHEMES: Final = ("http", "https")


def warm_up() -> None:
    """Import what every run would: by far the most of its time would go there."""
    bases = ("EXTENSIONS_BASE", "DOWNLOADER_MIDDLEWARES_BASE", "SPIDER_MIDDLEWARES_BASE")
    seats = [path.rpartition(".")[0] for base in bases for path in getattr(default_settings, base)]
    for name in [*_WARM, *seats]:
        with suppress(ImportError):
            importlib.import_module(name)
    assert "twisted.internet.reactor" not in sys.modules, "a fork cannot undo an import"
    gc.collect()
    gc.freeze()
