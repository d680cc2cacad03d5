"""Outcomes of a gate, as frozen values.

The names are those of design section 5: webcanon's five for robots.txt, and ours beside them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Mapping

ALLOWED_EXPLICIT: Final = "allowed_explicit"
ALLOWED_IMPLICIT: Final = "allowed_implicit"
DISALLOWED_EXPLICIT: Final = "disallowed_explicit"
UNKNOWN_UNREACHABLE: Final = "unknown_unreachable"
UNKNOWN_PARSE_ERROR: Final = "unknown_parse_error"
BLOCKED_OPERATOR: Final = "blocked_operator"
UNKNOWN_BLOCKLIST: Final = "unknown_blocklist"
EXCLUDED_TLD: Final = "excluded_tld"
DEFERRED: Final = "deferred"
OUT_OF_SCOPE: Final = "out_of_scope"
NOT_DUE: Final = "not_due"

#: In place of a requirement of the spec, for ``EXCLUDED_TLD``: the project's own setting.
BY_SETTING: Final = "WALSH_EXCLUDED_TLDS"

#: The answers of robots.txt.
ROBOTS_NAMES: Final = frozenset(
    {
        ALLOWED_EXPLICIT,
        ALLOWED_IMPLICIT,
        DISALLOWED_EXPLICIT,
        UNKNOWN_UNREACHABLE,
        UNKNOWN_PARSE_ERROR,
    }
)
NAMES: Final = ROBOTS_NAMES | {
    BLOCKED_OPERATOR,
    UNKNOWN_BLOCKLIST,
    EXCLUDED_TLD,
    DEFERRED,
    OUT_OF_SCOPE,
    NOT_DUE,
}

#: What a person can do about a target that was not sent, by requirement and name of the verdict.
REMEDIES: Final[Mapping[tuple[str, str], str]] = {
    ("R2", DISALLOWED_EXPLICIT): "take it out of the sources, or ask the site's owner",
    ("R2", UNKNOWN_UNREACHABLE): "WALSH_ROBOTS_UNREACHABLE decides about such hosts",
    ("R2", UNKNOWN_PARSE_ERROR): "the next run asks for robots.txt again",
    ("R3", BLOCKED_OPERATOR): "its owner opted out: take it out of the sources",
    ("R3", DEFERRED): "see that the URL of the blocklist answers",
    ("R3", UNKNOWN_BLOCKLIST): "see that the URL of the blocklist answers",
    (BY_SETTING, EXCLUDED_TLD): f"take it out of the sources, or its suffix out of {BY_SETTING}",
    ("R4", DEFERRED): "WALSH_PATIENCE says how long a run waits for a host",
    ("R5", DEFERRED): "if it stays so, correct its address, or take it out of the sources",
    ("R6", OUT_OF_SCOPE): (
        "yield it from start(), or set WALSH_FOLLOW_LINKS if the bot may follow links"
    ),
    ("R8", NOT_DUE): "to send it sooner in one run, give a WALSH_REVISIT_REASON",
}


@final
@dataclass(frozen=True, init=False)
class Verdict:
    """What a gate decided about one URL, and why.

    ``allowed``: may be fetched. ``name``: one of :data:`NAMES`. ``requirement``: the spec's
    id, such as ``"R2"``. ``reason``: one readable line. ``document``: URL of the document
    that decided, or None. ``line``: its line, from 1, or None. ``group``: the robots.txt
    group names that were selected. ``readings``: answer by reading, where they differ
    (``True`` is "may be fetched"). ``rule``: what matched, as written: a robots.txt rule, a
    listed domain. ``digest``: SHA-256 of the document's octets, hexadecimal, or None.
    """

    allowed: bool
    name: str
    requirement: str
    reason: str
    document: str | None = None
    line: int | None = None
    group: tuple[str, ...] = ()
    readings: tuple[tuple[str, bool], ...] = ()
    rule: str | None = None
    digest: str | None = None

    def __init__(  # noqa: PLR0917
        self,
        allowed: bool,
        name: str,
        requirement: str,
        reason: str,
        document: str | None = None,
        line: int | None = None,
        group: tuple[str, ...] = (),
        readings: tuple[tuple[str, bool], ...] = (),
        rule: str | None = None,
        digest: str | None = None,
    ) -> None:
        # What a frozen dataclass makes of itself takes twice as long: one call for each field.
        self.__dict__.update(
            allowed=allowed,
            name=name,
            requirement=requirement,
            reason=reason,
            document=document,
            line=line,
            group=group,
            readings=readings,
            rule=rule,
            digest=digest,
        )
