"""R2: the rules that the readings of a robots.txt select, and the answer of each reading.

A reading is one way through the text's open questions: what a group's name is, whether a value
without a leading ``/`` has one, whether an escape is text or an octet, how long a match is (T2).
Each is applied to Allow and Disallow alike; one that denies is enough (design D1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from scrapy_walsh.policy.robots_groups import ALLOW, DISALLOW
from scrapy_walsh.policy.robots_match import LENGTHS, Hit, Index, Rule
from scrapy_walsh.policy.robots_paths import as_octets

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from scrapy_walsh.policy.robots_groups import Selection

AS_WRITTEN: Final = "value as written"
WITH_SLASH: Final = "value with a leading /"
AS_TEXT: Final = "escapes as text"
AS_OCTETS: Final = "escapes as octets"
DOLLAR: Final = "$ counted"

Readings = tuple[tuple[str, bool], ...]


class Finding(NamedTuple):
    """What the strict layer says: the rule that decided, if any, and the answer by reading.

    ``readings`` is empty where they all agree.
    """

    denied: bool
    rule: Rule | None
    readings: Readings = ()


_NOTHING: Final = Finding(denied=False, rule=None)


class RuleSet:
    """The rules of a token in one file; :meth:`judge` holds a path against them."""

    __slots__ = ("_bare", "_octets", "_text", "_variants")

    def __init__(self, selections: Sequence[Selection]) -> None:
        values = _value_readings(selections)
        self._variants = [
            _label(selection.reading * (len(selections) > 1), value)
            for selection in selections
            for value in values
        ]
        rules = _rules(selections, len(values))
        escaped = [rule for rule in rules if "%" in rule.body]
        self._bare = Index(rule for rule in rules if "%" not in rule.body)
        self._text = Index(escaped)
        self._octets = Index(rule.in_octets() for rule in escaped)

    def judge(self, path: str) -> Finding:
        """The finding for one form of a path (``robots_paths.forms``); raises TooCostly."""
        if "%" not in path:
            # A value with an escape cannot match here, and text and octets are one.
            return self._weigh(self._bare.hits(path))
        octets = as_octets(path)
        return combine(
            {
                AS_TEXT: self._weigh(self._bare.hits(path) + self._text.hits(path)),
                AS_OCTETS: self._weigh(self._bare.hits(octets) + self._octets.hits(octets)),
            }
        )

    def _weigh(self, hits: list[Hit]) -> Finding:
        if not hits:
            return _NOTHING
        if len({hit.rule.allow for hit in hits}) == 1 and len(self._variants) == 1:
            rule = max(hits, key=_octets).rule
            return Finding(not rule.allow, rule)
        answers = dict(self._answers(hits))
        denying = next((rule for rule in answers.values() if rule and not rule.allow), None)
        rule = denying or max(hits, key=lambda hit: (hit.rule.allow, *_octets(hit))).rule
        readings = tuple((name, not by or by.allow) for name, by in answers.items())
        return Finding(denying is not None, rule, _differing(readings))

    def _answers(self, hits: list[Hit]) -> Iterator[tuple[str, Rule | None]]:
        """The rule that wins in each reading of names, values and lengths."""
        anchors = any(hit.rule.anchored for hit in hits)
        for bit, variant in enumerate(self._variants):
            here = [hit for hit in hits if hit.rule.variants >> bit & 1]
            for dollar in (False, True)[: 1 + anchors]:
                winners = _winners(here, dollar)
                for length, winner in zip(LENGTHS, winners, strict=True):
                    yield _label(variant, length, DOLLAR * dollar), winner


def combine(findings: dict[str, Finding]) -> Finding:
    """One finding of several, by name: denied if one is, with the rule of the first that is."""
    chosen = max(findings.values(), key=lambda finding: (finding.denied, finding.rule is not None))
    readings = tuple(
        (_label(name, reading), answer)
        for name, finding in findings.items()
        for reading, answer in finding.readings or (("", not finding.denied),)
    )
    return Finding(chosen.denied, chosen.rule, _differing(readings))


def _winners(hits: list[Hit], dollar: bool) -> list[Rule | None]:
    """The longest match by each of ``LENGTHS``; on a tie Allow, then the first line."""
    if not hits:
        return [None] * len(LENGTHS)
    lengths = [hit.lengths(dollar) for hit in hits]
    ties = [(hit.rule.allow, -hit.rule.line) for hit in hits]
    return [
        hits[max(zip(column, ties, range(len(hits)), strict=True))[2]].rule
        for column in zip(*lengths, strict=True)
    ]


def _octets(hit: Hit) -> tuple[int, int]:
    return len(hit.rule.body), -hit.rule.line


def _label(*parts: str) -> str:
    return ", ".join(filter(None, parts))


def _differing(readings: Readings) -> Readings:
    return readings if len({answer for _, answer in readings}) > 1 else ()


def _rule_lines(selection: Selection) -> Iterator[tuple[bool, str, int]]:
    for kind, value, line in selection.lines:
        if value and kind in {ALLOW, DISALLOW}:  # an empty value matches nothing (9.1.4)
            yield kind == ALLOW, value, line


def _value_readings(selections: Sequence[Selection]) -> tuple[str, ...]:
    bare = any(value[0] != "/" for each in selections for _, value, _ in _rule_lines(each))
    return (AS_WRITTEN, WITH_SLASH) if bare else ("",)


def _rules(selections: Sequence[Selection], width: int) -> Iterable[Rule]:
    rules: dict[tuple[bool, str], Rule] = {}
    for which, selection in enumerate(selections):
        for allow, value, line in _rule_lines(selection):
            for shape, text in _spellings(value, width):
                rule = rules.get((allow, text))
                if rule is None:
                    rule = rules[allow, text] = Rule(allow, text, line, selection.names)
                rule.variants |= 1 << (which * width + shape)
    return rules.values()


def _spellings(value: str, width: int) -> Iterable[tuple[int, str]]:
    if value[0] == "/":
        return enumerate((value,) * width)
    # As written, only a star at the front can stand for the slash of every path.
    return enumerate((value, "/" + value)) if value[0] == "*" else ((1, "/" + value),)
