"""Which host Scrapy would connect to for a URL, and what it would send as Host.

    python -m tests.crawl.reached < URLS.json

For each URL of a JSON array, print ``[url of the request, host, Host header]``. The request goes
through Scrapy's own download handler to the last step before the socket. The URL is null where
Scrapy makes no request of it, the host where nothing is connected to, the header of https.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
from typing import Any

from scrapy import Request, Spider
from scrapy.core.downloader.handlers.http11 import HTTP11DownloadHandler
from scrapy.utils.misc import build_from_crawler
from scrapy.utils.reactor import install_reactor
from scrapy.utils.test import get_crawler
from twisted.internet import defer
from twisted.internet.testing import StringTransport

Reached = tuple[str | None, str | None, str | None]


class Endpoint:
    """In the place of Twisted's: it notes the host, and the octets that would be sent."""

    last: Endpoint | None = None

    def __init__(self, _reactor: Any, host: Any, _port: int, **_options: Any) -> None:
        self.host = host.decode() if isinstance(host, bytes) else host
        self.transport = StringTransport()
        Endpoint.last = self

    def connect(self, factory: Any) -> defer.Deferred[Any]:
        """Connect without a socket. TLS would only wait for the other side's half."""
        if "TLS" in type(factory).__name__:
            return defer.Deferred()
        protocol = factory.buildProtocol(None)
        protocol.makeConnection(self.transport)
        return defer.succeed(protocol)

    def header(self) -> str | None:
        """Return the Host header that was sent."""
        for line in self.transport.value().split(b"\r\n"):
            if line.lower().startswith(b"host:"):
                return line.partition(b":")[2].strip().decode()
        return None


def reached(handler: HTTP11DownloadHandler, url: str) -> Reached:
    """Hand a request for *url* to the handler, and see where it goes."""
    try:
        request = Request(url)
    except ValueError:  # UnicodeError is one
        return None, None, None
    Endpoint.last = None
    with_spider = "spider" in inspect.signature(handler.download_request).parameters
    try:
        under_way: Any = handler.download_request(request, *[Spider("s")] * with_spider)  # type: ignore[call-arg]
        if inspect.iscoroutine(under_way):
            under_way.send(None)
            under_way.close()
    except Exception:  # whatever stops it: nothing is sent
        return request.url, None, None
    end = Endpoint.last
    return (request.url, None, None) if end is None else (request.url, end.host, end.header())


async def main() -> None:
    """Answer for each URL."""
    from twisted.web import client  # noqa: PLC0415  imports the reactor

    client.HostnameEndpoint = Endpoint
    handler = build_from_crawler(HTTP11DownloadHandler, get_crawler(Spider))
    json.dump([reached(handler, url) for url in json.load(sys.stdin)], sys.stdout)


if __name__ == "__main__":
    install_reactor("twisted.internet.asyncioreactor.AsyncioSelectorReactor")
    asyncio.run(main())
