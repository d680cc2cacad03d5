"""Name the implementation in the URLs of requests to the operator (R13; spec section 22.1).

So the operator's server log shows the implementation and its commit. Tags are added when a request
is sent, and only to URLs of the operator's own origin (T35). The gates see the URL without tags
(N3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from scrapy_walsh.policy import hosts
from scrapy_walsh.policy.urls import without_userinfo

if TYPE_CHECKING:
    from collections.abc import Iterable


def tag_url(url: str, impl: str | None, sha: str | None, spec: str) -> str:
    """*url* with ``impl``, ``sha`` and ``spec`` after its own query, which stays as it is.

    *impl*: ``organisation/repository``; without it nothing is added. *sha*: short commit id,
    left out when None. *spec*: version string. A fragment stays last. A URL that has these tags
    already is returned as it is.
    """
    if not impl:
        return url
    pairs = {"impl": impl, "sha": sha, "spec": spec}
    # D36: the tagged URL is judged by robots.txt as it is sent (N3).
    tags = "&".join(f"{name}={quote(value)}" for name, value in pairs.items() if value)
    address, hash_mark, fragment = url.partition("#")
    path, _, query = address.partition("?")
    if query == tags or query.endswith("&" + tags):
        return url
    joint = "&" if query and not query.endswith("&") else ""
    return f"{path}?{query}{joint}{tags}{hash_mark}{fragment}"


def is_operator_url(url: str, operator_urls: Iterable[str]) -> bool:
    """Whether *url* has the same origin (scheme, host, port) as a URL in *operator_urls*.

    False for a URL that cannot be read or that has a user name. Never raises.
    """
    if not url.isprintable() or without_userinfo(url) != url or hosts.is_doubtful(url):
        return False  # readers differ over it
    try:
        return hosts.origin(url) in map(hosts.origin_or_url, operator_urls)
    except ValueError:
        return False
