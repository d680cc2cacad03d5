"""Runs real crawls in processes of their own, against the sandbox, and judges what it saw.

What tests share to start sites on loopback, to run crawls of them, to kill or stop one, to move
its clocks, to look into the state between two, and to ask the whole log. Nothing else starts a
crawl with a sandbox: ``tests/campaign``, ``tests/faults`` and ``tests/fleet`` do it by this.
"""

from __future__ import annotations

import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy_walsh.commands.main import main
from scrapy_walsh.policy.signing import DIRECTORY_PATH
from scrapy_walsh.proof import exchanges
from scrapy_walsh.proof.sandbox import (
    LoggedRequest,
    Request,
    Route,
    Sandbox,
    Site,
    blocklist,
    exchanged,
    gaps,
    paths,
    requests,
)
from scrapy_walsh.state import open_store
from scrapy_walsh.state.records import (
    TABLES,
    Deferral,
    HostRecord,
    StoredDocument,
    VisitRecord,
)
from tests import zygote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from scrapy import Spider
    from scrapy.crawler import Crawler as ScrapyCrawler

    from scrapy_walsh.proof.sandbox.site import Answerer
    from scrapy_walsh.state.store import Store

OPERATOR = "http://operator.test/.well-known/walsh-research"
#: Of the operator's documents, as paths and as the keys of their records.
LIST = "/.well-known/walsh-research/blocklist.json"
SCHEMA = "/.well-known/walsh-research/blocklist.schema.json"
LIST_URL, SCHEMA_URL = f"{OPERATOR}/blocklist.json", f"{OPERATOR}/blocklist.schema.json"
USER_AGENT = "Mozilla/5.0 (compatible; Walsh-Research/1.2; +https://wal.sh/bot/)"
OWN_IDENTITY = {
    "product": "ExampleBot/1.0",
    "policy_url": "http://operator.test/bot/",
    "blocklist_url": f"{OPERATOR}/blocklist.json",
    "schema_url": f"{OPERATOR}/blocklist.schema.json",
}

#: One that may sign: its policy page is https, and its keys are beside it.
SIGNING_IDENTITY = {**OWN_IDENTITY, "policy_url": "https://operator.test/bot/"}
KEYS_URL = f"https://operator.test{DIRECTORY_PATH}"

#: What fails is not asked again while a short crawl lasts: a wait below 10 s has odds of 1e-5.
FAR_OFF: dict[str, Any] = {"WALSH_BACKOFF_BASE": 1e6, "WALSH_BACKOFF_CAP": 1e6}

HOUR, DAY = 3600.0, 86400.0
#: Seconds that a gap seen at the server may be short by.
TOLERANCE = 0.02
OPEN = "User-agent: *\nAllow: /\n"
RULES = "User-agent: *\nDisallow: /private/\n"
#: Seconds after which the engine looks at its queue by itself: who waits that long was forgotten.
HEARTBEAT = 5.0

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

#: In front of a spider: a name under .test, and 127.0.0.0/8, is this machine for its process, so a
#: crawl needs no proxy. What a proxy does to a request, or hides, is not in its way then.
NAMES = """
import socket

_addresses, _address = socket.getaddrinfo, socket.gethostbyname

def _here(host):
    text = host.decode() if isinstance(host, bytes) else str(host)
    return "127.0.0.1" if text.lower().rstrip(".").endswith(".test") else host

socket.getaddrinfo = lambda host, *more, **named: _addresses(_here(host), *more, **named)
socket.gethostbyname = lambda host: _address(_here(host))
"""

#: For spiders that ask past the queue, whatever the Scrapy version, reactor or loop.
TOGETHER = """
import asyncio
import scrapy
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from twisted.internet.defer import DeferredList

def ask(spider, url, **options):
    engine = spider.crawler.engine
    request = scrapy.Request(url, dont_filter=True, **options)
    if hasattr(engine, "download_async"):
        return engine.download_async(request)
    return maybe_deferred_to_future(engine.download(request))

async def together(spider, urls):
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        deferreds = [deferred_from_coro(ask(spider, url)) for url in urls]
        return [result for _, result in await DeferredList(deferreds, consumeErrors=True)]
    return await asyncio.gather(*(ask(spider, url) for url in urls), return_exceptions=True)
"""


