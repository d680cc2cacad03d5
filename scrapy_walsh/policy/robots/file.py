"""R2: robots.txt. May this URL be fetched, and how far apart must requests be?

Two layers decide, and either can refuse (D1).

The *strict layer* is our own. Section 9.1 of the spec leaves choices: it reads the file in each way
that can be defended, and refuses if one of these readings does. ``groups`` splits the file into
records and selects those for the token. ``rules`` finds those that match a path, and lets the
longest match win, once for each reading.

The other layer is Protego, given the product token alone (D2). It can only add refusals, so it may
be left out. That is needed since its time to parse a file grows with names x rules: a file can be
made for which that is minutes. So Protego gets the whole file where that is sure to be quick, else
the groups that the strict layer selected, else nothing. The strict layer has every rule of the spec
in any case.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from protego import Protego

from scrapy_walsh.policy.robots.groups import Records, crawl_delay, decode, select
from scrapy_walsh.policy.robots.rules import (
    Rule,
    RuleSet,
    Ruling,
    TooCostly,
    combine,
    forms,
    plain_path,
)
from scrapy_walsh.policy.robots.usage import UsageRules
from scrapy_walsh.policy.verdict import (
    ALLOWED_EXPLICIT,
    ALLOWED_IMPLICIT,
    DISALLOWED_EXPLICIT,
    Verdict,
    VerdictName,
)
from scrapy_walsh.policy.words import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from scrapy_walsh.policy.robots.groups import Selection
    from scrapy_walsh.policy.robots.usage import Statement

#: Characters of a rule that a reason shows.
_SHOWN: Final = 100
#: Reason and readings where only Protego refuses.
_PROTEGO_ALONE: Final = "disallowed as Protego reads the file, allowed in each of our readings"
_PROTEGO_DENIES: Final = (("strict", True), ("protego", False))

# What Protego gets at most, so that it is sure to be quick.
#: Rules. Each line counts as one, whatever is on it. Each anchor adds one, since Protego makes two
#: rules of it, and each index.html two, since Protego adds a rule for it to every name.
_MAX_RULES: Final = 20_000
#: Names x rules.
_MAX_PRODUCT: Final = 60_000
#: Escapes and anchors, which Protego takes apart one by one.
_MAX_SIGNS: Final = 4_000
#: Names x characters, for files with few but very long rules.
_MAX_OCTETS: Final = 3_000_000
#: Characters of the rules with a star x characters of the URL, in one decision.
_MAX_COMPARED: Final = 20_000_000


class Robots:
    """The rules of one robots.txt for one token.

    ``group``: the User-agent values that selected them, lower case; empty if none did.
    ``crawl_delay``: seconds, or None. ``sitemaps``: URLs as written. ``usage``: what the file says
    about use. ``document``: the file's URL.
    ``digest``: SHA-256 of its octets, hexadecimal; None where there is no file.
    """

    __slots__ = (
        "_known",
        "_no_match",
        "_protego",
        "_rules",
        "crawl_delay",
        "digest",
        "document",
        "group",
        "sitemaps",
        "usage",
    )

    def __init__(
        self,
        rules: RuleSet,
        protego: SecondOpinion | None = None,
        *,
        document: str | None,
        digest: str | None = None,
        group: tuple[str, ...] = (),
        crawl_delay: float | None = None,
        sitemaps: tuple[str, ...] = (),
        usage: UsageRules | None = None,
        why: str = "no rule matches",
    ) -> None:
        self._rules = rules
        self._protego = protego
        self.document = document
        self.digest = digest
        self.group = group
        self.crawl_delay = crawl_delay
        self.sitemaps = sitemaps
        self.usage = usage or UsageRules((), document)
        self._no_match = self._verdict(ALLOWED_IMPLICIT, why)
        self._known: dict[Rule, Verdict] = {}

    def decide(self, url: str) -> Verdict:
        """The verdict on *url*, a URL or a path with its query (9.1.4). Never raises."""
        path = plain_path(url)
        found = forms(url) if path is None else {}
        if (path or next(iter(found))) == "/robots.txt":
            return self._verdict(ALLOWED_IMPLICIT, "/robots.txt itself is always allowed")
        try:
            finding = self._rules.judge(path) if path else self._judge(found)
        except TooCostly:
            return self._verdict(DISALLOWED_EXPLICIT, "the rules would take too long to match")
        # Protego answers the same for a path alone, and sooner. But it takes "//x" for a host.
        shown = path if path and path[:2] != "//" else url
        if finding.denied or self._protego is None or self._protego_allows(shown, found):
            return self._explain(finding)
        return self._verdict(DISALLOWED_EXPLICIT, _PROTEGO_ALONE, readings=_PROTEGO_DENIES)

    def said(self, url: str) -> tuple[Statement, ...]:
        """What the file says about the use of *url*. Never raises."""
        return self.usage.said(url)

    def _judge(self, found: dict[str, str]) -> Ruling:
        """The strict layer's finding on a URL whose path has several forms; *found*: the forms."""
        if len(found) == 1:
            return self._rules.judge(next(iter(found)))
        return combine({name: self._rules.judge(form) for form, name in found.items()})

    def _protego_allows(self, url: str, found: dict[str, str]) -> bool:
        """Whether Protego allows the URL, and each other form of its path."""
        protego = self._protego
        if protego is None or not protego.allows(url):
            return protego is None
        if len(found) < 2:
            return True
        return all(protego.allows(f"http://host{form}") for form in list(found)[1:])

    def _explain(self, finding: Ruling) -> Verdict:
        rule = finding.rule
        if rule is None:
            return self._no_match
        if finding.readings:
            return self._by_rule(rule, finding.readings)
        known = self._known.get(rule)
        if known is None:
            known = self._known[rule] = self._by_rule(rule, ())
        return known

    def _by_rule(self, rule: Rule, readings: tuple[tuple[str, bool], ...]) -> Verdict:
        text = f"{'Allow' if rule.allow else 'Disallow'}: {_shown(rule.text)}"
        where = f"line {rule.line}, group {' '.join(rule.names) or 'none'}"
        denying = next((name for name, answer in readings if not answer), None)
        where += f", reading: {denying}" if denying else ""
        name: VerdictName = ALLOWED_EXPLICIT if rule.allow else DISALLOWED_EXPLICIT
        return self._verdict(name, f"{text} ({where})", rule.line, readings, text)

    def _verdict(
        self,
        name: VerdictName,
        reason: str,
        line: int | None = None,
        readings: tuple[tuple[str, bool], ...] = (),
        rule: str | None = None,
    ) -> Verdict:
        return Verdict(
            name != DISALLOWED_EXPLICIT,
            name,
            "R2",
            reason,
            self.document,
            line,
            self.group,
            readings,
            rule,
            self.digest,
        )


