"""R2: which rules of a robots.txt match a path, and which of them wins (9.1.4).

Nothing here backtracks: the first and the last place where a pattern can end are found by
searches from the left and one from the right, each going on where the last one stopped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

LENGTHS: Final = ("each * at its most", "each * at its least", "the pattern's octets")
"""What counts as the length of a match (T2); a final ``$`` counts in each."""

_CROWD: Final = 100
"""From so many rules with one beginning, they are looked up by a piece of their text."""
_PIECE: Final = 3
_MAX_COST: Final = 30_000_000
"""Octets compared, about, in one decision; beyond it the answer is no (T40)."""
_LIGHT: Final = 2_000_000
"""Octets of starred rules x octets of a path that need no look-up and no sum of costs."""
_RULE_COST: Final = 2_000
_PART_COST: Final = 100
_RFIND_COST: Final = 100_000


class TooCostly(Exception):
    """No answer within :data:`_MAX_COST`."""


class Rule:
    """One Allow or Disallow. ``variants`` has a bit for each reading of the file that has it.

    ``body`` is the value in the spelling of paths, without the anchor; ``prefix`` its text
    before the first star, ``piece`` one that a path must have, ``next`` another rule with that
    prefix. What only a match needs is worked out then.
    """

    __slots__ = (
        "_longest",
        "_parts",
        "allow",
        "anchored",
        "body",
        "line",
        "names",
        "next",
        "piece",
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
        self._parts: tuple[str, ...] | None = None

    def spelt(self, body: str) -> None:
        """Take *body*, which :func:`normalize_values` made, or its octets."""
        self.body = self.prefix = body
        self.piece = ""
        if "*" in body:
            self.prefix = body.partition("*")[0]
            # The beginning of the last text between stars.
            self.piece = body.rstrip("*").rpartition("*")[2][:_PIECE]
        self.next: Rule | None = None

    def in_octets(self, body: str) -> Rule:
        """This rule, to be held against a path with one character an octet."""
        twin = Rule(self.allow, self.text, self.line, self.names)
        twin.spelt(body)
        twin.variants = self.variants
        return twin

    @property
    def parts(self) -> tuple[str, ...]:
        """The texts after each run of stars, the last one empty where a star ends the rule."""
        if self._parts is None:
            _, *parts = self.body.split("*")
            self._parts = (*filter(None, parts[:-1]), *parts[-1:])
            self._longest = max(map(len, self._parts), default=0)
        return self._parts

    def cost(self, path: str) -> int:
        """An upper bound of the work of :meth:`span`, in octets compared."""
        parts = self.parts
        return self._longest * len(path) + _PART_COST * len(parts) + _RULE_COST

    def span(self, path: str) -> tuple[int, int] | None:
        """The least and the most characters covered of a path that starts with ``prefix``."""
        end = len(self.prefix)
        parts = self.parts
        if not parts:
            return None if self.anchored and end != len(path) else (end, end)
        for part in parts[:-1]:
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

    def lengths(self) -> tuple[int, ...]:
        """How long the match is by each of :data:`LENGTHS`."""
        anchor = self.rule.anchored
        return (self.most + anchor, self.least + anchor, len(self.rule.body) + anchor)


class Index:
    """Rules by their text before the first star: a look-up for each length in use."""

    __slots__ = ("_buckets", "_crowds", "_prefixes", "_sizes", "_starred")

    def __init__(self, rules: Iterable[Rule]) -> None:
        # No list for each prefix: a hostile file has as many as rules, and making so many
        # objects keeps the garbage collector busy.
        buckets = self._buckets = dict[str, Rule]()
        many: dict[str, int] = {}
        self._starred = 0
        for rule in rules:
            prefix = rule.prefix
            if prefix is not rule.body:
                self._starred += len(rule.body)
            if prefix in buckets:
                rule.next = buckets[prefix]
                many[prefix] = many.get(prefix, 1) + 1
            buckets[prefix] = rule
        self._prefixes = tuple(buckets)
        self._sizes = sorted(set(map(len, self._prefixes)))
        crowded = [prefix for prefix, count in many.items() if count > _CROWD]
        self._crowds = {prefix: _by_piece(buckets.pop(prefix)) for prefix in crowded}

    def hits(self, path: str) -> list[Hit]:
        """The rules that match, in no order; raises TooCostly."""
        if not path.startswith(self._prefixes):
            return []
        if not self._crowds and self._starred * len(path) < _LIGHT:
            rules = list(self._candidates(path, path))
        else:
            pieces = {path[i : i + n] for n in range(_PIECE + 1) for i in range(len(path))}
            rules = [*self._candidates(path, pieces), *self._crowd_candidates(path, pieces)]
            if sum(rule.cost(path) for rule in rules) > _MAX_COST:
                raise TooCostly
        return [Hit(rule, *span) for rule in rules if (span := rule.span(path))]

    def _candidates(self, path: str, pieces: Container[str]) -> Iterator[Rule]:
        """The rules whose beginning and piece the path has; no other can match."""
        buckets = self._buckets
        return (
            rule
            for size in self._sizes
            if (first := buckets.get(path[:size])) is not None
            for rule in _chain(first)
            if rule.piece in pieces
        )

    def _crowd_candidates(self, path: str, pieces: set[str]) -> Iterator[Rule]:
        for size in self._sizes:
            crowd = self._crowds.get(path[:size], {})
            for piece in crowd.keys() & pieces:
                yield from crowd[piece]


def _chain(rule: Rule | None) -> Iterator[Rule]:
    while rule is not None:
        yield rule
        rule = rule.next


def _by_piece(first: Rule) -> dict[str, list[Rule]]:
    pieces: dict[str, list[Rule]] = {}
    for rule in _chain(first):
        pieces.setdefault(rule.piece, []).append(rule)
    return pieces
