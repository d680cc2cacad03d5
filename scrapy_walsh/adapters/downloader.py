"""The name of a seat, as projects write it into their settings; it is in ``handler``."""

from scrapy_walsh.adapters.handler import Downloader

__all__ = ["Downloader"]
