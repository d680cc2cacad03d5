"""Requests the documents that the gates need, through Scrapy's engine like any other request.

So they pass our download handler (R1, R4, R5). The gates let them pass, and know them by the mark
in ``meta``: an object that the documents' code makes, and that counts only while its fetch goes on
and only for its URL. A spider that copies ``meta`` gains nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urljoin

from scrapy import Request, signals
from scrapy.exceptions import IgnoreRequest, StopDownload
from scrapy.http import Response
from scrapy.http.request import NO_CALLBACK
from twisted.internet.defer import Deferred
from w3lib.url import safe_url_string

from scrapy_walsh.adapters import compat
from scrapy_walsh.policy import packing
from scrapy_walsh.policy.event import TARGET
from scrapy_walsh.policy.words import visible
from scrapy_walsh.state.records import ROBOTS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from scrapy_walsh.adapters.context import Context
    from scrapy_walsh.adapters.pacing import Pacing
    from scrapy_walsh.policy.backoff import GiveUp, Retry

_MARK: Final = "walsh_document"
_META: Final[Mapping[str, Any]] = {
    "handle_httpstatus_all": True,
    "dont_redirect": True,
    "dont_retry": True,
    "dont_cache": True,
    "autothrottle_dont_adjust_delay": True,
    "download_maxsize": 0,
    "download_fail_on_dataloss": True,
}


@dataclass(slots=True, eq=False)
class Mark:
    """One fetch under way. ``limit``: octets of the body that are read; the rest is not.

    ``trial``: the fetch is for a target that tries whether its host answers https.
    """

    kind: str
    limit: int
    attempt: int = 0
    hops: int = 0
    trial: bool = False
    received: int = 0
    readable: bool = True
    encoding: str = ""
    failure: Retry | GiveUp | None = None


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a fetch brought. Without an answer, ``status`` is None and ``error`` says why.

    ``readable``: False where the body cannot be decoded by its ``encoding``, and so is empty here.
    """

    url: str
    status: int | None
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    error: str = ""
    failure: Retry | GiveUp | None = None
    readable: bool = True
    encoding: str = ""

    @property
    def why(self) -> str:
        """The answer in a few words."""
        return self.error or f"HTTP {self.status}"

    @property
    def location(self) -> str:
        """The URL that a redirect leads to, without a fragment; "" without a Location.

        A Location that is not a URL is returned as it came. A URL is escaped as Scrapy escapes a
        target's, so that what is judged, sent and recorded is the same URL.
        """
        location = self.headers.get("location", "").encode("latin-1")
        try:
            leads_to = urljoin(self.url, safe_url_string(location)) if location else ""
            return Request(leads_to).url.partition("#")[0] if leads_to else ""
        except ValueError:
            return visible(location.decode("latin-1"))


