"""Reads access logs as a stream: keeps the bot's requests, and only counts the others."""

from __future__ import annotations

import gzip
import ipaddress
import sys
import zlib
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, cast

from scrapy_walsh.exceptions import WalshError
from scrapy_walsh.policy import hosts
from scrapy_walsh.policy.words import plural
from scrapy_walsh.proof.audit.accesslog import (
    Line,
    method_and_target,
    parse_line,
    signature_fields,
    text,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import BinaryIO

#: Octets of a line that are read; servers end a request line and its headers far below.
LONGEST_LINE: Final = 256 * 1024
#: Unreadable lines whose numbers are kept.
NAMED: Final = 5

_GZIP: Final = b"\x1f\x8b"
_Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


class Entry(NamedTuple):
    """One request of the bot. ``time``: Unix seconds, whole, of its start (Apache) or end (nginx).

    ``file``, ``line``: where it stands, the line from 1. ``site``: ``host[:port]`` as the log
    names it, which has one robots.txt; ``host``: the key of R4 (``hosts.host_key``). Either
    is empty where the log does not say. ``target``: raw, in origin form. ``status``: 0 when none
    was logged. ``agent``: None where the log has no such field, empty where none was sent.
    ``signature``: Signature-Agent, Signature-Input and Signature, where they were asked for and the
    log has them.
    """

    time: int
    file: str
    line: int
    site: str
    host: str
    address: str
    method: str
    target: str
    status: int
    size: int
    referer: bool
    agent: str | None
    signature: tuple[str, str, str] | None = None

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]

    @property
    def place(self) -> str:
        """``FILE:LINE``."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Bot:
    """Whose requests are kept: by ``token`` (lower case, in the User-Agent), or by address.

    With ``networks`` or ``names`` it is everything from there, and nothing else. ``host``: of
    lines that name none. ``only``: the one host to keep (its key of R4), or empty. ``vhost``: one
    of ``accesslog.VHOSTS``. ``signed``: whether the fields of a signature are read.
    """

    token: bytes
    networks: tuple[_Network, ...] = ()
    names: frozenset[bytes] = frozenset()
    host: str = ""
    only: str = ""
    vhost: str = "auto"
    signed: bool = False

    def asked(self, line: Line) -> bool:
        """Whether *line* is a request of the bot."""
        if self.networks or self.names:
            return line.address in self.names or _within(line.address, self.networks)
        return self.named(line)

    def named(self, line: Line) -> bool:
        """Whether the line's User-Agent has the token."""
        return line.agent is not None and self.token in line.agent.lower()


@dataclass(slots=True)
class Log:
    """What was read. ``first``, ``last``: Unix seconds of anybody's lines; None without any.

    ``elsewhere``: requests under the token from addresses that are not judged. ``others``: the
    bot's requests to hosts that are not judged. ``damaged``: by file, the number of lines that
    could not be read; ``named``: where the first of them are (``FILE:LINE``). ``agents``: whether
    any line has a User-Agent field.
    """

    entries: list[Entry] = field(default_factory=list)
    lines: int = 0
    first: int | None = None
    last: int | None = None
    elsewhere: int = 0
    others: int = 0
    damaged: Counter[str] = field(default_factory=Counter)
    named: list[str] = field(default_factory=list)
    agents: bool = False


class Unreadable(WalshError, ValueError):
    """A file that is not an access log."""


def read_logs(paths: Sequence[str], bot: Bot) -> Log:
    """The logs at *paths* (``-``: standard input; gzip or not), as one, sorted by time.

    A log that is given twice counts twice. Lines of one second stay in the order of their file,
    and files go by their first line.
    OSError where a file cannot be opened, Unreadable where one has lines and none can be read.
    """
    log = Log()
    pieces: list[tuple[int, list[Entry]]] = []
    for path in paths:
        piece = Log()
        with _opened(path) as stream:
            _read(stream, path, bot, piece)
        if piece.first is None and piece.damaged:
            raise Unreadable(
                f"{path} is not an access log: of {plural(piece.lines, 'line')} none can be read"
            )
        pieces.append((piece.first or 0, piece.entries))
        _add(log, piece)
    if log.first is None:
        raise Unreadable(f"nothing to read in {', '.join(paths)}")
    for _, entries in sorted(pieces, key=lambda each: each[0]):
        log.entries += entries
    log.entries.sort(key=lambda entry: entry.time)
    return log


