"""Decide by a robots.txt: may this URL be fetched, and how far apart must requests be? (R2)

Two layers decide, and either can refuse (D1).

The *strict layer* is our own. Section 9.1 of the spec leaves choices. So this layer reads the file
in each way that can be defended, and refuses if one of these readings does. ``groups`` splits the
file into records and selects the records for the token. ``rules`` finds the rules that match a
path, and the longest match wins, once for each reading.

The other layer is Protego, with the product token alone (D2). It can only add refusals, so it may
be left out. That is needed because its time to parse a file grows with names x rules, and a hostile
file could take minutes. So Protego gets the whole file if that is sure to be quick, else the groups
that the strict layer selected, else nothing. The strict layer has every rule of the spec in any
case.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from protego import Protego

from scrapy_walsh.exceptions import visible
from scrapy_walsh.policy.robots.groups import MAX_OCTETS, Records, crawl_delay, decode, select
from scrapy_walsh.policy.robots.rules import RuleSet, Ruling, TooCostly, forms
from scrapy_walsh.policy.robots.usage import Statement, UsageRules
from scrapy_walsh.policy.verdict import (
    ALLOWED_EXPLICIT,
    ALLOWED_IMPLICIT,
    DISALLOWED_EXPLICIT,
    Verdict,
    VerdictName,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from scrapy_walsh.policy.robots.groups import Selection

#: Characters of a rule that a reason shows.
_SHOWN: Final = 100
#: Reason and readings if only Protego refuses.
_PROTEGO_ALONE: Final = "disallowed as Protego reads the file, allowed in each of our readings"
_PROTEGO_DENIES: Final = (("strict", True), ("protego", False))

# The limits for Protego, so that it is sure to be quick.
#: Rules. Each line counts as one. Each anchor adds one, because Protego makes two rules of it. Each
#: index.html adds two, because Protego adds a rule for it to each name.
_MAX_RULES: Final = 20_000
#: Names x rules.
_MAX_PRODUCT: Final = 60_000
#: Escapes and anchors, which Protego takes apart one by one.
_MAX_SIGNS: Final = 4_000
#: Names x characters, for files with few but very long rules.
_MAX_OCTETS: Final = 3_000_000
#: Characters of the rules with a star x characters of the URL, in one decision.
_MAX_COMPARED: Final = 20_000_000


@dataclass(slots=True, eq=False)
class Robots:
    """The rules of a robots.txt for a token.

    ``group``: the User-agent values that selected them, lower case; empty if none did.
    ``crawl_delay``: seconds, or None. ``sitemaps``: URLs as written. ``usage``: its statements
    about use. ``document``: the file's URL. ``digest``: SHA-256 of its octets, hexadecimal; None if
    there is no file. ``no_match``: the reason of a verdict if no rule matches.
    """

    rules: RuleSet = field(repr=False)
    document: str | None
    protego: SecondOpinion | None = field(default=None, repr=False)
    digest: str | None = None
    group: tuple[str, ...] = ()
    crawl_delay: float | None = None
    sitemaps: tuple[str, ...] = ()
    usage: UsageRules | None = field(default=None, repr=False)
    no_match: str = "no rule matches"
    #: The verdicts so far, so that many URLs share one.
    _known: dict[Ruling, Verdict] = field(default_factory=dict, repr=False)

    def decide(self, url: str) -> Verdict:
        """The verdict on *url*, a URL or a path with its query (9.1.4). Never raises."""
        paths = forms(url)
        if paths[0] == "/robots.txt":
            return self._verdict(ALLOWED_IMPLICIT, "/robots.txt itself is always allowed")
        try:
            ruling = self.rules.ruling(paths)
        except TooCostly:
            return self._verdict(DISALLOWED_EXPLICIT, "the rules would take too long to match")
        if ruling.denied or self.protego is None or self.protego.allows(url, paths):
            verdict = self._known.get(ruling)
            if verdict is None:
                verdict = self._known[ruling] = self._explain(ruling)
            return verdict
        return self._verdict(DISALLOWED_EXPLICIT, _PROTEGO_ALONE, readings=_PROTEGO_DENIES)

    def said(self, url: str) -> tuple[Statement, ...]:
        """The statements of the file about the use of *url*. Never raises."""
        return () if self.usage is None else self.usage.said(url)

    def _explain(self, ruling: Ruling) -> Verdict:
        rule, readings = ruling.rule, ruling.readings
        if rule is None:
            return self._verdict(ALLOWED_IMPLICIT, self.no_match)
        text = f"{'Allow' if rule.allow else 'Disallow'}: {_show(rule.text)}"
        place = f"line {rule.line}, group {' '.join(rule.names) or 'none'}"
        denying = next((name for name, answer in readings if not answer), None)
        place += f", reading: {denying}" if denying else ""
        name: VerdictName = ALLOWED_EXPLICIT if rule.allow else DISALLOWED_EXPLICIT
        return self._verdict(
            name, f"{text} ({place})", line=rule.line, readings=readings, rule=text
        )

    def _verdict(self, name: VerdictName, reason: str, **members: Any) -> Verdict:
        allowed = name != DISALLOWED_EXPLICIT
        return Verdict(
            allowed,
            name,
            "R2",
            reason,
            self.document,
            group=self.group,
            digest=self.digest,
            **members,
        )


def _show(value: str) -> str:
    """*value* cut and made visible, so that it can stand in one line of a log."""
    text = value[:_SHOWN] + "..." if len(value) > _SHOWN else value
    return visible(text)


class SecondOpinion:
    """Protego's answers for one file, given the product token alone (D2)."""

    __slots__ = ("_octets", "_parsed", "_token")

    def __init__(self, texts: Iterable[str], token: str) -> None:
        """``texts``: of :func:`_for_protego`. The first text that is cheap to parse is used."""
        self._token = token
        self._parsed: Protego | None = None
        self._octets = 0
        text = next(filter(_is_cheap, texts), None)
        if text is not None:
            self._octets = sum([len(line) for line in text.split("\n") if "*" in line])
            with suppress(Exception):  # then the strict layer decides alone
                readable = text if text.isascii() else text.encode("utf-8", "replace").decode()
                self._parsed = Protego.parse(readable)
                # Each rule set points back to the parser. The intake exempts objects from garbage
                # collection, and such a cycle would then stay in memory for ever.
                for rule_set in self._parsed._user_agents.values():
                    del rule_set._parser_instance

    def allows(self, url: str, paths: Sequence[str] = ()) -> bool:
        """Whether Protego allows *url*, and each form of its path in *paths* but the first.

        True if it cannot decide, or not quickly.
        """
        return all(map(self._allows, (url, *[f"http://host{path}" for path in paths[1:]])))

    def _allows(self, url: str) -> bool:
        # Its matcher compares at most each character of a rule with a star to each of the URL.
        if self._parsed is None or self._octets * len(url) > _MAX_COMPARED:
            return True
        try:
            return bool(self._parsed.can_fetch(url, self._token))
        except Exception:  # as above
            return True


