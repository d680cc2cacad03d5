"""Fetches the documents that the gates need, like any other request.

The requests pass the project's downloader middlewares, for example for a proxy or a password, and
our download handler (R1, R4, R5). The gates recognise them by their tickets and let them pass. This
module makes the tickets, and they are valid only during the fetch.

Middlewares and signal receivers cannot change the request or its answer:

- At the wire, :meth:`Document.restored` returns the original request. So if a spider copies
  ``meta``, it gains nothing: its request would fetch the document once more.
- The answer is read at the wire (:meth:`Document.brought`), before any middleware sees it. No
  receiver of ``headers_received`` or ``bytes_received`` is called (``compat.Quiet``).
- Scrapy sends no signal for it and does not count it (``compat.download_apart``), because it is no
  page of the spider. Its stats begin with ``walsh/documents/``.
- Later errors of the fetch do not matter. If the request never reached the wire, the document is
  not loaded, because of our side (``faults``).
"""

from __future__ import annotations

import contextlib
import hashlib
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import urljoin

from scrapy import Request
from scrapy.exceptions import IgnoreRequest, StopDownload
from scrapy.http import Headers, Response
from scrapy.http.request import NO_CALLBACK
from twisted.internet.defer import Deferred
from w3lib.url import safe_url_string

from scrapy_walsh.adapters import compat
from scrapy_walsh.adapters.documents import faults
from scrapy_walsh.adapters.outcomes import UNSENT, Closing
from scrapy_walsh.adapters.ticket import TICKET, Ticket, Tickets
from scrapy_walsh.exceptions import OwnFault
from scrapy_walsh.policy import hosts, packing
from scrapy_walsh.policy.addresses import NO_LEAD, Led
from scrapy_walsh.policy.formats.representation import header
from scrapy_walsh.policy.robots.groups import is_readable
from scrapy_walsh.state.records import ROBOTS, StoredDocument

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from scrapy_walsh.adapters.context import Context
    from scrapy_walsh.policy.backoff import GiveUp, NoAnswer, Retry

#: The purpose of a request for the operator's list or schema.
OPERATOR: Final = "operator"
_META: Final[Mapping[str, Any]] = {
    "walsh_document": True,  # only a hint for middlewares, because a spider may set it, too
    "handle_httpstatus_all": True,
    "dont_redirect": True,
    "dont_retry": True,
    "dont_cache": True,
    "autothrottle_dont_adjust_delay": True,
    "download_maxsize": 0,
    "download_warnsize": 0,
    "download_fail_on_dataloss": True,
}
#: The project's components may add these to a document's request: the way to the site, and a
#: password. A target on that host would have the same.
_META_KEPT: Final = ("proxy", "_auth_proxy", "bindaddress")
_HEADERS_KEPT: Final = ("Authorization", "Proxy-Authorization")


