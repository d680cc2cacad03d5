"""R2: what an answer to a request for robots.txt means (spec section 9.1.1, RFC 9309 2.3.1).

:func:`meaning` says what one answer means.

| answer | meaning |
|---|---|
| 2xx but 206 | parse |
| the same, with a body that is not text (``packing``) | unreadable |
| the same, with a page in place of a robots.txt (:func:`is_page`) | a page, if rules are known |
| 3xx with a Location, at most five times | request that URL (RFC 9309 2.3.1.2) |
| 429, 5xx, no answer, retries left | back off, then retry (R5; T4, T5), see :func:`no_retry` |
| 429, no retries left; 206 and 304, which nobody asked for | leave the host for a later run (D7) |
| other 4xx | no rules: all is allowed |
| 5xx, no answer, no retries left; any other | unreachable (T3, T6) |

Whether there was no answer because of the site, or because of us, is not for this module to say
(``adapters/documents/faults.py`` does). After four of these there are no new rules, and
:func:`without` says what holds instead. It holds for :data:`REASK` seconds. The next target that
comes then has robots.txt requested again.

| meaning | there were rules before | there never were |
|---|---|---|
| unreachable | they stay in force (T6) | WALSH_ROBOTS_UNREACHABLE decides (T3) |
| a redirect is refused (D37) | they stay in force | the targets are deferred |
| unreadable | nothing is requested: the new file may be stricter | nothing is requested |
| a page | they stay in force until it was seen three times (D44) | parse: no rules |
| leave the host | the host is left alone: no verdict is made up (D7) | the same |
| not known because of us | nothing is requested: the rules may be stricter by now | the same |

An unreadable file is the exception: it is not requested again in the same run, since its owner
will hardly mend it within the hour. A worker of a fleet may run for weeks, and does request it.
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
#: Answers that a plain request cannot have: part of a file, and "your copy is still good". They
#: come from a server, or a component, that answers another question, and say nothing about rules.
_UNASKED: Final = frozenset({206, 304})

#: Seconds: ROBOTS_TTL_SECONDS (spec section 6, R2).
ROBOTS_TTL: Final = 86400.0
#: Seconds before a robots.txt that could not be had is requested again (R8's hour).
REASK: Final = 3600.0

#: Retries of a robots.txt that answers 5xx, in one run, where no rules of the origin are known. Not
#: of 503: R5 demands retries there, and the file may refuse what would be fetched without it.
RETRIES: Final = 1

_STAY: Final = "the rules of an earlier answer stay in force"

#: In how many fetches, and how many seconds apart at least, a page must have come in place of known
#: rules until it is believed (D44): a captive portal or a page about maintenance is gone by then.
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
#: No meaning of an answer, but why there is none: the document is not known because of us.
OURS: Final = "ours"
#: The same: what it redirects to may not be requested (D37).
HOP_REFUSED: Final = "hop refused"


def meaning(
    status: int | None,
    *,
    location: bool,
    hops: int,
    failure: Retry | GiveUp | None,
    readable: bool = True,
) -> str:
    """What an answer means: one of PARSE, FOLLOW, AGAIN, DEFER, NO_RULES, UNREACHABLE, UNREADABLE.

    ``status``: None where there was no answer. ``location``: it has a Location that can be
    followed. ``hops``: redirects followed so far. ``failure``: what R5 decided (``backoff``); None
    where R5 does not apply. ``readable``: the body, as far as it was received, is text.
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

    It is one where a field can be read, and where it is text/plain or has no type, and nothing but
    comments. *media_type*: of its Content-Type, in lower case without parameters; "" without one.
    """
    if status == 204:
        return True
    if has_field(body):
        return False
    return media_type not in ("", "text/plain") or not is_empty(body)


def seen_page(pages: int, seen_at: float | None, now: float) -> tuple[int, float]:
    """How many pages have come a day apart, with that of *now*, and when the last of these did.

    *pages*, *seen_at*: the same before. A time in the future counts as now (D9).
    """
    if seen_at is None or now - seen_at >= PAGES_APART:
        return pages + 1, now
    return pages, min(seen_at, now)


def is_broken(status: int | None) -> bool:
    """Whether an answer is one of 5xx that R5 need not retry."""
    return status is not None and status >= 500 and status not in BACKOFF_STATUSES


def no_retry(status: int | None, attempt: int, *, known: bool) -> str:
    """Why a robots.txt is not requested again in this run, though R5 may grant it; "" if it may be.

    *status*: of its answer. *attempt*: retries made so far. *known*: an earlier answer left rules,
    which stay in force.
    """
    if not is_broken(status):
        return ""
    if known:
        return _STAY
    return "" if attempt < RETRIES else "a run requests a robots.txt that answers 5xx twice"


def robots_ttl(setting: float, interval: float) -> float:
    """Seconds for which a robots.txt is fresh, where WALSH_ROBOTS_TTL is *setting*.

    *interval*: seconds between two requests to its host. The time is at least two intervals, and at
    most ROBOTS_TTL. A shorter one would be over before a target may be sent: then only robots.txt
    would ever be requested.
    """
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
    """One verdict about every URL of an origin, used in place of its rules.

    ``ttl``: seconds until robots.txt is requested again; infinite: not in this run.
    """

    verdict: Verdict
    ttl: float = REASK

    def decide(self, url: str) -> Verdict:  # noqa: ARG002
        """The verdict."""
        return self.verdict

    def said(self, url: str) -> tuple[Statement, ...]:  # noqa: ARG002
        """Nothing: there is no robots.txt that says anything about use."""
        return ()


@dataclass(frozen=True, slots=True)
class Keep:
    """The rules of an earlier answer stay in force for REASK seconds. ``reason``: one line.

    ``otherwise``: what holds where there never were any rules.
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
    """What holds for an origin whose robots.txt cannot be had, as the second table above says.

    ``cause``: ``DEFER``, ``UNREADABLE``, ``UNREACHABLE``, ``PAGE``, ``OURS`` or ``HOP_REFUSED``.
    ``detail``: the last answer in a few words, such as ``HTTP 503``; for ``UNREADABLE`` the
    Content-Encoding that it came with; for ``OURS`` what has failed; for ``HOP_REFUSED`` where it
    leads, and what is against that. ``document``: URL of the file. ``position``: ``allow``,
    ``defer`` or ``deny``, of WALSH_ROBOTS_UNREACHABLE. ``fleet``: for a worker of a fleet.
    """
    if cause == DEFER:
        return Leave(f"robots.txt is not to be had for now; {detail}")
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
            f"robots.txt came {coding} and is not text that "
            "can be read: nothing of the host is requested in this run (its owner could serve "
            f"robots.txt as plain text{', without that header' if detail else ''})"
        )
        verdict = Verdict(False, verdicts.UNKNOWN_PARSE_ERROR, "R2", reason, document)
        return StandIn(verdict, REASK if fleet else math.inf)
    kept_reason, reason = f"{detail}; {_STAY}", f"robots.txt is unreachable ({detail}): {position}"
    verdict = Verdict(position == "allow", verdicts.UNKNOWN_UNREACHABLE, "R2", reason, document)
    return Keep(kept_reason, StandIn(verdict))
