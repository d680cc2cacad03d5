"""R5 for one crawl: what a failed exchange means for its URL, and how often that was asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from scrapy_walsh.policy import backoff, recrawl
from scrapy_walsh.policy.backoff import GiveUp, Retry
from scrapy_walsh.state.records import Attempts

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response

    from scrapy_walsh.adapters.core import Core


class Retries:
    """The retries of one crawl, and those that an earlier run was cut off in."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._failures: WeakKeyDictionary[Request, Retry | GiveUp] = WeakKeyDictionary()
        self._attempts: dict[str, int] = {}

    def assess(self, request: Request, response: Response | None) -> Retry | GiveUp | None:
        """What R5 says of an answer, or of none; None where it says nothing."""
        core = self._core
        return backoff.after_failure(
            None if response is None else response.status,
            [] if response is None else retry_after(response),
            self.attempt(request),
            now=core.wall(),
            rand=core.rand(),
            base=core.config.backoff_base,
            cap=core.config.backoff_cap,
            max_retries=core.config.max_retries,
        )

    def failed(self, request: Request, failure: Retry | GiveUp) -> None:
        """Note what R5 decided about *request*."""
        self._failures[request] = failure
        self._core.fetcher.failed(request, failure)

    def succeeded(self, request: Request) -> None:
        """Note that *request* was answered: what it took is forgotten."""
        core = self._core
        if core.fetcher.owns(request):
            return
        if self.attempt(request):
            core.remember(lambda: core.store.clear_attempts(request.url))
        else:
            del self._attempts[request.url]

    def attempt(self, request: Request) -> int:
        """Retries made so far for this URL."""
        if self._core.fetcher.owns(request):
            return self._core.fetcher.attempt(request)
        return self._tried(request.url)

    def _tried(self, url: str) -> int:
        """Retries made so far for *url*; a run cut off within the hour counts too (R5.6)."""
        if url in self._attempts:
            return self._attempts[url]
        core = self._core
        found = core.recall(lambda: core.store.get_attempts(url))
        counts = found is not None and abs(core.wall() - found.last_at) < recrawl.REVISIT_FLOOR
        count = min(found.count, core.config.max_retries) if found and counts else 0
        self._attempts[url] = count
        return count

    def failure(self, request: Request) -> Retry | GiveUp | None:
        """What R5 decided about the last exchange for *request*, told once."""
        return self._failures.pop(request, None)

    def retry(self, request: Request) -> Request:
        """The request to make in place of *request* after a back-off, counted."""
        core = self._core
        count = self._attempts[request.url] = self._tried(request.url) + 1
        tried = Attempts(request.url, count, core.wall())
        core.remember(lambda: core.store.put_attempts(tried))
        return core.again(request)

    def gave_up(self, url: str) -> bool:
        """Whether every retry of *url* in this run is used up (R5.6)."""
        return self._attempts.get(url, 0) > self._core.config.max_retries

    def give_up(self, url: str) -> None:
        """Ask *url* no more in this run."""
        core = self._core
        self._attempts[url] = core.config.max_retries + 1
        core.remember(lambda: core.store.clear_attempts(url))


def hold_of(failure: Retry | GiveUp) -> float:
    """Seconds for which *failure* leaves the host alone."""
    return failure.delay if isinstance(failure, Retry) else failure.hold


def retry_after(response: Response) -> list[str]:
    """The values of every Retry-After line."""
    values: list[Any] = response.headers.getlist("Retry-After")
    return [value.decode("latin-1") for value in values]
