"""A web of sources, one host each, and one crawl of all of them."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy_walsh.proof.sandbox import LoggedRequest, Route, Sandbox, Site, requests
from tests.crawl.harness import Crawl, crawl, make_project, site
from tests.sources.hostile import LAUGHS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from scrapy_walsh.proof.sandbox import Request

#: Few retries and short ones: the spacing of R4 stays as it is.
QUICK = {"WALSH_MAX_RETRIES": 1}

PIPELINE = """
import json
from itemadapter import ItemAdapter

class Adapt:
    def process_item(self, item, spider=None):
        adapter = ItemAdapter(item)
        with open("adapted.jsonl", "a") as file:
            file.write(json.dumps(adapter.asdict()) + "\\n")
        return item
"""

RSS = "application/rss+xml"
PACKED = {"Content-Encoding": "gzip"}
HTML_PAGE = (
    "<!DOCTYPE html><html><head><title>t</title></head><body>"
    + "".join(f'<a href="/link{n}">{n}</a>' for n in range(20))
    + '<img src="/photo.png"></body></html>'
)
HTML = Route(body=HTML_PAGE)


class Declared(NamedTuple):
    """A source: its page's path, its feed's, and what its host answers."""

    page: str = "/"
    feed: str | None = None
    routes: Mapping[str, Any] = {}
    robots: str = "User-agent: *\nAllow: /\n"


def rss(*entries: str, head: str = '<?xml version="1.0" encoding="utf-8"?>', root: str = "") -> str:
    """An RSS 2.0 document of ``<item>`` contents."""
    items = "".join(f"<item>{entry}</item>" for entry in entries)
    return f'{head}<rss version="2.0"{root}><channel><title>c</title>{items}</channel></rss>'


def entry(name: str, link: str | None = None, more: str = "") -> str:
    """The inside of an RSS item."""
    return f"<title>{name}</title><link>{link or f'http://news.test/{name}'}</link>{more}"


def feed(body: str | bytes, content_type: str | None = RSS, **more: Any) -> dict[str, Any]:
    """The routes of a host with a feed at /feed."""
    return {"/feed": Route(body=body, content_type=content_type, **more), "/": HTML, "*": NOTHING}


def _fifty_megabytes(request: Request) -> Route:
    return Route(body=b" " * (50 * 1024 * 1024), content_type=RSS)


NOTHING = Route(404, "no\n", "text/plain")
MARKDOWN = Route(
    body="# Notes\n\n[one](http://news.test/m1) and [two](/relative)\n",
    content_type="text/markdown; charset=utf-8",
)
LLMS = """# Advisory

## Pages

