"""An extract of a ledger about one host, for the owner of its site, in their words. Pure.

The owner knows none of our words, and nothing else may be in it: no line about another host, no
reason (it may name one), no list, no setting, no path.
"""

from __future__ import annotations

import math
import re
import shlex
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from scrapy_walsh.policy import event as events
from scrapy_walsh.policy import hosts
from scrapy_walsh.policy.event import ASKED
from scrapy_walsh.policy.robots.groups import (
    MAX_OCTETS,
    Records,
    decode,
    select,
)
from scrapy_walsh.policy.urls import REDACTED
from scrapy_walsh.policy.verdict import BLOCKED_OPERATOR, DISALLOWED_EXPLICIT
from scrapy_walsh.policy.words import plural
from scrapy_walsh.proof.findings import Outcome
from scrapy_walsh.proof.report.reach import SILENT, Reach, stage_of
from scrapy_walsh.proof.report.words import answer_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from scrapy_walsh.proof.ledger import Line
    from scrapy_walsh.proof.ledgered import Gap
    from scrapy_walsh.proof.report.reach import Stage
    from scrapy_walsh.proof.report.runs import Run
    from scrapy_walsh.proof.verify import Report as Verified

#: Requests, and versions of a robots.txt, that are listed at most.
REQUESTS: Final = 1000
_VERSIONS: Final = 20
#: Rows of what was not requested, beyond which rules are not told apart.
_LEFT: Final = 100
#: The groups of pauses in the picture: their names, by the seconds that all in it are below.
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
    (
        "R3",
        BLOCKED_OPERATOR,
    ): "your site is on our list of sites that we do not visit",
    "R3": "we could not read our list of sites that we do not visit",
    "R4": "your site asks for longer pauses than we could wait for that day",
    "R5": "your site gave no answer, or asked us to slow down, so we stopped trying",
    "R6": "it is not one of the pages that we set out to read",
    "R8": "we had requested it not long before",
}
_WHY_ELSE: Final = "one of our own rules excludes it"
#: The same if the site had no part in it, by the stage; and why a request never came to it.
_OURS: Final[Mapping[Stage, str]] = {
    "name": "we could not look up the name of your site",
    "connection": "no connection to your site came about",
    "tls": "no encrypted connection to your site came about",
    "proxy": "a proxy of ours did not pass it on",
    SILENT: "a proxy of ours took it and gave no answer",
    "ours": "something on our side failed",
}
_PURPOSES: Final = {
    "robots": "your robots.txt",
    "operator": "our own documents",
}


class Asked(NamedTuple):
    """One request. ``at``: when it was sent, Unix seconds by the wall clock, as in a server's log.

    ``gap``: since the request before it. ``wait``: how long it was then left alone, if it was (R5).
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

    ``answer``: the last one to a request for it, in words.
    ``elsewhere``: its address redirected to another host, and the text of that is not shown.
    ``rules``: its lines for us and what came of each; None if its text is not at hand. ``uses``:
    what came of a line, by its number and the kind of event.
    """

    of: Line
    since: float
    answer: str = ""
    until: float = math.inf
    rules: list[tuple[str, str]] | None = None
    uses: Counter[tuple[int | None, str]] = field(default_factory=Counter)

    @property
    def elsewhere(self) -> bool:
        document = self.of.document
        return bool(document) and hosts.host_or_url(document) != hosts.host_or_url(self.of.url)

    @property
    def is_read(self) -> bool:
        """Whether it is a text of the site's own that was in force, so that it can be shown."""
        return bool(self.of.digest) and self.of.kind != events.REJECTED and not self.elsewhere

    @property
    def said(self) -> str:
        """The answer to the request for it, and the consequence; "" if its text is shown."""
        if self.is_read:
            return ""
        if self.of.kind == events.REJECTED:
            consequence = "we had no rules to follow"
            if self.of.digest:
                consequence = "we followed the one before"
            if self.of.hop:
                return f"leads to an address that we may not request, so {consequence}"
            answer = f" ({self.answer})" if self.answer else ""
            return f"could not be read{answer}, so {consequence}"
        if self.elsewhere:
            return "redirected to another site, and we followed that answer"
        return f"was not there ({self.of.status}), which forbids nothing"


