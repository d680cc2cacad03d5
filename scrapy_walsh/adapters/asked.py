"""R8 for one crawl: which sources were answered, and when a later run may send them again.

R8 compares runs: a source is judged by the answers that earlier runs got, never by those of this
run (D12). So the answers of this run are kept apart from the store's records, and ``lifts`` says
for which sources the gates look at no record. A fleet has no runs: each request from its shared
queue is judged by the records.

A source counts as answered once its spider has taken the answer. If the process is killed before
that, the next run sends the source again.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from scrapy import Request

from scrapy_walsh.adapters import compat
from scrapy_walsh.policy import recrawl
from scrapy_walsh.state.records import SourceRun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scrapy_walsh.adapters.context import Context
    from scrapy_walsh.adapters.fetcher import Fetcher
    from scrapy_walsh.adapters.pacing import Pacing


def form_of(request: Request) -> str:
    """Method and digest of the body of *request*; "" for a plain GET (``recrawl.form_of``)."""
    return recrawl.form_of(request.method, request.body)


class Asked:
    """The sources that one crawl has sent and got answers to; keys are of ``recrawl.key_of``."""

    def __init__(self, context: Context, fetcher: Fetcher, pacing: Pacing) -> None:
        self._context = context
        self._fetcher = fetcher
        self._pacing = pacing
        #: Keys of the sources that this run got an answer to.
        self._answered: set[str] = set()
        #: By URL that a redirect of a target led to: the source that was redirected.
        self._hops: dict[str, str] = {}
        #: URLs of sources that R8 has refused.
        self._turned_away: set[str] = set()
        #: Answers that their spider may not have taken yet, and the records to store then.
        self._untaken: list[tuple[Request, SourceRun]] = []

    def lifts(self, key: str) -> bool:
        """Whether R8 allows *key* in this run, whatever is on record.

        True where this run got an answer to it, or a redirect led to it.
        """
        if key.partition(" ")[0] in self._hops:
            return True
        return key in self._answered and not self._context.fleet

    def again(self, request: Request) -> bool:
        """Whether this run has had an answer to this very request before."""
        return recrawl.key_of(request.url, form_of(request)) in self._answered

    def turn_away(self, url: str) -> None:
        """Note that the source *url* was refused by R8 in this run, and not sent."""
        self._turned_away.add(url.partition("#")[0])

    def turned_away(self, url: str) -> bool:
        """Whether :meth:`turn_away` was told of *url*: Scrapy's filter has seen it all the same."""
        return url.partition("#")[0] in self._turned_away

    def hop(self, url: str, request: Request) -> None:
        """Note that *request* was redirected to *url*: an answer there answers the source."""
        first = next(self._sources(request), None)
        if first is not None:
            self._hops.setdefault(url.partition("#")[0], first)

    def _sources(self, request: Request) -> Iterator[str]:
        """The sources that an answer to *request* answers."""
        scope, url = self._context.scope, request.url.partition("#")[0]
        via = self._hops.get(url)
        if via is None and not scope.is_source(url):
            via = scope.source_of(url)  # a redirect of an earlier run, kept by a JOBDIR
        if via is not None:
            yield via
        if scope.is_source(url):
            yield recrawl.key_of(url, form_of(request))

    def note(self, request: Request, outcome: str, sent_at: float) -> None:
        """Note that *request*, sent at *sent_at*, was answered, which ends a source's turn."""
        for key in dict.fromkeys(self._sources(request)):
            self._answered.add(key)
            self._untaken.append((request, self._run(key, sent_at, outcome)))

    def _run(self, key: str, sent_at: float, outcome: str) -> SourceRun:
        context = self._context
        known = context.recall(lambda: context.store.get_source(key))
        last = None if known is None else known.visit
        visit = recrawl.met(sent_at, last, context.config.revisit)
        counted_from = None if visit.counted_from == sent_at else visit.counted_from
        return SourceRun(key, sent_at, outcome, context.config.revisit_reason, counted_from)

    def cut_off(self, request: Request) -> None:
        """Note an answer whose body was too long: the source is not sent again for that."""
        if not self._fetcher.owns(request):
            self.note(request, "200", self._context.wall())

    def next_due(self, url: str) -> float | None:
        """Unix seconds before which no run sends the target *url* again; None: the next run may.

        It follows from R8, and from holds on its host (R5).
        """
        context, url = self._context, Request(url).url
        held = self._pacing.throttle.held_until(self._pacing.look_up(url)) - context.monotonic()
        run = next((run for _, run in self._untaken if run.url == url), None)
        run = run or context.store.get_source(url)
        due = max(
            0.0 if run is None else recrawl.opens(run.visit, context.config.revisit),
            context.wall() + held if held > 0 else 0.0,
        )
        return due if due > context.wall() else None

    def settle(self) -> None:
        """Store the sources whose answers their spider has taken, together with all items."""
        under_way = compat.under_way(self._context.crawler)
        self._settle(lambda request: request not in under_way)

    def taken(self, request: Request) -> None:
        """Note that the spider has taken the answer to *request*."""
        self._settle(lambda each: each is request)

    def close(self) -> None:
        """Store all sources that were answered: the crawl ends, and no answer is taken later."""
        self._settle(lambda _: True)

    def _settle(self, done: Callable[[Request], bool]) -> None:
        for entry in [each for each in self._untaken if done(each[0])]:
            self._untaken.remove(entry)
            self._remember(*entry)

    def _remember(self, request: Request, run: SourceRun) -> None:
        context = self._context
        context.remember(lambda: context.store.put_source(run))
        for url in {request.url, run.url.partition(" ")[0]}:
            context.remember(partial(context.store.delete_deferral, url))
