"""R3: the list of ``policy.list.blocklist``, under a name that stays (D23)."""

from scrapy_walsh.policy.list.blocklist import Blocklist

__all__ = ["Blocklist"]
