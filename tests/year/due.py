"""R8 over days, and the progress of slow hosts: design.md, section 8, as a book-keeper reads it.

What the log leaves open (whether a killed run had kept an answer, on which side of a limit a
moment fell) is kept open here too: a source has one or several possible *turns*, and only what
breaks the rule in all of them is a violation.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.year.log import Violation
from tests.year.manners import PATIENCE, TTL, exemptions, held_until
from tests.year.world import DAY, HOUR, REFRESH, UP

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.year.log import Book, Ran, Sent
    from tests.year.world import Phase

REVISIT: Final = DAY
#: The rules that are broken here, by name.
SOON, MISSED, HOP, REPORT = "R8 too soon", "R8 missed", "R8 redirect", "report: next_due"
PROGRESS, ORDER = "slow hosts: no progress", "slow hosts: order"
#: The part of its interval around a source's due time within which that counts as kept.
NEAR: Final = 0.1
#: Seconds: a sending lasts, and either end of it may be what was written down.
BLUR: Final = 600.0
#: Seconds before a kill in which an answer may not have been kept.
UNSURE: Final = 5.0


class Turn(NamedTuple):
    """A source's last sending that was answered, and its next due time, by the machine's clock.

    ``every``: seconds between two of them.
    """

    sent: float
    due: float
    every: float = REVISIT

    def opens(self) -> float:
        """When the source may be asked again."""
        rest = max(HOUR, (1 - NEAR) * self.every)
        return max(self.sent + rest, self.due - NEAR * self.every)


#: Of a source that was never answered.
NEVER: Final = Turn(float("-inf"), float("-inf"))


def after(turn: Turn, now: float) -> set[Turn]:
    """The turns that a sending at *now* may lead to."""
    every, near = turn.every, NEAR * turn.every
    kept, anew = Turn(now, turn.due + every, every), Turn(now, now + every, every)
    off = abs(now - turn.due)
    if off > near + BLUR:
        return {anew}
    return {kept} if off < near - BLUR else {kept, anew}


def counts(status: int | None) -> bool:
    """Whether an answer ends the source's turn."""
    return status is not None and status != 429 and status < 500


@dataclass
class Account:
    """All turns, as the log goes on."""

    book: Book

    def __post_init__(self) -> None:
        self.turns: dict[str, set[Turn]] = defaultdict(lambda: {NEVER})
        for each in self.book.world.sources:
            self.turns[f"{each.method} {each.url} {each.body}"] = {NEVER._replace(every=each.every)}
        #: When a slow host's target was first due and not sent: what its operator knows of, and
        #: what a run that was killed may have known of.
        self.put_off: dict[str, float] = {}
        self.perhaps: dict[str, float] = {}
        #: What the last report said of each URL, and the true time at which it was written.
        self.promised: dict[str, tuple[float, float]] = {}

    def violations(self) -> Iterator[Violation]:
        """What was sent too soon, and what was due and not sent."""
        for ran in self.book.runs:
            log = self.book.by_run[ran.number]
            due = [key for key in ran.declared if self._due(key, ran)]
            yield from self._order(ran, log, due)
            yield from self._soon(ran, log)
            if not ran.killed:
                yield from _missed(self.book, ran, log, due)
                yield from _slow(self.book, ran, log, due)
                yield from _hops(self.book, ran, log)
            yield from self._reported(ran, log)

    def _due(self, key: str, ran: Ran) -> bool:
        """Whether a source is due in *ran*, whatever the log leaves open."""
        return all(turn.opens() + BLUR <= ran.wall for turn in self.turns[key])

    def _order(self, ran: Ran, log: list[Sent], due: list[str]) -> Iterator[Violation]:
        """What was put off longest goes first: a slow host's first target of a run is it."""
        slow = [key for key in due if _slowly(self.book, ran, _place(key)[0])]
        open_ = [key for key in slow if not _refused(self.book, ran, *_place(key))]
        sent = [each for each in log if each.key in open_]
        first = {each.host: each for each in reversed(sent)}
        for host, each in first.items():
            since = min(at.get(each.key, ran.start) for at in (self.put_off, self.perhaps))
            for key in open_:
                if _place(key)[0] == host and self.put_off.get(key, ran.start) < since:
                    yield Violation(ORDER, f"{each}, although {key}was put off for longer")
                    break
        for key in {each.key for each in log}:
            self.put_off.pop(key, None)
            self.perhaps.pop(key, None)
        left = [key for key in open_ if key not in {each.key for each in log}]
        for key in left:
            self.perhaps.setdefault(key, ran.start)
            if not ran.killed:
                self.put_off.setdefault(key, ran.start)

    def _soon(self, ran: Ran, log: list[Sent]) -> Iterator[Violation]:
        """Requests for what was not due; each moves its source's turn on."""
        hops: Counter[str] = Counter()
        for number, each in enumerate(log):
            if each.location:
                hops[f"GET {each.location} "] += 1
            turns, hop = self.turns[each.key], hops[each.key] > 0
            hops[each.key] -= hop
            if each.key not in ran.declared:
                continue
            opens = min(turn.opens() for turn in turns)
            if each.wall < opens - 1 and not hop:
                early = f"{(opens - each.wall) / HOUR:.2f} h before it was due"
                yield Violation(SOON, f"{each}: {early}")
            if not counts(each.status):
                continue
            moved = {new for turn in turns for new in after(turn, each.wall)}
            sure = not hop and self._was_kept(ran, each, log[number + 1 :])
            self.turns[each.key] = moved if sure else moved | turns

    def _reported(self, ran: Ran, log: list[Sent]) -> Iterator[Violation]:
        """``next_due`` of the source report: no run asks the source before it.

        A host's spacing goes by a clock that nobody sets: where the machine's was set since the
        report, its time may be off by as much.
        """
        hops = {each.location for each in log}
        for each in log:
            told, written = self.promised.get(each.url, (0.0, each.start))
            due = told - self.book.slack(written, each.start)
            if each.method == "GET" and each.wall < due - 1 and each.url not in hops:
                early = f"{(due - each.wall) / HOUR:.2f} h before the next_due of the last report"
                yield Violation(REPORT, f"{each}: {early}")
        if ran.promised:
            for key in ran.declared:
                self.promised.pop(key.split(" ")[1], None)
            self.promised |= {url: (due, ran.end) for url, due in ran.promised.items()}

    def _was_kept(self, ran: Ran, each: Sent, later: list[Sent]) -> bool:
        """Whether an answer must have ended its source's turn: not in the last moment before a
        kill, nor a redirect whose target was not answered."""
        if ran.killed and each.end > ran.end - UNSURE:
            return False
        return not each.location or any(
            other.url == each.location and counts(other.status) for other in later
        )


