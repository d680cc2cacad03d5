"""The parts of the lab for R6 to R9 and R11: what is requested, in which form, and how often."""

from __future__ import annotations

from typing import Final

from scrapy_walsh.findings import Finding, broken, held, held_if, unseen
from scrapy_walsh.proof.conformance.check import MUST_NOT, SHOULD, Row
from scrapy_walsh.proof.conformance.evidence import (
    OPERATOR_HOST,
    Evidence,
    asked_for,
    never,
    split,
    target_of,
)
from scrapy_walsh.proof.conformance.part import Part, left_alone, refreshing, site
from scrapy_walsh.proof.exchanges import ROBOTS
from scrapy_walsh.proof.sandbox import Route, Site, host_key
from scrapy_walsh.proof.sandbox.routes import HTML, LIST, TEXT, negotiated

# -- R6 ---------------------------------------------------------------------------------------

_PAGE: Final = """\
<!doctype html><html><head><title>Links</title>
<meta http-equiv="refresh" content="1; url=/refresh">
<link rel="alternate" type="application/rss+xml" href="/feed.xml">
<link rel="stylesheet" href="/style.css"><link rel="preload" as="font" href="/font.woff2">
<script src="/script.js"></script></head>
<body><img src="/image.png" alt=""><a href="/next">next</a> <a href="deeper/page">deeper</a>
<a href="http://elsewhere.test/page">elsewhere</a></body></html>
"""
_MARKDOWN: Final = (
    "# Links\n\n[next](http://links.test/next) [elsewhere](http://elsewhere.test/page)\n\n"
    "![](http://links.test/image.png)\n"
)
_START: Final = "http://links.test/page"
_REFRESHING: Final = "http://links.test/refreshing"
_REFRESHED: Final = ("http://links.test/by-meta", "http://links.test/by-header")
_LINKED: Final = (
    "http://links.test/next",
    "http://links.test/deeper/page",
    "http://links.test/feed.xml",
    "http://links.test/refresh",
    "http://elsewhere.test/page",
)
_PARTS_OF_A_PAGE: Final = tuple(
    f"http://links.test/{name}" for name in ("style.css", "font.woff2", "script.js", "image.png")
)


def _scope_sites(_token: str) -> list[Site]:
    markdown = Route(body=_MARKDOWN, content_type="text/markdown; charset=utf-8")
    linked = Route(body=_PAGE, accept={"text/markdown": markdown})
    moving = refreshing("/by-meta", "/by-header")
    return [site("links.test", page=linked, refreshing=moving), site("elsewhere.test")]


def _nothing_undeclared(evidence: Evidence) -> Finding:
    """Only targets, and on their hosts robots.txt and llms.txt; and the operator's documents."""
    if not evidence.first.declared or not evidence.log:
        return unseen("nothing was asked")
    for run in evidence.runs:
        declared = {split(url) for url in run.declared}
        of_hosts = {(host, path) for host, _ in declared for path in (ROBOTS, "/llms.txt")}
        for each in run.log:
            place = host_key(each.scheme, each.host), target_of(each)
            if place[0] != OPERATOR_HOST and place not in declared | of_hosts:
                return broken(f"asked {place[0]}{place[1]}")
    return held(f"requests={len(evidence.log)}")


SCOPE: Final = Part(
    "scope",
    ("R6",),
    _scope_sites,
    (_START, _REFRESHING),
    (
        Row("R6", "no link followed", lambda e: never(e.first, _LINKED, _START), MUST_NOT),
        Row(
            "R6",
            "no image, script, style sheet or font asked",
            lambda e: never(e.first, _PARTS_OF_A_PAGE, _START),
            MUST_NOT,
        ),
        Row(
            "R6",
            "neither meta refresh nor a Refresh header followed",
            lambda e: never(e.first, _REFRESHED, _REFRESHING),
            MUST_NOT,
        ),
        Row("R6", "no unexpected URL fetched (no recursion)", _nothing_undeclared, MUST_NOT),
    ),
)

# -- R7, R8, R11: the second run ----------------------------------------------------------------

_SAME: Final = ("http://same.test/page", "http://same.test/page#part", "http://SAME.test:80/page/")
_SOURCES: Final = ("http://etag.test/page", "http://modified.test/page")
_NEW: Final = "http://etag.test/new"


def _again_sites(_token: str) -> list[Site]:
    return [
        site("same.test"),
        site("etag.test", page=negotiated(etag='"page-1"')),
        site("modified.test", page=negotiated(last_modified="Tue, 03 Nov 2026 08:30:00 GMT")),
    ]


