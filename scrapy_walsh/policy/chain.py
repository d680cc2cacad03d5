"""The way of a request, as code (spec section 7): all that is decided about it, in order.

1. :func:`judge`: may this URL be requested at all? R6, R3, R8, R2, in this order, and then what
   WALSH_USAGE refuses. A host that is written as an address is judged before R8 (D38). R3 stands
   before R2 because an opt-out holds even where robots.txt cannot be read. R6 needs no document and
   R8 no request, so neither may cost the host one. The first gate that refuses ends it.
2. :func:`admit`: may it go now? R5's attempts, then R4's due time. Pacing stands after the gates
   because a request that will be refused should wait for nothing.
3. :func:`conclude`: what does its answer mean? R5 (retry, or give up, and hold the host), R4 (has
   the host taught a longer interval, D28), T1 (may a target follow a robots.txt at once), R8 (does
   it end the source's turn).

``adapters/gate.py`` calls these at four moments of a request's life, and decides nothing. Each
answer is a frozen value. "I cannot decide yet" is ``NeedDocument``: the caller brings the document
and calls again.

Rule for whoever edits this file: the specification demands this order (D17). Every function is
pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol, assert_never

from msgspec import Struct

from scrapy_walsh.policy import addresses, backoff, hosts, throttle, urls, visits
from scrapy_walsh.policy import verdict as verdicts
from scrapy_walsh.policy.addresses import NO_LEAD, Led
from scrapy_walsh.policy.event import TARGET, Pace
from scrapy_walsh.policy.list.blocklist import Blocklist
from scrapy_walsh.policy.robots import fetch as robots_fetch
from scrapy_walsh.policy.robots import usage
from scrapy_walsh.policy.times import iso
from scrapy_walsh.policy.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy_walsh.policy.gates import Gates
    from scrapy_walsh.policy.scope import Scope

#: The kinds of documents that a gate may need.
BLOCKLIST: Final = "blocklist"
ROBOTS: Final = "robots"
#: Not a document, but needed like one: the rest of `Spider.start`, which may declare the URL (R6).
START: Final = "start"


class NeedDocument(Struct, frozen=True):
    """A gate cannot decide without this document. ``origin``: of a robots.txt, else empty."""

    kind: str
    origin: str = ""


class Rules(Protocol):
    """The robots.txt of one origin, or what stands in for it."""

    def decide(self, url: str) -> Verdict:
        """R2's answer for *url*."""

    def said(self, url: str) -> tuple[usage.Statement, ...]:
        """What the file says about the use of *url*."""


class Held(Protocol):
    """The documents and records that the gates look at.

    ``blocklist`` and ``robots`` return None where the document must be fetched or refreshed first.
    """

    def blocklist(self) -> Blocklist | Verdict | None:
        """The operator's list, or one verdict in its place (``operator.without_list``)."""

    def robots(self, origin: str) -> Rules | None:
        """The rules of ``scheme://host[:port]``."""

    def last_visit(self, key: str) -> visits.Visit | None:
        """The last answered request of an earlier run for *key* (``urls.key_of``), if any."""


# -- 1: may it be requested at all? -----------------------------------------------------------


def judge(
    url: str,
    scope: Scope,
    records: Held,
    gates: Gates,
    now: float,
    *,
    form: str = "",
    runs: bool = True,
    led: Led = NO_LEAD,
) -> Verdict | NeedDocument:
    """The verdict of the first gate that refuses *url*; if none does, that of robots.txt.

    NeedDocument where a gate cannot decide yet; the gates after it were not looked at. *now*: Unix
    seconds. *form*: of ``urls.form_of``, empty for a plain GET. Raises ValueError for a port
    that cannot be read. Where *runs* is false, R8 is left for a later look. *led*: how the crawl
    came to *url*.
    """
    return (
        _out_of_scope(url, scope)
        or _operator_blocks(url, records)
        or _excluded(url, gates)
        or judge_addresses(url, addresses.literals_of(url), scope, gates, led)
        or (runs and scope.is_source(url) and too_soon(urls.key_of(url, form), records, gates, now))
        or _robots(url, records, gates)
    )


def _out_of_scope(url: str, scope: Scope) -> Verdict | NeedDocument | None:
    refusal = scope.refuses(url)
    return NeedDocument(START) if refusal and scope.undecided(url) else refusal


def judge_host(url: str, records: Held, gates: Gates) -> Verdict | NeedDocument | None:
    """R3 and WALSH_EXCLUDED_TLDS alone; None where nothing is against *url*."""
    return _operator_blocks(url, records) or _excluded(url, gates)


def judge_robots_hop(
    url: str, origin: str, scope: Scope, records: Held, gates: Gates, *, led: Led
) -> Verdict | NeedDocument | None:
    """What a redirect of *origin*'s robots.txt to *url* must pass (D5, D37); None: it may go there.

    What is not *origin*'s own, and no robots.txt either, passes the rules of its origin as a target
    does: a site must not be able to have another one's pages requested. *led*: how the crawl came
    to *url*. Raises ValueError as :func:`judge`.
    """
    refusal = judge_host(url, records, gates) or judge_addresses(
        url, addresses.literals_of(url), scope, gates, led
    )
    if refusal is not None or hosts.origin(url) == origin or url == hosts.robots_url(url):
        return refusal
    verdict = _robots(url, records, gates)
    return None if isinstance(verdict, Verdict) and verdict.allowed else verdict