@dataclass
class Crawl:
    """One finished command: its output, its items and stats, and the sandbox's log of it.

    ``returncode``: None where it did not end and was killed.
    """

    returncode: int | None
    output: str
    items: list[dict[str, Any]]
    stats: dict[str, Any]
    log: list[LoggedRequest] = field(repr=False)

    def asked(self, host: str) -> list[str]:
        """The paths asked of *host*, in order of arrival."""
        return paths(self.log, host)

    def targets(self, host: str) -> list[str]:
        """The paths asked of *host*, its robots.txt apart."""
        return [path for path in self.asked(host) if path != "/robots.txt"]

    def robots_asked(self, host: str) -> int:
        """How often *host* was asked for robots.txt."""
        return self.asked(host).count("/robots.txt")

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

    def final_stats(self) -> dict[str, float]:
        """The ``walsh/`` counters that Scrapy prints at the end, those set last included."""
        printed = self.output.rpartition("Dumping Scrapy stats")[2]
        found = re.findall(r"'walsh/([^']+)': ([0-9.]+)", printed)
        return {name: float(value) for name, value in found}


def keygen(directory: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Settings with which requests are signed by a new key in *directory*, and the key set."""
    from scrapy_walsh.proof.keys import keys_of, make_keys  # noqa: PLC0415  it needs an extra

    made = make_keys(directory)
    settings = {
        "WALSH_IDENTITY": SIGNING_IDENTITY,
        "WALSH_SIGN_REQUESTS": True,
        "WALSH_SIGNING_KEY": str(made.key),
    }
    return settings, keys_of(made.jwks.read_bytes())


# -- sites ----------------------------------------------------------------------------------------


def site(
    host: str,
    routes: Mapping[str, Route | Answerer] | None = None,
    robots: str | Route | Answerer = OPEN,
) -> Site:
    """A host with a robots.txt; a page at every path that *routes* does not name."""
    rules = Route(body=robots, content_type="text/plain") if isinstance(robots, str) else robots
    return Site(host, {"/robots.txt": rules, "*": Route(body="<p>page</p>"), **(routes or {})})


def rules(text: str) -> Route:
    """A robots.txt."""
    return Route(body=f"User-agent: *\n{text}\n", content_type="text/plain")


def answer(body: str | bytes = RULES, status: int = 200, **fields: Any) -> Route:
    """An answer to a request for robots.txt."""
    return Route(status, body, **{"content_type": "text/plain", **fields})


def served(document: object, **fields: Any) -> Route:
    """A JSON document."""
    return Route(body=json.dumps(document), content_type="application/json", **fields)


def listing(*domains: str, **changes: Any) -> Route:
    """A blocklist of *domains* with its schema inline, members replaced by *changes*."""
    return served({**blocklist("http://operator.test", *domains), **changes})


def operator(route: Any, robots: str | Route = RULES, **routes: Any) -> Site:
    """The operator's origin with *route* as its blocklist."""
    return site("operator.test", {LIST: route, **routes}, robots)


@dataclass
class Limit:
    """A route that counts as nginx's limit_req does: one request in ``every`` seconds.

    A request that it answers with ``refusal`` costs nothing.
    """

    every: float
    refusal: int = 429
    last: float = field(default=-1e9)

    def __call__(self, request: Request) -> Route:
        now = time.monotonic()
        if now - self.last < self.every:
            return Route(self.refusal)
        self.last = now
        if request.path == "/robots.txt":
            return Route(body="User-agent: *\nAllow: /\n", content_type="text/plain")
        return Route(body="<p>page</p>")


@contextmanager
def closed_port() -> Iterator[int]:
    """A port of this machine where every connection is refused while it is kept."""
    with socket.socket() as kept:
        kept.bind(("127.0.0.1", 0))
        yield kept.getsockname()[1]


#: What a daily job asks of :func:`daily_sites`: a host of each kind.
DAILY = (
    *("http://page.test/p", "http://busy.test/p", "http://slow.test/1", "http://slow.test/2"),
    *("http://closed.test/p", "http://dark.test/open", "http://dark.test/private/p"),
    *("http://bare.test/p", "http://www.optout.test/p", "http://moved.test/p"),
)


def daily_sites() -> list[Site]:
    """The operator, with a schema apart, and the hosts of :data:`DAILY` at the beginning.

    The data of ``tests/upgrade`` was made with them: who changes a host makes it anew.
    """
    listed = served(blocklist("http://operator.test", "optout.test", inline=False))
    return [
        Site("operator.test", {LIST: listed, SCHEMA: served(blocklist()["schema"])}),
        site("page.test", {"/p": Route(body="<p>page</p>", etag='"page-1"')}),
        site("busy.test", {"/p": Route(429, headers={"Retry-After": f"{5 * DAY:.0f}"})}),
        site("slow.test", robots=f"User-agent: *\nCrawl-delay: {2 * HOUR:.0f}\n"),
        site("closed.test", robots="User-agent: *\nDisallow: /\n"),
        site("dark.test", robots=RULES),
        site("bare.test", {"/robots.txt": Route(404)}),
        site("www.optout.test"),
        site("moved.test", {"/p": Route(301, location="http://hop.test/p")}),
        site("hop.test"),
    ]


# -- crawls ---------------------------------------------------------------------------------------


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


def crawl_of(
    *urls: str,
    sites: Sequence[Site] = (),
    spider: str | None = None,
    settings: Mapping[str, Any] | None = None,
    **options: Any,
) -> Callable[[Path], Crawl]:
    """A crawl yet to be run, in a folder of its own."""
    given = {"settings": dict(settings or {}), "sites": tuple(sites), **options}
    if spider is not None:
        given["spider"] = spider
    return lambda directory: solo(directory, *urls, **given)


def side_by_side(
    directory: Path, jobs: Mapping[str, Mapping[str, Any]], *urls: str
) -> dict[str, Crawl]:
    """A crawl of its own for each of *jobs* (arguments of :func:`solo`), two at a time."""

    def run(numbered: tuple[int, Mapping[str, Any]]) -> Crawl:
        number, arguments = numbered
        return solo(directory / str(number), *urls, **arguments)

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(jobs, pool.map(run, enumerate(jobs.values())), strict=True))


