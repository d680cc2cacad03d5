"""Where version 0.1.0 had what is now elsewhere: see :mod:`scrapy_walsh.adapters.moved`."""

from __future__ import annotations

from typing import Any

from scrapy_walsh.adapters.moved import moved


def __getattr__(name: str) -> Any:
    return moved(__name__, name)
