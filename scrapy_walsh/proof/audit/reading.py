"""Reads access logs as a stream: keeps the bot's requests, and only counts the others."""

from __future__ import annotations

import codecs
import gzip
import ipaddress
import re
import sys
import zlib
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, islice
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from scrapy_walsh.exceptions import WalshError
from scrapy_walsh.policy import hosts
from scrapy_walsh.policy.signing import FIELDS
from scrapy_walsh.policy.words import plural
from scrapy_walsh.proof.audit.forms import QUOTED, form_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scrapy_walsh.proof.audit.forms import Fields, Form

#: The first lines of a file show its form.
_FIRST_LINES: Final = 100

_ONE_QUOTED: Final = re.compile(rb"(?<= )" + QUOTED + rb"(?= |\Z)")
_ESCAPE: Final = re.compile(rb"\\(x[0-9A-Fa-f]{2}|.)", re.DOTALL)
_LETTERS: Final = {
    b"n": b"\n",
    b"t": b"\t",
    b"r": b"\r",
    b"b": b"\b",
    b"v": b"\v",
}
#: Method and target. An absolute target is cut to path and query, because the server names the
#: host.
_REQUEST: Final = re.compile(
    rb"([!-~]+) (?:(?i:https?)://[^/? ]*)?(.*?)(?: HTTP/[0-9.]+)?", re.DOTALL
)


def signature_fields(rest_of_line: bytes) -> tuple[str, str, str] | None:
    """Signature-Agent, Signature-Input and Signature, the last quoted fields of *rest_of_line*.

    Each is empty if the request had none. None if the line has fewer than three such fields.
    """
    quoted = _ONE_QUOTED.findall(rest_of_line)
    if len(quoted) < len(FIELDS):
        return None
    agent, covered, value = ("" if field == b"-" else text(field) for field in quoted[-3:])
    return agent, covered, value


def text(logged: bytes) -> str:
    """The octets behind a quoted field, each as one character (ISO 8859-1).

    Apache writes ``\\"``, ``\\\\``, ``\\n`` and its like, and both write ``\\xHH``.
    """
    if b"\\" in logged:
        logged = _ESCAPE.sub(_octet, logged)
    return logged.decode("latin-1")


def _octet(match: re.Match[bytes]) -> bytes:
    code = match[1]
    if len(code) == 3:
        return bytes((int(code[1:], 16),))
    return _LETTERS.get(code, code)


#: Octets of a line that are read; servers end a request line and its headers far below.
LONGEST_LINE: Final = 256 * 1024
#: The most unreadable lines to number.
NAMED: Final = 5

_READ: Final = (
    "common, combined, JSON lines and W3C extended can be read, also behind syslog's or a "
    "container's prefix; of HAProxy, S3 or a load balancer make combined lines first "
    "(docs/audit.md)"
)
_GZIP: Final = b"\x1f\x8b"
_Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


