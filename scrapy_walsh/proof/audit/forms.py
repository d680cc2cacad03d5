"""How access logs write a request: NCSA's common and combined format, JSON lines, W3C extended.

    >>> form = form_of([b'{"time": 1579444413, "method": "GET", "uri": "/a", "status": 200}'])
    >>> form.read(b'{"time": 1579444414, "method": "GET", "uri": "/b", "status": 200}').request
    b'GET /b'

Tables of field names read the many servers that write JSON or W3C extended. Before each line may
stand what syslog or a container's log puts there. The form of a file is that of its first lines.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from urllib.parse import unquote_to_bytes

from scrapy_walsh.policy.times import LAST_SECOND

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Fields(NamedTuple):
    """The facts that one line has about a request. All but the time are octets, as the server wrote
    them.

    ``time``: Unix seconds, whole. ``site``: the host that the server names, or empty.
    ``request``: method and target, and maybe the protocol. ``status``: ``-`` if there is none.
    ``agent``: None if the log has no such field, ``-`` if no User-Agent was sent. ``more``: the
    fields behind the known ones. ``is_escaped``: whether a backslash begins an escape.
    """

    time: int
    site: bytes
    address: bytes
    request: bytes
    status: bytes
    agent: bytes | None
    more: bytes = b""
    is_escaped: bool = False


class Form(Protocol):
    """Reads the lines of one file, in their order."""

    def read(self, line: bytes) -> Fields | None:
        """The fields of *line*, which has no line end; None if it is not of this form."""

    def is_comment(self, line: bytes) -> bool:
        """Whether *line* tells of no request, and should not."""


def form_of(lines: Sequence[bytes]) -> Form:
    """The form that can read most of the first *lines* of a file."""
    wrapping = _wrapping_of(lines)
    bare = [wrapping.unwrapped(line) for line in lines]
    forms: list[Form] = [Common(_place_of_host(bare)), JsonLines(), Extended()]
    counts = [sum(form.read(line) is not None for line in bare) for form in forms]
    return Wrapped(wrapping, forms[counts.index(max(counts))])


# -- common and combined ----------------------------------------------------------------------

# ``[VHOST] ADDRESS IDENT USER [TIME] "REQUEST" STATUS SIZE ["REFERER" "USER-AGENT"] [MORE ...]``

INSIDE: Final = rb'(?:[^"\\]++|\\.)*+'
QUOTED: Final = rb'"(' + INSIDE + rb')"'
#: All further fields: half a combined line, cut off, must not pass for a common one.
_MORE: Final = rb'((?: (?:"' + INSIDE + rb'"|[^" ][^ ]*+)?)*+)'
_LINE: Final = re.compile(
    rb'([^\["]++)\[([0-9]{2}/[A-Za-z]{3}/[0-9]{4}(?::[0-9]{2}){3} [+-][0-9]{4})\] '
    + QUOTED + rb" ([0-9]{3}|-) (?:[0-9]+|-)"
    rb'(?: "' + INSIDE + rb'" ' + QUOTED + rb")?" + _MORE,
    re.DOTALL,
)  # fmt: skip
_NAME: Final = re.compile(rb"(?:[A-Za-z0-9_-]+\.)+[A-Za-z][A-Za-z0-9-]*(?::[0-9]+)?")
#: A name, or an IPv4 address, or an IPv6 address in brackets; each may have a port. A number and a
#: date are none: a logger has put them in front.
_HOST: Final = re.compile(
    rb"(?![0-9]+(?::|\Z)|[0-9]{4}-[0-9]{2}-[0-9]{2}(?:T|:|\Z))"
    rb"(?:[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*\.?|\[[0-9A-Fa-f:.]+\])(?::[0-9]+)?"
)
#: Addresses of the proxies that forwarded a request, the client's first.
_ADDRESS: Final = rb"[0-9A-Fa-f]*[.:][0-9A-Fa-f.:]+"
_FORWARDED: Final = re.compile(rb"(" + _ADDRESS + rb")(?:, ?" + _ADDRESS + rb")+ ")


class Common:
    """The common and the combined format of Apache, nginx and lighttpd.

    ``place``: the position of the host in a line. ``first``: in front (``%v:%p %h ...``);
    ``second``: in the place of IDENT (lighttpd's default); ``last``: at the end; ``none``: nowhere.
    At the end only without quotes. A quoted field may be what the client sent (nginx logs
    X-Forwarded-For so), and a client must not choose the host that it is judged for.
    """

    def __init__(self, place: str) -> None:
        self.place = place

    def is_comment(self, line: bytes) -> bool:  # noqa: ARG002  the format has none
        """False: the format has no comments."""
        return False

    def read(self, line: bytes) -> Fields | None:
        """As :meth:`Form.read`."""
        match = _LINE.fullmatch(line)
        if match is None:
            return None
        front, stamp, request, status, agent, rest_of_line = match.groups()
        time = _ncsa_second(stamp)
        client = self._client(_front(front), rest_of_line)
        if time is None or client is None:
            return None
        site, address = client
        return Fields(
            time,
            site,
            address,
            request,
            status,
            agent,
            rest_of_line,
            is_escaped=True,
        )

    def _client(self, names: list[bytes], rest_of_line: bytes) -> tuple[bytes, bytes] | None:
        """The host that is named, or nothing, and the client's address; a user may have spaces."""
        if len(names) < 3:
            return None
        if self.place == "first" and names[1] != b"-":
            has_user = len(names) == 4 or (len(names) > 4 and names[2] == b"-")
            if not has_user or not _HOST.fullmatch(names[0]):
                return None
            return names[0], names[1]
        if self.place == "second":
            return names[1].removesuffix(b"-"), names[0]
        site = b""
        if self.place == "last":
            site = _last(rest_of_line).strip(b'"').removesuffix(b"-")
        if len(names) == 3 or names[1] == b"-":
            return (site, names[0])
        return None


def _front(front: bytes) -> list[bytes]:
    """The words before the time; of a list of forwarded addresses the client's alone."""
    return _FORWARDED.sub(rb"\1 ", front).split()


def _last(rest_of_line: bytes) -> bytes:
    if rest_of_line.strip():
        return rest_of_line.rsplit(None, 1)[-1]
    return b""


def _place_of_host(lines: Sequence[bytes]) -> str:
    """Where the first *lines* of a file name the host: as the first of them that does."""
    for match in filter(None, map(_LINE.fullmatch, lines)):
        names = _front(match[1])
        ident = names[1] if len(names) > 2 else b"-"
        if ident != b"-" and len(names) > 3 and _HOST.fullmatch(names[0]):
            return "first"
        if ident != b"-" and _NAME.fullmatch(ident):
            return "second"
        if _NAME.fullmatch(_last(match[6])):
            return "last"
    return "none"


@lru_cache(maxsize=1024)
def _ncsa_second(stamp: bytes) -> int | None:
    with suppress(ValueError):
        return _second(datetime.strptime(stamp.decode(), "%d/%b/%Y:%H:%M:%S %z").timestamp())
    return None


def _second(time: float) -> int | None:
    """The whole second of a time; None before 1970, when no web server was there."""
    if 0 <= time <= LAST_SECOND:
        return int(time)
    return None


# -- tables of names --------------------------------------------------------------------------


def _names_of(facts: Mapping[str, str]) -> Mapping[str, tuple[str, ...]]:
    """For each fact the names that its text has, separated by blanks."""
    return {fact: tuple(names.split()) for fact, names in facts.items()}


#: The names of each fact, the most trustworthy first; a dot leads into an object. The host that the
#: server was configured with comes before the host that the client sent.
_JSON_NAMES: Final = _names_of(
    {
        "time": """
        ts msec time_iso8601 time_local StartUTC EdgeStartTimestamp proxy.timestamp @timestamp
        timestamp time datetime date
    """,
        "site": """
        request.host RequestHost ClientRequestHost proxy.host url.domain vhost virtual_host
        server_name host http_host
    """,
        "address": """
        request.client_ip request.remote_ip ClientHost ClientIP proxy.clientIp httpRequest.remoteIp
        source.ip client.ip remote_addr client_ip clientip remote_ip remoteAddress ip
    """,
        "request": "request_line request",
        "method": """
        request.method RequestMethod ClientRequestMethod proxy.method httpRequest.requestMethod
        http.request.method request_method verb method
    """,
        "target": """
        request.uri RequestPath ClientRequestURI proxy.path httpRequest.requestUrl url.original
        request_uri uri url path
    """,
        "status": """
        DownstreamStatus EdgeResponseStatus proxy.statusCode httpRequest.status
        http.response.status_code status status_code statusCode response
    """,
        "agent": """
        request.headers.User-Agent request_User-Agent ClientRequestUserAgent proxy.userAgent
        httpRequest.userAgent user_agent.original http_user_agent user_agent userAgent agent
    """,
    }
)
#: The names of W3C extended, those of CloudFront before those of IIS.
_EXTENDED_NAMES: Final = _names_of(
    {
        "site": "x-host-header cs-host cs(host)",
        "address": "c-ip",
        "method": "cs-method",
        "target": "cs-uri-stem cs-uri",
        "query": "cs-uri-query",
        "status": "sc-status",
        "agent": "cs(user-agent)",
    }
)


class JsonLines:
    """An object of JSON in each line, as nginx, Caddy, Traefik and others write it."""

    def is_comment(self, line: bytes) -> bool:  # noqa: ARG002  the format has none
        """False: the format has no comments."""
        return False

    def read(self, line: bytes) -> Fields | None:
        """As :meth:`Form.read`."""
        members = _object(line)
        facts = {fact: _value(members, names) for fact, names in _JSON_NAMES.items()}
        time = _json_second(facts["time"])
        request = _json_request(facts)
        if time is None or request is None or facts["status"] is None:
            return None
        agent = facts["agent"]
        site = _octets(facts["site"])
        return Fields(
            time,
            site if _HOST.fullmatch(site) else b"",
            _octets(facts["address"]),
            request,
            _status(_octets(facts["status"])),
            None if agent is None else _octets(agent) or b"-",
        )


def _object(line: bytes) -> dict[str, Any]:
    """The members of the object in *line*; none if it is no object of JSON."""
    if line[:1] == b"{":
        with suppress(ValueError, RecursionError):
            members = json.loads(line)
            if isinstance(members, dict):
                return members
    return {}


def _value(members: dict[str, Any], names: tuple[str, ...]) -> str | float | None:
    """The value of the first of *names* that has one: a text or a number."""
    for name in names:
        value = members.get(name, _within(members, name))
        if isinstance(value, list) and value:  # Caddy's fields of a header
            value = value[0]
        if isinstance(value, (str, int, float)) and not isinstance(value, bool) and value != "":
            return value
    return None


def _within(members: Any, name: str) -> Any:
    for part in name.split("."):
        if not isinstance(members, dict):
            return None
        members = members.get(part)
    return members


def _octets(value: str | float | None) -> bytes:
    if value is None:
        return b""
    return str(value).encode("utf-8", "surrogatepass")


def _status(octets: bytes) -> bytes:
    if re.fullmatch(rb"[0-9]{3}", octets):
        return octets
    return b"-"


def _json_request(facts: Mapping[str, str | float | None]) -> bytes | None:
    """Method and target: of their own members, or of the first line of the request."""
    if facts["method"] is None or facts["target"] is None:
        request = _octets(facts["request"])
        if b" " in request:
            return request
        return None
    return _octets(facts["method"]) + b" " + _octets(facts["target"])


#: How many of a unit make a second: a time beyond the year 2286 is in the next smaller unit.
_UNITS: Final = (1, 10**3, 10**6, 10**9)


def _json_second(value: str | float | None) -> int | None:
    """The second of a time. It may be a number of seconds or of parts of a second, ISO 8601, or
    NCSA's form.
    """
    if value is None:
        return None
    with suppress(ValueError, OverflowError):
        return _number_second(float(value))
    text = str(value)
    with suppress(ValueError, OverflowError):
        moment = datetime.fromisoformat(text)
        return _second(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp())
    return _ncsa_second(text.strip("[]").encode("utf-8", "replace"))


def _number_second(number: float) -> int | None:
    for unit in _UNITS:
        if number / unit < 10**10:
            return _second(number / unit)
    return None


class Extended:
    """W3C extended, as IIS and CloudFront write it: a line ``#Fields:`` names the fields."""

    def __init__(self) -> None:
        self._names: list[str] = []
        #: CloudFront separates fields by tabs, and escapes their octets with ``%``.
        self._has_tabs = False

    def is_comment(self, line: bytes) -> bool:
        """Whether *line* is a directive, which begins with ``#``; ``#Fields:`` is taken in."""
        directive, _, names = line.partition(b":")
        if directive.strip().lower() == b"#fields":
            self._names = names.decode("latin-1").lower().split()
            self._has_tabs = "x-edge-location" in self._names
        return line.startswith(b"#")

    def read(self, line: bytes) -> Fields | None:
        """As :meth:`Form.read`."""
        if self.is_comment(line):
            return None
        values = line.split(b"\t" if self._has_tabs else None)
        if not self._names or len(values) != len(self._names):
            return None
        members = dict(zip(self._names, values, strict=True))
        time = _json_second(_text(members.get("date")) + "T" + _text(members.get("time")) + "Z")
        facts = {
            fact: next((members[name] for name in names if name in members), None)
            for fact, names in _EXTENDED_NAMES.items()
        }
        method = facts["method"]
        target = facts["target"]
        status = facts["status"]
        if time is None or method is None or target is None or status is None:
            return None
        query = facts["query"] or b"-"
        if query != b"-":
            target += b"?" + query
        site = facts["site"] or b""
        return Fields(
            time,
            site if _HOST.fullmatch(site) else b"",
            facts["address"] or b"",
            method + b" " + target,
            _status(status),
            self._agent(facts["agent"]),
        )

    def _agent(self, logged: bytes | None) -> bytes | None:
        """The User-Agent as it was sent.

        IIS writes a plus for a blank, and leaves a plus as it is. The plus before the address of a
        policy comes after a blank, or begins a comment.
        """
        if logged is None:
            return None
        if self._has_tabs:
            return unquote_to_bytes(unquote_to_bytes(logged))  # it escapes the % as well
        logged = logged.replace(b"++", b" \x00").replace(b"(+", b"(\x00")
        return logged.replace(b"+", b" ").replace(b"\x00", b"+")


def _text(octets: bytes | None) -> str:
    if octets is None:
        return ""
    return octets.decode("latin-1")


# -- what stands before a line ----------------------------------------------------------------

_ISO_TIME: Final = rb"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(?:Z|[+-][0-9]{2}:?[0-9]{2})"
_BSD_TIME: Final = rb"[A-Z][a-z]{2} [ 0-3][0-9] [0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?"
_PLAIN_TIME: Final = rb"[0-9]{4}[-/][0-9]{2}[-/][0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]+)?"
#: The fronts of lines: of syslog (RFC 5424; RFC 3164, also with the time of rsyslog), of Kubernetes
#: (CRI), of ``docker logs --timestamps``, of ``docker compose logs`` and pm2, of ``kubectl logs
#: --prefix``, and a plain time.
_FRONTS: Final = tuple(
    re.compile(front)
    for front in (
        rb"<[0-9]{1,3}>1 (?:[^ ]+ ){5}(?:-|\[[^\]]*\]) (?:\xef\xbb\xbf)?",
        rb"(?:<[0-9]{1,3}>)?(?:"
        + _BSD_TIME
        + rb"|"
        + _ISO_TIME
        + rb") [^ ]+ [^ :\[]+(?:\[[0-9]+\])?: ",
        _ISO_TIME + rb" std(?:out|err) [FP] ",
        _ISO_TIME + rb" (?=[^ ])",
        rb"[A-Za-z0-9_.|-]+ +\| (?:" + _ISO_TIME + rb" )?",
        rb"\[(?:pod/[^\] ]+|" + _ISO_TIME + rb"|" + _PLAIN_TIME + rb")\] ",
        _PLAIN_TIME + rb" (?=[^\[]+\[[0-9]{2}/)",  # W3C extended begins so, too
        _BSD_TIME + rb" [^ ]+ (?=[0-9]+\.[0-9]+\.|[0-9A-Fa-f]*:)",
    )
)
#: Members that hold the line in a container's log, or in journald.
_KEPT_IN: Final = ("log", "MESSAGE", "message")


class Wrapping(NamedTuple):
    """The wrapping of each line: a ``front``, or a ``member`` of an object that has the line."""

    front: re.Pattern[bytes] | None = None
    member: str = ""

    def unwrapped(self, line: bytes) -> bytes:
        """*line* without it; as it is if it has none."""
        if self.front is not None:
            if self.front.match(line):
                return self.front.sub(b"", line, count=1)
            return line
        if self.member:
            value = _object(line).get(self.member)
            if isinstance(value, str):
                return value.encode().rstrip(b"\r\n")
            return line
        return line


def _wrapping_of(lines: Sequence[bytes]) -> Wrapping:
    """The wrapping of most of *lines*."""
    half = sum(map(bool, lines)) / 2
    for front in _FRONTS:
        if sum(front.match(line) is not None for line in lines) > half:
            return Wrapping(front)
    for member in _KEPT_IN:
        values = [_object(line).get(member) for line in lines]
        if sum(isinstance(value, str) and " " in value for value in values) > half:
            return Wrapping(member=member)
    return Wrapping()


class Wrapped:
    """A form, behind what stands around each line."""

    def __init__(self, wrapping: Wrapping, form: Form) -> None:
        self._wrapping = wrapping
        self._form = form

    def is_comment(self, line: bytes) -> bool:
        """As :meth:`Form.is_comment`."""
        return self._form.is_comment(self._wrapping.unwrapped(line))

    def read(self, line: bytes) -> Fields | None:
        """As :meth:`Form.read`."""
        return self._form.read(self._wrapping.unwrapped(line))
