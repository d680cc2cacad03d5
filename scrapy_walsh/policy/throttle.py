"""R4: the rules of spacing that more than one process goes by (``host.py`` has the rest)."""

from __future__ import annotations

import math
from typing import Final

#: MIN_REQUEST_INTERVAL of spec section 6, seconds.
MIN_REQUEST_INTERVAL: Final = 1.0

#: Seconds between two targets of one slow host that go ahead of its interval (D11).
VISIT_EVERY: Final = 86400.0

#: Seconds by which two clocks may differ over one instant (wall and monotonic, one process).
_ROUNDING: Final = 0.005

#: The due time of a host that never had a request: at once (R4.4).
UNSEEN: Final = -math.inf


def shared_wait(
    last: float, not_before: float | None, interval: float, now: float, *, own: bool
) -> float:
    """Seconds until a host that has a record in the store may get a request (R4.6).

    ``last``: when any process last sent one; a time in the future counts as now (D9).
    ``not_before``: the end of a hold by any process, or None. ``interval``: seconds. ``own``: that
    last request was this process's own, so its throttle has kept the interval. Times are Unix
    seconds. The scripts in ``fleet/scripts.py`` have the same rule in Lua.
    """
    hold = (not_before or now) - now
    spacing = 0.0 if own else min(last, now) + interval - now
    wait = max(hold, spacing, 0.0)
    return 0.0 if own and wait < _ROUNDING else wait


def visit_from(  # noqa: PLR0917
    interval: float,
    patience: float,
    rested: float,
    ended: float,
    visited_at: float | None,
    min_interval: float = MIN_REQUEST_INTERVAL,
) -> float | None:
    """When a slow host's one target may follow its robots.txt; None where it may not.

    *interval*: seconds between two requests to the host, by the new robots.txt. *patience*:
    WALSH_PATIENCE. *rested*: seconds that the host had been left alone before its robots.txt.
    *ended*: when that was answered. *visited_at*: when a target last went ahead like this, None
    for never. Times are of one clock, whichever.
    """
    if interval <= patience or rested < interval:
        return None
    at = ended + min_interval
    return at if visited_at is None else max(at, visited_at + VISIT_EVERY)
