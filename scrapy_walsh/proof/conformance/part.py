"""A part of the lab: hosts, the targets a bot is given, and the rows that the log is judged by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scrapy_walsh.proof.conformance.check import MUST, Row
from scrapy_walsh.proof.conformance.evidence import OPERATOR_HOST, ROBOTS, never, was_asked
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
    from collections.abc import Callable, Sequence

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
