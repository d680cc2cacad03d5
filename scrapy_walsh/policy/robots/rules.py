"""R2: weighs the rules that match a path, once for each reading of the robots.txt (9.1.4, D1).

The text leaves four questions open: what a group's name is (``groups``), whether a value
without a leading ``/`` should have one, whether an escape is text or an octet (``paths``),
and how long a match is (T2, ``match``). A *reading* is one answer to each of them, applied
to Allow and Disallow alike. In each reading the longest match wins, on a tie an Allow. The path is
refused if one reading refuses it.

Each pair of answers to the first two questions has a :class:`Table` of rules. All tables share two
indexes of patterns, one with escapes as text and one with them as octets. So a path is matched
twice at most, and each match is then weighed in every table that has its rule. Rules of plain text,
which most rules in most files are, need no index: a path looks up its own beginnings in a set.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from scrapy_walsh.policy.robots.groups import ALLOW, DISALLOW
from scrapy_walsh.policy.robots.match import LENGTHS, Index, Match, Pattern, TooCostly
from scrapy_walsh.policy.robots.paths import as_octets, is_plain, normalize_values

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from scrapy_walsh.policy.robots.groups import Line, Selection

#: The names of readings, as verdicts show them.
AS_WRITTEN: Final = "value as written"
WITH_SLASH: Final = "value with a leading /"
AS_TEXT: Final = "escapes as text"
AS_OCTETS: Final = "escapes as octets"

#: Rules that are not plain text. Of more no index is made, and the answer is no (T40).
_MAX_PATTERNS: Final = 20_000

#: The answer of each reading: its name, and whether it allows the path.
Readings = tuple[tuple[str, bool], ...]


class Rule(NamedTuple):
    """An Allow or a Disallow: its value, its line's number from 1, the names of its group."""

    allow: bool
    text: str
    line: int
    names: tuple[str, ...]


class Ruling(NamedTuple):
    """What the strict layer says about a path.

    ``rule``: the one that decided, None if none matches. ``readings``: the answers, empty if all
    readings agree.
    """

    denied: bool
    rule: Rule | None
    readings: Readings = ()


_NOTHING: Final = Ruling(denied=False, rule=None)


class Table(NamedTuple):
    """The rules of a token by one reading of names and values.

    ``reading``: its name. ``names``: of the group. ``allowed``, ``disallowed``: by a rule's text,
    the number of the first line that has it.
    """

    reading: str
    names: tuple[str, ...]
    allowed: dict[str, int]
    disallowed: dict[str, int]

    def lines(self, allow: bool) -> dict[str, int]:
        """The Allow lines, or the Disallow lines."""
        return self.allowed if allow else self.disallowed

    def first_lines_of(self, other: Table) -> Table:
        """This table with the line numbers of *other* where both have a text.

        So a rule has the same line in both, and is the same rule to who compares them.
        """
        allowed, disallowed = (
            {text: other.lines(allow).get(text, line) for text, line in self.lines(allow).items()}
            for allow in (True, False)
        )
        return self._replace(allowed=allowed, disallowed=disallowed)

    def answers(self, matches: list[Match]) -> list[tuple[str, Rule | None]]:
        """The name of each reading, with the rule that wins in it; None if no rule matches.

        There is a reading for each of LENGTHS (T2), but only one where all of them agree.
        """
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
    """The rule with the longest match by one of LENGTHS; on a tie an Allow, then the first line."""
    return max(having, key=lambda pair: (pair[0][which], pair[1].allow, -pair[1].line))[1]


