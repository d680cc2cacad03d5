"""R8 for one crawl: which sources were answered, and when they may be asked again.

A source counts as asked once the spider has taken its answer; what a crash cuts off before that
is asked again by the next run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy import Request

from scrapy_walsh.adapters import compat
from scrapy_walsh.policy import recrawl
from scrapy_walsh.state.records import SourceRun

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_walsh.adapters.core import Core


class Asked:
    """The sources that one crawl has asked."""

    def __init__(self, core: Core) -> None:
        self._core = core
        #: Sources that were answered in this run: R8 looks at them anew.
        self._answered: set[str] = set()
        #: Answers that the spider may not have taken yet.
        self._untaken: list[tuple[Request, SourceRun]] = []

    def __contains__(self, url: str) -> bool:
        return url in self._answered

    def note(self, request: Request, status: int | None) -> None:
        """Note the answer to *request*, where that ends its source's turn."""
        core = self._core
        source = core.scope.source_of(request.url)
        if source is None or core.fetcher.owns(request) or not recrawl.counts_as_asked(status):
            return
        self._answered.add(source)
        run = SourceRun(source, core.wall(), str(status), core.config.revisit_reason)
        self._untaken.append((request, run))

    def cut_off(self, request: Request) -> None:
        """Note an answer that was too long to be taken: it would be as long an hour later."""
        self.note(request, 200)

    def next_due(self, url: str) -> float | None:
        """Unix seconds before which no run asks the target *url* again; None: the next one may.

        By R8, and by the holds of R5 on its host.
        """
        core, url = self._core, Request(url).url
        held = core.throttle.held_until(core.host_of(url)) - core.monotonic()
        run = next((run for _, run in self._untaken if run.url == url), None)
        run = run or core.store.get_source(url)
        revisit = max(core.config.revisit, recrawl.REVISIT_FLOOR)
        due = max(
            0.0 if run is None else run.last_run_at + revisit,
            core.wall() + held if held > 0 else 0.0,
        )
        return due if due > core.wall() else None

    def settle(self) -> None:
        """Remember the sources whose answers the spider has taken, and their items."""
        under_way = compat.under_way(self._core.crawler)
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
            self._remember(entry[1])

    def _remember(self, run: SourceRun) -> None:
        core = self._core
        core.remember(lambda: core.store.put_source(run))
        core.remember(lambda: core.store.delete_deferral(run.url))
