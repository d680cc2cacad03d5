"""R5 for one crawl: what a failed exchange means for its URL and its host, and how often that
was asked.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from scrapy_walsh.adapters.outcomes import GaveUp
from scrapy_walsh.policy import backoff, hosts, recrawl
from scrapy_walsh.policy.backoff import GiveUp, Retry
from scrapy_walsh.policy.event import TARGET
from scrapy_walsh.policy.robots_fetch import REASK
from scrapy_walsh.policy.silence import Silences, told
from scrapy_walsh.state.records import Attempts

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response

    from scrapy_walsh.adapters.core import Core
    from scrapy_walsh.policy.verdict import Verdict

#: The key of ``Request.meta`` for a trial of https, after which http is to be asked.
TRY_HTTPS: Final = "walsh_try_https"
#: Requests of such trials that one origin gets: its robots.txt, and a target.
_TRIALS: Final = 2


class Retries:
    """The retries of one crawl, and those that an earlier run was cut off in."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._failures: WeakKeyDictionary[Request, Retry | GiveUp] = WeakKeyDictionary()
        self._attempts: dict[str, int] = {}
        config = core.config
        self._silences = Silences(
            config.max_retries,
            config.robots_unreachable,
            math.inf if config.shared_state is None else REASK,
        )
        #: Trials of https without an answer, by origin.
        self._trials: Counter[str] = Counter()

    def assess(self, request: Request, response: Response | None) -> Retry | GiveUp | None:
        """What R5 says of an answer, or of none, which is counted; None where it says nothing."""
        core = self._core
        last = self._unanswered(request) if response is None else ""
        return backoff.after_failure(
            None if response is None else response.status,
            [] if response is None else retry_after(response),
            self.attempt(request),
            now=core.wall(),
            rand=core.rand(),
            base=core.config.backoff_base,
            cap=core.config.backoff_cap,
            max_retries=core.config.max_retries,
            last=last,
            method=request.method,
        )

    def _unanswered(self, request: Request) -> str:
        """Count a request that got no answer; why none may follow it, empty where one may."""
        core, now = self._core, self._core.monotonic()
        purpose = core.fetcher.purpose(request)
        if self.tries_https(request):
            self._trials[hosts.origin(request.url)] += 1
            return "https is tried once, then http" if purpose == TARGET else ""
        host = core.host_of(request.url)
        self._silences.note(host, now)
        if purpose == "operator" or not self._silences.spent(host, now, robots=purpose == "robots"):
            return ""
        return told(host, self._silences.count(host, now))

    def against(self, host: str, *, document: bool = False) -> Verdict | None:
        """The verdict against a host that gave no answer to all that this run grants it."""
        return self._silences.against(host, self._core.monotonic(), robots=document)

    def tries_https(self, request: Request) -> bool:
        """Whether *request* only tries whether its host speaks https, or is for such a one."""
        fetcher = self._core.fetcher
        trial = fetcher.trial(request) if fetcher.owns(request) else request.meta.get(TRY_HTTPS)
        return bool(trial) and request.url.startswith("https://")

    def end_trial(self, request: Request, *, decided: bool) -> None:
        """Raise GaveUp for a trial of https that got no answer: its spider may ask by http now.

        ``decided``: robots.txt allows the URL. Where it does not, or has not come, one request
        without an answer is enough.
        """
        if self.tries_https(request):
            tried = self._trials[hosts.origin(request.url)]
            if tried >= (_TRIALS if decided else 1):
                raise GaveUp(request.url, f"no answer by https to {tried} requests")

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
