"""R2: a table of rules for each reading of a robots.txt, and the answer of each (design D1).

A reading is one way through the text's open questions: what a group's name is, whether a value
without a leading ``/`` has one, whether an escape is text or an octet, how long a match is (T2).
Each is applied to Allow and Disallow alike; one that denies is enough.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from scrapy_walsh.policy.robots_groups import ALLOW, DISALLOW
from scrapy_walsh.policy.robots_match import LENGTHS, Index, Match, Pattern, TooCostly
from scrapy_walsh.policy.robots_paths import as_octets, is_plain, normalize_values

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from scrapy_walsh.policy.robots_groups import Line, Selection

AS_WRITTEN: Final = "value as written"
WITH_SLASH: Final = "value with a leading /"
AS_TEXT: Final = "escapes as text"
AS_OCTETS: Final = "escapes as octets"

_MAX_PATTERNS: Final = 20_000
"""Rules that are not plain text. Of more no index is made, and the answer is no (T40)."""

Readings = tuple[tuple[str, bool], ...]


class Rule(NamedTuple):
    """One Allow or Disallow: its value, its line from 1, the names of its group."""

    allow: bool
    text: str
    line: int
    names: tuple[str, ...]


class Finding(NamedTuple):
    """What the strict layer says: the rule that decided, if any, and the answer by reading.

    ``readings`` is empty where they all agree.
    """

    denied: bool
    rule: Rule | None
    readings: Readings = ()


_NOTHING: Final = Finding(denied=False, rule=None)


class Table(NamedTuple):
    """The rules that one reading of the names and values has: the first line of each text."""

    reading: str
    names: tuple[str, ...]
    allowed: dict[str, int]
    disallowed: dict[str, int]

    def lines(self, allow: bool) -> dict[str, int]:
        """The Allow lines, or the Disallow lines."""
        return self.allowed if allow else self.disallowed

    def first_lines_of(self, other: Table) -> Table:
        """This table, with the other's line where a text is in both: one rule has one line."""
        allowed, disallowed = (
            {text: other.lines(allow).get(text, line) for text, line in self.lines(allow).items()}
            for allow in (True, False)
        )
        return self._replace(allowed=allowed, disallowed=disallowed)

    def answers(self, matches: list[Match]) -> list[tuple[str, Rule | None]]:
        """The rule that wins by each length (T2), under the reading's name; one if they agree."""
        having = [
            (match.lengths, Rule(match.allow, match.text, line, self.names))
            for match in matches
            if (line := self.lines(match.allow).get(match.text)) is not None
        ]
        if not having:
            return [(self.reading, None)]
        if len(having) == 1:
            return [(self.reading, having[0][1])]
        winners = [_longest(having, which) for which in range(len(LENGTHS))]
        if len({rule.allow for rule in winners}) == 1:
            return [(self.reading, winners[0])]
        return [
            (_label(self.reading, name), rule) for name, rule in zip(LENGTHS, winners, strict=True)
        ]


def _longest(having: list[tuple[tuple[int, int, int], Rule]], which: int) -> Rule:
    """The longest match by one length; on a tie Allow, then the first line."""
    return max(having, key=lambda pair: (pair[0][which], pair[1].allow, -pair[1].line))[1]


