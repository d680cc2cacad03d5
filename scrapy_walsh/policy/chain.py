"""THE ORDER of the gates, as code (spec section 7): R6, R3, R8, R2; then R4's patience.

R3 stands before R2 because an opt-out holds even where robots.txt cannot be read; R4 stands
last because pacing a request that will be refused wastes time. R6 needs no document and R8
no request, so neither may cost the host one. The first gate that refuses ends it.

Rule for whoever edits this file: the order below is normative. "I cannot decide yet" is the
value ``NeedDocument``: the caller brings the document and asks again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Protocol

from scrapy_walsh.policy import hosts, recrawl
from scrapy_walsh.policy.verdict import BLOCKED_OPERATOR, DEFERRED, EXCLUDED_TLD, Verdict

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

    def blocklist(self) -> Blocklist | None:
        """The operator's list."""

    def robots(self, origin: str) -> Rules | None:
        """The rules of ``scheme://host[:port]``."""

    def last_run(self, url: str) -> float | None:
        """When the source *url* was last answered, Unix seconds."""


@dataclass(frozen=True, slots=True)
class Gates:
    """The settings that the gates need; durations in seconds."""

    excluded_tlds: Sequence[str] = ()
    revisit: float = 86400.0
    revisit_reason: str | None = None


def judge(url: str, scope: Scope, held: Held, gates: Gates, now: float) -> Verdict | NeedDocument:
    """Ask each gate in order about *url*; *now* is Unix seconds."""
    return (
        scope.refuses(url)
        or _operator_blocks(url, held)
        or _excluded(url, gates)
        or _too_soon(url, scope, held, gates, now)
        or _robots(url, held)
    )


def judge_host(url: str, held: Held, gates: Gates) -> Verdict | NeedDocument | None:
    """R3 alone: what a redirect of robots.txt itself must pass (D5). None: nothing against it."""
    return _operator_blocks(url, held) or _excluded(url, gates)


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


def _operator_blocks(url: str, held: Held) -> Verdict | NeedDocument | None:
    blocklist = held.blocklist()
    if blocklist is None:
        return NeedDocument(BLOCKLIST)
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
    return Verdict(False, EXCLUDED_TLD, "R6", f"host ends in {suffix!r} of WALSH_EXCLUDED_TLDS")


def _too_soon(url: str, scope: Scope, held: Held, gates: Gates, now: float) -> Verdict | None:
    if not scope.is_source(url):
        return None
    return recrawl.not_due(held.last_run(url), now, gates.revisit, gates.revisit_reason)


def _robots(url: str, held: Held) -> Verdict | NeedDocument:
    origin = hosts.origin(url)
    rules = held.robots(origin)
    return NeedDocument(ROBOTS, origin) if rules is None else rules.decide(url)
