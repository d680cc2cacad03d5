"""The ledger: what a bot decided and did, in lines that each have the hash of the one before."""

from scrapy_walsh.ledger.files import CONTRACT, FILE, Ledger

__all__ = ["CONTRACT", "FILE", "Ledger"]