class RuleSet:
    """The rules of a token in one file; :meth:`judge` holds a path against them."""

    __slots__ = ("_by_octets", "_by_text", "_kinds", "_plain", "_sizes", "_tables", "_too_many")

    def __init__(self, selections: Sequence[Selection]) -> None:
        lines = [line for selection in selections for line in selection.lines if line[1]]
        bare = any(value[0] != "/" for _, value, _ in lines)
        self._too_many = _are_too_many(lines, bare)
        self._tables = [] if self._too_many else list(_tables(selections, bare))
        self._kinds = [(allow, _texts(self._tables, allow)) for allow in (True, False)]
        plain = {text for _, kind in self._kinds for text in kind if is_plain(text)}
        self._plain = plain
        self._sizes = sorted(set(map(len, plain)))
        allowed, disallowed = ([t for t in kind if t not in plain] for _, kind in self._kinds)
        if len(allowed) + len(disallowed) > _MAX_PATTERNS:
            self._too_many, allowed, disallowed = True, [], []
        self._by_text, self._by_octets = _indexes(allowed, disallowed)

    def judge(self, path: str) -> Finding:
        """The finding for one form of a path (``robots_paths.forms``); raises TooCostly."""
        if self._too_many:
            raise TooCostly
        plain = self._plain_matches(path)
        text = self._weigh([*plain, *self._by_text.matches(path)])
        if "%" not in path and "[" not in path and "]" not in path:
            return text  # a value with an escape cannot match here, and text and octets are one
        octets = self._weigh([*plain, *self._by_octets.matches(as_octets(path))])
        return text if text == octets else combine({AS_TEXT: text, AS_OCTETS: octets})

    def _plain_matches(self, path: str) -> list[Match]:
        """The rules that are plain text; most rules of most files are."""
        found = []
        for size in self._sizes:
            text = path[:size]
            if text in self._plain and size <= len(path):
                lengths = (size, size, size)
                found += [
                    Match(allow, text, lengths) for allow, kind in self._kinds if text in kind
                ]
        return found

    def _weigh(self, matches: list[Match]) -> Finding:
        """What the tables say together: denied if one denies."""
        if not matches:
            return _NOTHING
        answers = [answer for table in self._tables for answer in table.answers(matches)]
        rules = [rule for _, rule in answers if rule]
        if not rules:
            return _NOTHING
        rule = next((rule for rule in rules if not rule.allow), rules[0])
        if len(answers) == 1:
            return Finding(not rule.allow, rule)
        readings = tuple((name, by is None or by.allow) for name, by in answers)
        return Finding(not rule.allow, rule, _differing(readings))


def combine(findings: dict[str, Finding]) -> Finding:
    """One finding of several, by name: denied if one is, with the rule of the first that is."""
    chosen = max(findings.values(), key=lambda finding: (finding.denied, finding.rule is not None))
    readings = tuple(
        (_label(name, reading), answer)
        for name, finding in findings.items()
        for reading, answer in finding.readings or (("", not finding.denied),)
    )
    return Finding(chosen.denied, chosen.rule, _differing(readings))


def _are_too_many(lines: Sequence[Line], bare: bool) -> bool:
    """Whether more rules are no plain text than are looked up; ``bare``: each is read twice."""
    if len(lines) <= _MAX_PATTERNS:
        return False
    return bare or sum([not is_plain(value) for _, value, _ in lines]) > _MAX_PATTERNS


def _tables(selections: Sequence[Selection], bare: bool) -> Iterator[Table]:
    """A table for each selection, two where a value is ``bare`` of a leading slash."""
    for selection in selections:
        name = selection.reading if len(selections) > 1 else ""
        if bare:
            slashed = _table(_label(name, WITH_SLASH), selection, _with_slash)
            yield _table(_label(name, AS_WRITTEN), selection, _as_written).first_lines_of(slashed)
            yield slashed
        else:
            yield _table(name, selection, str)


def _table(reading: str, selection: Selection, read: Callable[[str], str]) -> Table:
    """The lines by text; an empty value matches nothing (9.1.4) and is not in it."""
    found: dict[str, dict[str, int]] = {ALLOW: {}, DISALLOW: {}}
    for kind, value, line in selection.lines:
        text = read(value)
        if text:
            found[kind].setdefault(text, line)
    return Table(reading, selection.names, found[ALLOW], found[DISALLOW])


def _as_written(value: str) -> str:
    """The value, or "" where it matches no path: only a star can stand for the first slash."""
    return value if value[:1] in {"/", "*"} else ""


def _with_slash(value: str) -> str:
    return value if value[:1] in {"/", ""} else f"/{value}"


def _texts(tables: Sequence[Table], allow: bool) -> Collection[str]:
    """The texts of one kind of rule in any of the tables, each once."""
    if len(tables) == 1:
        return tables[0].lines(allow)
    return dict.fromkeys(chain.from_iterable(table.lines(allow) for table in tables))


def _indexes(allowed: list[str], disallowed: list[str]) -> tuple[Index, Index]:
    """The rules in the spelling of paths, and the same with one character for an octet."""
    kinds = [True] * len(allowed) + [False] * len(disallowed)
    values = allowed + disallowed
    bodies = normalize_values([value[:-1] if value[-1] == "$" else value for value in values])
    by_text = Index(map(Pattern.of, kinds, values, bodies))
    joined = "\n".join(bodies)
    if "%" not in joined:
        return by_text, by_text
    return by_text, Index(map(Pattern.of, kinds, values, as_octets(joined).split("\n")))


def _label(*parts: str) -> str:
    return ", ".join(filter(None, parts))


def _differing(readings: Readings) -> Readings:
    return readings if len({answer for _, answer in readings}) > 1 else ()
