"""R3: a set of domain names that may be a million: little memory, no long step, a quick look-up.

A name is known by its 64-bit mark, in a table that is two thirds empty or more. One read then
answers most questions, where a dict's takes four places in memory. Two names with one mark would
be one name: of a million names and one host, once in 10^12, and then the host is refused, so no
opt-out is ever lost. The names themselves are kept as text, for who asks what is listed.
"""

from __future__ import annotations

from sys import hash_info
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_SPARE: Final = 3  # places for each name, at the least
_PART: Final = 2_000  # names; no step over one part is long


def _wide_mark(name: str) -> int:
    return (hash(name) << 31) ^ hash(f"{name}.")


_mark: Final = hash if hash_info.width >= 64 else _wide_mark
_NOWHERE: Final = memoryview(bytes(8)).cast("q")


def zeros(octets: int) -> memoryview:
    """Memory that is filled with zeros in one step: for a million names some 10 ms."""
    return memoryview(bytearray(octets))


class Domains:
    """Normalised names; ``len`` counts them, and iteration yields each once, in their order."""

    __slots__ = ("_count", "_mask", "_parts", "_table")

    def __init__(self) -> None:
        self._count = 0
        self._parts: list[str] = []
        self._table, self._mask = _NOWHERE, 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        for names in self.parts():
            yield from names

    def parts(self) -> Iterator[list[str]]:
        """Yield all names, part by part, whether or not somebody still holds the set."""
        return (part.split("\n") for part in self._parts)

    def covering(self, host: str) -> str | None:
        """Return the longest name that ``host`` equals or is below, by label, or None."""
        table, mask = self._table, self._mask
        name = host
        while name:
            mark = _mark(name) or 1
            place = mark & mask
            while held := table[place]:
                if held == mark:
                    return name
                place = (place + 1) & mask
            name = name.partition(".")[2]
        return None

    def add(self, names: Iterable[str]) -> None:
        """Add names that are not there yet."""
        coming = list(names)
        self.reserve(self._count + len(coming))
        for start in range(0, len(coming), _PART):
            added = self._put(coming[start : start + _PART])
            self._count += len(added)
            self._parts.extend(["\n".join(added)] if added else [])

    def reserve(self, count: int, memory: Callable[[int], memoryview] = zeros) -> None:
        """Have a table for ``count`` names, so that adding them never moves those there are.

        ``memory`` gives so many octets, all zero: a caller that no long step may hold up has
        memory that the system zeroes page by page.
        """
        if count * _SPARE <= len(self._table):
            return
        places = 1 << (count * _SPARE - 1).bit_length()
        self._table, self._mask = memory(places * 8).cast("q"), places - 1
        for names in self.parts():
            self._put(names)

    def _put(self, names: list[str]) -> list[str]:
        """Put names into the table, and return those that were not in it."""
        table, mask = self._table, self._mask
        added = []
        for name in names:
            mark = _mark(name) or 1
            place = mark & mask
            while (held := table[place]) and held != mark:
                place = (place + 1) & mask
            if not held:
                table[place] = mark
                added.append(name)
        return added
