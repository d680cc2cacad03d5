"""One run of a ledger: its scope, the documents in force, and what it has sent."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from scrapy_walsh.policy.blocklist import Blocklist
from scrapy_walsh.policy.robots_fetch import StandIn
from scrapy_walsh.policy.scope import Scope
from scrapy_walsh.policy.verdict import ALLOWED_IMPLICIT, Verdict
from scrapy_walsh.proof.verify.documents import InForce
from scrapy_walsh.proof.verify.retries import Retries
from scrapy_walsh.proof.verify.silence import Silence

if TYPE_CHECKING:
    from scrapy_walsh.ledger.reading import Line, Moment
    from scrapy_walsh.policy.chain import Rules
    from scrapy_walsh.policy.learned import Learned
    from scrapy_walsh.policy.recrawl import Visit
    from scrapy_walsh.proof.verify.terms import Terms

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
