"""What the tests of several runs share: one project, one sandbox, and the store between runs."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from scrapy_walsh.proof.sandbox import LoggedRequest, Route, Sandbox, Site
from scrapy_walsh.state import open_store
from scrapy_walsh.state.records import TABLES, HostRecord, SourceRun
from scrapy_walsh.state.store import Store
from tests.crawl.harness import (
    LIST_SPIDER,
    Crawl,
    age_document,
    crawl,
    make_project,
    state_dir,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scrapy_walsh.state.store import Store

HOUR, DAY = 3600.0, 86400.0
#: The columns that are times, of all tables.
_TIMES = (
    "counted_from", "declared_at", "due", "fetched_at", "gave_up_at", "gone_at", "last_at",
    "last_end", "last_run_at", "not_before", "seen_at", "since", "stored_at", "told_at",
    "visited_at",
)  # fmt: skip
AGAIN = {"WALSH_REVISIT_REASON": "one run after another"}


class Runs:
    """Crawls of one project, one after another; ``log`` is that of all of them."""

    def __init__(
        self,
        directory: Path,
        *sites: Site,
        settings: dict[str, Any] | None = None,
        spider: str = LIST_SPIDER,
    ) -> None:
        self.box = Sandbox()
        self.project = make_project(directory, spider, settings)
        self.log: list[LoggedRequest] = []
        self._sites = sites

    def __enter__(self) -> Runs:
        self.box.__enter__()
        for each in self._sites:
            self.box.put(each)
        return self

    def __exit__(self, *error: Any) -> None:
        self.box.__exit__(None, None, None)

    def __call__(self, *urls: str, arguments: tuple[str, ...] = (), **options: Any) -> Crawl:
        """One more run."""
        done = crawl(self.project, self.box, *urls, arguments=arguments, **options)
        assert "Traceback" not in done.output, done.output
        self.log += done.log
        return done

    def serve(self, host: str, path: str, route: Route) -> None:
        """Answer so from now on."""
        self.box.set_route(host, path, route)

    def age(self, kind: str, key: str, seconds: float) -> None:
        """Make a stored document *seconds* older."""
        age_document(self.project, kind, key, seconds)

    @contextmanager
    def store(self) -> Iterator[Store]:
        """The store, between two runs."""
        opened = open_store(state_dir(self.project))
        try:
            yield opened
        finally:
            opened.close()

    def pass_time(self, seconds: float) -> None:
        """Make everything on record *seconds* older."""
        with self.store() as store:
            for table in TABLES:
                for record in list(store.rows(table.record)):
                    store.put(_older(record, seconds))

    def source_ran(self, url: str, ago: float) -> None:
        """Make the last run of source *url* lie *ago* seconds back, its first one."""
        with self.store() as store:
            source = store.get(SourceRun, url)
            assert source is not None, f"no run of {url} is on record"
            store.put(replace(source, last_run_at=time.time() - ago, counted_from=None))

    def host(self, name: str) -> HostRecord:
        """What is on record about a host."""
        with self.store() as store:
            record = store.get(HostRecord, name)
        assert record is not None, f"no record of {name}"
        return record


def _older(record: Any, seconds: float) -> Any:
    """*record* with each of its times *seconds* earlier."""
    held = {name: getattr(record, name) for name in _TIMES if hasattr(record, name)}
    return replace(record, **{name: at - seconds for name, at in held.items() if at is not None})
