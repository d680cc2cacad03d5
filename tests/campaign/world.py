"""What every campaign runs: a small site, a crawl of it that can be killed, and its remains."""

from __future__ import annotations

import subprocess
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy_walsh.proof.sandbox import Route, Sandbox, Site, blocklist, requests
from scrapy_walsh.state.database import DATABASE
from scrapy_walsh.state.files import COPY
from tests.crawl.harness import LIST, begin, make_project, served, site, state_dir

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from scrapy_walsh.proof.sandbox import LoggedRequest

PAUSED, BUSY, BLOCKED = "paused.test", "busy.test", "blocked.test"
PLAIN = tuple(f"plain{number}.test" for number in range(4))
#: Seconds in which the server reads what a killed process had sent.
_ON_THE_WAY = 0.1
#: Seconds for which a busy host asks to be left alone.
RETRY_AFTER = 1.0
#: Seconds between requests, where a host asks for more than one.
INTERVALS: Mapping[str, float] = {PAUSED: 1.5}

SPIDER = """
import scrapy

class Probe(scrapy.Spider):
    name = "probe"

    def __init__(self, urls="", **kwargs):
        super().__init__(**kwargs)
        self.urls = urls.split()

    async def start(self):
        for url in self.urls:
            yield scrapy.Request(url, errback=self.failed)

    def parse(self, response):
        with open("parsed.txt", "a") as file:
            file.write(response.url + "\\n")

    def failed(self, failure):
        pass
"""


def urls(*pages: str) -> list[str]:
    """*pages* of every host that may be asked."""
    return [f"http://{host}/{page}" for page in pages for host in (*PLAIN, PAUSED, BUSY)]


#: What no run may ask: an opt-out, and a path that robots.txt disallows.
REFUSED = [f"http://www.{BLOCKED}/a", f"http://{PLAIN[0]}/private/a"]


def sites() -> list[Site]:
    """The hosts, with their answers from the beginning."""
    page = Route(body="<p>page</p>", delay=0.05)
    rules = "User-agent: *\nDisallow: /private/\n"
    busy = Route(sequence=(Route(503, headers={"Retry-After": f"{RETRY_AFTER:g}"}), page))
    return [
        Site("operator.test", {LIST: listed()}),
        *(site(host, {"*": page}, rules) for host in PLAIN),
        site(PAUSED, {"*": page}, f"{rules}Crawl-delay: {INTERVALS[PAUSED]}\n"),
        site(BUSY, {"*": page, "/a": busy}, rules),
        site(BLOCKED),
        site(f"www.{BLOCKED}"),
    ]


def listed() -> Route:
    """The operator's list, which blocks :data:`BLOCKED`."""
    return served(blocklist("http://operator.test", BLOCKED), delay=0.1)


@dataclass
class Report:
    """What a campaign did, and every promise that it saw broken."""

    name: str
    figures: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def broken(self, where: str, found: Sequence[str]) -> None:
        """Note each of *found* as a violation seen in *where*."""
        self.violations += [f"{where}: {each}" for each in found]

    def lines(self) -> list[str]:
        """The summary."""
        figures = {**self.figures, "violations": len(self.violations)}
        width = max(len(name) for name in figures)
        table = [f"  {name:<{width}}  {count:>6}" for name, count in figures.items()]
        return [f"{self.name}:", *table, *(f"  BROKEN {each}" for each in self.violations)]


class Kill(NamedTuple):
    """When a process was killed (monotonic).

    ``ordered``: before the signal. ``over``: after its end, when nothing that it sent can still
    be on the way, and no later run has sent anything yet.
    """

    ordered: float
    over: float


class Deadline:
    """Says when a campaign's *seconds* are used up."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def passed(self) -> bool:
        """Whether no further round may begin."""
        return time.monotonic() >= self._end


@dataclass
class Ended:
    """A run that has ended."""

    returncode: int
    output: str
    log: list[LoggedRequest] = field(repr=False)

    def lines(self, *words: str) -> list[str]:
        """The output lines that hold every one of *words*."""
        return [line for line in self.output.splitlines() if all(word in line for word in words)]


class Place:
    """A project, its state directory, and the sandbox as it answers in this round."""

    def __init__(self, directory: Path, box: Sandbox, settings: dict[str, Any] | None = None):
        self.box = box
        self.project = make_project(
            directory,
            SPIDER,
            {
                "LOG_LEVEL": "INFO",
                "WALSH_BACKOFF_BASE": 0.1,
                "EXTENSIONS": {"statsfile.StatsFile": None},
                **(settings or {}),
            },
        )
        self.state = state_dir(self.project)
        box.clear()
        for each in sites():
            box.put(each)

    @property
    def files(self) -> dict[str, Path]:
        """The files of the state, by what they are called here."""
        return {
            "database": self.state / DATABASE,
            "wal": self.state / f"{DATABASE}-wal",
            "copy": self.state / COPY,
        }

    def parsed(self) -> list[str]:
        """The URLs that a spider was given a response for, in any run so far."""
        file = self.project / "parsed.txt"
        return file.read_text().split() if file.exists() else []

    def start(
        self,
        targets: Sequence[str],
        *arguments: str,
        environment: Mapping[str, str] | None = None,
    ) -> Run:
        """Begin a crawl of *targets*."""
        words = ("scrapy", "crawl", "probe", "-a", f"urls={' '.join(targets)}", *arguments)
        more = {"PYTHONDONTWRITEBYTECODE": "1", **(environment or {})}
        process = begin(self.project, self.box, *words, output=subprocess.PIPE, **more)
        return Run(process, self.box)

    def crawl(self, targets: Sequence[str], *arguments: str, **options: Any) -> Ended:
        """A crawl of *targets*, to its end."""
        return self.start(targets, *arguments, **options).finish()


class Run:
    """A crawl under way."""

    def __init__(self, process: subprocess.Popen[str], box: Sandbox) -> None:
        self._process = process
        self._box = box
        self._begun = time.monotonic()
        self._output = ""
        # Read all the time: a crawl that writes to a full pipe stands still.
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        self._output = self._process.stdout.read()

    @property
    def log(self) -> list[LoggedRequest]:
        """What it has asked so far."""
        return [each for each in requests(self._box.log) if each.arrived >= self._begun]

    def finish(self, timeout: float = 120) -> Ended:
        """Wait for its end; a crawl that does not end is killed, and its return code says so."""
        if not self._over(timeout):
            self._process.kill()
            self._process.wait()
        self._reader.join()
        return Ended(self._process.returncode, self._output, self.log)

    def kill_when(self, moment: Callable[[list[LoggedRequest]], bool], after: float) -> Kill | None:
        """kill -9, *after* seconds from when the log says *moment*; when that was.

        None when the crawl ended by itself before.
        """
        while not moment(self.log):
            if self._over(0.01):
                return None
        if self._over(after):
            return None
        ordered = time.monotonic()
        self._process.kill()
        self._process.wait()
        time.sleep(_ON_THE_WAY)  # a later run is forked at once, and may send something sooner
        return Kill(ordered, time.monotonic())

    def _over(self, seconds: float) -> bool:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True


def flip_bits(path: Path, rng: random.Random, count: int) -> None:
    """Flip *count* bits of the file at *path*."""
    octets = bytearray(path.read_bytes())
    for _ in range(count):
        octets[rng.randrange(len(octets))] ^= 1 << rng.randrange(8)
    path.write_bytes(octets)


def truncate(path: Path, rng: random.Random) -> None:
    """Cut the file at *path* somewhere."""
    octets = path.read_bytes()
    path.write_bytes(octets[: rng.randrange(len(octets))])
