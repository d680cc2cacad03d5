"""What the fleet's tests share: a Redis of their own, workers side by side, a judge of the log."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Any

import redis

from scrapy_walsh.proof import exchanges
from scrapy_walsh.proof.sandbox import LoggedRequest, Sandbox, exchanged, requests
from tests.crawl.harness import LIST_SPIDER, TOLERANCE, Run, begin, make_project, wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

BINARY = shutil.which("redis-server")
#: The file in which Redis keeps a snapshot.
SNAPSHOT = "dump.rdb"

#: Declares nothing before :func:`all_at_once`: how long a machine takes to start the workers, one
#: after another, decides nothing.
PATIENT = f"""
from pathlib import Path
from scrapy_walsh.adapters import compat
{LIST_SPIDER}
    async def start(self):
        Path("ready").touch()
        while not Path("go").exists():
            await compat.sleep(0.02)
        for url in self.start_urls:
            yield scrapy.Request(url)
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
        wait_until(self._answers, 60)

    def _answers(self) -> bool:
        try:
            self.client.ping()
        except (redis.AuthenticationError, redis.ResponseError):
            return True
        except redis.RedisError:
            return False
        return True

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


def worker(
    project: Path,
    box: Sandbox,
    server: Server,
    urls: Sequence[str] = (),
    *,
    spider: str = LIST_SPIDER,
    **settings: Any,
) -> Run:
    """Start one crawl of *urls* that shares its state through *server*."""
    make_project(project, spider, {"WALSH_SHARED_STATE": server.url, **settings})
    (project / "urls.txt").write_text("\n".join(urls))
    words = ("scrapy", "crawl", "probe", "-a", f"urls={' '.join(urls)}")
    return begin(project, box, *words)


def all_at_once(workers: Sequence[Run]) -> None:
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


def too_close(log: Sequence[LoggedRequest], interval: float = 1.0) -> list[str]:
    """Every pair of requests to one host that is closer, start to start, than *interval*.

    A host's first robots.txt and the first target may follow each other at once (T1).
    """
    together = exchanges.by_start(exchanged(log))
    return list(map(str, exchanges.too_soon(together, interval, TOLERANCE)))
