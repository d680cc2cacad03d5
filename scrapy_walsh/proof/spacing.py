"""R4, judged from two times: was a host left alone for as long as it had to be? Pure.

One judge for a ledger's exchanges (``verify``, the report), a server's own arrivals (conformance)
and stamps of whole seconds in an access log (``audit``). They differ in how exactly they know a
gap. The caller says so by its *tolerance*, and by how far the two bounds of a gap are apart.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from scrapy_walsh.proof.findings import Outcome

#: Seconds by which a gap may seem short where one clock of one process was read twice.
ONE_CLOCK: Final = 0.001
#: The same where a start and an end were read by two clocks of one process, and rounded.
TWO_CLOCKS: Final = 0.005
#: Seconds that a gap may be short by at a server, or between two processes: the wire lies between.
THE_WIRE: Final = 0.02


class Span(NamedTuple):
    """The time between two requests to a host, in seconds: from ``least`` to below ``most``.

    A gap that was measured has both bounds the same.
    """

    least: float
    most: float


def measured(seconds: float) -> Span:
    """The gap of *seconds*."""
    return Span(seconds, seconds)


def stamped(seconds: float, clock: float) -> Span:
    """The gap of two stamps that are *seconds* apart; each may be off, by *clock* together."""
    return Span(seconds - clock, seconds + clock)


def spaced(span: Span, required: float, tolerance: float = 0.0) -> Outcome:
    """Whether *span* was at least *required* seconds, less the *tolerance*.

    ``UNSEEN`` where its bounds lie on both sides of it.
    """
    due = required - tolerance
    if span.least >= due:
        return Outcome.HELD
    below = span.most <= due if span.most > span.least else span.most < due
    return Outcome.BROKEN if below else Outcome.UNSEEN


def is_short(seconds: float, required: float, tolerance: float) -> bool:
    """Whether a measured gap was too short."""
    return spaced(measured(seconds), required, tolerance) is Outcome.BROKEN
