"""The only module that asks which version of Scrapy this is (2.13 to 2.19).

No other module uses private names of Scrapy or Twisted. CONTRIBUTING.md lists the steps for a new
version of Scrapy.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import logging
import os
import sys
from contextvars import ContextVar
from traceback import walk_stack
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, cast

import attr
from scrapy import Spider, exceptions, signals, version_info
from scrapy.downloadermiddlewares.stats import DownloaderStats
from scrapy.dupefilters import RFPDupeFilter
from scrapy.extensions.feedexport import FeedExporter
from scrapy.resolver import HostResolution
from scrapy.selector import Selector
from scrapy.settings import Settings, default_settings
from scrapy.spidermiddlewares.urllength import UrlLengthMiddleware
from scrapy.utils.conf import build_component_list
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from scrapy.utils.misc import load_object
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import DNSLookupError
from twisted.internet.error import TimeoutError as TwistedTimeoutError
from twisted.python.failure import Failure
from twisted.web._newclient import HEADER, STATUS, ResponseFailed

from scrapy_walsh.exceptions import visible
from scrapy_walsh.policy.urls import Target, path_and_query, request_target, target

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping

    from scrapy.crawler import Crawler
    from scrapy.http import Request, Response
    from scrapy.settings import BaseSettings

_T = TypeVar("_T")
_Class = TypeVar("_Class", bound=type)

#: Name and value of the setting that switches the jitter of DOWNLOAD_DELAY off in this version.
JITTER_SETTING: Final[tuple[str, Any]] = (
    ("DOWNLOAD_DELAY_JITTER", 0.0)
    if hasattr(default_settings, "DOWNLOAD_DELAY_JITTER")
    else ("RANDOMIZE_DOWNLOAD_DELAY", False)
)

#: Whether download handlers are coroutine functions.
_ASYNC_HANDLERS: Final = version_info >= (2, 14)

#: The errors of the network, by Scrapy's default, whatever the project sets. Scrapy has the last
#: two in it before 2.14 only, because later versions wrap them in errors of their own.
TRANSPORT_ERRORS: Final[tuple[type[BaseException], ...]] = (
    *map(load_object, cast("list[str]", default_settings.RETRY_EXCEPTIONS)),
    ResponseFailed,
    TwistedTimeoutError,
)

#: The error of a body over DOWNLOAD_MAXSIZE. Nothing is retried, because the network did not fail.
OVER_LIMIT: Final = getattr(exceptions, "DownloadCancelledError", CancelledError)

#: The settings of this version. Only these are pinned.
KNOWN_SETTINGS: Final = frozenset(dir(default_settings))

#: Why the engine closes the spider after a signal.
_SHUTDOWN: Final = "shutdown"

_FACTORY: Final = "DOWNLOADER_CLIENTCONTEXTFACTORY"
_VERIFY: Final = "DOWNLOAD_VERIFY_CERTIFICATES"
#: Settings that make Scrapy's handlers verify a server's certificate by the system's CAs (R3).
_VERIFYING: Final[Mapping[str, Any]] = (
    {_VERIFY: True, _FACTORY: default_settings.DOWNLOADER_CLIENTCONTEXTFACTORY}
    if _VERIFY in KNOWN_SETTINGS
    else {_FACTORY: "scrapy.core.downloader.contextfactory.BrowserLikeContextFactory"}
)


def future(deferred: Deferred[_T]) -> Awaitable[_T]:
    """An awaitable in place of *deferred*, for a coroutine that Scrapy runs."""
    return cast("Awaitable[_T]", maybe_deferred_to_future(deferred))


def _awaited(result: Any) -> Awaitable[Any]:
    """An awaitable in place of *result*, which is a Deferred before 2.14."""
    return cast("Awaitable[Any]", future(result) if isinstance(result, Deferred) else result)


def run(coroutine: Coroutine[Any, Any, _T]) -> Deferred[_T]:
    """Start *coroutine* under the reactor or loop in use."""
    return cast("Deferred[_T]", deferred_from_coro(coroutine))


class Task:
    """A coroutine that runs from now on, and that :meth:`cancel` can break off.

    ``result``: to be awaited once. ``is_cancelled``: it was broken off. Its error then depends on
    Scrapy's version, and on the handler that was at work.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, _T]) -> None:
        self._deferred = run(coroutine)
        self.is_cancelled = False
        self.result: Awaitable[Any] = future(self._deferred)

    def cancel(self) -> None:
        """Break the coroutine off at the point that it waits at, if it has not ended."""
        if not self._deferred.called:
            self.is_cancelled = True
            self._deferred.cancel()


def _reactor() -> Any:
    """Twisted's reactor if it is in use, else None. An import would install it."""
    return sys.modules.get("twisted.internet.reactor")


def has_reactor() -> bool:
    """Whether Twisted's reactor is in use."""
    return _reactor() is not None


