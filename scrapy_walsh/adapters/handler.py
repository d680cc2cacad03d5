"""The download handler, and the downloader that passes requests to it (R1, R4, D19).

``Handler`` is our last code before the socket. All requests use it: targets, documents, redirect
hops, retries, ``engine.download_async`` and media pipelines. So only here requests leave the
process: one at a time, spaced for each host, and with the exact User-Agent.

``Downloader`` wraps all downloader middlewares, so it sees how a request ends for its spider, and
if a middleware replaces it. CONCURRENT_REQUESTS is 1. But a request that bypassed the queue may
wait long at the turnstile, and must not block the queue. So ``needs_backout`` does not count it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from scrapy import signals
from scrapy.core.downloader import Downloader as ScrapyDownloader
from scrapy.exceptions import IgnoreRequest
from scrapy.utils.misc import build_from_crawler, load_object
from twisted.python.failure import Failure

from scrapy_walsh.adapters import compat
from scrapy_walsh.adapters.crawl import Crawl, Seat
from scrapy_walsh.adapters.documents import faults
from scrapy_walsh.adapters.documents.fetcher import OPERATOR, Document
from scrapy_walsh.adapters.events import logger
from scrapy_walsh.adapters.gate import Sent
from scrapy_walsh.adapters.outcomes import Closing, GaveUp, NotYet, Refused
from scrapy_walsh.adapters.plugins import path_of
from scrapy_walsh.adapters.ticket import Ticket, ticket_of
from scrapy_walsh.adapters.wire import names
from scrapy_walsh.adapters.wire.pacing import TURNSTILE
from scrapy_walsh.exceptions import OwnFault, WalshError
from scrapy_walsh.policy import hosts
from scrapy_walsh.policy.addresses import literals_of
from scrapy_walsh.policy.identity import may_send
from scrapy_walsh.policy.signing import is_signature_field

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable

    from scrapy.crawler import Crawler
    from scrapy.http import Request, Response
    from twisted.internet.defer import Deferred

#: Seconds without a turn after an exchange without an answer, so that the server sees the
#: connection end before the next one begins.
_GRACE: Final = 0.1
#: The entry for ``Request(cookies=...)`` among the removed header fields.
_COOKIES: Final = b"Request(cookies=...)"
#: Prefixes of middlewares that do not belong to the project.
_NOT_OF_PROJECTS: Final = ("scrapy.", "scrapy_walsh.")


def prepare(handler: Any) -> None:
    """Prepare one of Scrapy's handlers: it must send a request once and unchanged.

    It must also limit the header section of an answer. Raises RuntimeError for an unknown handler.
    """
    compat.no_persistent_connections(handler)
    compat.bound_headers(handler)
    compat.send_as_judged(handler)


def check_target(handler: Any, request: Request) -> None:
    """Raise OwnFault unless *handler* sends *request* to the judged host (D36)."""
    scheme = request.url.partition(":")[0]
    try:
        target = compat.sent_target(handler, request)
    except ValueError as error:
        raise OwnFault(f"{request.url} is not sent: {error}", "its URL") from error
    if not hosts.is_asked(request.url, scheme, target.authority):
        name = type(handler).__name__
        reason = (
            f"{name} would send it to {target.authority}, which is not the host that was judged"
        )
        raise OwnFault(f"{request.url} is not sent: {reason}", f"{name} {target.authority}")


def _address_of(response: Response, url: str, proxy: str | None, chosen: str) -> str:
    """Return the address from which the host of *url* answered; "" if it is not known.

    *chosen*: the address to which the request connected. It is needed for Scrapy 2.13, which gives
    no address if the answer has no body.
    """
    address = getattr(response, "ip_address", None)
    if address is not None and not proxy:
        return str(address)
    if chosen and not proxy:
        return chosen
    # Only the proxy knows the address of a name. But if the URL itself has an address, we know it,
    # unless it can be read in two ways.
    literals = literals_of(url)
    if len(literals) == 1:
        return literals[0]
    return ""


@compat.as_handler
class Handler(Seat):
    """The download handler for http and https. It wraps Scrapy's handler."""

    #: Scrapy creates the handler when the crawl begins. So an error in the settings ends it.
    lazy = False

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Any:
        """Create the seat."""
        try:
            return super().from_crawler(crawler)
        except WalshError as error:  # Scrapy would only log it, and go on with other schemes
            raise compat.NotSwallowed(error) from error

    def __init__(self, crawl: Crawl) -> None:
        super().__init__(crawl)
        self.crawler = crawl.crawler
        self.crawler.signals.connect(crawl.tickets.note_head, signals.headers_received)
        self._user_agent = crawl.config.identity.user_agent
        #: Scrapy's handlers, by scheme and crawler.
        self._inner: dict[tuple[str, object], Any] = {}
        self._names = names.Names(self.crawler.settings)
        #: Removed header fields, because each is logged only once.
        self._removed_headers: set[bytes] = set()

    def _handler(self, request: Request, ticket: Ticket) -> Any:
        """Return Scrapy's handler, which is created at first use.

        Without a reactor it is another class. Documents have separate handlers, so that no signal
        receiver of the project can stop them.
        """
        scheme = request.url.partition(":")[0].lower()
        crawler = (
            self.crawl.fetcher.crawler_of(request, ticket) if ticket.is_document else self.crawler
        )
        if (scheme, crawler) not in self._inner:
            path = self.crawler.settings.get("DOWNLOAD_HANDLERS_BASE")[scheme]
            handler = build_from_crawler(load_object(path), crawler)
            prepare(handler)
            compat.guard_connections(handler, self._names.current, self._names.timeout)
            self._inner[scheme, crawler] = handler
        return self._inner[scheme, crawler]

    async def download_request(self, request: Request) -> Response:
        """Return the answer to *request*.

        A document's ticket notes the answer here, before a middleware of the project can change it.
        """
        ticket = self.crawl.tickets.of(request)
        while not isinstance(ticket, Document):
            try:
                return await self._exchange(request, ticket)
            except NotYet:
                if ticket.popped:  # it waits in the queue; any other request waits here
                    raise
        # A middleware may have changed the document's request, so the original is sent (D33).
        original = ticket.restored(request)
        try:
            response = await self._exchange(original, ticket)
        except Exception as error:
            ticket.broke_off(original, error)
            raise
        request.meta["download_latency"] = original.meta.get("download_latency", 0.0)
        return ticket.brought(original, response)

    async def _exchange(self, request: Request, ticket: Ticket) -> Response:
        """Send *request* when it has its turn, apply the result, and return the response."""
        crawl = self.crawl
        try:
            handler = self._handler(request, ticket)
            check_target(handler, request)
            unseen = await self._wait_for_turn(request, ticket)
        except Exception as error:
            faults.pass_on("a request could not be made", error)
        is_connected = True
        exchange: compat.Task | None = None
        sent = Sent(request, ticket, unseen, crawl.steady())
        proxy = request.meta.get("proxy")
        sent.proxy = hosts.proxy_host(proxy) if faults.fails_for_us(proxy) else None
        connecting = self._names.connecting = self._connecting(sent, proxy)
        ticket.headed = False
        crawl.tickets.sending = ticket
        try:
            self._set_headers(request)
            for tell in crawl.on_wire:
                tell(request)
            self._look_ahead(request)
            exchange = compat.Task(self._send(handler, request, ticket))
            crawl.break_off = exchange.cancel
            response: Response = await exchange.result
            sent.response = response
            if faults.of_answer(response.status, proxy):
                sent.unsent = "proxy"
            ticket.address = _address_of(response, ticket.url, proxy, connecting.address)
        except BaseException as error:
            if connecting.is_stopped:  # so the error is ours, and nothing was sent
                is_connected = False
                raise self._not_connected(ticket, connecting) from error
            sent.unsent = faults.unsent(error, connecting, proxy)
            if exchange is not None and exchange.is_cancelled:
                # The end of the crawl broke it off, which says nothing about the host.
                sent.whole = False
                raise Closing from error
            sent.whole = faults.says_something(error)
            # An answer that cannot be read is an answer, too: the host is not silent.
            ticket.headed = ticket.headed or (sent.whole and faults.is_unreadable(error))
            if isinstance(error, compat.OVER_LIMIT) and not ticket.is_document:
                # The visit counts (R8), so that a body that is too long is not sent again soon.
                crawl.sources.answered(request, ticket, 200, crawl.wall())
            raise
        finally:
            crawl.tickets.sending = None
            if is_connected:
                self._conclude(sent)
        if b"@" in (location := response.headers.get("Location") or b""):
            # Remove user name and password before the redirect is followed.
            bare = crawl.intake.url(location.decode("latin-1"))
            response.headers["Location"] = bare.encode("latin-1")
        return response

    def _connecting(self, sent: Sent, proxy: str | None) -> names.Connecting:
        """Return the connection of a request, through *proxy* if that is not None."""
        crawl = self.crawl
        ticket = sent.ticket
        if proxy:
            crawl.pacing.behind_proxy()
            return names.Connecting(crawl, self._names, ticket, proxy)
        # The operator's settings name the blocklist and the proxy, so these may have a private
        # address (D38).
        configured = ticket.url if ticket.purpose == OPERATOR else None

        def reached(address: str) -> float:
            wait = crawl.pacing.reached(ticket.host, address)
            if ticket.host.traffic.server is not None:
                sent.started = crawl.steady()  # it is spaced from now, not from the look-up
            return wait

        return names.Connecting(crawl, self._names, ticket, configured, reached)

    def _conclude(self, sent: Sent) -> None:
        """Apply the result of an exchange, and give its turn back."""
        crawl = self.crawl
        host = sent.ticket.host
        try:
            crawl.recorder.exchange(crawl.gate.after(sent))
        except Exception as error:
            faults.pass_on("an answer could not be recorded", error)
        finally:
            if sent.response is not None:
                TURNSTILE.leave(host)
            else:  # wait until the server has seen the end of the connection
                compat.call_later(_GRACE, lambda: TURNSTILE.leave(host))

    def _not_connected(self, ticket: Ticket, connecting: names.Connecting) -> Refused | NotYet:
        """End the turn of a request because all addresses of its host are refused (D38).

        Or because its server is left alone (T43). Nothing was sent, so this is no exchange, and
        does not count for the host.
        """
        crawl = self.crawl
        self._give_back(ticket, connecting.wait)
        # End the booking, because other processes wait for its end.
        crawl.pacing.hold(ticket.host, 0.0)
        verdict = connecting.refused
        if verdict is None:
            return NotYet(ticket.host.key, connecting.wait)
        if ticket.is_document:
            return Refused(ticket.url, verdict)
        return crawl.gate.refuse(ticket, verdict)

    def _look_ahead(self, request: Request) -> None:
        """Resolve the name of the next host while *request* is under way.

        Behind a proxy nothing is resolved here, because the proxy does that.
        """
        if request.meta.get("proxy"):
            return
        for queue in self.crawl.queues:
            host = queue.ahead()
            if host is not None and compat.has_reactor():
                # ``bool`` ignores the addresses: the look-up only fills the cache of names. If the
                # name is not needed later, no promise is broken (D36).
                self._names.look_up(urlsplit(f"//{host}").hostname or "", bool)

    async def _send(self, handler: Any, request: Request, ticket: Ticket) -> Response:
        """Send *request*, with tags (R13) and a signature if it has them; return the response.

        Only a copy is changed. A retry or redirect is made from *request*, and must not inherit
        tags or an old signature.
        """
        crawl = self.crawl
        outgoing = request
        url = request.url if crawl.tags is None else crawl.tags.sent_as(request.url)
        ticket.sent = None if url == request.url else url
        if ticket.sent is not None or crawl.signer is not None:
            outgoing = request.replace(url=url)
            if outgoing.url != url:  # Scrapy has escaped it differently
                reason = f"Scrapy changes it to {outgoing.url}: please report it"
                raise OwnFault(f"{url} is not sent: {reason}", "escaping")
        if crawl.signer is not None:  # the request must not change after this (D25)
            fields = crawl.signer.fields(compat.sent_target(handler, outgoing), crawl.wall())
            outgoing.headers.update(fields)
        response = await compat.call_handler(handler, outgoing, self.crawler.spider)
        if outgoing is not request:
            request.meta.update(outgoing.meta)  # AutoThrottle reads the latency
        if ticket.sent is None:
            return response
        return response.replace(url=request.url)

    async def _wait_for_turn(self, request: Request, ticket: Ticket) -> bool:
        """Wait for a turn, and book the host for all processes (R4.6).

        Returns whether no process has sent a request to the host before. If a new blocklist has
        come meanwhile, it is adopted or rejected first (R3).
        """
        crawl = self.crawl
        host = ticket.host
        while True:
            unseen = await TURNSTILE.enter(crawl, host, document=ticket.is_document)
            try:
                crawl.recorder.flush()  # its line `declared` must come first, even if we are killed
                need = crawl.gate.at_wire(request, ticket)
                booking = crawl.pacing.reserve(host) if need is None else None
            except BaseException as error:
                self._give_back(ticket)
                # An IgnoreRequest ends only this request. Any other error ends the crawl.
                if isinstance(error, Exception) and not isinstance(error, IgnoreRequest):
                    crawl.fail(error)
                raise
            if booking is not None and booking.wait <= 0:
                return unseen and not booking.known
            wait = 0.0 if booking is None else booking.wait
            self._give_back(ticket, wait)
            # A request from the queue waits there, and a document's fetch is begun again later. Any
            # other request stays here. So does a document while the shared store is away.
            if ticket.popped or (ticket.is_document and (need or wait > 0)):
                raise NotYet(host.key, wait)
            if need is not None:
                await crawl.gate.at_gate(request, ticket)

    def _give_back(self, ticket: Ticket, wait: float = 0.0) -> None:
        """End the turn without a request, and unlock its source for other runs.

        Its host gets no request for *wait* seconds.
        """
        TURNSTILE.give_back(ticket.host, wait)
        self.crawl.sources.let_go(ticket.key)

    def _set_headers(self, request: Request) -> None:
        """Set the User-Agent, and remove fields that a spider may not set (R1)."""
        signed = self.crawl.signer is not None
        for name in list(request.headers):
            # A signed request has only the crawl's own signature.
            if may_send(name) and not (signed and is_signature_field(name)):
                continue
            # A proxy needs this field. Without a proxy, Scrapy's middleware removes it.
            if name == b"Proxy-Authorization" and request.meta.get("proxy"):
                continue
            del request.headers[name]
            if name not in self._removed_headers:
                self._removed_headers.add(name)
                logger.warning(
                    "the header %s of %s is not sent, here or in other requests of this run: a "
                    "spider may not set it (R1)",
                    name.decode("latin-1"),
                    request.url,
                )
        request.headers["User-Agent"] = self._user_agent
        if request.cookies and _COOKIES not in self._removed_headers:
            self._removed_headers.add(_COOKIES)
            logger.warning(
                "the cookies of %s are not sent, here or in other requests of this run: cookies "
                "are off (R1)",
                request.url,
            )

    async def close(self) -> None:
        """Close the wrapped handlers."""
        for handler in self._inner.values():
            await compat.close_handler(handler)