def _shown(value: str) -> str:
    """*value* cut and made visible, so that it can stand in one line of a log."""
    text = value[:_SHOWN] + "..." if len(value) > _SHOWN else value
    return visible(text)


class SecondOpinion:
    """Protego's answers for one file, given the product token alone (D2)."""

    __slots__ = ("_octets", "_parsed", "_token")

    def __init__(self, texts: Iterable[str], token: str) -> None:
        """``texts``: of :func:`_for_protego`. The first that is cheap to parse is used, if any."""
        self._token = token
        self._parsed: Protego | None = None
        self._octets = 0
        text = next(filter(_is_cheap, texts), None)
        if text is not None:
            self._octets = sum([len(line) for line in text.split("\n") if "*" in line])
            self._parsed = _parse(text)

    def allows(self, url: str) -> bool:
        """Whether Protego allows *url*; True if it cannot say, or not quickly."""
        # Its matcher compares at most each character of a rule with a star to each of the URL.
        if self._parsed is None or self._octets * len(url) > _MAX_COMPARED:
            return True
        try:
            return bool(self._parsed.can_fetch(url, self._token))
        except Exception:  # whatever is wrong, the strict layer decides alone
            return True


def _parse(text: str) -> Protego | None:
    try:
        return Protego.parse(text if text.isascii() else text.encode("utf-8", "replace").decode())
    except Exception:  # as above
        return None


def _for_protego(text: str, selections: Sequence[Selection], token: str) -> Iterator[str]:
    """The texts that Protego may be given, the best first: the whole file, else our groups."""
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

    ``body``: its octets, of which the first 500 KiB count. ``token``: such as ``Walsh-Research``,
    without a version. ``document``: URL of the file, for the verdicts.
    """
    text = decode(body)
    records = Records(text)
    selections = select(text, records, token)
    names = (name for selection in reversed(selections) for name in selection.names)
    return Robots(
        RuleSet(selections),
        SecondOpinion(_for_protego(text, selections, token), token),
        document=document,
        digest=hashlib.sha256(body).hexdigest(),
        group=tuple(dict.fromkeys(names)),
        crawl_delay=crawl_delay(selections),
        sitemaps=tuple(filter(None, records.sitemaps)),
        usage=UsageRules(selections, document),
    )


def no_rules(document: str | None, why: str = "robots.txt answered 4xx: no rules") -> Robots:
    """The rules of a host that has no robots.txt: everything is allowed (9.1.1).

    ``document``: the URL that was requested. ``why``: the reason of its verdicts.
    """
    return Robots(RuleSet(()), document=document, why=why)
