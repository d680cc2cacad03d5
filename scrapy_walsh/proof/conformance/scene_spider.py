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
from scrapy_walsh.proof.exchanges import ROBOTS
from scrapy_walsh.proof.findings import Finding, held_if
from scrapy_walsh.proof.sandbox import Route, Site, default_sites
from scrapy_walsh.proof.sandbox.routes import TEXT, refreshing, site

if TYPE_CHECKING:
    from scrapy_walsh.proof.conformance.crawl import Stage
    from scrapy_walsh.proof.conformance.evidence import Evidence

_START: Final = "start.test/page"
_HOPS: Final = {
    "hop-blocked.test": "http://blocked.test/hop",
    "hop-denied.test": "http://start.test/denied/hop",
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
    "User-Agent": "Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0",
}


def _sites(token: str) -> list[Site]:
    return [
        site("start.test", f"User-agent: {token}\nDisallow: /denied\n"),
        *(site(host, page=Route(302, location=target)) for host, target in _HOPS.items()),
        site("robots-moved.test", Route(302, location="http://blocked.test/robots.txt")),
        site("refresh.test", page=refreshing("/by-meta", "/by-header")),
        site("post.test", error=Route(500, "no\n", TEXT), broken=Route(behaviour="close")),
        *map(site, ("blocked.test", "elsewhere.test")),
    ]


def _play(here: Stage) -> None:
    here.probe(
        f"{_START} start.test/denied robots-moved.test/page"
        f" {_REFRESHING} hop-blocked.test/page hop-denied.test/page",
        undeclared=urls_of(_UNDECLARED),
        also=urls_of(_ALSO),
        posts=urls_of(" ".join(_POSTS)),
        headers=_HEADERS,
    )


def _none_of_its_headers(evidence: Evidence) -> Finding:
    """No value that the spider sets is sent: neither another sender, nor another framing (R1)."""
    wrong = [
        f"its {name} was sent to {each.host}"
        for each in evidence.log
        for name, value in _HEADERS.items()
        if value in each.values(name)
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


SPIDER: Final = Scene(
    name="spider",
    sites=_sites,
    play=_play,
    table={
        "R1 MUST NOT headers that mislead do not reach the wire": where(
            was_asked(_START), every(exact_user_agent(), _none_of_its_headers)
        ),
        "R2 robots.txt blocks /denied, named as the reason": refused(
            "start.test/denied", "R2", "disallowed_explicit"
        ),
        "R2 redirect to a disallowed path not followed": _hop_refused("hop-denied.test"),
        "R3 redirect to a listed host not followed": _hop_refused("hop-blocked.test"),
        "R3 robots.txt redirected to a listed host not followed": where(
            was_asked(f"robots-moved.test{ROBOTS}"), nothing_of("blocked.test", _START)
        ),
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

_SOURCES: Final = """\
source = [
  { name = "feed", url = "http://rss.test/", feed = "http://rss.test/feed.xml" },
  { name = "index", sitemap = "http://quiet.test/index.xml" },
  { name = "children", sitemap = "http://index.test/index.xml", children = true },
  { name = "use", url = "http://use.test/page" },
  { name = "refused use", url = "http://use.test/refused/page" },
  { name = "html", url = "http://html.test/" },
]
"""
_WANTED: Final = ", children = true"
_MEMBERS: Final = frozenset(
    {"source", "title", "url", "published", "via", "canonical_url", "fetched_at", "usage"}
)


def _index(*urls: str) -> Route:
    entries = "".join(f"<sitemap><loc>{url}</loc></sitemap>" for url in urls)
    return Route(body=f"<sitemapindex>{entries}</sitemapindex>", content_type="application/xml")


def _item_sites(token: str) -> list[Site]:
    """A page whose use is refused; two indices, of which one is to be followed."""
    use = f"User-agent: {token}\nAllow: /\nContent-Usage: /refused/ train-ai=n\n"
    of_index = {
        "/index.xml": _index("http://elsewhere.test/second.xml", "http://index.test/deep.xml"),
        "/deep.xml": _index("http://index.test/deeper.xml"),
    }
    return [
        *(each for each in default_sites() if each.host in ("rss.test", "html.test")),
        site("use.test", use),
        Site("quiet.test", {"/index.xml": _index("http://quiet.test/first.xml")}),
        Site("index.test", of_index),
    ]


def _play_items(here: Stage) -> None:
    # walsh-research refuses a source that wants what an index lists: there none does.
    research = here.bot.identity.token.lower() == WALSH_RESEARCH.token.lower()
    here.metadata("sources.toml", _SOURCES.replace(_WANTED, "") if research else _SOURCES)


def _items(evidence: Evidence, source: str) -> list[Any]:
    return [item for item in evidence.first.items if item["source"] == source]


def _feed_alone(evidence: Evidence) -> Finding:
    """Of a source with a feed, the feed alone was requested, and gave the items."""
    asked = seen([each.path for each in evidence.first.targets("rss.test")])
    found = _items(evidence, "feed")
    kept = asked == ["/feed.xml"] and bool(found) and all(i["via"] == "feed" for i in found)
    return held_if(kept, f"{', '.join(asked)}: items={len(found)}")


def _left_out(evidence: Evidence) -> Finding:
    occasion = "/" in evidence.first.paths("html.test") and evidence.first.items
    seen(occasion, "its page was not asked, or no source gave any item")
    items = len(_items(evidence, "html"))
    return held_if(items == 0, f"items={items}")


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
        "R9 SHOULD a feed is preferred": _feed_alone,
        "R2 SHOULD a use that robots.txt disallows, if refused": never(
            "use.test/refused/page", "use.test/page"
        ),
        "R6 MUST NOT a sitemap index is followed only if declared so": never(
            "quiet.test/first.xml", "quiet.test/index.xml"
        ),
        "R6 MUST NOT of an index that is followed: its host, one level": every(
            never("index.test/deeper.xml", "index.test/index.xml"),
            nothing_of("elsewhere.test", "index.test/index.xml"),
        ),
        "R9 MUST NOT HTML is left out, not scraped": _left_out,
    },
)