class SingleFlight:
    """Runs one fetch per key at a time; other callers wait for its end, and then look again."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Deferred[None]]] = {}

    async def run(self, key: str, fetch: Callable[[], Awaitable[object]]) -> None:
        """Run *fetch*, or wait for the one that is running for *key*."""
        if key in self._waiting:
            waiter: Deferred[None] = Deferred()
            self._waiting[key].append(waiter)
            await compat.future(waiter)
            return
        self._waiting[key] = []
        try:
            await fetch()
        finally:
            for waiter in self._waiting.pop(key):
                if not waiter.called:
                    waiter.callback(None)


class Fetcher:
    """Makes the requests for documents, and recognises them wherever they pass."""

    def __init__(self, context: Context, pacing: Pacing) -> None:
        self._context = context
        self._pacing = pacing
        #: The marks of the fetches under way, and the URLs that each is good for.
        self._marks: dict[Mark, tuple[str, ...]] = {}
        self.flights = SingleFlight()
        context.crawler.signals.connect(self._count_bytes, signals.bytes_received)

    def owns(self, request: Request) -> bool:
        """Whether *request* is one of this module's, and still under way."""
        return self._mark(request) is not None

    def attempt(self, request: Request) -> int:
        """Retries made so far for the document that *request* is for; 0 for a target."""
        mark = self._mark(request)
        return 0 if mark is None else mark.attempt

    def purpose(self, request: Request) -> str:
        """What *request* is for: ``target``, ``robots`` or ``operator``."""
        mark = self._mark(request)
        return TARGET if mark is None else mark.kind

    def hops(self, request: Request) -> int:
        """Redirects that the fetch of a document has followed to *request*."""
        mark = self._mark(request)
        return 0 if mark is None else mark.hops

    def trial(self, request: Request) -> bool:
        """Whether the document is for a trial of https."""
        mark = self._mark(request)
        return mark is not None and mark.trial

    def digest(self, request: Request, response: Response | None) -> str | None:
        """SHA-256 of a robots.txt that came, unpacked and within bounds; None for all else."""
        mark = self._mark(request)
        if mark is None or mark.kind != ROBOTS or response is None or response.status // 100 != 2:
            return None
        body = bounded(response, mark.limit, or_text=True)
        return None if body is None else hashlib.sha256(body).hexdigest()

    def sent_as(self, request: Request, url: str) -> None:
        """Note that *request* is sent under *url* (R13)."""
        mark = self._mark(request)
        if mark is not None:
            self._marks[mark] = (request.url, url)

    def is_operators(self, request: Request) -> bool:
        """Whether *request* was for the operator's list or schema."""
        mark = self._mark(request)
        return mark is not None and mark.kind == "operator"

    def failed(self, request: Request, failure: Retry | GiveUp) -> None:
        """Note what R5 decided about *request*."""
        mark = self._mark(request)
        if mark is not None:
            mark.failure = failure

    def received(self, request: Request, response: Response) -> Response:
        """A document's *response* with its body unpacked, within bounds; others as they are.

        It is a plain ``Response``: a TextResponse would decode the whole body when it is copied.
        """
        mark = self._mark(request)
        if mark is None:
            return response
        body = bounded(response, mark.limit, or_text=mark.kind == "robots")
        mark.readable = body is not None
        mark.encoding = b", ".join(response.headers.getlist("Content-Encoding")).decode("latin-1")
        response.headers.pop("Content-Encoding", None)
        return _plain(response, body or b"")

    def _mark(self, request: Request) -> Mark | None:
        mark = request.meta.get(_MARK)
        known = isinstance(mark, Mark) and request.url in self._marks.get(mark, ())
        return mark if known else None

    def requested_as(self, request: Request) -> str | None:
        """The URL that *request* had when it was made here, for a document; None for any other.

        A middleware may have changed it since: then this fetcher owns the request no more.
        """
        mark = request.meta.get(_MARK)
        urls = self._marks.get(mark, ()) if isinstance(mark, Mark) else ()
        return urls[0] if urls else None

    async def fetch(
        self, url: str, mark: Mark, headers: Mapping[str, str], timeout: float | None = None
    ) -> Fetched:
        """Request *url* once; *timeout* in seconds. Errors of the network are in the result.

        Raises IgnoreRequest where it is not sent: Refused beyond WALSH_PATIENCE, NotYet, Closing.
        """
        host = self._pacing.look_up(url)
        meta: dict[str, Any] = {**_META, _MARK: mark, "download_slot": f"walsh {mark.kind} {host}"}
        if timeout is not None:
            meta["download_timeout"] = timeout
        request = Request(
            url,
            headers={"Accept-Encoding": "identity", **headers},
            meta=meta,
            callback=NO_CALLBACK,
            dont_filter=True,
        )
        self._marks[mark] = (request.url,)
        try:
            response = await compat.download(self._context.crawler, request)
        except IgnoreRequest:
            raise
        except Exception as error:
            why = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            return Fetched(url, None, error=why, failure=mark.failure)
        finally:
            del self._marks[mark]
        return Fetched(
            url,
            response.status,
            response.body,
            _headers(response),
            failure=mark.failure,
            readable=mark.readable,
            encoding=mark.encoding,
        )

    def _count_bytes(self, data: bytes, request: Request) -> None:
        """Stop reading a body beyond its limit (R2.10, T40)."""
        mark = self._mark(request)
        if mark is not None:
            mark.received += len(data)
            if mark.received > mark.limit:
                raise StopDownload(fail=False)


def _plain(response: Response, body: bytes) -> Response:
    kept = {name: getattr(response, name) for name in Response.attributes}
    return Response(**{**kept, "body": body})


def _headers(response: Response) -> dict[str, str]:
    return {
        name.decode("latin-1").lower(): values[-1].decode("latin-1")
        for name, values in response.headers.items()
        if values
    }


def bounded(response: Response, limit: int, *, or_text: bool) -> bytes | None:
    """The first *limit* octets of the body, unpacked; None where they cannot be read.

    ``or_text``: a body whose content coding is not known is taken as it came if it is text.
    """
    fields = [value.decode("latin-1") for value in response.headers.getlist("Content-Encoding")]
    times, other = packing.packings(fields)
    body: bytes | None = response.body[:limit] if times == 0 else None
    if times == 1:
        with contextlib.suppress(zlib.error):
            body = _unpacked(response.body, limit)
    if other and body is not None and not (or_text and packing.is_text(body)):
        return None
    return body


def _unpacked(packed: bytes, limit: int) -> bytes | None:
    """The gzip or zlib members of *packed*, unpacked to *limit* octets; None for one cut off."""
    body, ended = packing.unpacked(packed, limit)
    cut_off = len(packed) <= limit and not ended and len(body) < limit
    return None if cut_off else body
