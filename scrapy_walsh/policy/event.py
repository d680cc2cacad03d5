"""What happened, as frozen values. The log, the stats and the ledger are all made from them.

A member of a ledger's line is declared here, once: the ledger is written from these values, and
``proof.ledger`` reads a line back as one of them. The bounds are of what is read: a ledger may
come from anybody.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct

from scrapy_walsh.policy.verdict import (  # noqa: TC001  a reader needs them
    Unanswered,
    Verdict,
    VerdictName,
)

#: What an event can be about.
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
#: A document that an earlier run, or another process, fetched is in force from now on.
TAKEN_UP: Final = "taken_up"
#: A person has lifted the hold of a host (`walsh state forget --hold`); of no run.
LIFTED: Final = "lifted"
#: Of an ``Exchange``.
ASKED: Final = "asked"

#: What an exchange was for.
TARGET: Final = "target"


#: Unix seconds, to about the year 5138; a Crawl-delay may be far longer, and is finite.
Time = Annotated[float, Meta(ge=0, le=1e11)]
#: A duration, or a due time, that can be reckoned with.
Seconds = Annotated[float, Meta(ge=0, le=1.7e308)]
#: A count or a status.
Count = Annotated[int, Meta(ge=-(10**9), le=10**9)]

#: What an event has from its verdict, beside the name.
_OF_A_VERDICT: Final = (
    *("requirement", "reason", "document", "line", "rule", "group", "digest", "address"),
    *("unanswered", "cause"),
)


class Event(Struct, frozen=True):
    """What was decided about ``url``.

    ``kind``: one of the constants above. ``requirement``, ``verdict``, ``reason``, ``document``,
    ``line``, ``rule``, ``group`` and ``digest``: as in a ``Verdict``. ``host``: the throttle key.
    ``status``: of the answer. ``wait``: seconds until the host is due. ``due``: when the target may
    be requested again, Unix seconds. ``schema``: digest of the standalone schema that a blocklist
    without its own was validated with. ``form``: of ``urls.form_of``. ``proxy``: the proxy's
    host, where that and not the URL's own was refused. ``usage``: of an answer, what its site said
    about use, one line for each statement. ``pages``: of a robots.txt whose rules stay in force, in
    how many fetches a day apart a page came in its place (D44). ``unfollowed``: True for a redirect
    that could not be followed, so that the visit of its source failed (R8). ``address``: the one
    that the host was reached at, or, of what ``private_address`` refuses, would be; None where it
    is not known, as behind a proxy. ``via``: the URL that led there, where that matters for the
    address. ``hop``: of a robots.txt that is rejected: where it redirects to, if that was refused
    (D37). ``robots_host``: of a deferral: the host that was not due, if it is not ``host`` but that
    of a robots.txt which is read first. ``error``: of what failed without an answer: the network's,
    in a few words. ``unanswered``, ``cause``: as in a ``Verdict``; the first also of a target that
    was given up. ``in_robots``: how many of ``usage``, the first ones, stand in the robots.txt.
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

    @classmethod
    def of(cls, kind: EventKind, url: str, verdict: Verdict, host: str, **members: Any) -> Event:
        """The event of *kind* that *verdict* on *url* caused. *members*: those beside it."""
        fields = {name: getattr(verdict, name) for name in _OF_A_VERDICT} | members
        return cls(kind, url, host=host, verdict=verdict.name, **fields)

    def __str__(self) -> str:
        """One line for a person."""
        gate = " ".join(part for part in (self.requirement, self.verdict) if part)
        place = f" [{self.document}{f':{self.line}' if self.line else ''}]" if self.document else ""
        return f"{self.kind} {self.url}{f' ({gate})' if gate else ''}: {self.reason}{place}"


class Pace(Struct, frozen=True, omit_defaults=True):
    """What is known of a host, to decide whether a request to it may go now (``chain.admit``).

    ``wait``: seconds until the host is due, ``inf`` while a request to it is under way.
    ``interval``: seconds between two requests to it. ``spent``: the verdict against it if it has
    answered none of the requests that one run grants such a host (``host.Silence``).
    """

    host: str
    wait: Seconds
    interval: Seconds
    spent: Verdict | None = None


class Exchange(Event, frozen=True, kw_only=True):
    """One request that was sent, and its answer; an event of the kind ``asked``.

    ``host``: the throttle key. ``purpose``: ``target``, ``robots`` or ``operator``. ``started``,
    ``ended``: Unix seconds by the steady clock (D9), which setting the wall clock does not move.
    ``status``: None without an answer. ``answered``: False where this side broke it off.
    ``interval``: seconds between two requests to the host. ``exempt``: one target may follow this
    robots.txt at once (T1). ``verdict``, ``digest``: name and document of the verdict by which the
    gates let it pass. ``attempt``: retries before this one. ``retry_after``: the values of such
    fields. ``date``: the Date beside them. ``cut``: True where the head of an answer came, and its
    body not to its end: R5 counts it as no answer, and its host is not silent. ``wait``: seconds
    for which R5 leaves the host alone: before a retry, or since a Retry-After asks for it; None
    where R5 says nothing.
    ``gives_up``: R5 allows no further retry. ``sent``: the URL with R13's tags, if it had any.
    ``hops``: redirects that led to this document. ``robots_of``: where a redirect led to it, the
    origin whose robots.txt that was. ``form``: of ``urls.form_of``. ``again``: True
    where this run had an answer to the same request before. ``visit``: True for the target of a
    slow host that ``throttle.visit_from`` let go ahead of the interval. ``once``: True for a trial
    of https that got no answer (``walsh_try_https``): it is not counted against the host, and http
    may follow. ``body``: SHA-256 of a robots.txt's body as it was read, hexadecimal. ``octets``: of
    the body that came, as it was packed. ``whole``: False where more would have
    come, but this side reads no more of a document. ``learned``: the interval that the host has
    taught, seconds, where this answer changed it; 0 for none. A longer one binds from the next
    accepted answer on (D28). ``taught``: what
    the host had taught before, as the store had it, where this run did not know that itself: the
    members of a ``Learned``. ``silent``: True where the host gave no answer in an earlier run, nor
    in this one before, so that it is granted this one request (D31). ``unasked``: True for a 304 to
    a request that was not conditional. ``pace``: what *admit* goes by, when the request had its
    turn; None in a ledger of before.
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
    pace: Pace | None = None
