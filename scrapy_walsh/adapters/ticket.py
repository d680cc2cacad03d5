"""One request on its way: all that is known of it, in one object.

A ticket is of one Request object with one URL, and travels in its meta. Whoever makes another
Request (a retry, a redirect, a middleware, a spider that copies meta) makes another ticket: it
takes over what lasts (:meth:`Ticket.lasting`), and nothing else. So nothing that a gate has let
pass lets anything else pass. What lasts is also what a queue keeps for another process.

A document's ticket (``fetcher.Document``) counts for each Request that carries it, for as long as
it is being fetched: whatever the project's components have made of that, it is sent as it was made.

``Retries`` has what R5 counts by URL and by origin: it outlives any one request.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final
from weakref import ref

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
    from scrapy_walsh.policy.verdict import Verdict

#: The key of ``Request.meta`` for the ticket; in a queue, for what lasts of it.
TICKET: Final = "walsh_ticket"
#: The key that marks a trial of https, after which http is tried.
TRY_HTTPS: Final = "walsh_try_https"


@dataclass(slots=True, eq=False, repr=False)
class Ticket:
    """What is known of one request.

    ``tickets``: of its crawl. ``host``: where it goes. ``form``, ``key``: R8's (``urls.key_of``).
    ``ours``: it is for a document that the gates need, and no target; ``attempt`` and ``hops``:
    retries and redirects before it. ``trial``: it only tries whether its host answers https.

    What lasts: ``via``, R8's keys of the sources that redirects led from; ``filtered``: it went
    back to the queue past Scrapy's duplicate filter, so what it redirects to is filtered; and
    ``led``: which URL led to it (D38).

    ``verdict``: the last one, and the documents that it was made from (``basis``, and ``rules``,
    the robots.txt). ``hour_left``: seconds that it should wait where R8 refuses it
    (``visits.hour_left``). ``cleared``: the gate has let it through. ``late``: it waits no longer
    for what `Spider.start` may still declare (R6). ``popped``: a queue has given it out, so it may
    go back. ``first``: it goes first on its host. ``given_back``: it came back from a slow host,
    and goes before others of the same rank. ``hop``: a redirect led to it. ``before``: the URL that
    its Request had when it was judged, where a middleware has changed that.

    ``address``: the one that its host was reached at; "" where that is not known: behind a proxy.
    ``failure``: what R5 decided on its last exchange. ``sent``: its URL with R13's tags. ``said``:
    what the site says about the use of its answer.
    """

    tickets: Tickets
    request: ref[Request]
    url: str
    host: Host
    form: str = ""
    key: str = ""
    purpose: str = TARGET
    ours: ClassVar[bool] = False
    attempt: int = 0
    hops: int = 0
    trial: bool = False
    via: list[str] = field(default_factory=list)
    filtered: bool = False
    led: Led = NO_LEAD
    verdict: Verdict | None = None
    basis: tuple[int, int] | None = None
    hour_left: float | None = None
    rules: Rules | None = None
    cleared: bool = False
    late: bool = False
    popped: bool = False
    first: bool = False
    given_back: bool = False
    hop: bool = False
    before: str = ""
    address: str = ""
    failure: Retry | GiveUp | None = None
    sent: str | None = None
    said: tuple[Statement, ...] = ()
    #: Of a document: its fetch is over, and whoever still carries this ticket gains nothing.
    ended: bool = False

    def lasting(self) -> dict[str, Any]:
        """What another Request takes over, in this process or in another."""
        lasts = {name: found for name in ("via", "filtered") if (found := getattr(self, name))}
        return {**lasts, "led": list(self.led)} if self.led.url else lasts

    def leads(self) -> Led:
        """What it is to the URLs that its answer leads to, by a redirect or a link (D38)."""
        return Led(self.url, addresses.kind_of(self.address) if self.address else addresses.PUBLIC)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy of meta, however deep, and a pickle of it have what lasts."""
        return dict, (self.lasting(),)