#: Called with each error of a function of :func:`call_later`, which no caller could catch.
ON_FAILURE: Final[list[Callable[[BaseException | None], object]]] = []


def _failed(error: BaseException | None) -> None:
    for tell in ON_FAILURE.copy():
        tell(error)


def _call_reporting(function: Callable[[], object]) -> None:
    try:
        result = function()
        if isinstance(result, Deferred):
            result.addErrback(lambda failure: _failed(failure.value))
    except Exception as error:
        _failed(error)


def call_later(delay: float, function: Callable[[], object]) -> Callable[[], None]:
    """Call *function* after *delay* seconds. Returns a function that cancels the pending call.

    If it raises, or returns a Deferred that fails, ``ON_FAILURE`` gets the error.
    """
    try:
        from scrapy.utils.asyncio import call_later as later  # noqa: PLC0415
    except ImportError:  # before 2.14
        later = _reactor().callLater
    return later(max(0.0, delay), functools.partial(_call_reporting, function)).cancel


class Timer:
    """One call of *function*, which can be set, set anew and cancelled.

    ``pending``: cancels the call that is still to come; None if none is.
    """

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function
        self.pending: Callable[[], None] | None = None

    def set(self, delay: float) -> None:
        """Call the function after *delay* seconds, instead of at a time that was set before."""
        self.cancel()
        self.pending = call_later(delay, self._call)

    def cancel(self) -> None:
        """Drop the pending call, if there is one."""
        if self.pending is not None:
            self.pending()
            self.pending = None

    def _call(self) -> None:
        self.pending = None
        self._function()


def sleep(seconds: float) -> Awaitable[None]:
    """Wait for so many *seconds*. The event loop goes on meanwhile."""
    deferred: Deferred[None] = Deferred()
    call_later(seconds, lambda: deferred.callback(None))
    return future(deferred)


def in_thread(
    function: Callable[[], _T], seconds: float, tell: Callable[[_T], object], default: _T
) -> None:
    """Run *function* in a thread and call *tell* with its result. Needs a reactor.

    If it raises, or takes more than so many *seconds* (0: no limit), *tell* gets *default*.
    """
    from twisted.internet.threads import deferToThread  # noqa: PLC0415  it imports the reactor

    waiting = [tell]

    def tell_once(result: _T) -> None:
        if waiting:
            waiting.pop()(result)

    cancel = call_later(seconds, lambda: tell_once(default)) if seconds > 0 else None

    def end(result: _T) -> None:
        if cancel is not None and waiting:
            cancel()
        tell_once(result)

    deferToThread(function).addCallbacks(end, lambda _: end(default))


class _AddressReceiver:
    """Collects the addresses of a name (Twisted's ``IResolutionReceiver``) and calls *tell*."""

    def __init__(self, tell: Callable[[list[str]], object]) -> None:
        self._tell = tell
        self._addresses: list[str] = []

    def resolutionBegan(self, resolution: object) -> None:  # noqa: N802  Twisted's names
        pass

    def addressResolved(self, address: Any) -> None:  # noqa: N802
        self._addresses.append(address.host)

    def resolutionComplete(self) -> None:  # noqa: N802
        self._tell(self._addresses)


def sets_resolver(settings: BaseSettings) -> bool:
    """Whether the project has set a resolver of names, or a script has given the reactor one."""
    # The setting has a new name since 2.19.
    names = "DNS_RESOLVER", "TWISTED_DNS_RESOLVER"
    if any((settings.getpriority(name) or 0) > 0 for name in names):
        return True
    installed = type(getattr(_reactor(), "resolver", None)).__module__
    return not installed.startswith(("builtins", "twisted.internet.", "scrapy."))


def resolve_by_reactor(name: str, tell: Callable[[list[str]], object]) -> None:
    """Call *tell* with the addresses of *name* that the reactor's resolver has."""
    _reactor().nameResolver.resolveHostName(_AddressReceiver(tell), name)


class _ChosenResolver:
    """Twisted's ``IHostnameResolver`` for a connection: it gives one address, or none."""

    def __init__(self, connecting: Any) -> None:
        self._connecting = connecting

    def resolveHostName(  # noqa: N802  Twisted's name
        self,
        receiver: Any,
        hostName: str,  # noqa: N803
        portNumber: int = 0,  # noqa: N803
        *_: object,
        **__: object,
    ) -> Any:
        resolution = HostResolution(hostName)
        receiver.resolutionBegan(resolution)

        def tell(chosen: str | None) -> None:
            if chosen is not None:
                kind = IPv6Address if ":" in chosen else IPv4Address
                receiver.addressResolved(kind("TCP", chosen, portNumber))
            receiver.resolutionComplete()

        self._connecting.resolve(hostName, tell)
        return resolution


