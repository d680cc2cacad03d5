"""What the pacing tests share: crawls side by side, a stop by Ctrl-C, a judge of the log."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from scrapy_walsh.proof import exchanges
from scrapy_walsh.proof.sandbox import (
    LoggedRequest,
    Request,
    Route,
    Sandbox,
    Site,
    exchanged,
    gaps,
    requests,
)
from tests import zygote
from tests.crawl.harness import TOLERANCE, Crawl, solo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

#: Seconds after which the engine looks at its queue by itself: who waits that long was forgotten.
HEARTBEAT = 5.0

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


def rules(text: str) -> Route:
    """A robots.txt."""
    return Route(body=f"User-agent: *\n{text}\n", content_type="text/plain")


@dataclass
class Stopped:
    """A crawl that was sent SIGINT.

    ``closed``: seconds from the signal until the spider was closed. ``ended``: until the
    process was gone, which also takes what the machine needs for it.
    """

    closed: float
    ended: float
    output: str
    log: list[LoggedRequest] = field(repr=False)
    stats: dict[str, Any] = field(default_factory=dict)


def stop(
    project: Path,
    box: Sandbox,
    *arguments: str,
    when: Callable[[list[LoggedRequest]], bool],
    after: float = 0.3,
    timeout: float = 180,
) -> Stopped:
    """``scrapy ARGUMENTS`` in *project*; SIGINT *after* seconds from when the log says *when*."""
    box.clear()
    (project / "stats.json").unlink(missing_ok=True)
    environment = {
        **os.environ,
        "http_proxy": box.proxy_url,
        "https_proxy": box.proxy_url,
        "no_proxy": "",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(project), os.environ.get("PYTHONPATH")])),
    }
    output = project / "stopped.txt"
    with output.open("w") as file:
        process = zygote.Popen(
            [sys.executable, "-m", "scrapy", *arguments],
            cwd=project,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
        try:
            _until(lambda: process.poll() is not None or when(box.log), timeout)
            time.sleep(after)
            sent = time.time()
            process.send_signal(signal.SIGINT)
            process.wait(timeout)
        finally:
            process.kill()
            process.wait()
    ended = time.time()
    stats = json.loads((project / "stats.json").read_text())
    return Stopped(
        closed=datetime.fromisoformat(stats["finish_time"]).timestamp() - sent,
        ended=ended - sent,
        output=output.read_text(),
        log=box.log,
        stats=stats,
    )


def _until(condition: Callable[[], bool], timeout: float) -> None:
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("the log never showed what the test waits for")
        time.sleep(0.05)


__all__ = [
    "HEARTBEAT",
    "TOGETHER",
    "Stopped",
    "crawl_of",
    "longest_pause",
    "rules",
    "stop",
    "targets",
    "too_soon",
]
