"""The only thing that is not real in a simulated run: where the socket would be is a world.

``DOWNLOAD_HANDLERS_BASE`` names :class:`Handler`, so the package wraps it as it wraps Scrapy's own.
"""

from __future__ import annotations

import json
import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import scrapy.exceptions
from scrapy.http import Headers
from scrapy.responsetypes import responsetypes
from twisted.internet import defer, error

from scrapy_walsh.adapters import compat
from tests.year.clock import CLOCK

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from tests.year.answer import Answer

#: What a crawl is told where nobody answers, by Scrapy's version.
REFUSED: Final[type[Exception]] = getattr(
    scrapy.exceptions, "DownloadConnectionRefusedError", error.ConnectionRefusedError
)
TIMED_OUT: Final[type[Exception]] = getattr(
    scrapy.exceptions, "DownloadTimeoutError", error.TimeoutError
)


class Server:
    """All hosts of the world as one run meets them, and the log that they keep together."""

    def __init__(self, answer: Callable[[float, Request], Answer], path: Path, run: int) -> None:
        self._answer = answer
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._run = run
        self._open: list[dict[str, Any]] = []
        #: Called once, when the first request arrives.
        self.first: Callable[[], object] | None = None

    async def serve(
        self, request: Request, timeout: float, connect: Callable[[], object]
    ) -> Response:
        """The response to *request*; raises what Scrapy raises where there is none.

        *connect*: called if somebody listens there.
        """
        if self.first is not None:
            self.first()
            self.first = None
        found = self._answer(CLOCK.true(), request)
        if not found.refuses:
            connect()
        line = self._begin(request, found)
        self._open.append(line)
        hangs = found.status is None and not found.refuses
        await compat.sleep(timeout if hangs else min(found.latency, timeout))
        self._open.remove(line)
        self._write({**line, "end": CLOCK.true(), "status": found.status})
        if hangs or found.latency >= timeout:
            raise TIMED_OUT(f"no answer from {request.url} in {timeout:g} s")
        if found.refuses:
            raise REFUSED(f"{request.url}: connection refused")
        headers = Headers(found.headers)
        kind = responsetypes.from_args(headers=headers, url=request.url, body=found.body)
        assert found.status is not None
        return kind(request.url, status=found.status, headers=headers, body=found.body)

    def cut(self) -> None:
        """Log the requests that nobody waits for any more: their process was killed."""
        for line in self._open:
            self._write({**line, "end": CLOCK.true(), "status": None, "cut": True})

    def _begin(self, request: Request, found: Answer) -> dict[str, Any]:
        parts = urlsplit(request.url)
        asked = {
            name.decode("latin-1").lower(): values[-1].decode("latin-1")
            for name, values in request.headers.items()
            if name.lower() in _HEADERS and values
        }
        told = {name.lower(): value for name, value in found.headers.items()}
        return {
            "run": self._run,
            "start": CLOCK.true(),
            "wall": CLOCK.wall(),
            "method": request.method,
            "url": request.url,
            "host": parts.netloc,
            "path": parts.path or "/",
            "sent": request.body.decode("latin-1"),
            "asked": asked,
            "told": {name: told[name] for name in _TOLD if name in told},
        }

    def _write(self, line: dict[str, Any]) -> None:
        os.write(self._file, json.dumps(line).encode() + b"\n")


_HEADERS: Final = (b"user-agent", b"if-none-match", b"if-modified-since", b"accept")
_TOLD: Final = ("etag", "location", "retry-after")

#: Who answers in this process; set before the crawl begins.
SERVERS: Final[list[Server]] = []


def _connect(*_: object) -> defer.Deferred[Any]:
    """A connection to a host of the world, as a pool of Twisted's makes it."""
    return defer.succeed(SimpleNamespace(transport=object()))


class Handler:
    """A download handler without a socket."""

    lazy = False

    def __init__(self, crawler: Crawler) -> None:
        self._timeout = crawler.settings.getfloat("DOWNLOAD_TIMEOUT")
        # What compat asks of the pool of Scrapy's own handler, which here connects to nothing.
        self._pool: Any = SimpleNamespace(
            persistent=True, retryAutomatically=True, _newConnection=_connect
        )

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Handler:
        """Make the handler."""
        return cls(crawler)

    async def download_request(self, request: Request) -> Response:
        """The answer of the world to *request*, in the time that Scrapy gives it."""
        timeout = float(request.meta.get("download_timeout") or self._timeout)
        server = SERVERS[-1]
        return await server.serve(request, timeout, lambda: self._pool._newConnection(None, None))

    async def close(self) -> None:
        """Nothing is open."""


# No setting could put a handler of a project's own under the package's: code must vouch for it.
compat.trust_handler(Handler)
