"""R8 for one crawl: which sources were answered, and when a later run may send them again.

R8 compares runs: a source is judged by the answers that earlier runs got, never by those of this
run (D12). So the answers of this run are kept apart from the store's records, and ``lifts`` says
for which sources the gates look at no record. A fleet has no runs: each request from its shared
queue is judged by the records.

A source counts as answered once its spider has taken the answer. If the process is killed before
that, the next run sends the source again.

Until then a lock shows other runs that this one is requesting it (``state/underway.py``). A source
that redirects is under way until there is an answer from where it leads: that answer counts for it.
So each hop carries the keys of the sources that led to it.

What was deferred is noted here too: an answer ends it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from scrapy import Request, signals

from scrapy_walsh.adapters import compat
from scrapy_walsh.exceptions import StateError
from scrapy_walsh.policy import recrawl
from scrapy_walsh.policy.scope import Digests
from scrapy_walsh.state.records import Deferral, SourceRun
from scrapy_walsh.state.underway import UnderWay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scrapy_walsh.adapters.context import Context
    from scrapy_walsh.adapters.fetcher import Fetcher
    from scrapy_walsh.adapters.pacing import Pacing
    from scrapy_walsh.policy.verdict import Verdict


#: The key of ``Request.meta`` for the sources that redirects led from.
VIA: Final = "walsh_via"


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
        self._answered = Digests()
        #: By key of a request that redirects led to: the sources that they led from.
        self._hops: dict[str, dict[str, None]] = {}
        #: Keys of such requests that this run got an answer to.
        self._reached: set[str] = set()
        #: Keys of requests that were answered by a redirect, and by nothing else so far.
        self._led_on: set[str] = set()
        #: Sources whose redirect led to what this run had been answered before.
        self._joined: set[str] = set()
        self._locks = UnderWay(context.config.state_dir)
        context.crawler.signals.connect(self._dropped, signals.request_dropped)
        #: URLs of sources that R8 has refused.
        self._turned_away: set[str] = set()
        #: By URL, since when earlier runs have deferred it; read from the store at first use.
        self._put_off: dict[str, float] | None = None
        #: Answers that their spider may not have taken yet, and the records to store then.
        self._untaken: list[tuple[Request, SourceRun]] = []
        #: The source that was looked up last, and its record. From the wire on it does not change:
        #: the source is locked for this process.
        self._looked_up: tuple[str, SourceRun | None] = ("", None)

    def last_run(self, key: str) -> SourceRun | None:
        """What is on record of the source *key*.

        What cannot be read counts as requested just now, so the source is not sent in this run.
        """
        context = self._context
        try:
            self._looked_up = key, context.store.get(SourceRun, key)
        except StateError as error:
            context.recorder.own_fault(str(error), kept=True)
            return SourceRun(key, context.wall(), "unknown")
        return self._looked_up[1]

    def lifts(self, key: str) -> bool:
        """Whether R8 allows *key* in this run, whatever is on record.

        True where this run got an answer to it, or a redirect led to it.
        """
        if key in self._hops:
            return True
        known = key in self._answered or key in self._led_on or key in self._joined
        return known and not self._context.fleet

    def again(self, request: Request) -> bool:
        """Whether this run has already had an answer to the same request (URL and form)."""
        return _key(request) in self._answered

    def turn_away(self, url: str) -> None:
        """Note that the source *url* was refused by R8 in this run, and not sent."""
        self._turned_away.add(url.partition("#")[0])

    def turned_away(self, url: str) -> bool:
        """Whether :meth:`turn_away` was called for *url*: Scrapy's filter knows it all the same."""
        return url.partition("#")[0] in self._turned_away

    def leads_back(self, hop: Request, request: Request) -> bool:
        """Whether *hop*, to which *request* was redirected, is a source that led to *request*.

        It has answered by that redirect alone, and may answer otherwise now.
        """
        return _key(hop) in self._led_on and _key(hop) in self._sources(request)

    def hop(self, url: str, request: Request, form: str = "") -> list[str]:
        """Note that *request* was redirected to *url*, requested as *form*.

        Returns the keys of the sources for which an answer there counts.
        """
        sources = list(self._sources(request))
        self._hops.setdefault(recrawl.key_of(url, form), {}).update(dict.fromkeys(sources))
        return sources

    def _sources(self, request: Request) -> Iterator[str]:
        """The keys of the sources for which an answer to *request* counts."""
        scope, url, key = self._context.scope, request.url, _key(request)
        via = recrawl.led_from(key, _carried(request), self._hops)
        if not via and not scope.is_source(url):
            via = dict.fromkeys(filter(None, [scope.source_of(url)]))
        if scope.is_source(url):
            via[key] = None
        yield from via

    def _dropped(self, request: Request) -> None:
        """Note that the duplicate filter dropped *request*.

        A hop to what this run has requested: that answer counts for the sources that lead there.
        """
        if _key(request) in self._reached or _key(request) in self._answered:
            for key in _carried(request):
                if key not in self._answered:
                    self._joined.add(key)
                    run = self._run(key, self._context.wall(), "200")
                    self._remember([(request, run)])

    def put_off(self, url: str, host: str, due: float, reason: str) -> None:
        """Note that *url* is deferred: no run sends it before *due*, Unix seconds."""
        context, since = self._context, self.put_off_since(url)
        put_off = Deferral(url, host, due, reason, context.wall() if since is None else since)
        context.remember(lambda: context.store.put(put_off))

    def put_off_since(self, url: str) -> float | None:
        """Unix seconds at which an earlier run first deferred *url*; None where none did.

        What was deferred first goes first on its host.
        """
        if self._put_off is None:
            context = self._context
            found = context.recall(lambda: list(context.store.rows(Deferral))) or []
            self._put_off = {each.url: each.since or each.due for each in found}
        return self._put_off.get(url)

    def take(self, request: Request) -> Verdict | None:
        """Take the source *request* for this process; the refusal where another requests it."""
        key = _key(request)
        if not self._context.scope.is_source(request.url):
            return None
        if self._locks.take(key) or self.lifts(key):
            return None
        return recrawl.UNDER_WAY

    def let_go(self, request: Request) -> None:
        """Note that *request* is not sent now, or was sent and got no answer."""
        self._locks.drop(_key(request))

    def note(self, request: Request, outcome: str, sent_at: float) -> None:
        """Note that *request*, sent at *sent_at* (Unix seconds), has an answer that R8 counts."""
        key = _key(request)
        self._led_on.discard(key)
        if key in self._hops:
            self._reached.add(key)
        for source in self._sources(request):
            self._untaken.append((request, self._run(source, sent_at, outcome)))
            self._answered.add(source)

    def redirected(self, request: Request) -> None:
        """Note that *request* was answered by a redirect."""
        if _key(request) not in self._answered:
            self._led_on.add(_key(request))

    def _run(self, key: str, sent_at: float, outcome: str) -> SourceRun:
        context = self._context
        (seen, known), self._looked_up = self._looked_up, ("", None)
        if seen != key:
            known = context.recall(lambda: context.store.get(SourceRun, key))
        last = None if known is None else known.visit
        visit = recrawl.met(sent_at, last, context.config.revisit)
        counted_from = None if visit.counted_from == sent_at else visit.counted_from
        return SourceRun(key, sent_at, outcome, context.config.revisit_reason, counted_from)

    def cut_off(self, request: Request) -> None:
        """Note an answer whose body was too long: R8 counts it, so it is not soon sent again."""
        if not self._fetcher.owns(request):
            self.note(request, "200", self._context.wall())

    def next_due(self, url: str) -> float | None:
        """As ``recrawl.next_due``, of the target *url*, with what this run was answered."""
        context, url = self._context, Request(url).url
        held = self._pacing.host_of(url).traffic.not_before - context.monotonic()
        run = next((run for _, run in self._untaken if run.url == url), None)
        run = run or context.store.get(SourceRun, url)
        last, now = None if run is None else run.visit, context.wall()
        return recrawl.next_due(last, now + held, now, context.config.revisit)

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
        self._locks.close()

    def _settle(self, done: Callable[[Request], bool]) -> None:
        taken: list[tuple[Request, SourceRun]] = []
        untaken: list[tuple[Request, SourceRun]] = []
        for request, run in self._untaken:
            (taken if done(request) else untaken).append((request, run))
        self._untaken = untaken
        self._remember(taken)

    def _remember(self, answered: list[tuple[Request, SourceRun]]) -> None:
        """Store *answered* at once, since a kill must not make a run send a source again."""
        context = self._context
        for request, run in answered:
            context.remember(partial(context.store.put, run))
            for url in {request.url, run.url.partition(" ")[0]}:
                context.remember(partial(context.store.delete, Deferral, url))
        context.remember(context.store.flush)
        for _, run in answered:
            self._locks.drop(run.url)


def _key(request: Request) -> str:
    return recrawl.key_of(request.url, form_of(request))


def _carried(request: Request) -> list[str]:
    """The sources that redirects led from to *request*, as it carries them."""
    found = request.meta.get(VIA)
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []
