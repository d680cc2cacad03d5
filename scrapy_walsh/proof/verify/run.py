"""One run of a ledger: its scope, the documents in force, and what it has sent."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol

from scrapy_walsh.policy.list.blocklist import Blocklist
from scrapy_walsh.policy.robots.fetch import StandIn
from scrapy_walsh.policy.scope import Scope
from scrapy_walsh.policy.verdict import ALLOWED_IMPLICIT, Verdict
from scrapy_walsh.proof.verify.silence import Retries, Silence

if TYPE_CHECKING:
    from scrapy_walsh.ledger.reading import Line, Moment
    from scrapy_walsh.policy.chain import Rules
    from scrapy_walsh.policy.learned import Learned
    from scrapy_walsh.policy.recrawl import Visit
    from scrapy_walsh.policy.robots.file import Robots
    from scrapy_walsh.proof.verify.terms import Terms

# The documents in force in a run at each moment: lines ``adopted``, ``taken_up``, ``rejected``.


class LookUp(Protocol):
    """Finds the documents that a ledger names, by their digests. None: it is not there."""

    def adopted_list(self, digest: str, schema: str | None, url: str) -> Blocklist | None:
        """The list with that digest, validated with the standalone schema of digest *schema*.

        DocumentInvalid where it must not be adopted.
        """

    def held_list(self, digest: str, url: str) -> Blocklist | None:
        """The list with that digest, which was validated before; DocumentInvalid as above."""

    def robots(self, digest: str, token: str, document: str) -> Robots | None:
        """The rules of the file with that digest, which came from *document*."""

    def altered(self, digest: str) -> bool:
        """Whether another body was found under that digest; known once it was looked up."""


@dataclass(frozen=True, slots=True)
class RulesHeld:
    """The rules of an origin. ``rules``: None where the document is not there to be read.

    ``since``: when they came into force. ``fetched_at``: when they were fetched, None where no
    line says so; both Unix seconds. ``ttl``, ``crawl_delay``: seconds. ``serial``: the line's
    number.
    """

    serial: int
    since: float
    rules: Rules | None
    fetched_at: float | None
    ttl: float
    digest: str | None = None
    crawl_delay: float = 0.0


@dataclass(frozen=True, slots=True)
class ListHeld:
    """The blocklist of a run; ``blocklist`` None where the document is not there to be read.

    ``rejected``: the last attempt to get a newer one failed. ``verdict``: on every target, where
    there is no list and nothing may be requested without one.
    """

    serial: int
    since: float
    blocklist: Blocklist | None
    fetched_at: float | None
    digest: str | None = None
    rejected: bool = False
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """The last robots.txt of an origin that any run adopted."""

    digest: str | None
    status: int | None
    at: float
    line: int


@dataclass(slots=True)
class InForce:
    """The documents in force in one run, and of each the one before (see ``Moment``)."""

    _lists: list[ListHeld] = field(default_factory=list)
    _rules: dict[str, tuple[RulesHeld | None, RulesHeld | None]] = field(default_factory=dict)

    def blocklist(self, moment: Moment) -> ListHeld | None:
        """The list in force at that moment."""
        return next((held for held in reversed(self._lists) if moment.saw(held.since)), None)

    def latest_list(self) -> ListHeld | None:
        """The list in force now."""
        return self._lists[-1] if self._lists else None

    def put_list(self, held: ListHeld) -> None:
        """*held* is in force from now on."""
        self._lists = [*self._lists[-1:], held]

    def keep_list(self) -> None:
        """Note that an attempt to get a newer list failed."""
        self._lists[-1:] = [replace(self._lists[-1], rejected=True)]

    def rules(self, origin: str, moment: Moment) -> RulesHeld | None:
        """The rules of *origin* in force at that moment."""
        before, now = self._rules.get(origin, (None, None))
        return now if now is None or moment.saw(now.since) else before

    def put_rules(self, origin: str, held: RulesHeld | None) -> None:
        """*held* is in force for *origin* from now on; None: nothing is."""
        self._rules[origin] = (self._rules.get(origin, (None, None))[1], held)

    def crawl_delay(self, host: str, moment: Moment) -> float:
        """The longest Crawl-delay that the rules of both schemes of *host* ask for."""
        held = (self.rules(f"{scheme}://{host}", moment) for scheme in ("http", "https"))
        return max((each.crawl_delay for each in held if each is not None), default=0.0)


_UNREAD_LIST = Blocklist.empty()

#: Seconds by which wall clock and steady clock must have moved apart for the wall clock to be set.
CLOCK_SET: Final = 2.0


_UNREAD_RULES = StandIn(Verdict(True, ALLOWED_IMPLICIT, "R2", "the file is not here"))


@dataclass(slots=True)
class Run:
    """``begun``: its line ``started``, number ``line``, is here. ``holes``: lines may be absent."""

    name: str
    terms: Terms
    process: str
    begun: bool
    line: int = 0
    holes: bool = False
    ended: bool = False
    scope: Scope = field(default_factory=Scope)
    held: InForce = field(default_factory=InForce)
    retries: Retries = field(default_factory=Retries)
    silence: Silence = field(init=False)
    #: Seconds by which the wall clock was ahead of the steady clock at the last exchange.
    ahead: float | None = None
    #: Seconds by which it was put back between the last two exchanges; 0 if it was not.
    put_back: float = 0.0
    #: The last exchange for a robots.txt, or for what one redirects to, by URL.
    robots_asked: dict[str, Line] = field(default_factory=dict)
    #: How many of their redirects no request has followed yet.
    robots_hops: int = 0
    #: Whether the operator's last answer was a redirect.
    operator_hop: bool = False
    #: The operator's answer that is not yet adopted or rejected.
    operator_answer: Line | None = None
    #: By URL, exchanges without a line ``fetched`` so far, and the verdict that was derived.
    passed: dict[str, tuple[Line, Verdict | None]] = field(default_factory=dict)
    #: By URL, the line ``fetched`` that has a redirect as the spider's answer.
    redirects_told: dict[str, int] = field(default_factory=dict)
    #: By key of what redirects led to in this run, the keys of the sources that they led from.
    hops: dict[str, dict[str, None]] = field(default_factory=dict)
    #: Keys (``recrawl.key_of``) of what this run has had an answer to.
    answered: set[str] = field(default_factory=set)
    #: By host, what it has taught this run by now (D28).
    taught: dict[str, Learned] = field(default_factory=dict)
    #: By host, when its last accepted answer ended.
    accepted: dict[str, float] = field(default_factory=dict)
    #: Refusals by URL: the line, its requirement, and the documents that it was made with.
    refused: dict[str, tuple[int, str, tuple[int, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.silence = Silence(self.terms)

    def note_clocks(self, line: Line) -> None:
        """Compare the two times of an exchange with those of the one before."""
        ahead = line.at - line.ended
        moved = 0.0 if self.ahead is None else self.ahead - ahead
        self.ahead, self.put_back = ahead, moved if abs(moved) > CLOCK_SET else 0.0

    def basis(self, origin: str, moment: Moment) -> tuple[int, int]:
        """Which list and which rules decide; 0 where there is none."""
        operator, rules = self.held.blocklist(moment), self.held.rules(origin, moment)
        return operator.serial if operator else 0, rules.serial if rules else 0


@dataclass(slots=True)
class Snapshot:
    """``chain.Held`` of a run at one moment. ``unread``: which documents were needed and are not
    there to be read, in the order in which they were needed.
    """

    run: Run
    moment: Moment
    last: Visit | None = None
    unread: list[str] = field(default_factory=list)

    def blocklist(self) -> Blocklist | Verdict | None:
        """The list in force, or what stands for it; an empty one where it cannot be read."""
        held = self.run.held.blocklist(self.moment)
        if held is None:
            return None
        if held.verdict is not None:
            return held.verdict
        if held.blocklist is None:
            self.unread.append("the blocklist is not among the documents")
        return _UNREAD_LIST if held.blocklist is None else held.blocklist

    def robots(self, origin: str) -> Rules | None:
        """The rules in force, or a stand-in where they cannot be read."""
        held = self.run.held.rules(origin, self.moment)
        if held is None:
            return None
        if held.rules is None:
            self.unread.append("a robots.txt is not among the documents")
        return held.rules or _UNREAD_RULES

    def last_visit(self, key: str) -> Visit | None:  # noqa: ARG002
        """The last request for the source: the one that the caller gave."""
        return self.last
