"""Sending an answer, well-behaved or not."""

from __future__ import annotations

import asyncio
import gzip
import socket
import struct
import time
from email.utils import formatdate
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from .site import Behaviour, Headers, Route

_BLOCK = b"x" * (1 << 14)
_HEADER_LINES = b"X-More: of the same\r\n" * 1000
#: More than all buffers between two programs of one machine take together.
HEADER_OCTETS = 32 << 20
_BOMB_OCTETS = 64 << 20
_MISSING_OCTETS = 1000


class Answer:
    """One answer on its way. ``status`` is None until a status line is sent; ``keep`` says whether
    the connection can take another request afterwards; ``sent``: octets that the kernel took;
    ``handed``: monotonic seconds when it took the last of them, before the call if it took all that
    was written at once; None before the first."""

    def __init__(
        self, writer: asyncio.StreamWriter, *, keep: bool, head_only: bool = False
    ) -> None:
        self._writer = writer
        self._head_only = head_only
        self.keep = keep
        self.status: int | None = None
        self.sent = 0
        self.handed: float | None = None

    async def send(self, route: Route) -> None:
        """Send ``route``. Returns when its last octet is with the kernel.

        Raises: ConnectionError when the client has left.
        """
        if route.delay:
            await asyncio.sleep(route.delay)
        await _BEHAVIOURS[route.behaviour](self, route)

    async def _whole(self, route: Route) -> None:
        await self._content(route, route.content)

    async def _bomb(self, route: Route) -> None:
        body = await asyncio.to_thread(_bomb)
        await self._content(route, body, (("Content-Encoding", "gzip"),))

    async def _content(self, route: Route, body: bytes, extra: Headers = ()) -> None:
        length = None if route.status in (204, 304) else len(body)
        sent = b"" if length is None or self._head_only else body
        await self._write(self._head(route, length, extra) + sent)

    async def _close(self, route: Route) -> None:  # noqa: ARG002
        self.keep = False

    async def _reset(self, route: Route) -> None:  # noqa: ARG002
        self.keep = False
        connection: socket.socket = self._writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    async def _hang(self, route: Route) -> None:  # noqa: ARG002
        self.keep = False
        await asyncio.Event().wait()

    async def _truncate(self, route: Route) -> None:
        self.keep = False
        announced = len(route.content) + _MISSING_OCTETS
        await self._write(self._head(route, announced) + route.content)

    async def _drip(self, route: Route) -> None:
        await self._write(self._head(route, len(route.content)))
        for octet in route.content:
            await asyncio.sleep(route.pause)
            await self._write(bytes((octet,)))

    async def _endless(self, route: Route) -> None:
        self.keep = False
        await self._write(self._head(route, None) + route.content)
        while True:
            await self._write(_BLOCK)
            await asyncio.sleep(route.pause)

    async def _headers(self, route: Route) -> None:
        self.keep = False
        await self._write(self._head(route, None).removesuffix(b"\r\n"))
        while self.sent < HEADER_OCTETS:
            await self._write(_HEADER_LINES)
            await asyncio.sleep(route.pause)

    async def _write(self, data: bytes) -> None:
        self.handed = time.monotonic()
        self._writer.write(data)
        at_once = not self._writer.transport.get_write_buffer_size()
        await self._writer.drain()
        if not at_once:
            self.handed = time.monotonic()
        self.sent += len(data)

    def _head(self, route: Route, length: int | None, extra: Headers = ()) -> bytes:
        self.status = route.status
        own = [*_pairs(route.headers), *_pairs(extra)]
        taken = {name.lower() for name, _ in own}
        given = [
            (name, value) for name, value in self._standard(route, length) if value is not None
        ]
        fields = [(name, value) for name, value in given if name.lower() not in taken] + own
        lines = [f"HTTP/1.1 {route.status} {_phrase(route.status)}"]
        lines += [f"{name}: {value}" for name, value in fields]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")

    def _standard(self, route: Route, length: int | None) -> list[tuple[str, str | None]]:
        return [
            ("Date", formatdate(usegmt=True)),
            ("Content-Type", route.content_type if length != 0 else None),
            ("ETag", route.etag),
            ("Last-Modified", route.last_modified),
            ("Location", route.location),
            ("Content-Length", None if length is None else str(length)),
            ("Connection", "keep-alive" if self.keep else "close"),
        ]


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


def _pairs(headers: Headers) -> list[tuple[str, str]]:
    return list(headers.items() if hasattr(headers, "items") else headers)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"


@cache
def _bomb() -> bytes:
    return gzip.compress(bytes(_BOMB_OCTETS), 1, mtime=0)
