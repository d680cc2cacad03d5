"""One client's connection: requests in turn, and the tunnel that a CONNECT opens."""

from __future__ import annotations

import asyncio
import gzip
import socket
import struct
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from email.utils import formatdate
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple

from .log import LoggedRequest, host_key, without_port
from .site import Request, Route

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Coroutine

    from .log import RequestLog
    from .site import Behaviour, Sites
    from .tls import Authority

# Sending an answer, well-behaved or not.

_BLOCK = b"x" * (1 << 14)
_HEADER_LINES = b"X-More: of the same\r\n" * 1000
#: More than all buffers between two programs of one machine take together.
HEADER_OCTETS = 32 << 20
_BOMB_OCTETS = 64 << 20
_MISSING_OCTETS = 1000


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
        await _BEHAVIOURS[route.behaviour](self, route)

    async def _whole(self, route: Route) -> None:
        length = None if route.status in (204, 304) else len(route.content)
        sent = b"" if length is None or self.head_only else route.content
        await self._write(self._head(route, length) + sent)

    async def _bomb(self, route: Route) -> None:
        body = await asyncio.to_thread(_bomb)
        await self._whole(replace(route, body=body, headers={"Content-Encoding": "gzip"}))

    async def _close(self, route: Route) -> None:
        """Nothing is sent."""

    async def _reset(self, route: Route) -> None:  # noqa: ARG002
        connection: socket.socket = self.writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def _hang(self, route: Route) -> None:  # noqa: ARG002
        await asyncio.Event().wait()

    async def _truncate(self, route: Route) -> None:
        announced = len(route.content) + _MISSING_OCTETS
        await self._write(self._head(route, announced) + route.content)

    async def _drip(self, route: Route) -> None:
        await self._write(self._head(route, len(route.content)))
        for octet in route.content:
            await asyncio.sleep(route.pause)
            await self._write(bytes((octet,)))

    async def _endless(self, route: Route) -> None:
        await self._write(self._head(route, None) + route.content)
        while True:
            await self._write(_BLOCK)
            await asyncio.sleep(route.pause)

    async def _headers(self, route: Route) -> None:
        await self._write(self._head(route, None).removesuffix(b"\r\n"))
        while self.sent < HEADER_OCTETS:
            await self._write(_HEADER_LINES)
            await asyncio.sleep(route.pause)

    async def _write(self, data: bytes) -> None:
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
        own = [*headers.items()] if isinstance(headers, Mapping) else [*headers]
        without = {name.lower() for name, _ in own}
        given = [(name, value) for name, value in standard.items() if value is not None]
        fields = [*(each for each in given if each[0].lower() not in without), *own]
        lines = [f"HTTP/1.1 {route.status} {_phrase(route.status)}"]
        lines += [f"{name}: {value}" for name, value in fields]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")


#: After these the connection can take another request.
_WHOLE: frozenset[Behaviour] = frozenset({"answer", "drip", "bomb"})
_BEHAVIOURS: dict[Behaviour, Callable[[Answer, Route], Awaitable[None]]] = {
    "answer": Answer._whole,
    "close": Answer._close,
    "reset": Answer._reset,
    "hang": Answer._hang,
    "truncate": Answer._truncate,
    "endless": Answer._endless,
    "drip": Answer._drip,
    "bomb": Answer._bomb,
    "headers": Answer._headers,
}


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"


@cache
def _bomb() -> bytes:
    return gzip.compress(bytes(_BOMB_OCTETS), 1, mtime=0)


# Just enough HTTP/1.1 (RFC 9112) to see a request as it arrived: lenient, nothing rewritten.

_MAX_BODY = 1 << 20


class WatchedReader(asyncio.StreamReader):
    """A stream reader that tells when the peer has left, without reading."""

    def __init__(self, limit: int = 1 << 20) -> None:
        super().__init__(limit=limit, loop=asyncio.get_running_loop())
        self.left = asyncio.Event()

    def feed_eof(self) -> None:
        super().feed_eof()
        self.left.set()

    def set_exception(self, exc: BaseException) -> None:
        super().set_exception(exc)  # type: ignore[arg-type]
        self.left.set()


@dataclass(frozen=True)
class Head:
    """A request line and its header lines. Text is ISO 8859-1, so no octet is lost."""

    method: str
    target: str
    version: str
    headers: tuple[tuple[str, str], ...]

    def values(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name]

    @property
    def keep_alive(self) -> bool:
        """Whether the client wants the connection kept (RFC 9112, 9.3)."""
        lines = self.values("connection") + self.values("proxy-connection")
        options = ",".join(lines).lower().replace(" ", "").split(",")
        if self.values("transfer-encoding") or "close" in options:
            return False
        return self.version == "HTTP/1.1" or "keep-alive" in options


class Place(NamedTuple):
    """What a request target names: ``host`` with its port as written, path and query raw."""

    scheme: str
    host: str
    path: str
    query: str


async def read_head(reader: asyncio.StreamReader) -> Head | None:
    """The next request's head; None where the client ended, or the head is cut off or too long."""
    lines: list[str] = []
    with suppress(ValueError, ConnectionError):
        while raw := await reader.readline():
            line = raw.decode("latin-1").rstrip("\r\n")
            if line:
                lines.append(line)
            elif lines:
                method, _, rest = lines[0].partition(" ")
                target, _, version = rest.rpartition(" ")
                return Head(method, target, version, _fields(lines[1:]))
    return None


