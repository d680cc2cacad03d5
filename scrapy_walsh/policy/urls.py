"""The text of URLs, without the question which host they name; the keys of URLs (R7).

Each URL passes :func:`without_userinfo` before it is declared, sent or recorded.

There are two keys. :func:`exact_url` is the key of a request: spellings with the same key are the
same request on the wire. R6, R7's validators (T20) and R8 (:func:`key_of`) use it. The canonical
URL is a key for de-duplication and nothing else (D4).
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import urlsplit

#: The ports that a URL need not name.
DEFAULT_PORT: Final = {"http": 80, "ws": 80, "https": 443, "wss": 443, "ftp": 21}

#: Matches the most common URLs, which are their own key: in lower case, with a path, without a
#: port, userinfo or a fragment.
_EXACT: Final = re.compile(r"https?://[a-z0-9._-]+/[^#\s]*+").fullmatch

#: The text before the host of a URL: scheme and slashes (by WHATWG URL any number of slashes and
#: backslashes after http and https), then userinfo (RFC 3986 section 3.2.1).
_USERINFO: Final = re.compile(
    r"([\s\x00-\x20]*+(?:https?:[/\\]*+|[A-Za-z][A-Za-z0-9+.-]*:[/\\]{2,}+|[/\\]{2,}+))[^/?#]*@",
    re.IGNORECASE,
)

_TRIMMED: Final = "".join(map(chr, range(0x21)))
_REMOVED: Final = {ord(c): None for c in "\t\r\n"}
_UNSENDABLE: Final = re.compile(r"[\x00-\x20\x7f\ud800-\udfff]")
#: An absolute URL: scheme, authority, path, query. A host and its port.
_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?]*)([^?]*)(?:\?(.*))?", re.DOTALL)
_PORT: Final = re.compile(r"(.*):([0-9]*)", re.DOTALL)
#: A URL that can be sent as it is: scheme and authority, path, query. A request line has visible
#: ASCII characters only (RFC 9112 section 3), and an authority without userinfo.
_SENDABLE: Final = re.compile(
    r"""(https?://[!"$-.0->A-\[\]-~]+)(/[!"$->@-~]*)?(?:\?([!"$-~]*))?(?:\#.*)?""",
    re.IGNORECASE | re.ASCII | re.DOTALL,
)


def stripped(text: str) -> str:
    """Return a URL without the parts that each reader ignores: outer blanks, tabs and line ends."""
    return text.strip(_TRIMMED).translate(_REMOVED)


#: The warning about a URL with userinfo, and the remedy.
HAS_USERINFO: Final = (
    "holds a user name or a password; it is ignored: set a target's credentials with Scrapy's "
    "http_user, http_pass and http_auth_domain"
)


def without_userinfo(url: str) -> str:
    """Return *url* without the user name and the password before its host. Raises nothing.

    A relative reference that begins with ``//``, as a Location may, is a URL here as well.
    """
    match = _USERINFO.match(url)
    return f"{match[1]}{url[match.end() :]}" if match else url


#: Replaces a query if queries are not shown (WALSH_LEDGER = "redact").
REDACTED: Final = "?redacted"
#: A URL in a text: the part before a query or a fragment, and the rest. White space, a quote and
#: angle brackets end it. After a backslash a quote does not, because JSON escapes one so.
_IN_TEXT: Final = re.compile(
    r"""(\b[a-z][a-z0-9+.-]{0,15}:[/\\]++(?:\\["\\]|[^\s"<>?#])*+)([?#](?:\\["\\]|[^\s"<>])*+)?""",
    re.IGNORECASE,
)
#: The end of a sentence or of a list after a URL.
_PUNCTUATION: Final = ")]}',.;:"


def without_queries(text: str) -> str:
    """*text* as it may be shown if queries may not: each URL in it ends before its query.

    ``?redacted`` stands for the query, and a fragment is left out, because both may have a token.
    A path stays as it is. It takes linear time.
    """
    return _IN_TEXT.sub(_without_query, text)


def _without_query(match: re.Match[str]) -> str:
    start, rest = match[1], match[2] or ""
    end = rest[len(rest.rstrip(_PUNCTUATION)) :]
    return f"{start}{REDACTED if rest[:1] == '?' else ''}{end}"


def is_http_url(url: str) -> bool:
    """Tell whether *url* is an absolute http or https URL that can be sent as it is."""
    try:
        # D36: it only rejects URLs. The others are judged by `hosts`, and sent by _SENDABLE.
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return usable and not _UNSENDABLE.search(url)