class Downloader(ScrapyDownloader):
    """Scrapy's downloader, but the turnstile decides whether the queue may give out a request."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._crawl = Crawl.of(crawler)
        # Our method comes first, so that no middleware sees a gate's exception.
        self.middleware.methods["process_exception"].appendleft(self._process_outcome)
        for name in ("process_request", "process_exception"):
            self._watch(self.middleware.methods[name])

    def _watch(self, methods: deque[Any]) -> None:
        """Before each method of a project's middleware, insert one that notes its name.

        A middleware may answer a request by itself. Then the ticket says which one did (``by``).
        """

        def note_of(path: str) -> Callable[..., None]:
            def note(request: Request, **_: Any) -> None:
                self._crawl.tickets.of(request).by = path

            return note

        # The deque is changed in place: each method moves to its end, behind the note about it.
        for method in [*methods]:
            path = path_of(type(getattr(method, "__self__", method)))
            if not path.startswith(_NOT_OF_PROJECTS):
                methods.append(note_of(path))
            methods.append(method)
            methods.popleft()

    def fetch(self, request: Request, *args: Any) -> Deferred[Response | Request]:
        """Call Scrapy's method, then record how *request* ended.

        *args*: the spider, before Scrapy 2.14.
        """
        fetched: Deferred[Response | Request] = super().fetch(request, *args)
        return fetched.addBoth(self._record_end, request)

    def _record_end(self, result: Any, request: Request) -> Any:
        """Tell the gate how *request* ended. If it refuses what replaces it, that is the end."""
        outcome: Any = result.value if isinstance(result, Failure) else result
        try:
            self._crawl.gate.over(request, outcome)
        except Refused as error:
            self._crawl.sources.failed(request, self._crawl.tickets.of(request), error)
            raise
        return result

    def _process_outcome(self, request: Request, exception: Exception, **_: Any) -> Request | None:
        """Pass a gate's exception on, so that no middleware treats it as an error of the network.

        So it is not in ``downloader/exception_count``, and no middleware retries it.
        """
        crawl = self._crawl
        ticket = self._crawl.tickets.of(request)
        # A target from the queue goes back there. If the spider is closing, it goes to the JOBDIR.
        if isinstance(exception, (Closing, NotYet)) and ticket.popped:
            return crawl.tickets.again(request)
        if isinstance(exception, (Closing, NotYet, Refused, GaveUp)):
            raise exception
        if not ticket.is_document and (fault := faults.of_machine(exception)) is not None:
            crawl.recorder.own_fault(f"{request.url} could not be requested: {fault}", fault.cause)
        return None

    def get_slot_key(self, request: Request) -> str:
        """Return the host of *request*. A ``download_slot`` in a copied meta does not count."""
        return self._crawl.tickets.of(request).host.key

    def needs_backout(self) -> bool:
        """Whether the queue must wait: its last request is under way, or no turn is free."""
        for request in self.active:
            ticket = ticket_of(request)
            if ticket is not None and ticket.popped:
                return True
        return TURNSTILE.taken()
