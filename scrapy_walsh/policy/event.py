"""Events, as frozen values. The log, the stats and the ledger are made from them.

Each member of a ledger line is declared here, once. The ledger is written from these values, and
``proof.ledger`` reads a line back as such a value. The bounds are for reading, because a ledger may
come from a stranger.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct

from scrapy_walsh.policy.hints import Hints  # noqa: TC001  a reader needs it
from scrapy_walsh.policy.verdict import (  # noqa: TC001  a reader needs them
    Unanswered,
    Verdict,
    VerdictName,
)

#: The kinds of events, as types.
EventKind = Literal[
    "refused",
    "held",
    "fetched",
    "retried",
    "deferred",
    "given_up",
    "not_modified",
    "answered",
    "too_many_redirects",
    "adopted",
    "rejected",
    "taken_up",
    "asked",
]

#: The kinds of events. HELD: a target waits, since its host is not due (R4).
REFUSED: Final = "refused"
HELD: Final = "held"
FETCHED: Final = "fetched"
RETRIED: Final = "retried"
DEFERRED: Final = "deferred"
GIVEN_UP: Final = "given_up"
NOT_MODIFIED: Final = "not_modified"
#: A middleware of the project has answered, and no exchange was made.
ANSWERED: Final = "answered"
TOO_MANY_REDIRECTS: Final = "too_many_redirects"
ADOPTED: Final = "adopted"
REJECTED: Final = "rejected"
#: A document that an earlier run or another process fetched is now in force.
TAKEN_UP: Final = "taken_up"
#: A person has lifted the hold of a host (`walsh state forget --hold`). It belongs to no run.
LIFTED: Final = "lifted"
#: The kind of an ``Exchange``.
ASKED: Final = "asked"

#: The purpose of an exchange.
TARGET: Final = "target"

#: Why nothing of a request was sent: its host's name has no address, there was no connection, or no
#: TLS, the proxy passed nothing on, or our own side failed.
Unsent = Literal["name", "connection", "tls", "proxy", "ours"]
#: Those without a TCP connection to the host, so that it has no page to give (D13).
UNCONNECTED: Final[tuple[Unsent | None, ...]] = ("name", "connection")


#: Unix seconds, to about the year 5138; a Crawl-delay may be far longer, and is finite.
Time = Annotated[float, Meta(ge=0, le=1e11)]
#: A duration, or a due time, that can be reckoned with.
Seconds = Annotated[float, Meta(ge=0, le=1.7e308)]
#: A count or a status.
Count = Annotated[int, Meta(ge=-(10**9), le=10**9)]

#: The members that an event has from its verdict, besides the name.
_OF_A_VERDICT: Final = (
    *("requirement", "reason", "document", "line", "rule", "group", "digest", "address"),
    *("unanswered", "cause"),
)


class Event(Struct, frozen=True):
    """A decision about ``url``.

    ``kind``: one of the constants above. ``requirement``, ``verdict``, ``reason``, ``document``,
    ``line``, ``rule``, ``group`` and ``digest``: as in a ``Verdict``. ``host``: the throttle key.
    ``status``: of the answer. ``wait``: seconds until the host is due. ``due``: when the target may
    be requested again, Unix seconds. ``schema``: digest of the standalone schema that a blocklist
    without its own was validated with. ``form``: of ``urls.form_of``. ``proxy``: the proxy's host,
    if the proxy was refused, not the URL's own host; of an exchange, if it went that way.
    ``usage``: the site's statements about use in an answer, one line each. ``pages``: how often a
    page came in place of a robots.txt, a day apart, while its old rules stay in force (D44).
    ``unfollowed``: True for a redirect that could not be followed, so that the visit of its source
    failed (R8). ``address``: the IP address that
    the host was reached at, or that ``private_address`` refuses; None if it is not known, for
    example behind a proxy. ``via``: the URL that led there, if the address depends on it. ``hop``:
    the refused redirect of a rejected robots.txt (D37). ``robots_host``: the host that was not due,
    if the target waits for a robots.txt on another host than ``host``. ``error``: of what failed
    without an answer: the network's, in a few words. ``unanswered``, ``cause``: as in a
    ``Verdict``; the first also of a target that was given up. ``in_robots``: how many of ``usage``,
    the first ones, stand in the robots.txt. ``hints``: of an answer, when to come back.
    ``max_age``: of a robots.txt in force, by its Cache-Control.
    """

    kind: EventKind
    url: str
    requirement: str = ""
    verdict: VerdictName | Literal[""] = ""
    reason: str = ""
    document: str | None = None
    line: Count | None = None
    host: str = ""
    status: Count | None = None
    wait: Seconds | None = None
    due: Seconds | None = None
    rule: str | None = None
    group: tuple[str, ...] = ()
    digest: str | None = None
    schema: str | None = None
    form: str = ""
    proxy: str | None = None
    usage: tuple[str, ...] = ()
    pages: Count | None = None
    address: str | None = None
    via: str = ""
    hop: str = ""
    unfollowed: bool | None = None
    robots_host: str = ""
    error: str = ""
    unanswered: Unanswered | None = None
    cause: str = ""
    in_robots: Count | None = None
    hints: Hints | None = None
    max_age: Seconds | None = None

    @classmethod
    def of(cls, kind: EventKind, url: str, verdict: Verdict, host: str, **members: Any) -> Event:
        """The event of *kind* that *verdict* on *url* caused.

        *members*: others than the verdict's.
        """
        fields = {name: getattr(verdict, name) for name in _OF_A_VERDICT} | members
        return cls(kind, url, host=host, verdict=verdict.name, **fields)

    def __str__(self) -> str:
        """One line for a person."""
        gate = " ".join(part for part in (self.requirement, self.verdict) if part)
        place = f" [{self.document}{f':{self.line}' if self.line else ''}]" if self.document else ""
        return f"{self.kind} {self.url}{f' ({gate})' if gate else ''}: {self.reason}{place}"


class Pace(Struct, frozen=True, omit_defaults=True):
    """The facts about a host that ``chain.admit`` decides from.

    ``wait``: seconds until the host is due, ``inf`` while a request to it is under way.
    ``interval``: seconds between two requests to it. ``spent``: the verdict against it if it has
    answered none of the attempts that a run allows (``host.Silence``).
    """

    host: str
    wait: Seconds
    interval: Seconds
    spent: Verdict | None = None


class Exchange(Event, frozen=True, kw_only=True):
    """A request that was sent, and its answer; an event of the kind ``asked``.

    ``host``: the throttle key. ``purpose``: ``target``, ``robots`` or ``operator``. ``started``,
    ``ended``: Unix seconds by the steady clock, which does not jump when the wall clock is set
    (D9). ``status``: None without an answer. ``answered``: False if our side broke it off.
    ``interval``: seconds between two requests to the host. ``exempt``: one target may follow this
    robots.txt at once (T1). ``verdict``, ``digest``: name and document of the verdict that let it
    pass the gates. ``attempt``: the number of retries before it. ``retry_after``: the values of
    such fields. ``date``: the Date beside them. ``cut``: True if the head of an answer came, but
    not the whole body. Then R5 counts no answer, and the host is not silent. ``wait``: seconds that
    R5 or a Retry-After leaves the host alone; None if there is no need. ``gives_up``: R5 allows no
    further retry. ``sent``: the URL with R13's tags, if it had any. ``hops``: redirects that led to
    this document. ``robots_of``: the origin of the robots.txt that redirects here. ``form``: of
    ``urls.form_of``. ``again``: True if this run had an answer to the same request before.
    ``visit``: True for the target of a slow host that ``throttle.visit_from`` let go ahead of the
    interval. ``once``: True for a trial of https that got no answer (``walsh_try_https``): it is
    not counted against the host, and http may follow. ``body``: SHA-256 of a robots.txt's body as
    it was read, hexadecimal. ``octets``: of the body that came, as it was packed. ``whole``: False
    if more would have come, but this side reads no more of a document. ``learned``: the new learned
    interval, in seconds, if this answer changed it; 0 for none. A longer interval binds from the
    next accepted answer on (D28). ``taught``: the members of the ``Learned`` in the store, if this
    run did not know it before. ``silent``: True if the host gave no answer in an earlier run, nor
    in this run so far, so this is its only attempt (D31). ``unasked``: True for a 304 to a request
    that was not conditional. ``reset``: seconds until its rate limit is reset, if nothing is left
    of that. ``words``: of an answer that closes the target's door (``visits.words_of``). ``pace``:
    the facts that *admit* decided from; None in a ledger of before. ``server``: the key of the
    host's server, if its hosts are paced together (T43). ``server_interval``: seconds between two
    requests to it. ``server_wait``: seconds that all of its hosts are left alone after this answer.
    ``unsent``: why nothing was sent, so that the host's server saw no request; else None.
    """

    kind: EventKind = ASKED
    method: str = "GET"
    purpose: str = ""
    started: Time = 0.0
    ended: Time = 0.0
    answered: bool = False
    interval: Seconds = 0.0
    exempt: bool = False
    attempt: Count = 0
    retry_after: tuple[str, ...] = ()
    date: str = ""
    cut: bool | None = None
    gives_up: bool = False
    sent: str | None = None
    hops: Count = 0
    robots_of: str = ""
    again: bool | None = None
    visit: bool | None = None
    once: bool | None = None
    body: str | None = None
    octets: Count | None = None
    whole: bool | None = None
    learned: Seconds | None = None
    taught: tuple[Seconds, ...] = ()
    silent: bool | None = None
    unasked: bool | None = None
    reset: Seconds | None = None
    words: str = ""
    pace: Pace | None = None
    server: str = ""
    server_interval: Seconds | None = None
    server_wait: Seconds | None = None
    unsent: Unsent | None = None
