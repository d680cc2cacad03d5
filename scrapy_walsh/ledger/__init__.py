"""The ledger: what a bot decided and did, in lines that each have the hash of the one before."""

from scrapy_walsh.ledger.files import Ledger
from scrapy_walsh.ledger.lines import CONTRACT, FILE

__all__ = ["CONTRACT", "FILE", "Ledger"]
