"""R8: a source is asked daily or less, and not again within the hour (spec section 10.3)."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Final

from scrapy_walsh.policy.verdict import NOT_DUE, Verdict

#: Seconds: the shortest time between two runs of a source without a written reason.
REVISIT_FLOOR: Final = 3600.0

#: The last second of the calendar, for a revisit time that goes beyond it.
_LAST_SECOND: Final = 253402300799.0


def not_due(
    last_run_at: float | None, now: float, revisit: float, reason: str | None
) -> Verdict | None:
    """A refusal while a source was asked less than *revisit* seconds ago, else None.

    *last_run_at*, *now*: Unix seconds; None when never asked. *revisit* counts as
    :data:`REVISIT_FLOOR` at least. A written *reason* lifts the rule.

    A stored time in the future is a clock that was put back: up to *revisit* ahead it refuses,
    beyond that it is stale (D9). So no clock can shut a source out for more than two intervals.
    """
    if last_run_at is None or (reason is not None and reason.strip()):
        return None
    interval = max(revisit, REVISIT_FLOOR)
    if abs(now - last_run_at) >= interval:
        return None
    line = f"last asked {iso(last_run_at)}, next due {iso(math.ceil(last_run_at + interval))}"
    return Verdict(False, NOT_DUE, "R8", line)


def counts_as_asked(status: int | None) -> bool:
    """Whether an answer ends the source's turn: 2xx, 304, and a final 4xx other than 429.

    *status* is None when there was no answer. Whatever R5 retries comes back at the next run.
    """
    if status is None or status == 429:
        return False
    return 200 <= status < 300 or status == 304 or 400 <= status < 500


def iso(seconds: float) -> str:
    """Unix seconds as a UTC time, ``2026-05-23T00:00:00Z``."""
    return datetime.fromtimestamp(min(seconds, _LAST_SECOND), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
