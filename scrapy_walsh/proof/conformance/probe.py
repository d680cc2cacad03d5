"""The spider of the conformance runs: it asks what it is given, and tells what became of it.

What its callbacks ask for besides, and the User-Agents it sets, are what the gates must stop.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy import Request, Spider, signals

from scrapy_walsh.adapters import compat
from scrapy_walsh.adapters.crawl import Crawl
from scrapy_walsh.adapters.outcomes import GaveUp, NotModified, Refused

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from twisted.python.failure import Failure


class ProbeSpider(Spider):
    """``-a urls="URL URL"`` are asked; ``-a undeclared=...`` are yielded by the first callback.

    ``-a past=...`` it downloads itself, past the scheduler. ``-a also=...``: the first callback
    repeats its request and says that these are declared by it. ``-a posts=...`` are sent a body.
    ``-a headers=JSON`` and ``-a user_agents="UA|UA"`` (in turn) are set on the requests.
    ``-a document=URL``: the JSON of that target is told. ``-a later=SECONDS``: with the first
    callback so much time goes by, of the clock on the wall.
    ``-a account=FILE`` gets the account: ``results`` (a target each), ``past`` (the same),
    ``received`` (URL and monotonic seconds of every answer's head), ``intervals`` (by host),
    ``given_up`` (how many, of the stats).
    """

    name = "walsh_conformance"

    def __init__(
        self,
        *,
        urls: str = "",
        account: str = "",
        undeclared: str = "",
        past: str = "",
        also: str = "",
        posts: str = "",
        headers: str = "{}",
        user_agents: str = "",
        document: str = "",
        later: str = "0",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.urls = urls.split()
        self.account = account
        self.undeclared = undeclared.split()
        self.past = past.split()
        self.went_past: list[dict[str, Any]] = []
        self.also = also.split()
        self.posts = posts.split()
        self.headers: dict[str, str] = json.loads(headers)
        self.user_agents = [each for each in user_agents.split("|") if each]
        self.document = document
        self.later = float(later)
        self.results: list[dict[str, Any]] = []
        self.received: list[dict[str, Any]] = []

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> ProbeSpider:
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider._received, signals.headers_received)
        return spider

    async def start(self) -> AsyncIterator[Any]:
        """A request for each URL given."""
        for number, url in enumerate(self.urls):
            yield self._request(url, number)
        for url in self.posts:
            yield self._request(url, 0).replace(method="POST", body=b"a=1")

    def _request(self, url: str, number: int) -> Request:
        headers = dict(self.headers)
        if self.user_agents:
            headers["User-Agent"] = self.user_agents[number % len(self.user_agents)]
        meta = {"declared": url}
        return Request(url, self.parse, errback=self.failed, headers=headers, meta=meta)

    async def parse(self, response: Response) -> AsyncIterator[Request]:
        """Note the answer; ask, once, for what was never declared; let time go by, once."""
        found: dict[str, Any] = {"status": response.status, "final": response.url}
        if response.meta["declared"] == self.document:
            found["document"] = _json(response)
        self._note(response.meta["declared"], **found)
        self._let_time_go_by()
        undeclared, self.undeclared = self.undeclared, []
        for number, url in enumerate(undeclared):
            yield self._request(url, number)
        also, self.also = self.also, []
        if also:
            meta = {**response.meta, "walsh_also": also}
            yield Request(
                response.url, self.parse, errback=self.failed, meta=meta, dont_filter=True
            )
            for url in also:
                yield self._request(url, 0)
        past, self.past = self.past, []
        for url in past:
            await self._download(url)

    def _let_time_go_by(self) -> None:
        seconds, self.later = self.later, 0.0
        if seconds:
            core = Crawl.of(self.crawler)
            wall = core.wall
            core.wall = lambda: wall() + seconds

    async def _download(self, url: str) -> None:
        try:
            response = await compat.download(self.crawler, Request(url))
        except Exception as error:
            self.went_past.append({"url": url, **_told(error)})
        else:
            self.went_past.append({"url": url, "status": response.status})

    def failed(self, failure: Failure) -> None:
        """Note why there was no answer."""
        request: Request = failure.request  # type: ignore[attr-defined]
        self._note(request.meta["declared"], **_told(failure.value))

    def _note(self, url: str, **found: Any) -> None:
        self.results.append({"url": url, **found})

    def _received(self, request: Request) -> None:
        self.received.append({"url": request.url, "at": time.monotonic()})

    def closed(self, reason: str) -> None:
        """Writes the account."""
        crawl = getattr(self.crawler, "walsh", None)
        intervals = {}
        if crawl is not None:
            pacing = crawl.pacing
            urls = {each["url"] for each in self.received}
            intervals = {url: pacing.throttle.interval(pacing.look_up(url)) for url in urls}
        told = {
            "reason": reason,
            "results": self.results,
            "past": self.went_past,
            "received": self.received,
            "intervals": intervals,
            "given_up": self.crawler.stats.get_value("walsh/given_up", 0),
        }
        if self.account:
            Path(self.account).write_text(json.dumps(told), encoding="utf-8")


def _json(response: Response) -> Any:
    try:
        return json.loads(response.body)
    except ValueError:
        return None


def _told(error: BaseException | None) -> dict[str, Any]:
    """What an outcome says: the class of the error, and verdict and rule of a refusal."""
    found: dict[str, Any] = {"error": type(error).__name__, "why": str(error)}
    if isinstance(error, Refused):
        verdict = error.verdict
        found |= {"requirement": verdict.requirement, "verdict": verdict.name, "rule": verdict.rule}
        found["due"] = error.due
    elif isinstance(error, NotModified):
        found["status"] = 304
    elif isinstance(error, GaveUp):
        found |= {"requirement": "R5", "gave_up": error.status}
    return found
