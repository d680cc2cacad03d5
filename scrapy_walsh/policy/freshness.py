"""R12: how long a held document is fresh, and the durations that documents declare (R3)."""

from __future__ import annotations

import re
from typing import Final, cast

DEFAULT_REFRESH: Final = 21600.0
"""Seconds: BLOCKLIST_REFRESH, ``PT6H`` (spec section 6)."""
ROBOTS_TTL: Final = 86400.0
"""Seconds: ROBOTS_TTL_SECONDS (spec section 6, R2)."""
SCHEMA_TTL: Final = 604800.0
"""Seconds: SCHEMA_TTL_SECONDS (spec section 6, R10)."""
MIN_REFRESH: Final = 60.0
"""Seconds: floor of a declared ``refresh`` (T12), so that a typing error hurts nobody."""
MAX_REFRESH: Final = 604800.0
"""Seconds: ceiling of a declared ``refresh`` (T12), so that an opt-out is seen within a week."""

_NUMBER: Final = r"([0-9]+(?:[.,][0-9]+)?)"
_DURATION: Final = re.compile(
    rf"P(?:{_NUMBER}W|(?:{_NUMBER}D)?(?:T(?=.)(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?)"
)
_SECONDS: Final = (604800, 86400, 3600, 60, 1)
_MAX_LENGTH: Final = 64


def robots_ttl(setting: float, interval: float) -> float:
    """Seconds that a robots.txt is held where the project asks for *setting*.

    *interval*: seconds between two requests to its host. A shorter time would be over before the
    target that it was fetched for may go, and the host would be asked for its rules alone.
    """
    return min(max(setting, 2 * interval), ROBOTS_TTL)


def parse_duration(text: str) -> float:
    """Return the seconds of an ISO 8601 duration, ``PnW`` or ``PnDTnHnMnS``.

    Only the smallest unit may have a fraction. Years and months have no fixed length, and
    are refused with all else by ValueError.
    """
    found = (
        _DURATION.fullmatch(text) if isinstance(text, str) and len(text) <= _MAX_LENGTH else None
    )
    amounts = [n and n.replace(",", ".") for n in found.groups()] if found else []
    given = [n for n in amounts if n]
    if not given or any("." in n for n in given[:-1]):
        raise ValueError(f"not a duration such as PT6H: {str(text)[:_MAX_LENGTH]!r}")
    return sum(float(n) * unit for n, unit in zip(amounts, _SECONDS, strict=True) if n)


def refresh_seconds(declared: object) -> float:
    """Return the seconds to hold a document that declares ``declared`` as its ``refresh``.

    Unusable: PT6H. Otherwise clamped to :data:`MIN_REFRESH` and :data:`MAX_REFRESH`.
    """
    try:
        seconds = parse_duration(cast(str, declared))
    except ValueError:
        return DEFAULT_REFRESH
    return min(max(seconds, MIN_REFRESH), MAX_REFRESH)


def is_fresh(fetched_at: float, now: float, ttl: float) -> bool:
    """Tell whether a document fetched at ``fetched_at`` is within ``ttl`` seconds at ``now``.

    Both are Unix seconds. A time in the future is stale: the clock moved (design D9).
    """
    return fetched_at <= now < fetched_at + ttl
