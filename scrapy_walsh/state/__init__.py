"""The records of earlier runs (R11)."""

from scrapy_walsh.state.store import open_store

__all__ = ["open_store"]
