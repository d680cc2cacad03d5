"""The public name of ``policy.list.blocklist`` (R3, D23)."""

from scrapy_walsh.policy.list.blocklist import Blocklist

__all__ = ["Blocklist"]
