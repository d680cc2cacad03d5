"""The default scenario: one site for each thing a polite bot has to get right."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from .routes import (
    FIXTURES,
    JSON,
    MARKDOWN,
    OPERATOR_HOST,
    ORIGIN,
    TEXT,
    busy,
    down,
    missing,
    negotiated,
    operator_documents,
    page,
    text,
)
from .site import Behaviour, Route, Site

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .site import Answerer

_CANARIES = "/research/bots/dogfood"

_CANARY_ROBOTS = f"""\
User-agent: *
Disallow: {_CANARIES}-walsh-only

User-agent: {{token}}
Disallow: {_CANARIES}-disallow
Allow: {_CANARIES}-allow
Allow: {_CANARIES}-walsh-only
Crawl-delay: 2
"""


class DemoSource(NamedTuple):
    """A declared source of the demo."""

    name: str
    url: str
    feed: str | None = None


def default_sites() -> list[Site]:
    """The sites of the demo and of the conformance run, made afresh."""
    return [
        _operator(),
        *_robots_sites(),
        *_blocked_sites(),
        *_source_sites(),
        _flaky(),
        _redirects(),
        *_secure_sites(),
        _broken(),
    ]


def demo_sources() -> list[DemoSource]:
    """What the demo declares, each line for one outcome."""
    return [
        DemoSource("RSS 2.0 feed", "http://rss.test/", "http://rss.test/feed.xml"),
        DemoSource("Atom feed", "http://atom.test/", "http://atom.test/feed.atom"),
        DemoSource("JSON Feed", "http://jsonfeed.test/", "http://jsonfeed.test/feed.json"),
        DemoSource("Markdown by negotiation", "http://markdown.test/notes"),
        DemoSource("llms.txt", "http://llms.test/"),
        DemoSource(
            "Unchanged on a second run", "http://unchanged.test/", "http://unchanged.test/feed.xml"
        ),
        DemoSource("Refused by robots.txt", "http://path.test/private/notes"),
        DemoSource("Refused by the operator's blocklist", "http://www.blocked.test/notes"),
        DemoSource("429 twice, then a feed", "http://flaky.test/", "http://flaky.test/feed.xml"),
        DemoSource("Redirected", "http://redirect.test/own"),
        DemoSource("HTML only: left out", "http://html.test/"),
    ]


def _notes() -> Route:
    return negotiated(page("page.html"), {"etag": '"notes-md"'}, etag='"notes-html"')


def _html(name: str = "page.html") -> Route:
    return Route(body=page(name))


def _rss(**fields: Any) -> Route:
    return Route(body=page("rss.xml"), content_type="application/rss+xml; charset=utf-8", **fields)


def _canaries() -> dict[str, Route | Answerer]:
    bodies = {
        "": _html("canary.html"),
        ".html": _html("canary.html"),
        ".md": Route(body=page("notes.md"), content_type=MARKDOWN),
    }
    return {
        f"{_CANARIES}-{name}{suffix}": route
        for name in ("allow", "disallow", "walsh-only")
        for suffix, route in bodies.items()
    }


def fixtures() -> dict[str, str]:
    """What the operator's document of fixtures names."""
    return {
        "robots_allowed_sentinel": f"{ORIGIN}{_CANARIES}-allow",
        "robots_disallowed": f"{ORIGIN}{_CANARIES}-disallow",
        "walsh_only_allowed": f"{ORIGIN}{_CANARIES}-walsh-only",
        "external_positive": "http://path.test/public",
        "operator_blocked_host": "blocked.test",
        "flaky_429_endpoint": "http://flaky.test/feed.xml",
    }


def canary_robots(token: str = "Walsh-Research", more: str = "") -> Route:  # noqa: S107
    """A robots.txt that treats a bot of this name, and all others, as the canaries' names say.

    *more*: further lines for the bot.
    """
    return text(_CANARY_ROBOTS.format(token=token) + more)


def _operator() -> Site:
    document = {
        "contract": "walsh-research-test-fixtures/v1",
        "updated": "2026-05-23T00:00:00Z",
        "fixtures": fixtures(),
    }
    routes: dict[str, Route | Answerer] = {
        "/robots.txt": canary_robots(),
        FIXTURES: Route(body=json.dumps(document, indent=2), content_type=JSON),
    }
    return Site(OPERATOR_HOST, {**routes, **operator_documents(ORIGIN), **_canaries()})


