"""Which source was read on which day, by a ledger. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from scrapy_walsh.policy import event as events
from scrapy_walsh.policy.verdict import NOT_DUE
from scrapy_walsh.proof.ledger import DECLARED

if TYPE_CHECKING:
    from collections.abc import Container

    from scrapy_walsh.proof.ledger import Line

#: Seconds; and how many sources, and redirects of theirs, are followed at most.
DAY: Final = 86400
MOST: Final = 10_000
#: The result of a source on a day, the best last; 0: nothing, because it was not due or not
#: declared.
FAILED = 1
REFUSED = 2
UNCHANGED = 3
READ = 4
#: How a page writes each of them.
SIGNS: Final = "·✗-=✓"
_OUTCOMES: Final = {
    events.NOT_MODIFIED: UNCHANGED, events.REFUSED: REFUSED, events.DEFERRED: FAILED,
    events.GIVEN_UP: FAILED, events.TOO_MANY_REDIRECTS: FAILED,
}  # fmt: skip


@dataclass(slots=True)
class History:
    """``days`` days from ``began`` on, Unix seconds: a midnight in UTC.

    ``sources``: by URL, the best outcome of each day. ``more``: there are others.
    """

    began: float
    days: int
    sources: dict[str, bytearray] = field(default_factory=dict)
    more: bool = False
    _from: dict[str, str] = field(default_factory=dict)

    @classmethod
    def until(cls, now: float, days: int) -> History:
        """The last *days* days; *now*, Unix seconds, is in the last of them."""
        return cls((now // DAY - days + 1) * DAY, days)

    def take(self, line: Line) -> None:
        """Note the result that *line* has for a source, or for the target of its redirect."""
        day = int((line.at - self.began) // DAY)
        if not 0 <= day < self.days:
            return
        if line.kind == DECLARED:
            self._declared(line)
            return
        outcome = _OUTCOMES.get(line.kind, 0) if line.verdict != NOT_DUE else 0
        if line.kind in (events.FETCHED, events.ANSWERED):
            outcome = READ if (line.status or 0) < 400 else FAILED
        for url in {line.url, self._from.get(line.url, line.url)} if outcome else ():
            if (row := self.sources.get(url)) is not None:
                row[day] = max(row[day], outcome)

    def _declared(self, line: Line) -> None:
        if line.by:  # of a sitemap, which is the source
            return
        if line.via:
            if len(self._from) < MOST:
                self._from[line.url] = self._from.get(line.via, line.via)
        elif line.url in self.sources or len(self.sources) < MOST:
            self.sources.setdefault(line.url, bytearray(self.days))
        else:
            self.more = True

    def rows(self, listed: Container[str]) -> list[tuple[str, bytearray]]:
        """The sources that failed, or were refused, on the most days first.

        A spider declares other URLs, too. So they are those *listed*; if none of them is there,
        those with a result.
        """
        items = self.sources.items()
        rows = [row for row in items if row[0] in listed] or [row for row in items if any(row[1])]
        return sorted(rows, key=lambda row: (-_bad(row[1]), row[0]))


def strip(days: bytearray) -> str:
    """A sign for each of *days*."""
    return "".join(SIGNS[day] for day in days)


def _bad(days: bytearray) -> int:
    return days.count(FAILED) + days.count(REFUSED)
