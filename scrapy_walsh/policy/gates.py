"""The settings that the gates decide by, as a value (R2 to R8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from scrapy_walsh.policy.addresses import DECLARED

if TYPE_CHECKING:
    from collections.abc import Sequence

#: DEFAULT_MAX_RETRIES, DEFAULT_BACKOFF_BASE and BACKOFF_CAP of spec section 6; seconds.
MAX_RETRIES: Final = 5
BACKOFF_BASE: Final = 1.0
BACKOFF_CAP: Final = 60.0
#: "Daily", which WALSH_REVISIT is unless it is set (R8.1); seconds.
REVISIT: Final = 86400.0


@dataclass(frozen=True, slots=True)
class Gates:
    """The settings that decide: each is ``WALSH_`` and its name, with durations in seconds.

    ``skip_slow``: whether WALSH_SLOW_HOSTS is "skip". ``refused_uses``: the categories of use that
    WALSH_USAGE refuses targets for.
    """

    excluded_tlds: Sequence[str] = ()
    revisit: float = REVISIT
    revisit_reason: str | None = None
    patience: float = 300.0
    skip_slow: bool = False
    max_retries: int = MAX_RETRIES
    backoff_base: float = BACKOFF_BASE
    backoff_cap: float = BACKOFF_CAP
    refused_uses: Sequence[str] = ()
    private_addresses: str = DECLARED