def idle_crawler(spider: Spider, settings: Mapping[str, Any] | None = None) -> ScrapyCrawler:
    """A crawler with the add-on that never begins, for a part alone; its state is in memory."""
    from scrapy.crawler import Crawler  # noqa: PLC0415  few tests need it
    from scrapy.statscollectors import StatsCollector  # noqa: PLC0415

    from scrapy_walsh.adapters.seats import Addon  # noqa: PLC0415

    given = {"WALSH_IDENTITY": OWN_IDENTITY, "WALSH_STATE_DIR": "memory", **(settings or {})}
    crawler = Crawler(type(spider), given)
    Addon().update_settings(crawler.settings)
    crawler.stats, crawler.spider = StatsCollector(crawler), spider
    return crawler


def without_proxy(
    directory: Path,
    *paths: str,
    sites: Sequence[Site] = (),
    spider: str = LIST_SPIDER,
    settings: Mapping[str, Any] | None = None,
    **options: Any,
) -> Crawl:
    """One crawl whose connections go to the sites themselves, by :data:`NAMES`.

    In *paths* and in the settings ``:PORT`` stands for the port of the sandbox, which has them all.
    """
    with Sandbox() as box:
        for each in sites:
            box.put(each)
        port = f":{box.port}"
        given = {
            "HTTPPROXY_ENABLED": False,
            "WALSH_BLOCKLIST_URL": LIST_URL.replace(".test", ".test:PORT"),
            "WALSH_BLOCKLIST_SCHEMA_URL": SCHEMA_URL.replace(".test", ".test:PORT"),
            **(settings or {}),
        }
        for name, value in given.items():
            if isinstance(value, str):
                given[name] = value.replace(":PORT", port)
        project = make_project(directory, NAMES + spider, given)
        return crawl(project, box, *(each.replace(":PORT", port) for each in paths), **options)


