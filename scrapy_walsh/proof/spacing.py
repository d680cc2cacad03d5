"""R4, judged from two times: was a host left alone for as long as it had to be? Pure.

For a ledger's exchanges (``verify``), and a server's own arrivals (conformance). They
differ in how exactly they know a gap, which the caller says by its *tolerance*. The whole seconds
of an access log are judged in :mod:`scrapy_walsh.proof.audit.pace_rows`.
"""

from __future__ import annotations

from typing import Final

#: Seconds that a gap may seem short if both its ends are readings of the same clock.
ONE_CLOCK: Final = 0.001
#: Seconds that a gap may be short by at a server, or between two processes: the wire lies between.
THE_WIRE: Final = 0.02


def is_short(seconds: float, required: float, tolerance: float) -> bool:
    """Whether a measured gap was too short, by more than *tolerance*; all in seconds."""
    return seconds < required - tolerance
