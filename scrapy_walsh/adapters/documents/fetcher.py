"""Requests the documents that the gates need, on the way of any other request.

So they pass the project's downloader middlewares (a proxy, a password) and our download handler
(R1, R4, R5). The gates let them pass, and know them by their tickets, which are made here, and
count only while the fetch goes on. What a middleware or a signal receiver makes of such a request,
or of its answer, does not count:

- At the wire, :meth:`Document.restored` puts the request back as it was made. So a spider that
  copies ``meta`` gains nothing: it would request the document once more.
- The answer is taken there (:meth:`Document.brought`), before any middleware has it. Receivers of
  ``headers_received`` and ``bytes_received`` never hear of a document (``compat.Quiet``).
- It is no page of the spider's: no signal is sent for it, and Scrapy does not count it
  (``compat.download_apart``). It has stats of its own, ``walsh/documents/``.
- How the fetch ends after that is nobody's business. Where it ends without having come to the wire,
  the document is not known because of us (``faults``).
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

#: What a request for the operator's list or schema is for.
OPERATOR: Final = "operator"
_META: Final[Mapping[str, Any]] = {
    "walsh_document": True,  # for the project's middlewares: a spider may write it too
    "handle_httpstatus_all": True,
    "dont_redirect": True,
    "dont_retry": True,
    "dont_cache": True,
    "autothrottle_dont_adjust_delay": True,
    "download_maxsize": 0,
    "download_warnsize": 0,
    "download_fail_on_dataloss": True,
}
#: What a project's components may add to a document's request: the way to the site, and what lets
#: us in. A target of that host would carry the same.
_META_KEPT: Final = ("proxy", "_auth_proxy", "bindaddress")
_HEADERS_KEPT: Final = ("Authorization", "Proxy-Authorization")


@dataclass(slots=True, eq=False, repr=False, kw_only=True)
class Document(Ticket):
    """The ticket of a document, whose fetch is under way until it has ``ended``.

    ``trial``: the fetch is for a target that tries whether its host answers https. ``made``: its
    request, as it was made, which no component of the project gets. ``limit``: octets of the body
    that are read; the rest is not. ``received``: octets so far. ``outcome``: what the wire brought,
    or why it brought nothing; None before that. ``origin``: of a robots.txt, whose rules it is to
    bring. ``body``: of its answer; None where it cannot be decoded.
    """

    made: Request
    limit: int
    ours: ClassVar[bool] = True
    origin: str = ""
    received: int = 0
    body: bytes | None = None
    outcome: Fetched | OwnFault | IgnoreRequest | None = None

    def restored(self, request: Request) -> Request:
        """What to send for *request*, which the project's components have seen: as it was made.

        Raises IgnoreRequest where the answer has come: a middleware sends it again.
        """
        if isinstance(self.outcome, Fetched) and self.outcome.status is not None:
            raise IgnoreRequest(f"{request.url} is not requested again: its answer has come")
        sent = self.made.copy()
        for name in _HEADERS_KEPT:
            if name in request.headers:
                sent.headers[name] = request.headers[name]
        sent.meta.update({name: request.meta[name] for name in _META_KEPT if name in request.meta})
        sent.meta[TICKET] = request.meta[TICKET]  # which names this document
        self.received, self.failure = 0, None
        return sent

    def seen(self, response: Response) -> dict[str, Any]:
        """Take the body that came, unpacked and within bounds; what the ledger says of it."""
        self.body = bounded(response, self.limit, or_text=self.purpose == ROBOTS)
        found: dict[str, Any] = {"whole": self.received <= self.limit}
        if self.purpose == ROBOTS and response.status // 100 == 2:
            found["body"] = None if self.body is None else hashlib.sha256(self.body).hexdigest()
        return found

    def brought(self, request: Request, response: Response) -> Response:
        """Take the answer to *request*, as it was sent, after :meth:`seen`.

        What the middlewares get is a plain ``Response`` with that body: a TextResponse would decode
        it when it is copied.
        """
        body, headers = self.body or b"", response.headers
        packed = b", ".join(headers.getlist("Content-Encoding")).decode("latin-1")
        left = packed if self.body is None else None
        headers.pop("Content-Encoding", None)
        fault = faults.of_answer(response.status, request.meta.get("proxy"))
        self.outcome = fault or Fetched(
            request.url,
            response.status,
            body,
            headers,
            failure=self.failure,
            encoding=left,
            leads=self.leads(),
        )
        return Response(request.url, response.status, headers, body)

    def broke_off(self, request: Request, error: Exception) -> None:
        """Note that the wire has ended *request*, as it was sent, with *error*."""
        if isinstance(error, UNSENT):
            self.outcome = error
            return
        fault = faults.of_certificate(error) if self.purpose == OPERATOR else None
        fault = fault or faults.of_transfer(error, proxy=request.meta.get("proxy"))
        self.outcome = fault or Fetched(
            request.url, None, error=faults.no_answer(error), failure=self.failure
        )


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a fetch brought. Without an answer, ``status`` is None and ``error`` says why.

    ``encoding``: of a body that cannot be read, and so is empty here, its Content-Encoding; else
    None. ``leads``: what it is to a URL that it redirects to.
    """

    url: str
    status: int | None
    body: bytes = b""
    headers: Headers = field(default_factory=Headers)
    error: NoAnswer | None = None
    failure: Retry | GiveUp | None = None
    encoding: str | None = None
    leads: Led = NO_LEAD

    @property
    def why(self) -> str:
        """The answer in a few words."""
        return f"HTTP {self.status}" if self.error is None else str(self.error)

    @property
    def location(self) -> str:
        """The URL that a redirect leads to, without a fragment; "" where it leads to none.

        It is escaped as Scrapy escapes a target's, so that what is judged, sent and recorded is the
        same URL. What is no http or https URL with a readable host is none.
        """
        if not (location := self.headers.get("Location")):
            return ""
        try:
            # D36: whatever it makes of a Location is the URL that is judged, and then sent.
            url = Request(urljoin(self.url, safe_url_string(location))).url.partition("#")[0]
            hosts.host_key(url)
        except ValueError:
            return ""
        return url if url.startswith(("http://", "https://")) else ""

    def record(self, kind: str, key: str, body: bytes, outcome: str, now: float) -> StoredDocument:
        """What is kept of it: *body*, which was had at *now* (Unix seconds)."""
        tag, modified = header(self, "ETag"), header(self, "Last-Modified")
        return StoredDocument(kind, key, self.url, body, now, self.status, outcome, tag, modified)


