"""R5: does a run leave a host alone that gave no answer to as many requests as D13 grants it?"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from scrapy_walsh.policy import event as events
from scrapy_walsh.policy.backoff import TRIALS, Silences
from scrapy_walsh.policy.words import plural
from scrapy_walsh.proof.verify.documents import origin_of
from scrapy_walsh.proof.verify.retries import is_last

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy_walsh.ledger.reading import Line
    from scrapy_walsh.proof.verify.terms import Terms

_ROBOTS: Final = "robots"


@dataclass(slots=True)
class Silence:
    """The requests of one run that got no answer.

    A run whose start is not in the ledger is not judged here. Of a fleet's worker only deferrals
    are: it drops what it has counted after some time, and no line says when.
    """

    terms: Terms
    _counted: Silences = field(init=False)
    #: Trials of https, by origin.
    _trials: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._counted = Silences(self.terms.max_retries, self.terms.robots_unreachable)

    def asked(self, line: Line) -> Iterator[str]:
        """What is wrong with an exchange; *line* is counted."""
        if line.silent:  # who says so of a host is granted less, so it need not be proved
            self._counted.remember(line.host)
        judged = self.terms.silent_attempts is not None and not self.terms.shared
        if not judged or line.purpose not in (events.TARGET, _ROBOTS):
            self._count(line)
            return
        if self._spent(line):
            yield f"{line.host} was asked, though it {self._told(line)}"
        silent = line.answered and line.status is None
        if line.once:
            yield from self._trial(line, silent=silent)
            return
        self._count(line)
        if silent and line.gives_up != (self._spent(line) or self._last(line)):
            yield f"gives_up is {line.gives_up}, though {line.host} {self._told(line)}"

    def is_silent(self, host: str, now: float) -> bool:
        """Whether targets of *host* may be deferred: not even its robots.txt may be requested."""
        granted = self.terms.silent_attempts is not None
        return granted and self._counted.spent(host, now, robots=True)

    def _count(self, line: Line) -> None:
        if line.status is not None:
            self._counted.answered(line.host, line.started)
        elif line.answered and not line.once:
            self._counted.note(line.host, line.started)

    def _spent(self, line: Line) -> bool:
        robots = line.purpose == _ROBOTS
        return self._counted.spent(line.host, line.started, robots=robots)

    def _last(self, line: Line) -> bool:
        return is_last(line, self.terms)

    def _told(self, line: Line) -> str:
        count = self._counted.count(line.host, line.started)
        return f"gave no answer to {plural(count, 'request')} of this run"

    def _trial(self, line: Line, *, silent: bool) -> Iterator[str]:
        """A trial of https is not counted, so it is one robots.txt and one target at most."""
        if not silent or not line.url.startswith("https://"):
            yield f"{line.url} is told as a trial of https that got no answer"
            return
        self._trials[origin_of(line.url)] += 1
        if self._trials[origin_of(line.url)] > TRIALS:
            yield f"{line.url} was tried by https again, after {TRIALS} requests without an answer"
        if line.purpose == events.TARGET and not line.gives_up:
            yield "gives_up is False, though https is tried once"
