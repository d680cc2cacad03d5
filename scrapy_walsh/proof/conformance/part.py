"""A part of the lab: hosts, the targets a bot is given, and the rows that the log is judged by."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scrapy_walsh.proof.conformance.check import rows_of
from scrapy_walsh.proof.conformance.evidence import OPERATOR_HOST
from scrapy_walsh.proof.exchanges import ROBOTS
from scrapy_walsh.proof.sandbox import Route, Site
from scrapy_walsh.proof.sandbox.routes import (
    HTML,
    OPEN,
    missing,
    negotiated,
    operator_documents,
    text,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scrapy_walsh.proof.conformance.check import Row
    from scrapy_walsh.proof.conformance.crawl import Bot
    from scrapy_walsh.proof.conformance.evidence import Evidence, Judge
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
