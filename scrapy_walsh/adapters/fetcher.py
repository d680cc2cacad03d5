"""How a document that a gate needs is asked for: through the engine, like everything else.

So it passes the wire (R1, R4, R5). It is known by its mark: an object that only this module
makes, and that is worth nothing for another URL, or once the fetch has ended, whoever copies
``meta``.
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
from scrapy_walsh.policy import packing, robots_fetch
from scrapy_walsh.policy.event import TARGET
from scrapy_walsh.policy.text import visible
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
    """One fetch under way. ``limit``: octets of body that are read; what follows is left.

    ``trial``: a target asks for it that only tries whether its host speaks https.
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
    """What came back: ``status`` None and ``error`` where there was no answer.

    ``readable``: False for a body that is empty here, since its ``encoding`` cannot be read.
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
        """Where a redirect leads, without a fragment: as it stands if unreadable, empty if none.

        Escaped as Scrapy escapes a target's: what is judged, sent and written down is one URL.
        """
        location = self.headers.get("location", "").encode("latin-1")
        try:
            leads_to = urljoin(self.url, safe_url_string(location)) if location else ""
            return Request(leads_to).url.partition("#")[0] if leads_to else ""
        except ValueError:
            return visible(location.decode("latin-1"))


class SingleFlight:
    """Runs one fetch per key at a time; who comes meanwhile waits for its end, and looks again."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Deferred[None]]] = {}

    async def run(self, key: str, fetch: Callable[[], Awaitable[None]]) -> None:
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
    """Makes the requests for documents, and knows its own again."""

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
        """Retries made so far for the document that *request* asks for."""
        mark = self._mark(request)
        return 0 if mark is None else mark.attempt

    def is_first(self, request: Request, status: int | None) -> bool:
        """Whether *request* was for a robots.txt that T1 exempts."""
        mark = self._mark(request)
        return (
            mark is not None
            and mark.kind == "robots"
            and robots_fetch.counts_as_first(status, hops=mark.hops, attempt=mark.attempt)
        )

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
        """Note that *request* goes on the wire under *url* (R13)."""
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

        It is no longer of a class for text, which would decode all of it when it is copied.
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

    async def fetch(
        self, url: str, mark: Mark, headers: Mapping[str, str], timeout: float | None = None
    ) -> Fetched:
        """Ask for *url* once. Refused where its host may not be asked within WALSH_PATIENCE."""
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
        """Stop reading a body that is long enough (R2.10, T40)."""
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

    ``or_text``: after an encoding that is not known, text is read as it stands.
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
    """The members of *packed* one after the other, up to *limit* octets; None when cut off."""
    body = b""
    whole = len(packed) <= limit
    while packed and len(body) < limit:
        member = zlib.decompressobj(wbits=47)
        body += member.decompress(packed, limit - len(body))
        if whole and not member.eof and len(body) < limit:
            return None
        packed = member.unused_data
    return body
