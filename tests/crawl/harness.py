"""Runs a real crawl in a subprocess, against the sandbox, and hands back what the server saw."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from scrapy_walsh.proof.sandbox import LoggedRequest, Route, Sandbox, Site, gaps, paths, requests
from scrapy_walsh.state import open_store
from scrapy_walsh.state.records import Deferral, HostRecord, SourceRun, StoredDocument
from tests import zygote

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from scrapy_walsh.proof.sandbox.site import Answerer

OPERATOR = "http://operator.test/.well-known/walsh-research"
USER_AGENT = "Mozilla/5.0 (compatible; Walsh-Research/1.2; +https://wal.sh/bot/)"
OWN_IDENTITY = {
    "product": "ExampleBot/1.0",
    "policy_url": "http://operator.test/bot/",
    "blocklist_url": f"{OPERATOR}/blocklist.json",
    "schema_url": f"{OPERATOR}/blocklist.schema.json",
}

#: What fails is not asked again while a short crawl lasts: a wait below 10 s has odds of 1e-5.
FAR_OFF: dict[str, Any] = {"WALSH_BACKOFF_BASE": 1e6, "WALSH_BACKOFF_CAP": 1e6}

#: Seconds that a gap seen at the server may be short by.
TOLERANCE = 0.02
OPEN = "User-agent: *\nAllow: /\n"

SETTINGS: dict[str, Any] = {
    "BOT_NAME": "probe",
    "SPIDER_MODULES": ["spiders"],
    "ADDONS": {"scrapy_walsh.Addon": 500},
    "WALSH_IDENTITY": "walsh-research",
    "WALSH_BLOCKLIST_URL": f"{OPERATOR}/blocklist.json",
    "WALSH_BLOCKLIST_SCHEMA_URL": f"{OPERATOR}/blocklist.schema.json",
    "LOG_LEVEL": "DEBUG",
}

STATS_EXTENSION = """
import json
from scrapy import signals

class StatsFile:
    @classmethod
    def from_crawler(cls, crawler):
        def closed(spider, reason):
            stats = {**crawler.stats.get_stats(), "close_reason": reason}
            with open("stats.json", "w") as file:
                json.dump(stats, file, default=str)
        cls.closed = staticmethod(closed)
        crawler.signals.connect(closed, signals.spider_closed, weak=False)
        return cls()
"""

LIST_SPIDER = """
import scrapy

class Probe(scrapy.Spider):
    name = "probe"

    def __init__(self, urls="", **kwargs):
        super().__init__(**kwargs)
        self.start_urls = urls.split()

    async def start(self):
        for url in self.start_urls:
            yield scrapy.Request(url, callback=self.parse, errback=self.failed)

    def parse(self, response):
        yield {"url": response.url, "status": response.status, "bytes": len(response.body)}

    def failed(self, failure):
        error, why = failure.type.__name__, str(failure.value)
        yield {"url": failure.request.url, "error": error, "why": why}
"""


@dataclass
class Crawl:
    """One finished command: its output, its items and stats, and the sandbox's log of it."""

    returncode: int
    output: str
    items: list[dict[str, Any]]
    stats: dict[str, Any]
    log: list[LoggedRequest] = field(repr=False)

    def asked(self, host: str) -> list[str]:
        """The paths asked of *host*, in order of arrival."""
        return paths(self.log, host)

    def requests(self, host: str) -> list[LoggedRequest]:
        """The requests to *host*, in order of arrival."""
        return requests(self.log, host)

    def gaps(self, host: str) -> list[float]:
        """Seconds from the end of each answer of *host* to its next request."""
        return gaps(self.log, host)

    def fetched(self, url: str) -> bool:
        """Whether the spider was given a response for *url*."""
        return any(item["url"] == url and "status" in item for item in self.items)

    def why(self, url: str) -> str:
        """What the errback was told about *url*; empty when it was not called."""
        told = (f"{item['error']} {item['why']}" for item in self.items if "error" in item)
        return next((text for text in told if url in text), "")

    def lines(self, *words: str) -> list[str]:
        """The output lines that hold every one of *words*."""
        return [line for line in self.output.splitlines() if all(word in line for word in words)]


def site(
    host: str, routes: Mapping[str, Route | Answerer] | None = None, robots: str | Route = OPEN
) -> Site:
    """A host with a robots.txt; a page at every path that *routes* does not name."""
    rules = robots if isinstance(robots, Route) else Route(body=robots, content_type="text/plain")
    return Site(host, {"/robots.txt": rules, "*": Route(body="<p>page</p>"), **(routes or {})})


def kept(found: list[float], seconds: float) -> bool:
    """Whether there are gaps, and none is shorter than *seconds*."""
    return bool(found) and min(found) >= seconds - TOLERANCE


