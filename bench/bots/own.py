"""This package's main spider on the lab's targets. For ``bench/lab.py``."""

from __future__ import annotations

import os

from scrapy.crawler import CrawlerProcess

SETTINGS = {
    "ADDONS": {"scrapy_walsh.Addon": 500},
    "SPIDER_MODULES": ["scrapy_walsh.spiders"],
    "LOG_LEVEL": "WARNING",
    "WALSH_IDENTITY": "walsh-research",
    "WALSH_BLOCKLIST_URL": os.environ["WALSH_LAB_BLOCKLIST"],
    "WALSH_STATE_DIR": os.environ["WALSH_LAB_DIR"],
}

if __name__ == "__main__":
    process = CrawlerProcess(SETTINGS)
    process.crawl("walsh_metadata", urls=os.environ["WALSH_LAB_URLS"])
    process.start()
