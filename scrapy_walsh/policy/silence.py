"""R5: how many requests one run sends to a host that gives no answer (D13).

No answer means no connection, no TLS, or a timeout. Such an attempt costs a serial crawl up to
DOWNLOAD_TIMEOUT. So the attempts that R5 grants one URL, ``WALSH_MAX_RETRIES + 1``, are all that a
run grants a host, whatever URLs they are for. An answer, of any status, is not counted, and does
not reset the count.

Where an unreachable robots.txt means "allowed" (T3), the last attempt is kept for a target.
Otherwise robots.txt would use all attempts, and no target could ever be requested.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from scrapy_walsh.policy.text import plural
from scrapy_walsh.policy.verdict import DEFERRED, Verdict

#: The most requests without an answer in a trial of https: one for robots.txt, one for a target.
TRIALS: Final = 2


def granted(max_retries: int, position: str) -> int:
    """The number of attempts without an answer that one run grants a host.

    ``max_retries``: WALSH_MAX_RETRIES. ``position``: WALSH_ROBOTS_UNREACHABLE. The number is
    ``max_retries + 1``. Under ``allow`` with 0 or 1 retry it is one more: then a robots.txt has its
    first retry, since one broken connection must not open a host, and a target has its attempt.
    """
    if position != "allow":
        return max_retries + 1
    return max(max_retries, min(max_retries, 1) + 1) + 1


@dataclass(slots=True)
class Silences:
    """The attempts of one run that got no answer, by host (the throttle key).

    ``forget_after``: seconds after a host's last such attempt, after which its count begins anew.
    It is infinite for a run; a worker of a fleet, which may run for weeks, forgets. ``now`` of the
    methods: seconds, always by the same clock.
    """

    max_retries: int
    position: str
    forget_after: float = math.inf
    _counts: dict[str, tuple[int, float]] = field(default_factory=dict)

    def note(self, host: str, now: float) -> None:
        """Count one attempt to *host* that got no answer."""
        self._counts[host] = (self.count(host, now) + 1, now)

    def count(self, host: str, now: float) -> int:
        """The attempts counted so far."""
        count, last = self._counts.get(host, (0, now))
        return count if now - last < self.forget_after else 0

    def spent(self, host: str, now: float, *, robots: bool = False) -> bool:
        """Whether *host* gets no more requests for targets, or for a robots.txt, in this run."""
        kept = 1 if robots and self.position == "allow" else 0
        return self.count(host, now) >= granted(self.max_retries, self.position) - kept

    def against(self, host: str, now: float, *, robots: bool = False) -> Verdict | None:
        """The verdict against a request to *host*; None where it may be made."""
        if not self.spent(host, now, robots=robots):
            return None
        return Verdict(False, DEFERRED, "R5", told(host, self.count(host, now)))


def told(host: str, count: int) -> str:
    """The reason, in one line, why a run sends no more requests to *host*."""
    return f"{host} gave no answer to {plural(count, 'request')}, and this run makes no more to it"
