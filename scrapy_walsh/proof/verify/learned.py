"""R4: does each run learn from a host's answers 429 what D28 says, and keep to it?

What a host has taught is derived from the exchanges alone, by the function that the crawl itself
uses. A run begins with what the store has of a host; its first exchange with the host says what
that was, and an earlier line must have left it so. Two things are counted and are not findings.
Where it says nothing, the store had nothing: ``state forget`` drops what was learned. Where it goes
by a longer interval than the lines have left, the store had that from a run without a ledger, an
import, or an exchange whose line was lost when the process was killed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Final

from scrapy_walsh.policy.learned import (
    HALVED_AFTER,
    NOTHING,
    Learned,
    Spacing,
    accepts,
    eased,
    learn,
)
from scrapy_walsh.proof.spacing import ONE_CLOCK, is_short

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy_walsh.ledger.reading import Line
    from scrapy_walsh.proof.verify.report import Report
    from scrapy_walsh.proof.verify.run import Run

_EXACT: Final = 0.001
#: Why what a run says is not derived: lines of others are missing.
_ELSEWHERE: Final = "learned intervals that rest on what is not in this ledger"
_DROPPED: Final = "runs that go on without a learned interval: state forget drops it"


@dataclass(slots=True)
class Lessons:
    """What the hosts of a ledger have taught, in all of its runs.

    ``_left``: by host and run, what the run's last exchange with the host has left, and when that
    ended.
    """

    report: Report
    _left: dict[str, dict[str, tuple[Learned, float]]] = field(default_factory=dict)

    def asked(self, run: Run, line: Line, *, rests: bool) -> Iterator[str]:
        """What is wrong with an exchange; *line* is learned from.

        ``rests``: what the store had may rest on lines that are not here: the ledger begins after
        its first one, or a run was killed.
        """
        longest = run.terms.longest_learned
        if longest is None:
            return
        if run.holes:
            self._unknown(run, line)
            return
        known = run.taught.get(line.host, NOTHING)
        if line.taught:
            yield from self._taken(run, line, rests=rests or run.terms.shared)
            known = _learned_of(line)
        elif line.host not in run.taught:
            self._dropped(line)
        in_force = eased(known, line.started).interval
        if is_short(line.interval, in_force, ONE_CLOCK):
            yield f"its interval is {line.interval:g} s, {line.host} has taught {in_force:g} s"
        taught = self._learn(run, line, known, longest)
        changed = None if taught.interval == known.interval else taught.interval
        if not _alike(changed, line.learned):
            yield f"it says that {_said(line.learned)}; by the answers so far {_said(changed)}"
        elif changed is not None:
            self.report.derived += 1

    def _learn(self, run: Run, line: Line, known: Learned, longest: float) -> Learned:
        """What *line* teaches, noted for the next one."""
        before = run.accepted.get(line.host)
        gap = None if before is None else line.started - before
        spacing = Spacing(line.interval, gap, line.ended)
        taught = learn(known, line.status, spacing, longest) if line.answered else known
        if accepts(line.status):
            run.accepted[line.host] = line.ended
        run.taught[line.host] = taught
        if taught.calm is not None or line.host in self._left:
            self._left.setdefault(line.host, {})[run.name] = taught, line.ended
        return taught

    def _taken(self, run: Run, line: Line, *, rests: bool) -> Iterator[str]:
        """What is wrong with what *run* says that the store had of a host."""
        if len(line.taught) != len(fields(Learned)):
            yield f"what {line.host} is to have taught is {len(line.taught)} numbers"
            return
        given, left = _learned_of(line), self._left.get(line.host, {})
        states = (each for one, _ in left.values() for each in _lapses(one, line.started))
        meanwhile = (ended > line.started for name, (_, ended) in left.items() if name != run.name)
        if any(_same(each, given) for each in states):
            self.report.derived += 1
        elif (
            rests
            or any(meanwhile)
            or all(given.interval > one.interval for one, _ in left.values())
        ):
            self.report.missed(_ELSEWHERE)
        else:
            text = f"it goes by {given.interval:g} s that {line.host} is to have taught"
            yield f"{text}; no line before says so"

    def _dropped(self, line: Line) -> None:
        left = self._left.get(line.host, {})
        if any(eased(each, line.started).calm is not None for each, _ in left.values()):
            self.report.missed(_DROPPED)

    def _unknown(self, run: Run, line: Line) -> None:
        if line.learned is not None or line.taught:
            self.report.missed(_ELSEWHERE)
        run.taught.pop(line.host, None)


def _learned_of(line: Line) -> Learned:
    """What *line* says that the store had; nothing where that has another form."""
    if len(line.taught) != len(fields(Learned)):
        return NOTHING
    interval, accepted, calm, at = line.taught
    return Learned(interval, accepted, int(calm), at)


def _lapses(left: Learned, now: float) -> Iterator[Learned]:
    """*left*, and what may have become of it until *now*: a run restores it at some time before."""
    yield left
    at = left.at + HALVED_AFTER
    while left.calm is not None and at <= now:
        left = eased(left, at)
        yield left
        at += HALVED_AFTER


def _same(one: Learned, other: Learned) -> bool:
    return (
        one.calm == other.calm
        and _alike(one.interval, other.interval)
        and _alike(one.accepted, other.accepted)
        and _alike(one.at, other.at)
    )


def _alike(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) < _EXACT


def _said(interval: float | None) -> str:
    return "nothing new is learned" if interval is None else f"{interval:.3f} s is learned"
