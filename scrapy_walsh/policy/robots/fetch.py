"""The meaning of an answer to a request for robots.txt (R2; spec section 9.1.1, RFC 9309 2.3.1).

:func:`meaning` interprets one answer:

| answer | meaning |
|---|---|
| 2xx but 206 | parse |
| the same, with a body that is not text (``packing``) | unreadable |
| the same, with a page in place of a robots.txt (:func:`is_page`) | a page, if rules are known |
| 3xx with a Location, at most five times | request that URL (RFC 9309 2.3.1.2) |
| 429, 5xx, no answer, retries left | back off, then retry (R5; T4, T5), see :func:`no_retry` |
| 429, no retries left; unasked 206 and 304 | leave the host for a later run (D7) |
| other 4xx | no rules: all is allowed |
| 5xx, no answer, no retries left; any other | unreachable (T3, T6) |

``adapters/documents/faults.py`` decides whether a missing answer is the site's fault or ours. If
there are no new rules, :func:`without` decides what holds instead, for :data:`REASK` seconds. After
that, the next target makes the crawl request robots.txt again.

| meaning | there were rules before | there never were |
|---|---|---|
| unreachable | they stay in force (T6) | WALSH_ROBOTS_UNREACHABLE decides (T3) |
| a redirect is refused (D37) | they stay in force | the targets are deferred |
| unreadable | nothing is requested: the new file may be stricter | nothing is requested |
| a page | they stay in force until it was seen three times (D44) | parse: no rules |
| leave the host | the host is left alone: no verdict is made up (D7) | the same |
| an error on our side | nothing is requested: the rules may be stricter by now | the same |

Only an unreadable file is not requested again in the same run, because its owner will hardly mend
it within the hour. A worker of a fleet may run for weeks, so it requests the file again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from scrapy_walsh.policy import verdict as verdicts
from scrapy_walsh.policy.backoff import BACKOFF_STATUSES, REDIRECTS, GiveUp, Retry
from scrapy_walsh.policy.robots.groups import has_field, is_empty
from scrapy_walsh.policy.verdict import Verdict

if TYPE_CHECKING:
    from scrapy_walsh.policy.robots.usage import Statement

#: Redirects of robots.txt that are followed (RFC 9309 2.3.1.2).
MAX_HOPS: Final = 5
#: Octets of a robots.txt that are read (spec section 9.1.1: 500 KiB).
MAX_OCTETS: Final = 512_000
#: Statuses that a plain request cannot have: part of a file, and "your copy is still good". The
#: server or a proxy is wrong, so they say nothing about rules.
_UNASKED: Final = frozenset({206, 304})

#: Seconds: ROBOTS_TTL_SECONDS (spec section 6, R2).
ROBOTS_TTL: Final = 86400.0
#: Seconds before a robots.txt is requested again after a failure (R8's hour).
REASK: Final = 3600.0

#: Retries in a run if a robots.txt answers 5xx and no rules of the origin are known. It does not
#: limit retries after 503: R5 demands those.
RETRIES: Final = 1

_STAY: Final = "the rules of an earlier answer stay in force"

#: A page in place of known rules is believed after so many fetches, at least so many seconds apart
#: (D44). By then a captive portal or a page about maintenance has ended.
PAGES: Final = 3
PAGES_APART: Final = 86400.0

#: The meanings of an answer, in the order of the first table.
PARSE: Final = "parse"
FOLLOW: Final = "follow"
AGAIN: Final = "again"
DEFER: Final = "defer"
NO_RULES: Final = "no rules"
UNREACHABLE: Final = "unreachable"
UNREADABLE: Final = "unreadable"
PAGE: Final = "a page"
#: Not a meaning, but the reason why there is none: our side could not load the document.
OURS: Final = "ours"
#: The outcome in the record of a file whose text is lost (``ledger/recovery.py``): until a fresh
#: answer comes, its rules are unknown, and that is our fault.
LOST: Final = "lost"
#: The same: it redirects to a URL that may not be requested (D37).
HOP_REFUSED: Final = "hop refused"


def meaning(
    status: int | None,
    *,
    location: bool,
    hops: int,
    failure: Retry | GiveUp | None,
    readable: bool = True,
) -> str:
    """PARSE, FOLLOW, AGAIN, DEFER, NO_RULES, UNREACHABLE or UNREADABLE: the meaning of an answer.

    ``status``: None if there was no answer. ``location``: it has a Location that can be
    followed. ``hops``: redirects followed so far. ``failure``: what R5 decided (``backoff``); None
    if R5 does not apply. ``readable``: the body, as far as it was received, is text.
    """
    if isinstance(failure, Retry):
        return AGAIN
    if failure is not None:
        return DEFER if status == 429 else UNREACHABLE
    if status in _UNASKED:
        return DEFER
    if status in REDIRECTS and location and hops < MAX_HOPS:
        return FOLLOW
    if status is not None and 200 <= status < 300:
        return PARSE if readable else UNREADABLE
    return NO_RULES if status is not None and 400 <= status < 500 else UNREACHABLE


def is_page(status: int | None, media_type: str, body: bytes) -> bool:
    """Whether an answer 2xx is no robots.txt, so that known rules stay in force at first (D44).

    It is a robots.txt if a field can be read, or if it has only comments and is text/plain or has
    no type. *media_type*: of its Content-Type, in lower case without parameters; "" without one.
    """
    if status == 204:
        return True
    if has_field(body):
        return False
    return media_type not in ("", "text/plain") or not is_empty(body)


def seen_page(pages: int, seen_at: float | None, now: float) -> tuple[int, float]:
    """How many pages have come a day apart, with the page at *now*, and when the last of them came.

    *pages*, *seen_at*: the same before. A time in the future counts as now (D9).
    """
    if seen_at is None or now - seen_at >= PAGES_APART:
        return pages + 1, now
    return pages, min(seen_at, now)


def is_broken(status: int | None) -> bool:
    """Whether an answer is one of 5xx that R5 need not retry."""
    return status is not None and status >= 500 and status not in BACKOFF_STATUSES


def no_retry(status: int | None, attempt: int, *, known: bool) -> str:
    """The reason not to retry a robots.txt in this run, though R5 may allow it; "" for none.

    *status*: of its answer. *attempt*: retries made so far. *known*: an earlier answer left rules,
    which stay in force.
    """
    if not is_broken(status):
        return ""
    if known:
        return _STAY
    return "" if attempt < RETRIES else "a run requests a robots.txt that answers 5xx twice"


def robots_ttl(
    setting: float, interval: float, max_age: float | None = None, shortest: float = ROBOTS_TTL
) -> float:
    """Seconds that a robots.txt is fresh if WALSH_ROBOTS_TTL is *setting*.

    *max_age*: of its Cache-Control; None without one. From an hour to a day it is the time to live
    (RFC 9309 2.4), but never less than *shortest*, the shortest interval of a source on its host.

    *interval*: seconds between two requests to its host. The time is at least two intervals, and at
    most ROBOTS_TTL. If it were shorter, it would be over before a target may be sent, and only
    robots.txt would ever be requested.
    """
    if max_age is not None and REASK <= max_age <= ROBOTS_TTL:
        setting = min(setting, max(max_age, shortest))
    return min(max(setting, 2 * interval), ROBOTS_TTL)


def counts_as_first(status: int | None, *, hops: int, attempt: int) -> bool:
    """Whether one target may follow a host's first robots.txt at once (T1), given its answer.

    It may after 2xx, or 4xx other than 429, if there was neither a redirect (``hops``) nor a retry
    (``attempt``): then the host had one request.
    """
    if hops or attempt or status == 429:
        return False
    return meaning(status, location=False, hops=0, failure=None) in (PARSE, NO_RULES)


@dataclass(frozen=True, slots=True)
class StandIn:
    """The same verdict about each URL of an origin, in place of its rules.

    ``ttl``: seconds until robots.txt is requested again; infinite: not in this run.
    """

    verdict: Verdict
    ttl: float = REASK

    def decide(self, url: str) -> Verdict:  # noqa: ARG002
        """The verdict."""
        return self.verdict

    def said(self, url: str) -> tuple[Statement, ...]:  # noqa: ARG002
        """No statements, because there is no robots.txt."""
        return ()


@dataclass(frozen=True, slots=True)
class Keep:
    """The rules of an earlier answer stay in force for REASK seconds. ``reason``: one line.

    ``otherwise``: holds if there never were any rules.
    """

    reason: str
    otherwise: StandIn


@dataclass(frozen=True, slots=True)
class Leave:
    """The host is left alone for REASK seconds, and no rules are assumed. ``reason``: one line."""

    reason: str


def without(
    cause: str, detail: str, document: str, position: str, *, fleet: bool = False
) -> Keep | StandIn | Leave:
    """Decide for an origin without a readable robots.txt, by the second table above.

    ``cause``: ``DEFER``, ``UNREADABLE``, ``UNREACHABLE``, ``PAGE``, ``OURS`` or ``HOP_REFUSED``.
    ``detail``: the last answer in a few words, such as ``HTTP 503``; for ``UNREADABLE`` its
    Content-Encoding; for ``OURS`` our fault; for ``HOP_REFUSED`` the URL that it leads to, and the
    reason against that. ``document``: URL of the file. ``position``: ``allow``, ``defer`` or
    ``deny``, of WALSH_ROBOTS_UNREACHABLE. ``fleet``: for a worker of a fleet.
    """
    if cause == DEFER:
        return Leave(f"robots.txt is not available now; {detail}")
    if cause == OURS:
        return StandIn(verdicts.not_known("R2", detail, document))
    if cause == HOP_REFUSED:
        reason = f"robots.txt redirects to {detail}"
        verdict = Verdict(False, verdicts.DEFERRED, "R2", reason, document)
        return Keep(f"{reason}; {_STAY}", StandIn(verdict))
    if cause == UNREADABLE:
        coding = (
            f"with Content-Encoding {detail[:40]!r}" if detail else "without a Content-Encoding"
        )
        reason = (
            f"robots.txt came {coding} and is not readable text: "
            "nothing is requested from the host in this run (its owner could serve "
            f"robots.txt as plain text{', without that header' if detail else ''})"
        )
        verdict = Verdict(False, verdicts.UNKNOWN_PARSE_ERROR, "R2", reason, document)
        return StandIn(verdict, REASK if fleet else math.inf)
    kept_reason, reason = f"{detail}; {_STAY}", f"robots.txt is unreachable ({detail}): {position}"
    verdict = Verdict(position == "allow", verdicts.UNKNOWN_UNREACHABLE, "R2", reason, document)
    return Keep(kept_reason, StandIn(verdict))
