"""R3: the validation of ``policy.list.schema``, under a name that stays (D23)."""

from scrapy_walsh.policy.list.schema import parse_blocklist

__all__ = ["parse_blocklist"]