@dataclass(slots=True)
class Extract:
    """Takes each line of a ledger, keeps what is about ``host`` since ``since``, Unix seconds.

    ``runs``: all of the ledger. ``requests``: the last of ``total``. ``unsent``: by the stage,
    other attempts, of which the site's server has no request, or may have none. ``left``: pages
    that were not requested, by the reason and by the rule of robots.txt, if a rule decided;
    ``examples``: the last of each. ``first``, ``last``: of requests. ``covers``: of all lines.
    ``shortest``: pause, seconds. ``pauses``: their numbers, by groups. ``slowed``: requests after
    which R5 left the host alone. ``list_digest``: of the operator's list that crawls use.
    ``unsure``: a robots.txt that decided about a page cannot be seen, so that ``verify`` did not
    derive the decision. ``lines``: the numbers of those about the host.
    """

    host: str
    since: float = 0.0
    runs: Mapping[str, Run] = field(default_factory=dict)
    requests: deque[Asked] = field(default_factory=lambda: deque(maxlen=REQUESTS))
    total: int = 0
    unsent: Counter[Stage] = field(default_factory=Counter)
    first: float = math.inf
    last: float = 0.0
    covers: tuple[float, float] = (math.inf, 0.0)
    answers: Counter[str] = field(default_factory=Counter)
    shortest: float = math.inf
    pauses: Counter[str] = field(
        default_factory=lambda: Counter(dict.fromkeys(_PAUSES.values(), 0))
    )
    left: Counter[tuple[str, str]] = field(default_factory=Counter)
    examples: dict[tuple[str, str], str] = field(default_factory=dict)
    versions: list[Version] = field(default_factory=list)
    lines: set[int] = field(default_factory=set)
    names: dict[str, None] = field(default_factory=dict)
    twin_requests: int = 0
    slowed: int = 0
    list_digest: str | None = None
    unsure: bool = False
    _went_by: set[str] = field(default_factory=set)
    _reach: Reach = field(default_factory=Reach)
    #: The last request that came to the site, and the answer to the last one for its robots.txt.
    _before: Line | None = None
    _robots_answer: str = ""
    #: By digest, the version with that text that is in force, or was last.
    _latest: dict[str | None, Version] = field(default_factory=dict)

    @property
    def twin(self) -> str:
        """The name that readers take for the same site: with ``www.``, or without."""
        bare = self.host.removeprefix("www.")
        if bare != self.host:
            return bare
        return f"www.{bare}"

    @property
    def run(self) -> Run | None:
        """The last run of the ledger, which has the name and terms in force."""
        if self.runs:
            return list(self.runs.values())[-1]
        return None

    @property
    def token(self) -> str:
        """The name that a robots.txt uses for the bot."""
        if self.run:
            return self.run.terms.token
        return ""

    @property
    def agents(self) -> list[str]:
        """The User-Agents that the host has seen; if it has seen none, that of the last run."""
        latest = [] if self.run is None else [self.run.terms.user_agent]
        return list(self.names) or latest

    @property
    def policy(self) -> str:
        """The address in the bot's User-Agent that says how to reach its operator."""
        match = _POLICY.search(" ".join(self.agents))
        if match:
            return match[1]
        return ""

    @property
    def audit(self) -> str:
        """The command that judges the bot by a server's log."""
        agent = (self.agents or ["NAME"])[-1]
        name = ["--token", self.token or "NAME", "--user-agent", agent]
        words = [
            "-m",
            "scrapy_walsh",
            "audit",
            "access.log",
            "--host",
            self.host,
            *name,
        ]
        return shlex.join(["python", *words])

    @property
    def attempts(self) -> list[tuple[int, str, bool]]:
        """Those of ``unsent``: how many, the reason, and whether they may be in a server's log."""
        return [(count, _OURS[stage], stage == SILENT) for stage, count in self.unsent.items()]

    @property
    def cut_off(self) -> int:
        """Runs without an end: if a run was killed, a request may be missing."""
        return sum(run.ended is None for run in self.runs.values())

    @property
    def shared(self) -> bool:
        """Whether other machines of the bot have ledgers of their own."""
        return any(run.terms.shared for run in self.runs.values())

    def take(self, line: Line, gap: Gap | None) -> None:
        """Keep what *line* says about the host; *gap*: before it, if it is a request."""
        self.covers = min(self.covers[0], line.at), max(self.covers[1], line.at)
        about = hosts.host_or_url(line.url) if line.url else ""
        recent = line.moment.began >= self.since
        self._reach.take(line)
        if line.kind in (events.ADOPTED, events.TAKEN_UP, events.REJECTED):
            self._document(line, about)
        if about == self.host and recent:
            self.lines.add(line.n)
            self._of_host(line, gap)
        arrived = line.kind == ASKED and not stage_of(line)
        self.twin_requests += arrived and about == self.twin and recent

    def _document(self, line: Line, about: str) -> None:
        if line.requirement == "R2" and about == self.host:
            if line.kind != events.REJECTED or not self._reach.stage(line):
                self._version(line)
        elif line.requirement == "R3" and line.kind != events.REJECTED:
            self.list_digest = line.digest

    def _of_host(self, line: Line, gap: Gap | None) -> None:
        if line.kind == ASKED:
            stage = stage_of(line)
            if stage:
                self.unsent[stage] += 1
            else:
                self._take_request(line, self._since_the_last(line, gap))
        elif line.kind in (events.FETCHED, events.NOT_MODIFIED):
            self._count_use(line, ASKED)
        elif line.kind in (events.REFUSED, events.DEFERRED, events.GIVEN_UP):
            self._take_left_page(line)

    def _since_the_last(self, line: Line, gap: Gap | None) -> Gap | None:
        """The *gap* before *line*, as the server saw it: from the last request that came there."""
        before = self._before
        self._before = line
        if gap is None or not stage_of(gap.before):
            return gap
        if before is None:
            return None
        return gap._replace(before=before, seconds=line.started - before.ended)

    def _take_request(self, line: Line, gap: Gap | None) -> None:
        at = line.moment.began
        answer = answer_of(line)
        self.total += 1
        self.first = min(self.first, at)
        self.last = max(self.last, at)
        self.answers[answer] += 1
        self.slowed += line.wait is not None
        self.unsure |= line.run not in self.runs or REDACTED in line.url
        self._went_by.update([line.digest] if line.digest else [])
        if line.purpose == "robots":
            self._robots_answer = answer
        purpose = _PURPOSES.get(line.purpose, "page")
        self.requests.append(Asked(at, line.url, purpose, answer, gap, line.wait))
        if line.run in self.runs:
            self.names[self.runs[line.run].terms.user_agent] = None
        if gap is not None and gap.required > 0:
            self.shortest = min(gap.seconds, self.shortest)
            self.pauses[next(name for end, name in _PAUSES.items() if gap.seconds < end)] += 1

    def _take_left_page(self, line: Line) -> None:
        requirement = line.requirement or "R5"
        reason = _OURS.get(self._reach.stage(line), "")
        if not reason or requirement == "R3":
            reason = _WHY.get((requirement, line.verdict)) or _WHY.get(requirement, _WHY_ELSE)
        is_own_rule = line.verdict == DISALLOWED_EXPLICIT and requirement == "R2"
        rule = (line.rule or "") if is_own_rule else ""
        if is_own_rule:
            self._count_use(line, events.REFUSED)
        if len(self.left) >= _LEFT and (reason, rule) not in self.left:
            rule = ""  # the rest, together
        self.left[reason, rule] += 1
        self.examples[reason, rule] = line.url

    def _count_use(self, line: Line, kind: str) -> None:
        if (version := self._latest.get(line.digest)) is not None:
            version.uses[line.line, kind] += 1

    def _version(self, line: Line) -> None:
        latest = next(
            (version for version in self.versions[::-1] if version.of.url == line.url),
            None,
        )
        if latest is not None:
            if _state(latest.of) == _state(line):
                return
            latest.until = line.at
        self.versions.append(Version(line, line.at, self._robots_answer))
        if line.kind != events.REJECTED:  # else the version before stays in force
            self._latest[line.digest] = self.versions[-1]
        self.versions = [version for version in self.versions if version.until >= self.since][
            -_VERSIONS:
        ]

    def read(self, body_of: Callable[[str], bytes | None]) -> None:
        """Say of each robots.txt what it said to the bot. *body_of*: a document by its digest."""
        self.unsure |= any(body_of(digest) is None for digest in self._went_by)
        for version in self.versions:
            body = body_of(version.of.digest or "") if version.is_read else None
            if body is None:
                version.rules = None
            else:
                version.rules = list(self._rules(body, version))

    def _rules(self, body: bytes, version: Version) -> Iterator[tuple[str, str]]:
        """The lines of a robots.txt that are for the bot, and what came of each.

        First those that made a difference. Lines that only some readers find are among them.
        """
        text = decode(body)
        selections = select(text, Records(text, cut=len(body) > MAX_OCTETS), self.token)
        for delay in dict.fromkeys(delay for selection in selections for delay in selection.delays):
            yield f"Crawl-delay: {delay}", "sets our pauses between two requests"
        lines = {line[2]: line for selection in selections for line in selection.lines}
        for is_used in (True, False):
            for number, (kind, value, _) in sorted(lines.items()):
                uses = _uses_of(version, number)
                if bool(uses) == is_used:
                    none = "matched none of our requests" if value else "forbids nothing"
                    yield f"{kind}: {value}", uses or none


