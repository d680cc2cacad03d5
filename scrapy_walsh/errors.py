"""The errors of :mod:`scrapy_walsh.exceptions`, under the name that the design promises."""

from scrapy_walsh.exceptions import *  # noqa: F403
