"""The ledger: a bot's decisions and exchanges, each line with the hash of the line before."""

from scrapy_walsh.ledger.files import CONTRACT, FILE, Ledger

__all__ = ["CONTRACT", "FILE", "Ledger"]
