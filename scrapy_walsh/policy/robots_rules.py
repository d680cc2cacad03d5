"""R2: the rules that the readings of a robots.txt select, and the answer of each reading.

A reading is one way through the text's open questions: what a group's name is, whether a value
without a leading ``/`` has one, whether an escape is text or an octet, how long a match is (T2).
Each is applied to Allow and Disallow alike; one that denies is enough (design D1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from scrapy_walsh.policy.robots_match import LENGTHS, Hit, Index, Rule, TooCostly
from scrapy_walsh.policy.robots_paths import as_octets, normalize_values
from scrapy_walsh.policy.robots_texts import Texts, all_readings, tabulate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scrapy_walsh.policy.robots_groups import Selection
    from scrapy_walsh.policy.robots_texts import Table

AS_WRITTEN: Final = "value as written"
WITH_SLASH: Final = "value with a leading /"
AS_TEXT: Final = "escapes as text"
AS_OCTETS: Final = "escapes as octets"

_MAX_RULES: Final = 20_000
"""Rules that are no plain text. Of more no index is made, and the answer is no (T40)."""

Readings = tuple[tuple[str, bool], ...]


class Finding(NamedTuple):
    """What the strict layer says: the rule that decided, if any, and the answer by reading.

    ``readings`` is empty where they all agree.
    """

    denied: bool
    rule: Rule | None
    readings: Readings = ()


_NOTHING: Final = Finding(denied=False, rule=None)
_NO_RULES: Final = Index(())


class RuleSet:
    """The rules of a token in one file; :meth:`judge` holds a path against them."""

    __slots__ = ("_bare", "_octets", "_plain", "_text", "_too_many", "_variants")

    def __init__(self, selections: Sequence[Selection]) -> None:
        found = tabulate(selections)
        self._too_many = sum([len(table.others) for table in found]) > _MAX_RULES
        if self._too_many:
            found = []
        bare = any(value[0] != "/" for table in found for _, value, _ in table.others)
        values = (AS_WRITTEN, WITH_SLASH) if bare else ("",)
        self._variants = [
            _label(selection.reading * (len(selections) > 1), value)
            for selection in selections
            for value in values
        ]
        self._plain = Texts(found, len(values))
        rules = _rules(found, len(values))
        escaped = [rule for rule in rules if "%" in rule.body]
        if len(escaped) > _MAX_RULES:  # a star at the front makes two of a value
            self._too_many, rules, escaped = True, [], []
        if not escaped:
            self._bare, self._text, self._octets = Index(rules), _NO_RULES, _NO_RULES
            return
        self._bare = Index([rule for rule in rules if "%" not in rule.body])
        self._text = Index(escaped)
        octets = as_octets("\n".join([rule.body for rule in escaped])).split("\n")
        self._octets = Index(map(Rule.in_octets, escaped, octets))

    def judge(self, path: str) -> Finding:
        """The finding for one form of a path (``robots_paths.forms``); raises TooCostly."""
        if self._too_many:
            raise TooCostly
        if "%" not in path and "[" not in path and "]" not in path:
            # A value with an escape cannot match here, and text and octets are one.
            return self._weigh(self._plain.hits(path) + self._bare.hits(path))
        octets = as_octets(path)
        plain = self._plain.hits(path)
        text = self._weigh(plain + self._bare.hits(path) + self._text.hits(path))
        atoms = self._weigh(plain + self._bare.hits(octets) + self._octets.hits(octets))
        return text if text == atoms else combine({AS_TEXT: text, AS_OCTETS: atoms})

    def _weigh(self, hits: list[Hit]) -> Finding:
        if not hits:
            return _NOTHING
        if len(self._variants) == 1 and _agree(hits):
            rule = max(hits, key=_precedence).rule if len(hits) > 1 else hits[0].rule
            return Finding(not rule.allow, rule)
        answers = list(self._answers(hits))
        denying = next((rule for _, rule in answers if rule and not rule.allow), None)
        rule = denying or max(hits, key=lambda hit: (hit.rule.allow, _precedence(hit))).rule
        readings = tuple((name, not by or by.allow) for name, by in answers)
        return Finding(denying is not None, rule, _differing(readings))

    def _answers(self, hits: list[Hit]) -> Iterator[tuple[str, Rule | None]]:
        """The rule that wins in each reading of names, values and lengths."""
        for bit, variant in enumerate(self._variants):
            winners = _winners([hit for hit in hits if hit.rule.variants >> bit & 1])
            if len({rule and rule.allow for rule in winners.values()}) < 2:
                yield variant, next(iter(winners.values()), None)
            else:
                yield from ((_label(variant, name), rule) for name, rule in winners.items())


def combine(findings: dict[str, Finding]) -> Finding:
    """One finding of several, by name: denied if one is, with the rule of the first that is."""
    chosen = max(findings.values(), key=lambda finding: (finding.denied, finding.rule is not None))
    readings = tuple(
        (_label(name, reading), answer)
        for name, finding in findings.items()
        for reading, answer in finding.readings or (("", not finding.denied),)
    )
    return Finding(chosen.denied, chosen.rule, _differing(readings))


def _winners(hits: list[Hit]) -> dict[str, Rule]:
    """The longest match by each length; on a tie Allow, then the first line."""
    if not hits:
        return {}
    ties = [(hit.rule.allow, -hit.rule.line, number) for number, hit in enumerate(hits)]
    columns = zip(*[hit.lengths() for hit in hits], strict=True)
    return {
        name: hits[max(zip(column, ties, strict=True))[1][2]].rule
        for name, column in zip(LENGTHS, columns, strict=True)
    }


def _agree(hits: list[Hit]) -> bool:
    """Whether every reading of the lengths has the same winner: one kind, or plain text only."""
    return len({hit.rule.allow for hit in hits}) == 1 or all(
        hit.rule.text == hit.rule.prefix for hit in hits
    )


def _precedence(hit: Hit) -> tuple[int, bool, int]:
    return len(hit.rule.body), hit.rule.allow, -hit.rule.line


def _label(*parts: str) -> str:
    return ", ".join(filter(None, parts))


def _differing(readings: Readings) -> Readings:
    return readings if len({answer for _, answer in readings}) > 1 else ()


def _rules(found: Sequence[Table], width: int) -> list[Rule]:
    """Each rule that is no plain text, once, with a bit for every reading that has it."""
    rules: dict[bool, dict[str, Rule]] = {True: {}, False: {}}
    for which, (names, _, _, others) in enumerate(found):
        every = all_readings(which, width)
        as_written, with_slash = 0b01 << which * width, 0b10 << which * width
        for allow, value, line in others:
            known, text, bits = rules[allow], value, every
            if value[0] == "*":
                # As written, only a star at the front can stand for the slash of every path.
                _once(known, value, allow, line, names).variants |= as_written
                text, bits = "/" + value, with_slash
            elif value[0] != "/":
                text, bits = "/" + value, with_slash
            _once(known, text, allow, line, names).variants |= bits
    once = [*rules[True].values(), *rules[False].values()]
    bodies = [rule.text[:-1] if rule.anchored else rule.text for rule in once]
    for rule, body in zip(once, normalize_values(bodies), strict=False):
        rule.spelt(body)
    return once


def _once(
    known: dict[str, Rule], text: str, allow: bool, line: int, names: tuple[str, ...]
) -> Rule:
    rule = known.get(text)
    if rule is None:
        rule = known[text] = Rule(allow, text, line, names)
    return rule
