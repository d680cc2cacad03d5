"""The default scenario: one site for each thing a polite bot has to get right."""

from __future__ import annotations

import json
import time
from email.utils import formatdate
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

from .log import host_key, paths, user_agents
from .site import Request, Route, Site

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .site import Answerer

_TEXT = "text/plain; charset=utf-8"
_JSON = "application/json"
_MARKDOWN = "text/markdown; charset=utf-8"
_WELL_KNOWN = "/.well-known/walsh-research"
_CANARIES = "/research/bots/dogfood"

_CANARY_ROBOTS = f"""\
User-agent: *
Disallow: {_CANARIES}-walsh-only

User-agent: Walsh-Research
Disallow: {_CANARIES}-disallow
Allow: {_CANARIES}-allow
Allow: {_CANARIES}-walsh-only
Crawl-delay: 2
"""

_REFERENCE_ROBOTS = """\
User-agent: *
Disallow: /allowed

User-agent: Walsh-Research
Disallow: /denied
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
        _reference(),
        Site("canary.test", {"/robots.txt": _robots(_CANARY_ROBOTS), **_canaries()}),
        *_robots_sites(),
        *_blocked_sites(),
        *_source_sites(),
        _flaky(),
        _redirects(),
        *_scheme_sites(),
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


def blocklist(
    origin: str = "http://operator.test", *domains: str, inline: bool = True
) -> dict[str, Any]:
    """A blocklist document (walsh-research-blocklist/v1), listing ``blocked.test`` by default."""
    document: dict[str, Any] = {
        "contract": "walsh-research-blocklist/v1",
        "updated": "2026-05-23T00:00:00Z",
        "operator": "Sandbox Operator",
        "contact": "opt-out@operator.test",
        "policy": f"{origin}/bot/",
        "refresh": "PT6H",
        "blocked": [
            {"domain": domain, "added": "2026-05-23", "reason": "asked by the site's owner"}
            for domain in domains or ("blocked.test",)
        ],
    }
    return {**document, "schema": json.loads(page("blocklist.schema.json"))} if inline else document


def page(name: str) -> bytes:
    """A body that comes with this package. Raises: FileNotFoundError."""
    return (files(__package__) / "pages" / name).read_bytes()


def _robots(text: str = "User-agent: *\nAllow: /\n") -> Route:
    return Route(body=text, content_type=_TEXT)


def _html(name: str = "page.html") -> Route:
    return Route(body=page(name))


def _rss(**fields: Any) -> Route:
    return Route(body=page("rss.xml"), content_type="application/rss+xml; charset=utf-8", **fields)


def _negotiated() -> Route:
    vary = {"Vary": "Accept"}
    markdown = Route(body=page("notes.md"), content_type=_MARKDOWN, headers=vary, etag='"notes-md"')
    html = page("page.html")
    return Route(body=html, headers=vary, etag='"notes-html"', accept={"text/markdown": markdown})


def _operator_documents(origin: str) -> dict[str, Route | Answerer]:
    return {
        f"{_WELL_KNOWN}/blocklist.json": Route(
            body=json.dumps(blocklist(origin), indent=2), content_type=_JSON, etag='"list-1"'
        ),
        f"{_WELL_KNOWN}/blocklist.schema.json": Route(
            body=page("blocklist.schema.json"), content_type="application/schema+json"
        ),
        "/bot/": _html("policy.html"),
    }


def _canaries() -> dict[str, Route | Answerer]:
    bodies = {
        "": _html("canary.html"),
        ".html": _html("canary.html"),
        ".md": Route(body=page("notes.md"), content_type=_MARKDOWN),
    }
    return {
        f"{_CANARIES}-{name}{suffix}": route
        for name in ("allow", "disallow", "walsh-only")
        for suffix, route in bodies.items()
    }


def _fixtures(origin: str) -> Route:
    document = {
        "contract": "walsh-research-test-fixtures/v1",
        "updated": "2026-05-23T00:00:00Z",
        "fixtures": {
            "robots_allowed_sentinel": f"{origin}{_CANARIES}-allow",
            "robots_disallowed": f"{origin}{_CANARIES}-disallow",
            "walsh_only_allowed": f"{origin}{_CANARIES}-walsh-only",
            "external_positive": "http://path.test/public",
            "operator_blocked_host": "blocked.test",
            "flaky_429_endpoint": "http://flaky.test/feed.xml",
        },
    }
    return Route(body=json.dumps(document, indent=2), content_type=_JSON)


def _operator() -> Site:
    origin = "http://operator.test"
    routes: dict[str, Route | Answerer] = {
        "/robots.txt": _robots(_CANARY_ROBOTS),
        f"{_WELL_KNOWN}/test-fixtures.json": _fixtures(origin),
    }
    return Site("operator.test", {**routes, **_operator_documents(origin), **_canaries()})


def _reference() -> Site:
    routes: dict[str, Route | Answerer] = {
        "/robots.txt": _robots(_REFERENCE_ROBOTS),
        "/allowed": Route(body=page("page.html"), etag='"allowed-1"'),
        "/denied": _html(),
        "/flaky": _flaky_then(_html()),
        "/__state__": _state,
    }
    return Site("reference.test", {**routes, **_operator_documents("http://reference.test")})


def _state(request: Request) -> Route:
    """The paths that were requested from this host so far, and the User-Agents."""
    host = host_key(request.scheme, request.host)
    asked = [each for each in request.log if host_key(each.scheme, each.host) == host]
    state = {"paths": paths(asked), "user_agents": sorted(user_agents(asked))}
    return Route(body=json.dumps(state), content_type=_JSON)


def _robots_sites() -> list[Site]:
    """Rules by path and by group, delays, and robots.txt files that cannot be fetched."""
    files_of: Mapping[str, Route] = {
        "path.test": _robots("User-agent: *\nDisallow: /private/\nAllow: /private/open\n"),
        "named-allow.test": _robots(
            "User-agent: *\nDisallow: /\n\nUser-agent: walsh-research\nDisallow: /private/\n"
        ),
        "named-deny.test": _robots(
            "User-agent: *\nAllow: /\n\nUser-agent: Walsh-Research\nDisallow: /\n"
        ),
        "delay.test": _robots("User-agent: *\nCrawl-delay: 2\nDisallow: /private/\n"),
        "long-delay.test": _robots("User-agent: *\nCrawl-delay: 3600\n"),
        "robots-404.test": Route(404, "no such file\n", _TEXT),
        "robots-429.test": Route(429, "slow down\n", _TEXT, headers={"Retry-After": "1"}),
        "robots-503.test": Route(503, "later\n", _TEXT),
        "robots-blocked.test": Route(302, location="http://blocked.test/robots.txt"),
    }
    return [Site(host, {"/robots.txt": r, "*": _negotiated()}) for host, r in files_of.items()]


def _blocked_sites() -> list[Site]:
    """Hosts on the blocklist. They would answer every request, and must not get any."""
    routes = {"/robots.txt": _robots(), "*": _negotiated()}
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
        "markdown.test": {"/notes": _negotiated()},
        "llms.test": {"/llms.txt": Route(body=page("llms.txt"), content_type=_TEXT)},
        "html.test": {path: _html() for path in ("/next", "/app.js", "/photo.png", "/style.css")},
    }
    llms_robots = _robots("User-agent: *\nDisallow: /drafts/\n")
    robots = {"llms.test": llms_robots}
    return [
        Site(host, {"/": _html(), "/robots.txt": robots.get(host, _robots()), **routes})
        for host, routes in feeds.items()
    ]


def _flaky_then(last: Route) -> Route:
    refused = Route(429, "slow down\n", _TEXT, headers={"Retry-After": "1"})
    return Route(sequence=(refused, refused, last))


def _flaky() -> Site:
    return Site(
        "flaky.test",
        {
            "/robots.txt": _robots(),
            "/": _html(),
            "/feed.xml": _flaky_then(_rss()),
            "/unavailable": Route(503, "later\n", _TEXT),
            "/tomorrow": Route(503, "later\n", _TEXT, headers={"Retry-After": "86400"}),
            "/date": _in_two_seconds,
        },
    )


def _in_two_seconds(request: Request) -> Route:
    asked = paths(request.log, host_key(request.scheme, request.host)).count(request.path)
    if asked > 1:
        return _rss()
    due = formatdate(time.time() + 2, usegmt=True)
    return Route(429, "slow down\n", _TEXT, headers={"Retry-After": due})


def _redirects() -> Site:
    locations = {
        "/own": "/target",
        "/other": "http://path.test/public",
        "/blocked": "http://blocked.test/notes",
        "/denied": "/private/notes",
        "/other-denied": "http://path.test/private/notes",
        "/loop": "/loop-back",
        "/loop-back": "/loop",
        "/file": "file:///etc/hostname",
        "/https": "https://redirect.test/target",
        **{f"/hops/{left}": f"/hops/{left - 1}" for left in range(1, 10)},
        "/hops/0": "/target",
    }
    routes: dict[str, Route | Answerer] = {
        path: Route(302, location=location) for path, location in locations.items()
    }
    routes["/robots.txt"] = _robots("User-agent: *\nDisallow: /private/\n")
    routes["/target"] = routes["/private/notes"] = _negotiated()
    return Site("redirect.test", routes)


def _scheme_sites() -> list[Site]:
    """``secure.test`` sends http to https; ``plain.test`` has no https at all."""
    routes = {"/robots.txt": _robots(), "/": _negotiated()}
    return [
        Site("https://secure.test", routes),
        Site("http://secure.test", {"*": Route(301, location="https://secure.test/")}),
        Site("plain.test", routes, tls=False),
    ]


def _broken() -> Site:
    body = page("page.html")
    routes: dict[str, Route | Answerer] = {
        "/robots.txt": _robots(),
        "/close": Route(behaviour="close"),
        "/reset": Route(behaviour="reset"),
        "/hang": Route(behaviour="hang"),
        "/truncate": Route(body=body, behaviour="truncate"),
        "/endless": Route(body=body, behaviour="endless"),
        "/drip": Route(body=body[:60], behaviour="drip", pause=0.05),
        "/bomb": Route(behaviour="bomb"),
        "/slow": Route(body=body, delay=2.0),
    }
    return Site("broken.test", routes)
