"""What the fleet's tests share: a Redis of their own, workers side by side, a judge of the log."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import redis

from scrapy_walsh.proof import exchanges
from scrapy_walsh.proof.sandbox import LoggedRequest, Sandbox, exchanged, requests
from tests.crawl.harness import LIST_SPIDER, TOLERANCE, begin, make_project

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

BINARY = shutil.which("redis-server")
#: The file in which Redis keeps a snapshot.
SNAPSHOT = "dump.rdb"

#: Declares nothing before :func:`all_at_once`: how long a machine takes to start the workers, one
#: after another, decides nothing.
PATIENT = """
import scrapy
from pathlib import Path
from scrapy_walsh.adapters import compat

class Probe(scrapy.Spider):
    name = "probe"

    def __init__(self, urls="", **kwargs):
        super().__init__(**kwargs)
        self.start_urls = urls.split()

    async def start(self):
        Path("ready").touch()
        while not Path("go").exists():
            await compat.sleep(0.02)
        for url in self.start_urls:
            yield scrapy.Request(url)

    def parse(self, response):
        pass
"""


class Server:
    """A ``redis-server`` on a free loopback port; *keep*: it remembers across :meth:`kill`.

    *options*: of its command line. ``started``: the monotonic clock just before it was last
    started.
    """

    def __init__(self, folder: Path, *options: str, keep: bool = False) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.client = redis.Redis.from_url(self.url)
        self.folder, self._keep, self.options = folder, keep, options
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = (
            f"--bind 127.0.0.1 --port {self.port} --appendonly {'yes' if self._keep else 'no'}"
        )
        command = [str(BINARY), *options.split(), "--dir", str(self.folder), "--save", ""]
        command += ["--appendfsync", "always", *self.options]
        self.started = time.monotonic()
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        end = time.monotonic() + 60
        while True:
            try:
                self.client.ping()
            except (redis.AuthenticationError, redis.ResponseError):
                return
            except redis.RedisError:
                assert time.monotonic() < end, "redis-server does not answer"
                time.sleep(0.02)
            else:
                return

    def kill(self) -> None:
        """As ``kill -9``."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def go_back(self, snapshot: bytes | None) -> None:
        """Kill it, and start it with the *snapshot* that was taken before; None: empty."""
        self.kill()
        (self.folder / SNAPSHOT).unlink(missing_ok=True)
        if snapshot is not None:
            (self.folder / SNAPSHOT).write_bytes(snapshot)
        self.start()

    def snapshot(self) -> bytes:
        """What a crash would leave on the disk now."""
        self.client.save()
        return (self.folder / SNAPSHOT).read_bytes()


@dataclass
class Worker:
    """A crawl under way in a project of its own: nothing on disk is shared."""

    project: Path
    process: subprocess.Popen[bytes]

    @property
    def output(self) -> str:
        """What it has said so far."""
        return (self.project / "output").read_text()

    def finish(self, timeout: float = 180, *, code: int = 0) -> str:
        """Its output; AssertionError unless it exits with *code*."""
        self.process.wait(timeout)
        assert self.process.returncode == code, self.output
        return self.output


def worker(
    project: Path,
    box: Sandbox,
    server: Server,
    urls: Sequence[str] = (),
    *,
    spider: str = LIST_SPIDER,
    **settings: Any,
) -> Worker:
    """Start one crawl of *urls* that shares its state through *server*."""
    make_project(project, spider, {"WALSH_SHARED_STATE": server.url, **settings})
    (project / "urls.txt").write_text("\n".join(urls))
    words = ("scrapy", "crawl", "probe", "-a", f"urls={' '.join(urls)}")
    with (project / "output").open("w") as output:
        process = begin(project, box, *words, output=output)
    return Worker(project, process)


def all_at_once(workers: Sequence[Worker]) -> None:
    """Let workers with :data:`PATIENT` begin, once all of them have started."""
    wait_until(lambda: all((each.project / "ready").exists() for each in workers))
    for each in workers:
        (each.project / "go").touch()


def settled(box: Sandbox, timeout: float = 120) -> int:
    """How many requests there are, once none has come for two seconds."""
    end = time.monotonic() + timeout
    seen, since = -1, 0.0
    while time.monotonic() < since + 2:
        assert time.monotonic() < end, "requests go on"
        time.sleep(0.05)
        if len(requests(box.log)) != seen:
            seen, since = len(requests(box.log)), time.monotonic()
    return seen


def targets(log: Sequence[LoggedRequest], host: str | None = None) -> list[LoggedRequest]:
    """The requests for pages, in order of arrival."""
    return [each for each in requests(log, host) if each.path.startswith("/page")]


def too_close(log: Sequence[LoggedRequest], interval: float = 1.0) -> list[str]:
    """Every pair of requests to one host that is closer, start to start, than *interval*.

    A host's first robots.txt and the first target may follow each other at once (T1).
    """
    together = exchanges.by_start(exchanged(log))
    return list(map(str, exchanges.too_soon(together, interval, TOLERANCE)))


def wait_until(condition: Any, timeout: float = 120) -> None:
    """Return when *condition* holds; AssertionError when it does not within *timeout*."""
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.02)
