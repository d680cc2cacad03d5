"""THE ORDER of the gates, as code (spec section 7): R6, R3, R8, R2; then R4's patience.

R3 stands before R2 because an opt-out holds even where robots.txt cannot be read; R4 stands
last because pacing a request that will be refused wastes time. R6 needs no document and R8
no request, so neither may cost the host one. The first gate that refuses ends it.

Rule for whoever edits this file: the order below is normative. "I cannot decide yet" is the
value ``NeedDocument``: the caller brings the document and asks again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Protocol

from scrapy_walsh.policy import hosts, recrawl
from scrapy_walsh.policy.verdict import (
    BLOCKED_OPERATOR,
    BY_SETTING,
    DEFERRED,
    EXCLUDED_TLD,
    UNKNOWN_BLOCKLIST,
    Verdict,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

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
        """The operator's list, or the one verdict that stands for it (:func:`without_list`)."""

    def robots(self, origin: str) -> Rules | None:
        """The rules of ``scheme://host[:port]``."""

    def last_visit(self, key: str) -> recrawl.Visit | None:
        """When an earlier run last sent the source *key* (``recrawl.key_of``) and was answered."""


@dataclass(frozen=True, slots=True)
class Gates:
    """The settings that the gates need; durations in seconds."""

    excluded_tlds: Sequence[str] = ()
    revisit: float = 86400.0
    revisit_reason: str | None = None


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


def defer(host: str, wait: float, patience: float, now: float) -> Verdict | None:
    """R4/R5 beyond WALSH_PATIENCE: the host is neither held that long nor asked sooner (D8)."""
    if wait <= patience:
        return None
    due = datetime.fromtimestamp(min(now + wait, _LAST_DATE), UTC).isoformat(timespec="seconds")
    return Verdict(
        False,
        DEFERRED,
        "R4",
        f"{host} may not be asked before {due}, beyond WALSH_PATIENCE ({patience:g} s)",
    )


def skip(host: str, interval: float, patience: float) -> Verdict:
    """R4 with WALSH_SLOW_HOSTS "skip": a host that no run can keep pace with is put off (D8)."""
    return Verdict(
        False,
        DEFERRED,
        "R4",
        f"{host} asks for {interval:g} s between requests, beyond WALSH_PATIENCE ({patience:g} s), "
        'and WALSH_SLOW_HOSTS is "skip"',
    )


def without_list(position: str, document: str, *, lost: bool) -> Verdict | None:
    """R3 while no list can be had: the verdict about every target, or None for an empty list.

    ``position``: ``allow`` (the spec's), ``defer`` or ``deny``, of ``WALSH_BLOCKLIST_UNREACHABLE``.
    ``document``: the list's URL. ``lost``: a list was held and cannot be read any more, so that
    opt-outs were made which nobody knows: then nothing is allowed, whatever the position.
    """
    if lost:
        reason = "the blocklist that was held cannot be read, and no other can be had"
        return Verdict(False, DEFERRED, "R3", reason, document)
    if position == "allow":
        return None
    reason = f"no blocklist can be had, and WALSH_BLOCKLIST_UNREACHABLE is {position}"
    name = DEFERRED if position == "defer" else UNKNOWN_BLOCKLIST
    return Verdict(False, name, "R3", reason, document)


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
