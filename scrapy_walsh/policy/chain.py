"""THE WAY of a request, as code (spec section 7): everything that is decided about it, in order.

1. :func:`judge`: may this URL be requested at all? R6, R3, R8, R2, in this order. R3 stands before
   R2 because an opt-out holds even where robots.txt cannot be read. R6 needs no document and R8 no
   request, so neither may cost the host one. The first gate that refuses ends it.
2. :func:`admit`: may it go now? R5's attempts, then R4's due time. Pacing stands after the gates
   because a request that will be refused should wait for nothing.
3. :func:`conclude`: what does its answer mean? R5 (retry, or give up, and hold the host), T1 (may
   a target follow a robots.txt at once), R8 (does it end the source's turn), R7 (does it replace
   what is kept for conditional requests).

``adapters/gate.py`` walks this way at four moments, and decides nothing. Each answer is a frozen
value. "I cannot decide yet" is ``NeedDocument``: the caller brings the document and asks again.

Rule for whoever edits this file: the order is normative. Every function is pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Protocol

from scrapy_walsh.policy import backoff, hosts, recrawl, revalidate, robots_fetch
from scrapy_walsh.policy.event import TARGET
from scrapy_walsh.policy.urls import REDIRECTS
from scrapy_walsh.policy.verdict import (
    BLOCKED_OPERATOR,
    BY_SETTING,
    DEFERRED,
    EXCLUDED_TLD,
    Verdict,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy_walsh.policy.backoff import GiveUp, Retry
    from scrapy_walsh.policy.blocklist import Blocklist
    from scrapy_walsh.policy.scope import Scope

BLOCKLIST: Final = "blocklist"
ROBOTS: Final = "robots"

#: The last second that a date can name: a Crawl-delay may be longer than the calendar.
_LAST_DATE: Final = 253402300799.0


@dataclass(frozen=True, slots=True)
class NeedDocument:
    """A gate cannot decide before this document is held: ``kind`` and, for robots, its origin."""

    kind: str
    origin: str = ""


class Rules(Protocol):
    """The robots.txt of one origin, or what stands in for it."""

    def decide(self, url: str) -> Verdict:
        """R2's answer for *url*."""


class Held(Protocol):
    """The documents and records that the gates look at. None: fetch or refresh it first."""

    def blocklist(self) -> Blocklist | Verdict | None:
        """The operator's list, or one verdict in its place (``operator.without_list``)."""

    def robots(self, origin: str) -> Rules | None:
        """The rules of ``scheme://host[:port]``."""

    def last_visit(self, key: str) -> recrawl.Visit | None:
        """When an earlier run last sent the source *key* (``recrawl.key_of``) and was answered."""


@dataclass(frozen=True, slots=True)
class Gates:
    """The settings that the way of a request goes by; durations in seconds.

    ``skip_slow``: WALSH_SLOW_HOSTS is "skip".
    """

    excluded_tlds: Sequence[str] = ()
    revisit: float = 86400.0
    revisit_reason: str | None = None
    patience: float = 300.0
    skip_slow: bool = False
    max_retries: int = backoff.MAX_RETRIES
    backoff_base: float = backoff.BACKOFF_BASE
    backoff_cap: float = backoff.BACKOFF_CAP


# -- 1: may it be requested at all? -----------------------------------------------------------


def judge(
    url: str, scope: Scope, held: Held, gates: Gates, now: float, *, form: str = ""
) -> Verdict | NeedDocument:
    """Ask each gate in order about *url*; *now* is Unix seconds.

    *form*: of ``recrawl.form_of``, where the request is not a plain GET.
    """
    return (
        scope.refuses(url)
        or _operator_blocks(url, held)
        or _excluded(url, gates)
        or _too_soon(url, scope, held, gates, now, form=form)
        or _robots(url, held)
    )


def judge_host(url: str, held: Held, gates: Gates) -> Verdict | NeedDocument | None:
    """R3 alone: what a redirect of robots.txt itself must pass (D5). None: nothing against it."""
    return _operator_blocks(url, held) or _excluded(url, gates)


def judge_proxy(host: str, held: Held, gates: Gates) -> Verdict | NeedDocument | None:
    """R3 for the proxy *host* that a request would go through. None: nothing against it."""
    against = judge_host(host, held, gates)
    if isinstance(against, Verdict):
        return replace(against, reason=f"its proxy {host}: {against.reason}")
    return against


def _operator_blocks(url: str, held: Held) -> Verdict | NeedDocument | None:
    blocklist = held.blocklist()
    if blocklist is None:
        return NeedDocument(BLOCKLIST)
    if isinstance(blocklist, Verdict):
        return blocklist
    try:
        return blocklist.blocks(url)
    except ValueError as error:
        return Verdict(False, BLOCKED_OPERATOR, "R3", f"no readable host: {error}")


def _excluded(url: str, gates: Gates) -> Verdict | None:
    if not gates.excluded_tlds:
        return None
    suffix = hosts.excluded_suffix(hosts.host_of(url), gates.excluded_tlds)
    if suffix is None:
        return None
    return Verdict(False, EXCLUDED_TLD, BY_SETTING, f"host ends in {suffix!r} of {BY_SETTING}")


def _too_soon(
    url: str, scope: Scope, held: Held, gates: Gates, now: float, *, form: str
) -> Verdict | None:
    if not scope.is_source(url):
        return None
    last = held.last_visit(recrawl.key_of(url, form))
    return recrawl.not_due(last, now, gates.revisit, gates.revisit_reason)


