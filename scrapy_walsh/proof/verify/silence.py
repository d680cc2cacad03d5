"""R5: does a run leave a host alone that gave no answer to as many requests as D13 grants it?"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from scrapy_walsh.policy import event as events
from scrapy_walsh.policy import hosts
from scrapy_walsh.policy.backoff import (
    TRIALS,
    is_failure,
    parse_retry_after,
    repeatable,
    retry_after_floor,
)
from scrapy_walsh.policy.host import Silence as Attempts
from scrapy_walsh.policy.urls import REDIRECTS
from scrapy_walsh.policy.words import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy_walsh.ledger.reading import Line
    from scrapy_walsh.proof.verify.terms import Terms

# R5: does each exchange of a run wait as long, and try as often, as the spec lets it?

_EXACT: Final = 0.001
#: Seconds that may lie between reading a Retry-After date and writing the line.
_LATER: Final = 2.0


def wait_faults(line: Line, terms: Terms) -> Iterator[str]:
    """What is wrong with the ``wait`` and the ``attempt`` of an exchange."""
    if line.attempt < 0 or line.attempt > terms.max_retries:
        yield f"it is retry {line.attempt} of {line.url}, {terms.max_retries} are allowed"
    if not line.answered and line.status is not None:
        yield f"it was broken off, and yet answered {line.status}"
    if not line.answered or not is_failure(line.status):
        return
    if line.wait is None:
        yield f"status {line.status} has no wait"
        return
    least, most = _bounds(line, terms)
    if line.wait < least - _EXACT:
        yield f"its wait is {line.wait:.3f} s, {least:.3f} s were asked for"
    if line.wait > most + _EXACT:
        yield f"its wait is {line.wait:.3f} s, of {most:.3f} s at most"
    early = line.gives_up and line.status is None and terms.silent_attempts is not None
    if line.gives_up != is_last(line, terms) and not early:  # that one is for ``silence`` to judge
        yield f"gives_up is {line.gives_up} after retry {line.attempt} of {terms.max_retries}"


def is_last(line: Line, terms: Terms) -> bool:
    """Whether no retry may follow an exchange that failed, by its attempt or by its method."""
    if line.attempt >= terms.max_retries:
        return True
    return not repeatable(line.method, line.status)


def _bounds(line: Line, terms: Terms) -> tuple[float, float]:
    """The least and the most seconds that ``wait`` may be."""
    value = ", ".join(line.retry_after) or None
    asked = parse_retry_after(value, line.at)
    if asked is not None:
        return asked, parse_retry_after(value, line.at - _LATER) or 0.0
    jitter = min(terms.backoff_cap, terms.backoff_base * 2.0 ** min(max(line.attempt, 0), 1000))
    floor = retry_after_floor(value, line.at)
    return floor, max(jitter, retry_after_floor(value, line.at - _LATER))


@dataclass(slots=True)
class Retries:
    """The tries of one run, by URL."""

    _next: dict[str, int] = field(default_factory=dict)
    _robots: dict[str, list[int]] = field(default_factory=dict)
    _given_up: dict[str, int] = field(default_factory=dict)
    _failed: dict[str, Line] = field(default_factory=dict)
    _hops: int = 0

    def asked(self, line: Line) -> Iterator[str]:
        """What is wrong with the order of tries; *line* is counted."""
        if line.purpose == events.TARGET:
            yield from self._target(line)
        elif line.purpose == "robots":
            yield from self._document(line)
        if line.wait is not None:
            self._failed[line.url] = line

    def _target(self, line: Line) -> Iterator[str]:
        url = line.url
        if url in self._given_up:
            yield f"{url} was given up in line {self._given_up[url]} of this run"
        least = self._next.pop(url, 0)
        if line.attempt < least:
            yield f"it says retry {line.attempt} of {url}, and is {least} at least"
        if line.gives_up:
            self._given_up[url] = line.n
        elif line.wait is not None:
            self._next[url] = line.attempt + 1

    def _document(self, line: Line) -> Iterator[str]:
        """Order of tries of a document: other origins' files may redirect to one robots.txt."""
        due = self._robots.setdefault(line.url, [])
        if line.attempt in due:
            due.remove(line.attempt)
        elif due and self._hops:
            self._hops -= 1
        elif due or line.attempt:
            yield f"it says retry {line.attempt} of {line.url}, and is {due[0] if due else 0}"
        if line.wait is not None and not line.gives_up:
            due.append(line.attempt + 1)
        self._hops += line.status in REDIRECTS
        if not due:
            del self._robots[line.url]

    def told(self, line: Line) -> Iterator[str]:
        """What is wrong with a line ``retried`` or ``given_up``."""
        failed = self._failed.pop(line.url, None)
        if failed is None:
            yield f"{line.kind}, and no exchange of {line.url} failed before it"
        elif (
            failed.status != line.status or abs((failed.wait or 0.0) - (line.wait or 0.0)) > _EXACT
        ):
            yield f"does not say what line {failed.n} says: status {failed.status}, {failed.wait} s"
        elif failed.gives_up != (line.kind == events.GIVEN_UP):
            yield f"{line.kind}, though line {failed.n} says gives_up: {failed.gives_up}"


_ROBOTS: Final = "robots"


@dataclass(slots=True)
class Silence:
    """The requests of one run that got no answer.

    A run whose start is not in the ledger is not judged here. Of a fleet's worker only deferrals
    are: it drops what it has counted after some time, and no line says when.
    """

    terms: Terms
    #: By host.
    _counted: dict[str, Attempts] = field(default_factory=dict)
    #: Trials of https, by origin.
    _trials: Counter[str] = field(default_factory=Counter)

    def _attempts(self, host: str) -> Attempts:
        terms = self.terms
        new = Attempts(terms.max_retries, terms.robots_unreachable)
        return self._counted.setdefault(host, new)

    def asked(self, line: Line) -> Iterator[str]:
        """What is wrong with an exchange; *line* is counted."""
        if line.silent:  # who says so of a host is granted less, so it need not be proved
            self._attempts(line.host).before = True
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
        return granted and self._attempts(host).spent(now, robots=True)

    def _count(self, line: Line) -> None:
        if line.status is not None:
            self._attempts(line.host).answered(line.started)
        elif line.answered and not line.once:
            self._attempts(line.host).note(line.started)

    def _spent(self, line: Line) -> bool:
        robots = line.purpose == _ROBOTS
        return self._attempts(line.host).spent(line.started, robots=robots)

    def _last(self, line: Line) -> bool:
        return is_last(line, self.terms)

    def _told(self, line: Line) -> str:
        count = self._attempts(line.host).count(line.started)
        return f"gave no answer to {plural(count, 'request')} of this run"

    def _trial(self, line: Line, *, silent: bool) -> Iterator[str]:
        """A trial of https is not counted, so it is one robots.txt and one target at most."""
        if not silent or not line.url.startswith("https://"):
            yield f"{line.url} is told as a trial of https that got no answer"
            return
        self._trials[hosts.origin_or_url(line.url)] += 1
        if self._trials[hosts.origin_or_url(line.url)] > TRIALS:
            yield f"{line.url} was tried by https again, after {TRIALS} requests without an answer"
        if line.purpose == events.TARGET and not line.gives_up:
            yield "gives_up is False, though https is tried once"
