"""R8 for one crawl: which sources were answered, and when a later run may send them again.

R8 judges by what earlier runs have answered, never by what this one does. So what this run has
answered is kept apart from the store's records: ``lifts`` says for which sources the gates look
at none. A fleet's shared queue knows no runs: there each request is judged by the records.

A source counts as answered once the spider has taken the answer; what a crash cuts off before
that is sent again by the next run.
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
    """What makes *request* another one than a GET of its URL (``recrawl.form_of``)."""
    return recrawl.form_of(request.method, request.body)


class Asked:
    """The sources that one crawl has sent and got answers to; keys are of ``recrawl.key_of``."""

    def __init__(self, context: Context, fetcher: Fetcher, pacing: Pacing) -> None:
        self._context = context
        self._fetcher = fetcher
        self._pacing = pacing
        #: What this run has answered.
        self._answered: set[str] = set()
        #: URLs that a redirect of a target led to, and the source that was redirected.
        self._hops: dict[str, str] = {}
        #: Answers that the spider may not have taken yet.
        self._untaken: list[tuple[Request, SourceRun]] = []

    def lifts(self, key: str) -> bool:
        """Whether R8 has nothing against *key* in this run, whatever is on record.

        The run itself has answered it, or was led to it by a redirect.
        """
        if key.partition(" ")[0] in self._hops:
            return True
        return key in self._answered and not self._context.fleet

    def again(self, request: Request) -> bool:
        """Whether this run has had an answer to this very request before."""
        return recrawl.key_of(request.url, form_of(request)) in self._answered

    def hop(self, url: str, request: Request) -> None:
        """Note that *request* was redirected to *url*: both count for the source they came from."""
        first = next(self._sources(request), None)
        if first is not None:
            self._hops.setdefault(url.partition("#")[0], first)

    def _sources(self, request: Request) -> Iterator[str]:
        """The sources that an answer to *request* answers."""
        scope, url = self._context.scope, request.url.partition("#")[0]
        via = self._hops.get(url)
        if via is None and not scope.is_source(url):
            via = scope.source_of(url)  # a hop that an earlier run was led to
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
        """Note an answer that was too long to be taken: it would be as long an hour later."""
        if not self._fetcher.owns(request):
            self.note(request, "200", self._context.wall())

    def next_due(self, url: str) -> float | None:
        """Unix seconds before which no run asks the target *url* again; None: the next one may.

        By R8, and by the holds of R5 on its host.
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
        """Remember the sources whose answers the spider has taken, and their items."""
        under_way = compat.under_way(self._context.crawler)
        self._settle(lambda request: request not in under_way)

    def taken(self, request: Request) -> None:
        """Note that the spider has taken the answer to *request*."""
        self._settle(lambda each: each is request)

    def close(self) -> None:
        """Remember the sources whose answers nobody will take any more."""
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