# -- the state between two crawls -----------------------------------------------------------------


def state_dir(project: Path) -> Path:
    """Where a project keeps its state by default."""
    return project / ".scrapy" / "walsh"


def put_records(
    directory: Path, *records: StoredDocument | HostRecord | VisitRecord | Deferral
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


def forget_pacing(project: Path) -> None:
    """Make the next run know of no earlier request to any host: it need not wait for one."""
    store = open_store(state_dir(project))
    for record in list(store.rows(HostRecord)):
        store.delete(HostRecord, record.host)
    store.close()


# -- disks ----------------------------------------------------------------------------------------


def mount(*words: str | Path) -> None:
    """Mount what *words* say."""
    subprocess.run(["mount", *map(str, words)], check=True, capture_output=True)  # noqa: S607


def unmount(place: Path) -> None:
    """Undo :func:`mount`, also where a process still uses it."""
    subprocess.run(["umount", "-l", str(place)], check=True, capture_output=True)  # noqa: S607


@cache
def can_mount() -> bool:
    """Whether this process may mount a small disk."""
    with tempfile.TemporaryDirectory() as name:
        try:
            mount("-t", "tmpfs", "-o", "size=64k", "tmpfs", name)
        except (OSError, subprocess.CalledProcessError):
            return False
        unmount(Path(name))
    return True


def fill_disk(filler: Path) -> None:
    """Use up the disk of *filler*, to the last octet."""
    with filler.open("wb", buffering=0) as file:
        size = 1 << 16
        while size:
            try:
                file.write(b"\0" * size)
            except OSError:
                size //= 2


# -- processes ------------------------------------------------------------------------------------


def make_project(
    directory: Path, spider: str = LIST_SPIDER, settings: dict[str, Any] | None = None
) -> Path:
    """A Scrapy project in *directory*; *settings* are laid over :data:`SETTINGS`, None removes."""
    directory.mkdir(parents=True, exist_ok=True)
    merged = {**SETTINGS, **(settings or {})}
    extensions = {"statsfile.StatsFile": 0, **merged.pop("EXTENSIONS", {})}
    write_settings(directory, {**merged, "EXTENSIONS": extensions})
    (directory / "statsfile.py").write_text(STATS_EXTENSION)
    (directory / "spiders.py").write_text(textwrap.dedent(spider))
    return directory


def write_settings(project: Path, settings: Mapping[str, Any]) -> None:
    """Give *project* these settings; what is None is left out."""
    given = (f"{name} = {value!r}\n" for name, value in settings.items() if value is not None)
    (project / "probe_settings.py").write_text("".join(given))
    (project / "scrapy.cfg").write_text("[settings]\ndefault = probe_settings\n")


def environment(project: Path, box: Sandbox | None, **more: str) -> dict[str, str]:
    """Of a command in *project* whose proxy is the sandbox; *more*: what it has besides."""
    path = [more.pop("PYTHONPATH", None), str(project), os.environ.get("PYTHONPATH")]
    proxies = dict.fromkeys(("http_proxy", "https_proxy"), box.proxy_url) if box else {}
    return {
        **os.environ,
        **more,
        **({**proxies, "no_proxy": ""} if box else {}),
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
    }


def begin(project: Path, box: Sandbox, *words: str, **more: str) -> Run:
    """Start ``python -m WORDS`` in *project*; *more*: what its environment has besides."""
    return Run([sys.executable, "-m", *words], project, box, environment(project, box, **more))


def run_scrapy(
    project: Path,
    box: Sandbox | None,
    *arguments: str,
    timeout: float = 180,
    module: str = "scrapy",
    apart: bool = False,
    **more: str,
) -> subprocess.CompletedProcess[str]:
    """``scrapy ARGUMENTS`` in *project*, or another *module*, with the sandbox as its proxy.

    *apart*: ``stderr`` is not with ``stdout``. *more*: what its environment has besides.
    """
    return zygote.run(
        [sys.executable, "-m", module, *arguments],
        cwd=project,
        env=environment(project, box, **more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if apart else subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )


def walsh(
    folder: Path, *words: str, box: Sandbox | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """``walsh WORDS`` in *folder*: what it prints, and apart from it what else it says."""
    given = {"module": "scrapy_walsh", "apart": True, **options}
    return run_scrapy(folder, box, *words, **given)


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
    return Crawl(done.returncode, done.stdout, *_left_in(project), box.log)


def _left_in(project: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The items and the stats that a crawl wrote; none where it wrote none."""
    items, stats = project / "items.jsonl", project / "stats.json"
    lines = items.read_text().splitlines() if items.exists() else []
    return [*map(json.loads, lines)], json.loads(stats.read_text()) if stats.exists() else {}


def verify(directory: Path, *options: str) -> tuple[int, str]:
    """``walsh verify`` of a state directory, in this process: its exit code and what it prints."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        code = main(["verify", str(directory), *options])
    return code, printed.getvalue()


# -- while one runs -------------------------------------------------------------------------------

#: Seconds in which the server reads what a killed process had sent.
_ON_THE_WAY = 0.1


class Kill(NamedTuple):
    """When a process was killed (monotonic).

    ``ordered``: before the signal. ``over``: after its end, when nothing that it sent can still
    be on the way, and no later run has sent anything yet.
    """

    ordered: float
    over: float


class Run:
    """A command under way in *project*. It says what it says to a file: no pipe can be full."""

    def __init__(
        self, command: Sequence[str], project: Path, box: Sandbox, env: Mapping[str, str]
    ) -> None:
        self.project, self._box = project, box
        self._begun = time.monotonic()
        with (project / "output.txt").open("w") as output:
            self.process = zygote.Popen(
                command,
                cwd=project,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def output(self) -> str:
        """What it has said so far."""
        return (self.project / "output.txt").read_text(errors="replace")

    @property
    def log(self) -> list[LoggedRequest]:
        """What was asked since it began."""
        return [each for each in self._box.log if each.arrived >= self._begun]

    def over(self, seconds: float) -> bool:
        """Whether it ends within *seconds*."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """As ``kill -9``."""
        self.process.kill()
        self.process.wait()

    def finish(self, timeout: float = 180) -> Crawl:
        """Wait for its end; a command that does not end is killed, and has no return code."""
        code = self.process.returncode if self.over(timeout) else None
        self.kill()
        left = ([], {}) if code is None else _left_in(self.project)
        return Crawl(code, self.output, *left, self.log)

    def said(self, timeout: float = 180, *, code: int = 0) -> str:
        """Its output at its end; AssertionError unless it exits with *code*."""
        done = self.finish(timeout)
        assert done.returncode == code, done.output
        return done.output

    def comes_to(self, moment: Callable[[list[LoggedRequest]], bool], timeout: float = 180) -> bool:
        """Wait until the log says *moment*; whether that was before the end."""
        end = time.monotonic() + timeout
        while not moment(self.log):
            if self.over(0.01):
                return False
            assert time.monotonic() < end, "the log never showed what the test waits for"
        return True

    def kill_when(self, moment: Callable[[list[LoggedRequest]], bool], after: float) -> Kill | None:
        """kill -9, *after* seconds from when the log says *moment*; when that was.

        None when the command ended by itself before.
        """
        if not self.comes_to(moment) or self.over(after):
            return None
        ordered = time.monotonic()
        self.kill()
        time.sleep(_ON_THE_WAY)  # a later run is forked at once, and may send something sooner
        return Kill(ordered, time.monotonic())


@dataclass
class Stopped(Crawl):
    """A crawl that was sent a signal.

    ``closed``: seconds from the signal until the spider was closed. ``ended``: until the
    process was gone, which also takes what the machine needs for it.
    """

    closed: float
    ended: float


def stop(
    project: Path,
    box: Sandbox,
    *arguments: str,
    when: Callable[[list[LoggedRequest]], bool],
    after: float = 0.3,
    timeout: float = 180,
    by: signal.Signals = signal.SIGINT,
) -> Stopped:
    """``scrapy ARGUMENTS`` in *project*; a signal *after* seconds from when the log says *when*."""
    box.clear()
    (project / "stats.json").unlink(missing_ok=True)
    run = begin(project, box, "scrapy", *arguments)
    try:
        run.comes_to(when, timeout)
        time.sleep(after)
        sent = time.time()
        run.process.send_signal(by)
    finally:
        done = run.finish(timeout)
    closed = datetime.fromisoformat(done.stats["finish_time"]).timestamp()
    return Stopped(**vars(done), closed=closed - sent, ended=time.time() - sent)


def wait_until(condition: Callable[[], object], timeout: float = 120) -> None:
    """Return when *condition* holds; AssertionError when it does not within *timeout*."""
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.02)


# -- one run after another ------------------------------------------------------------------------

#: Moves the clocks by the seconds in a file beside it: by the first number all of them, as if so
#: much time had passed; by the second the wall clock alone, as if somebody had set it, so many
#: seconds after the start as the third says.
CLOCKS_MODULE = """
import pathlib, time
_file = pathlib.Path(__file__).with_name("clocks")
_passed, _set, _after = map(float, _file.read_text().split()) if _file.exists() else (0, 0, 0)
_time, _gettime, _monotonic = time.time, time.clock_gettime, time.monotonic
_from = _monotonic() + _after
_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
time.time = lambda: _time() + _passed + (_set if _monotonic() >= _from else 0)
time.clock_gettime = lambda clock: _gettime(clock) + (_passed if clock == _BOOTTIME else 0.0)
"""
#: The columns that are times, of all tables.
_TIMES = (
    "counted_from", "declared_at", "due", "fetched_at", "gave_up_at", "gone_at", "last_at",
    "last_end", "last_run_at", "not_before", "seen_at", "since", "stored_at", "told_at",
    "visited_at",
)  # fmt: skip
AGAIN = {"WALSH_REVISIT_REASON": "one run after another"}
#: Not repeated while a short crawl lasts, so that only what must be is seen.
ONCE: dict[str, Any] = {**AGAIN, **FAR_OFF}


class Runs:
    """Crawls of one project, one after another; ``log`` is that of all of them."""

    def __init__(
        self,
        directory: Path,
        *sites: Site,
        settings: dict[str, Any] | None = None,
        spider: str = LIST_SPIDER,
    ) -> None:
        self.box = Sandbox()
        self.project = make_project(directory, spider, settings)
        self.log: list[LoggedRequest] = []
        self._sites = sites
        #: What the environment of its commands has besides.
        self._more: dict[str, Any] = {}

    def __enter__(self) -> Runs:
        self.box.__enter__()
        for each in self._sites:
            self.box.put(each)
        return self

    def __exit__(self, *error: Any) -> None:
        self.box.__exit__(None, None, None)

    def __call__(self, *urls: str, arguments: tuple[str, ...] = (), **options: Any) -> Crawl:
        """One more run."""
        given = {**self._more, **options}
        done = crawl(self.project, self.box, *urls, arguments=arguments, **given)
        assert "Traceback" not in done.output, done.output
        self.log += done.log
        return done

    def start(self, urls: Iterable[str], *arguments: str) -> Run:
        """Begin one that the test does something to; ``box.log`` goes on, and nothing is judged."""
        words = ("scrapy", "crawl", "probe", "-a", f"urls={' '.join(urls)}", *arguments)
        more = {"PYTHONDONTWRITEBYTECODE": "1", **self._more}
        return begin(self.project, self.box, *words, **more)

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """``walsh ARGUMENTS`` in the project."""
        return run_scrapy(self.project, self.box, *arguments, module="scrapy_walsh", **self._more)

    @property
    def state(self) -> Path:
        """Where the runs keep what they know."""
        return state_dir(self.project)

    def move_clocks(self, passed: float, jump: float = 0.0, after: float = 0.0) -> None:
        """From now on *passed* seconds have passed here, and the wall clock is *jump* off.

        That sets in *after* seconds of a process.
        """
        (self.project / "sitecustomize.py").write_text(CLOCKS_MODULE)
        (self.project / "clocks").write_text(f"{passed!r} {jump!r} {after!r}")
        self._more = {zygote.BROKEN: "1"}  # the module moves clocks, and does nothing else

    def at(self, moment: float, jump: float = 0.0) -> None:
        """It is *moment* (Unix seconds) now; the wall clock says *jump* seconds more."""
        self.move_clocks(moment - time.time(), jump)

    def serve(self, host: str, path: str, route: Route) -> None:
        """Answer so from now on."""
        self.box.set_route(host, path, route)

    def age(self, kind: str, key: str, seconds: float) -> None:
        """Make a stored document *seconds* older."""
        age_document(self.project, kind, key, seconds)

    @contextmanager
    def store(self) -> Iterator[Store]:
        """The store, between two runs."""
        opened = open_store(self.state)
        try:
            yield opened
        finally:
            opened.close()

    def pass_time(self, seconds: float) -> None:
        """Make everything on record *seconds* older."""
        with self.store() as store:
            for table in TABLES:
                for record in list(store.rows(table.record)):
                    store.put(_older(record, seconds))

    def source_ran(self, url: str, ago: float) -> None:
        """Make the last run of source *url* lie *ago* seconds back, its first one."""
        with self.store() as store:
            source = store.get(VisitRecord, url)
            assert source is not None, f"no run of {url} is on record"
            store.put(replace(source, last_run_at=time.time() - ago, counted_from=None))

    def host(self, name: str) -> HostRecord:
        """What is on record about a host."""
        with self.store() as store:
            record = store.get(HostRecord, name)
        assert record is not None, f"no record of {name}"
        return record


def _older(record: Any, seconds: float) -> Any:
    """*record* with each of its times *seconds* earlier."""
    held = {name: getattr(record, name) for name in _TIMES if hasattr(record, name)}
    return replace(record, **{name: at - seconds for name, at in held.items() if at is not None})


# -- the log --------------------------------------------------------------------------------------


def kept(found: list[float], seconds: float) -> bool:
    """Whether there are gaps, and none is shorter than *seconds*."""
    return bool(found) and min(found) >= seconds - TOLERANCE


def too_soon(
    log: Iterable[LoggedRequest], interval: float = 1.0, *, exempt: bool = True
) -> list[str]:
    """The requests that came sooner than *interval* seconds after the one before on their host.

    ``exempt``: T1's pair, the first robots.txt of a host and the target after it, is left out.
    """
    found = exchanges.too_soon(exchanged(log), interval, TOLERANCE, exempt=exempt)
    return list(map(str, found))


def longest_pause(log: Iterable[LoggedRequest]) -> float:
    """The longest time, in seconds, for which nothing was on the wire."""
    return max(gaps(log))


def targets(log: Iterable[LoggedRequest], *names: str) -> list[LoggedRequest]:
    """The requests that are no robots.txt and none of the operator's documents, in order.

    ``names``: the hosts to look at, all when none is given.
    """
    return [
        each
        for each in requests(log)
        if each.path != "/robots.txt"
        and each.host != "operator.test"
        and (not names or each.host in names)
    ]
