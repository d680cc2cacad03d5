"""The default scenario: one site for each thing a polite bot has to get right."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, get_args

from scrapy_walsh.sources.sources import Source

from .routes import (
    FIXTURES,
    JSON,
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

_CANARIES: Final = "/research/bots/dogfood"

_CANARY_ROBOTS: Final = f"""\
User-agent: *
Disallow: {_CANARIES}-walsh-only

User-agent: {{token}}
Disallow: {_CANARIES}-disallow
Allow: {_CANARIES}-allow
Allow: {_CANARIES}-walsh-only
Crawl-delay: 2
"""


def default_sites() -> list[Site]:
    """The sites of the demo and of the conformance run, made afresh."""
    return [
        Site(OPERATOR_HOST, _operator()),
        *(Site(host, {"/robots.txt": rules, "*": _notes()}) for host, rules in _ROBOTS.items()),
        *(
            Site(host, {"/robots.txt": text(), "/": _html(), **routes})
            for host, routes in _routes().items()
        ),
        Site(
            "http://secure.test",
            {"*": Route(301, location="https://secure.test/")},
        ),
    ]


def demo_sources() -> list[Source]:
    """The targets of the demo, each line for one outcome."""
    return [
        Source("RSS 2.0 feed", "http://rss.test/", "http://rss.test/feed.xml"),
        Source("Atom feed", "http://atom.test/", "http://atom.test/feed.atom"),
        Source(
            "JSON Feed",
            "http://jsonfeed.test/",
            "http://jsonfeed.test/feed.json",
        ),
        Source("Markdown by negotiation", "http://markdown.test/notes"),
        Source("llms.txt", "http://llms.test/"),
        Source(
            "Unchanged on a second run",
            "http://unchanged.test/",
            "http://unchanged.test/feed.xml",
        ),
        Source("Refused by robots.txt", "http://path.test/private/notes"),
        Source(
            "Refused by the operator's blocklist",
            "http://www.blocked.test/notes",
        ),
        Source(
            "429 twice, then a feed",
            "http://flaky.test/",
            "http://flaky.test/feed.xml",
        ),
        Source("Redirected", "http://redirect.test/own"),
        Source("HTML only: left out", "http://html.test/"),
    ]


def fixtures() -> dict[str, str]:
    """The URLs that the operator's document of fixtures names."""
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


def _operator() -> dict[str, Route | Answerer]:
    document = {
        "contract": "walsh-research-test-fixtures/v1",
        "updated": "2026-05-23T00:00:00Z",
        "fixtures": fixtures(),
    }
    return {
        "/robots.txt": canary_robots(),
        FIXTURES: Route(body=json.dumps(document, indent=2), content_type=JSON),
        **operator_documents(ORIGIN),
        **{
            f"{_CANARIES}-{name}{suffix}": _html("canary.html")
            for name in ("allow", "disallow", "walsh-only")
            for suffix in ("", ".html", ".md")
        },
    }


def _notes() -> Route:
    return negotiated(page("page.html"), {"etag": '"notes-md"'}, etag='"notes-html"')


def _html(name: str = "page.html") -> Route:
    return Route(body=page(name))


def _feed(name: str, content_type: str = "application/rss+xml", **fields: Any) -> Route:
    return Route(body=page(name), content_type=content_type, **fields)


#: Rules by path and by group, delays, and robots.txt files that cannot be fetched; and hosts on the
#: blocklist, which would answer every request, and must not get any.
_ROBOTS: Final[Mapping[str, Route]] = {
    "path.test": text("User-agent: *\nDisallow: /private/\nAllow: /private/open\n"),
    "named-allow.test": text(
        "User-agent: *\nDisallow: /\n\nUser-agent: walsh-research\nDisallow: /private/\n"
    ),
    "named-deny.test": text("User-agent: *\nAllow: /\n\nUser-agent: Walsh-Research\nDisallow: /\n"),
    "delay.test": text("User-agent: *\nCrawl-delay: 2\nDisallow: /private/\n"),
    "long-delay.test": text("User-agent: *\nCrawl-delay: 3600\n"),
    "robots-404.test": missing(),
    "robots-429.test": busy("1"),
    "robots-503.test": down(),
    "robots-blocked.test": Route(302, location="http://blocked.test/robots.txt"),
    "blocked.test": text(),
    "www.blocked.test": text(),
}


def _routes() -> dict[str, dict[str, Route | Answerer]]:
    """The other hosts: sources, retries, redirects, https, and a path for each way to misbehave."""
    # Links of its own: each link is an item once, of the source that is read first.
    links = page("notes.md").replace(b"markdown.test", b"redirect.test")
    target = negotiated(page("page.html"), {"etag": '"notes-md"', "body": links})
    locations = {
        "/own": "/target",
        "/other": "http://path.test/public",
        "/blocked": "http://blocked.test/notes",
        "/denied": "/private/notes",
        **{f"/hops/{hops}": f"/hops/{hops - 1}" for hops in range(1, 10)},
        "/hops/0": "/target",
    }
    return {
        "rss.test": {"/feed.xml": _feed("rss.xml")},
        "atom.test": {"/feed.atom": _feed("atom.xml", "application/atom+xml")},
        "jsonfeed.test": {"/feed.json": _feed("feed.json", "application/feed+json")},
        "unchanged.test": {
            "/feed.xml": _feed(
                "rss.xml",
                etag='"tides-7"',
                last_modified="Tue, 03 Nov 2026 08:30:00 GMT",
            )
        },
        "markdown.test": {"/notes": _notes()},
        "llms.test": {"/llms.txt": Route(body=page("llms.txt"), content_type=TEXT)},
        "html.test": {},
        "flaky.test": {
            "/feed.xml": Route(sequence=(busy("1"), busy("1"), _feed("rss.xml"))),
            "/tomorrow": down("86400"),
        },
        "redirect.test": {
            "/robots.txt": text("User-agent: *\nDisallow: /private/\n"),
            **{path: Route(302, location=location) for path, location in locations.items()},
            **dict.fromkeys(("/target", "/private/notes"), target),
        },
        "https://secure.test": {"/": _notes()},
        "broken.test": {
            f"/{way}": Route(body=page("page.html"), behaviour=way) for way in get_args(Behaviour)
        },
    }