@dataclass(slots=True, eq=False, repr=False, kw_only=True)
class Document(Ticket):
    """The ticket of a document during its fetch.

    ``trial``: the fetch is for a trial of https. ``made``: the original request, which no component
    of the project sees. ``limit``: the octets of the body that are read. ``received``: octets so
    far. ``outcome``: the answer at the wire, or the error; None before that. ``origin``: the origin
    whose robots.txt it is. ``body``: the body of the answer; None if it cannot be decoded.
    """

    made: Request
    limit: int
    is_document: ClassVar[bool] = True
    origin: str = ""
    received: int = 0
    body: bytes | None = None
    outcome: Fetched | OwnFault | IgnoreRequest | None = None

    def restored(self, request: Request) -> Request:
        """Return the original request, to send it instead of *request*.

        The project's components may have changed *request*. Raises IgnoreRequest if the answer has
        come already, because a middleware sends it again.
        """
        if isinstance(self.outcome, Fetched) and self.outcome.status is not None:
            raise IgnoreRequest(f"{request.url} was answered already, so it is not requested again")
        original = self.made.copy()
        for name in _HEADERS_KEPT:
            if name in request.headers:
                original.headers[name] = request.headers[name]
        original.meta.update(
            {name: request.meta[name] for name in _META_KEPT if name in request.meta}
        )
        original.meta[TICKET] = request.meta[TICKET]  # the name of this document
        self.received = 0
        self.failure = None
        return original

    def seen(self, response: Response) -> dict[str, Any]:
        """Read the body, unpacked and within the limit. Returns members for the ledger."""
        self.body = bounded(response, self.limit, or_text=self.purpose == ROBOTS)
        members: dict[str, Any] = {"whole": self.received <= self.limit}
        if self.purpose == ROBOTS and response.status // 100 == 2:
            members["body"] = None if self.body is None else hashlib.sha256(self.body).hexdigest()
        return members

    def brought(self, request: Request, response: Response) -> Response:
        """Set the outcome from the answer to *request*, after :meth:`seen`.

        Returns a plain ``Response`` with that body for the middlewares, because a TextResponse
        would decode it when it is copied.
        """
        body = self.body or b""
        headers = response.headers
        packed = b", ".join(headers.getlist("Content-Encoding")).decode("latin-1")
        encoding = packed if self.body is None else None
        headers.pop("Content-Encoding", None)
        fault = faults.of_answer(response.status, request.meta.get("proxy"))
        self.outcome = fault or Fetched(
            request.url,
            response.status,
            body,
            headers,
            failure=self.failure,
            encoding=encoding,
            leads=self.leads(),
        )
        return Response(request.url, response.status, headers, body)

    def broke_off(self, request: Request, error: Exception) -> None:
        """Set the outcome if *request* ended with *error* at the wire."""
        if isinstance(error, UNSENT):
            self.outcome = error
            return
        fault = faults.of_certificate(error) if self.purpose == OPERATOR else None
        fault = fault or faults.of_transfer(error, proxy=request.meta.get("proxy"))
        self.outcome = fault or Fetched(
            request.url,
            None,
            error=faults.no_answer(error),
            failure=self.failure,
            is_sent=not faults.is_unsendable(error),
        )


@dataclass(frozen=True, slots=True)
class Fetched:
    """The result of a fetch. If there was no answer, ``status`` is None, and ``error`` the reason.

    ``encoding``: the Content-Encoding if the body is unreadable; then ``body`` is empty. Else None.
    ``leads``: the lead for the URL to which it redirects (D38).
    ``is_sent``: False if the handler cannot send such a URL.
    """

    url: str
    status: int | None
    body: bytes = b""
    headers: Headers = field(default_factory=Headers)
    error: NoAnswer | None = None
    failure: Retry | GiveUp | None = None
    encoding: str | None = None
    leads: Led = NO_LEAD
    is_sent: bool = True

    @property
    def why(self) -> str:
        """The result in a few words, for example ``HTTP 404``."""
        if self.error is None:
            return f"HTTP {self.status}"
        return str(self.error)

    @property
    def location(self) -> str:
        """The URL of a redirect, without fragment; "" if there is no usable URL.

        Scrapy's escaping is applied, so that the same URL is judged, sent and recorded. The URL is
        unusable if it is not http or https, or its host is unreadable.
        """
        location = self.headers.get("Location")
        if not location:
            return ""
        try:
            # The same URL is judged and then sent, however it was parsed (D36).
            url = Request(urljoin(self.url, safe_url_string(location))).url.partition("#")[0]
            hosts.host_key(url)
        except ValueError:
            return ""
        if url.startswith(("http://", "https://")):
            return url
        return ""

    def record(self, kind: str, key: str, body: bytes, outcome: str, now: float) -> StoredDocument:
        """Return the record to store, with *body*. *now*: Unix seconds."""
        tag = header(self, "ETag")
        modified = header(self, "Last-Modified")
        return StoredDocument(kind, key, self.url, body, now, self.status, outcome, tag, modified)