def _for_protego(text: str, selections: Sequence[Selection], token: str) -> Iterator[str]:
    """The texts for Protego, the best first: the whole file, then our groups."""
    yield text
    lines = [line for selection in selections for line in selection.lines]
    if len(lines) < _MAX_RULES:
        yield "\n".join([f"User-agent: {token}", *[f"{kind}: {value}" for kind, value, _ in lines]])


def _is_cheap(text: str) -> bool:
    """Whether Protego is sure to parse *text* quickly. Each "agent" in it counts as a name."""
    lower = text.lower()
    names, anchors = lower.count("agent"), text.count("$") + 2 * lower.count("index.html")
    rules = len(text.splitlines()) + anchors
    return (
        rules <= _MAX_RULES
        and names * rules <= _MAX_PRODUCT
        and text.count("%") + anchors <= _MAX_SIGNS
        and names * len(text) <= _MAX_OCTETS
    )


def parse_robots(body: bytes, token: str, document: str | None = None) -> Robots:
    """The rules of a robots.txt for a product token (R2, 9.1.2). Never raises.

    ``body``: its octets; only the first 500 KiB count. ``token``: for example ``Walsh-Research``,
    without a version. ``document``: URL of the file, for the verdicts.
    """
    text = decode(body)
    records = Records(text, cut=len(body) > MAX_OCTETS)
    selections = select(text, records, token)
    names = (name for selection in reversed(selections) for name in selection.names)
    return Robots(
        RuleSet(selections),
        document,
        SecondOpinion(_for_protego(text, selections, token), token),
        digest=hashlib.sha256(body).hexdigest(),
        group=tuple(dict.fromkeys(names)),
        crawl_delay=crawl_delay(selections),
        sitemaps=tuple(filter(None, records.sitemaps)),
        usage=UsageRules(selections, document, records.licenses),
    )


def no_rules(document: str | None, reason: str = "robots.txt answered 4xx: no rules") -> Robots:
    """The rules of a host that has no robots.txt: everything is allowed (9.1.1).

    ``document``: the URL that was requested. ``reason``: the reason of its verdicts.
    """
    return Robots(RuleSet(()), document, no_match=reason)