def solo(
    directory: Path,
    *urls: str,
    sites: tuple[Site, ...] = (),
    spider: str = LIST_SPIDER,
    settings: dict[str, Any] | None = None,
    **options: Any,
) -> Crawl:
    """One crawl with a sandbox of its own: for fixtures that several tests share."""
    with Sandbox() as box:
        for each in sites:
            box.put(each)
        return crawl(make_project(directory, spider, settings), box, *urls, **options)


def side_by_side(
    directory: Path, jobs: Mapping[str, Mapping[str, Any]], *urls: str
) -> dict[str, Crawl]:
    """A crawl of its own for each of *jobs* (arguments of :func:`solo`), two at a time."""

    def run(numbered: tuple[int, Mapping[str, Any]]) -> Crawl:
        number, arguments = numbered
        return solo(directory / str(number), *urls, **arguments)

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(jobs, pool.map(run, enumerate(jobs.values())), strict=True))


def state_dir(project: Path) -> Path:
    """Where a project keeps its state by default."""
    return project / ".scrapy" / "walsh"


def put_records(
    directory: Path, *records: StoredDocument | HostRecord | SourceRun | Deferral
) -> None:
    """Put *records* into the state directory."""
    store = open_store(directory)
    for record in records:
        store.put(record)
    store.close()


def age_document(project: Path, kind: str, key: str, seconds: float = 700_000) -> None:
    """Make a stored document look *seconds* older, so that the next run asks for it again."""
    store = open_store(state_dir(project))
    document = store.get(StoredDocument, kind, key)
    assert document is not None, f"no {kind} of {key} is held"
    store.put(replace(document, fetched_at=document.fetched_at - seconds))
    store.close()


def age_blocklist(project: Path) -> None:
    """As :func:`age_document`, for the operator's list of the sandbox."""
    age_document(project, "blocklist", f"{OPERATOR}/blocklist.json")


def forget_pacing(project: Path) -> None:
    """Make the next run know of no earlier request to any host: it need not wait for one."""
    store = open_store(state_dir(project))
    for record in list(store.rows(HostRecord)):
        store.delete(HostRecord, record.host)
    store.close()


def make_project(
    directory: Path, spider: str = LIST_SPIDER, settings: dict[str, Any] | None = None
) -> Path:
    """A Scrapy project in *directory*; *settings* are laid over :data:`SETTINGS`, None removes."""
    directory.mkdir(parents=True, exist_ok=True)
    merged = {**SETTINGS, **(settings or {})}
    extensions = {"statsfile.StatsFile": 0, **merged.pop("EXTENSIONS", {})}
    lines = [f"{name} = {value!r}" for name, value in merged.items() if value is not None]
    lines.append(f"EXTENSIONS = {extensions!r}")
    (directory / "scrapy.cfg").write_text("[settings]\ndefault = probe_settings\n")
    (directory / "probe_settings.py").write_text("\n".join(lines) + "\n")
    (directory / "statsfile.py").write_text(STATS_EXTENSION)
    (directory / "spiders.py").write_text(textwrap.dedent(spider))
    return directory


def run_scrapy(
    project: Path,
    box: Sandbox,
    *arguments: str,
    timeout: float = 180,
    module: str = "scrapy",
    **more: str,
) -> subprocess.CompletedProcess[str]:
    """``scrapy ARGUMENTS`` in *project*, or another *module*, with the sandbox as its proxy.

    *more*: what its environment has besides.
    """
    environment = {
        **os.environ,
        **more,
        "http_proxy": box.proxy_url,
        "https_proxy": box.proxy_url,
        "no_proxy": "",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(project), os.environ.get("PYTHONPATH")])),
    }
    return zygote.run(
        [sys.executable, "-m", module, *arguments],
        cwd=project,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )


def crawl(
    project: Path,
    box: Sandbox,
    *urls: str,
    spider_name: str = "probe",
    arguments: tuple[str, ...] = (),
    timeout: float = 180,
    **more: str,
) -> Crawl:
    """``scrapy crawl`` in *project*; the log holds what this run asked, nothing earlier.

    *more*: what its environment has besides.
    """
    box.clear()
    for name in ("items.jsonl", "stats.json"):
        (project / name).unlink(missing_ok=True)
    given = ("-a", f"urls={' '.join(urls)}") if urls else ()
    command = ("crawl", spider_name, "-o", "items.jsonl", *given, *arguments)
    done = run_scrapy(project, box, *command, timeout=timeout, **more)
    items, stats = project / "items.jsonl", project / "stats.json"
    return Crawl(
        returncode=done.returncode,
        output=done.stdout,
        items=[json.loads(line) for line in items.read_text().splitlines()]
        if items.exists()
        else [],
        stats=json.loads(stats.read_text()) if stats.exists() else {},
        log=box.log,
    )
