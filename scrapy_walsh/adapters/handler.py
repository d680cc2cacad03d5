"""R1, R4: the wire: the download handler, and the downloader that gives it its requests (D19).

``Handler`` is the last of our code before the socket. Targets, robots.txt, the blocklist, redirect
hops, retries, ``engine.download_async`` and media pipelines all use the download handlers. So it is
there, and only there, that one request at a time leaves the process, spaced for each host, with the
exact User-Agent.

``Downloader`` is around all downloader middlewares: it sees how a request ends for its spider, and
what a middleware gives in its place. CONCURRENT_REQUESTS is 1, and a request that waits at the
turnstile must not keep others from being sent, so such a request takes up no place in it.
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

    from scrapy_walsh.policy.verdict import Verdict

#: Seconds for which no turn is given after an exchange that was broken off.
_GRACE: Final = 0.1
#: What stands for ``Request(cookies=...)`` among the header fields that were not sent.
_COOKIES: Final = b"Request(cookies=...)"
#: How the names of middlewares begin that answer nothing themselves.
_NOT_OF_PROJECTS: Final = ("scrapy.", "scrapy_walsh.")


def prepare(handler: Any) -> None:
    """Make one of Scrapy's handlers send what it is given, once, and read no header without end.

    Raises RuntimeError for a handler that is not known.
    """
    compat.no_persistent_connections(handler)
    compat.bound_headers(handler)
    compat.send_as_judged(handler)


def check_target(handler: Any, request: Request) -> None:
    """Raise OwnFault unless *handler* asks the host that was judged for the URL that was (D36)."""
    scheme = request.url.partition(":")[0]
    try:
        sent = compat.sent_target(handler, request)
    except ValueError as error:
        raise OwnFault(f"{request.url} is not sent: {error}", "its URL") from error
    if not hosts.is_asked(request.url, scheme, sent.authority):
        name = type(handler).__name__
        why = f"{name} would send it to {sent.authority}, which is not the host that was judged"
        raise OwnFault(f"{request.url} is not sent: {why}", f"{name} {sent.authority}")


def _address_of(response: Response, url: str, proxy: str | None, chosen: str) -> str:
    """The address at which the host of *url* has answered; empty if it is not known.

    *chosen*: the address of its name that the request connected to. Scrapy 2.13 does not say the
    address of an answer without a body.
    """
    address = getattr(response, "ip_address", None)
    if address is not None and not proxy:
        return str(address)
    if chosen and not proxy:
        return chosen
    # The proxy knows the address of a name. One that is written in the URL is known if it has one
    # reading.
    literals = literals_of(url)
    return literals[0] if len(literals) == 1 else ""


@compat.as_handler
class Handler(Seat):
    """The download handler of http and https: it wraps Scrapy's own."""

    lazy = False

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Any:
        """Make the seat. Scrapy logs what a handler raises, and goes on with other schemes."""
        try:
            return super().from_crawler(crawler)
        except WalshError as error:
            raise compat.NotSwallowed(error) from error

    def __init__(self, crawl: Crawl) -> None:
        super().__init__(crawl)
        self.crawler = crawl.crawler
        self.crawler.signals.connect(crawl.tickets.note_head, signals.headers_received)
        self._user_agent = crawl.config.identity.user_agent
        self._inner: dict[tuple[str, object], Any] = {}
        self._names = names.Names(self.crawler.settings)
        #: Header fields of the spider's that were not sent, each named once.
        self._left_out: set[bytes] = set()

    def _handler(self, request: Request, ticket: Ticket) -> Any:
        """Scrapy's handler, made at the first use: without a reactor it is another one.

        Documents have some of their own, which no receiver of the project's can stop.
        """
        scheme = request.url.partition(":")[0].lower()
        crawler = self.crawl.fetcher.crawler_of(request, ticket) if ticket.ours else self.crawler
        if (scheme, crawler) not in self._inner:
            path = self.crawler.settings.get("DOWNLOAD_HANDLERS_BASE")[scheme]
            handler = build_from_crawler(load_object(path), crawler)
            prepare(handler)
            compat.guard_connections(handler, self._names.current)
            self._inner[scheme, crawler] = handler
        return self._inner[scheme, crawler]

    async def download_request(self, request: Request) -> Response:
        """The answer to *request*, in its turn. A document's is taken here, whatever follows."""
        ticket = self.crawl.tickets.of(request)
        if not isinstance(ticket, Document):
            return await self._exchange(request, ticket)
        sent = ticket.restored(request)
        try:
            response = await self._exchange(sent, ticket)
        except Exception as error:
            ticket.broke_off(sent, error)
            raise
        request.meta["download_latency"] = sent.meta.get("download_latency", 0.0)
        return ticket.brought(sent, response)

    async def _exchange(self, request: Request, ticket: Ticket) -> Response:
        """Send *request* in its turn, and do what follows from its answer; the response."""
        crawl = self.crawl
        try:
            handler = self._handler(request, ticket)
            check_target(handler, request)
            unseen = await self._enter(request, ticket)
        except Exception as error:
            faults.pass_on("a request could not be made", error)
        connected = True
        sent = Sent(request, ticket, unseen, crawl.steady())
        proxy = request.meta.get("proxy")
        named = ticket.url if ticket.purpose == OPERATOR and not proxy else proxy
        connecting = names.Connecting(crawl, self._names, ticket, named)
        self._names.connecting = connecting
        ticket.headed = False
        crawl.tickets.sending = ticket
        try:
            self._dress(request)
            for tell in crawl.on_wire:
                tell(request)
            self._look_ahead(request)
            exchange = compat.Task(self._send(handler, request, ticket))
            crawl.break_off = exchange.cancel
            response: Response = await exchange.result
            sent.response = response
            ticket.address = _address_of(response, ticket.url, proxy, connecting.address)
        except BaseException as error:
            if connecting.refused is not None:
                connected = False
                raise self._not_connected(ticket, connecting.refused) from error
            sent.whole = faults.says_something(error)
            ticket.headed = ticket.headed or (sent.whole and faults.is_unreadable(error))
            if isinstance(error, compat.OVER_LIMIT) and not ticket.ours:
                # R8 counts it, so what is too long is not soon sent again.
                crawl.sources.answered(request, ticket, "200", crawl.wall())
            if compat.closing(crawl.crawler) and isinstance(error, compat.CANCELLED):
                raise Closing from error
            raise
        finally:
            crawl.tickets.sending = None
            if connected:
                self._ended(sent)
        if b"@" in (location := response.headers.get("Location") or b""):
            # A redirect reads it without the user name and the password.
            bare = crawl.intake.url(location.decode("latin-1"))
            response.headers["Location"] = bare.encode("latin-1")
        return response

    def _ended(self, sent: Sent) -> None:
        """Do what follows from an exchange, and give its turn back."""
        crawl, host = self.crawl, sent.ticket.host
        try:
            crawl.recorder.exchange(crawl.gate.after(sent))
        except Exception as error:
            faults.pass_on("an answer could not be recorded", error)
        finally:
            if sent.response is not None:
                TURNSTILE.leave(host)
            else:  # once the server has seen the connection closed
                compat.call_later(_GRACE, lambda: TURNSTILE.leave(host))

    def _not_connected(self, ticket: Ticket, verdict: Verdict) -> Refused:
        """End the turn of a request whose host has no address that it may have (D38).

        Nothing has been sent, so this is no exchange: it says nothing about the host.
        """
        crawl = self.crawl
        self._give_back(ticket)
        crawl.pacing.hold(ticket.host, 0.0)  # it was booked, and other processes wait for its end
        return Refused(ticket.url, verdict) if ticket.ours else crawl.gate.refuse(ticket, verdict)

    def _look_ahead(self, request: Request) -> None:
        """Look up the name of the host that is next while *request* is under way.

        Where a proxy is set, that looks names up itself.
        """
        for queue in () if request.meta.get("proxy") else self.crawl.queues:
            if (host := queue.ahead()) is not None and compat.has_reactor():
                # D36: a name that is looked up for nothing harms no promise.
                self._names.look_up(urlsplit(f"//{host}").hostname or "", bool)

    async def _send(self, handler: Any, request: Request, ticket: Ticket) -> Response:
        """Send *request*, under its URL with R13's tags if it has some, and signed; the response.

        What is changed so late is a copy: a retry or a redirect is made from *request*, and must
        not begin with tags or with a signature that is used up.
        """
        crawl, sent = self.crawl, request
        url = request.url if crawl.tags is None else crawl.tags.sent_as(request.url)
        ticket.sent = None if url == request.url else url
        if ticket.sent is not None or crawl.signer is not None:
            sent = request.replace(url=url)
            if sent.url != url:  # Scrapy has escaped it anew
                why = f"Scrapy makes {sent.url} of it: please report it"
                raise OwnFault(f"{url} is not sent: {why}", "escaping")
        if crawl.signer is not None:  # nothing of it may change after that (D25)
            fields = crawl.signer.fields(compat.sent_target(handler, sent), crawl.wall())
            sent.headers.update(fields)
        response = await compat.call_handler(handler, sent, self.crawler.spider)
        if sent is not request:
            request.meta.update(sent.meta)  # the latency, which AutoThrottle reads
        return response if ticket.sent is None else response.replace(url=request.url)

    async def _enter(self, request: Request, ticket: Ticket) -> bool:
        """Wait for a turn, and book the host for all processes (R4.6).

        Returns whether no process ever sent a request to the host before. Where a new blocklist has
        come while *request* waited, it is adopted or rejected first (R3).
        """
        crawl, host = self.crawl, ticket.host
        while True:
            unseen = await TURNSTILE.enter(crawl, host, document=ticket.ours)
            try:
                crawl.recorder.flush()  # what is sent was declared before, also where we are killed
                needed = crawl.gate.at_wire(request, ticket)
                booking = crawl.pacing.reserve(host) if needed is None else None
            except BaseException as error:
                self._give_back(ticket)
                if isinstance(error, Exception) and not isinstance(error, IgnoreRequest):
                    crawl.fail(error)
                raise
            if booking is not None and booking.wait <= 0:
                return unseen and not booking.known
            wait = 0.0 if booking is None else booking.wait
            self._give_back(ticket, wait)
            if ticket.popped or (ticket.ours and (needed or wait > 0)):
                raise NotYet(host.key, wait)
            if needed is not None:
                await crawl.gate.at_gate(request, ticket)

    def _give_back(self, ticket: Ticket, wait: float = 0.0) -> None:
        """End the turn without a request; none may be sent to its host for *wait* seconds."""
        TURNSTILE.give_back(ticket.host, wait)
        self.crawl.sources.let_go(ticket.key)

    def _dress(self, request: Request) -> None:
        """R1: set the one User-Agent, and take off fields that a spider may not set."""
        signed = self.crawl.signer is not None
        for name in list(request.headers):
            # No signature beside the crawl's own.
            if may_send(name) and not (signed and is_signature_field(name)):
                continue
            # For a proxy it is needed. Without one, Scrapy's middleware takes it off.
            if name == b"Proxy-Authorization" and request.meta.get("proxy"):
                continue
            del request.headers[name]
            if name not in self._left_out:
                self._left_out.add(name)
                logger.warning(
                    "the header %s of %s is not sent, nor is it with any other request of this "
                    "run: it is not a spider's to set (R1)",
                    name.decode("latin-1"),
                    request.url,
                )
        request.headers["User-Agent"] = self._user_agent
        if request.cookies and _COOKIES not in self._left_out:
            self._left_out.add(_COOKIES)
            logger.warning(
                "the cookies of %s are not sent, nor are those of any other request of this run: "
                "cookies are off (R1)",
                request.url,
            )

    async def close(self) -> None:
        """Close the handlers that are wrapped."""
        for handler in self._inner.values():
            await compat.close_handler(handler)