- [Private](http://advisory.test/private/x): disallowed
- [Blocked](http://www.blocked.test/notes): on the operator's list
- [Undeclared](http://undeclared.test/)
"""
OUTSIDE = '<?xml version="1.0"?><!DOCTYPE r [<!ENTITY x SYSTEM "{}">]>'
DATES = {
    "rfc822": "<pubDate>Sat, 23 May 2026 10:00:00 +0200</pubDate>",
    "iso": "<dc:date>2026-05-23T08:00:00Z</dc:date>",
    "nozone": "<pubDate>23 May 2026 08:00:00</pubDate>",
    "named": "<pubDate>Sat, 23 May 2026 04:00:00 EDT</pubDate>",
    "wrongday": "<pubDate>Mon, 23 May 2026 08:00:00 GMT</pubDate>",
    "missing": "",
    "nonsense": "<pubDate>soon</pubDate>",
}
DC = ' xmlns:dc="http://purl.org/dc/elements/1.1/"'
ATOM = """<?xml version="1.0" encoding="utf-8"?>
<feed xmlns="http://www.w3.org/2005/Atom" xml:base="http://base.test/dir/">
<title>t</title><entry><title type="html">A &amp;amp; &lt;b&gt;B&lt;/b&gt;</title>
<link href="page?utm_source=x&amp;a=1"/><updated>2026-05-23T08:00:00+01:00</updated>
</entry></feed>"""
JSON_FEED = json.dumps(
    {
        "version": "https://jsonfeed.org/version/1.1",
        "title": "t",
        "items": [{"id": "1", "title": "J", "url": "/j", "content_text": "never kept"}],
    }
)
RSS_1 = """<?xml version="1.0"?><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"
xmlns="http://purl.org/rss/1.0/"><item rdf:about="http://news.test/r1"><title>r1</title>
<link>http://news.test/r1</link></item></rdf:RDF>"""
RSS_091 = (
    '<?xml version="1.0"?><!DOCTYPE rss PUBLIC "-//Netscape Communications//DTD RSS 0.91//EN"'
    ' "http://secret.test/rss-0.91.dtd"><rss version="0.91"><channel><title>c</title>'
    f"<item>{entry('r091')}</item></channel></rss>"
)
OFFERS = '<link rel="alternate" type="application/atom+xml" href="/atom.xml">'

DECLARED: dict[str, Declared] = {
    # R9.4, the order
    "declared": Declared(feed="/feed", routes=feed(rss(entry("d1"), entry("d2")))),
    "order": Declared(
        feed="/feed",
        routes={
            "/feed": HTML,
            "/": HTML,
            "/llms.txt": Route(body="[l](http://news.test/l)", content_type="text/plain"),
        },
    ),
    "negotiated": Declared(
        "/notes", routes={"/notes": Route(body=HTML_PAGE, accept={"text/markdown": MARKDOWN})}
    ),
    "pagefeed": Declared("/feed", routes=feed(rss(entry("pf")), "text/xml")),
    "mislabelled": Declared(
        routes={"/": Route(body="[no](http://news.test/no)"), "/llms.txt": NOTHING}
    ),
    "htmlonly": Declared(routes={"/": HTML, "/llms.txt": NOTHING, "*": HTML}),
    "advisory": Declared(
        routes={"/": HTML, "/llms.txt": Route(body=LLMS, content_type="text/plain"), "*": HTML},
        robots="User-agent: *\nDisallow: /private/\n",
    ),
    # suggestions
    "linkheader": Declared(
        routes={
            "/": Route(
                body="[a](http://news.test/lh)",
                content_type="text/markdown",
                headers={"Link": '</feed.rss>; rel="alternate"; type="application/rss+xml"'},
            ),
            "*": NOTHING,
        }
    ),
    "headlink": Declared(
        routes={"/": Route(body=f"<html><head>{OFFERS}</head></html>"), "*": NOTHING}
    ),
    "htmlfeed": Declared(
        feed="/feed",
        routes={
            "/feed": Route(body=f"<!DOCTYPE html><html><head>{OFFERS}</head></html>"),
            "*": NOTHING,
        },
    ),
    "moved": Declared(
        feed="/feed",
        routes={
            "/feed": Route(301, location="/2026/feed"),
            "/2026/feed": Route(body=rss(entry("mv", "item")), content_type=RSS),
        },
    ),
    "lent": Declared(
        feed="/feed",
        routes={
            "/feed": Route(302, location="/today"),
            "/today": Route(body=rss(entry("lent")), content_type=RSS),
        },
    ),
    # feeds as they are
    "malformed": Declared(
        feed="/feed",
        routes=feed('<rss version="2.0"><channel><item>' + entry("A & B", "http://news.test/mf")),
    ),
    "cp1252": Declared(
        feed="/feed",
        routes=feed(rss(entry("caf\u00e9 \u2013 x", "http://news.test/cp")).encode("cp1252")),
    ),
    "latin": Declared(
        feed="/feed",
        routes=feed(
            rss(entry("na\u00efve", "http://news.test/la")).encode(), f"{RSS}; charset=iso-8859-1"
        ),
    ),
    "wide": Declared(
        feed="/feed",
        routes=feed(rss(entry("\u65e5\u672c", "http://news.test/w16"), head="").encode("utf-16")),
    ),
    "entities": Declared(
        feed="/feed",
        routes=feed(rss(entry("caf&eacute;&nbsp;&mdash;&#0; x", "http://news.test/e"))),
    ),
    "dates": Declared(
        feed="/feed",
        routes=feed(rss(*(entry(name, None, date) for name, date in DATES.items()), root=DC)),
    ),
    "base": Declared(feed="/feed", routes=feed(ATOM, "application/atom+xml")),
    "jsonfeed": Declared(feed="/feed", routes=feed(JSON_FEED, "application/feed+json")),
    "rss1": Declared(feed="/feed", routes=feed(RSS_1, "application/rdf+xml")),
    "rss091": Declared(feed="/feed", routes=feed(RSS_091, "text/xml")),
    "many": Declared(
        feed="/feed",
        routes=feed(rss(*(entry(f"n{n}", f"http://news.test/n/{n}") for n in range(10_000)))),
    ),
    "laughs": Declared(feed="/feed", routes=feed(rss(entry("&i;"), head=LAUGHS))),
    "outside": Declared(
        feed="/feed", routes=feed(rss(entry("&x;"), head=OUTSIDE.format("http://secret.test/x")))
    ),
    "passwd": Declared(
        feed="/feed", routes=feed(rss(entry("&x;"), head=OUTSIDE.format("file:///etc/passwd")))
    ),
    "zipped": Declared(
        feed="/feed", routes=feed(gzip.compress(rss(entry("z")).encode()), headers=PACKED)
    ),
    "bomb": Declared(feed="/feed", routes=feed(gzip.compress(bytes(64 << 20), 1), headers=PACKED)),
    "huge": Declared(feed="/feed", routes={**feed(""), "/feed": _fifty_megabytes}),
    "endless": Declared(
        feed="/feed",
        routes={
            **feed(""),
            "/feed": Route(
                body=b" " * 1_000_000, content_type=RSS, behaviour="endless", pause=0.001
            ),
        },
    ),
    # other outcomes
    "disallowed": Declared("/private/a", robots="User-agent: *\nDisallow: /private\n"),
    "gone": Declared(routes={"/": Route(410, "gone"), "*": NOTHING}),
    "flaky": Declared(
        feed="/feed",
        routes={
            "/feed": Route(
                sequence=(
                    Route(503, "later", headers={"Retry-After": "1"}),
                    Route(body=rss(entry("flaky")), content_type=RSS),
                )
            )
        },
    ),
    "down": Declared(routes={"/": Route(503, "later")}),
    "later": Declared(routes={"/": Route(503, "later", headers={"Retry-After": "90000"})}),
    "slow": Declared(routes={"/": HTML, "*": NOTHING}, robots="User-agent: *\nCrawl-delay: 4000\n"),
    # the same links as "declared", and tracking left alone
    "again": Declared(
        feed="/feed",
        routes=feed(rss(entry("d1", "http://News.test/d1/#top"), entry("new", "/n?utm_source=x"))),
    ),
}


def sources() -> list[dict[str, str]]:
    """The lines of a sources file."""
    found = []
    for name, declared in DECLARED.items():
        line = {"name": name, "url": f"http://{name}.test{declared.page}"}
        if declared.feed:
            line["feed"] = f"http://{name}.test{declared.feed}"
        found.append(line)
    return found


def sites() -> list[Site]:
    """What the hosts answer."""
    found = [site(f"{name}.test", d.routes, d.robots) for name, d in DECLARED.items()]
    return [*found, site("secret.test"), site("undeclared.test"), site("news.test")]


@dataclass
class World:
    """The crawl, its project and its report."""

    run: Crawl
    project: Path
    report: dict[str, Any]

    def row(self, name: str) -> dict[str, Any]:
        """A source's line of the report."""
        (row,) = [row for row in self.report["sources"] if row["source"] == name]
        return row

    def items(self, name: str) -> list[dict[str, Any]]:
        """What the spider yielded for a source."""
        return [item for item in self.run.items if item["source"] == name]

    def targets(self, name: str) -> list[LoggedRequest]:
        """What the source's host was asked, robots.txt apart."""
        asked = requests(self.run.log, f"{name}.test")
        return [request for request in asked if request.path != "/robots.txt"]

    def paths(self, name: str) -> list[str]:
        """The same, as paths."""
        return [request.path for request in self.targets(name)]


def world_project(directory: Path, settings: dict[str, Any] | None = None) -> Path:
    """A project with the spider, the pipeline and the sources file."""
    merged = {
        **QUICK,
        "SPIDER_MODULES": ["scrapy_walsh.spiders"],
        "ITEM_PIPELINES": {"pipelines.Adapt": 1},
        "LOG_LEVEL": "INFO",
        **(settings or {}),
    }
    project = make_project(directory, settings=merged)
    (project / "pipelines.py").write_text(PIPELINE)
    (project / "sources.jsonl").write_text("\n".join(map(json.dumps, sources())))
    return project


def crawl_world(project: Path, box: Sandbox, *arguments: str) -> World:
    """One run of *project*'s sources."""
    given = ("-a", "sources=sources.jsonl", "-a", "report=report.json", *arguments)
    run = crawl(project, box, spider_name="walsh_metadata", arguments=given)
    return World(run, project, json.loads((project / "report.json").read_text()))
