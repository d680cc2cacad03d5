"""R3, R7: default ports, the answers that redirect, and URLs without a user name.

:func:`without_userinfo` takes user name and password off a URL. Every URL passes it before it is
declared, sent or written down.
"""

from __future__ import annotations

import re
from typing import Final

#: The ports that a URL need not name.
DEFAULT_PORT: Final = {"http": 80, "ws": 80, "https": 443, "wss": 443, "ftp": 21}

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