def judge_addresses(
    url: str, ips: Iterable[str], scope: Scope | None, gates: Gates, led: Led = NO_LEAD
) -> Verdict | None:
    """D38: the verdict against requesting *url* at the first of the addresses *ips* that may not.

    None if all of them may be reached. The addresses that a host's name has are known only to the
    request that is connecting; those that are written in *url*, before. *scope*: None if the
    operator's settings name *url*: the blocklist, or a proxy.
    """
    if gates.private_addresses == addresses.ALLOW:
        return None
    for address in ips:
        kind = addresses.kind_of(address)
        if kind == addresses.PUBLIC:
            continue
        declared = scope is None or scope.is_named(url) or (scope.typed and not led.url)
        literal = kind == addresses.LINK_LOCAL and address in addresses.literals_of(url)
        if not addresses.may_reach(kind, declared=declared, literal=literal, led=led):
            return addresses.refusal(address, led)
    return None


def judge_proxy(host: str, records: Held, gates: Gates) -> Verdict | NeedDocument | None:
    """As :func:`judge_host`, for the proxy *host* that a request would go through."""
    refusal = judge_host(host, records, gates)
    if isinstance(refusal, Verdict):
        return replace(refusal, reason=f"its proxy {host}: {refusal.reason}")
    return refusal


def _operator_blocks(url: str, records: Held) -> Verdict | NeedDocument | None:
    match blocklist := records.blocklist():
        case None:
            return NeedDocument(BLOCKLIST)
        case Verdict():
            return blocklist
        case Blocklist():
            try:
                return blocklist.blocks(url)
            except ValueError as error:
                return Verdict(False, verdicts.BLOCKED_OPERATOR, "R3", f"no readable host: {error}")
        case _:
            assert_never(blocklist)


def _excluded(url: str, gates: Gates) -> Verdict | None:
    if not gates.excluded_tlds:
        return None
    suffix = hosts.excluded_suffix(hosts.host_of(url), gates.excluded_tlds)
    if suffix is None:
        return None
    reason = f"host ends in {suffix!r} of {verdicts.BY_SETTING}"
    return Verdict(False, verdicts.EXCLUDED_TLD, verdicts.BY_SETTING, reason)


def too_soon(key: str, records: Held, gates: Gates, now: float) -> Verdict | None:
    """R8 alone, for the source *key*. Other processes may send a source, too."""
    return visits.not_due(records.last_visit(key), now, gates.revisit, gates.revisit_reason)


def _robots(url: str, records: Held, gates: Gates) -> Verdict | NeedDocument:
    origin = hosts.origin(url)
    rules = records.robots(origin)
    if rules is None:
        return NeedDocument(ROBOTS, origin)
    verdict = rules.decide(url)
    if not (verdict.allowed and gates.refused_uses):
        return verdict
    # What may not be fetched has no statement about its use, so this comes after R2.
    return usage.refuses(rules.said(url), gates.refused_uses, verdict) or verdict


# -- 2: may it go now? ------------------------------------------------------------------------


def admit(pace: Pace, gates: Gates, now: float, *, document: bool = False) -> Verdict | float:
    """Whether a request that :func:`judge` allows may go to its host now.

    The verdict against it in this run; else the seconds until it may go, 0 for now, infinite: after
    the request to its host that is under way. *now*: Unix seconds. *document*: whether it is for a
    robots.txt.
    """
    if pace.spent is not None:
        return pace.spent
    if pace.wait == math.inf:  # only the end of what is under way will say how long the wait is
        return math.inf
    patience = f"beyond WALSH_PATIENCE ({gates.patience:g} s)"
    if gates.skip_slow and not document and pace.interval > gates.patience:
        cause = f"{pace.host} asks for {pace.interval:g} s between requests"
        return _deferred(f'{cause}, {patience}, and WALSH_SLOW_HOSTS is "skip"')
    if pace.wait > gates.patience:
        cause = f"{pace.host} may not be requested before {iso(now + pace.wait)}"
        return _deferred(f"{cause}, {patience}")
    return pace.wait


def _deferred(reason: str) -> Verdict:
    """The target is deferred (D8)."""
    return Verdict(False, verdicts.DEFERRED, "R4", reason)


# -- 3: what does its answer mean? ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What an answer means.

    ``failure``: what R5 decides; None if it does not apply. ``wait``: seconds for which the host is
    left alone, by R5 or by a Retry-After of any other answer; None without one. ``exempt``: one
    target may follow at once (T1). ``visit``: of a target, what R8 makes of it
    (``visits.of_answer``): ANSWERED, and the source is next due after its interval; LEADS_ON to
    another URL, whose answer will count; FAILED. It is empty where R5 grants a retry, which will
    say, and where this side broke it off. ``learned``: what the host has taught by now, this answer
    included (D28).
    """

    failure: backoff.Retry | backoff.GiveUp | None = None
    wait: float | None = None
    exempt: bool = False
    visit: str = ""
    learned: throttle.Learned = throttle.NOTHING


def conclude(answer: backoff.Answer, gates: Gates, now: float, rand: float) -> Conclusion:
    """What follows from *answer*.

    *now*: Unix seconds. *rand*: in [0, 1), for the back-off; ValueError otherwise.
    """
    failure = backoff.after_failure(answer, gates, now, rand) if answer.whole else None
    wait = None
    if failure is not None:
        wait = failure.delay
    elif answer.whole:
        wait = backoff.held_for(answer, now)
    exempt = (
        failure is None
        and answer.unseen
        and answer.purpose == ROBOTS
        and robots_fetch.counts_as_first(answer.status, hops=answer.hops, attempt=answer.attempt)
    )
    learned = answer.known
    if answer.spacing is not None and answer.whole:
        learned = throttle.learn(learned, answer.status, answer.spacing, gates.patience)
    visit = ""
    if answer.purpose == TARGET and answer.whole and not isinstance(failure, backoff.Retry):
        visit = visits.of_answer(answer.status, unasked=answer.unasked)
    return Conclusion(failure, wait, exempt, visit, learned)
