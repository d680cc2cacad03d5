"""R5 for one crawl: what was decided about failed exchanges, and how often each URL was tried."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from scrapy_walsh.adapters.outcomes import GaveUp
from scrapy_walsh.policy import hosts, recrawl
from scrapy_walsh.policy.backoff import TRIALS
from scrapy_walsh.policy.event import TARGET
from scrapy_walsh.policy.words import plural
from scrapy_walsh.state.records import Attempts

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response

    from scrapy_walsh.adapters.context import Context
    from scrapy_walsh.adapters.fetcher import Fetcher
    from scrapy_walsh.adapters.pacing import Pacing
    from scrapy_walsh.policy.backoff import GiveUp, Retry

#: The key of ``Request.meta`` that marks a trial of https, after which http is tried.
TRY_HTTPS: Final = "walsh_try_https"


class Retries:
    """The retries of one crawl, those of an earlier run within the last hour included."""

    def __init__(self, context: Context, fetcher: Fetcher, pacing: Pacing) -> None:
        self._context = context
        self._fetcher = fetcher
        self._pacing = pacing
        self._failures: WeakKeyDictionary[Request, Retry | GiveUp] = WeakKeyDictionary()
        self._attempts: dict[str, int] = {}
        #: By origin, the requests of trials of https that got no answer.
        self._trials: Counter[str] = Counter()

    def unanswered(self, request: Request) -> str:
        """Count *request*, which got no answer. Returns why no retry may follow, "" if one may."""
        _context, now = self._context, self._context.monotonic()
        purpose = self._fetcher.purpose(request)
        if self.tries_https(request):
            self._trials[hosts.origin(request.url)] += 1
            return "https is tried once, then http" if purpose == TARGET else ""
        host = self._pacing.host_of(request.url)
        host.silence.note(now)
        if purpose == "operator" or not host.silence.spent(now, robots=purpose == "robots"):
            return ""
        return host.silence.told(host.key, now)

    def tries_https(self, request: Request) -> bool:
        """Whether *request* is a trial of https, or the fetch of a document for one."""
        if not request.url.startswith("https://"):
            return False
        if self._fetcher.owns(request):
            return self._fetcher.trial(request)
        return bool(request.meta.get(TRY_HTTPS))

    def end_trial(self, request: Request, *, decided: bool) -> None:
        """Raise GaveUp for a trial of https without an answer, so that its spider tries http.

        ``decided``: robots.txt allows the URL. Where it does not, or has not come, one request
        without an answer is enough.
        """
        if self.tries_https(request):
            tried = self._trials[hosts.origin(request.url)]
            if tried >= (TRIALS if decided else 1):
                raise GaveUp(request.url, f"no answer by https to {plural(tried, 'request')}")

    def failed(self, request: Request, failure: Retry | GiveUp) -> None:
        """Note what R5 decided about *request*."""
        self._failures[request] = failure
        self._fetcher.failed(request, failure)

    def succeeded(self, url: str) -> None:
        """Note that the target *url* was answered: its count of retries is dropped."""
        context = self._context
        if self.tried(url):
            context.remember(lambda: context.store.delete(Attempts, url))
        else:
            del self._attempts[url]

    def tried(self, url: str) -> int:
        """Retries made so far for the target *url*, also by a run within the last hour (R5.6)."""
        if url in self._attempts:
            return self._attempts[url]
        context = self._context
        found = context.recall(lambda: context.store.get(Attempts, url))
        counts = found is not None and abs(context.wall() - found.last_at) < recrawl.REVISIT_FLOOR
        count = min(found.count, context.config.max_retries) if found and counts else 0
        self._attempts[url] = count
        return count

    def failure(self, request: Request) -> Retry | GiveUp | None:
        """What R5 decided about the last exchange for *request*; None when called again."""
        return self._failures.pop(request, None)

    def retry(self, request: Request) -> Request:
        """The request to send in place of *request* after a back-off. It is counted."""
        context = self._context
        count = self._attempts[request.url] = self.tried(request.url) + 1
        tried = Attempts(request.url, count, context.wall())
        context.remember(lambda: context.store.put(tried))
        return self._pacing.again(request)

    def ended(self, url: str) -> str:
        """Why *url* is requested no more in this run (R5.6); empty where it may be."""
        gave_up = self._attempts.get(url, 0) > self._context.config.max_retries
        return "it was given up earlier in this run (R5)" if gave_up else ""

    def give_up(self, url: str) -> None:
        """Note that *url* is requested no more in this run."""
        context = self._context
        self._attempts[url] = context.config.max_retries + 1
        context.remember(lambda: context.store.delete(Attempts, url))


def retry_after(response: Response) -> list[str]:
    """The values of every Retry-After line."""
    values: list[Any] = response.headers.getlist("Retry-After")
    return [value.decode("latin-1") for value in values]
