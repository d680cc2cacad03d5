"""The spider of the conformance runs: requests what it is given, and writes what became of it.

Its callbacks also try what the gates must stop: undeclared URLs, other User-Agents.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
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
    """``-a task=JSON`` is what it is to do, by these members.

    ``urls``: its targets; ``posts``: targets by POST. ``headers``: set on the requests.
    ``document``: the URL of the target that has its text in the account. ``account``: the file that
    gets the account.

    In its first callback: ``undeclared``: URLs that it yields. ``also``: it repeats its request,
    with these as declared by it in ``meta``. ``past``: it downloads these by
    ``engine.download_async``. ``later``: the wall clock goes ahead by so many seconds.

    The account: ``results`` (one for each target), ``past`` (the URLs that were waited for),
    ``received`` (URL and monotonic seconds of every answer's head), ``intervals`` (by URL,
    seconds).
    """

    name = "walsh_conformance"

    def __init__(self, *, task: str = "{}", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.task: dict[str, Any] = json.loads(task)
        #: The work that is left for the first callback.
        self.once = self.task
        self.results: list[dict[str, Any]] = []
        self.went_past: list[str] = []
        self.received: list[dict[str, Any]] = []

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> ProbeSpider:
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider._received, signals.headers_received)
        return spider

    async def start(self) -> AsyncIterator[Any]:
        """A request for each URL given."""
        for url in self.task.get("urls", ()):
            yield self._request(url)
        for url in self.task.get("posts", ()):
            yield self._request(url, method="POST", body=b"a=1")

    def _request(self, url: str, **more: Any) -> Request:
        meta = {"declared": url}
        headers = self.task.get("headers")
        return Request(
            url,
            self.parse,
            errback=self.failed,
            headers=headers,
            meta=meta,
            **more,
        )

    async def parse(self, response: Response) -> AsyncIterator[Request]:
        """Note the answer. The first time, also do what the task says of the first callback."""
        result: dict[str, Any] = {
            "status": response.status,
            "final": response.url,
        }
        if response.meta["declared"] == self.task.get("document"):
            result["document"] = response.body.decode("utf-8", "replace")
        self._note(response.meta["declared"], **result)
        once = self.once
        self.once = {}
        if later := once.get("later"):
            core = Crawl.of(self.crawler)
            wall = core.wall
            core.wall = lambda: wall() + later
        for url in once.get("undeclared", ()):
            yield self._request(url)
        if also := once.get("also"):
            meta = {**response.meta, "walsh_also": also}
            yield Request(
                response.url,
                self.parse,
                errback=self.failed,
                meta=meta,
                dont_filter=True,
            )
            for url in also:
                yield self._request(url)
        for url in once.get("past", ()):
            with suppress(Exception):  # what came of it shows in the server's log
                await compat.download(self.crawler, Request(url))
            self.went_past.append(url)

    def failed(self, failure: Failure) -> None:
        """Note why there was no answer."""
        request: Request = failure.request  # type: ignore[attr-defined]
        self._note(request.meta["declared"], **_describe_error(failure.value))

    def _note(self, url: str, **found: Any) -> None:
        self.results.append({"url": url, **found})

    def _received(self, request: Request) -> None:
        self.received.append({"url": request.url, "at": time.monotonic()})

    def closed(self, _reason: str) -> None:
        """Writes the account."""
        host_of = Crawl.of(self.crawler).pacing.host_of
        urls = {response["url"] for response in self.received}
        account = {
            "results": self.results,
            "past": self.went_past,
            "received": self.received,
            "intervals": {url: host_of(url).traffic.interval for url in urls},
        }
        Path(self.task["account"]).write_text(json.dumps(account), encoding="utf-8")


def _describe_error(error: BaseException | None) -> dict[str, Any]:
    """*error* for the account: its class, and the verdict and rule of a refusal."""
    result: dict[str, Any] = {"error": type(error).__name__, "why": str(error)}
    if isinstance(error, Refused):
        verdict = error.verdict
        result |= {
            "requirement": verdict.requirement,
            "verdict": verdict.name,
            "rule": verdict.rule,
        }
        result["due"] = error.due
    elif isinstance(error, NotModified):
        result["status"] = 304
    elif isinstance(error, GaveUp):
        result |= {"requirement": "R5", "gave_up": error.status}
    return result
