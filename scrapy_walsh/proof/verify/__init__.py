"""``scrapy walsh verify``: every decision of a ledger derived again from what it recorded."""

from scrapy_walsh.ledger.reading import Files, files_of
from scrapy_walsh.proof.chain import Head
from scrapy_walsh.proof.verify.reading import verify
from scrapy_walsh.proof.verify.report import Report

__all__ = ["Files", "Head", "Report", "files_of", "verify"]
