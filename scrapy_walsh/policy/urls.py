"""R7: the canonical URL, a key for de-duplication and nothing else (design D4)."""

from __future__ import annotations

import re
from typing import Final

from scrapy_walsh.policy.hosts import stripped

_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^?#]*)(?:\?([^#]*))?", re.DOTALL)
_PORT: Final = re.compile(r"(.*?)(?::([0-9]*))?", re.DOTALL)
_DEFAULT_PORT: Final = {"http": "80", "https": "443"}


def canonical_url(url: str) -> str:
    """Return ``scheme://host[:non-default-port]path[?query]`` (spec section 10.2).

    Userinfo and an empty query are dropped (T19); the query is otherwise verbatim. A URL
    without an authority only loses its fragment. Raises nothing.
    """
    text = stripped(url)
    found = _URL.match(text)
    if not found:
        return text.partition("#")[0]
    scheme, authority, path, query = found.groups()
    scheme = scheme.lower()
    path = path.removesuffix("/") or "/"
    key = f"{scheme}://{_host_and_port(authority, scheme)}{path}"
    return f"{key}?{query}" if query else key


def _host_and_port(authority: str, scheme: str) -> str:
    found = _PORT.fullmatch(authority.rpartition("@")[2].lower())
    host, port = found.groups() if found else (authority, None)
    port = (port or "").lstrip("0") or port
    return host if not port or port == _DEFAULT_PORT.get(scheme) else f"{host}:{port}"