class Entry(NamedTuple):
    """One request of the bot. ``time``: Unix seconds, whole, of its start (Apache) or end (nginx).

    ``file``, ``line``: the place of the entry, the line from 1. ``site``: ``host[:port]`` as the
    log names it, which has one robots.txt; ``host``: the key of R4 (``hosts.host_key``). Either is
    empty if the log does not say. ``target``: raw, in origin form. ``status``: 0 when none was
    logged. ``agent``: None if the log has no such field, empty if none was sent. ``signature``:
    Signature-Agent, Signature-Input and Signature, if the log may have them.
    """

    time: int
    file: str
    line: int
    site: str
    host: str
    target: str
    address: str
    method: str
    status: int
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

    With ``networks`` it is everything from there, and nothing else. ``host``: of lines that name
    none. ``only``: the host to keep (its key of R4), or empty for all.
    """

    token: bytes
    networks: tuple[_Network, ...] = ()
    host: str = ""
    only: str = ""


@dataclass(slots=True)
class Log:
    """The content of the logs that were read. ``first``, ``last``: Unix seconds of all lines,
    whichever client sent the request; None if there are none.

    ``elsewhere``: requests under the token from addresses that are not judged. ``others``: the
    bot's requests to hosts that are not judged. ``damaged``: the number of lines that could not be
    read; ``named``: the places of the first of them (``FILE:LINE``).
    """

    entries: list[Entry] = field(default_factory=list)
    lines: int = 0
    first: int | None = None
    last: int | None = None
    elsewhere: int = 0
    others: int = 0
    damaged: int = 0
    named: list[str] = field(default_factory=list)


class Unreadable(WalshError, ValueError):
    """A file that is not an access log, or a damaged one."""


def read_logs(paths: Sequence[str], bot: Bot) -> Log:
    """The logs at *paths* (``-``: standard input; gzip or not), as one, sorted by time.

    A log that is given twice counts twice. Lines of the same second stay in the order of their
    file. The first line decides the place of a file. OSError if a file cannot be opened; Unreadable
    if a file has lines and none of them can be read.
    """
    log = Log()
    begins: dict[str, int] = {}
    for path in paths:
        lines_before = log.lines
        try:
            start = _read(path, bot, log)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            advice = "is damaged or ends too early: unpack what there is of it, and give that"
            raise Unreadable(f"{path} {advice}") from None
        if start is not None:
            begins.setdefault(path, start)
        elif lines := log.lines - lines_before:
            reason = f"of {plural(lines, 'line')} none can be read"
            raise Unreadable(f"{path} is not an access log: {reason}; {_READ}")
    if log.first is None:
        raise Unreadable(f"nothing to read in {', '.join(paths)}")
    log.entries.sort(key=lambda entry: (entry.time, begins[entry.file]))
    return log


def _read(path: str, bot: Bot, log: Log) -> int | None:
    """Read one file into *log*; the earliest time in it, None if no line could be read."""
    start: int | None = None
    lines = _lines(path)
    head = list(islice(lines, _FIRST_LINES))
    if head:
        head[0] = head[0].removeprefix(codecs.BOM_UTF8)
    form = form_of([line.rstrip(b"\r\n") for line in head])
    for number, octets in enumerate(chain(head, lines), 1):
        log.lines += 1
        line = octets.rstrip(b"\r\n")
        time = _take(log, bot, line, form, (path, number))
        if time is None and form.is_comment(line):
            continue
        if time is None:
            log.damaged += 1
            if log.damaged <= NAMED:
                log.named.append(f"{path}:{number}")
        else:
            start = time if start is None else min(start, time)
    return start


def _lines(path: str) -> Iterator[bytes]:
    """Each line of a file. The file is unpacked if its first octets are of gzip, whatever its name.

    Of a line that is too long the beginning.
    """
    with open(0 if path == "-" else path, "rb") as file:  # noqa: PTH123  0 is standard input
        packed = file.peek(2)[:2] == _GZIP
        stream = gzip.GzipFile(fileobj=file) if packed else file
        while line := stream.readline(LONGEST_LINE):
            tail = line
            while len(tail) == LONGEST_LINE and not tail.endswith(b"\n"):
                tail = stream.readline(LONGEST_LINE)
            yield line


def _take(log: Log, bot: Bot, line: bytes, form: Form, place: tuple[str, int]) -> int | None:
    """Take in a line, without its end. Its Unix second; None if it is not of the form."""
    fields = form.read(line)
    if fields is None:
        return None
    time = fields.time
    log.first = time if log.first is None else min(log.first, time)
    log.last = time if log.last is None else max(log.last, time)
    is_named = fields.agent is not None and bot.token in fields.agent.lower()
    if not (_within(fields.address, bot.networks) if bot.networks else is_named):
        log.elsewhere += is_named
        return time
    entry = _entry(fields, bot, place)
    if entry is not None and bot.only in ("", entry.host):
        log.entries.append(entry)
    else:
        log.others += entry is not None
    return time


def _entry(fields: Fields, bot: Bot, place: tuple[str, int]) -> Entry | None:
    """The request in a line; None for a connection without a request, and for a CONNECT."""
    request = _REQUEST.fullmatch(fields.request)
    if request is None or request[1] == b"CONNECT":
        return None
    decoded = text if fields.is_escaped else _latin1
    target = decoded(request[2])
    agent = fields.agent
    if agent is not None:
        agent = agent.removesuffix(b"-") if agent == b"-" else agent
    return Entry(
        fields.time,
        *place,
        *_site_and_host(decoded(fields.site) or bot.host),
        f"/{target}" if target[:1] in ("", "?") else target,
        sys.intern(decoded(fields.address)),
        sys.intern(decoded(request[1])),
        0 if fields.status == b"-" else int(fields.status),
        None if agent is None else sys.intern(decoded(agent)),
        signature_fields(fields.more),
    )


def _latin1(octets: bytes) -> str:
    return octets.decode("latin-1")


@lru_cache(maxsize=1024)
def _site_and_host(site: str) -> tuple[str, str]:
    """The site that the log names, which has one robots.txt, and its key of R4."""
    try:
        return site.lower(), hosts.host_key(f"http://{site}")
    except ValueError:
        return site.lower(), site.lower()


@lru_cache(maxsize=65536)
def _within(address: bytes, networks: tuple[_Network, ...]) -> bool:
    try:
        ip = ipaddress.ip_address(address.decode("latin-1"))
    except ValueError:
        return False
    mapped = getattr(ip, "ipv4_mapped", None)
    return any((mapped or ip) in network for network in networks)
