"""How long a stored document is fresh (R12), and the durations that documents declare (R3)."""

from __future__ import annotations

import re
from typing import Final, cast

#: Seconds: BLOCKLIST_REFRESH, ``PT6H`` (spec section 6).
DEFAULT_REFRESH: Final = 21600.0
#: Seconds: SCHEMA_TTL_SECONDS (spec section 6, R10).
SCHEMA_TTL: Final = 604800.0
#: Seconds: floor of a declared ``refresh`` (T12), so that a typing error does no harm.
MIN_REFRESH: Final = 60.0
#: Seconds: ceiling of a declared ``refresh`` (T12), so that an opt-out is seen within a week.
MAX_REFRESH: Final = 604800.0

_NUMBER: Final = r"([0-9]+(?:[.,][0-9]+)?)"
_DURATION: Final = re.compile(
    r"(?=.{1,64}\Z)"  # a longer one is not read
    rf"P(?:{_NUMBER}W|(?:{_NUMBER}D)?(?:T(?=.)(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?)"
)
_SECONDS: Final = (604800, 86400, 3600, 60, 1)


def parse_duration(text: str) -> float:
    """Return the seconds of an ISO 8601 duration, ``PnW`` or ``PnDTnHnMnS``.

    Only the smallest unit may have a fraction. Raises ValueError for all else, also for years and
    months, which have no fixed length.
    """
    match = _DURATION.fullmatch(text) if isinstance(text, str) else None
    amounts = [number and number.replace(",", ".") for number in match.groups()] if match else []
    numbers = [number for number in amounts if number]
    if not numbers or any("." in number for number in numbers[:-1]):
        raise ValueError(f"not a duration such as PT6H: {str(text)[:64]!r}")
    return sum(
        float(number) * unit for number, unit in zip(amounts, _SECONDS, strict=True) if number
    )


def refresh_seconds(declared: object) -> float:
    """Return how many seconds a document with the ``refresh`` *declared* is fresh.

    They are DEFAULT_REFRESH if *declared* is not a duration; else at least MIN_REFRESH and at most
    MAX_REFRESH.
    """
    try:
        seconds = parse_duration(cast("str", declared))
    except ValueError:
        return DEFAULT_REFRESH
    return min(max(seconds, MIN_REFRESH), MAX_REFRESH)


def is_fresh(fetched_at: float, now: float, ttl: float) -> bool:
    """Tell whether a document fetched at ``fetched_at`` is fresh at ``now``, both in Unix seconds.

    It is fresh for ``ttl`` seconds. If it is from the future, it is stale, because the clock was
    set back (D9).
    """
    return fetched_at <= now < fetched_at + ttl
