"""Scrapy's own tests, with the add-on on (``make test-scrapy``)."""
