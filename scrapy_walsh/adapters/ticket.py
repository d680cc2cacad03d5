"""Tickets hold our knowledge of each request.

A ticket belongs to one Request object with one URL, and is kept beside it. If the request goes back
to the queue, the same object gets a new ticket. Another Request (for example a redirect, or a copy
by a middleware or a queue on disk) gets another ticket. It takes over only the lasting part
(:meth:`Ticket.lasting`). So a gate's permission for one request never passes to another.

The lasting part is also in the request's meta, under :data:`TICKET`, as values for JSON and pickle.
A copy by a downloader middleware gets it from there. When the request has ended for its spider, it
is removed from the meta, so that a spider cannot copy it.

During the fetch of a document, its ticket (``fetcher.Document``) belongs to each Request with its
name in the meta. The original request is sent, even if the project's components have changed it.

``Retries`` counts retries by URL, and trials of https by origin (R5), for longer than one request.
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

#: The key of ``Request.meta`` for a dict: the lasting part of the ticket, or a document's name.
TICKET: Final = "walsh_ticket"
#: The key for a trial of https. If it fails, http is tried.
TRY_HTTPS: Final = "walsh_try_https"


class Origin(Protocol):
    """A queue that has given a request out."""

    def take_back(self, request: Request) -> None:
        """Take *request* back, as if it had not been given out."""


@dataclass(slots=True, eq=False, repr=False)
class Ticket:
    """Our knowledge of a request.

    ``tickets``: the tickets of its crawl. ``host``: its host. ``form``, ``key``: R8's
    (``urls.key_of``). ``ours``: whether it is for a document. ``attempt``, ``hops``: the number of
    retries and redirects before it. ``trial``: whether it is a trial of https.

    Its lasting part: ``source``, R8's key of its declared source. ``via``, the keys of earlier
    sources that redirected here. ``led``, the URL that led here (D38).

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
    is_document: ClassVar[bool] = False
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
        """Whether a queue has given its request out, and it has not ended yet."""
        return self.queue is not None

    def lasting(self) -> dict[str, Any]:
        """Return the lasting part, as values for JSON. Copies of the request take it over."""
        led = list(self.led) if self.led.url else None
        lasts = {"source": self.source, "via": self.via, "led": led}
        return {name: value for name, value in lasts.items() if value}

    def leads(self) -> Led:
        """Return the lead for URLs in its answer: redirects and links (D38)."""
        if not self.address:
            return Led(self.url, addresses.PUBLIC)
        return Led(self.url, addresses.kind_of(self.address))


#: The tickets of all crawls of the process, by Request object.
_TICKETS: Final[WeakKeyDictionary[Request, Ticket]] = WeakKeyDictionary()


def ticket_of(request: Any) -> Ticket | None:
    """Return the ticket of the target *request*, of any crawl; None if its URL has changed."""
    ticket = _TICKETS.get(request)
    if ticket is None or ticket.url != request.url:
        return None
    return ticket


def form_of(request: Request) -> str:
    """Return method and body digest of *request*; "" for a plain GET (``urls.form_of``)."""
    return urls.form_of(request.method, request.body)


def key_of(request: Request) -> str:
    """Return R8's key of *request* (``urls.key_of``)."""
    ticket = ticket_of(request)
    if ticket is None:
        return urls.key_of(request.url, form_of(request))
    return ticket.key


def lasting_of(request: Request) -> dict[str, Any]:
    """Return the lasting part of the ticket of *request*, or of its future ticket."""
    ticket = ticket_of(request)
    if ticket is None:
        return _read_lasting(request.meta.get(TICKET))
    return ticket.lasting()


def _read_lasting(value: object) -> dict[str, Any]:
    """Return the valid members of *value*, a lasting part that may come from Redis."""
    lasting: dict[str, Any] = {}
    if not isinstance(value, dict):
        return lasting
    if isinstance(source := value.get("source"), str):
        lasting["source"] = source
    if isinstance(via := value.get("via"), list):
        lasting["via"] = [key for key in via if isinstance(key, str)]
    led = _led(value.get("led"))
    if led.url:
        lasting["led"] = list(led)
    return lasting


