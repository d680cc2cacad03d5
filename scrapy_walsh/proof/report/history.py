"""Which source was read on which day, by a ledger. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from scrapy_walsh.policy import event as events
from scrapy_walsh.policy.event import ASKED
from scrapy_walsh.policy.verdict import NOT_DUE
from scrapy_walsh.proof.ledger import DECLARED
from scrapy_walsh.proof.report.reach import SILENT, Reach

if TYPE_CHECKING:
    from collections.abc import Container

    from scrapy_walsh.proof.ledger import Line

#: Seconds; and how many sources, and redirects of theirs, are followed at most.
DAY: Final = 86400
MOST: Final = 10_000
#: The result of a source on a day, the best last; 0: nothing, because it was not due or not
#: declared. OURS: something on our side failed.
OURS = 1
FAILED = 2
REFUSED = 3
UNCHANGED = 4
READ = 5
#: How a page writes each of them.
SIGNS: Final = "·!✗-=✓"
#: So many days have a cell each; more are a text.
CELLS: Final = 92
_OUTCOMES: Final = {
    events.NOT_MODIFIED: UNCHANGED, events.REFUSED: REFUSED, events.DEFERRED: FAILED,
    events.GIVEN_UP: FAILED, events.TOO_MANY_REDIRECTS: FAILED,
}  # fmt: skip
#: The stages of an exchange that tell whose fault it was; the others are ours if the run had no
#: answer at all.
_OURS: Final = frozenset({"ours", "proxy", SILENT})


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
    _reach: Reach = field(default_factory=Reach)
    #: The runs with an answer; by run, the failures (source, day) that are ours without one.
    _answered: set[str] = field(default_factory=set)
    _unclear: dict[str, set[tuple[str, int]]] = field(default_factory=dict)

    @classmethod
    def until(cls, now: float, days: int) -> History:
        """The last *days* days; *now*, Unix seconds, is in the last of them."""
        return cls((now // DAY - days + 1) * DAY, days)

    def take(self, line: Line) -> None:
        """Note the result that *line* has for a source, or for the target of its redirect."""
        self._reach.take(line)
        day = int((line.at - self.began) // DAY)
        if not 0 <= day < self.days:
            return
        if line.kind == DECLARED:
            self._declared(line)
            return
        if line.kind == ASKED and line.status is not None and not line.unsent:
            self._answered.add(line.run)
        outcome = _OUTCOMES.get(line.kind, 0) if line.verdict != NOT_DUE else 0
        if line.kind in (events.FETCHED, events.ANSWERED):
            outcome = READ if (line.status or 0) < 400 else FAILED
        stage = self._reach.stage(line) if outcome == FAILED else ""
        if stage in _OURS:
            outcome = OURS
        for url in {line.url, self._from.get(line.url, line.url)} if outcome else ():
            row = self.sources.get(url)
            if row is None:
                continue
            if stage and outcome == FAILED:
                self._unclear.setdefault(line.run, set()).add((url, day))
                row[day] = max(row[day], OURS)
            else:
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
        for run in self._unclear.keys() & self._answered:
            for url, day in self._unclear.pop(run):
                self.sources[url][day] = max(self.sources[url][day], FAILED)
        items = self.sources.items()
        rows = [row for row in items if row[0] in listed] or [row for row in items if any(row[1])]
        return sorted(rows, key=lambda row: (-_bad(row[1]), row[0]))


def strip(days: bytearray) -> str:
    """A sign for each of *days*."""
    return "".join(SIGNS[day] for day in days)


def weeks(days: bytearray) -> list[list[tuple[int, str]]]:
    """The *days* in groups of seven, each day with its sign."""
    return [[(day, SIGNS[day]) for day in days[at : at + 7]] for at in range(0, len(days), 7)]


def name_of(url: str) -> str:
    """The name of a source: its *url* without what is the same for all."""
    return url.partition("://")[2].removeprefix("www.").removesuffix("/") or url


def _bad(days: bytearray) -> int:
    return days.count(FAILED) + days.count(REFUSED)
