"""Sends requests by one of Scrapy's handlers, as this package sets it up, past gates and queue.

    python -m tests.crawl.sent twisted|aiohttp < REQUESTS.json

The standard input is a JSON array of ``[url, proxy, verbatim]``: ``proxy`` is a URL or null. For
each the program prints a JSON line: the URL of the request, and ``sent_target`` of it; or that URL
and the error that kept it from being sent. Each name is an address of this machine.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from typing import Any

_getaddrinfo = socket.getaddrinfo


def _here(host: Any, *arguments: Any, **named: Any) -> Any:
    """Resolve names under .test to this machine; addresses and the rest as ever."""
    text = host.decode() if isinstance(host, bytes) else str(host)
    named_here = text.lower().rstrip(".").endswith(".test")
    return _getaddrinfo("127.0.0.1" if named_here else host, *arguments, **named)


socket.getaddrinfo = _here  # before Twisted takes it

from scrapy import Request, Spider  # noqa: E402
from scrapy.utils.misc import build_from_crawler, load_object  # noqa: E402
from scrapy.utils.test import get_crawler  # noqa: E402

from scrapy_walsh.adapters import compat, handler  # noqa: E402

ASYNCIO = "twisted.internet.asyncioreactor.AsyncioSelectorReactor"
HANDLERS = "scrapy.core.downloader.handlers"
PATHS = {
    "twisted": f"{HANDLERS}.http11.HTTP11DownloadHandler",
    "aiohttp": f"{HANDLERS}._aiohttp.AiohttpDownloadHandler",
}


def handler_of(name: str) -> Any:
    settings: dict[str, Any] = {"LOG_LEVEL": "ERROR", "TWISTED_REACTOR_ENABLED": name == "twisted"}
    crawler = get_crawler(Spider, settings)
    crawler.spider = Spider("sent")
    made = build_from_crawler(load_object(PATHS[name]), crawler)
    handler.prepare(made)
    return made


async def ask(made: Any, url: str, proxy: str | None, *, verbatim: bool) -> list[Any]:
    meta = {"proxy": proxy, "verbatim_url": verbatim, "download_timeout": 20}
    request = Request(url, meta=meta)
    try:
        handler.check_target(made, request)
        target = compat.sent_target(made, request)
        await compat.call_handler(made, request, Spider("sent"))
    except Exception as error:
        return [request.url, f"{type(error).__name__}: {error}"]
    return [request.url, target]


async def ask_all(name: str) -> None:
    made = handler_of(name)
    for url, proxy, verbatim in json.load(sys.stdin):
        sys.stdout.write(json.dumps(await ask(made, url, proxy, verbatim=verbatim)) + "\n")
    await compat.close_handler(made)


def main(name: str) -> None:
    if name == "aiohttp":
        asyncio.run(ask_all(name))
        return
    from scrapy.utils.reactor import install_reactor  # noqa: PLC0415

    install_reactor(ASYNCIO)
    from twisted.internet.task import react  # noqa: PLC0415

    react(lambda _: compat.run(ask_all(name)))


if __name__ == "__main__":
    main(sys.argv[1])
