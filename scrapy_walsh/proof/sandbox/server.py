"""The server: one process, loopback only, a forward proxy to sites that exist nowhere else.

Nothing is ever passed on: a host that no site describes is a 404.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Self, TypeVar

from .connection import Connection, WatchedReader
from .log import LoggedRequest, RequestLog
from .scenario import default_sites
from .site import Answerer, Route, Site, Sites
from .tls import Authority

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

_LOOPBACK = "127.0.0.1"
_PATIENCE_SECONDS = 10.0
#: For crawls that are started meanwhile: what this proxy does not answer, the site does not.
_LAB_PROXY = "WALSH_LAB_PROXY"
_T = TypeVar("_T")


class Sandbox:
    """A context manager that serves ``sites`` (the default scenario when None) from a thread.

    ``http://any.test/`` is reached through ``proxy_url``; what is not for a proxy is answered by
    the site of its Host field. ``port``: to listen on, 0 for any. ``log_path``: JSON lines are
    appended to this file. While it serves, its address is in the environment variable
    WALSH_LAB_PROXY.

    ``with`` raises OSError when a port is taken or the log cannot be written.
    """

    def __init__(
        self,
        sites: Iterable[Site] | None = None,
        *,
        port: int = 0,
        log_path: Path | str | None = None,
    ) -> None:
        self._sites = Sites(default_sites() if sites is None else sites)
        self._log_path = log_path
        self._log = RequestLog()
        self._authority = Authority()
        self._numbers = itertools.count(1)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._ended = asyncio.Event()
        self.port = port

    @property
    def proxy_url(self) -> str:
        return f"http://{_LOOPBACK}:{self.port}"

    @property
    def ca_pem(self) -> str:
        """The certificate that a client has to trust to accept the sandbox's https."""
        return self._authority.pem

    @property
    def log(self) -> list[LoggedRequest]:
        """Every request so far, in order of arrival."""
        return self._do(lambda: list(self._log.so_far))

    def clear(self) -> None:
        """Empty the log."""
        self._do(self._log.clear)

    def put(self, site: Site) -> None:
        """Serve ``site`` from now on, in place of any other of the same host."""
        self._do(lambda: self._sites.put(site))

    def set_route(self, host: str, path: str, route: Route | Answerer) -> None:
        """Change one route from now on; its sequence starts again."""
        self._do(lambda: self._sites.set_route(host, path, route))

    def __enter__(self) -> Self:
        self._log = RequestLog(self._log_path)
        opened: Future[int] = Future()
        serve = partial(asyncio.run, self._serve(opened))
        self._thread = threading.Thread(target=serve, name="sandbox", daemon=True)
        self._thread.start()
        self.port = opened.result(_PATIENCE_SECONDS)
        os.environ[_LAB_PROXY] = ",".join([*self._other_labs(), self.proxy_url])
        return self

    def __exit__(self, *_: object) -> None:
        os.environ[_LAB_PROXY] = ",".join(self._other_labs())
        self._do(self._ended.set)
        if self._thread is not None:
            self._thread.join(_PATIENCE_SECONDS)
        self._loop = None
        self._log.close()

    def _do(self, action: Callable[[], _T]) -> _T:
        """Act in the server's thread, which has all state."""
        if self._loop is None or threading.current_thread() is self._thread:
            return action()
        done = asyncio.run_coroutine_threadsafe(_settled(action), self._loop)
        return done.result(_PATIENCE_SECONDS)

    def _other_labs(self) -> list[str]:
        proxies = os.environ.get(_LAB_PROXY, "").split(",")
        return [proxy for proxy in proxies if proxy not in ("", self.proxy_url)]

    async def _serve(self, opened: Future[int]) -> None:
        """Serve until ``_ended``; then ``asyncio.run`` cancels what is being answered."""
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        try:
            server = await self._loop.create_server(self._accept, _LOOPBACK, self.port)
        except OSError as error:
            self._loop = None
            opened.set_exception(error)
            return
        opened.set_result(server.sockets[0].getsockname()[1])
        await self._ended.wait()
        server.close()

    def _accept(self) -> asyncio.StreamReaderProtocol:
        reader = WatchedReader(1 << 20)

        async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            place = next(self._numbers), reader, writer
            await Connection(*place, self._sites, self._log, self._authority).serve()

        return asyncio.StreamReaderProtocol(reader, serve)


async def _settled(action: Callable[[], _T]) -> _T:
    # The client may have its last octet before the step that stamps the completion has run.
    for _ in range(3):
        await asyncio.sleep(0)
    return action()
