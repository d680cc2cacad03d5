"""Just enough HTTP/1.1 (RFC 9112) to see a request as it arrived: lenient, nothing rewritten."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import NamedTuple

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
    try:
        lines = await _head_lines(reader)
    except (ValueError, ConnectionError):
        return None
    if lines is None:
        return None
    parts = lines[0].split(" ")
    if len(parts) < 3:
        parts += [""] * (3 - len(parts))
    return Head(parts[0], " ".join(parts[1:-1]), parts[-1], _fields(lines[1:]))


async def _head_lines(reader: asyncio.StreamReader) -> list[str] | None:
    lines: list[str] = []
    while True:
        raw = await reader.readline()
        if not raw:
            return None
        line = raw.decode("latin-1").rstrip("\r\n")
        if line:
            lines.append(line)
        elif lines:
            return lines


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