def _add(log: Log, piece: Log) -> None:
    log.lines += piece.lines
    log.elsewhere += piece.elsewhere
    log.others += piece.others
    log.damaged += piece.damaged
    log.named += piece.named
    log.agents |= piece.agents
    if piece.first is not None and piece.last is not None:
        log.first = piece.first if log.first is None else min(log.first, piece.first)
        log.last = piece.last if log.last is None else max(log.last, piece.last)


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    if path == "-":
        yield _unpacked(sys.stdin.buffer)
    else:
        with Path(path).open("rb") as file:
            yield _unpacked(file)


def _unpacked(stream: BinaryIO) -> BinaryIO:
    """By its first octets, since a rotated or piped log need not be called ``.gz``."""
    peek = getattr(stream, "peek", None)
    packed = peek is not None and peek(2)[:2] == _GZIP
    return cast("BinaryIO", gzip.open(stream)) if packed else stream


def _read(stream: BinaryIO, path: str, bot: Bot, log: Log) -> None:
    try:
        for number, octets in enumerate(_lines(stream), 1):
            log.lines = number
            line = parse_line(octets.rstrip(b"\r\n"), bot.vhost)
            if line is None:
                _damage(log, path, number)
            else:
                _take(log, bot, line, path, number)
    except (EOFError, zlib.error, gzip.BadGzipFile):  # cut off, or damaged within
        _damage(log, path, log.lines + 1)


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """Each line; of one that is too long the beginning."""
    while line := stream.readline(LONGEST_LINE):
        rest = line
        while len(rest) == LONGEST_LINE and not rest.endswith(b"\n"):
            rest = stream.readline(LONGEST_LINE)
        yield line


def _damage(log: Log, path: str, number: int) -> None:
    log.damaged[path] += 1
    if len(log.named) < NAMED:
        log.named.append(f"{path}:{number}")


def _take(log: Log, bot: Bot, line: Line, path: str, number: int) -> None:
    log.first = line.time if log.first is None else min(log.first, line.time)
    log.last = line.time if log.last is None else max(log.last, line.time)
    log.agents |= line.agent is not None
    if not bot.asked(line):
        log.elsewhere += bot.named(line)
        return
    entry = _entry(line, bot, path, number)
    if entry is None:
        return
    if bot.only in ("", entry.host):
        log.entries.append(entry)
    else:
        log.others += 1


def _entry(line: Line, bot: Bot, path: str, number: int) -> Entry | None:
    """The request in *line*; None for a connection without a request, and for a CONNECT."""
    request = method_and_target(line.request)
    if request is None or request[0] == "CONNECT":
        return None
    named = text(line.vhost) or bot.host
    site, host, target = _place_of(named, request[1])
    agent = (
        None if line.agent is None else sys.intern("" if line.agent == b"-" else text(line.agent))
    )
    return Entry(
        line.time,
        path,
        number,
        site,
        host,
        sys.intern(text(line.address)),
        sys.intern(request[0]),
        target,
        line.status,
        line.size,
        line.referer not in (None, b"-", b""),
        agent,
        signature_fields(line.more) if bot.signed else None,
    )


def _place_of(named: str, target: str) -> tuple[str, str, str]:
    """Site, key of R4 and origin-form target; an absolute-form target names its own host."""
    scheme, separator, rest = target.partition("://")
    if not separator or scheme.lower() not in {"http", "https"}:
        return (*_site_and_host(named), target)
    site, host = _site_and_host(named)
    authority = rest.replace("?", "/", 1).partition("/")[0]
    own_site, own_host = _site_and_host(authority)
    path = rest[len(authority) :].partition("#")[0]
    if own_host != host:
        site, host = own_site, own_host
    return site, host, path if path.startswith("/") else f"/{path}"


@lru_cache(maxsize=1024)
def _site_and_host(named: str) -> tuple[str, str]:
    if not named:
        return "", ""
    try:
        return named.lower(), hosts.host_key(f"http://{named}")
    except ValueError:
        return named.lower(), named.lower()


@lru_cache(maxsize=65536)
def _within(address: bytes, networks: tuple[_Network, ...]) -> bool:
    try:
        found = ipaddress.ip_address(address.decode("latin-1"))
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return any((mapped or found) in network for network in networks)
