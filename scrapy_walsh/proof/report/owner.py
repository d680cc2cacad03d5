"""What a ledger has about one host, for the owner of its site: an extract, in their words. Pure.

The owner knows none of our words, and nothing else may be in it: no line about another host, no
reason (it may name one), no list, no setting, no path.
"""

from __future__ import annotations

import math
import re
import shlex
from collections import Counter, deque
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple

from scrapy_walsh.ledger.files import REDACTED
from scrapy_walsh.policy import event as events
from scrapy_walsh.policy import hosts
from scrapy_walsh.policy.event import ASKED
from scrapy_walsh.policy.robots.groups import MAX_OCTETS, Records, decode, select
from scrapy_walsh.policy.verdict import BLOCKED_OPERATOR, DISALLOWED_EXPLICIT
from scrapy_walsh.policy.words import plural
from scrapy_walsh.proof.findings import Outcome
from scrapy_walsh.proof.report.entries import runs_of, text
from scrapy_walsh.proof.report.tally import KEPT, SHORT, UNCLEAR, Gap, Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from scrapy_walsh.proof.ledger import Line
    from scrapy_walsh.proof.report.entries import Lines, Run

#: Requests, and versions of a robots.txt, that are listed at most.
REQUESTS: Final = 1000
_VERSIONS: Final = 20
#: Rows of what was not requested, beyond which rules are not told apart.
_LEFT: Final = 100
#: The groups of pauses: their names, by the seconds that all in it are below.
_PAUSES: Final = {
    1: "less than a second", 2: "1 to 2 seconds", 10: "2 to 10 seconds",
    60: "10 seconds to a minute", 3600: "a minute to an hour", 86400: "an hour to a day",
    math.inf: "a day or more",
}  # fmt: skip
PAUSES: Final = tuple(_PAUSES.values())
_POLICY: Final = re.compile(r"\+(https?://[^\s;)]+)")

#: Why a page was not requested, by requirement, and of some by the name of the verdict.
_WHY: Final[Mapping[tuple[str, str] | str, str]] = {
    ("R2", DISALLOWED_EXPLICIT): "your robots.txt forbids it",
    "R2": "your robots.txt could not be read, so we did not know whether we may",
    ("R3", BLOCKED_OPERATOR): "your site is on our list of sites that we do not visit",
    "R3": "we could not read our list of sites that we do not visit",
    "R4": "your site asks for longer pauses than we could wait for that day",
    "R5": "your site gave no answer, or asked us to slow down, so we stopped trying",
    "R6": "it is not one of the pages that we set out to read",
    "R8": "we had requested it not long before",
}
_WHY_ELSE: Final = "a rule of our own excludes it"
_PURPOSES: Final = {"robots": "your robots.txt", "operator": "our own documents"}


class OptOut(NamedTuple):
    """A host is on the operator's list: ``added`` on that day, empty where the list does not say.

    ``in_force``: the copy that crawls go by has it, too.
    """

    added: str
    in_force: bool


class Asked(NamedTuple):
    """One request. ``at``: when it was sent, Unix seconds by the wall clock, as in a server's log.

    ``gap``: since the one before it. ``wait``: how long it was then left alone, if it was (R5).
    """

    at: float
    url: str
    purpose: str
    answer: str
    gap: Gap | None
    wait: float | None


@dataclass(slots=True)
class Version:
    """One state of a robots.txt, in force from ``since`` on; ``until``: of the next one.

    ``elsewhere``: its address redirected to another host, whose text is not shown. ``rules``: its
    lines for us and what came of each. ``unread``: it has a
    text, which is not at hand. ``uses``: what came of a line, by its number and the kind of event.
    ``closest``: the shortest pause while it was in force, seconds.
    """

    of: Line
    since: float
    until: float = math.inf
    rules: list[tuple[str, str]] = field(default_factory=list)
    unread: bool = False
    uses: Counter[tuple[int | None, str]] = field(default_factory=Counter)
    closest: float = math.inf

    @property
    def elsewhere(self) -> bool:
        document = self.of.document
        return bool(document) and hosts.host_or_url(document) != hosts.host_or_url(self.of.url)

    @property
    def said(self) -> str:
        """What the answer to the request for it was, and what follows."""
        if self.of.kind == events.REJECTED:
            kept = "we went by the one before" if self.of.digest else "we had no rules to go by"
            return f"could not be had, so {kept}"
        if self.elsewhere:
            return "redirected to another site, whose answer we went by"
        return "" if self.of.digest else f"was not there ({self.of.status}), which forbids nothing"


