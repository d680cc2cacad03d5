"""The answers that sites are made of: those of the sandbox, and those of conformance runs."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from .site import Route, Site

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .site import Answerer

TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"
MARKDOWN: Final = "text/markdown; charset=utf-8"
OPEN: Final = "User-agent: *\nAllow: /\n"
HTML: Final = "<!doctype html><html><head><title>Page</title></head><body>A page.</body></html>\n"

OPERATOR_HOST: Final = "operator.test"
ORIGIN: Final = f"http://{OPERATOR_HOST}"
#: Paths of the operator's documents.
WELL_KNOWN: Final = "/.well-known/walsh-research"
LIST: Final = f"{WELL_KNOWN}/blocklist.json"
SCHEMA: Final = f"{WELL_KNOWN}/blocklist.schema.json"
FIXTURES: Final = f"{WELL_KNOWN}/test-fixtures.json"


def page(name: str) -> bytes:
    """A body that comes with this package. Raises: FileNotFoundError."""
    return (files(__package__) / "pages" / name).read_bytes()


def text(body: str = OPEN) -> Route:
    """A text/plain answer, such as a robots.txt."""
    return Route(body=body, content_type=TEXT)


def missing() -> Route:
    """404."""
    return Route(404, "no such file\n", TEXT)


def busy(retry_after: str | None = None) -> Route:
    """429."""
    return Route(429, "slow down\n", TEXT, headers=_waits(retry_after))


def down(retry_after: str | None = None) -> Route:
    """503."""
    return Route(503, "later\n", TEXT, headers=_waits(retry_after))


def _waits(retry_after: str | None) -> dict[str, str]:
    if retry_after is None:
        return {}
    return {"Retry-After": retry_after}


def negotiated(
    html: bytes | str = HTML,
    markdown: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Route:
    """*html*, or markdown for a request that accepts it.

    *fields*: of both answers; *markdown*: of the markdown alone, in place of them.
    """
    vary = {"Vary": "Accept"}
    of_markdown = {"body": page("notes.md"), **fields, **(markdown or {})}
    markdown_route = Route(content_type=MARKDOWN, headers=vary, **of_markdown)
    return Route(body=html, headers=vary, accept={"text/markdown": markdown_route}, **fields)


def refreshing(meta: str, header: str) -> Route:
    """HTML that refreshes to *meta* by an element, and to *header* by a header line."""
    element = f'<meta http-equiv="refresh" content="1; url={meta}"><title>Page</title>'
    body = HTML.replace("<title>Page</title>", element)
    return Route(body=body, headers={"Refresh": f"1; url={header}"})


def site(host: str, robots: str | Route = OPEN, **routes: Route | Answerer) -> Site:
    """A host with a robots.txt, and a page at every path; *routes* by name: ``page`` is ``/page``.

    The page is markdown if the Accept field names it, else HTML.
    """
    rules = robots if isinstance(robots, Route) else text(robots)
    pages = {f"/{name}": route for name, route in routes.items()}
    return Site(
        host,
        {
            "/robots.txt": rules,
            "/llms.txt": missing(),
            "*": negotiated(),
            **pages,
        },
    )


def operator_site() -> Site:
    """The operator's host, with its documents."""
    return Site(OPERATOR_HOST, {"/robots.txt": text(), **operator_documents(ORIGIN)})


def blocklist(origin: str = ORIGIN, *domains: str, inline: bool = True) -> dict[str, Any]:
    """A blocklist document (walsh-research-blocklist/v1), listing ``blocked.test`` by default."""
    document: dict[str, Any] = {
        "contract": "walsh-research-blocklist/v1",
        "updated": "2026-05-23T00:00:00Z",
        "operator": "Sandbox Operator",
        "contact": "opt-out@operator.test",
        "policy": f"{origin}/bot/",
        "refresh": "PT6H",
        "blocked": [
            {
                "domain": domain,
                "added": "2026-05-23",
                "reason": "asked by the site's owner",
            }
            for domain in domains or ("blocked.test",)
        ],
    }
    if inline:
        return {**document, "schema": json.loads(page("blocklist.schema.json"))}
    return document


def operator_documents(origin: str, *domains: str) -> dict[str, Route]:
    """The documents that an operator at *origin* publishes: its list (schema inline), the schema,
    its policy.
    """
    body = json.dumps(blocklist(origin, *domains), indent=2)
    return {
        LIST: Route(body=body, content_type=JSON, etag='"list-1"'),
        SCHEMA: Route(
            body=page("blocklist.schema.json"),
            content_type="application/schema+json",
        ),
        "/bot/": Route(body=page("policy.html")),
    }
