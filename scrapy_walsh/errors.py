"""The name that :mod:`scrapy_walsh.exceptions` had in version 0.1.0; both stay importable."""

from __future__ import annotations

from scrapy_walsh.exceptions import (
    ConfigError,
    DocumentInvalid,
    DocumentTooCostly,
    ScrapingRefused,
    SourcesInvalid,
    StateError,
    StoreAway,
    WalshError,
)

__all__ = [
    "ConfigError",
    "DocumentInvalid",
    "DocumentTooCostly",
    "ScrapingRefused",
    "SourcesInvalid",
    "StateError",
    "StoreAway",
    "WalshError",
]