def _one_canonical(evidence: Evidence) -> Finding:
    asked = [each.path for each in evidence.first.asked("same.test") if each.path != ROBOTS]
    return held_if(len(asked) == 1, f"requests={len(asked)}") if asked else unseen("not asked")


def _validators(evidence: Evidence) -> Finding:
    """Where the second run requests a page again, the request is conditional."""
    if len(evidence.runs) < 2:
        return unseen("there was one run only")
    given = {"etag.test": "If-None-Match", "modified.test": "If-Modified-Since"}
    asked = [
        (host, header, each)
        for host, header in given.items()
        for each in evidence.runs[1].get(host, "/page")
    ]
    bare = [host for host, header, each in asked if not each.values(header)]
    if not asked:
        return unseen("the second run asked neither page")
    return held_if(not bare, f"{bare[0]} was asked without" if bare else "")


def _not_again(evidence: Evidence) -> Finding:
    """A source that was answered is not requested again by a run within the hour (R8.2)."""
    if len(evidence.runs) < 2 or not all(asked_for(evidence.first, url) for url in _SOURCES):
        return unseen("there was no second run of a source that was answered")
    if not asked_for(evidence.runs[1], _NEW):
        return unseen("the second run did not ask its new target either")
    again = [url for url in _SOURCES if asked_for(evidence.runs[1], url)]
    return held_if(not again, f"{again[0]} was asked again" if again else "")


def _documents_kept(evidence: Evidence) -> Finding:
    """A new target on a known host needs neither robots.txt nor the blocklist again (R11.1)."""
    if len(evidence.runs) < 2 or not asked_for(evidence.runs[1], _NEW):
        return unseen("the second run did not ask its new target")
    first, second = evidence.runs[0], evidence.runs[1]
    documents = [("etag.test", ROBOTS), (OPERATOR_HOST, LIST)]
    had = [each for each in documents if first.get(*each)]
    again = [f"{host}{path}" for host, path in had if second.get(host, path)]
    if again:
        return broken(f"{again[0]} was asked again")
    return held() if had == documents else unseen("the first run did not ask both")


AGAIN: Final = Part(
    "again",
    ("R7", "R8", "R11"),
    _again_sites,
    (*_SAME, *_SOURCES),
    (
        Row("R7", "second run replays ETag and Last-Modified", _validators, SHOULD, foreign=True),
        Row("R7b", "one request for one canonical URL", _one_canonical, SHOULD),
        Row("R8", "no source asked again within the hour", _not_again, SHOULD),
        Row("R11", "second run asks neither robots.txt nor blocklist", _documents_kept, SHOULD),
    ),
    later=(*_SOURCES, _NEW),
)

# -- R9 -----------------------------------------------------------------------------------------

_LLMS: Final = """\
# Archive

- [Logs](http://llms.test/logs)
- [Drafts](http://llms.test/drafts/index): disallowed
- [Yacht club](http://blocked.test/llms): opted out
"""
_LLMS_PAGE: Final = "http://llms.test/page"


def _format_sites(_token: str) -> list[Site]:
    robots = "User-agent: *\nDisallow: /drafts/\n"
    llms = Route(body=_LLMS, content_type=TEXT)
    html = Route(body=HTML)
    return [
        Site("llms.test", {**site("llms.test", robots).routes, "/page": html, "/llms.txt": llms}),
        site("markdown.test"),
    ]


def _markdown_first(evidence: Evidence) -> Finding:
    asked = [
        each
        for host in ("markdown.test", "llms.test")
        for each in evidence.first.get(host, "/page")
    ]
    bare = [each for each in asked if "text/markdown" not in ",".join(each.values("Accept"))]
    return held_if(not bare, f"{bare[0].host}" if bare else "") if asked else unseen("not asked")


def _then_llms(evidence: Evidence) -> Finding:
    paths = [path for path in evidence.first.paths("llms.test") if path != ROBOTS]
    if "/page" not in paths:
        return unseen("its page was not asked")
    return held_if(paths[:2] == ["/page", "/llms.txt"], ", ".join(paths[:2]))


FORMATS: Final = Part(
    "formats",
    ("R9",),
    _format_sites,
    ("http://markdown.test/page", _LLMS_PAGE),
    (
        Row("R9", "a page is asked for as markdown first", _markdown_first, SHOULD),
        Row("R9", "llms.txt asked where a page has no markdown", _then_llms, SHOULD),
        left_alone(
            "R9",
            "llms.txt is advisory: R2 and R3 still decide",
            "llms.test/drafts/index blocked.test/llms",
            "llms.test/llms.txt",
        ),
    ),
)