def _through_tunnel(
    endpoint: Any, connecting: Any, connect: Callable[[], Deferred[Any]]
) -> Deferred[Any]:
    """Call *connect* once *endpoint* has the address that *connecting* chooses for its proxy."""
    chosen: Deferred[str] = Deferred()
    name: str = endpoint._host

    def tell(address: str | None) -> None:
        if chosen.called:  # the request was cancelled meanwhile
            return
        if address is None:
            chosen.errback(DNSLookupError(f"{name} has no address that may be used"))
        else:
            chosen.callback(address)

    def begin(address: str) -> Deferred[Any]:
        endpoint._host = address
        return connect()

    tunnel = chosen.addCallback(begin)
    connecting.resolve(name, tell)
    return tunnel


#: Seconds to connect: in this time four SYNs are sent. With Scrapy's 180 s for a whole request, an
#: address that swallows packets would block the wire for minutes.
CONNECT_TIMEOUT: Final = 10.0


def guard_connections(handler: Any, current: Callable[[], Any], timeout: float) -> None:
    """Make *handler* connect each request to an address that we have chosen, in CONNECT_TIMEOUT.

    *current*: returns the object that chooses (``names.Connecting``). We call it when a connection
    begins, so it belongs to this request, however long the look-up takes. If the request needs a
    tunnel, we choose the address of the proxy. The object gets the transport, once there is one.
    *timeout*: DNS_TIMEOUT, for aiohttp's look-up; 0: no limit.
    """
    pool: Any = getattr(handler, "_pool", None)
    connector: Any = getattr(getattr(handler, "_session", None), "connector", None)
    if pool is not None:
        _guard_pool(pool, current)
    elif hasattr(connector, "_resolve_host"):
        _guard_connector(connector, current, timeout)
    else:
        name = type(handler).__qualname__
        raise RuntimeError(f"{name} connects to addresses that cannot be judged")


def _guard_pool(pool: Any, current: Callable[[], Any]) -> None:
    """Guard the connections of Twisted's *pool*."""
    begin = pool._newConnection

    def new_connection(key: Any, endpoint: Any) -> Any:
        connecting = current()
        inner = getattr(endpoint, "_wrappedEndpoint", endpoint)
        if hasattr(inner, "_tunneledHost"):  # Scrapy's, which asks the reactor's resolver
            connection = _through_tunnel(inner, connecting, lambda: begin(key, endpoint))
        else:
            if hasattr(inner, "_getNameResolverAndMaybeWarn"):
                resolver = _ChosenResolver(connecting)
                inner._nameResolver = resolver
                inner._getNameResolverAndMaybeWarn = lambda _: resolver
                inner._timeout = min(inner._timeout or CONNECT_TIMEOUT, CONNECT_TIMEOUT)
            connection = begin(key, endpoint)

        def note(protocol: Any) -> Any:
            connecting.transport = protocol.transport
            return protocol

        return connection.addCallback(note)

    pool._newConnection = new_connection


def _guard_connector(connector: Any, current: Callable[[], Any], timeout: float) -> None:
    """Guard the connections of aiohttp's *connector*. *timeout*: DNS_TIMEOUT."""
    resolve = connector._resolve_host
    connect = connector.connect
    begin = connector._wrap_create_connection

    async def resolve_host(host: str, port: int, *args: Any, **kwargs: Any) -> list[Any]:
        connecting = current()
        try:
            records = await asyncio.wait_for(resolve(host, port, *args, **kwargs), timeout or None)
        except TimeoutError:
            raise OSError(f"{host} was not resolved within DNS_TIMEOUT ({timeout} s)") from None
        by_address = {record["host"]: record for record in records}
        chosen = connecting.choose(list(by_address))
        if chosen is None:
            raise OSError(f"{host} has no address that may be used")
        return [by_address[chosen]]

    async def note_connection(*args: Any, **kwargs: Any) -> Any:
        connecting = current()
        connection = await connect(*args, **kwargs)
        connecting.transport = connection.transport
        return connection

    async def begin_within(make: Callable[[], Any], *args: Any, timeout: Any, **more: Any) -> Any:
        connecting = current()

        def make_protocol() -> Any:  # it is called when there is a TCP connection, and no TLS yet
            connecting.transport = SimpleNamespace(_handshakeDone=False)
            return make()

        limited = attr.evolve(timeout, sock_connect=CONNECT_TIMEOUT)
        return await begin(make_protocol, *args, timeout=limited, **more)

    connector._resolve_host = resolve_host
    connector.connect = note_connection
    connector._wrap_create_connection = begin_within


def is_secured(transport: Any) -> bool:
    """Whether octets may pass *transport*: if it has TLS, the handshake is over."""
    return bool(getattr(transport, "_handshakeDone", True))


def run_in_thread(function: Callable[[], _T]) -> Awaitable[_T]:
    """Call *function* in a thread of the reactor or loop in use. Its result is awaited."""
    if _reactor() is None:
        return asyncio.to_thread(function)
    from twisted.internet.threads import deferToThread  # noqa: PLC0415

    return future(cast("Deferred[_T]", deferToThread(function)))


