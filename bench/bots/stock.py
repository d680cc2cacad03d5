"""Stock Scrapy: a plain spider, ROBOTSTXT_OBEY, and nothing else set. For ``bench/lab.py``."""

from __future__ import annotations

import os

import scrapy
from scrapy.crawler import CrawlerProcess


class PlainSpider(scrapy.Spider):
    """Asks what the lab gives it."""

    name = "plain"

    async def start(self):
        for url in os.environ["WALSH_LAB_URLS"].split():
            yield scrapy.Request(url)

    def parse(self, response):
        yield {"url": response.url, "status": response.status}


if __name__ == "__main__":
    process = CrawlerProcess({"ROBOTSTXT_OBEY": True, "LOG_LEVEL": "WARNING"})
    process.crawl(PlainSpider)
    process.start()
