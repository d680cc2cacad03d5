"""The server: one process, loopback only, a forward proxy to sites that exist nowhere else.

Nothing is ever passed on: a host that no site describes is a 404.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
from typing import TYPE_CHECKING, Self, TypeVar

from .connection import Connection, WatchedReader
from .log import LoggedRequest, RequestLog
from .scenario import default_sites
from .site import Answerer, Route, Site, Sites
from .tls import Authority

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
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
        self._serving: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
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
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="sandbox", daemon=True)
        self._thread.start()
        try:
            self.port = self._run(self._loop, self._open())
        except BaseException:
            self._stop()
            raise
        os.environ[_LAB_PROXY] = ",".join([*self._other_labs(), self.proxy_url])
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _do(self, action: Callable[[], _T]) -> _T:
        """Act in the server's thread, where all state lives."""
        if self._loop is None or threading.current_thread() is self._thread:
            return action()
        return self._run(self._loop, _settled(action))

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop, work: Coroutine[None, None, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, loop).result(_PATIENCE_SECONDS)

    def _stop(self) -> None:
        if self._loop is None or self._thread is None:
            return
        if self._server is not None:
            os.environ[_LAB_PROXY] = ",".join(self._other_labs())
        self._run(self._loop, self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE_SECONDS)
        self._loop.close()
        self._loop = self._thread = None
        self._log.close()

    def _other_labs(self) -> list[str]:
        found = os.environ.get(_LAB_PROXY, "").split(",")
        return [each for each in found if each not in ("", self.proxy_url)]

    async def _open(self) -> int:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accept, _LOOPBACK, self.port)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in self._serving:
            task.cancel()
        if self._serving:
            await asyncio.wait(self._serving)
        await _settled(self._serving.clear)

    def _accept(self) -> asyncio.StreamReaderProtocol:
        reader = WatchedReader()
        return asyncio.StreamReaderProtocol(reader, self._connected)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert isinstance(reader, WatchedReader)  # noqa: S101 (made by _accept)
        place = next(self._numbers), reader, writer
        connection = Connection(*place, self._sites, self._log, self._authority)
        task = asyncio.ensure_future(connection.serve())
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)


async def _settled(action: Callable[[], _T]) -> _T:
    # The client may have its last octet before the step that stamps the completion has run.
    for _ in range(3):
        await asyncio.sleep(0)
    return action()
