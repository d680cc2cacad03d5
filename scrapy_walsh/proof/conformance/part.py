"""A part of the lab: hosts, the targets a bot is given, and the rows that the log is judged by."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.proof.conformance.evidence import LIST, OPERATOR_HOST, ROBOTS, SCHEMA
from scrapy_walsh.proof.sandbox import Route, Site, blocklist, page

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scrapy_walsh.proof.conformance.check import Row
    from scrapy_walsh.proof.sandbox.site import Answerer

TEXT: Final = "text/plain; charset=utf-8"
HTML: Final = "<!doctype html><html><head><title>Page</title></head><body>A page.</body></html>\n"
OPEN: Final = "User-agent: *\nAllow: /\n"


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


def text(body: str) -> Route:
    """A text/plain answer."""
    return Route(body=body, content_type=TEXT)


def missing() -> Route:
    """404."""
    return Route(404, "no such file\n", TEXT)


def negotiated(**fields: Any) -> Route:
    """HTML, or markdown for a request that accepts it."""
    vary: Mapping[str, str] = {"Vary": "Accept"}
    markdown = Route(
        body=page("notes.md"), content_type="text/markdown; charset=utf-8", headers=vary, **fields
    )
    return Route(body=HTML, headers=vary, accept={"text/markdown": markdown}, **fields)


def refreshing(meta: str, header: str) -> Route:
    """HTML that refreshes to *meta* by an element, and to *header* by a header line."""
    element = f'<meta http-equiv="refresh" content="1; url={meta}"><title>Page</title>'
    body = HTML.replace("<title>Page</title>", element)
    return Route(body=body, headers={"Refresh": f"1; url={header}"})


def operator_site(*domains: str) -> Site:
    """The operator's host: its list (schema inline), the schema, the policy page."""
    listed = json.dumps(blocklist(f"http://{OPERATOR_HOST}", *domains))
    documents = {
        ROBOTS: text("User-agent: *\nAllow: /\n"),
        LIST: Route(body=listed, content_type="application/json", etag='"list-1"'),
        SCHEMA: Route(body=page("blocklist.schema.json"), content_type="application/schema+json"),
        "/bot/": Route(body=page("policy.html")),
    }
    return Site(OPERATOR_HOST, documents)