def _robots_sites() -> list[Site]:
    """Rules by path and by group, delays, and robots.txt files that cannot be fetched."""
    files_of: Mapping[str, Route] = {
        "path.test": text("User-agent: *\nDisallow: /private/\nAllow: /private/open\n"),
        "named-allow.test": text(
            "User-agent: *\nDisallow: /\n\nUser-agent: walsh-research\nDisallow: /private/\n"
        ),
        "named-deny.test": text(
            "User-agent: *\nAllow: /\n\nUser-agent: Walsh-Research\nDisallow: /\n"
        ),
        "delay.test": text("User-agent: *\nCrawl-delay: 2\nDisallow: /private/\n"),
        "long-delay.test": text("User-agent: *\nCrawl-delay: 3600\n"),
        "robots-404.test": missing(),
        "robots-429.test": busy("1"),
        "robots-503.test": down(),
        "robots-blocked.test": Route(302, location="http://blocked.test/robots.txt"),
    }
    return [Site(host, {"/robots.txt": r, "*": _notes()}) for host, r in files_of.items()]


def _blocked_sites() -> list[Site]:
    """Hosts on the blocklist. They would answer every request, and must not get any."""
    routes = {"/robots.txt": text(), "*": _notes()}
    return [Site("blocked.test", routes), Site("www.blocked.test", routes)]


def _source_sites() -> list[Site]:
    feeds = {
        "rss.test": {"/feed.xml": _rss()},
        "atom.test": {
            "/feed.atom": Route(body=page("atom.xml"), content_type="application/atom+xml")
        },
        "jsonfeed.test": {
            "/feed.json": Route(body=page("feed.json"), content_type="application/feed+json")
        },
        "unchanged.test": {
            "/feed.xml": _rss(etag='"tides-7"', last_modified="Tue, 03 Nov 2026 08:30:00 GMT")
        },
        "markdown.test": {"/notes": _notes()},
        "llms.test": {"/llms.txt": Route(body=page("llms.txt"), content_type=TEXT)},
        "html.test": {path: _html() for path in ("/next", "/app.js", "/photo.png", "/style.css")},
    }
    llms_robots = text("User-agent: *\nDisallow: /drafts/\n")
    robots = {"llms.test": llms_robots}
    return [
        Site(host, {"/": _html(), "/robots.txt": robots.get(host, text()), **routes})
        for host, routes in feeds.items()
    ]


def _flaky() -> Site:
    refused = busy("1")
    return Site(
        "flaky.test",
        {
            "/robots.txt": text(),
            "/": _html(),
            "/feed.xml": Route(sequence=(refused, refused, _rss())),
            "/tomorrow": down("86400"),
        },
    )


def _redirects() -> Site:
    locations = {
        "/own": "/target",
        "/other": "http://path.test/public",
        "/blocked": "http://blocked.test/notes",
        "/denied": "/private/notes",
        **{f"/hops/{left}": f"/hops/{left - 1}" for left in range(1, 10)},
        "/hops/0": "/target",
    }
    routes: dict[str, Route | Answerer] = {
        path: Route(302, location=location) for path, location in locations.items()
    }
    routes["/robots.txt"] = text("User-agent: *\nDisallow: /private/\n")
    # Links of its own: each link is an item once, of the source that is read first.
    links = page("notes.md").replace(b"markdown.test", b"redirect.test")
    target = negotiated(page("page.html"), {"etag": '"notes-md"', "body": links})
    routes["/target"] = routes["/private/notes"] = target
    return Site("redirect.test", routes)


def _secure_sites() -> list[Site]:
    """``secure.test`` sends http to https."""
    return [
        Site("https://secure.test", {"/robots.txt": text(), "/": _notes()}),
        Site("http://secure.test", {"*": Route(301, location="https://secure.test/")}),
    ]


def _broken() -> Site:
    """A path for each way to misbehave, by its name: ``/hang``."""
    body = page("page.html")
    ways = {f"/{way}": Route(body=body, behaviour=way) for way in get_args(Behaviour)}
    return Site("broken.test", {"/robots.txt": text(), **ways})
