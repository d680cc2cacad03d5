"""The verdict of a gate on a URL, as a frozen value, and the names of verdicts.

The first five names, those of robots.txt, are words that other implementations of the specification
use too. The ledger, the stats and ``check`` have all of them, so they stay as they are (D23).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, final, get_args

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The names of verdicts: the answers of robots.txt, and all.
RobotsName = Literal[
    "allowed_explicit",
    "allowed_implicit",
    "disallowed_explicit",
    "unknown_unreachable",
    "unknown_parse_error",
]
VerdictName = Literal[
    RobotsName,
    "blocked_operator",
    "unknown_blocklist",
    "excluded_tld",
    "disallowed_usage",
    "deferred",
    "out_of_scope",
    "not_due",
    "private_address",
]

ALLOWED_EXPLICIT: Final = "allowed_explicit"
ALLOWED_IMPLICIT: Final = "allowed_implicit"
DISALLOWED_EXPLICIT: Final = "disallowed_explicit"
UNKNOWN_UNREACHABLE: Final = "unknown_unreachable"
UNKNOWN_PARSE_ERROR: Final = "unknown_parse_error"
BLOCKED_OPERATOR: Final = "blocked_operator"
UNKNOWN_BLOCKLIST: Final = "unknown_blocklist"
EXCLUDED_TLD: Final = "excluded_tld"
DISALLOWED_USAGE: Final = "disallowed_usage"
DEFERRED: Final = "deferred"
OUT_OF_SCOPE: Final = "out_of_scope"
NOT_DUE: Final = "not_due"
PRIVATE_ADDRESS: Final = "private_address"

#: In place of a requirement of the spec, for ``EXCLUDED_TLD``: the project's own setting.
BY_SETTING: Final = "WALSH_EXCLUDED_TLDS"
#: The same for ``DISALLOWED_USAGE``.
BY_USAGE: Final = "WALSH_USAGE"
#: The same for ``PRIVATE_ADDRESS``.
BY_ADDRESS: Final = "WALSH_PRIVATE_ADDRESSES"

ROBOTS_NAMES: Final[frozenset[VerdictName]] = frozenset(get_args(RobotsName))
NAMES: Final[frozenset[VerdictName]] = frozenset(get_args(VerdictName))

#: Requirement and name of the verdicts that are a site owner's "no": opt-outs.
OWNERS_NO: Final = frozenset({("R2", DISALLOWED_EXPLICIT), ("R3", BLOCKED_OPERATOR)})

#: Advice about a target that was not sent, by requirement and name of the verdict.
REMEDIES: Final[Mapping[tuple[str, str], str]] = {
    ("R2", DISALLOWED_EXPLICIT): "remove it from the sources, or ask the site's owner",
    ("R2", DEFERRED): "fix the cause if it is on your side; the next run tries again",
    ("R2", UNKNOWN_UNREACHABLE): "WALSH_ROBOTS_UNREACHABLE decides about such hosts",
    ("R2", UNKNOWN_PARSE_ERROR): "the next run requests robots.txt again",
    ("R3", BLOCKED_OPERATOR): "its owner opted out: remove it from the sources",
    ("R3", DEFERRED): "upload blocklist.json to its URL, or fix the error in the log",
    ("R3", UNKNOWN_BLOCKLIST): "upload blocklist.json to its URL, or fix the error in the log",
    (BY_SETTING, EXCLUDED_TLD): f"remove it from the sources, or its suffix from {BY_SETTING}",
    (BY_USAGE, DISALLOWED_USAGE): f"remove it from the sources, or the use from {BY_USAGE}",
    (BY_ADDRESS, PRIVATE_ADDRESS): f'declare that URL itself, or set {BY_ADDRESS} to "allow"',
    ("R4", DEFERRED): "WALSH_PATIENCE sets how long a run waits for a host",
    ("R5", DEFERRED): "if this goes on, correct its address, or remove it from the sources",
    ("R6", OUT_OF_SCOPE): (
        "set WALSH_FOLLOW_LINKS = True if the bot may follow links, or yield them from start()"
    ),
    ("R8", NOT_DUE): "to request it sooner in one run, set WALSH_REVISIT_REASON",
}


#: The document that each requirement needs.
_DOCUMENTS: Final = {"R2": "robots.txt", "R3": "the blocklist"}


def remedy_of(requirement: str, name: str, url: str) -> str:
    """Advice to a person about that verdict on *url*; empty if there is none."""
    if requirement == "R6" and not url.lower().startswith(("http:", "https:")):
        return ""  # no setting has another scheme requested
    return REMEDIES.get((requirement, name), "")


class Unanswered(Struct, frozen=True, omit_defaults=True):
    """A host that has used up a run's attempts without an answer (D13).

    ``host``: its throttle key. ``requests``: their number. ``earlier``: it gave no answer in an
    earlier run either (D31). ``dead``: no TCP connection came about, so its sources have failed.
    """

    host: str
    requests: int
    earlier: bool = False
    dead: bool = False

    def reason(self, host: str) -> str:
        """One line; *host*: the host's name in it."""
        times = f" {self.requests} times" if self.requests > 1 else ""
        past = ", nor in an earlier run" if self.earlier else ""
        return f"{host} did not answer{times}{past}; skipped"

    def __str__(self) -> str:
        return self.reason(self.host)


@final
@dataclass(frozen=True)
class Verdict:
    """A gate's decision about a URL, and its reason.

    ``allowed``: whether the URL may be requested. ``name``: one of :data:`NAMES`. ``requirement``:
    the requirement that decided, such as ``R2``. ``reason``: one line. ``document``: URL of the
    document that decided, or None. ``line``: the rule's line in it, from 1, or None. ``group``: the
    User-agent values of the robots.txt group that was selected. ``readings``: if readings of a
    robots.txt differ, the name of each and whether it allows the URL. ``rule``: the robots.txt rule
    or the listed domain that matched, as written. ``digest``: SHA-256 of the document's octets,
    hexadecimal, or None. ``address``: the IP address of the host, if that decided. ``unanswered``:
    why R5 defers the target, if its host gives no answer. ``cause``: of R8, what decides when the
    source is due (``visits.Due``). ``due``: of R8, that time, Unix seconds. ``brief``: the reason
    without that time, for a place that shows both; empty if there is none.
    """

    allowed: bool
    name: VerdictName
    requirement: str
    reason: str
    document: str | None = None
    line: int | None = None
    group: tuple[str, ...] = ()
    readings: tuple[tuple[str, bool], ...] = ()
    rule: str | None = None
    digest: str | None = None
    address: str | None = None
    unanswered: Unanswered | None = None
    cause: str = ""
    due: float | None = None
    brief: str = ""

    @property
    def is_dead(self) -> bool:
        """Whether no TCP connection to the host came about, so the visit has failed (D13)."""
        return self.unanswered is not None and self.unanswered.dead


def not_known(requirement: str, cause: str, document: str | None = None) -> Verdict:
    """The verdict if our side could not load the rules.

    Our own code, machine, proxy or another component of the project kept the document from us. It
    is no answer of the site, so no setting about unreachable sites applies. This run sends no
    request that the document would decide about. *requirement*: of the document, ``R2`` or ``R3``.
    *cause*: one line. *document*: its URL.
    """
    reason = f"could not load {_DOCUMENTS[requirement]} (our side): {cause}"
    return Verdict(False, DEFERRED, requirement, reason, document)
