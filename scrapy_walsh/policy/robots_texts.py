"""R2: the rules that are plain text, most of most files: no star, anchor, escape or odd character.

Such a rule matches what begins with its text, and covers just that in every reading (9.1.4). So
it is looked up as it stands, and a :class:`Rule` is made of it when a path has it: few ever are.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from scrapy_walsh.policy.robots_groups import ALLOW, DISALLOW
from scrapy_walsh.policy.robots_match import Hit, Rule
from scrapy_walsh.policy.robots_paths import is_plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy_walsh.policy.robots_groups import Selection

RuleLine = tuple[bool, str, int]
"""Whether it is an Allow, value, line number."""


class Table(NamedTuple):
    """The rules of one selection: plain texts, each with its first line, and the others."""

    names: tuple[str, ...]
    allowed: dict[str, int]
    disallowed: dict[str, int]
    others: list[RuleLine]

    def lines(self, allow: bool) -> dict[str, int]:
        return self.allowed if allow else self.disallowed


def tabulate(selections: Sequence[Selection]) -> list[Table]:
    """A table for each selection; an empty value matches nothing (9.1.4) and is in none."""
    found = [table for selection in selections if (table := _apart(selection))]
    return found if len(found) == len(selections) else list(map(_together, selections))


def _apart(selection: Selection) -> Table | None:
    """The plain texts apart, or None: with a slash, a value may be one and not by itself."""
    texts: dict[str, dict[str, int]] = {ALLOW: {}, DISALLOW: {}}
    others: list[RuleLine] = []
    for kind, value, line in selection.lines:
        if is_plain(value):
            texts[kind].setdefault(value, line)
        elif value:
            if value[0] not in "/*":
                return None
            others.append((kind == ALLOW, value, line))
    return Table(selection.names, texts[ALLOW], texts[DISALLOW], others)


def _together(selection: Selection) -> Table:
    others = [(kind == ALLOW, value, line) for kind, value, line in selection.lines if value]
    return Table(selection.names, {}, {}, others)


def all_readings(which: int, width: int) -> int:
    """The bits of the readings of a selection, by its number and how many each has."""
    return ((1 << width) - 1) << (which * width)


class Texts:
    """The plain texts of a file, looked up by each length in use."""

    __slots__ = ("_hits", "_sizes", "_tables", "_width")

    def __init__(self, tables: Sequence[Table], width: int) -> None:
        self._tables = tables
        self._width = width
        self._hits: dict[str, tuple[Hit, ...] | None] = dict.fromkeys(
            chain.from_iterable((*table.allowed, *table.disallowed) for table in tables)
        )
        self._sizes = sorted(set(map(len, self._hits)))

    def hits(self, path: str) -> list[Hit]:
        """The rules that match, in no order."""
        found: list[Hit] = []
        for size in self._sizes:
            text = path[:size]
            if text in self._hits and size <= len(path):
                found += self._hits[text] or self._made(text)
        return found

    def _made(self, text: str) -> tuple[Hit, ...]:
        rules = filter(None, (self._rule(text, allow) for allow in (True, False)))
        hits = self._hits[text] = tuple(Hit(rule, len(text), len(text)) for rule in rules)
        return hits

    def _rule(self, text: str, allow: bool) -> Rule | None:
        having = [n for n, table in enumerate(self._tables) if text in table.lines(allow)]
        if not having:
            return None
        first = self._tables[having[0]]
        rule = Rule(allow, text, first.lines(allow)[text], first.names)
        rule.spelt(text)
        rule.variants = sum(all_readings(number, self._width) for number in having)
        return rule
