"""The least time that a serial, polite run can take."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class HostWork:
    """The requests for one host. ``interval``, ``wait``: seconds between two requests, and before
    the first. ``robots``: its robots.txt files to fetch; the first of a host that was never
    ``seen`` may be followed by a target at once (T1).
    """

    requests: int
    robots: int
    seen: bool
    interval: float
    wait: float

    @property
    def total(self) -> int:
        """Requests, robots.txt included."""
        return self.requests + self.robots

    @property
    def at_once(self) -> int:
        """Requests before the first interval."""
        return min(self.total, 2) if self.robots and not self.seen else 1


def lower_bound(hosts: Iterable[HostWork], latency: float) -> float:
    """The least seconds that a run takes; *latency*: seconds for each answer.

    For hosts with one robots.txt and n_k targets each, the largest n_k first, it is the largest
    over k of ``2 x k x latency + (n_k - 1) x (interval + latency)``; at least all latencies.
    """

    def spaced(host: HostWork) -> float:
        return (host.total - host.at_once) * (host.interval + latency)

    ordered = sorted(hosts, key=spaced, reverse=True)
    if not ordered:
        return 0.0
    begun = accumulate(host.at_once * latency for host in ordered)
    return max(
        sum(host.total for host in ordered) * latency,
        *(first + spaced(host) for first, host in zip(begun, ordered, strict=True)),
        *(host.wait + host.at_once * latency + spaced(host) for host in ordered),
    )
