"""Adapters: everything that touches Scrapy. They convert and do; they decide nothing."""
