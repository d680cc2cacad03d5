"""The progress of each source within one run.

A crawl may have a million sources, and it knows each of them to its end. So a :class:`Progress` is
stored as a digest of the source's key and one octet, its number in the list of all values.
"""

from __future__ import annotations

from itertools import product
from typing import Any, Final, NamedTuple

from scrapy_walsh.policy.readings import OUTCOMES
from scrapy_walsh.policy.scope import Digests


class Progress(NamedTuple):
    """The progress of a source, or of a redirect's target, in this run.

    ``is_answered``: an answer counts for it (R8). ``is_redirected``: only redirects have answered
    so far. ``is_not_due``: R8 has refused it. ``has_failed``: its visit has failed. ``outcome``:
    one of ``readings.OUTCOMES``; None until it has ended.
    """

    is_answered: bool = False
    is_redirected: bool = False
    is_not_due: bool = False
    has_failed: bool = False
    outcome: str | None = None

    @property
    def is_requested(self) -> bool:
        """Whether this run has requested it, and R8 lets the run request it again."""
        return self.is_answered or self.is_redirected or self.has_failed


_FLAGS: Final = len(Progress._fields) - 1
#: All values, the empty one first. There are 256 at most.
_VALUES: Final = [
    Progress._make((*flags, outcome))
    for outcome in (None, *OUTCOMES)
    for flags in product((False, True), repeat=_FLAGS)
]
_OCTETS: Final = {value: octet for octet, value in enumerate(_VALUES)}


class ProgressMap:
    """The progress of all sources of a run, by key (``urls.key_of``)."""

    def __init__(self) -> None:
        self._digests = Digests()

    def of(self, key: str) -> Progress:
        """The progress of *key*, also if the run does not know it yet."""
        return _VALUES[self._digests.mark(key) or 0]

    def update(self, key: str, **changes: Any) -> None:
        """Change fields of the progress of *key*."""
        old = self.of(key)
        new = old._replace(**changes)
        if new != old:
            self._digests.add(key, _OCTETS[new])
