"""One client's connection: requests in turn, and the tunnel that a CONNECT opens."""

from __future__ import annotations

import asyncio
import re
import socket
import struct
import time
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from email.utils import formatdate
from http.client import responses
from itertools import repeat
from typing import TYPE_CHECKING

from .log import LoggedRequest, host_key, without_port
from .routes import TEXT
from .site import Request, Route

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator

    from .log import RequestLog
    from .site import Sites
    from .tls import Authority

# Sending an answer, well-behaved or not.

_BLOCK = b"x" * (1 << 14)
_HEADER_LINES = b"X-More: of the same\r\n" * 1000
#: More octets than all buffers between two programs of a machine hold together.
HEADER_OCTETS = 32 << 20
_MISSING_OCTETS = 1000
#: After these the connection can take another request.
_WHOLE = ("answer", "drip")


@dataclass
class Answer:
    """One answer on its way. ``status`` is None until a status line is sent; ``keep`` says whether
    the connection can take another request afterwards; ``sent``: octets that the kernel took;
    ``handed``: monotonic seconds when it took the last of them, before the call if it took all that
    was written at once; None before the first."""

    writer: asyncio.StreamWriter
    keep: bool
    head_only: bool = False
    status: int | None = None
    sent: int = 0
    handed: float | None = None

    async def send(self, route: Route) -> None:
        """Send ``route``. Returns when its last octet is with the kernel.

        Raises: ConnectionError when the client has left.
        """
        if route.delay:
            await asyncio.sleep(route.delay)
        self.keep = self.keep and route.behaviour in _WHOLE
        if route.behaviour == "hang":
            await asyncio.Event().wait()
        elif route.behaviour == "reset":
            connection: socket.socket = self.writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.writer.transport.abort()
        for number, piece in enumerate(self._pieces(route)):
            if number:
                await asyncio.sleep(route.pause)
            await self._write(piece)

    def _pieces(self, route: Route) -> Iterator[bytes]:
        """The pieces to send, each ``pause`` seconds after the piece before it."""
        content = route.content
        match route.behaviour:
            case "answer":
                length = None if route.status in (204, 304) else len(content)
                body = b"" if length is None or self.head_only else content
                early = [f"HTTP/1.1 {status} Interim\r\n\r\n" for status in route.interim]
                yield "".join(early).encode() + self._head(route, length) + body
            case "truncate":
                yield (self._head(route, len(content) + _MISSING_OCTETS) + content)
            case "drip":
                yield self._head(route, len(content))
                yield from (bytes((octet,)) for octet in content)
            case "endless":
                yield self._head(route, None) + content
                yield from repeat(_BLOCK)
            case "headers":
                yield self._head(route, None).removesuffix(b"\r\n")
                yield from repeat(_HEADER_LINES, HEADER_OCTETS // len(_HEADER_LINES))

    async def _write(self, data: bytes) -> None:
        self.writer.transport.set_write_buffer_limits(high=0)  # drain to the last octet
        self.handed = time.monotonic()
        self.writer.write(data)
        at_once = not self.writer.transport.get_write_buffer_size()
        await self.writer.drain()
        if not at_once:
            self.handed = time.monotonic()
        self.sent += len(data)

    def _head(self, route: Route, length: int | None) -> bytes:
        self.status = route.status
        standard = {
            "Date": formatdate(usegmt=True),
            "Content-Type": route.content_type if length != 0 else None,
            "ETag": route.etag,
            "Last-Modified": route.last_modified,
            "Location": route.location,
            "Content-Length": None if length is None else str(length),
            "Connection": "keep-alive" if self.keep else "close",
        }
        headers = route.headers
        given_fields = [*headers.items()] if isinstance(headers, Mapping) else [*headers]
        without = {name.lower() for name, _ in given_fields}
        fields = [(n, v) for n, v in standard.items() if v is not None and n.lower() not in without]
        lines = [f"HTTP/1.1 {route.status} {responses.get(route.status, 'Unknown')}"]
        lines += [f"{name}: {value}" for name, value in [*fields, *given_fields]]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")


# Just enough HTTP/1.1 (RFC 9112) to see a request as it arrived: lenient, nothing rewritten.

#: Scheme and host of a request target in absolute form, path, and query (RFC 9112, 3.2).
_TARGET = re.compile(r"(?:([a-zA-Z0-9]+)://([^/?#]*))?([^?#]*)(?:\?([^#]*))?")
_HANDSHAKE_SECONDS = 10.0
_NOT_HTTP = Route(400, "not an HTTP/1.1 request\n", TEXT)
_REFUSED = Route(502, "the host does not speak TLS\n", TEXT)


class WatchedReader(asyncio.StreamReader):
    """A stream reader that ends the task in :meth:`watched` when the peer leaves.

    A client that half-closes has left.
    """

    _answering: asyncio.Task[None] | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Cancel this task if the peer leaves. Raises: EOFError if the client has left."""
        if self.at_eof():
            raise EOFError
        self._answering = asyncio.current_task()
        try:
            yield
        finally:
            self._answering = None

    def feed_eof(self) -> None:
        super().feed_eof()
        self._left()

    def set_exception(self, exc: BaseException) -> None:
        super().set_exception(exc)  # type: ignore[arg-type]
        self._left()

    def _left(self) -> None:
        if self._answering is not None:
            self._answering.cancel()


@dataclass
class Connection:
    """Serves one TCP connection until either side ends it.

    ``tunnel``: ``host:port`` of the CONNECT, or empty.
    """

    number: int
    reader: WatchedReader
    writer: asyncio.StreamWriter
    sites: Sites
    log: RequestLog
    authority: Authority
    scheme: str = "http"
    tunnel: str = ""

    async def serve(self) -> None:
        try:
            while await self._next():
                pass
        except asyncio.CancelledError:  # the client left, or the sandbox ends
            self.writer.transport.abort()
        except (OSError, EOFError, asyncio.LimitOverrunError):
            pass  # the client left, broke off the handshake, or sends too long a head
        finally:
            self.writer.close()

    async def _next(self) -> bool:
        """Read a request and answer it. False: the connection takes no other."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        # ISO 8859-1, so no octet is lost.
        request_line, *lines = [line.decode("latin-1") for line in head.splitlines() if line] or [
            ""
        ]
        method, _, remainder = request_line.partition(" ")
        target, _, version = remainder.rpartition(" ")
        fields = [line.partition(":") for line in lines]
        headers = tuple((name, value.strip(" \t")) for name, _, value in fields)
        host = next(
            (value for name, value in headers if name.lower() == "host"),
            self.tunnel,
        )
        scheme, host, path, query = self._place(method, target, host)
        line = (method, target, path, headers, self.number)
        logged = LoggedRequest(time.monotonic(), None, time.time(), scheme, host, *line)
        number = self.log.begin(logged)
        if method == "CONNECT":
            return await self._connect(target, number)
        request = Request(**vars(logged), query=query, log=self.log.so_far)
        answer = Answer(self.writer, _keeps(request, version), method == "HEAD")
        # The log is told in the same step of the loop that wrote the last octet, so the client's
        # next request cannot be read before it.
        completed: float | None = None
        try:
            with self.reader.watched():
                # A chunked body is not read.
                length = request.header("Content-Length") or ""
                body = await self.reader.readexactly(int(length)) if length.isdecimal() else b""
                http = version.startswith("HTTP/")
                route = self.sites.resolve(replace(request, body=body)) if http else _NOT_HTTP
                await answer.send(route)
            completed = answer.handed
        finally:
            self.log.end(number, answer.status, answer.sent, completed)
        return answer.keep

    def _place(self, method: str, target: str, host: str) -> tuple[str, str, str, str]:
        """Where a request is going: scheme, host with its port as written, raw path and query.

        ``host``: of its Host field.
        """
        if method == "CONNECT":
            return "https", target, "", ""
        scheme, absolute, path, query = _TARGET.findall(target)[0]
        if scheme:
            return scheme.lower(), absolute, path or "/", query
        return self.scheme, host, path or "/", query

    async def _connect(self, target: str, number: int) -> bool:
        context = self._tunnel_context(target)
        self.log.end(number, 200 if context else _REFUSED.status)
        if context is None:
            await Answer(self.writer, keep=False).send(_REFUSED)
            return False
        self.writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        # No await may come between the write and this, or the client's first TLS record could be
        # read as HTTP.
        await self.writer.start_tls(context, ssl_handshake_timeout=_HANDSHAKE_SECONDS)
        self.scheme = "https"
        self.tunnel = target
        return True

    def _tunnel_context(self, target: str) -> ssl.SSLContext | None:
        site = self.sites.find("https", target)
        with suppress(ValueError):  # a name that no certificate can carry
            if site is None or site.tls:
                return self.authority.context(without_port(host_key("https", target)))
        return None


def _keeps(request: LoggedRequest, version: str) -> bool:
    """Whether the client wants the connection kept (RFC 9112, 9.3)."""
    options = ",".join(request.values("Connection") + request.values("Proxy-Connection")).lower()
    return not (request.values("Transfer-Encoding") or "close" in options or version != "HTTP/1.1")
