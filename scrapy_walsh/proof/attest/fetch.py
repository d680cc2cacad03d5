"""A key set from the web, for whoever verifies: one plain request, as nobody's bot.

Who verifies need not be the operator, so the request is sent under this package's own name and
never under an identity: it is no crawl, and R1 to R13 do not speak of it.
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
from scrapy_walsh.proof.attest.jwks import LIMIT
from scrapy_walsh.spec import __version__

if TYPE_CHECKING:
    from http.client import HTTPResponse

USER_AGENT: Final = f"scrapy-walsh/{__version__}"
#: Seconds: of one answer, and of all of them.
_TIMEOUT: Final = 10.0
_PATIENCE: Final = 30.0


class NotFetched(WalshError):
    """There is no key set at the URL, or it may not be asked for: the message says why."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A key set is trusted because of where it is: it is not looked for elsewhere."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        """Leave the answer as it is, an error."""


def is_url(text: str) -> bool:
    """Whether *text* is to be fetched, as against opened."""
    return text.lower().startswith(("http://", "https://"))


def fetch(url: str) -> bytes:
    """What *url* answers, at most one octet above the limit; NotFetched."""
    if not _is_safe(url):
        raise NotFetched(f"{url}: keys are fetched by https; http is for this machine alone")
    headers = {"User-Agent": USER_AGENT, "Accept": "application/jwk-set+json, application/json"}
    opener = urllib.request.build_opener(_NoRedirect)
    try:
        request = urllib.request.Request(url, headers=headers)  # noqa: S310  http(s), see above
        with opener.open(request, timeout=_TIMEOUT) as response:
            return _read(response, time.monotonic() + _PATIENCE)
    except urllib.error.HTTPError as error:
        raise NotFetched(f"{url}: HTTP {error.code}, no key set") from None
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
