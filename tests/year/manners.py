"""R1 to R7 over days: what a server's log shows of each single request."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from scrapy_walsh.proof.exchanges import ROBOTS, gaps, held, overlaps
from scrapy_walsh.proof.spacing import is_short
from tests.year.log import Violation, exchange
from tests.year.world import DAY, LIST, OPERATOR, REFRESH, UP

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.year.log import Book, Sent

USER_AGENT: Final = "Mozilla/5.0 (compatible; Walsh-Research/1.2; +https://wal.sh/bot/)"
#: WALSH_PATIENCE, WALSH_ROBOTS_TTL and the least spacing; seconds.
PATIENCE: Final = 300.0
TTL: Final = DAY
SPACING: Final = 1.0
#: Seconds: what two ways to add the same numbers up may differ by.
ROUNDING: Final = 1e-3
#: Attempts without an answer of one run on a host that answers nothing in it (two for its
#: robots.txt, one for a target), and on one that does.
ATTEMPTS: Final = (3, 6)
#: Answers 429 of one run, of a host with six targets that takes one in two seconds.
REFUSALS: Final = 2
#: Seconds after an answer for which its validators are surely kept.
VALIDATORS_KEPT: Final = 200 * DAY


def identity(book: Book) -> Iterator[Violation]:
    """R1.1: one User-Agent, exactly."""
    for each in book.log:
        if each.asked.get("user-agent") != USER_AGENT:
            yield Violation("R1", f"{each} as {each.asked.get('user-agent')!r}")


def one_at_a_time(book: Book) -> Iterator[Violation]:
    """R4.1: no request before the answer to the last."""
    for gap in overlaps(book.exchanges, ROUNDING):
        yield Violation("R4.1", f"{gap.after.of} while {gap.before.of} was under way")


def robots_first(book: Book) -> Iterator[Violation]:
    """R2.1, R2.3: no target whose host's robots.txt is unread or older than its TTL."""
    for each, robots in _targets(book):
        if not _reached(book, each, robots):
            continue  # what holds while there is no answer is T6's
        if robots is None:
            yield Violation("R2.1", f"{each}: robots.txt was never read")
            continue
        age = each.wall - robots.wall
        if age > TTL + book.slack(robots.start, each.start) + 60:
            yield Violation("R2.3", f"{each}: robots.txt is {age / DAY:.3f} days old")


def opt_outs(book: Book) -> Iterator[Violation]:
    """R2.2, R2.31: nothing that the robots.txt in hand forbids, nor what it forbade all the TTL."""
    for each, robots in _targets(book):
        in_hand = [] if robots is None else [book.world.hosts[each.host].phase(robots.start)]
        since = each.start - TTL - book.slack(each.start - 2 * TTL, each.start)
        all_along = book.world.hosts[each.host].phases_within(since, each.start)
        if any(phase.rules.forbids(each.path) for phase in in_hand):
            yield Violation("R2.2", f"{each}: the robots.txt that it had read forbids it")
        elif all(phase.rules.forbids(each.path) for phase in all_along):
            yield Violation("R2.31", f"{each}: forbidden for longer than robots.txt may be held")


def listed(book: Book) -> Iterator[Violation]:
    """R3: nothing of a host on the list in hand, nor on every list of the last six hours."""
    taken: Sent | None = None
    for each in book.log:
        if each.host == OPERATOR:
            if each.path == LIST and each.status == 200:
                taken = each
            continue
        if taken is None:
            yield Violation("R3", f"{each}: before the operator's list")
            continue
        slack = book.slack(taken.start, each.start)
        if each.wall - taken.wall > REFRESH + slack + 60:
            yield Violation("R3.8", f"{each}: the list is {each.wall - taken.wall:.0f} s old")
        since = each.start - REFRESH - slack
        if book.world.listed(each.host, taken.start):
            yield Violation("R3.2", f"{each}: the list that it had read names the host")
        elif all(book.world.listed(each.host, at) for at in (since, each.start)):
            yield Violation("R3.8", f"{each}: listed for longer than the list may be held")


def retry_after(book: Book) -> Iterator[Violation]:
    """R5.3: a Retry-After holds its host to the second, over runs."""
    for each, left in held(book.exchanges, ROUNDING):
        yield Violation("R5.3", f"{each.of}: {left:.0f} s before the end of a Retry-After")


def held_until(book: Book, host: str, now: float) -> float:
    """The end of the last Retry-After that *host* had told before *now*; 0.0 for none."""
    told = (exchange(each) for each in book.by_host[host] if each.end <= now)
    return max((each.end + each.hold for each in told if each.hold), default=0.0)


