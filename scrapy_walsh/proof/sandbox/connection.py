"""One client's connection: requests in turn, and the tunnel that a CONNECT opens."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from .answer import Answer
from .log import host_key, without_port
from .site import Request, Route
from .wire import Head, Place, WatchedReader, place, read_body, read_head

if TYPE_CHECKING:
    import ssl
    from collections.abc import Coroutine

    from .log import RequestLog
    from .site import Sites
    from .tls import Authority

_HANDSHAKE_SECONDS = 10.0
_TEXT = "text/plain; charset=utf-8"
_NOT_HTTP = Route(400, "not an HTTP/1.1 request\n", _TEXT)
_NO_NAME = Route(400, "no certificate can carry this name\n", _TEXT)
_NO_TLS = Route(501, "TLS is switched off\n", _TEXT)
_REFUSED = Route(502, "the host does not speak TLS\n", _TEXT)


class Connection:
    """Serves one TCP connection until either side ends it."""

    def __init__(
        self,
        number: int,
        reader: WatchedReader,
        writer: asyncio.StreamWriter,
        *,
        sites: Sites,
        log: RequestLog,
        authority: Authority | None,
    ) -> None:
        self._number = number
        self._reader = reader
        self._writer = writer
        self._sites = sites
        self._log = log
        self._authority = authority
        self._scheme = "http"
        self._tunnel = ""

    async def serve(self) -> None:
        try:
            self._drain_to_the_last_octet()
            while await self._next():
                pass
        except asyncio.CancelledError:
            self._writer.transport.abort()
            raise
        except OSError:
            pass  # the client left, or broke off the handshake
        finally:
            self._writer.close()

    def _drain_to_the_last_octet(self) -> None:
        self._writer.transport.set_write_buffer_limits(high=0)

    async def _next(self) -> bool:
        head = await read_head(self._reader)
        if head is None:
            return False
        number = self._begin(head)
        if head.method == "CONNECT":
            return await self._connect(head, number)
        answer = Answer(self._writer, keep=head.keep_alive, head_only=head.method == "HEAD")
        await self._watched(self._exchange(head, number, answer))
        return answer.keep and not self._reader.left.is_set()

    def _place(self, head: Head) -> Place:
        return place(head, self._scheme, self._tunnel)

    def _begin(self, head: Head) -> int:
        where = self._place(head)
        return self._log.begin(
            scheme=where.scheme,
            host=where.host,
            method=head.method,
            target=head.target,
            path=where.path,
            headers=head.headers,
            connection=self._number,
        )

    async def _exchange(self, head: Head, number: int, answer: Answer) -> None:
        # The log is told in the same step of the loop that wrote the last octet, so the client's
        # next request cannot be read before it.
        completed: float | None = None
        try:
            body = await read_body(self._reader, head)
            await answer.send(self._route(head, body))
            completed = answer.handed
        finally:
            self._log.end(number, answer.status, answer.sent, completed)

    def _route(self, head: Head, body: bytes) -> Route:
        if not head.version.startswith("HTTP/"):
            return _NOT_HTTP
        scheme, host, path, query = self._place(head)
        request = Request(
            scheme=scheme,
            host=host,
            method=head.method,
            target=head.target,
            path=path,
            query=query,
            headers=head.headers,
            body=body,
            log=self._log.so_far,
        )
        return self._sites.resolve(request)

    async def _watched(self, exchange: Coroutine[None, None, None]) -> None:
        """Run an exchange; end it when the client leaves. A client that half-closes has left."""
        answering = asyncio.ensure_future(exchange)
        leaving = asyncio.ensure_future(self._reader.left.wait())
        try:
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            answering.cancel()
            leaving.cancel()
            await asyncio.wait({answering, leaving})
        if not answering.cancelled():
            answering.result()

    async def _connect(self, head: Head, number: int) -> bool:
        answer = Answer(self._writer, keep=False)
        try:
            context = self._tunnel_context(head.target)
            if isinstance(context, Route):
                await answer.send(context)
                return False
            self._writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            answer.status = 200
        finally:
            self._log.end(number, answer.status)
        # No await may come between the write and this, or the client's first TLS record could be
        # read as HTTP.
        await self._writer.start_tls(context, ssl_handshake_timeout=_HANDSHAKE_SECONDS)
        self._drain_to_the_last_octet()
        self._scheme, self._tunnel = "https", head.target
        return True

    def _tunnel_context(self, target: str) -> ssl.SSLContext | Route:
        if self._authority is None:
            return _NO_TLS
        site = self._sites.find("https", target)
        if site is not None and not site.tls:
            return _REFUSED
        try:
            return self._authority.context(without_port(host_key("https", target)))
        except ValueError:
            return _NO_NAME
