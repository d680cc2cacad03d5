"""R2 to R8: the settings that the gates decide by, as one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scrapy_walsh.policy import backoff, recrawl

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Gates:
    """The settings that decide: each is ``WALSH_`` and its name, with durations in seconds.

    ``skip_slow``: whether WALSH_SLOW_HOSTS is "skip". ``refused_uses``: the categories of use that
    WALSH_USAGE refuses targets for.
    """

    excluded_tlds: Sequence[str] = ()
    revisit: float = recrawl.REVISIT
    revisit_reason: str | None = None
    patience: float = 300.0
    skip_slow: bool = False
    max_retries: int = backoff.MAX_RETRIES
    backoff_base: float = backoff.BACKOFF_BASE
    backoff_cap: float = backoff.BACKOFF_CAP
    refused_uses: Sequence[str] = ()