def _fields(lines: list[str]) -> tuple[tuple[str, str], ...]:
    fields: list[tuple[str, str]] = []
    for line in lines:
        if line[0] in " \t" and fields:
            name, value = fields.pop()
            fields.append((name, f"{value} {line.strip()}"))
            continue
        name, _, value = line.partition(":")
        fields.append((name, value.strip(" \t")))
    return tuple(fields)


async def read_body(reader: asyncio.StreamReader, head: Head) -> bytes:
    """The body that Content-Length announces; a chunked one is left where it is."""
    lengths = head.values("content-length")
    if not lengths or not lengths[0].isdigit():
        return b""
    try:
        return await reader.readexactly(min(int(lengths[0]), _MAX_BODY))
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""


def place(head: Head, scheme: str, tunnel: str) -> Place:
    """Where a request is going: RFC 9112, 3.2 (absolute-form, authority-form, origin-form).

    ``scheme`` and ``tunnel`` (``host:port`` of the CONNECT, or empty) belong to the connection.
    """
    if head.method == "CONNECT":
        return Place("https", head.target, "", "")
    front, separator, rest = head.target.partition("://")
    if not separator or not front.isalnum():
        host = (head.values("host") or [tunnel])[0]
        return _place(scheme, host, head.target)
    end = min((at for at in map(rest.find, "/?#") if at >= 0), default=len(rest))
    return _place(front.lower(), rest[:end], rest[end:])


def _place(scheme: str, host: str, rest: str) -> Place:
    path, _, query = rest.partition("#")[0].partition("?")
    return Place(scheme, host, path or "/", query)


_HANDSHAKE_SECONDS = 10.0
_TEXT = "text/plain; charset=utf-8"
_NOT_HTTP = Route(400, "not an HTTP/1.1 request\n", _TEXT)
_NO_NAME = Route(400, "no certificate can carry this name\n", _TEXT)
_REFUSED = Route(502, "the host does not speak TLS\n", _TEXT)


@dataclass
class Connection:
    """Serves one TCP connection until either side ends it."""

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
            self._drain_to_the_last_octet()
            while await self._next():
                pass
        except asyncio.CancelledError:
            self.writer.transport.abort()
            raise
        except OSError:
            pass  # the client left, or broke off the handshake
        finally:
            self.writer.close()

    def _drain_to_the_last_octet(self) -> None:
        self.writer.transport.set_write_buffer_limits(high=0)

    async def _next(self) -> bool:
        head = await read_head(self.reader)
        if head is None:
            return False
        found = place(head, self.scheme, self.tunnel)
        line = (head.method, head.target, found.path, head.headers, self.number)
        logged = LoggedRequest(time.monotonic(), None, time.time(), found.scheme, found.host, *line)
        number = self.log.begin(logged)
        if head.method == "CONNECT":
            return await self._connect(head, number)
        answer = Answer(self.writer, head.keep_alive, head.method == "HEAD")
        request = Request(**vars(logged), query=found.query, log=self.log.so_far)
        await self._watched(self._exchange(head, request, number, answer))
        return answer.keep and not self.reader.left.is_set()

    async def _exchange(self, head: Head, request: Request, number: int, answer: Answer) -> None:
        # The log is told in the same step of the loop that wrote the last octet, so the client's
        # next request cannot be read before it.
        completed: float | None = None
        try:
            body = await read_body(self.reader, head)
            http = head.version.startswith("HTTP/")
            route = self.sites.resolve(replace(request, body=body)) if http else _NOT_HTTP
            await answer.send(route)
            completed = answer.handed
        finally:
            self.log.end(number, answer.status, answer.sent, completed)

    async def _watched(self, exchange: Coroutine[None, None, None]) -> None:
        """Run an exchange; end it when the client leaves. A client that half-closes has left."""
        answering = asyncio.ensure_future(exchange)
        leaving = asyncio.ensure_future(self.reader.left.wait())
        try:
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            answering.cancel()
            leaving.cancel()
            await asyncio.wait({answering, leaving})
        if not answering.cancelled():
            answering.result()

    async def _connect(self, head: Head, number: int) -> bool:
        answer = Answer(self.writer, keep=False)
        try:
            context = self._tunnel_context(head.target)
            if isinstance(context, Route):
                await answer.send(context)
                return False
            self.writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            answer.status = 200
        finally:
            self.log.end(number, answer.status)
        # No await may come between the write and this, or the client's first TLS record could be
        # read as HTTP.
        await self.writer.start_tls(context, ssl_handshake_timeout=_HANDSHAKE_SECONDS)
        self._drain_to_the_last_octet()
        self.scheme, self.tunnel = "https", head.target
        return True

    def _tunnel_context(self, target: str) -> ssl.SSLContext | Route:
        site = self.sites.find("https", target)
        if site is not None and not site.tls:
            return _REFUSED
        try:
            return self.authority.context(without_port(host_key("https", target)))
        except ValueError:
            return _NO_NAME
