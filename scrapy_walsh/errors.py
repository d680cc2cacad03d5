"""The errors of :mod:`scrapy_walsh.exceptions` under a second, public name."""

from scrapy_walsh.exceptions import *  # noqa: F403