class Tickets:
    """The tickets of one crawl. ``host_of``: the host of a URL (``Pacing.host_of``)."""

    def __init__(self, host_of: Callable[[str], Host]) -> None:
        self.host_of = host_of
        #: Whether a selector of a page is refused (R9), or warned of, once; None: neither.
        self.refuses_pages: bool | None = None

    def of(self, request: Request) -> Ticket:
        """The ticket of *request*, which is made if there is none."""
        return self.known(request) or self._made(request)

    def known(self, request: Request) -> Ticket | None:
        """The ticket of *request*, if there is one."""
        found = request.meta.get(TICKET)
        if not isinstance(found, Ticket) or found.tickets is not self:
            return None
        if found.ours:
            return None if found.ended else found
        if found.request() is not request or found.url != request.url:
            return None
        if found.form or request.body or request.method != "GET":  # a middleware may change these
            _read_form(found, request)
        return found

    def _made(self, request: Request) -> Ticket:
        url, other = request.url, request.meta.get(TICKET)
        trial = url.startswith("https://") and bool(request.meta.get(TRY_HTTPS))
        ticket = Ticket(self, ref(request), url, self.host_of(url), trial=trial)
        _read_form(ticket, request)
        if isinstance(other, Ticket):
            if other.request() is request:
                ticket.before = other.before or other.url
            other = other.lasting()
        if isinstance(other, dict):  # it may come from Redis
            via = other.get("via")
            if isinstance(via, list):
                ticket.via = [each for each in via if isinstance(each, str)]
            ticket.filtered = other.get("filtered") is True
            ticket.led = _led(other.get("led"))
        request.meta[TICKET] = ticket
        return ticket

    def again(self, request: Request, *, first: bool = True) -> Request:
        """A copy of *request* that a queue takes, past Scrapy's duplicate filter.

        It goes first on its host; where *first* is false, before others of the same rank.
        """
        copy = request.replace(dont_filter=True)
        ticket = self.of(copy)
        ticket.filtered = ticket.filtered or not request.dont_filter
        ticket.first, ticket.given_back = first, not first
        return copy


def _led(found: Any) -> Led:
    """What a queue has of how a crawl came to a URL; of what cannot be read, the strictest."""
    match found:
        case [str(url), (addresses.PRIVATE | addresses.LINK_LOCAL) as kind]:
            return Led(url, kind)
        case [str(url), *_]:
            return Led(url)
    return NO_LEAD


def _read_form(ticket: Ticket, request: Request) -> None:
    ticket.form = urls.form_of(request.method, request.body)
    ticket.key = urls.key_of(request.url, ticket.form)


class Retries:
    """The retries of one crawl, those of an earlier run within the last hour included."""

    def __init__(self, context: Context) -> None:
        self._context = context
        #: By URL, of those that were sent again; one that was given up has more than there may be.
        self.attempts: dict[str, int] = {}
        #: The origins that gave no answer to a trial of https.
        self.silent_by_https: set[str] = set()

    def unanswered(self, ticket: Ticket) -> str:
        """Count a request that got no answer. Returns why no retry may follow, "" if one may."""
        if ticket.trial:
            self.silent_by_https.add(hosts.origin(ticket.url))
            return "" if ticket.ours else "https is tried once, then http"
        silence, now = ticket.host.silence, self._context.monotonic()
        robots = ticket.purpose == records.ROBOTS
        silence.note(now, robots=robots)
        if (ticket.ours and not robots) or not silence.spent(now, robots=robots):
            return ""
        return silence.told(ticket.host.key, now)

    def tried(self, url: str) -> int:
        """Retries made so far for the target *url*, also by a run within the last hour (R5.6)."""
        if url in self.attempts:
            return self.attempts[url]
        context = self._context
        found = context.recall(lambda: context.store.get(records.Attempts, url))
        counts = found is not None and abs(context.wall() - found.last_at) < visits.REVISIT_FLOOR
        return min(found.count, context.config.max_retries) if found and counts else 0

    def retry(self, url: str) -> None:
        """Count one more retry of *url*."""
        count = self.attempts[url] = self.tried(url) + 1
        tried = records.Attempts(url, count, self._context.wall())
        self._context.remember(lambda: self._context.store.put(tried))

    def give_up(self, url: str) -> None:
        """Note that *url* is requested no more in this run."""
        self.attempts[url] = self._context.config.max_retries + 1
        self.forget(url)

    def forget(self, url: str) -> None:
        """Let later runs begin anew with the target *url*: it was answered, or given up."""
        self._context.remember(lambda: self._context.store.delete(records.Attempts, url))