def _uses_of(version: Version, number: int) -> str:
    """How many requests the line *number* has stopped and allowed; empty if none."""
    counts = [
        f"{verb} {plural(version.uses[number, kind], 'request')}"
        for verb, kind in (("stopped", events.REFUSED), ("allowed", ASKED))
        if version.uses[number, kind]
    ]
    return " and ".join(counts)


def _state(line: Line) -> tuple[object, ...]:
    return line.digest, line.status, line.kind == events.REJECTED


#: By requirement, the text if it was broken, and the text if it was kept.
_PROMISES: Final = (
    ("R2", "We did not obey your robots.txt ({}).",
     "We requested no page that your robots.txt forbids."),
    ("R4", "A request came too soon after the one before ({}).",
     "Every pause between two requests was as long as it had to be; the shortest was {:.1f} s."),
    ("R5", "We did not slow down as we should have ({}).",
     "When your site was busy, failed, or asked us to slow down, we left it alone."),
    ("R3",
     "We sent a request although your site is on our list of sites that we do not visit ({}).", ""),
    ("", "Something else about your site is wrong in our record ({}).", ""),
)  # fmt: skip


def kept(extract: Extract, verified: Verified) -> list[tuple[Outcome, str]]:
    """The promises to the site's owner, and whether they were kept.

    If ``verify`` found something wrong with the ledger, nothing is said to be kept.
    """
    promised = {rule for rule, _, _ in _PROMISES}
    rules = [finding.rule for finding in verified.findings if finding.line in extract.lines]
    broken = Counter(rule if rule in promised else "" for rule in rules)
    occasions = {
        "R2": extract.total,
        "R4": extract.shortest < math.inf,
        "R5": extract.slowed,
    }
    texts = []
    for rule, bad, good in _PROMISES:
        if broken[rule]:
            texts.append((Outcome.BROKEN, bad.format(plural(broken[rule], "time"))))
        elif occasions.get(rule):
            is_shown = verified.holds and not (rule == "R2" and extract.unsure)
            outcome = Outcome.HELD if is_shown else Outcome.UNSEEN
            texts.append((outcome, good.format(extract.shortest)))
    return texts
