"""All decisions about a request, in their order (spec section 7).

1. :func:`judge`: may this URL be requested at all? The gates are R6, R3, R8 and R2, in this order,
   and then WALSH_USAGE. If the host is written as an IP address, that is judged before R8 (D38). R3
   comes before R2, because an opt-out holds even if robots.txt cannot be read. R6 needs no document
   and R8 no request, so neither costs the host a request. The first gate that refuses ends the
   judgement.
2. :func:`admit`: may it go now? It checks R5's attempts, then R4's due time. Pacing comes after the
   gates, because a refused request should wait for nothing.
3. :func:`conclude`: what does its answer mean? It decides about a retry and a hold (R5), a longer
   interval (R4, D28), a target that may follow a robots.txt at once (T1), and the visit of the
   source (R8).

``adapters/gate.py`` calls these at four moments of a request, and decides nothing. Each result is a
frozen value. If a gate cannot decide yet, the result is ``NeedDocument``: the caller fetches the
document and calls again.

If you edit this file: the specification demands this order (D17). Each function is pure.
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
#: Not a document, but needed like one: the rest of `Spider.start`, because it may declare the URL
#: (R6).
START: Final = "start"


class NeedDocument(Struct, frozen=True):
    """A gate cannot decide without this document. ``origin``: for a robots.txt; else empty."""

    kind: str
    origin: str = ""


class Rules(Protocol):
    """The robots.txt of an origin, or a stand-in."""

    def decide(self, url: str) -> Verdict:
        """The verdict on *url* (R2)."""

    def said(self, url: str) -> tuple[usage.Statement, ...]:
        """The statements of the file about the use of *url*."""


class Held(Protocol):
    """The documents and records that the gates look at.

    ``blocklist`` and ``robots`` return None if the document must be fetched or refreshed first.
    """

    def blocklist(self) -> Blocklist | Verdict | None:
        """The operator's list, or one verdict in its place (``operator.without_list``)."""

    def robots(self, origin: str) -> Rules | None:
        """The rules of ``scheme://host[:port]``."""

    def last_visit(self, key: str) -> visits.Visit | None:
        """The record of the last visit of the source *key* (``urls.key_of``); None without one."""


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
    """The verdict of the first gate that refuses *url*; if none does, the verdict of robots.txt.

    It is NeedDocument if a gate cannot decide yet; then the gates after it were not asked. *now*:
    Unix seconds. *form*: of ``urls.form_of``, empty for a plain GET. *runs*: False leaves R8 for a
    later call. *led*: how the crawl came to *url*. Raises ValueError if the port cannot be read.
    """
    # Each gate returns None (or False) to let the next one decide. The last always decides.
    return (
        _out_of_scope(url, scope)
        or _operator_blocks(url, records)
        or _exclude(url, gates)
        or judge_addresses(url, addresses.literals_of(url), scope, gates, led)
        or (runs and scope.is_source(url) and too_soon(urls.key_of(url, form), records, gates, now))
        or _robots(url, records, gates)
    )


def _out_of_scope(url: str, scope: Scope) -> Verdict | NeedDocument | None:
    """Judge *url* by R6. While `Spider.start` may still declare it, the rest of that is needed."""
    refusal = scope.refuses(url)
    return NeedDocument(START) if refusal and scope.undecided(url) else refusal


def judge_host(url: str, records: Held, gates: Gates) -> Verdict | NeedDocument | None:
    """R3 and WALSH_EXCLUDED_TLDS alone; None if nothing is against *url*."""
    return _operator_blocks(url, records) or _exclude(url, gates)


