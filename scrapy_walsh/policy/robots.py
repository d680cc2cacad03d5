"""R2: robots.txt. May this URL be fetched, and how far apart must requests be?

Two layers decide, and either can refuse (D1). One is our own: it reads the file in each way that
section 9.1 of the spec may be read, and refuses where one of them does. ``robots_groups`` reads
the lines, ``robots_paths`` spells URLs and rules alike, ``robots_match`` finds the rules that
match, and ``robots_rules`` weighs them. The other layer is Protego, asked with the product token
alone.

Protego can only add refusals. It takes as long as names x rules to parse a file, and a file can be
made for which that is minutes. So Protego is given the whole file where that is cheap, else the
groups that the first layer selected, else nothing: the first layer holds every rule of the spec.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from protego import Protego

from scrapy_walsh.policy.robots_groups import Records, crawl_delay, decode, select
from scrapy_walsh.policy.robots_match import TooCostly
from scrapy_walsh.policy.robots_paths import forms, plain_path
from scrapy_walsh.policy.robots_rules import Finding, Rule, RuleSet, combine
from scrapy_walsh.policy.text import visible
from scrapy_walsh.policy.verdict import (
    ALLOWED_EXPLICIT,
    ALLOWED_IMPLICIT,
    DISALLOWED_EXPLICIT,
    Verdict,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from scrapy_walsh.policy.robots_groups import Selection

_SHOWN: Final = 100
_PROTEGO_ALONE: Final = "Disallow in Protego's reading of the file, in none of the spec's"
_PROTEGO_DENIES: Final = (("strict", True), ("protego", False))

_MAX_RULES: Final = 20_000
"""Lines, whatever is on them; one more for each anchor, of which Protego makes two rules, and two
more for each index.html, of which it makes another for every name."""
_MAX_PRODUCT: Final = 60_000
"""Names x rules."""
_MAX_SIGNS: Final = 4_000
"""Escapes and anchors, which Protego takes apart one by one."""
_MAX_OCTETS: Final = 3_000_000
"""Names x characters, for few rules that are very long."""
_MAX_COMPARED: Final = 20_000_000
"""Characters of starred rules x characters of a URL, in one decision."""


class Robots:
    """The rules of one robots.txt for one token.

    ``group``: names that selected them, lower case, empty when none did. ``crawl_delay``:
    seconds, or None. ``sitemaps``: as written. ``document``: the file's URL. ``digest``: SHA-256
    of its octets, hexadecimal; None where there is no file.
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
        why: str = "no rule matches",
    ) -> None:
        self._rules = rules
        self._protego = protego
        self.document = document
        self.digest = digest
        self.group = group
        self.crawl_delay = crawl_delay
        self.sitemaps = sitemaps
        self._no_match = self._verdict(ALLOWED_IMPLICIT, why)
        self._known: dict[Rule, Verdict] = {}

    def decide(self, url: str) -> Verdict:
        """Whether a URL, or a path with its query, may be fetched (9.1.4). Never raises."""
        path = plain_path(url)
        found = forms(url) if path is None else {}
        if (path or next(iter(found))) == "/robots.txt":
            return self._verdict(ALLOWED_IMPLICIT, "/robots.txt itself is always allowed")
        try:
            finding = self._rules.judge(path) if path else self._judge(found)
        except TooCostly:
            return self._verdict(DISALLOWED_EXPLICIT, "the rules would take too long to match")
        # A path alone says the same to Protego, sooner; "//x" alone is a host to it.
        asked = path if path and path[:2] != "//" else url
        if finding.denied or self._protego is None or self._protego_allows(asked, found):
            return self._explain(finding)
        return self._verdict(DISALLOWED_EXPLICIT, _PROTEGO_ALONE, readings=_PROTEGO_DENIES)

    def _judge(self, found: dict[str, str]) -> Finding:
        if len(found) == 1:
            return self._rules.judge(next(iter(found)))
        return combine({name: self._rules.judge(form) for form, name in found.items()})

    def _protego_allows(self, url: str, found: dict[str, str]) -> bool:
        """Whether Protego allows the URL, and each other form of its path."""
        asked = self._protego
        if asked is None or not asked.allows(url):
            return asked is None
        return len(found) < 2 or all(asked.allows(f"http://host{form}") for form in list(found)[1:])

    def _explain(self, finding: Finding) -> Verdict:
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
        name = ALLOWED_EXPLICIT if rule.allow else DISALLOWED_EXPLICIT
        return self._verdict(name, f"{text} ({where})", rule.line, readings, text)

    def _verdict(
        self,
        name: str,
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
    """A value as it can stand in one line of a log."""
    text = value[:_SHOWN] + "..." if len(value) > _SHOWN else value
    return visible(text)


class SecondOpinion:
    """Protego on one file, asked with the bare token (D2)."""

    __slots__ = ("_octets", "_parsed", "_token")

    def __init__(self, texts: Iterable[str], token: str) -> None:
        """``texts``: of :func:`_for_protego`; the first that is cheap to parse is used."""
        self._token = token
        self._parsed: Protego | None = None
        self._octets = 0
        text = next(filter(_is_cheap, texts), None)
        if text is not None:
            self._octets = sum([len(line) for line in text.split("\n") if "*" in line])
            self._parsed = _parse(text)

    def allows(self, url: str) -> bool:
        """Protego's answer, or True when it has none."""
        # Its matcher compares at most every octet of a starred value with every one of the URL.
        if self._parsed is None or self._octets * len(url) > _MAX_COMPARED:
            return True
        try:
            return bool(self._parsed.can_fetch(url, self._token))
        except Exception:  # whatever it trips over, the strict layer decides
            return True


def _parse(text: str) -> Protego | None:
    try:
        return Protego.parse(text if text.isascii() else text.encode("utf-8", "replace").decode())
    except Exception:  # as above
        return None


def _for_protego(text: str, selections: Sequence[Selection], token: str) -> Iterator[str]:
    """What to show to Protego, if it is cheap to parse: the whole file, else our groups."""
    yield text
    lines = [line for selection in selections for line in selection.lines]
    if len(lines) < _MAX_RULES:
        yield "\n".join([f"User-agent: {token}", *[f"{kind}: {value}" for kind, value, _ in lines]])


def _is_cheap(text: str) -> bool:
    """Whether Protego parses a text soon; each line counts as a rule, each "agent" as a name."""
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
    """The rules of a robots.txt as served, for a product token. Never raises (R2, 9.1.2).

    ``body``: the octets, of which 500 KiB count. ``token``: such as ``Walsh-Research``,
    without a version. ``document``: URL of the file, for the verdicts.
    """
    text = decode(body)
    records = Records(text)
    selections = select(records, token)
    names = (name for selection in reversed(selections) for name in selection.names)
    return Robots(
        RuleSet(selections),
        SecondOpinion(_for_protego(text, selections, token), token),
        document=document,
        digest=hashlib.sha256(body).hexdigest(),
        group=tuple(dict.fromkeys(names)),
        crawl_delay=crawl_delay(selections),
        sitemaps=tuple(filter(None, records.sitemaps)),
    )


def no_rules(document: str | None, why: str = "robots.txt answered 4xx: no rules") -> Robots:
    """The rules of a host whose robots.txt is not there: everything is allowed (9.1.1)."""
    return Robots(RuleSet(()), document=document, why=why)
