"""R7: the canonical URL, which is a key for de-duplication and nothing else (D4).

Also :func:`without_userinfo`, which takes user name and password off a URL. Every URL passes it
before it is declared, sent or written down.
"""

from __future__ import annotations

import re
from typing import Final

from scrapy_walsh.policy.hosts import DEFAULT_PORT, stripped

_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?]*)([^?]*)(?:\?(.*))?", re.DOTALL)
_PORT: Final = re.compile(r"(.*):([0-9]*)", re.DOTALL)


#: The answers that name another URL in their Location (RFC 9110 section 15.4).
REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})

#: What stands before the host of a URL: scheme and slashes (WHATWG URL takes any number of them,
#: and backslashes, after http and https), then userinfo (RFC 3986 section 3.2.1).
_USERINFO: Final = re.compile(
    r"([\s\x00-\x20]*+(?:https?:[/\\]*+|[A-Za-z][A-Za-z0-9+.-]*:[/\\]{2,}+|[/\\]{2,}+))[^/?#]*@",
    re.IGNORECASE,
)


def without_userinfo(url: str) -> str:
    """Return *url* without the user name and the password before its host. Raises nothing.

    A relative reference that begins with ``//``, as a Location may, is a URL here as well.
    """
    found = _USERINFO.match(url)
    return f"{found[1]}{url[found.end() :]}" if found else url


def canonical_url(url: str) -> str:
    """Return ``scheme://host[:non-default-port]path[?query]`` (spec section 10.2).

    Userinfo and an empty query are dropped (T19); the query is otherwise verbatim. A URL
    without an authority only loses its fragment. Raises nothing.
    """
    text = stripped(stripped(url).partition("#")[0])
    found = _URL.match(text)
    if not found:
        return text
    scheme, authority, path, query = found.groups()
    scheme = scheme.lower()
    path = path.removesuffix("/") or "/"
    key = f"{scheme}://{_host_and_port(authority, scheme)}{path}"
    return f"{key}?{query}" if query else key


def _host_and_port(authority: str, scheme: str) -> str:
    netloc = authority.rpartition("@")[2].lower()
    found = _PORT.fullmatch(netloc)
    if not found:
        return netloc
    host, port = found[1], found[2].lstrip("0") or found[2][:1]
    return host if port in ("", str(DEFAULT_PORT.get(scheme))) else f"{host}:{port}"
