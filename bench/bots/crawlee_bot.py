"""crawlee-python with its throttling manager, for ``bench/makespan.py``: one request at a time.

It reads the URLs as JSON from standard input, and runs in an environment of its own.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from datetime import timedelta
from urllib.parse import urlsplit

from crawlee import ConcurrencySettings
from crawlee.crawlers import HttpCrawler, HttpCrawlingContext
from crawlee.proxy_configuration import ProxyConfiguration
from crawlee.request_loaders import ThrottlingRequestManager
from crawlee.storages import RequestQueue


async def main() -> None:
    urls = json.load(sys.stdin)
    manager = ThrottlingRequestManager(
        await RequestQueue.open(),
        domains=sorted({urlsplit(url).netloc for url in urls}),
        request_manager_opener=RequestQueue.open,
        base_delay=timedelta(seconds=1),
    )
    crawler = HttpCrawler(
        request_manager=manager,
        respect_robots_txt_file=True,
        proxy_configuration=ProxyConfiguration(proxy_urls=[os.environ["http_proxy"]]),
        concurrency_settings=ConcurrencySettings(
            min_concurrency=1, max_concurrency=1, desired_concurrency=1
        ),
        max_request_retries=5,
    )

    @crawler.router.default_handler
    async def handle(context: HttpCrawlingContext) -> None:
        await context.http_response.read()

    logging.disable(logging.WARNING)
    await crawler.run(urls)


if __name__ == "__main__":
    asyncio.run(main())
