"""One line of an access log: common or combined, of Apache or nginx, with or without a vhost.

``[VHOST] ADDRESS IDENT USER [TIME] "REQUEST" STATUS SIZE ["REFERER" "USER-AGENT"] [MORE ...]``
"""

from __future__ import annotations

import calendar
import re
from datetime import date
from functools import lru_cache
from typing import Final, NamedTuple

from scrapy_walsh.policy.signing import FIELDS
from scrapy_walsh.policy.times import LAST_SECOND

#: Where a line names the host: in front (``%v:%p %h ...``), at the end, nowhere. ``auto``: in
#: front, else at the end without quotes. What is quoted there may be what the client sent (nginx
#: logs X-Forwarded-For so), and a client must not choose the host that it is judged for.
VHOSTS: Final = ("auto", "first", "last", "none")

_INSIDE: Final = rb'(?:[^"\\]++|\\.)*+'
_QUOTED: Final = rb'"(' + _INSIDE + rb')"'
_ONE_QUOTED: Final = re.compile(rb"(?<= )" + _QUOTED + rb"(?= |\Z)")
#: All further fields: half a combined line, cut off, must not pass for a common one.
_MORE: Final = rb'((?: (?:"' + _INSIDE + rb'"|[^" ][^ ]*+)?)*+)'
_LINE: Final = re.compile(
    rb'([^\["]++)\[([0-3][0-9]/[A-Za-z]{3}/[0-9]{4}):([0-9]{2}):([0-9]{2}):([0-9]{2}) '
    rb'([+-][0-9]{4})\] ' + _QUOTED + rb" ([0-9]{3}|-) ([0-9]+|-)"
    rb"(?: " + _QUOTED + rb" " + _QUOTED + rb")?" + _MORE,
    re.DOTALL,
)  # fmt: skip
_ESCAPE: Final = re.compile(rb"\\(x[0-9A-Fa-f]{2}|.)", re.DOTALL)
_LETTERS: Final = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"b": b"\b", b"v": b"\v"}
_REQUEST: Final = re.compile(rb"([!-~]+) (.+?)(?: HTTP/[0-9.]+)?", re.DOTALL)
_NAME: Final = re.compile(rb"(?:[A-Za-z0-9_-]+\.)+[A-Za-z][A-Za-z0-9-]*(?::[0-9]+)?")
_MONTHS: Final = {
    name: number
    for number, name in enumerate(
        (b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov",
         b"Dec"), 1,
    )
}  # fmt: skip


#: Seconds by which a zone may be off UTC: the farthest is 14 hours.
_FARTHEST: Final = 14 * 3600


class Line(NamedTuple):
    """A line that could be read; octets are as logged, escapes included (see :func:`text`).

    ``time``: Unix seconds, whole. ``vhost``: ``host[:port]``, or empty. ``agent`` and ``referer``
    are None where the format has no such field. ``status``: 0 for ``-``. ``more``: all further
    fields.
    """

    time: int
    vhost: bytes
    address: bytes
    request: bytes
    status: int
    size: int
    referer: bytes | None
    agent: bytes | None
    more: bytes


def parse_line(line: bytes, vhost: str = "auto") -> Line | None:
    """Read one line, without its end; None where it has no known format. ``vhost``: of VHOSTS."""
    found = _LINE.fullmatch(line)
    if found is None:
        return None
    names, day, hour, minute, second, zone, request, status, size, referer, agent, rest = (
        found.groups()
    )
    midnight = _midnight(day, zone)
    client = _client(names.split(), vhost)
    if midnight is None or client is None or hour > b"23" or minute > b"59" or second > b"60":
        return None
    time = midnight + int(hour) * 3600 + int(minute) * 60 + int(second)
    if not 0 <= time <= LAST_SECOND:  # before 1970 no web server wrote a log
        return None
    return Line(
        time,
        client[0] or _trailing(rest, vhost),
        client[1],
        request,
        0 if status == b"-" else int(status),
        0 if size == b"-" else int(size[:18]),
        referer,
        agent,
        rest,
    )


def signature_fields(more: bytes) -> tuple[str, str, str] | None:
    """Signature-Agent, Signature-Input and Signature, the last three quoted fields of *more*.

    Each is empty where the request had none. None where the line has fewer than three such fields.
    """
    quoted = _ONE_QUOTED.findall(more)
    if len(quoted) < len(FIELDS):
        return None
    agent, covered, value = ("" if each == b"-" else text(each) for each in quoted[-3:])
    return agent, covered, value


def text(logged: bytes) -> str:
    """The octets behind a quoted field, each as one character (ISO 8859-1).

    Apache writes ``\\"``, ``\\\\``, ``\\n`` and its like, and both write ``\\xHH``.
    """
    if b"\\" in logged:
        logged = _ESCAPE.sub(_octet, logged)
    return logged.decode("latin-1")


def method_and_target(request: bytes) -> tuple[str, str] | None:
    """Method and raw target of a logged request line; None where there was no such line."""
    found = _REQUEST.fullmatch(request)
    return (text(found[1]), text(found[2])) if found else None


def _octet(found: re.Match[bytes]) -> bytes:
    code = found[1]
    return bytes((int(code[1:], 16),)) if len(code) == 3 else _LETTERS.get(code, code)


@lru_cache(maxsize=64)
def _midnight(day: bytes, zone: bytes) -> int | None:
    """Unix seconds of the start of a day in a zone."""
    month = _MONTHS.get(day[3:6].title())
    offset = int(zone[1:3]) * 3600 + int(zone[3:]) * 60
    if month is None or zone[3:] > b"59" or offset > _FARTHEST:
        return None
    try:
        begins = date(int(day[7:]), month, int(day[:2]))
    except ValueError:
        return None
    return calendar.timegm(begins.timetuple()) - (offset if zone[:1] == b"+" else -offset)


def _client(names: list[bytes], vhost: str) -> tuple[bytes, bytes] | None:
    """The vhost in front, or nothing, and the client's address; a user's name may have spaces."""
    if len(names) < 3:
        return None
    if vhost == "first" or (vhost == "auto" and len(names) > 3 and names[1] != b"-"):
        plain = len(names) == 4 or (len(names) > 4 and names[2] == b"-")
        return (names[0], names[1]) if plain else None
    return (b"", names[0]) if len(names) == 3 or names[1] == b"-" else None


def _trailing(rest: bytes, vhost: str) -> bytes:
    last = rest.rsplit(None, 1)[-1] if rest.strip() else b""
    if vhost == "last":
        return last.strip(b'"').removesuffix(b"-")
    return last if vhost == "auto" and _NAME.fullmatch(last) else b""
