"""R2: was robots.txt requested in time, and were its rules obeyed? And which rules bound it (R4)?

A bot may work with what it read up to 24 hours ago (ROBOTS_TTL_SECONDS), so a request is judged by
the most lenient of the files that it can have read by then. Only what all of them disallow, in
every way to read their text, is certainly a breach.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from scrapy_walsh.policy.robots.fetch import MAX_HOPS, ROBOTS_TTL
from scrapy_walsh.policy.robots.file import Robots, no_rules
from scrapy_walsh.policy.times import duration, iso
from scrapy_walsh.proof.audit.rows import Row
from scrapy_walsh.proof.exchanges import ROBOTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from scrapy_walsh.policy.verdict import Verdict
    from scrapy_walsh.proof.audit.reading import Entry

#: Seconds: R12's STALE_HARD_CUTOFF for a robots.txt (spec section 6).
HARD_CUTOFF: Final = 2 * ROBOTS_TTL

_NO_RULES: Final = no_rules(None)


@dataclass(frozen=True, slots=True)
class Version:
    """The site's robots.txt from ``since`` on (Unix seconds; ``-inf``: from the log's begin)."""

    since: float
    rules: Robots


def served(timeline: Sequence[Version], start: float, end: float) -> list[Robots | None]:
    """The rules served at some time from *start* to *end*; None in it: not known for a time.

    *timeline*: the robots.txt files of a site, each with the time since when it was served.
    """
    if not timeline:
        return [None]
    ends = [version.since for version in timeline[1:]] + [math.inf]
    versions: list[Robots | None] = [
        version.rules
        for version, until in zip(timeline, ends, strict=True)
        if version.since <= end and until > start
    ]
    if timeline[0].since > start:
        return [None, *versions]
    return versions


@dataclass(slots=True)
class Site:
    """The state of one site's robots.txt that the bot can have known so far (Unix seconds).

    ``redirects``: how many more redirects of it the bot may follow; 0: it follows none.
    """

    asked: int | None = None
    answered: int | None = None
    missing: bool = False
    redirects: int = 0

    def leads_to(self, entry: Entry) -> bool:
        """Whether *entry*, which the rules refuse, may be the target of a redirect of robots.txt.

        A log does not show the target of a redirect. So it may be the first such request after it,
        and the ones after that while they are answered by redirects, or have to be retried.
        Requests that are allowed may come between: of another process, or for another site's
        robots.txt.
        """
        if not self.redirects:
            return False
        if entry.status // 100 == 3:
            self.redirects -= 1
        elif entry.status < 500 and entry.status != 429:
            self.redirects = 0
        return True

    def note(self, entry: Entry) -> None:
        """Note a request for robots.txt; from a 429, a 5xx or no status the bot learned nothing."""
        self.asked = entry.time
        self.redirects = MAX_HOPS if entry.status // 100 == 3 else 0
        if 200 <= entry.status < 500 and entry.status not in (429, 499):
            self.answered = entry.time
            self.missing = entry.status >= 400

    def may_hold(self, now: int, timeline: Sequence[Version]) -> list[Robots | None]:
        """The rules that may be in force for the bot at *now*, to the second of the log's clock.

        They include no rules at all after a 4xx, or without an answer (9.1.1: fail open).
        """
        recent = self.answered is not None and now - self.answered <= ROBOTS_TTL
        start = self.answered if self.answered is not None and recent else now - ROBOTS_TTL
        rules = served(timeline, start - 1, now + 1)
        open_ = self.missing if recent else self.answered is None and self.asked is not None
        if open_:
            return [*rules, _NO_RULES]
        return rules


@dataclass(slots=True)
class Step:
    """A request; ``age``: seconds since its site's robots.txt was requested, None for never.

    ``rules``: those that may have been in force. ``denials``: what each says against it; None if it
    says nothing, or is not known. ``led``: it is refused, and may be the target of a redirect of
    robots.txt, which is no target of the bot (RFC 9309, 2.3.1.2).
    """

    entry: Entry
    age: int | None
    rules: list[Robots | None]
    denials: list[Verdict | None]
    led: bool = False

    @property
    def delay(self) -> float:
        """The Crawl-delay that certainly bound the bot, in seconds; 0.0 if none did."""
        delays = [0.0 if rules is None else rules.crawl_delay or 0.0 for rules in self.rules]
        return min(delays, default=0.0)


def steps(entries: Iterable[Entry], timeline: Sequence[Version]) -> Iterator[Step]:
    """Each request, in order, with what the bot can have known when it was made."""
    sites: dict[str, Site] = {}
    for entry in entries:
        site = sites.setdefault(entry.site, Site())
        age = None if site.asked is None else entry.time - site.asked
        is_robots = entry.path == ROBOTS and entry.method == "GET"
        rules = site.may_hold(entry.time, timeline)
        denials = [None if robots is None else denial(robots, entry) for robots in rules]
        led = not is_robots and all(denials) and site.leads_to(entry)
        yield Step(entry, age, rules, denials, led)
        if is_robots:
            site.note(entry)


def asked_row(targets: Sequence[Step], start: int) -> Row:
    """R2.1: robots.txt of the site before its targets, and not over 24 hours (R12: 48) old.

    ``start``: when the log begins, Unix seconds.
    """
    row = Row("R2", "MUST", "robots.txt asked before targets")
    for step in targets:
        entry = step.entry
        since = entry.time - start if step.age is None else step.age
        if since - 1 > HARD_CUTOFF:
            row.breach(entry, f"robots.txt not asked in {duration(since)}")
        elif step.age is None:
            row.undecided += 1
        else:
            row.seen += 1
    first_day = "within 48 h of the log's beginning, perhaps asked before"
    row.tell(
        f"targets after it: {row.seen}",
        row.undecided and f"{row.undecided} {first_day}",
    )
    return row


def obeyed_row(targets: Sequence[Step], timeline: Sequence[Version]) -> Row:
    """R2.2: no request that the rules refuse. ``timeline``: empty when no file was given."""
    row = Row("R2", "MUST", "disallowed paths left alone")
    if not timeline:
        row.detail = "no robots.txt to judge by: give --robots FILE"
        return row
    led = 0
    for step in targets:
        denials = step.denials
        # It is not certain if another reading of the text allows it, or if no known rule refuses
        # it.
        certain = [
            verdict
            for verdict in denials
            if verdict and verdict.line is not None and not verdict.readings
        ]
        if len(certain) == len(denials) and not step.led:
            row.breach(step.entry, certain[-1].reason)
        elif step.led:
            row.undecided += 1
            led += 1
        elif None in step.rules or all(denials) or _denied_now(step.entry, timeline):
            row.undecided += 1
        else:
            row.seen += 1
    unsure = (
        "in one reading only, by rules that it need not have read yet (24 h), or by unknown ones"
    )
    row.tell(
        f"{row.seen} allowed",
        row.undecided > led and f"{row.undecided - led} refused {unsure}",
        led and f"{led} refused, where robots.txt itself may have redirected to",
        *latencies(targets, timeline),
    )
    return row


def latencies(targets: Sequence[Step], timeline: Sequence[Version]) -> Iterator[str]:
    """For each change of robots.txt, how long what it newly disallows was still requested."""
    ends = [*(version.since for version in timeline[2:]), math.inf]
    for (begin, version), until in zip(pairwise(timeline), ends, strict=False):
        late = [
            step.entry.time - version.since
            for step in targets
            if version.since <= step.entry.time < until
            and denial(version.rules, step.entry)
            and not denial(begin.rules, step.entry)
        ]
        latest = f"the last {duration(late[-1])} after it" if late else "none"
        yield f"newly refused requests after the change of {iso(version.since)}: {latest}"


def _denied_now(entry: Entry, timeline: Sequence[Version]) -> bool:
    now = served(timeline, entry.time, entry.time)[-1]
    return now is not None and denial(now, entry) is not None


def denial(rules: Robots, entry: Entry) -> Verdict | None:
    """The rules' refusal of the request, or None. An octet beyond ASCII is judged encoded."""
    target = "".join(c if c < "\x7f" else f"%{ord(c):02X}" for c in entry.target)
    slash = "" if target.startswith("/") else "/"
    verdict = rules.decide(f"http://{entry.host or 'host'}{slash}{target}")
    if verdict.allowed:
        return None
    return verdict