class Downloader(ScrapyDownloader):
    """As Scrapy's, but the turnstile decides whether the queue may give out a request."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._crawl = Crawl.of(crawler)
        # Before that of any middleware.
        self.middleware.methods["process_exception"].appendleft(self._process_outcome)
        for name in ("process_request", "process_exception"):
            self._watch(self.middleware.methods[name])

    def _watch(self, methods: deque[Any]) -> None:
        """Note which middleware of the project is called: it may answer in place of a site."""

        def noting(path: str) -> Callable[..., None]:
            def note(request: Request, **_: Any) -> None:
                self._crawl.tickets.of(request).by = path

            return note

        for method in [*methods]:
            path = path_of(type(getattr(method, "__self__", method)))
            if not path.startswith(_NOT_OF_PROJECTS):
                methods.append(noting(path))
            methods.append(method)
            methods.popleft()

    def fetch(self, request: Request, *args: Any) -> Deferred[Response | Request]:
        """As Scrapy's; then record how *request* ended. *args*: the spider, before 2.14."""
        fetched: Deferred[Response | Request] = super().fetch(request, *args)
        return fetched.addBoth(self._over, request)

    def _over(self, result: Any, request: Request) -> Any:
        outcome: Any = result.value if isinstance(result, Failure) else result
        try:
            self._crawl.gate.over(request, outcome)
        except Refused as error:
            self._crawl.sources.failed(request, self._crawl.tickets.of(request), error)
            raise
        return result

    def _process_outcome(self, request: Request, exception: Exception, **_: Any) -> Request | None:
        """What a gate decided ends here: no middleware takes it for an error of the network.

        So it is not in ``downloader/exception_count``, and nothing of another project retries it.
        """
        crawl, ticket = self._crawl, self._crawl.tickets.of(request)
        # Only a target comes from the queue, which takes it back; while closing, into the JOBDIR.
        if isinstance(exception, (Closing, NotYet)) and ticket.popped:
            return crawl.tickets.again(request)
        if isinstance(exception, (Closing, NotYet, Refused, GaveUp)):
            raise exception
        if not ticket.ours and (fault := faults.of_machine(exception)) is not None:
            crawl.recorder.own_fault(f"{request.url} could not be requested: {fault}", fault.cause)
        return None

    def get_slot_key(self, request: Request) -> str:
        """The host of *request*, whatever ``download_slot`` is in a copied meta."""
        return self._crawl.tickets.of(request).host.key

    def needs_backout(self) -> bool:
        """Whether the queue must wait: its last request has not ended, or no turn is free."""
        for request in self.active:
            ticket = ticket_of(request)
            if ticket is not None and ticket.popped:
                return True
        return TURNSTILE.taken()