def _hops(book: Book, ran: Ran, log: list[Sent]) -> Iterator[Violation]:
    """A redirect is followed, to a declared source as well, which may have been asked today."""
    for number, each in enumerate(log):
        if not each.location or any(o.url == each.location for o in log[number + 1 :]):
            continue
        host, path = _place(f"GET {each.location} ")
        if host in book.world.hosts and not _refused(book, ran, host, path):
            yield Violation(HOP, f"{each}: {each.location} was not asked for")


def _missed(book: Book, ran: Ran, log: list[Sent], due: list[str]) -> Iterator[Violation]:
    """What was due, could be had, and was not asked for."""
    asked, hosts = {each.key for each in log}, {each.host for each in log}
    for key in due:
        host, path = _place(key)
        if key in asked or _refused(book, ran, host, path):
            continue
        if held_until(book, host, ran.start) > ran.start or _slowly(book, ran, host):
            continue
        if any(each.reach != UP for each in _lately(book, ran, host, 0.0)):
            if host not in hosts:
                yield Violation(MISSED, f"run {ran.number}: {key}was due, {host} not even tried")
            continue
        yield Violation(MISSED, f"run {ran.number}: {key}was due and not asked for")


def _slow(book: Book, ran: Ran, log: list[Sent], due: list[str]) -> Iterator[Violation]:
    """Progress for slow hosts: at least one target a visit."""
    waiting: dict[str, list[str]] = defaultdict(list)
    for key in due:
        host, path = _place(key)
        if _slowly(book, ran, host) and not _refused(book, ran, host, path):
            waiting[host].append(key)
    for host, keys in waiting.items():
        if any(each.host == host and each.key in keys for each in log):
            continue
        if _may_progress(book, ran, host):
            text = f"run {ran.number}: none of {len(keys)} due targets of {host} was asked for"
            yield Violation(PROGRESS, text)


def _may_progress(book: Book, ran: Ran, host: str) -> bool:
    """Whether the rules let a target of a slow *host* go in *ran*."""
    before = [each for each in book.by_host[host] if each.start < ran.start]
    delay = max(each.rules.delay for each in _lately(book, ran, host, TTL))
    if before and ran.start - before[-1].end < delay:
        return False
    if held_until(book, host, ran.start) > ran.start:
        return False
    used = [each.start for each in exemptions(book, host) if each.start < ran.start]
    if not used or ran.start - used[-1] >= DAY:
        return True
    # Without the exemption a target may go where no robots.txt has to be asked for first.
    robots = [each for each in before if each.is_robots and each.status == 200]
    return bool(robots) and 0 <= ran.wall - robots[-1].wall < TTL - BLUR


# -- what the world was like --------------------------------------------------------------


def _place(key: str) -> tuple[str, str]:
    url = key.split(" ")[1]
    _, _, host, path = url.split("/", 3)
    return host, f"/{path}"


def _lately(book: Book, ran: Ran, host: str, back: float) -> list[Phase]:
    """How *host* was from *back* seconds before *ran* to its end."""
    since = ran.start - back - book.slack(ran.start - back - DAY, ran.start)
    return book.world.hosts[host].phases_within(since, ran.end)


def _slowly(book: Book, ran: Ran, host: str) -> bool:
    """Whether the Crawl-delay of *host* is, or a day ago was, beyond the patience."""
    return any(each.rules.delay > PATIENCE for each in _lately(book, ran, host, TTL))


def _refused(book: Book, ran: Ran, host: str, path: str) -> bool:
    """Whether an opt-out stands against it, or one that was lifted may still be held."""
    if any(each.rules.forbids(path) for each in _lately(book, ran, host, TTL)):
        return True
    lifted = ran.start - REFRESH - book.slack(ran.start - DAY, ran.start)
    return any(book.world.listed(host, at) for at in (lifted, ran.start, ran.end))