def judge_robots_hop(
    url: str, origin: str, scope: Scope, records: Held, gates: Gates, *, led: Led
) -> Verdict | NeedDocument | None:
    """Judge a redirect of *origin*'s robots.txt to *url* (D5, D37); None if it may go there.

    If *url* is a page of another origin, and not its /robots.txt, the rules of that origin apply to
    it as to a target. Otherwise a site could make us request another site's pages.

    *led*: how the crawl came to *url*. Raises ValueError as :func:`judge`.
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
    """The verdict against *url* if one of the addresses *ips* must not be reached (D38).

    None if all may be reached. The addresses of a host name are known only when a request connects;
    an address in *url* itself is known before. *scope*: None if the operator's settings name *url*,
    for example as the blocklist or a proxy.
    """
    if gates.private_addresses == addresses.ALLOW:
        return None
    for address in ips:
        kind = addresses.kind_of(address)
        if kind == addresses.PUBLIC:
            continue
        # A URL that a person types is declared, but a URL that it leads to is not.
        declared = scope is None or scope.is_named(url) or (scope.typed and not led.url)
        # A name could lead to a cloud's credentials, so only the address itself declares that.
        literal = kind == addresses.LINK_LOCAL and address in addresses.literals_of(url)
        if not addresses.may_reach(kind, declared=declared, literal=literal, led=led):
            return addresses.refusal(address, led)
    return None


def judge_proxy(host: str, records: Held, gates: Gates) -> Verdict | NeedDocument | None:
    """Judge the proxy *host* of a request, as :func:`judge_host`."""
    refusal = judge_host(host, records, gates)
    if isinstance(refusal, Verdict):
        return replace(refusal, reason=f"its proxy {host}: {refusal.reason}")
    return refusal


def _operator_blocks(url: str, records: Held) -> Verdict | NeedDocument | None:
    """Judge *url* by R3. A host that cannot be read might be on the list, so it is refused."""
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


def _exclude(url: str, gates: Gates) -> Verdict | None:
    """Judge *url* by WALSH_EXCLUDED_TLDS."""
    if not gates.excluded_tlds:
        return None
    suffix = hosts.excluded_suffix(hosts.host_of(url), gates.excluded_tlds)
    if suffix is None:
        return None
    reason = f"host ends in {suffix!r} of {verdicts.BY_SETTING}"
    return Verdict(False, verdicts.EXCLUDED_TLD, verdicts.BY_SETTING, reason)


def too_soon(key: str, records: Held, gates: Gates, now: float) -> Verdict | None:
    """The refusal of the source *key* by R8; None if it is due.

    The gate calls it again at the wire, because another process may have sent it meanwhile.
    """
    return visits.not_due(records.last_visit(key), now, gates.revisit, gates.revisit_reason)


def _robots(url: str, records: Held, gates: Gates) -> Verdict | NeedDocument:
    """The verdict of robots.txt on *url* (R2), and then that of WALSH_USAGE."""
    origin = hosts.origin(url)
    rules = records.robots(origin)
    if rules is None:
        return NeedDocument(ROBOTS, origin)
    verdict = rules.decide(url)
    if not (verdict.allowed and gates.refused_uses):
        return verdict
    # This comes after R2, because a URL that must not be fetched has no statement about use.
    return usage.refuses(rules.said(url), gates.refused_uses, verdict) or verdict


# -- 2: may it go now? ------------------------------------------------------------------------


def admit(pace: Pace, gates: Gates, now: float, *, document: bool = False) -> Verdict | float:
    """Decide whether a request that :func:`judge` allows may go to its host now.

    Returns the verdict against it in this run, or else the seconds until it may go. 0 means now;
    infinite means after the request to its host that is under way. *now*: Unix seconds. *document*:
    whether it is for a robots.txt.
    """
    if pace.spent is not None:  # its attempts without an answer are used up (D13)
        return pace.spent
    if pace.wait == math.inf:  # the wait is known when the request under way ends
        return math.inf
    patience = f"beyond WALSH_PATIENCE ({gates.patience:g} s)"
    # A robots.txt is exempt, because a new one may ask for a shorter interval.
    if gates.skip_slow and not document and pace.interval > gates.patience:
        cause = f"{pace.host} asks for {pace.interval:g} s between requests"
        return _defer(f'{cause}, {patience}, and WALSH_SLOW_HOSTS is "skip"')
    if pace.wait > gates.patience:
        cause = f"{pace.host} may not be requested before {iso(now + pace.wait)}"
        return _defer(f"{cause}, {patience}")
    return pace.wait


def _defer(reason: str) -> Verdict:
    """The verdict that defers the target (D8)."""
    return Verdict(False, verdicts.DEFERRED, "R4", reason)


# -- 3: what does its answer mean? ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Conclusion:
    """The meaning of an answer.

    ``failure``: what R5 decides; None if it does not apply. ``wait``: seconds to leave the host
    alone, by R5, a Retry-After or a rate limit; None if there is no need. ``exempt``: one target
    may follow at once (T1). ``visit``: the meaning of a target's answer for R8: ANSWERED, FAILED or
    LEADS_ON (``visits.of_answer``). It is empty for a document, if a retry follows, or if our side
    broke the exchange off. ``learned``: the host's learned pace, with this answer (D28).
    """

    failure: backoff.Retry | backoff.GiveUp | None = None
    wait: float | None = None
    exempt: bool = False
    visit: str = ""
    learned: throttle.Learned = throttle.NOTHING


def conclude(answer: backoff.Answer, gates: Gates, now: float, rand: float) -> Conclusion:
    """Decide what follows from *answer*: a retry, a hold, an exemption, a pace, a visit.

    An exchange that our side broke off says nothing about the server, so it teaches nothing.
    *now*: Unix seconds. *rand*: in [0, 1), for the back-off; ValueError otherwise.
    """
    failure = backoff.after_failure(answer, gates, now, rand) if answer.whole else None
    wait = None
    if failure is not None:
        wait = failure.delay
    elif answer.whole:
        wait = backoff.held_for(answer, now)  # any answer may have a Retry-After
    if answer.whole and answer.reset is not None:
        wait = max(wait or 0.0, answer.reset)
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
