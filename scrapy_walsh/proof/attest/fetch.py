"""Gets a key set from a URL, for ``attest --verify``: one plain request, outside of any crawl.

Whoever verifies need not be the operator. So the request is sent under the name of this package
and never under an identity. It is not a crawl, and R1 to R13 do not apply to it.
"""

from __future__ import annotations

import ipaddress
import time
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from scrapy_walsh.exceptions import WalshError
from scrapy_walsh.keys.jwks import LIMIT
from scrapy_walsh.spec import __version__

if TYPE_CHECKING:
    from http.client import HTTPResponse

USER_AGENT: Final = f"scrapy-walsh/{__version__}"
#: Seconds that one operation on the socket may take.
_TIMEOUT: Final = 10.0
#: Seconds that the whole body may take.
_PATIENCE: Final = 30.0


class NotFetched(WalshError):
    """There is no key set at the URL, or it must not be requested; the message says why."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: a key set is trusted because of its URL, so no other URL will do."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        """Make no other request. urllib then raises HTTPError for the redirect."""


def is_url(text: str) -> bool:
    """Whether *text* is a URL to fetch, and not the name of a file."""
    return text.lower().startswith(("http://", "https://"))


def fetch(url: str) -> bytes:
    """The body that *url* answers with, cut one octet beyond LIMIT. Raises NotFetched."""
    if not _is_safe(url):
        raise NotFetched(f"{url}: use https; keys are fetched by http from this machine only")
    headers = {"User-Agent": USER_AGENT, "Accept": "application/jwk-set+json, application/json"}
    opener = urllib.request.build_opener(_NoRedirect)
    try:
        request = urllib.request.Request(url, headers=headers)  # noqa: S310  http(s), see above
        with opener.open(request, timeout=_TIMEOUT) as response:
            return _read(response, time.monotonic() + _PATIENCE)
    except urllib.error.HTTPError as error:
        raise NotFetched(f"{url}: HTTP {error.code} instead of a key set") from None
    except (OSError, HTTPException, ValueError) as error:
        why = getattr(error, "reason", None) or error
        raise NotFetched(f"{url}: {why}") from None


def _read(response: HTTPResponse, deadline: float) -> bytes:
    body = b""
    while len(body) <= LIMIT and (piece := response.read1(LIMIT + 1 - len(body))):
        body += piece
        if time.monotonic() > deadline:
            raise TimeoutError(f"not answered within {_PATIENCE:g} s")
    return body


def _is_safe(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme == "https" or _is_loopback(parts.hostname or "")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