class Fetcher:
    """Makes the requests for documents."""

    def __init__(self, context: Context, tickets: Tickets) -> None:
        self._context = context
        self._tickets = tickets
        #: By key, those who wait for the work of :meth:`alone` that is going on.
        self._waiters: dict[str, list[Deferred[None]]] = {}
        #: For the handlers that send documents: the crawler, without the project's receivers. Who
        #: is on the path to the operator must not be able to empty the list (R3); a site's
        #: robots.txt is read exactly where the crawl reads the site.
        self._quiet = compat.Quiet(context.crawler, self._count_bytes, tickets.note_head)
        self._verifying = compat.Quiet(
            context.crawler, self._count_bytes, tickets.note_head, verify=True
        )

    async def alone(self, key: str, work: Callable[[], Awaitable[object]]) -> None:
        """Do *work*; where such work for *key* is going on, wait for its end: then look again."""
        if key in self._waiters:
            waiter: Deferred[None] = Deferred()
            self._waiters[key].append(waiter)
            await compat.future(waiter)
            return
        self._waiters[key] = []
        try:
            await work()
        finally:
            for each in self._waiters.pop(key):
                each.callback(None)

    def crawler_of(self, request: Request, ticket: Ticket) -> Any:
        """What stands for the crawler in the handler that sends *request*, a document's."""
        verify = ticket.purpose == OPERATOR and not faults.is_lab(request.meta.get("proxy"))
        return self._verifying if verify else self._quiet

    def _count_bytes(self, data: bytes, request: Request) -> None:
        """Stop reading a body beyond its limit (R2.10, T40)."""
        document = self._tickets.known(request)
        if isinstance(document, Document):
            document.received += len(data)
            if document.received > document.limit:
                raise StopDownload(fail=False)

    async def fetch(
        self, url: str, purpose: str, headers: Mapping[str, str], *, timeout: float, **asked: Any
    ) -> Fetched:
        """Request *url* once; *timeout* in seconds. Errors of the network are in the result.

        *asked*: further fields of the :class:`Document`. Raises Refused beyond WALSH_PATIENCE,
        NotYet and Closing where it is not sent, and OwnFault where the document is not known
        because of us.
        """
        host = self._tickets.host_of(url)
        made = Request(
            url,
            headers={"Accept-Encoding": "identity", **headers},
            meta={**_META, "download_timeout": timeout},
            callback=NO_CALLBACK,
            dont_filter=True,
        )
        request = made.copy()
        document = Document(self._tickets, url, host, key=url, purpose=purpose, made=made, **asked)
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
        """Download *request*; OwnFault where a middleware puts another request in its place."""
        result: Request | Response = request
        while isinstance(result, Request):
            if self._tickets.known(result) is not document:
                raise faults.before_wire(None)
            result = await compat.download_apart(self._context.crawler, result)


def bounded(response: Response, limit: int, *, or_text: bool) -> bytes | None:
    """The first *limit* octets of the body, unpacked; None where they cannot be read.

    ``or_text``: of a robots.txt. A body whose content coding is not known is taken as it came if it
    is text; and one that is packed, whatever its header says, is unpacked once more.
    """
    fields = [value.decode("latin-1") for value in response.headers.getlist("Content-Encoding")]
    times, other = packing.packings(fields)
    body: bytes | None = response.body[:limit] if times == 0 else None
    if times == 1:
        with contextlib.suppress(zlib.error):
            body = packing.unpacked(response.body, limit)
    if other and body is not None and not (or_text and packing.is_text(body)):
        return None
    if body is None or not or_text:
        return body
    more = packing.unpacked_once_more(body, limit)
    return more if more is not None and is_readable(more) else None
