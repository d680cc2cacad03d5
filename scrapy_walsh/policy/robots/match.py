"""R2: which rules of a robots.txt match a path, and how long each match is (9.1.4).

A rule with stars is cut at them. To match a path, its pieces must follow each other in it. Each is
searched from the left, beginning where the one before it ended: that finds the first place where
the rule can end. One search from the right finds the last place. These two give the shortest and
the longest match (T2). Nothing backtracks: a match costs at most path x rule, however many ways
there are to spread the stars over the path, of which a hostile file could make billions (T40).

A file may have 20,000 rules. So :class:`Index` looks up by a path's beginnings which of them can
match at all, adds up what matching these would cost, and raises :class:`TooCostly` beyond a limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

#: What may count as the length of a match (T2). A final ``$`` adds one to each.
LENGTHS: Final = ("each * at its most", "each * at its least", "the pattern's octets")

#: Characters of ``Pattern.piece``.
_PIECE: Final = 3
#: So many rules, and so many characters of starred rules x characters of a path, are tried without
#: adding up what they cost.
_FEW: Final = 100
_LIGHT: Final = 2_000_000
#: What one decision may cost, in characters compared. Beyond it the answer is no (T40).
_MAX_COST: Final = 30_000_000
#: What trying a rule costs in itself, and each of its parts, in the same unit.
_RULE_COST: Final = 2_000
_PART_COST: Final = 100
#: Characters that ``str.rfind`` may compare; beyond that a reversed copy is searched.
_RFIND_COST: Final = 100_000


class TooCostly(Exception):
    """Matching would cost more than one decision may, so the caller refuses (T40)."""


class Match(NamedTuple):
    """A rule that matches a path: its kind, its text as written, and its lengths by LENGTHS."""

    allow: bool
    text: str
    lengths: tuple[int, int, int]


class Pattern(NamedTuple):
    """A rule, prepared to be matched with paths.

    ``text``: as written. ``prefix``: what comes before the first star. ``parts``: what comes after
    each run of stars; the last is empty where a star ends the rule. ``anchored``: it ends in ``$``.
    ``piece``: the first characters of its last text, for a quick check, since every path that
    matches contains them. ``size``: characters of the whole.
    """

    allow: bool
    text: str
    prefix: str
    parts: tuple[str, ...]
    anchored: bool
    piece: str
    size: int

    @classmethod
    def of(cls, allow: bool, text: str, body: str) -> Pattern:
        """Prepare a rule. ``text``: its value as written. ``body``: spelt like paths, without $."""
        anchored = text[-1] == "$"  # only a final $ is an anchor; elsewhere it is a character
        size = len(body) + anchored
        prefix, star, rest = body.partition("*")
        if not star:
            return cls(allow, text, body, (), anchored, "", size)
        parts = rest.split("*")
        last = parts.pop()
        texts = filter(None, parts) if "" in parts else parts
        piece = rest.rstrip("*").rpartition("*")[2][:_PIECE]
        return cls(allow, text, prefix, (*texts, last), anchored, piece, size)

    def match(self, path: str) -> Match | None:
        """The match with *path*, None if there is none. *path* must start with ``prefix``."""
        begin = len(self.prefix)
        if not self.parts:
            if self.anchored and begin != len(path):
                return None
            return Match(self.allow, self.text, (self.size, self.size, self.size))
        for part in self.parts[:-1]:
            start = path.find(part, begin)
            if start < 0:
                return None
            begin = start + len(part)
        ends = self._ends(path, begin)
        if ends is None:
            return None
        least, most = ends[0] + self.anchored, ends[1] + self.anchored
        return Match(self.allow, self.text, (most, least, self.size))

    def _ends(self, path: str, begin: int) -> tuple[int, int] | None:
        """The first and the last place where the last part, at or after *begin*, can end."""
        last, whole = self.parts[-1], len(path)
        if self.anchored:
            return (whole, whole) if path.endswith(last, begin) else None
        if not last:
            return begin, whole
        start = path.find(last, begin)
        return None if start < 0 else (start + len(last), _rightmost(path, last, start) + len(last))

    def cost(self, path: str) -> int:
        """An upper bound of what :meth:`match` costs, in characters compared."""
        longest = max(map(len, self.parts), default=0)
        return longest * len(path) + _PART_COST * len(self.parts) + _RULE_COST


def _rightmost(path: str, part: str, start: int) -> int:
    """Where *part* last begins in *path*, at or after *start*. It does occur there."""
    # str.rfind may compare len(path) x len(part) characters, str.find never does.
    if len(path) * len(part) < _RFIND_COST:
        return path.rfind(part, start)
    return len(path) - len(part) - path[::-1].find(part[::-1])


class Index:
    """Patterns by their text before the first star, so that a path finds those that can match.

    A look-up takes a dictionary access for each length that such texts have.
    """

    __slots__ = ("_buckets", "_sizes", "_starred")

    def __init__(self, patterns: Iterable[Pattern]) -> None:
        self._buckets: dict[str, list[Pattern]] = {}
        self._starred = 0
        for pattern in patterns:
            self._buckets.setdefault(pattern.prefix, []).append(pattern)
            if pattern.parts:
                self._starred += pattern.size
        self._sizes = sorted(set(map(len, self._buckets)))

    def matches(self, path: str) -> list[Match]:
        """The matches of the patterns with *path*, in no order. Raises TooCostly."""
        buckets = self._buckets
        near: list[Pattern] = []
        for size in self._sizes:
            near += buckets.get(path[:size], ())
        light = len(near) <= _FEW and self._starred * len(path) < _LIGHT
        pieces = path if light else _pieces(path)
        near = [pattern for pattern in near if pattern.piece in pieces]
        if not light and sum([pattern.cost(path) for pattern in near]) > _MAX_COST:
            raise TooCostly
        return [match for pattern in near if (match := pattern.match(path)) is not None]


def _pieces(path: str) -> set[str]:
    """All texts of at most _PIECE characters that *path* contains."""
    return {path[i : i + n] for n in range(_PIECE + 1) for i in range(len(path))}
