"""R9, and R6's metadata: the main spider's items from a feed, a sitemap, markdown and so on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.policy.identity import WALSH_RESEARCH
from scrapy_walsh.proof.conformance.check import Scene
from scrapy_walsh.proof.conformance.evidence import every, never, nothing_of, seen
from scrapy_walsh.proof.findings import Finding, held_if
from scrapy_walsh.proof.sandbox import Route, Site, default_sites, page
from scrapy_walsh.proof.sandbox.routes import MARKDOWN, site

if TYPE_CHECKING:
    from scrapy_walsh.proof.conformance.crawl import Stage
    from scrapy_walsh.proof.conformance.evidence import Evidence, Judge

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


def _sites(token: str) -> list[Site]:
    mistyped = Route(body=page("notes.md"))  # markdown under text/html
    sites = [each for each in default_sites() if each.host in _HOSTS]
    return [*sites, *_sitemaps(), _uses(token), site("mistyped.test", page=mistyped)]


def _play(here: Stage) -> None:
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


FORMATS_OWN: Final = Scene(
    name="items",
    sites=_sites,
    play=_play,
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
