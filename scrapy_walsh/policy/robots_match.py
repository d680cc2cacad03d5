"""R2: which rules of a robots.txt match a path, and which of them wins (9.1.4).

Nothing here backtracks: the first and the last place where a pattern can end are found by
searches from the left and one from the right, each going on where the last one stopped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from scrapy_walsh.policy.robots_paths import as_octets, normalize_value, utf8

if TYPE_CHECKING:
    from collections.abc import Iterable

LENGTHS: Final = (
    "each * at its most",
    "each * at its least",
    "the pattern's octets",
    "the pattern's octets as written",
)

_CROWD: Final = 100
"""From so many rules with one beginning, they are looked up by a piece of their text."""
_PIECE: Final = 3
_MAX_COST: Final = 40_000_000
"""Octets compared, about, in one decision; beyond it the answer is no (T40)."""
_RULE_COST: Final = 2_000
_PART_COST: Final = 100
_RFIND_COST: Final = 100_000


class TooCostly(Exception):  # noqa: N818  # a value that travels, not a fault
    """No answer within :data:`_MAX_COST`."""


class Rule:
    """One Allow or Disallow. ``variants`` has a bit for each reading of the file that has it.

    ``body`` is the value in the spelling of paths, without the anchor; ``prefix`` its text
    before the first star. What only a match needs is worked out then.
    """

    __slots__ = (
        "_parts",
        "allow",
        "anchored",
        "body",
        "line",
        "names",
        "prefix",
        "text",
        "variants",
    )

    def __init__(self, allow: bool, text: str, line: int, names: tuple[str, ...]) -> None:
        self.allow = allow
        self.text = text
        self.line = line
        self.names = names
        self.variants = 0
        # Only a final $ is an anchor; elsewhere it is a character.
        self.anchored = text[-1] == "$"
        self.body = normalize_value(text[:-1] if self.anchored else text)
        self.prefix = self.body.partition("*")[0]
        self._parts: tuple[str, ...] | None = None

    def in_octets(self) -> Rule:
        """This rule, to be held against a path with one character an octet."""
        twin = Rule(self.allow, "/", self.line, self.names)
        twin.text = self.text
        twin.variants = self.variants
        twin.anchored = self.anchored
        twin.body = as_octets(self.body)
        twin.prefix = twin.body.partition("*")[0]
        return twin

    @property
    def parts(self) -> tuple[str, ...]:
        """The texts after each run of stars, the last one empty where a star ends the rule."""
        if self._parts is None:
            _, *parts = self.body.split("*")
            self._parts = (*filter(None, parts[:-1]), *parts[-1:])
        return self._parts

    def cost(self, path: str) -> int:
        """An upper bound of the work of :meth:`span`, in octets compared."""
        longest = max(map(len, self.parts), default=0)
        return longest * len(path) + _PART_COST * len(self.parts) + _RULE_COST

    def span(self, path: str) -> tuple[int, int] | None:
        """The least and the most characters covered of a path that starts with ``prefix``."""
        end = len(self.prefix)
        if not self.parts:
            return None if self.anchored and end != len(path) else (end, end)
        for part in self.parts[:-1]:
            start = path.find(part, end)
            if start < 0:
                return None
            end = start + len(part)
        return self._last_span(path, end)

    def _last_span(self, path: str, end: int) -> tuple[int, int] | None:
        last, whole = self.parts[-1], len(path)
        if self.anchored:
            return (whole, whole) if path.endswith(last, end) else None
        if not last:
            return end, whole
        start = path.find(last, end)
        return None if start < 0 else (start + len(last), _rightmost(path, last, start) + len(last))


def _rightmost(path: str, part: str, start: int) -> int:
    # str.rfind may compare |path| x |part| octets; str.find does not.
    if len(path) * len(part) < _RFIND_COST:
        return path.rfind(part, start)
    return len(path) - len(part) - path[::-1].find(part[::-1])


class Hit(NamedTuple):
    """A rule that matches, and the least and the most characters that it covers."""

    rule: Rule
    least: int
    most: int

    def lengths(self, dollar: bool) -> tuple[int, ...]:
        """How long the match is by each of :data:`LENGTHS`, an anchor counted or not (T2)."""
        rule = self.rule
        plus = rule.anchored and dollar
        written = len(utf8(rule.text)) - rule.anchored
        return self.most + plus, self.least + plus, len(rule.body) + plus, written + plus


class Index:
    """Rules by their text before the first star: a look-up for each length in use."""

    __slots__ = ("_by_prefix", "_crowds", "_prefixes", "_sizes")

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._by_prefix: dict[str, list[Rule]] = {}
        for rule in rules:
            self._by_prefix.setdefault(rule.prefix, []).append(rule)
        self._prefixes = tuple(self._by_prefix)
        self._sizes = sorted(set(map(len, self._prefixes)))
        self._crowds = {
            prefix: _by_piece(crowd)
            for prefix, crowd in self._by_prefix.items()
            if len(crowd) > _CROWD
        }

    def hits(self, path: str) -> list[Hit]:
        """The rules that match, shortest beginning first; raises TooCostly."""
        if not path.startswith(self._prefixes):
            return []
        found = []
        for rule in self._candidates(path):
            span = rule.span(path)
            if span:
                found.append(Hit(rule, *span))
        return found

    def _candidates(self, path: str) -> list[Rule]:
        rules: list[Rule] = []
        for size in self._sizes:
            prefix = path[:size]
            if prefix in self._crowds:
                rules += _near(self._crowds[prefix], path)
            else:
                rules += self._by_prefix.get(prefix, ())
        if len(path) * len(rules) > _CROWD and sum(rule.cost(path) for rule in rules) > _MAX_COST:
            raise TooCostly
        return rules


def _by_piece(rules: list[Rule]) -> dict[str, list[Rule]]:
    pieces: dict[str, list[Rule]] = {}
    for rule in rules:
        last = rule.body.rstrip("*").rpartition("*")[2]
        pieces.setdefault(last[:_PIECE], []).append(rule)
    return pieces


def _near(crowd: dict[str, list[Rule]], path: str) -> list[Rule]:
    """The rules of a crowd with a piece that the path has too; no other can match."""
    pieces = {path[i : i + n] for n in range(_PIECE + 1) for i in range(len(path))}
    return [rule for piece in crowd.keys() & pieces for rule in crowd[piece]]