def attempts(book: Book) -> Iterator[Violation]:
    """Attempts without any answer, by host and run."""
    count = Counter((e.run, e.host) for e in book.log if e.status is None and not e.cut)
    answered = {(e.run, e.host) for e in book.log if e.status is not None}
    for (run, host), number in count.items():
        if number > ATTEMPTS[(run, host) in answered]:
            yield Violation(
                "attempts", f"run {run}: {number} attempts at {host}, which never answers"
            )


def refusals(book: Book) -> Iterator[Violation]:
    """D28: a host that limits its requests has taught its interval after two answers 429."""
    count = Counter((each.run, each.host) for each in book.log if each.status == 429)
    for (run, host), number in count.items():
        if number > REFUSALS:
            yield Violation("D28", f"run {run}: {host} answered 429 to {number} requests")


def validators(book: Book) -> Iterator[Violation]:
    """R7.1: the ETag of the last answer is sent back by the runs after it, if it was kept.

    A run that is killed hands nothing over; its answers are asked for anew. Validators are kept for
    two hundred days after the answer that they came with (docs/daily.md).
    """
    held: dict[tuple[str, str], Sent] = {}
    for each in book.log:
        key = (each.url, each.asked.get("accept", ""))
        sent, last = each.asked.get("if-none-match"), held.get(key)
        sure = last is not None and last.run != each.run and not book.killed(last.run)
        kept = last is not None and each.start - last.end < VALIDATORS_KEPT
        if last is not None and sure and kept and sent != last.told["etag"]:
            etag = last.told["etag"]
            yield Violation("R7.1", f"{each}: If-None-Match {sent!r}, the ETag was {etag!r}")
        if each.status == 200 and each.method == "GET" and "etag" in each.told:
            held[key] = each


# -- R4 -----------------------------------------------------------------------------------


def spacing(book: Book) -> Iterator[Violation]:
    """R4.3: from each answer to the next request to its host, T1 and the slow hosts apart."""
    for host in book.world.hosts:
        yield from _spacing(book, host)


def _spacing(book: Book, host: str) -> Iterator[Violation]:
    delay, used = 0.0, -TTL
    for gap in gaps(map(exchange, book.by_host[host])):
        before = delay
        if gap.before.path == ROBOTS and gap.before.status == 200:
            delay = book.world.hosts[host].phase(gap.before.start).rules.delay
        if gap.first_pair or not is_short(gap.rest, max(SPACING, delay), ROUNDING):
            continue
        slow = max(before, delay)
        why = f"{gap.rest:.3f} s after the last answer, not {max(SPACING, delay):g}"
        if slow > PATIENCE and gap.visit and not is_short(gap.rest, SPACING, ROUNDING):
            why = _against_exemption(gap.rested, slow, gap.after.start - used)
            used = gap.after.start
        if why:
            yield Violation("R4.3", f"{gap.after.of}: {why}")


def _against_exemption(rested: float, delay: float, since: float) -> str:
    """What speaks against a slow host's exemption; empty for nothing."""
    if rested < delay - ROUNDING:
        return f"the host had rested {rested:.0f} s of {delay:.0f} before its robots.txt"
    if since < DAY - ROUNDING:
        return f"the last exemption of this slow host was {since / 3600:.2f} h ago"
    return ""


def exemptions(book: Book, host: str) -> list[Sent]:
    """The targets of *host* that went sooner after a robots.txt than its Crawl-delay."""
    phases = book.world.hosts[host]
    return [
        gap.after.of
        for gap in gaps(map(exchange, book.by_host[host]))
        if gap.visit and is_short(gap.rest, phases.phase(gap.before.start).rules.delay, ROUNDING)
    ]


# -- helpers ------------------------------------------------------------------------------


def _targets(book: Book) -> Iterator[tuple[Sent, Sent | None]]:
    """Each request for a page, and the last robots.txt of its origin that was answered before."""
    answered: dict[str, Sent] = {}
    for each in book.log:
        if each.host == OPERATOR or each.host not in book.world.hosts:
            continue
        origin = each.url.split("/", 3)[0] + each.host
        if not each.is_robots:
            yield each, answered.get(origin)
        elif each.status == 200:
            answered[origin] = each


def _reached(book: Book, each: Sent, robots: Sent | None) -> bool:
    """Whether the host of *each* has answered all the time since its robots.txt was due."""
    host = book.world.hosts[each.host]
    since = min(each.start - TTL, each.start if robots is None else robots.start)
    phases = host.phases_within(since, each.start)
    return host.has(each.url) and all(phase.reach == UP for phase in phases)


def by_rule(found: list[Violation]) -> dict[str, list[Violation]]:
    """*found*, the rules in order."""
    sorted_: dict[str, list[Violation]] = defaultdict(list)
    for each in sorted(found, key=lambda each: each.rule):
        sorted_[each.rule].append(each)
    return dict(sorted_)
