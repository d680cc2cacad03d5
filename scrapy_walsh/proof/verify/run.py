"""The findings of a check of a ledger; and one run of it: its scope, documents, and requests."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.policy.addresses import NO_LEAD, Led, kind_of
from scrapy_walsh.policy.host import Host
from scrapy_walsh.policy.host import Terms as HostTerms
from scrapy_walsh.policy.list.blocklist import Blocklist
from scrapy_walsh.policy.robots.fetch import StandIn
from scrapy_walsh.policy.scope import Scope
from scrapy_walsh.policy.verdict import ALLOWED_IMPLICIT, Verdict
from scrapy_walsh.proof.findings import Finding, Outcome

if TYPE_CHECKING:
    from scrapy_walsh.policy.chain import Rules
    from scrapy_walsh.policy.gates import Gates
    from scrapy_walsh.policy.visits import Visit
    from scrapy_walsh.proof.ledger import Line, Moment
    from scrapy_walsh.proof.verify.terms import Terms

#: Findings that are kept; beyond them they are only counted.
_KEPT: Final = 1000
_NOTES_KEPT: Final = 100
_NOT_HERE: Final = "decisions that depend on missing lines"
_NOT_JUDGED: Final = "not judged: decisions that depend on lines outside of this page"


@dataclass(slots=True)
class Report:
    """The result. ``findings``: what is broken, each with its rule: ``chain``, ``run``, R1 to R13.

    ``underived``: what could not be derived again, by its reason, counted. ``head``: number
    and hash of the last line. ``headed``: it is known from elsewhere which line is the last.
    ``partial``: the ledger begins after its first line. ``excerpt``: only some of its lines are
    judged, so that others may be missing to a decision.
    """

    findings: list[Finding] = field(default_factory=list)
    more: int = 0
    notes: list[str] = field(default_factory=list)
    lines: int = 0
    runs: int = 0
    requests: int = 0
    derived: int = 0
    underived: Counter[str] = field(default_factory=Counter)
    head: tuple[int, str] | None = None
    headed: bool = False
    partial: bool = False
    excerpt: bool = False

    @property
    def holds(self) -> bool:
        """Whether nothing was found; ``underived`` was not seen to hold."""
        return not self.findings

    def find(self, line: int, rule: str, text: str, *, explained: bool = False) -> None:
        """Add a finding; if missing lines may explain it, *explained*, only count it."""
        if explained:
            self.missed()
        elif len(self.findings) < _KEPT:
            self.findings.append(Finding(Outcome.BROKEN, rule, text=text, line=line))
        else:
            self.more += 1

    def note(self, text: str) -> None:
        """Add what a reader should know and is not a breach."""
        if len(self.notes) < _NOTES_KEPT:
            self.notes.append(text)

    def missed(self, reason: str = "") -> None:
        """Count what could not be derived again, by default because lines are missing."""
        missing = _NOT_JUDGED if self.excerpt else _NOT_HERE
        self.underived[reason or missing] += 1


# The documents in force in a run at each moment: lines ``adopted``, ``taken_up``, ``rejected``.

#: The key of the blocklist among the documents; the key of a robots.txt is its origin.
LIST: Final = ""


@dataclass(frozen=True, slots=True)
class Held:
    """A document in force: the list, or the rules of an origin. ``serial``: its line's number.

    ``document``: what stands for it, or the call that reads it: the rules of all hosts of a run
    would not fit into memory. ``since``: when it came into force. ``fetched_at``: when it was
    fetched, None if no line says so; both Unix seconds. ``ttl``, ``crawl_delay``: seconds.
    """

    serial: int
    since: float
    document: Any
    fetched_at: float | None
    ttl: float = math.inf
    digest: str | None = None
    crawl_delay: float = 0.0

    @property
    def what(self) -> Any:
        """The document, or what stands for it; None if it is not there to be read."""
        return self.document() if isinstance(self.document, partial) else self.document


@dataclass(slots=True)
class InForce:
    """The documents in force in a run, each with its predecessor (see ``Moment``)."""

    _held: dict[str, tuple[Held | None, Held | None]] = field(default_factory=dict)

    def now(self, of: str) -> Held | None:
        """The document that is in force now."""
        return self._held.get(of, (None, None))[1]

    def at(self, of: str, moment: Moment) -> Held | None:
        """The document that was in force at that moment."""
        earlier, now = self._held.get(of, (None, None))
        if now is None or moment.saw(now.since):
            return now
        return earlier

    def put(self, of: str, document: Held | None) -> None:
        """Put *document* in force from now on; None: nothing is in force."""
        self._held[of] = (self.now(of), document)

    def keep_list(self, document: Held) -> None:
        """Keep *document* in force at any age, because an attempt to get a newer list failed."""
        self._held[LIST] = (
            self._held[LIST][0],
            replace(document, ttl=math.inf),
        )

    def add_list(self, document: Held) -> None:
        """Put *document* in force: the list, together with one of another address (D39)."""
        earlier, _ = self._held.get(LIST, (None, None))
        self._held[LIST] = (earlier, document)

    def crawl_delay(self, host: str, moment: Moment) -> float:
        """The longest Crawl-delay that the rules of both schemes of *host* ask for."""
        documents = (self.at(f"{scheme}://{host}", moment) for scheme in ("http", "https"))
        return max(
            (document.crawl_delay for document in documents if document is not None),
            default=0.0,
        )


#: The clock was set if wall clock and steady clock have moved apart by so many seconds.
CLOCK_SET: Final = 2.0
#: The reason why a run without its line ``started`` is not derived.
NO_START: Final = "lines of a run whose start is not here: only its pace is judged"


@dataclass(slots=True)
class Run:
    """``begun``: its line ``started``, number ``line``, is here.

    ``has_gaps``: other lines of it may be missing.
    """

    report: Report
    name: str
    terms: Terms
    process: str
    begun: bool
    line: int = 0
    has_gaps: bool = False
    ended: bool = False
    scope: Scope = field(default_factory=Scope)
    held: InForce = field(default_factory=InForce)
    #: Seconds that the wall clock was ahead of the steady clock at the last exchange.
    ahead: float | None = None
    #: Seconds that it was put back between the last two exchanges; 0 if it was not.
    put_back: float = 0.0
    #: The last exchange for a robots.txt, or for what one redirects to, by URL.
    robots_asked: dict[str, Line] = field(default_factory=dict)
    #: By origin, the last exchange for its robots.txt, its redirects included.
    robots_read: dict[str, Line] = field(default_factory=dict)
    #: How many of their redirects no request has followed yet.
    robots_hops: int = 0
    #: Whether the operator's last answer was a redirect.
    operator_hop: bool = False
    #: By URL, the lines of lists of other addresses that bind this run and that no line of it has
    #: taken up yet (D39).
    owed: dict[str, int] = field(default_factory=dict)
    #: The operator's answer that is not yet adopted or rejected.
    operator_answer: Line | None = None
    #: By URL, exchanges without a line ``fetched`` so far, and the verdict that was derived.
    passed: dict[str, tuple[Line, Verdict | None]] = field(default_factory=dict)
    #: By URL, the line ``fetched`` that has a redirect as the spider's answer.
    redirects_told: dict[str, int] = field(default_factory=dict)
    #: By key of what redirects led to in this run, the keys of the sources that they led from.
    hops: dict[str, dict[str, None]] = field(default_factory=dict)
    #: Keys (``urls.key_of``) of what this run has had an answer to.
    answered: set[str] = field(default_factory=set)
    #: Keys of the sources that were requested, with a visit that has not ended.
    visiting: set[str] = field(default_factory=set)
    #: Keys of those that a visit of this run has failed for.
    failing: set[str] = field(default_factory=set)
    #: Refusals by URL: the line, its requirement, and the documents that it was made with.
    refused: dict[str, tuple[int, str, tuple[int, int]]] = field(default_factory=dict)
    #: By R8's key, of a robots.txt by URL: the retries that are due, and the line that gave it up.
    due: dict[str, list[int]] = field(default_factory=dict)
    given_up: dict[str, int] = field(default_factory=dict)
    #: By exact URL, the last line that R5 holds.
    failed: dict[str, Line] = field(default_factory=dict)
    #: The hosts as the crawl knew them: requests without an answer (D13), and what they taught
    #: (D28).
    hosts: dict[str, Host] = field(default_factory=dict)
    #: By URL, the last address that its host was reached at, if that was not public (D38).
    reached: dict[str, str] = field(default_factory=dict)
    #: Trials of https that got no answer, by origin.
    trials: Counter[str] = field(default_factory=Counter)
    #: Its settings as the chain takes them.
    gates: Gates = field(init=False)

    def __post_init__(self) -> None:
        self.gates = self.terms.gates

    def find(self, line: Line, rule: str, text: str) -> None:
        """Add a finding to the report; if lines of the run are missing, they may explain it."""
        self.report.find(line.n, rule, text, explained=self.has_gaps)

    def host(self, key: str) -> Host:
        """The host as the run knows it; ``known``: it has had an exchange with it."""
        if key not in self.hosts:
            terms = HostTerms(self.gates, self.terms.robots_unreachable)
            self.hosts[key] = Host(key, terms)
        return self.hosts[key]

    def led(self, line: Line) -> Led:
        """How the run came to the URL of *line*, as far as it says so (D38)."""
        if line.via:
            return self.leads(line.via)
        return NO_LEAD

    def leads(self, url: str) -> Led:
        """What *url* is to those that it has led to (D38)."""
        address = self.reached.get(url)
        if address is None:
            return Led(url)
        return Led(url, kind_of(address))

    def note_clocks(self, line: Line) -> None:
        """Compare the two times of an exchange with those of the exchange before."""
        ahead = line.at - line.ended
        moved = 0.0 if self.ahead is None else self.ahead - ahead
        self.ahead = ahead
        self.put_back = moved if abs(moved) > CLOCK_SET else 0.0

    def basis(self, origin: str, moment: Moment) -> tuple[int, int]:
        """Which list and which rules decide; 0 if there is none."""
        operator = self.held.at(LIST, moment)
        rules = self.held.at(origin, moment)
        return operator.serial if operator else 0, rules.serial if rules else 0


_UNREAD_LIST: Final = Blocklist()
_UNREAD_RULES: Final = StandIn(Verdict(True, ALLOWED_IMPLICIT, "R2", "the file is missing"))


@dataclass(slots=True)
class Snapshot:
    """``chain.Held`` of a run at one moment. ``unread``: the documents that were needed and cannot
    be read, in the order of need.
    """

    run: Run
    moment: Moment
    last: Visit | None = None
    unread: list[str] = field(default_factory=list)

    def blocklist(self) -> Blocklist | Verdict | None:
        """The list in force, or its stand-in; an empty list if it cannot be read."""
        blocklist: Blocklist | Verdict | None = self._of(LIST, "the blocklist", _UNREAD_LIST)
        return blocklist

    def robots(self, origin: str) -> Rules | None:
        """The rules in force, or a stand-in if they cannot be read."""
        rules: Rules | None = self._of(origin, "a robots.txt", _UNREAD_RULES)
        return rules

    def last_visit(self, key: str) -> Visit | None:  # noqa: ARG002
        """The last request for the source, as the caller gave it."""
        return self.last

    def _of(self, of: str, name: str, unread: Any) -> Any:
        document = self.run.held.at(of, self.moment)
        if document is None:
            return None
        what = document.what
        if what is None:
            self.unread.append(f"{name} is not among the documents")
            return unread
        return what