class Tickets:
    """The tickets of a crawl. ``host_of``: returns the host of a URL (``Pacing.host_of``)."""

    def __init__(self, host_of: Callable[[str], Host]) -> None:
        self.host_of = host_of
        #: True if selectors on pages are refused, False if the first is logged, None if they are
        #: allowed (R9).
        self.refuses_pages: bool | None = None
        #: The tickets of documents during their fetch, by a random name.
        self._documents: dict[str, Ticket] = {}
        #: The ticket of the request that is being sent.
        self.sending: Ticket | None = None

    def note_head(self, **_: Any) -> None:
        """Note that the head of an answer has come to the request that is being sent."""
        if self.sending is not None:
            self.sending.headed = True

    def of(self, request: Request) -> Ticket:
        """Return the ticket of *request*. It is created if there is none."""
        return self.known(request) or self._make(request)

    def known(self, request: Request) -> Ticket | None:
        """Return the ticket of *request*, or None."""
        value = request.meta.get(TICKET)
        if isinstance(value, dict) and (name := value.get("document")) is not None:
            document = self._documents.get(name) if isinstance(name, str) else None
            if document is not None:
                return document
        ticket = ticket_of(request)
        if ticket is None or ticket.tickets is not self:
            return None
        if ticket.form or request.body or request.method != "GET":  # a middleware may change them
            _read_form(ticket, request)
        return ticket

    def begin(self, document: Ticket) -> dict[str, Any]:
        """Begin the fetch of *document*. Returns the meta with its name."""
        name = secrets.token_hex(8)
        self._documents[name] = document
        return {TICKET: {"document": name}}

    def end(self, meta: dict[str, Any]) -> None:
        """End the fetch of the document in *meta*, which comes from :meth:`begin`."""
        self._documents.pop(meta[TICKET]["document"], None)

    def _make(self, request: Request) -> Ticket:
        url = request.url
        previous = _TICKETS.get(request)
        trial = url.startswith("https://") and bool(request.meta.get(TRY_HTTPS))
        ticket = Ticket(self, url, self.host_of(url), trial=trial)
        _read_form(ticket, request)
        lasting = _read_lasting(request.meta.get(TICKET))
        if previous is not None and previous.tickets is self and previous.url != url:
            ticket.before = previous.before or previous.url
            lasting = previous.lasting()
        self.keep(request, ticket, lasting)
        return ticket

    def keep(self, request: Request, ticket: Ticket, lasting: dict[str, Any]) -> None:
        """Make *ticket* the ticket of *request*, with *lasting* as its lasting part."""
        ticket.source = lasting.get("source")
        ticket.via = lasting.get("via", [])
        ticket.led = _led(lasting.get("led"))
        _TICKETS[request] = ticket
        request.meta.pop(TICKET, None)
        lasting = ticket.lasting()
        if lasting:
            request.meta[TICKET] = lasting

    def forget(self, request: Request) -> None:
        """Delete our knowledge of *request*, which comes from a spider."""
        request.meta.pop(TICKET, None)
        _TICKETS.pop(request, None)

    def again(
        self, request: Request, replacement: Request | None = None, *, first: bool = True
    ) -> Request:
        """Return *request*, or its *replacement*, with a new ticket, to go back to its queue.

        Scrapy does not filter or count it again (:meth:`take_back`). It goes first on its host. If
        *first* is false, it goes before others of the same rank.
        """
        previous = self.of(request)
        returned = request if replacement is None else replacement
        ticket = Ticket(self, returned.url, self.host_of(returned.url), trial=previous.trial)
        _read_form(ticket, returned)
        self.keep(returned, ticket, previous.lasting())
        ticket.back = previous.queue
        ticket.first = first
        ticket.given_back = not first
        return returned

    def take_back(self, request: Request) -> bool:
        """Put *request* back into its queue, if it should go back there. Returns whether it did.

        Scrapy's signal, filter and stats have seen this request already.
        """
        ticket = self.known(request)
        if ticket is None or ticket.back is None:
            return False
        queue = ticket.back
        ticket.back = None
        queue.take_back(request)
        return True


def _led(value: Any) -> Led:
    """Return the lead in *value*, from a queue. If it is unreadable, the strictest is assumed."""
    match value:
        case [str(url), (addresses.PRIVATE | addresses.LINK_LOCAL) as kind]:
            return Led(url, kind)
        case [str(url), *_]:
            return Led(url)
    return NO_LEAD


def is_conditional(request: Request) -> bool:
    """Whether *request* has validators, so that a 304 may follow (RFC 9110 section 13.1)."""
    return bool(request.headers.get("If-None-Match") or request.headers.get("If-Modified-Since"))


def _read_form(ticket: Ticket, request: Request) -> None:
    ticket.form = form_of(request)
    ticket.key = urls.key_of(request.url, ticket.form)


class Retries:
    """The retries of a crawl, and of earlier runs within the last hour."""

    def __init__(self, context: Context) -> None:
        self._context = context
        #: The retries of each target, by R8's key. If it was given up, the number is one above the
        #: limit.
        self.attempts: dict[str, int] = {}
        #: Origins that did not answer a trial of https.
        self.silent_by_https: set[str] = set()

    def unanswered(self, ticket: Ticket, *, connected: bool) -> str | Unanswered:
        """Count a request that got no answer. Returns why no retry may follow, "" if one may.

        *connected*: a TCP connection came about.
        """
        if ticket.trial:
            self.silent_by_https.add(hosts.origin(ticket.url))
            if ticket.is_document:
                return ""
            return "https is tried once, then http"
        silence = ticket.host.silence
        now = self._context.monotonic()
        robots = ticket.purpose == records.ROBOTS
        silence.note(now, urls.exact_url(ticket.url), robots=robots, connected=connected)
        if (ticket.is_document and not robots) or not silence.spent(now, robots=robots):
            return ""
        return silence.unanswered(ticket.host.key, now)

    def tried(self, key: str) -> int:
        """Return the retries of the target *key*, with those of the last hour's runs (R5.6)."""
        if key in self.attempts:
            return self.attempts[key]
        context = self._context
        record = context.recall(lambda: context.store.get(records.Attempts, key))
        counts = record is not None and abs(context.wall() - record.last_at) < visits.REVISIT_FLOOR
        if record and counts:
            return min(record.count, context.config.max_retries)
        return 0

    def retry(self, key: str) -> None:
        """Count another retry of the target *key*."""
        count = self.attempts[key] = self.tried(key) + 1
        tried = records.Attempts(key, count, self._context.wall())
        self._context.remember(lambda: self._context.store.put(tried))

    def give_up(self, key: str) -> None:
        """Note that this run does not request the target *key* any more."""
        self.attempts[key] = self._context.config.max_retries + 1
        self.forget(key)

    def forget(self, key: str) -> None:
        """Delete the stored retries of the target *key*, after an answer or its end."""
        self._context.remember(lambda: self._context.store.delete(records.Attempts, key))