def _engine(crawler: Crawler) -> Any:
    """The engine; None before it is made."""
    # Until then, ``crawler.engine`` raises in 2.19.
    return crawler._engine if hasattr(crawler, "_engine") else crawler.engine


def _slot(crawler: Crawler) -> Any:
    return getattr(_engine(crawler), "_slot", None)


def download(crawler: Crawler, request: Request) -> Awaitable[Response]:
    """Have the engine download *request*: the downloader middlewares see it, no spider does."""
    engine = _engine(crawler)
    if hasattr(engine, "download_async"):
        return _awaited(engine.download_async(request))
    return _awaited(engine.download(request))


async def download_apart(crawler: Crawler, request: Request) -> Response | Request:
    """Download a document by *request*, through the downloader middlewares and the handler.

    It is no page of the spider's. So no signal of the engine or the downloader is sent for it, and
    Scrapy's middleware does not count it. The engine waits for its end.
    """
    engine = _engine(crawler)
    slot = _slot(crawler)
    if slot is None:
        raise RuntimeError(f"no spider is open: {request}")
    downloader = engine.downloader
    handlers = downloader.handlers
    chain = _uncounted(downloader.middleware)
    slot.add_request(request)
    downloader.active.add(request)
    try:
        if _ASYNC_HANDLERS:
            result = await chain.download_async(handlers.download_request_async, request)
        else:
            deferred = chain.download(handlers.download_request, request, crawler.spider)
            result = await future(deferred)
    finally:
        downloader.active.discard(request)
        slot.remove_request(request)
        slot.nextcall.schedule()
    return cast("Response | Request", result)


def _uncounted(chain: Any) -> Any:
    """*chain*, a manager of downloader middlewares, without those that count requests."""
    uncounted = copy.copy(chain)
    uncounted.methods = {
        name: [
            method
            for method in methods
            if not isinstance(getattr(method, "__self__", None), DownloaderStats)
        ]
        for name, methods in chain.methods.items()
    }
    return uncounted


#: The request target that the exchange under way must send (D36).
_TARGET: Final[ContextVar[str]] = ContextVar("request target")


async def call_handler(handler: Any, request: Request, spider: Spider | None) -> Response:
    """Send *request* by *handler*, with the arguments that this version of Scrapy wants.

    Raises ValueError if no request line can hold the URL unchanged.
    """
    # A proxy needs the absolute URL, unless it opens a tunnel.
    absolute = bool(request.meta.get("proxy")) and not request.url.lower().startswith("https:")
    # Each task has a context of its own, so no exchange can see the target of another.
    _TARGET.set(request_target(request.url, absolute=absolute))
    args = () if _ASYNC_HANDLERS else (spider,)
    return cast("Response", await _awaited(handler.download_request(request, *args)))


def is_of_network(response: Response) -> bool:
    """Whether *response* came over a connection: then Scrapy's handlers set one of these names."""
    names = ("ip_address", "certificate", "protocol")
    return any(getattr(response, name, None) is not None for name in names)


def as_handler(handler: _Class) -> _Class:
    """Class decorator: adapt *handler* with its coroutine methods to this version of Scrapy."""
    if not _ASYNC_HANDLERS:
        changed: Any = handler
        download = changed.download_request
        close = changed.close
        changed.download_request = lambda self, request, _: run(download(self, request))
        changed.close = lambda self: run(close(self))
    return handler


def download_handler(crawler: Crawler, scheme: str) -> Any:
    """The download handler for *scheme*, or None."""
    handlers = getattr(getattr(_engine(crawler), "downloader", None), "handlers", None)
    return handlers._get_handler(scheme) if handlers is not None else None


async def close_handler(handler: Any) -> None:
    """Close a download handler of any version."""
    result = handler.close() if hasattr(handler, "close") else None
    if result is not None:
        await _awaited(result)


def no_persistent_connections(handler: Any) -> None:
    """Make *handler* open a connection for each request.

    On a connection that is kept open, a client may repeat a request by itself (R5.7). Raises
    RuntimeError if this function does not know the handler.
    """
    pool = getattr(handler, "_pool", None)
    if pool is not None and hasattr(pool, "retryAutomatically"):
        pool.persistent = False
        pool.retryAutomatically = False
        return
    session: Any = getattr(handler, "_session", None)
    connector = getattr(session, "connector", None)
    if connector is not None and hasattr(connector, "_force_close"):
        connector._force_close = True
        session._retry_connection = False
        return
    raise RuntimeError(f"{type(handler).__qualname__} keeps connections that cannot be closed")