def _robots(url: str, held: Held) -> Verdict | NeedDocument:
    origin = hosts.origin(url)
    rules = held.robots(origin)
    return NeedDocument(ROBOTS, origin) if rules is None else rules.decide(url)


# -- 2: may it go now? ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pace:
    """How a host stands when a request to it wants to go.

    ``wait``: seconds until the host is due, ``inf`` while a request to it is under way.
    ``interval``: seconds between two requests to it. ``spent``: the verdict where it gave no answer
    to all requests that one run grants it (``policy/backoff.py``).
    """

    host: str
    wait: float
    interval: float
    spent: Verdict | None = None


@dataclass(frozen=True, slots=True)
class Go:
    """It may go now."""


@dataclass(frozen=True, slots=True)
class Wait:
    """It may go in ``seconds``; ``inf``: when the request to its host that is under way ends."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Refuse:
    """It may not go in this run."""

    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Ended:
    """This run has sent it as often as it may. ``why``: one line."""

    why: str


def admit(
    pace: Pace, gates: Gates, now: float, *, document: bool = False, ended: str = ""
) -> Go | Wait | Refuse | Ended:
    """Whether a request that :func:`judge` allows may go to its host now; *now*: Unix seconds.

    *document*: it is for a robots.txt. *ended*: why this URL is requested no more in this run,
    empty where it may be.
    """
    if ended:
        return Ended(ended)
    if pace.spent is not None:
        return Refuse(pace.spent)
    if pace.wait == math.inf:  # the end of what is under way says how long the wait is
        return Wait(math.inf)
    if gates.skip_slow and not document and is_slow(pace.interval, gates):
        return Refuse(_skipped(pace, gates))
    if pace.wait > gates.patience:
        return Refuse(_deferred(pace, gates, now))
    return Go() if pace.wait <= 0 else Wait(pace.wait)


def is_slow(interval: float, gates: Gates) -> bool:
    """Whether a host asks for more seconds between two requests than a run waits."""
    return interval > gates.patience


def _deferred(pace: Pace, gates: Gates, now: float) -> Verdict:
    """R4/R5 beyond WALSH_PATIENCE: the host is neither held that long nor asked sooner (D8)."""
    host, wait, patience = pace.host, pace.wait, gates.patience
    due = datetime.fromtimestamp(min(now + wait, _LAST_DATE), UTC).isoformat(timespec="seconds")
    return Verdict(
        False,
        DEFERRED,
        "R4",
        f"{host} may not be asked before {due}, beyond WALSH_PATIENCE ({patience:g} s)",
    )


def _skipped(pace: Pace, gates: Gates) -> Verdict:
    """R4 with WALSH_SLOW_HOSTS "skip": a host that no run can keep pace with is put off (D8)."""
    return Verdict(
        False,
        DEFERRED,
        "R4",
        f"{pace.host} asks for {pace.interval:g} s between requests, beyond WALSH_PATIENCE "
        f'({gates.patience:g} s), and WALSH_SLOW_HOSTS is "skip"',
    )


# -- 3: what does its answer mean? ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of one request that was sent.

    ``purpose``: ``target``, ``robots`` or ``operator``. ``status``: None where no answer came.
    ``retry_after``: the values of each such field. ``attempt``: retries made before. ``hops``:
    redirects that led to it. ``unseen``: its host had never been requested before. ``whole``: False
    where this side broke the exchange off, which says nothing about the server. ``last``: why no
    retry may follow, empty where one may.
    """

    purpose: str
    status: int | None
    method: str = "GET"
    retry_after: Sequence[str] = ()
    attempt: int = 0
    hops: int = 0
    unseen: bool = False
    whole: bool = True
    last: str = ""


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What an answer means.

    ``failure``: what R5 decides, None where it has nothing to decide; ``hold``: seconds for which
    it leaves the host alone. ``exempt``: one target may follow at once (T1). ``answered``: the
    source's turn is over (R8); ``redirected``: it goes on at another URL. ``replaces``: its
    validators replace those that are kept (R7).
    """

    failure: Retry | GiveUp | None = None
    hold: float = 0.0
    exempt: bool = False
    answered: bool = False
    redirected: bool = False
    replaces: bool = False


def conclude(answer: Answer, gates: Gates, now: float, rand: float) -> Conclusion:
    """What follows from *answer*; *now*: Unix seconds, *rand*: in [0, 1), for the back-off."""
    failure = _failure(answer, gates, now, rand) if answer.whole else None
    exempt = (
        failure is None
        and answer.unseen
        and answer.purpose == ROBOTS
        and robots_fetch.counts_as_first(answer.status, hops=answer.hops, attempt=answer.attempt)
    )
    target = answer.purpose == TARGET
    return Conclusion(
        failure,
        0.0 if failure is None else backoff.hold_of(failure),
        exempt,
        answered=target and recrawl.counts_as_asked(answer.status),
        redirected=target and answer.status in REDIRECTS,
        replaces=target
        and answer.status is not None
        and revalidate.replaces_validators(answer.method, answer.status),
    )


def _failure(answer: Answer, gates: Gates, now: float, rand: float) -> Retry | GiveUp | None:
    return backoff.after_failure(
        answer.status,
        answer.retry_after,
        answer.attempt,
        now=now,
        rand=rand,
        base=gates.backoff_base,
        cap=gates.backoff_cap,
        max_retries=gates.max_retries,
        last=answer.last,
        method=answer.method,
    )
