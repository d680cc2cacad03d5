"""One request on its way: all that is known of it, in one object.

A ticket is of one Request object with one URL, and is kept beside it, by the object. If the request
goes back to the queue, it is the same object, with a new ticket. Whoever makes another Request (a
redirect, a middleware, a queue on disk) makes another ticket: it takes over what lasts
(:meth:`Ticket.lasting`), and nothing else. So nothing that a gate has let pass lets anything else
pass.

What lasts stands in the request's meta, under :data:`TICKET`, as values that JSON and pickle have.
A copy by a downloader middleware has it from there. When the request has ended for its spider, it
is taken out of the meta: what a spider copies says nothing.

A document's ticket (``fetcher.Document``) counts for each Request whose meta names it, for as long
as it is being fetched: whatever the project's components have made of that, it is sent as it was
made.

``Retries`` has what R5 counts by URL and by origin: it outlives any one request.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol
from weakref import WeakKeyDictionary

from scrapy_walsh.policy import addresses, hosts, urls, visits
from scrapy_walsh.policy.addresses import NO_LEAD, Led
from scrapy_walsh.policy.event import TARGET
from scrapy_walsh.state import records

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request

    from scrapy_walsh.adapters.context import Context
    from scrapy_walsh.policy.backoff import GiveUp, Retry
    from scrapy_walsh.policy.chain import Rules
    from scrapy_walsh.policy.host import Host
    from scrapy_walsh.policy.robots.usage import Statement
    from scrapy_walsh.policy.verdict import Unanswered, Verdict

#: The key of ``Request.meta`` for a dict: what lasts of the ticket, or which document it is for.
TICKET: Final = "walsh_ticket"
#: The key that marks a trial of https, after which http is tried.
TRY_HTTPS: Final = "walsh_try_https"


class Origin(Protocol):
    """A queue that has given out a request."""

    def take_back(self, request: Request) -> None:
        """Take in *request* again, as if it had not been given out."""


@dataclass(slots=True, eq=False, repr=False)
class Ticket:
    """What is known of one request.

    ``tickets``: of its crawl. ``host``: where it goes. ``form``, ``key``: R8's (``urls.key_of``).
    ``ours``: it is for a document that the gates need, and no target; ``attempt`` and ``hops``:
    retries and redirects before it. ``trial``: it only tries whether its host answers https.

    What lasts: ``source``, R8's key of the declared source whose request it is; ``via``, the keys
    of the sources that redirects led from; and ``led``: which URL led to it (D38).

    ``verdict``: the last one, and the documents that it was made from (``basis``, and ``rules``,
    the robots.txt). ``hour_left``: seconds that it should wait where R8 refuses it
    (``visits.hour_left``). ``cleared``: the gate has let it through. ``late``: it waits no longer
    for what `Spider.start` may still declare (R6). ``queue``: which has given it out, so it may go
    back there. ``back``: the queue that it goes back to now. ``first``: it goes first on its host.
    ``given_back``: it came back from a slow host, and goes before others of the same rank. ``hop``:
    a redirect led to it; ``revisits``: and it is no duplicate of an earlier request for that page.
    ``before``: the URL that its Request had when it was judged, if a middleware has changed that.

    ``address``: the one that its host was reached at; "" where that is not known: behind a proxy.
    ``failure``: what R5 decided on its last exchange. ``status``: that of its answer; None without
    one. ``by``: the project's middleware that was called last. ``sent``: its URL with R13's tags.
    ``headed``: the head of an answer came in that exchange. ``said``: what the site says about the
    use of its answer.
    """

    tickets: Tickets
    url: str
    host: Host
    form: str = ""
    key: str = ""
    purpose: str = TARGET
    ours: ClassVar[bool] = False
    attempt: int = 0
    hops: int = 0
    trial: bool = False
    source: str | None = None
    via: list[str] = field(default_factory=list)
    led: Led = NO_LEAD
    verdict: Verdict | None = None
    basis: tuple[int, int] | None = None
    hour_left: float | None = None
    rules: Rules | None = None
    cleared: bool = False
    late: bool = False
    queue: Origin | None = None
    back: Origin | None = None
    first: bool = False
    given_back: bool = False
    hop: bool = False
    revisits: bool = False
    before: str = ""
    address: str = ""
    failure: Retry | GiveUp | None = None
    status: int | None = None
    by: str = ""
    sent: str | None = None
    headed: bool = False
    said: tuple[Statement, ...] = ()

    @property
    def popped(self) -> bool:
        """Whether a queue has given its request out, and the downloader has not ended it."""
        return self.queue is not None

    def lasting(self) -> dict[str, Any]:
        """What another Request takes over, in this process or in another, as JSON has it."""
        led = list(self.led) if self.led.url else None
        lasts = {"source": self.source, "via": self.via, "led": led}
        return {name: value for name, value in lasts.items() if value}

    def leads(self) -> Led:
        """What it is to the URLs that its answer leads to, by a redirect or a link (D38)."""
        return Led(self.url, addresses.kind_of(self.address) if self.address else addresses.PUBLIC)


#: By Request object, of all crawls of the process.
_TICKETS: Final[WeakKeyDictionary[Request, Ticket]] = WeakKeyDictionary()


def ticket_of(request: Any) -> Ticket | None:
    """The ticket of the target *request*, of whatever crawl; None where its URL is another now."""
    ticket = _TICKETS.get(request)
    return ticket if ticket is not None and ticket.url == request.url else None


def form_of(request: Request) -> str:
    """Method and digest of the body of *request*; "" for a plain GET (``urls.form_of``)."""
    return urls.form_of(request.method, request.body)


def key_of(request: Request) -> str:
    """By which a source is known everywhere (``urls.key_of``)."""
    ticket = ticket_of(request)
    return urls.key_of(request.url, form_of(request)) if ticket is None else ticket.key


def lasting_of(request: Request) -> dict[str, Any]:
    """What lasts of the ticket of *request*, or of the one that it will be given."""
    ticket = ticket_of(request)
    return _read_lasting(request.meta.get(TICKET)) if ticket is None else ticket.lasting()


def _read_lasting(value: object) -> dict[str, Any]:
    """*value*, as far as it is what :meth:`Ticket.lasting` gives: it may come from Redis."""
    found: dict[str, Any] = {}
    if not isinstance(value, dict):
        return found
    if isinstance(source := value.get("source"), str):
        found["source"] = source
    if isinstance(via := value.get("via"), list):
        found["via"] = [key for key in via if isinstance(key, str)]
    if (led := _led(value.get("led"))).url:
        found["led"] = list(led)
    return found


class Tickets:
    """The tickets of one crawl. ``host_of``: the host of a URL (``Pacing.host_of``)."""

    def __init__(self, host_of: Callable[[str], Host]) -> None:
        self.host_of = host_of
        #: Whether a selector of a page is refused (R9), or warned of, once; None: neither.
        self.refuses_pages: bool | None = None
        #: Those of the documents that are being fetched, by a name that no spider can guess.
        self._documents: dict[str, Ticket] = {}
        #: Of the request that is being sent.
        self.sending: Ticket | None = None

    def note_head(self, **_: Any) -> None:
        """Note that the head of an answer has come to what is being sent."""
        if self.sending is not None:
            self.sending.headed = True

    def of(self, request: Request) -> Ticket:
        """The ticket of *request*, which is made if there is none."""
        return self.known(request) or self._made(request)

    def known(self, request: Request) -> Ticket | None:
        """The ticket of *request*, if there is one."""
        written = request.meta.get(TICKET)
        if isinstance(written, dict) and (name := written.get("document")) is not None:
            document = self._documents.get(name) if isinstance(name, str) else None
            if document is not None:
                return document
        found = ticket_of(request)
        if found is None or found.tickets is not self:
            return None
        if found.form or request.body or request.method != "GET":  # a middleware may change these
            _read_form(found, request)
        return found

    def begin(self, document: Ticket) -> dict[str, Any]:
        """Let *document* count from now on; returns what names it in the meta of a request."""
        name = secrets.token_hex(8)
        self._documents[name] = document
        return {TICKET: {"document": name}}

    def end(self, named: dict[str, Any]) -> None:
        """Let the document no longer count that *named*, of :meth:`begin`, names."""
        self._documents.pop(named[TICKET]["document"], None)

    def _made(self, request: Request) -> Ticket:
        url, before = request.url, _TICKETS.get(request)
        trial = url.startswith("https://") and bool(request.meta.get(TRY_HTTPS))
        ticket = Ticket(self, url, self.host_of(url), trial=trial)
        _read_form(ticket, request)
        lasting = _read_lasting(request.meta.get(TICKET))
        if before is not None and before.tickets is self and before.url != url:
            ticket.before = before.before or before.url
            lasting = before.lasting()
        self.keep(request, ticket, lasting)
        return ticket

    def keep(self, request: Request, ticket: Ticket, lasting: dict[str, Any]) -> None:
        """Let *ticket* be that of *request*, and *lasting* what lasts of it."""
        ticket.source, ticket.via = lasting.get("source"), lasting.get("via", [])
        ticket.led = _led(lasting.get("led"))
        _TICKETS[request] = ticket
        request.meta.pop(TICKET, None)
        if lasting := ticket.lasting():
            request.meta[TICKET] = lasting

    def forget(self, request: Request) -> None:
        """Let *request*, which a spider yields, be one of which nothing is known."""
        request.meta.pop(TICKET, None)
        _TICKETS.pop(request, None)

    def again(
        self, request: Request, other: Request | None = None, *, first: bool = True
    ) -> Request:
        """*request*, or *other* in its place, with a new ticket: it goes back to its queue.

        Scrapy neither filters nor counts it a second time (:meth:`take_back`). It goes first on
        its host; where *first* is false, before others of the same rank.
        """
        before = self.of(request)
        again = request if other is None else other
        ticket = Ticket(self, again.url, self.host_of(again.url), trial=before.trial)
        _read_form(ticket, again)
        self.keep(again, ticket, before.lasting())
        ticket.back, ticket.first, ticket.given_back = before.queue, first, not first
        return again

    def take_back(self, request: Request) -> bool:
        """Whether *request* goes back to the queue that gave it out, which has it now.

        It is the same request: Scrapy's signal, filter and stats have seen it once.
        """
        ticket = self.known(request)
        if ticket is None or ticket.back is None:
            return False
        queue, ticket.back = ticket.back, None
        queue.take_back(request)
        return True


def _led(found: Any) -> Led:
    """What a queue has of how a crawl came to a URL; of what cannot be read, the strictest."""
    match found:
        case [str(url), (addresses.PRIVATE | addresses.LINK_LOCAL) as kind]:
            return Led(url, kind)
        case [str(url), *_]:
            return Led(url)
    return NO_LEAD


def is_conditional(request: Request) -> bool:
    """Whether *request* has validators, so that 304 is an answer to it (RFC 9110 section 13.1)."""
    return bool(request.headers.get("If-None-Match") or request.headers.get("If-Modified-Since"))


def _read_form(ticket: Ticket, request: Request) -> None:
    ticket.form = form_of(request)
    ticket.key = urls.key_of(request.url, ticket.form)


class Retries:
    """The retries of one crawl, those of an earlier run within the last hour included."""

    def __init__(self, context: Context) -> None:
        self._context = context
        #: By R8's key, of those that were sent again; one that was given up has more than there may
        #: be.
        self.attempts: dict[str, int] = {}
        #: The origins that gave no answer to a trial of https.
        self.silent_by_https: set[str] = set()

    def unanswered(self, ticket: Ticket) -> str | Unanswered:
        """Count a request that got no answer. Returns why no retry may follow, "" if one may."""
        if ticket.trial:
            self.silent_by_https.add(hosts.origin(ticket.url))
            return "" if ticket.ours else "https is tried once, then http"
        silence, now = ticket.host.silence, self._context.monotonic()
        robots = ticket.purpose == records.ROBOTS
        silence.note(now, urls.exact_url(ticket.url), robots=robots)
        if (ticket.ours and not robots) or not silence.spent(now, robots=robots):
            return ""
        return silence.unanswered(ticket.host.key, now)

    def tried(self, key: str) -> int:
        """Retries made so far for the target *key*, also by a run within the last hour (R5.6)."""
        if key in self.attempts:
            return self.attempts[key]
        context = self._context
        found = context.recall(lambda: context.store.get(records.Attempts, key))
        counts = found is not None and abs(context.wall() - found.last_at) < visits.REVISIT_FLOOR
        return min(found.count, context.config.max_retries) if found and counts else 0

    def retry(self, key: str) -> None:
        """Count one more retry of the target *key*."""
        count = self.attempts[key] = self.tried(key) + 1
        tried = records.Attempts(key, count, self._context.wall())
        self._context.remember(lambda: self._context.store.put(tried))

    def give_up(self, key: str) -> None:
        """Note that the target *key* is requested no more in this run."""
        self.attempts[key] = self._context.config.max_retries + 1
        self.forget(key)

    def forget(self, key: str) -> None:
        """Let later runs begin anew with the target *key*: it was answered, or given up."""
        self._context.remember(lambda: self._context.store.delete(records.Attempts, key))
