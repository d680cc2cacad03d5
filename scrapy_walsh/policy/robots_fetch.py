"""R2: what an answer to a request for robots.txt means (spec section 9.1.1, RFC 9309 2.3.1).

| answer | meaning |
|---|---|
| 2xx | parse |
| 3xx with a Location, at most five times | ask there (RFC 9309 2.3.1.2) |
| 429, 5xx, no answer, retries left | back off, ask again (R5; T4, T5) |
| 429, no retries left | leave the host for a later run (D7): never "no rules" |
| other 4xx | no rules: all is allowed |
| 5xx, no answer, no retries left; any other | unreachable (T3, T6) |

A body in an encoding that cannot be read, and that is no text, defers the host: see ``packing``.
"""

from __future__ import annotations

from typing import Final

from scrapy_walsh.policy.backoff import GiveUp, Retry

#: Redirects of robots.txt that are followed (RFC 9309 2.3.1.2).
MAX_HOPS: Final = 5

#: Seconds before an unreachable robots.txt is asked for again (R8's hour).
REASK: Final = 3600.0

PARSE: Final = "parse"
FOLLOW: Final = "follow"
AGAIN: Final = "again"
DEFER: Final = "defer"
NO_RULES: Final = "no rules"
UNREACHABLE: Final = "unreachable"

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


def meaning(
    status: int | None, *, location: bool, hops: int, failure: Retry | GiveUp | None
) -> str:
    """One of the six words above.

    ``status``: None where there was no answer. ``location``: a redirect says where to.
    ``hops``: redirects followed so far. ``failure``: what R5 decided.
    """
    if isinstance(failure, Retry):
        return AGAIN
    if failure is not None:
        return DEFER if status == 429 else UNREACHABLE
    if status is None:
        return UNREACHABLE
    if status in _REDIRECTS and location and hops < MAX_HOPS:
        return FOLLOW
    if 200 <= status < 300:
        return PARSE
    return NO_RULES if 400 <= status < 500 else UNREACHABLE


def counts_as_first(status: int | None, *, hops: int, attempt: int) -> bool:
    """Whether the target may follow at once (T1): one answer, unredirected, not retried."""
    if status is None or hops or attempt:
        return False
    return 200 <= status < 300 or (400 <= status < 500 and status != 429)
