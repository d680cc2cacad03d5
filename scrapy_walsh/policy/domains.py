"""R3: a set of a million domain names: little memory, quick look-ups, and no step that takes long.

A Python set has an object for each name, and holds up the event loop while it grows. So this is a
hash table of our own: an array of 64-bit hashes of names, with open addressing, at least two thirds
of it empty. Most look-ups then read one place in memory, where a set reads about four. Two names
with the same hash count as one. For a million names and one host that happens once in 10^12, and
then a host is refused that is not listed: no opt-out is ever lost. The names themselves are kept as
text, in parts, so that the set can be listed.
"""

from __future__ import annotations

from sys import hash_info
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

#: Places of the table for each name, at least.
_SPARE: Final = 3
#: Names that are added, or listed, in one step.
_PART: Final = 2_000


def _wide_mark(name: str) -> int:
    return (hash(name) << 31) ^ hash(f"{name}.")


#: A name's hash, of 64 bits also where Python's own hashes have 32.
_mark: Final = hash if hash_info.width >= 64 else _wide_mark
_NOWHERE: Final = memoryview(bytes(8)).cast("q")


def zeros(octets: int) -> memoryview:
    """So many *octets*, all zero, in one step: for a million names it takes some 10 ms."""
    return memoryview(bytearray(octets))


class Domains:
    """A set of normalised domain names. Iteration yields them in the order in which they came.

    ``_table``: the hashes, 0 where a place is empty. ``_mask``: its size less one; the size is a
    power of two. ``_parts``: the names, each part joined by line ends.
    """

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
        """Yield all names in lists, a part at a time. The set itself may be dropped meanwhile."""
        return (part.split("\n") for part in self._parts)

    def covering(self, host: str) -> str | None:
        """Return the longest name that ``host`` equals or is a subdomain of, or None."""
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
        """Add ``names``; those that are there already change nothing."""
        coming = list(names)
        self.reserve(self._count + len(coming))
        for start in range(0, len(coming), _PART):
            added = self._put(coming[start : start + _PART])
            self._count += len(added)
            self._parts.extend(["\n".join(added)] if added else [])

    def reserve(self, count: int, memory: Callable[[int], memoryview] = zeros) -> None:
        """Make the table large enough for ``count`` names, so that it need not grow while adding.

        ``memory``: returns so many octets, all zero. A caller that must not be held up gives memory
        that the system zeroes page by page, at first use.
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