class Quiet:
    """A crawler for a download handler, with signals that only our two receivers get.

    A receiver of ``headers_received`` or ``bytes_received`` may stop a download (StopDownload). If
    a handler is made for this object in place of the crawler, no receiver of the project can.
    *on_bytes*: called with the octets of each ``bytes_received`` and its request. *on_head*: called
    at each ``headers_received``. *verify*: the system's CAs verify certificates, whatever the
    project sets.
    """

    def __init__(
        self,
        crawler: Crawler,
        on_bytes: Callable[[bytes, Request], None],
        on_head: Callable[[], None],
        *,
        verify: bool = False,
    ) -> None:
        self._crawler = crawler
        self._on_bytes = on_bytes
        self._on_head = on_head
        self.signals = self
        if verify:
            self.settings = Settings(crawler.settings)
            self.settings.update(_VERIFYING, priority=crawler.settings.maxpriority() + 1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._crawler, name)

    def send_catch_log(self, signal: object, **arguments: Any) -> list[tuple[Any, Any]]:
        """As ``SignalManager.send_catch_log``: each receiver with its result or failure."""
        if signal is signals.headers_received:
            self._on_head()
        if signal is not signals.bytes_received:
            return []
        try:
            return [(self._on_bytes, self._on_bytes(arguments["data"], arguments["request"]))]
        except exceptions.StopDownload:
            return [(self._on_bytes, Failure())]  # type: ignore[no-untyped-call]


def sent_target(handler: Any, request: Request) -> Target:
    """The request's target at the server, if *handler* sends *request* (RFC 9421 section 2.2).

    The path and the query are those of the URL, because :func:`send_as_judged` writes them. Each
    library reads the host in its own way, so we ask the library. Raises RuntimeError if this
    function does not know the handler, and ValueError if the URL cannot be sent.
    """
    url = request.url.partition("#")[0]
    scheme = url.partition(":")[0].lower()
    path, query = path_and_query(url)
    if hasattr(handler, "_session"):
        from yarl import URL  # noqa: PLC0415  comes with aiohttp

        parsed = URL(url, encoded=bool(request.meta.get("verbatim_url")))
        host = parsed.host_port_subcomponent or ""
    elif hasattr(handler, "_pool"):
        from twisted.web.client import URI  # noqa: PLC0415  not needed elsewhere

        uri = URI.fromBytes(url.encode("ascii"))  # type: ignore[no-untyped-call]
        name = uri.host.decode("ascii")
        # Scrapy asks a proxy for a tunnel to an IPv6 address without its brackets.
        if ":" in name and not (scheme == "https" and request.meta.get("proxy")):
            name = f"[{name}]"
        host = f"{name}:{uri.port}"
    else:
        raise RuntimeError(f"cannot determine the URL that {type(handler).__qualname__} sends")
    return target(request.method, scheme, host, path, query)


def send_as_judged(handler: Any) -> None:
    """Make *handler* write the request target of :func:`call_handler` instead of its own (D36).

    Twisted joins path and query by the standard library's ``urlunparse``, which makes ``////x`` of
    ``//x`` from Python 3.13 on. Yarl, for aiohttp, resolves dot segments. Both drop a ``?`` with
    nothing after it.
    """
    pool: Any = getattr(handler, "_pool", None)
    if hasattr(pool, "getConnection"):
        pool.getConnection = _exact_connections(pool.getConnection)
    if (session := getattr(handler, "_session", None)) is not None:
        session._request_class = _exact_request(session._request_class)


