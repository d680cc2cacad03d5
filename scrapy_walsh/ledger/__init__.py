"""The ledger: what a bot decided and did, line by line, each chained to the one before."""

from scrapy_walsh.ledger.files import Ledger
from scrapy_walsh.ledger.lines import CONTRACT, FILE

__all__ = ["CONTRACT", "FILE", "Ledger"]
