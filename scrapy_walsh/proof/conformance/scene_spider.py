"""Two spiders, in one run each: one that misbehaves, and the main one with a source of each form.

R1, R2, R3, R5 and R6: the first sets User-Agents, requests undeclared URLs, is redirected. R9, and
R6's metadata: the items of the second, from a feed, a sitemap, markdown and so on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.policy.identity import WALSH_RESEARCH
from scrapy_walsh.proof.conformance.check import Scene
from scrapy_walsh.proof.conformance.evidence import (
    Judge,
    every,
    exact_user_agent,
    full,
    never,
    none,
    nothing_of,
    refused,
    seen,
    urls_of,
    was_asked,
    where,
)
from scrapy_walsh.proof.conformance.parts import misled
from scrapy_walsh.proof.exchanges import ROBOTS
from scrapy_walsh.proof.findings import Finding, held_if
from scrapy_walsh.proof.sandbox import Route, Site, default_sites, page
from scrapy_walsh.proof.sandbox.routes import MARKDOWN, TEXT, down, refreshing, site

if TYPE_CHECKING:
    from scrapy_walsh.proof.conformance.crawl import Stage
    from scrapy_walsh.proof.conformance.evidence import Evidence

_START: Final = "start.test/page"
_HOPS: Final = {
    "hop-blocked.test": "http://blocked.test/hop",
    "hop-denied.test": "http://start.test/denied/hop",
    "hop-allowed.test": "http://hop-allowed.test/moved",
}
_REFRESHING: Final = "refresh.test/page"
_UNDECLARED: Final = "start.test/undeclared elsewhere.test/undeclared"
_ALSO: Final = "start.test/also"
_POSTS: Final = ("post.test/error", "post.test/broken")
#: What a spider might set to be taken for somebody else, or to change how the message ends.
_HEADERS: Final = {
    "Forwarded": "for=192.0.2.1",
    "X-Forwarded-For": "192.0.2.1",
    "X-Forwarded-Host": "other.test",
    "X-Real-Ip": "192.0.2.1",
    "X-Original-User-Agent": "Mozilla/5.0",
    "Host": "other.test",
    "Transfer-Encoding": "chunked",
}
_FOREIGN: Final = (
    "Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0",
    "ExampleCrawler/2.1",
)


def _sites(token: str) -> list[Site]:
    return [
        site("start.test", f"User-agent: {token}\nDisallow: /denied\n"),
        site("tomorrow.test", page=down("86400")),
        *(site(host, page=Route(302, location=target)) for host, target in _HOPS.items()),
        site("robots-moved.test", Route(302, location="http://blocked.test/robots.txt")),
        site("refresh.test", page=refreshing("/by-meta", "/by-header")),
        site("post.test", error=Route(500, "no\n", TEXT), broken=Route(behaviour="close")),
        *map(site, ("blocked.test", "elsewhere.test")),
    ]


def _play(here: Stage) -> None:
    here.probe(
        f"{_START} start.test/denied blocked.test/notes tomorrow.test/page robots-moved.test/page"
        f" {_REFRESHING} hop-blocked.test/page hop-denied.test/page hop-allowed.test/page",
        undeclared=urls_of(_UNDECLARED),
        also=urls_of(_ALSO),
        posts=urls_of(" ".join(_POSTS)),
        headers=_HEADERS,
        user_agents=_FOREIGN,
    )


def _own_framing(evidence: Evidence) -> Finding:
    """Neither the Host nor the Transfer-Encoding that the spider sets is sent (R1)."""
    wrong = [
        f"its {name} was sent to {each.host}"
        for each in evidence.log
        for name in ("Host", "Transfer-Encoding")
        if _HEADERS[name] in each.values(name)
    ]
    return none(wrong)


def _posted_once(evidence: Evidence) -> Finding:
    """A POST is sent once: unless 429 or 503 says that it did nothing, it may have had effect."""
    calls = [len(evidence.first.get(place)) for place in _POSTS]
    seen(all(calls))
    return held_if(max(calls) == 1, f"calls={max(calls)}")


def _hop_refused(host: str) -> Judge:
    return never(_HOPS[host], f"{host}/page")


def _answer_itself(evidence: Evidence) -> Finding:
    told = evidence.first.result(_REFRESHING)
    itself = (told.get("status"), told.get("final")) == (200, full(_REFRESHING))
    return held_if(itself, "" if itself else str(told.get("why", told.get("final"))))


def _not_a_success(evidence: Evidence) -> Finding:
    """A 503 with a Retry-After beyond this run: sent once, no response for the spider (R5.8)."""
    asked = seen(evidence.first.get("tomorrow.test/page"))
    told = evidence.first.result("tomorrow.test/page")
    return held_if(len(asked) == 1 and "error" in told, f"calls={len(asked)}")


SPIDER: Final = Scene(
    name="spider",
    sites=_sites,
    play=_play,
    table={
        "R1 MUST NOT UA set by a spider does not reach the wire": where(
            was_asked(_START), exact_user_agent()
        ),
        "R1 MUST NOT headers that mislead do not reach the wire": where(
            was_asked(_START), every(misled, _own_framing)
        ),
        "R2 robots.txt blocks /denied, named as the reason": refused(
            "start.test/denied", "R2", "disallowed_explicit"
        ),
        "R2 redirect to a disallowed path not followed": _hop_refused("hop-denied.test"),
        "R3 operator blocklist blocks the apex, named as the reason": refused(
            "blocked.test/notes", "R3", "blocked_operator"
        ),
        "R3 redirect to a listed host not followed": _hop_refused("hop-blocked.test"),
        "R3 robots.txt redirected to a listed host not followed": where(
            was_asked(f"robots-moved.test{ROBOTS}"), nothing_of("blocked.test", _START)
        ),
        "R5 MUST NOT 503 is never a success": _not_a_success,
        "R5 MUST NOT a POST that failed is not sent again": _posted_once,
        "R6 MUST NOT a page that refreshes is the answer itself": every(
            _answer_itself, never("refresh.test/by-meta refresh.test/by-header")
        ),
        "R6 MUST NOT undeclared requests of a callback refused, by name": refused(
            _UNDECLARED, "R6", "out_of_scope"
        ),
        "R6 MUST NOT a callback that says it declares a URL declares nothing": refused(
            _ALSO, "R6", "out_of_scope"
        ),
    },
)


# The main spider, and a source of each form.

_HOSTS: Final = ("rss.test", "markdown.test", "llms.test", "html.test")
_SOURCES: Final = """\
source = [
  { name = "feed", url = "http://rss.test/", feed = "http://rss.test/feed.xml" },
  { name = "sitemap", sitemap = "http://sitemap.test/sitemap.xml" },
  { name = "index", sitemap = "http://quiet.test/index.xml" },
  { name = "children", sitemap = "http://index.test/index.xml", children = true },
  { name = "use", url = "http://use.test/page" },
  { name = "refused use", url = "http://use.test/refused/page" },
  { name = "markdown", url = "http://markdown.test/notes" },
  { name = "llms", url = "http://llms.test/" },
  { name = "html", url = "http://html.test/" },
  { name = "mistyped", url = "http://mistyped.test/page" },
]
"""
_WANTED: Final = ", children = true"
_MEMBERS: Final = frozenset(
    {"source", "title", "url", "published", "via", "canonical_url", "fetched_at", "usage"}
)


def _sitemap(*urls: str, root: str = "urlset", entry: str = "url") -> Route:
    entries = "".join(f"<{entry}><loc>{url}</loc></{entry}>" for url in urls)
    return Route(body=f"<{root}>{entries}</{root}>", content_type="application/xml")


def _index(*urls: str) -> Route:
    return _sitemap(*urls, root="sitemapindex", entry="sitemap")


def _sitemaps() -> list[Site]:
    """A sitemap; an index whose source says nothing of children; and one that wants them."""
    first, deep = "http://index.test/first.xml", "http://index.test/deep.xml"
    of_index = {
        "/index.xml": _index(first, "http://elsewhere.test/second.xml", deep),
        "/first.xml": _sitemap("http://index.test/a", "http://index.test/b"),
        "/deep.xml": _index("http://index.test/deeper.xml"),
    }
    return [
        Site("sitemap.test", {"/sitemap.xml": _sitemap("http://sitemap.test/page")}),
        Site("quiet.test", {"/index.xml": _index("http://quiet.test/first.xml")}),
        Site("index.test", of_index),
        Site("elsewhere.test", {"/second.xml": _sitemap("http://elsewhere.test/page")}),
    ]


def _uses(token: str) -> Site:
    """Pages whose robots.txt says what may be done with them."""
    lines = ("Content-Usage: train-ai=y", "Content-Usage: /refused/ train-ai=n, search=y")
    robots = "\n".join((f"User-agent: {token}", "Allow: /", *lines, ""))
    body = "[a page](http://use.test/a)"
    return site("use.test", robots, page=Route(body=body, content_type=MARKDOWN))


def _item_sites(token: str) -> list[Site]:
    mistyped = Route(body=page("notes.md"))  # markdown under text/html
    sites = [each for each in default_sites() if each.host in _HOSTS]
    return [*sites, *_sitemaps(), _uses(token), site("mistyped.test", page=mistyped)]


def _play_items(here: Stage) -> None:
    # walsh-research refuses a source that wants what an index lists: there none does.
    research = here.bot.identity.token.lower() == WALSH_RESEARCH.token.lower()
    here.metadata("sources.toml", _SOURCES.replace(_WANTED, "") if research else _SOURCES)


def _items(evidence: Evidence, source: str) -> list[Any]:
    return [item for item in evidence.first.items if item["source"] == source]


def _by(source: str, host: str, via: str, *paths: str) -> Judge:
    """Only *paths* were requested from *host*, and the items came *via* the last of them."""

    def judge(evidence: Evidence) -> Finding:
        asked = seen([each.path for each in evidence.first.targets(host)])
        found = _items(evidence, source)
        kept = asked == list(paths) and bool(found) and all(item["via"] == via for item in found)
        return held_if(kept, f"{', '.join(asked)}: items={len(found)}")

    return judge


def _use_said(evidence: Evidence) -> Finding:
    """The items have what was said, and by which line."""
    found = seen([item["usage"] or {} for item in _items(evidence, "use")], "no items")
    said = {(each["value"], each.get("line")) for use in found for each in use.get("said", ())}
    return held_if(said == {("train-ai=y", 3)}, f"said={sorted(said, key=str)}")


def _left_out(source: str, host: str, path: str) -> Judge:
    def judge(evidence: Evidence) -> Finding:
        occasion = path in evidence.first.paths(host) and evidence.first.items
        seen(occasion, "its page was not asked, or no source gave any item")
        items = len(_items(evidence, source))
        return held_if(items == 0, f"items={items}")

    return judge


def _links(evidence: Evidence) -> Finding:
    items = seen(_items(evidence, "markdown"), "no items")
    found = [(item["title"], item["url"]) for item in items]
    urls = [url for _, url in found]
    kept = found[0] == ("Tide tables for November", "http://markdown.test/tides/2026-11")
    kept = kept and len(set(urls)) == len(urls)
    return held_if(kept and all(url.startswith("http") for url in urls), f"links={len(urls)}")


def _metadata_only(evidence: Evidence) -> Finding:
    items = seen(evidence.first.items, "no items")
    extra = {name for item in items for name in item} - _MEMBERS
    return held_if(not extra, ", ".join(sorted(extra)) or f"items={len(items)}")


ITEMS: Final = Scene(
    name="items",
    sites=_item_sites,
    play=_play_items,
    settings={"WALSH_USAGE": {"train-ai": "refuse"}},
    table={
        "R6 MUST NOT metadata, no content, in the items": _metadata_only,
        "R9 SHOULD a feed is preferred": _by("feed", "rss.test", "feed", "/feed.xml"),
        "R2 SHOULD a use that robots.txt disallows, if refused": never(
            "use.test/refused/page", "use.test/page"
        ),
        "R2 SHOULD what robots.txt says about use, by line": _use_said,
        "R6 MUST NOT a sitemap index is followed only if declared so": never(
            "quiet.test/first.xml", "quiet.test/index.xml"
        ),
        "R6 MUST NOT of an index that is followed: its host, one level": every(
            never("index.test/deeper.xml", "index.test/index.xml"),
            nothing_of("elsewhere.test", "index.test/index.xml"),
        ),
        "R9 SHOULD a declared sitemap is read, and its links are not requested": _by(
            "sitemap", "sitemap.test", "sitemap", "/sitemap.xml"
        ),
        "R9 SHOULD then markdown by negotiation": _by(
            "markdown", "markdown.test", "markdown", "/notes"
        ),
        "R9 SHOULD then llms.txt": _by("llms", "llms.test", "llms.txt", "/", "/llms.txt"),
        "R9 SHOULD links in order, each once, text as title": _links,
        "R9 MUST NOT HTML is left out, not scraped": _left_out("html", "html.test", "/"),
        "R9 SHOULD markdown only where the Content-Type says so": _left_out(
            "mistyped", "mistyped.test", "/page"
        ),
    },
)