def _exact_connections(connect: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap Twisted's *connect*, which is called once a request, in the request's context."""

    def get_connection(key: Any, endpoint: Any) -> Any:
        target = _TARGET.get().encode("ascii")
        return connect(key, endpoint).addCallback(_OneRequest, target)

    return get_connection


class _OneRequest:
    """A connection of Twisted's, for one request with the request target *target*."""

    def __init__(self, protocol: Any, target: bytes) -> None:
        self._protocol = protocol
        self._target = target

    def request(self, request: Any) -> Any:
        request.uri = self._target
        return self._protocol.request(request)


def _exact_request(base: Any) -> Any:
    """A subclass of *base*, aiohttp's class of requests, that sends the exact request target."""

    class ExactURL:
        """A URL that aiohttp writes into the request line unchanged."""

        def __init__(self, url: Any) -> None:
            self._url = url
            self.raw_path_qs = _TARGET.get()

        def __str__(self) -> str:
            return self.raw_path_qs

        def __getattr__(self, name: str) -> Any:
            return getattr(self._url, name)

    class Exact(base):  # type: ignore[misc]
        url: Any

        async def send(self, conn: Any) -> Any:  # in the context of its exchange
            self.url = ExactURL(self.url)
            return await super().send(conn)

    return Exact


#: The most octets and lines of a response's header section, interim responses included.
#: Browsers take 256 KiB; h11 (of httpx, uvicorn) stops at 100 KiB, aiohttp at 8 KiB a line.
MAX_HEADER_OCTETS: Final = 256 * 1024
MAX_HEADER_LINES: Final = 1000
#: Twisted's parser gets so many octets at a time, because for each line it copies the rest of them.
_HEADER_PIECE: Final = 4096


class HeaderTooLarge(OSError):
    """The header section exceeds the limits. R5 treats that as an error of the transport."""


def bound_headers(handler: Any) -> None:
    """Make *handler* end an exchange if its header section exceeds the two limits above.

    Scrapy's handler on Twisted would keep any number of lines. The other handler uses aiohttp,
    which has limits of its own.
    """
    pool: Any = getattr(handler, "_pool", None)
    factory: Any = getattr(pool, "_factory", None)
    if factory is None:
        return

    class Bounded(factory):  # type: ignore[misc]
        def buildProtocol(self, addr: Any) -> Any:  # noqa: N802  Twisted's name
            protocol = super().buildProtocol(addr)
            protocol.dataReceived = _bounded(protocol)
            return protocol

    pool._factory = Bounded


def _bounded(protocol: Any) -> Callable[[bytes], None]:
    """A ``dataReceived`` for *protocol* that counts octets and lines of the header section."""
    # The connection has one response only, so the counts never start again.
    take = protocol.dataReceived
    octets = 0
    lines = 0

    def in_header() -> bool:
        return protocol._parser is not None and protocol._parser.state in (STATUS, HEADER)

    def received(data: bytes) -> None:
        nonlocal octets, lines
        while data and in_header():
            piece = data[:_HEADER_PIECE]
            data = data[_HEADER_PIECE:]
            octets += len(piece)
            lines += piece.count(b"\n")
            take(piece)
            if in_header() and (octets > MAX_HEADER_OCTETS or lines > MAX_HEADER_LINES):
                reason = f"the header section did not end after {octets} octets in {lines} lines"
                protocol._giveUp(Failure(HeaderTooLarge(reason)))  # type: ignore[no-untyped-call]
                protocol.transport.abortConnection()
                return
        if data:
            take(data)

    return received


#: The modules of the handlers that Scrapy uses by default, with a Twisted reactor and without.
_DEFAULT: Final = tuple(f"scrapy.core.downloader.handlers.{end}" for end in ("http11", "_aiohttp"))
#: Handlers that tests use in place of Scrapy's.
_TRUSTED: Final[set[type]] = set()


def trust_handler(handler: type) -> None:
    """Let *handler* be used in place of Scrapy's own. For tests, which call this in code.

    The caller promises that it sends each request once and unaltered (R1, R4). There is no setting
    for this, because no setting can promise that.
    """
    _TRUSTED.add(handler)


def may_carry(path: Any) -> bool:
    """Whether our handler may wrap the handler at *path*, a class or its name.

    It may wrap Scrapy's defaults only. We could not check another: it might send more requests than
    it gets, or another User-Agent.
    """
    try:
        handler = load_object(path)
    except (ImportError, AttributeError, NameError, TypeError, ValueError):
        return False
    return handler in _TRUSTED or getattr(handler, "__module__", "") in _DEFAULT


def scheduler(crawler: Crawler) -> Any:
    """The scheduler in use, or None."""
    return getattr(_slot(crawler), "scheduler", None)


def on_filter(crawler: Crawler, is_duplicate: Callable[[Request], bool | None]) -> None:
    """Have the scheduler's duplicate filter take what *is_duplicate* says of a request.

    It is asked when the scheduler is given the request: a callback may run ahead of that. For None
    the filter decides. A filter of the project's also decides what a duplicate is.
    """
    duplicates = getattr(scheduler(crawler), "df", None)
    if duplicates is None:
        return
    own = duplicates.request_seen
    is_scrapys = getattr(type(duplicates), "request_seen", None) is RFPDupeFilter.request_seen

    def request_seen(request: Request) -> bool:
        answer = is_duplicate(request)
        if answer and is_scrapys:
            return True  # it is not noted: another request for the page may pass
        if answer:
            own(request)
        seen = bool(own(request))
        return seen and answer is not False

    duplicates.request_seen = request_seen


def note_duplicate(crawler: Crawler, request: Request) -> None:
    """Have Scrapy's duplicate filter log and count *request* as a duplicate."""
    duplicates = getattr(scheduler(crawler), "df", None)
    if isinstance(duplicates, RFPDupeFilter) and crawler.spider is not None:
        duplicates.log(request, crawler.spider)


def on_too_long(crawler: Crawler, tell: Callable[[Request], None]) -> None:
    """Call *tell* with each request of `Spider.start` that Scrapy drops for URLLENGTH_LIMIT."""
    for middleware in _engine(crawler).scraper.spidermw.middlewares:
        if isinstance(middleware, UrlLengthMiddleware):
            _tell_dropped(middleware, tell)


def _tell_dropped(middleware: Any, tell: Callable[[Request], None]) -> None:
    process = middleware.get_processed_request

    def processed(request: Request, response: Response | None) -> Request | None:
        result: Request | None = process(request, response)
        if result is None and response is None:
            tell(request)
        return result

    middleware.get_processed_request = processed


def _seen_file(crawler: Crawler) -> Any:
    """The file of Scrapy's duplicate filter, or None."""
    return getattr(getattr(scheduler(crawler), "df", None), "file", None)


def write_seen(crawler: Crawler) -> None:
    """Make Scrapy's duplicate filter write its buffer to its file, before a kill can lose it."""
    if (file := _seen_file(crawler)) is not None:
        file.flush()


def forget_unwritten(crawler: Crawler) -> None:
    """Make Scrapy's duplicate filter drop the buffer that it could not write (a full disk).

    The next run then does not take these requests for duplicates.
    """
    if (file := _seen_file(crawler)) is not None:
        size = os.fstat(file.fileno()).st_size
        with contextlib.suppress(OSError):
            file.close()
        os.truncate(file.name, size)


def under_way(crawler: Crawler) -> Collection[Request]:
    """The requests that the scheduler has given out, as long as their callbacks have not ended."""
    return cast("Collection[Request]", getattr(_slot(crawler), "inprogress", ()))


def crawl(crawler: Crawler, request: Request) -> None:
    """Give *request* to the scheduler, and raise its errors."""
    _engine(crawler).crawl(request)


def on_crawl(crawler: Crawler, takes: Callable[[Request], bool]) -> None:
    """Make the engine offer each request to *takes*; its scheduler gets those that return False.

    Otherwise the engine would send ``request_scheduled`` for a request that a middleware has given
    back, and filter and count it again.
    """
    engine = _engine(crawler)
    schedule = engine.crawl

    def crawl(request: Request) -> None:
        if takes(request):
            wake_engine(crawler)
        else:
            schedule(request)

    engine.crawl = crawl


def on_shutdown(crawler: Crawler, tell: Callable[[], None]) -> None:
    """Call *tell* as soon as SIGTERM, SIGINT or ``Crawler.stop`` ends the crawl of *crawler*.

    Scrapy has no signal for it: ``spider_closed`` comes when nothing is under way any more.
    """
    engine = _engine(crawler)
    name = "close_spider_async" if hasattr(engine, "close_spider_async") else "close_spider"
    close = getattr(engine, name)

    @functools.wraps(close)
    def close_spider(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("reason") == _SHUTDOWN:
            tell()
        return close(*args, **kwargs)

    setattr(engine, name, close_spider)


def wake_engine(crawler: Crawler) -> None:
    """Make the engine pop from the scheduler now; without this it does so every five seconds."""
    slot = _slot(crawler)
    if slot is not None and slot.closing is None:
        slot.nextcall.schedule()


def closing(crawler: Crawler) -> bool:
    """Whether the spider is being closed, so that no request may wait any more."""
    slot = _slot(crawler)
    return slot is None or slot.closing is not None


def close_spider(crawler: Crawler, reason: str) -> None:
    """Make the engine close the spider, as soon as it runs: earlier that ends in a traceback."""
    engine = _engine(crawler)
    if engine is None or engine.spider is None:
        return
    if not engine.running:
        call_later(0.01, lambda: close_spider(crawler, reason))
    elif hasattr(engine, "close_spider_async"):
        run(_close_if_open(engine, reason))
    else:
        engine.close_spider(engine.spider, reason=reason)


async def _close_if_open(engine: Any, reason: str) -> None:
    # This coroutine begins later. A crawl that was refused may have been closed by then.
    if engine.spider is not None:
        await engine.close_spider_async(reason=reason)


def watch_selectors(look: Callable[[Any], None]) -> None:
    """Call *look* with each response before a selector of it is made.

    Scrapy makes all selectors by this class, for example for ``response.css`` and
    ``response.xpath``, item loaders, link extractors and forms.
    """
    make = Selector.__init__

    @functools.wraps(make)
    def make_watched(self: Selector, response: Any = None, *args: Any, **kwargs: Any) -> None:
        if response is not None:
            look(response)
        make(self, response, *args, **kwargs)

    Selector.__init__ = make_watched  # type: ignore[method-assign]


def feed_exporter(crawler: Crawler) -> Any:
    """The feed exporter of *crawler*, if it is Scrapy's own way to export an item; else None."""
    for extension in _extensions(crawler):
        # A subclass with an `item_scraped` of its own may export in another way.
        is_exporter = isinstance(extension, FeedExporter)
        if is_exporter and type(extension).item_scraped is FeedExporter.item_scraped:
            return extension
    return None


def _extensions(crawler: Crawler) -> list[Any]:
    """The extensions of *crawler*; none before they are made."""
    # Until then, ``crawler.extensions`` raises in 2.19.
    manager = crawler._extensions if hasattr(crawler, "_extensions") else crawler.extensions
    return list(manager.middlewares) if manager else []


def lacks_feed_exporter(crawler: Crawler) -> bool:
    """Whether feeds are set, but Scrapy's exporter is missing because they are unusable."""
    settings = crawler.settings
    if not (settings.get("FEEDS") or settings.get("FEED_URI")):
        return False
    extensions = _extensions(crawler)
    if not extensions or any(isinstance(extension, FeedExporter) for extension in extensions):
        return False
    names = build_component_list(settings.getwithbase("EXTENSIONS"))
    return any(load_object(name) is FeedExporter for name in names)


def watch_batches(exporter: Any, watch: Callable[[Any], None]) -> None:
    """Call *watch* with each slot that *exporter* makes from now on."""
    make = exporter._start_new_batch

    def made(*args: Any, **kwargs: Any) -> Any:
        slot = make(*args, **kwargs)
        watch(slot)
        return slot

    exporter._start_new_batch = made


def skips_start_requests(cls: type[Spider]) -> bool:
    """Whether the spider *cls* has a ``start_requests()`` that Scrapy from 2.19 on never calls."""
    if hasattr(Spider, "start_requests") or not hasattr(cls, "start_requests"):
        return False
    return cls.start.__module__.startswith("scrapy.spiders")


def without_process_start(settings: BaseSettings) -> list[str]:
    """The spider middlewares of *settings* with the deprecated ``process_start_requests()`` alone.

    A Scrapy that still calls it cannot combine them with ours, which have ``process_start()``.
    Later versions ignore it.
    """
    if not hasattr(Spider, "start_requests"):
        return []
    names = []
    for component in build_component_list(settings.getwithbase("SPIDER_MIDDLEWARES")):
        with contextlib.suppress(ImportError, AttributeError, ValueError):  # Scrapy says that
            cls = load_object(component)
            if hasattr(cls, "process_start_requests") and not hasattr(cls, "process_start"):
                names.append(f"{cls.__module__}.{cls.__qualname__}")
    return names


def is_shell(crawler: Crawler) -> bool:
    """Whether this crawl is a ``scrapy shell``. Call it when the spider opens.

    Only the shell starts the engine before it opens the spider, and keeps an idle spider open.
    """
    engine = _engine(crawler)
    slot = _slot(crawler)
    return slot is not None and not slot.close_if_idle and bool(engine.running)


def _running_command() -> Any:
    """The ``scrapy`` command that runs this crawl, in any thread; None without a command."""
    for top in sys._current_frames().values():
        for frame, _ in walk_stack(top):
            if frame.f_code.co_name == "_run_command" and "cmd" in frame.f_locals:
                return frame.f_locals["cmd"]
    return None


def command() -> str:
    """The name of Scrapy's command that runs this crawl, for example "fetch"; "" without one."""
    module = type(_running_command()).__module__
    return module.removeprefix("scrapy.commands.") if module.startswith("scrapy.commands.") else ""


def fail_command(reason: str = "") -> bool:
    """Make the ``scrapy`` command that runs this crawl exit with 1. False without a command.

    Before 2.19 the command exits with 0 even if its crawl failed to start. *reason*: written to
    stderr, at any level of the log.
    """
    if reason:
        sys.stderr.write(f"scrapy_walsh: {visible(reason)}\n")
        sys.stderr.flush()
    running = _running_command()
    if running is None:
        return False
    running.exitcode = 1
    return True


def run_as_command(
    settings: Settings, name: str, prepare: Callable[[Crawler], object], **arguments: Any
) -> int:
    """Run the spider *name* as ``scrapy crawl`` does, without a project; return the exit code.

    *prepare*: called with the crawler before it starts.
    """
    # No crawl of a project needs these.
    from scrapy.commands.crawl import Command as CrawlCommand  # noqa: PLC0415
    from scrapy.crawler import CrawlerProcess  # noqa: PLC0415

    command = CrawlCommand()
    command.crawler_process = CrawlerProcess(settings)
    crawler = command.crawler_process.create_crawler(name)
    prepare(crawler)

    def _run_command(cmd: Any) -> None:  # `_running_command` looks for these names
        cmd.run([crawler], SimpleNamespace(spargs=arguments))

    _run_command(command)
    return command.exitcode


class NotSwallowed(BaseException):
    """Ends the start of a crawl because of *error*. Scrapy would log an Exception and go on."""


def refuse_start(error: Exception) -> NoReturn:
    """End the command with one line and exit code 1; in a script, raise *error*.

    In a command we cannot just raise. Before 2.19 it would exit with 0, and every version prints a
    traceback, even for SystemExit, because a Deferred catches it. Nothing has been started yet.
    """
    if not fail_command():
        raise error
    sys.stderr.write(f"scrapy_walsh: {error}\n")
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)
