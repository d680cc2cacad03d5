"""R11: the records that one run keeps for the next."""

from scrapy_walsh.state.store import open_store

__all__ = ["open_store"]
