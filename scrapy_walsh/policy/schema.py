"""The public name of ``policy.list.schema``, which validates blocklists (R3, D23)."""

from scrapy_walsh.policy.list.schema import parse_blocklist

__all__ = ["parse_blocklist"]
