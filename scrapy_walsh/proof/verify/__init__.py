"""``scrapy walsh verify``: every decision of a ledger derived again from what it recorded."""

from scrapy_walsh.proof.ledger import Files, Head, files_of
from scrapy_walsh.proof.verify.judge import verify
from scrapy_walsh.proof.verify.run import Report

__all__ = ["Files", "Head", "Report", "files_of", "verify"]
