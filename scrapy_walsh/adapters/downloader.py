"""The import path of ``Downloader`` for a project's settings. ``handler`` has the class."""

from scrapy_walsh.adapters.handler import Downloader

__all__ = ["Downloader"]