class RuleSet:
    """The rules of a token in one file; :meth:`judge` says what they mean for a path.

    ``_tables``: one for each reading of names and values. ``_kinds``: the texts of all Allows and
    of all Disallows. ``_plain``: those that are plain, and ``_sizes`` their lengths. ``_by_text``,
    ``_by_octets``: the indexes of all others. ``_too_many``: these are too many, so all is refused.
    """

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

    def judge(self, path: str) -> Ruling:
        """The finding for one form of a path (``paths.forms``); raises TooCostly."""
        if self._too_many:
            raise TooCostly
        plain = self._plain_matches(path)
        text = self._weigh([*plain, *self._by_text.matches(path)])
        if "%" not in path and "[" not in path and "]" not in path:
            return text  # only rules without an escape match here: both ways are the same
        octets = self._weigh([*plain, *self._by_octets.matches(as_octets(path))])
        return text if text == octets else combine({AS_TEXT: text, AS_OCTETS: octets})

    def _plain_matches(self, path: str) -> list[Match]:
        """The matches of the rules that are plain text: those that *path* begins with."""
        found = []
        for size in self._sizes:
            text = path[:size]
            if text in self._plain and size <= len(path):
                lengths = (size, size, size)
                found += [
                    Match(allow, text, lengths) for allow, kind in self._kinds if text in kind
                ]
        return found

    def _weigh(self, matches: list[Match]) -> Ruling:
        """The finding of all tables together: denied if one denies."""
        if not matches:
            return _NOTHING
        answers = [answer for table in self._tables for answer in table.answers(matches)]
        rules = [rule for _, rule in answers if rule]
        if not rules:
            return _NOTHING
        rule = next((rule for rule in rules if not rule.allow), rules[0])
        if len(answers) == 1:
            return Ruling(not rule.allow, rule)
        readings = tuple((name, by is None or by.allow) for name, by in answers)
        return Ruling(not rule.allow, rule, _differing(readings))


def combine(findings: dict[str, Ruling]) -> Ruling:
    """One finding from several, by name: denied if one is, with the rule of the first such one."""
    chosen = max(findings.values(), key=lambda finding: (finding.denied, finding.rule is not None))
    readings = tuple(
        (_label(name, reading), answer)
        for name, finding in findings.items()
        for reading, answer in finding.readings or (("", not finding.denied),)
    )
    return Ruling(chosen.denied, chosen.rule, _differing(readings))


def _are_too_many(lines: Sequence[Line], bare: bool) -> bool:
    """Whether more rules than _MAX_PATTERNS are not plain text.

    ``bare``: a value lacks its leading slash. Then each value is read twice, and all count.
    """
    if len(lines) <= _MAX_PATTERNS:
        return False
    return bare or sum([not is_plain(value) for _, value, _ in lines]) > _MAX_PATTERNS


def _tables(selections: Sequence[Selection], bare: bool) -> Iterator[Table]:
    """A table for each selection; two, if a value lacks its leading slash (``bare``)."""
    for selection in selections:
        name = selection.reading if len(selections) > 1 else ""
        if bare:
            slashed = _table(_label(name, WITH_SLASH), selection, _with_slash)
            yield _table(_label(name, AS_WRITTEN), selection, _as_written).first_lines_of(slashed)
            yield slashed
        else:
            yield _table(name, selection, str)


def _table(reading: str, selection: Selection, read: Callable[[str], str]) -> Table:
    """The table of *selection*; *read* makes a rule's text of its value.

    An empty text matches nothing (9.1.4) and is left out.
    """
    found: dict[str, dict[str, int]] = {ALLOW: {}, DISALLOW: {}}
    for kind, value, line in selection.lines:
        text = read(value)
        if text:
            found[kind].setdefault(text, line)
    return Table(reading, selection.names, found[ALLOW], found[DISALLOW])


def _as_written(value: str) -> str:
    """*value*; empty if it can match no path, since it begins with neither a slash nor a star."""
    return value if value[:1] in {"/", "*"} else ""


def _with_slash(value: str) -> str:
    return value if value[:1] in {"/", ""} else f"/{value}"


def _texts(tables: Sequence[Table], allow: bool) -> Collection[str]:
    """The texts of one kind of rule in any of the tables, each once."""
    if len(tables) == 1:
        return tables[0].lines(allow)
    return dict.fromkeys(chain.from_iterable(table.lines(allow) for table in tables))


def _indexes(allowed: list[str], disallowed: list[str]) -> tuple[Index, Index]:
    """The index of the rules with escapes as text, and that with escapes as octets."""
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
    """*readings*; empty if all have the same answer."""
    return readings if len({answer for _, answer in readings}) > 1 else ()
