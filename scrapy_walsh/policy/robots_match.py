"""R2: which rules of a robots.txt match a path, and how much of it each covers (9.1.4).

Nothing here backtracks: the first and the last place where a pattern can end are found by
searches from the left and one from the right, each going on where the last one stopped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

LENGTHS: Final = ("each * at its most", "each * at its least", "the pattern's octets")
"""What counts as the length of a match (T2); a final ``$`` counts in each."""

_PIECE: Final = 3
_FEW: Final = 100
"""Rules that are tried without a sum of what they cost."""
_LIGHT: Final = 2_000_000
"""Octets of starred rules x octets of a path that need no such sum, either."""
_MAX_COST: Final = 30_000_000
"""Octets compared, about, in one decision; beyond it the answer is no (T40)."""
_RULE_COST: Final = 2_000
_PART_COST: Final = 100
_RFIND_COST: Final = 100_000


class TooCostly(Exception):
    """No answer within :data:`_MAX_COST`."""


class Match(NamedTuple):
    """A rule that matches: its kind and text as written, and its :data:`LENGTHS` in characters."""

    allow: bool
    text: str
    lengths: tuple[int, int, int]


class Pattern(NamedTuple):
    """A rule as it is held against paths.

    ``prefix``: its text before the first star. ``parts``: the texts after each run of stars, the
    last one empty where a star ends the rule. ``piece``: the beginning of the last text, which
    every path that matches has. ``size``: of the whole, in characters.
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
        """``text``: the value as written. ``body``: its spelling in paths, without the anchor."""
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
        """The match of a path that starts with ``prefix``, if it is one."""
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
        """Where the last part, from ``begin`` on, ends at the least and at the most."""
        last, whole = self.parts[-1], len(path)
        if self.anchored:
            return (whole, whole) if path.endswith(last, begin) else None
        if not last:
            return begin, whole
        start = path.find(last, begin)
        return None if start < 0 else (start + len(last), _rightmost(path, last, start) + len(last))

    def cost(self, path: str) -> int:
        """An upper bound of the work of :meth:`match`, in octets compared."""
        longest = max(map(len, self.parts), default=0)
        return longest * len(path) + _PART_COST * len(self.parts) + _RULE_COST


def _rightmost(path: str, part: str, start: int) -> int:
    # str.rfind may compare |path| x |part| octets; str.find does not.
    if len(path) * len(part) < _RFIND_COST:
        return path.rfind(part, start)
    return len(path) - len(part) - path[::-1].find(part[::-1])


class Index:
    """Patterns by their text before the first star: one look-up for each length in use."""

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
        """The patterns that match, in no order; raises TooCostly."""
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
    return {path[i : i + n] for n in range(_PIECE + 1) for i in range(len(path))}
