"""A part of the lab: hosts, the targets a bot is given, and the rows that the log is judged by."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy_walsh.proof.conformance import crawl
from scrapy_walsh.proof.conformance.check import MUST, Row
from scrapy_walsh.proof.conformance.evidence import (
    OPERATOR_HOST,
    Evidence,
    Run,
    never,
    was_asked,
)
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
    from collections.abc import Callable, Iterator, Sequence

    from scrapy_walsh.proof.conformance.crawl import Bot
    from scrapy_walsh.proof.sandbox.site import Answerer


@dataclass(frozen=True)
class Part:
    """``serves``: the requirements that ``rows`` are about. ``sites``: makes hosts, for a token.

    ``urls``: the targets of the first run; ``later``: those of the second, where it shows more.
    """

    name: str
    serves: Sequence[str]
    sites: Callable[[str], list[Site]]
    urls: Sequence[str]
    rows: Sequence[Row]
    later: Sequence[str] = ()


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


def left_alone(identity: str, title: str, urls: str, control: str, level: str = MUST) -> Row:
    """A row: none of *urls* is requested, though *control* is. By spaces, without ``http://``."""
    wrong = [f"http://{url}" for url in urls.split()]
    return Row(identity, title, lambda e: never(e.first, wrong, f"http://{control}"), level)


def requested(identity: str, title: str, urls: str, level: str = MUST) -> Row:
    """A row: each of *urls* is requested. By spaces, without ``http://``."""
    wanted = [f"http://{url}" for url in urls.split()]
    return Row(identity, title, lambda e: was_asked(e.first, *wanted), level)


# A scene of the conformance run: a sandbox and a project of its own, crawls, rows.


@dataclass(frozen=True)
class Scene:
    """``play`` makes the crawls of a bot; ``rows`` judge them. ``serves``: as of a ``Part``."""

    name: str
    serves: Sequence[str]
    play: Callable[[Bot], Evidence]
    rows: Sequence[Row]


class Stage:
    """A running sandbox, and the project that crawls it, run after run."""

    def __init__(self, bot: Bot, box: Sandbox, project: Path) -> None:
        self.bot = bot
        self.box = box
        self.project = project
        self.runs: list[Run] = []

    def probe(self, *urls: str, settings: dict[str, Any] | None = None, **arguments: str) -> Run:
        """One more crawl by the probe."""
        run = crawl.probe(self.project, self.box, urls, settings=settings, **arguments)
        self.runs.append(run)
        return run

    def serve(self, host: str, path: str, route: Route) -> None:
        """From now on, answer requests for *path* of *host* by *route*."""
        self.box.set_route(host, path, route)

    def age(self, kind: str, key: str, seconds: float) -> None:
        """Make a stored document *seconds* older, as if so much time had passed."""
        store = open_store(crawl.state_dir(self.project))
        try:
            document = store.get(StoredDocument, kind, key)
            if document is not None:
                store.put(replace(document, fetched_at=document.fetched_at - seconds))
        finally:
            store.close()

    def age_host(self, host: str, seconds: float) -> None:
        """Make what is stored of a host *seconds* older: its last answer, and its hold (R4, R5)."""
        store = open_store(crawl.state_dir(self.project))
        try:
            record = store.get(HostRecord, host)
            if record is not None:
                hold = None if record.not_before is None else record.not_before - seconds
                store.put(replace(record, last_end=record.last_end - seconds, not_before=hold))
        finally:
            store.close()

    def evidence(self) -> Evidence:
        """What the runs so far showed."""
        identity = self.bot.identity
        return Evidence(identity.user_agent, identity.token, self.runs, self.bot.robots_pace)


@contextmanager
def stage(bot: Bot, sites: Sequence[Site], **settings: Any) -> Iterator[Stage]:
    """A stage with *sites*; *settings* are the project's."""
    with tempfile.TemporaryDirectory(prefix="walsh-conformance-") as folder, Sandbox(sites) as box:
        yield Stage(bot, box, crawl.make_project(Path(folder, "project"), bot, **settings))