class Fetcher:
    """Makes the requests for documents."""

    def __init__(self, context: Context, tickets: Tickets) -> None:
        self._context = context
        self._tickets = tickets
        #: For each key with work in :meth:`alone`, the callers that wait for its end.
        self._waiters: dict[str, list[Deferred[None]]] = {}
        #: The crawler without the project's receivers, for the handlers that send documents. For
        #: the operator's list, certificates are verified, because an interceptor could empty it
        #: (R3). For a robots.txt they are checked as for the pages of its site.
        self._quiet = compat.Quiet(context.crawler, self._count_bytes, tickets.note_head)
        self._verifying = compat.Quiet(
            context.crawler, self._count_bytes, tickets.note_head, verify=True
        )

    async def alone(self, key: str, work: Callable[[], Awaitable[object]]) -> None:
        """Do *work*. If other work for *key* is going on, only wait for its end."""
        if key in self._waiters:
            waiter: Deferred[None] = Deferred()
            self._waiters[key].append(waiter)
            await compat.future(waiter)
            return
        self._waiters[key] = []
        try:
            await work()
        finally:
            for waiter in self._waiters.pop(key):
                waiter.callback(None)

    def crawler_of(self, request: Request, ticket: Ticket) -> Any:
        """Return the crawler for the handler that sends *request*, which is for a document."""
        verify = ticket.purpose == OPERATOR and not faults.is_lab(request.meta.get("proxy"))
        if verify:
            return self._verifying
        return self._quiet

    def _count_bytes(self, data: bytes, request: Request) -> None:
        """Stop reading a body at its limit (R2.10, T40)."""
        document = self._tickets.known(request)
        if isinstance(document, Document):
            document.received += len(data)
            if document.received > document.limit:
                raise StopDownload(fail=False)

    async def fetch(
        self, url: str, purpose: str, headers: Mapping[str, str], *, timeout: float, **members: Any
    ) -> Fetched:
        """Request *url* once. An error of the network is part of the result.

        *timeout*: seconds. *members*: further fields of the :class:`Document`. Raises Refused if
        the host is due after WALSH_PATIENCE. Raises NotYet or Closing if the request is not sent,
        and OwnFault if our side could not load the document.
        """
        host = self._tickets.host_of(url)
        original = Request(
            url,
            headers={"Accept-Encoding": "identity", **headers},
            meta={**_META, "download_timeout": timeout},
            callback=NO_CALLBACK,
            dont_filter=True,
        )
        request = original.copy()
        document = Document(
            self._tickets, url, host, key=url, purpose=purpose, made=original, **members
        )
        name = self._tickets.begin(document)
        request.meta.update(name)
        raised: Exception | None = None
        try:
            await self._download(request, document)
        except Exception as error:
            raised = error
        finally:
            self._tickets.end(name)
        if isinstance(document.outcome, Fetched):
            return document.outcome
        if document.outcome is not None:
            raise document.outcome
        if isinstance(raised, Closing) or compat.closing(self._context.crawler):
            raise Closing
        if isinstance(raised, OwnFault):
            raise raised
        raise faults.before_wire(raised) from raised

    async def _download(self, request: Request, document: Document) -> None:
        """Download *request*. Raises OwnFault if a middleware replaces it by another request."""
        result: Request | Response = request
        while isinstance(result, Request):
            if self._tickets.known(result) is not document:
                raise faults.before_wire(None)
            result = await compat.download_apart(self._context.crawler, result)


def bounded(response: Response, limit: int, *, or_text: bool) -> bytes | None:
    """Return the first *limit* octets of the body, unpacked; None if they are unreadable.

    ``or_text``: for a robots.txt. If its content coding is unknown, but the body is text, that text
    is used. If the body is still packed after that, it is unpacked once more.
    """
    fields = [value.decode("latin-1") for value in response.headers.getlist("Content-Encoding")]
    times, is_unknown = packing.packings(fields)
    body: bytes | None = response.body[:limit] if times == 0 else None
    if times == 1:
        with contextlib.suppress(zlib.error):
            body = packing.unpack(response.body, limit)
    if is_unknown and body is not None and not (or_text and packing.is_text(body)):
        return None
    if body is None or not or_text:
        return body
    inner = packing.unpacked_once_more(body, limit)
    if inner is not None and is_readable(inner):
        return inner
    return None
