"""A part of the lab: hosts, the targets a bot is given, and the rows that the log is judged by."""

from __future__ import annotations

import tempfile
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy_walsh.proof.conformance import crawl
from scrapy_walsh.proof.conformance.check import rows_of
from scrapy_walsh.proof.conformance.evidence import OPERATOR_HOST, Evidence, Run, urls_of
from scrapy_walsh.proof.exchanges import ROBOTS
from scrapy_walsh.proof.sandbox import Route, Sandbox, Site
from scrapy_walsh.proof.sandbox.routes import (
    HTML,
    OPEN,
    missing,
    negotiated,
    operator_documents,
    text,
)
from scrapy_walsh.state import open_store
from scrapy_walsh.state.records import HostRecord, StoredDocument

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from scrapy_walsh.proof.conformance.check import Row
    from scrapy_walsh.proof.conformance.crawl import Bot
    from scrapy_walsh.proof.conformance.judges import Judge
    from scrapy_walsh.proof.sandbox.site import Answerer


@dataclass(frozen=True)
class Part:
    """``sites``: makes hosts, for a token. ``urls``: the targets of the first run, by spaces.

    ``later``: those of the second, where it shows more. ``table``: judges, by the headings of their
    rows; ``foreign``: those of other crawlers alone, since for ours a scene has such rows.
    """

    name: str
    sites: Callable[[str], list[Site]]
    urls: str
    table: Mapping[str, Judge]
    later: str = ""
    foreign: Mapping[str, Judge] = field(default_factory=dict)

    @property
    def rows(self) -> tuple[Row, ...]:
        """All of them."""
        return rows_of({**self.foreign, **self.table})


def site(host: str, robots: str | Route = OPEN, **routes: Route | Answerer) -> Site:
    """A host with a robots.txt, and a page at every path; *routes* by name: ``page`` is ``/page``.

    The page is markdown where the Accept field names it, else HTML.
    """
    rules = robots if isinstance(robots, Route) else text(robots)
    named = {f"/{name}": route for name, route in routes.items()}
    return Site(host, {"/robots.txt": rules, "/llms.txt": missing(), "*": negotiated(), **named})


def refreshing(meta: str, header: str) -> Route:
    """HTML that refreshes to *meta* by an element, and to *header* by a header line."""
    element = f'<meta http-equiv="refresh" content="1; url={meta}"><title>Page</title>'
    body = HTML.replace("<title>Page</title>", element)
    return Route(body=body, headers={"Refresh": f"1; url={header}"})


def operator_site(*domains: str) -> Site:
    """The operator's host, its list with these *domains*."""
    documents = operator_documents(f"http://{OPERATOR_HOST}", *domains)
    return Site(OPERATOR_HOST, {ROBOTS: text(), **documents})


# A scene of the conformance run: a sandbox and a project of its own, crawls, rows.


@dataclass(frozen=True)
class Scene:
    """``play`` makes the crawls of a bot. ``table``: judges, by the headings of their rows."""

    name: str
    play: Callable[[Bot], Evidence]
    table: Mapping[str, Judge]

    @property
    def rows(self) -> tuple[Row, ...]:
        """All of them."""
        return rows_of(self.table)


class Stage:
    """A running sandbox, and the project that crawls it, run after run."""

    def __init__(self, bot: Bot, box: Sandbox, project: Path) -> None:
        self.bot = bot
        self.box = box
        self.project = project
        self.runs: list[Run] = []

    def probe(self, urls: str, settings: dict[str, Any] | None = None, **task: Any) -> Run:
        """One more crawl by the probe of *urls*, by spaces; *task*: what else it does."""
        run = crawl.probe(self.project, self.box, urls_of(urls), settings, **task)
        self.runs.append(run)
        return run

    def metadata(self, name: str, sources: str, declared: Sequence[str] = ()) -> Run:
        """One more crawl, by the spider ``walsh_metadata``, of *sources* in a file *name*."""
        run = crawl.metadata(self.project, self.box, name, sources, declared)
        self.runs.append(run)
        return run

    def serve(self, host: str, path: str, route: Route) -> None:
        """From now on, answer requests for *path* of *host* by *route*."""
        self.box.set_route(host, path, route)

    def age(self, kind: str, key: str, seconds: float) -> None:
        """Make a stored document *seconds* older, as if so much time had passed."""
        self._age(StoredDocument, (kind, key), seconds, "fetched_at")

    def age_host(self, host: str, seconds: float) -> None:
        """Make what is stored of a host *seconds* older: its last answer, and its hold (R4, R5)."""
        self._age(HostRecord, (host,), seconds, "last_end", "not_before")

    def _age(self, kind: Any, key: tuple[str, ...], seconds: float, *names: str) -> None:
        with closing(open_store(crawl.state_dir(self.project))) as store:
            record = store.get(kind, *key)
            if record is not None:
                times = {name: getattr(record, name) for name in names}
                known = {name: at - seconds for name, at in times.items() if at is not None}
                store.put(replace(record, **known))

    def evidence(self) -> Evidence:
        """What the runs so far showed."""
        identity = self.bot.identity
        return Evidence(identity.user_agent, identity.token, self.runs, self.bot.robots_pace)


@contextmanager
def stage(bot: Bot, sites: Sequence[Site], **settings: Any) -> Iterator[Stage]:
    """A stage with *sites*; *settings* are the project's."""
    with tempfile.TemporaryDirectory(prefix="walsh-conformance-") as folder, Sandbox(sites) as box:
        project = Path(folder, "project")
        yield Stage(
            bot, box, crawl.make_project(project, bot, **crawl.mirrored(project), **settings)
        )