@dataclass(slots=True)
class Extract:
    """Takes each line of a ledger, keeps what is about ``host`` since ``since``, Unix seconds.

    ``wrong``: the rule of what ``verify`` found wrong, by line. ``requests``: the last of
    ``total``. ``left``: pages that were not requested, by why and by which rule of robots.txt, if
    by one; ``examples``: the last of each. ``first``, ``last``: of requests. ``covers``: of all
    lines. ``broken``: findings that concern the host, by rule. ``slowed``: requests after which R5
    left the host alone.
    ``list_digest``: of the operator's list that crawls go by. ``unsure``: the robots.txt by which
    a page was requested is not to be seen, so that ``verify`` did not derive it. ``headed``: a file
    says which line is the last.
    """

    host: str
    since: float = 0.0
    wrong: Mapping[int, str] = field(default_factory=dict)
    runs: Mapping[str, Run] = field(default_factory=dict)
    requests: deque[Asked] = field(default_factory=lambda: deque(maxlen=REQUESTS))
    total: int = 0
    first: float = math.inf
    last: float = 0.0
    covers: tuple[float, float] = (math.inf, 0.0)
    answers: Counter[str] = field(default_factory=Counter)
    pauses: Counter[str] = field(default_factory=Counter)
    gaps: Counter[str] = field(default_factory=Counter)
    shortest: Gap | None = None
    left: Counter[tuple[str, str]] = field(default_factory=Counter)
    examples: dict[tuple[str, str], str] = field(default_factory=dict)
    versions: list[Version] = field(default_factory=list)
    broken: Counter[str] = field(default_factory=Counter)
    names: dict[str, None] = field(default_factory=dict)
    twin_requests: int = 0
    slowed: int = 0
    list_digest: str | None = None
    unsure: bool = False
    headed: bool = False
    _went_by: set[str] = field(default_factory=set)
    #: By digest, the version with that text that is in force, or was last.
    _latest: dict[str | None, Version] = field(default_factory=dict)

    @property
    def twin(self) -> str:
        """The name that readers take for the same site: with ``www.``, or without."""
        bare = self.host.removeprefix("www.")
        return bare if bare != self.host else f"www.{bare}"

    @property
    def run(self) -> Run | None:
        """The last run of the ledger, whose name and terms are in force."""
        return list(self.runs.values())[-1] if self.runs else None

    @property
    def token(self) -> str:
        """The name by which a robots.txt addresses the bot."""
        return text(self.run.terms, "token") if self.run else ""

    @property
    def policy(self) -> str:
        """The address in the bot's User-Agent, where it says how to reach its operator."""
        found = _POLICY.search(" ".join(self.names))
        return found[1] if found else ""

    @property
    def audit(self) -> str:
        """The command that judges the bot by a server's log."""
        name = ["--token", self.token or "NAME", "--user-agent", next(reversed(self.names), "NAME")]
        words = ["-m", "scrapy_walsh", "audit", "access.log", "--host", self.host, *name]
        return shlex.join(["python", *words])

    @property
    def cut_off(self) -> int:
        """Runs without an end: of one that was killed, a request may be missing."""
        return sum(run.ended is None for run in self.runs.values())

    @property
    def shared(self) -> bool:
        """Whether other machines of the bot have ledgers of their own."""
        return any(run.settings.get("shared") is True for run in self.runs.values())

    def take(self, line: Line, gap: Gap | None) -> None:
        """Keep what *line* says about the host; *gap*: before it, if it is a request."""
        if line.at:
            self.covers = min(self.covers[0], line.at), max(self.covers[1], line.at)
        about = hosts.host_or_url(line.url) if line.url else ""
        recent = line.moment.began >= self.since
        if line.kind in (events.ADOPTED, events.TAKEN_UP, events.REJECTED):
            self._document(line, about)
        if about == self.host and recent:
            self.broken.update([self.wrong[line.n]] if line.n in self.wrong else [])
            self._of_host(line, gap)
        self.twin_requests += line.kind == ASKED and about == self.twin and recent

    def _document(self, line: Line, about: str) -> None:
        if line.requirement == "R2" and about == self.host:
            self._version(line)
        elif line.requirement == "R3" and line.kind != events.REJECTED:
            self.list_digest = line.digest

    def _of_host(self, line: Line, gap: Gap | None) -> None:
        if line.kind == ASKED:
            self._asked(line, gap)
        elif line.kind in (events.FETCHED, events.NOT_MODIFIED):
            self._use(line, ASKED)
        elif line.kind in (events.REFUSED, events.DEFERRED, events.GIVEN_UP):
            self._left(line)

    def _asked(self, line: Line, gap: Gap | None) -> None:
        at, answer = line.moment.began, _answer(line)
        self.total += 1
        self.first, self.last = min(self.first, at), max(self.last, at)
        self.answers[answer] += 1
        self.slowed += line.wait is not None
        self.unsure |= line.run not in self.runs or REDACTED in line.url
        self._went_by.update([line.digest] if line.digest else [])
        what = _PURPOSES.get(line.purpose, "page")
        self.requests.append(Asked(at, line.url, what, answer, gap, line.wait))
        if line.run in self.runs:
            self.names[text(self.runs[line.run].terms, "user_agent")] = None
        if gap is None:
            return
        self.gaps[gap.verdict] += 1
        if gap.verdict not in (KEPT, SHORT):
            return
        if self.shortest is None or gap.seconds < self.shortest.seconds:
            self.shortest = gap
        if (version := self._latest.get(line.digest)) is not None:
            version.closest = min(gap.seconds, version.closest)
        self.pauses[next(name for end, name in _PAUSES.items() if gap.seconds < end)] += 1

    def _left(self, line: Line) -> None:
        requirement = line.requirement or "R5"
        why = _WHY.get((requirement, line.verdict)) or _WHY.get(requirement, _WHY_ELSE)
        own = line.verdict == DISALLOWED_EXPLICIT and requirement == "R2"
        rule = (line.rule or "") if own else ""
        if own:
            self._use(line, events.REFUSED)
        if len(self.left) >= _LEFT and (why, rule) not in self.left:
            rule = ""  # the rest, together
        self.left[why, rule] += 1
        self.examples[why, rule] = line.url

    def _use(self, line: Line, kind: str) -> None:
        if (version := self._latest.get(line.digest)) is not None:
            version.uses[line.line, kind] += 1

    def _version(self, line: Line) -> None:
        before = next((each for each in self.versions[::-1] if each.of.url == line.url), None)
        if before is not None:
            if _state(before.of) == _state(line):
                return
            before.until = line.at
        self.versions.append(Version(line, line.at))
        if line.kind != events.REJECTED:  # then the one before stays in force
            self._latest[line.digest] = self.versions[-1]
        self.versions = [each for each in self.versions if each.until >= self.since][-_VERSIONS:]

    def read(self, body_of: Callable[[str], bytes | None]) -> None:
        """Say of each robots.txt what it said to the bot. *body_of*: a document by its digest."""
        self.unsure |= any(body_of(digest) is None for digest in self._went_by)
        for each in self.versions:
            digest = each.of.digest
            if digest is None or each.elsewhere or each.of.kind == events.REJECTED:
                continue
            body = body_of(digest)
            each.unread = body is None
            each.rules = [] if body is None else list(self._rules(body, each))

    def _rules(self, body: bytes, version: Version) -> Iterator[tuple[str, str]]:
        """The lines of a robots.txt that are for the bot, and what came of each.

        First those that made a difference. Lines that only some readers find are among them.
        """
        written = decode(body)
        selections = select(written, Records(written, cut=len(body) > MAX_OCTETS), self.token)
        for delay in dict.fromkeys(delay for each in selections for delay in each.delays):
            kept = f"our shortest pause was {version.closest:.1f} s"
            none = "no two requests were sent under it"
            yield f"Crawl-delay: {delay}", none if version.closest == math.inf else kept
        lines = {line[2]: line for each in selections for line in each.lines}
        found = [
            (f"{kind}: {value}", _came_of(version, number, value))
            for number, (kind, value, _) in sorted(lines.items())
        ]
        yield from sorted(found, key=lambda rule: not rule[1].endswith(("request", "requests")))