@lru_cache(maxsize=16)  # each look at a request begins with its URL
def exact_url(url: str) -> str:
    """Return the key of a request: *url* without the parts that do not change the request.

    That is the fragment, userinfo, a default port, the case of scheme and host, and a path that is
    empty (RFC 9110 section 4.2.3). All else is another request, above all a slash at the end (T20).
    A URL without an authority only loses its fragment. Raises nothing.
    """
    if _EXACT(url):
        return url
    match = _URL.match(stripped(stripped(url).partition("#")[0]))
    if not match:
        return url.partition("#")[0]
    scheme, authority, path, query = match.groups()
    scheme = scheme.lower()
    key = f"{scheme}://{_host_and_port(authority, scheme)}{path or '/'}"
    return key if query is None else f"{key}?{query}"


def canonical_url(url: str) -> str:
    """Return R7's key for de-duplication, which is nothing else (D4).

    It is ``scheme://host[:non-default-port]path[?query]`` (spec section 10.2).

    Userinfo and an empty query are dropped (T19); the query is otherwise verbatim. A URL
    without an authority only loses its fragment. Raises nothing.
    """
    exact = exact_url(url)
    match = _URL.match(exact)
    if not match:
        return stripped(exact)
    scheme, authority, path, query = match.groups()
    key = f"{scheme}://{authority}{path.removesuffix('/') or '/'}"
    return f"{key}?{query}" if query else key


def key_of(url: str, form: str = "") -> str:
    """R8's key of a request: its exact URL, and its form, if that is not empty."""
    url = exact_url(url)
    return f"{url} {form}" if form else url


def form_of(method: str, body: bytes = b"") -> str:
    """The difference of a request from a plain GET of its URL; empty for a GET without a body.

    It is the method and, if there is a body, a space and 16 hexadecimal digits of its SHA-256.
    """
    if method == "GET" and not body:
        return ""
    digest = hashlib.sha256(body).hexdigest()[:16]
    return f"{method} {digest}" if body else method


def _host_and_port(authority: str, scheme: str) -> str:
    netloc = authority.rpartition("@")[2].lower()
    match = _PORT.fullmatch(netloc)
    if not match:
        return netloc
    host, port = match[1], match[2].lstrip("0") or match[2][:1]
    return host if port in ("", str(DEFAULT_PORT.get(scheme))) else f"{host}:{port}"


class Target(NamedTuple):
    """Where a request goes, as it is sent: RFC 9421 sections 2.2.1, 2.2.3, 2.2.6 and 2.2.7.

    ``authority``: the host in lower case, with its port unless that is the scheme's own. ``path``:
    raw, without the query. ``query``: raw, without its ``?``; None if the target has no ``?``.
    """

    method: str
    authority: str
    path: str
    query: str | None = None


def target(method: str, scheme: str, host: str, path: str, query: str | None = None) -> Target:
    """The target of a request. *host*: as the Host field has it. *path*: as sent, perhaps empty."""
    authority = host.lower()
    name, colon, port = authority.rpartition(":")
    if colon and port.isdecimal() and int(port) == DEFAULT_PORT.get(scheme):
        authority = name
    return Target(method, authority, path or "/", query)


def path_and_query(url: str) -> tuple[str, str | None]:
    """The path and the query that a request for exactly *url* has; its fragment is never sent.

    An empty path is ``/`` (RFC 9112 section 3.2.1). The query is None if there is no ``?``. The
    text is cut by this module's own pattern and put together again nowhere: ``urlunparse`` of the
    standard library makes ``////x`` of ``//x`` from Python 3.13 on, and drops a ``?`` with nothing
    after it. Raises ValueError for a URL that no request line can hold as it is.
    """
    parts = _sendable(url)
    return parts[2] or "/", parts[3]


def request_target(url: str, *, absolute: bool = False) -> str:
    """The request target that asks for exactly *url*, in origin form (RFC 9112 section 3.2).

    *absolute*: in absolute form, as a proxy needs it. Raises as :func:`path_and_query`.
    """
    path, query = path_and_query(url)
    prefix = _sendable(url)[1] if absolute else ""
    return prefix + path + ("" if query is None else f"?{query}")


def _sendable(url: str) -> re.Match[str]:
    parts = _SENDABLE.fullmatch(url)
    if parts is None:
        raise ValueError("it is not valid in a request line: escape it, or remove its user name")
    return parts