def _came_of(version: Version, number: int, value: str) -> str:
    counts = [
        f"{verb} {plural(version.uses[number, kind], 'request')}"
        for verb, kind in (("stopped", events.REFUSED), ("allowed", ASKED))
        if version.uses[number, kind]
    ]
    none = "none of our requests was about it" if value else "forbids nothing"
    return " and ".join(counts) or none


def _state(line: Line) -> tuple[object, ...]:
    return line.digest, line.status, line.kind == events.REJECTED


def _answer(line: Line) -> str:
    if line.status is None:
        return "no answer" if line.answered else "we broke it off"
    try:
        return f"{line.status} {HTTPStatus(line.status).phrase}"
    except ValueError:
        return str(line.status)


def extract(
    lines: Lines, host: str, since: float, wrong: Mapping[int, str], said: tuple[int, str] | None
) -> Extract:
    """What a ledger has about *host*; *said* as in ``lanes.build``, *wrong* as in ``Extract``."""
    found = Extract(host, since, wrong, runs_of(lines), headed=said is not None)
    tally = Tally(found.runs, (), said, watch=found.take)
    for file, raw in lines():
        tally.take(file, raw)
    if not found.names and found.run:
        found.names[text(found.run.terms, "user_agent")] = None
    return found


#: By requirement, what is said where it was broken, and where it was kept.
_PROMISES: Final = (
    ("R2", "{} times we did not keep to your robots.txt.",
     "We requested no page that your robots.txt forbids."),
    ("R4", "{} pauses between two requests were too short.",
     "Every pause between two requests was as long as it had to be{}."),
    ("R5", "{} times we did not slow down as we should have.",
     "Where your site was busy, failed, or asked us to slow down, we left it alone."),
    ("R3", "{} requests were sent although your site is on our list of sites to leave alone.", ""),
    ("", "{} more entries about your site are not as they should be.", ""),
)  # fmt: skip


def kept(found: Extract, *, holds: bool) -> list[tuple[Outcome, str]]:
    """What the site's owner was promised, and whether it was kept.

    *holds*: ``verify`` found nothing wrong with the ledger; else nothing is said to be kept.
    """
    known = {rule for rule, _, _ in _PROMISES}
    broken = Counter(found.broken)
    broken["R4"] = max(broken["R4"], found.gaps[SHORT])
    broken[""] = sum(count for rule, count in broken.items() if rule not in known)
    shortest = (
        "" if found.shortest is None else f"; the shortest was {found.shortest.seconds:.1f} s"
    )
    seen = {"R2": found.total, "R4": found.gaps[KEPT], "R5": found.slowed}
    unsure = {"R2": found.unsure, "R4": found.gaps[UNCLEAR]}
    said = []
    for rule, bad, good in _PROMISES:
        if broken[rule]:
            said.append((Outcome.BROKEN, bad.format(f"{broken[rule]:,}")))
        elif seen.get(rule):
            shown = holds and not unsure.get(rule)
            said.append((Outcome.HELD if shown else Outcome.UNSEEN, good.format(shortest)))
    return said
