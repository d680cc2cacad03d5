"""Sitemaps as declared sources, in real crawls: what was requested, by the server's log."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.ledger.files import FILE
from scrapy_walsh.proof.sandbox import Request, Route, Sandbox, requests
from scrapy_walsh.sources.sources import read_sources
from tests.crawl.harness import OPEN, OWN_IDENTITY, make_project, run_scrapy, site, state_dir
from tests.sources.hostile import LAUGHS
from tests.sources.world import HTML, NOTHING, QUICK, World, crawl_world, entry, feed, rss

if TYPE_CHECKING:
    from scrapy_walsh.proof.sandbox import Site

pytestmark = pytest.mark.crawl

DATA = Path(__file__).parents[1] / "data" / "sitemaps"
XML = "application/xml"
REASON = "WALSH_REVISIT_REASON=the test sends it again"


def sitemap(*urls: str, content_type: str = XML, **more: Any) -> Route:
    body = "".join(f"<url><loc>{url}</loc></url>" for url in urls)
    return Route(body=f"<urlset>{body}</urlset>", content_type=content_type, **more)


def packed(route: Route) -> Route:
    return Route(body=gzip.compress(route.content), content_type="application/x-gzip")


def index(*urls: str) -> Route:
    body = "".join(f"<sitemap><loc>{url}</loc></sitemap>" for url in urls)
    return Route(body=f"<sitemapindex>{body}</sitemapindex>", content_type=XML)


def bomb(_: Request) -> Route:
    """Packed when it is asked for: each process that collects the tests would do it."""
    return Route(body=gzip.compress(b" " * 60_000_000, 9))


def of_host(name: str, **routes: Any) -> dict[str, Any]:
    return {
        **{f"/{path.replace('_', '.')}": route for path, route in routes.items()},
        "/": HTML,
        "*": NOTHING,
    }


CHILDREN = (
    "http://index.test/a.xml",
    "http://index.test/b.gz",
    "http://index.test/private/c.xml",
    "http://index.test/nested.xml",
    "http://index.test/gone.xml",
    "http://other.test/sitemap.xml",
)
ROBOTS = (
    "User-agent: *\nDisallow: /private\n"
    "Sitemap: /i.xml\nSitemap: http://index.test/a.xml\nSitemap: /more.xml\n"
)
NAMES = OPEN + "Sitemap: http://named.test/one.xml\nSitemap: /two.xml\nSitemap: ftp://named.test/\n"
ROUTES: dict[str, tuple[dict[str, Any], str]] = {
    "cms": (of_host("cms", s_xml=Route(body=(DATA / "cms-posts.xml").read_bytes())), OPEN),
    "news": (
        of_host("news", s_gz=packed(Route(body=(DATA / "news.xml").read_bytes()))),
        OPEN,
    ),
    "encoded": (
        of_host(
            "encoded",
            s_xml=Route(
                body=gzip.compress(sitemap("http://encoded.test/1").content),
                content_type=XML,
                headers={"Content-Encoding": "gzip"},
            ),
        ),
        OPEN,
    ),
    # As Apache's mod_deflate: it knows the ETag that it sent only without its own addition.
    "order": (
        of_host(
            "order",
            s_xml=sitemap(
                "http://order.test/from-sitemap", etag='"o"', headers={"ETag": '"o-gzip"'}
            ),
        ),
        OPEN,
    ),
    "feedfirst": (
        {**feed(rss(entry("ff"))), "/s.xml": sitemap("http://feedfirst.test/no")},
        OPEN,
    ),
    "quiet": (of_host("quiet", i_xml=index("http://quiet.test/a.xml")), OPEN),
    "index": (
        {
            "/i.xml": index(*CHILDREN),
            "/a.xml": sitemap("http://index.test/1", "http://index.test/2", etag='"a"'),
            "/b.gz": packed(sitemap("http://index.test/2", "http://index.test/3")),
            "/private/c.xml": sitemap("http://index.test/no"),
            "/nested.xml": index("http://index.test/deep.xml"),
            "/deep.xml": sitemap("http://index.test/too-deep"),
            "*": NOTHING,
        },
        ROBOTS,
    ),
    "moved": (
        {
            "/i.xml": Route(301, location="http://elsewhere.test/i.xml"),
            "*": NOTHING,
        },
        OPEN,
    ),
    "laughs": (
        of_host(
            "laughs",
            s_xml=Route(
                body=LAUGHS.replace("lolz", "urlset") + "<urlset><url><loc>http://l.test/&i;"
            ),
        ),
        OPEN,
    ),
    "bomb": (of_host("bomb", s_gz=bomb), OPEN),
    "named": ({"/": HTML, "*": NOTHING}, NAMES),
    "undeclared": (of_host("undeclared", s_xml=sitemap("http://undeclared.test/1")), OPEN),
}
ELSEWHERE = {
    "elsewhere": {"/i.xml": index("http://elsewhere.test/a.xml"), "*": NOTHING},
    "other": {"*": NOTHING},
}
SOURCES: list[dict[str, Any]] = [
    {"name": "cms", "sitemap": "http://cms.test/s.xml"},
    {"name": "news", "sitemap": "http://news.test/s.gz"},
    {"name": "encoded", "sitemap": "http://encoded.test/s.xml"},
    {
        "name": "order",
        "url": "http://order.test/",
        "feed": "http://order.test/feed",
        "sitemap": "http://order.test/s.xml",
    },
    {
        "name": "feedfirst",
        "url": "http://feedfirst.test/",
        "feed": "http://feedfirst.test/feed",
        "sitemap": "http://feedfirst.test/s.xml",
    },
    {"name": "quiet", "sitemap": "http://quiet.test/i.xml"},
    {"name": "index", "sitemap": "http://index.test/i.xml", "children": True},
    {"name": "moved", "sitemap": "http://moved.test/i.xml", "children": True},
    {"name": "laughs", "sitemap": "http://laughs.test/s.xml"},
    {"name": "bomb", "sitemap": "http://bomb.test/s.gz"},
    {"name": "named", "url": "http://named.test/"},
    {"name": "undeclared", "url": "http://undeclared.test/s.xml"},
]


def sites() -> list[Site]:
    found = [site(f"{name}.test", routes, robots) for name, (routes, robots) in ROUTES.items()]
    return found + [site(f"{name}.test", routes) for name, routes in ELSEWHERE.items()]


def project_of(
    directory: Path, sources: list[dict[str, Any]], settings: dict[str, Any] | None = None
) -> Path:
    merged = {**QUICK, "SPIDER_MODULES": ["scrapy_walsh.spiders"], "LOG_LEVEL": "INFO"}
    merged["WALSH_IDENTITY"] = OWN_IDENTITY
    project = make_project(directory, settings={**merged, **(settings or {})})
    (project / "sources.jsonl").write_text("\n".join(map(json.dumps, sources)))
    return project


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[World, World]:
    """The sources crawled, and crawled again at once, with a reason that lifts R8."""
    project = project_of(tmp_path_factory.mktemp("sitemaps") / "project", SOURCES)
    with Sandbox() as running:
        for each in sites():
            running.put(each)
        return crawl_world(project, running), crawl_world(project, running, "-s", REASON)


@pytest.fixture(scope="module")
def world(runs: tuple[World, World]) -> World:
    return runs[0]


def found(world: World, name: str) -> list[tuple[str, str, str | None]]:
    return [(item["title"], item["url"], item["published"]) for item in world.items(name)]


@pytest.mark.parametrize(("name", "file"), [("cms", "cms-posts"), ("news", "news")])
def test_a_declared_sitemap_gives_items(world: World, name: str, file: str) -> None:
    expected = json.loads((DATA / f"{file}.expected.json").read_text("utf-8"))["entries"]
    assert [list(each) for each in found(world, name)] == expected
    assert {item["via"] for item in world.items(name)} == {"sitemap"}
    assert (world.row(name)["outcome"], world.row(name)["requirement"]) == ("sitemap", "R9")
    assert len(world.paths(name)) == 1


def test_what_was_packed_for_the_wire_is_read(world: World) -> None:
    assert [url for _, url, _ in found(world, "encoded")] == ["http://encoded.test/1"]


def test_no_link_of_a_sitemap_is_requested(world: World) -> None:
    for name in ("cms", "news", "encoded", "order"):
        assert not [path for path in world.paths(name) if path not in {"/s.xml", "/s.gz", "/feed"}]


def test_r9_4_after_the_feed_and_before_the_page(world: World) -> None:
    assert world.paths("order") == ["/feed", "/s.xml"]
    assert [url for _, url, _ in found(world, "order")] == ["http://order.test/from-sitemap"]
    assert world.paths("feedfirst") == ["/feed"]
    asked = {request.path: request for request in world.targets("order")}
    assert asked["/s.xml"].values("Accept")[0].startswith("application/xml, ")


def test_r6_1_an_index_is_not_followed_unless_the_source_says_so(world: World) -> None:
    assert world.paths("quiet") == ["/i.xml", "/llms.txt"]
    row = world.row("quiet")
    assert row["outcome"] == "left_out"
    assert "an index of 1 sitemap; children = true would request them" in row["reason"]


def test_an_index_with_children(world: World) -> None:
    """One host, depth 1, and each child through the gates."""
    assert world.paths("index") == ["/i.xml", "/a.xml", "/b.gz", "/nested.xml", "/gone.xml"]
    assert requests(world.run.log, "other.test") == []
    urls = [url for _, url, _ in found(world, "index")]
    assert urls == [f"http://index.test/{n}" for n in (1, 2, 3)]
    row = world.row("index")
    assert (row["outcome"], row["requests"], row["items"]) == ("sitemap", 5, 3)
    assert row["reason"].startswith(
        "an index of 6 sitemaps; 1 of them not requested: of another host, or beyond the first "
        "1000; 2 of 5 sitemaps read (http://index.test/private/c.xml: "
    )
    assert min(world.run.gaps("index.test")[1:]) >= 0.98  # the first follows robots.txt (T1)
    assert row["suggested_sitemaps"] == ["http://index.test/more.xml"]


def test_r6_2_a_redirect_of_an_index_declares_nothing_elsewhere(world: World) -> None:
    assert [request.path for request in requests(world.run.log, "elsewhere.test")] == [
        "/robots.txt",
        "/i.xml",
    ]
    assert world.row("moved")["moved_to"] == "http://elsewhere.test/i.xml"
    assert world.row("moved")["outcome"] == "left_out"


@pytest.mark.parametrize(
    ("name", "why"),
    [("laughs", "declares its own entities; refused unread"), ("bomb", "when unpacked; not read")],
)
def test_bombs_and_entities_are_refused_in_one_line(world: World, name: str, why: str) -> None:
    assert why in world.row(name)["reason"]
    assert world.items(name) == []
    assert "\n" not in world.row(name)["reason"]


def test_what_robots_txt_names_is_a_suggestion(world: World) -> None:
    """Resolved, http and https alone; never requested."""
    named = ["http://named.test/one.xml", "http://named.test/two.xml"]
    assert world.row("named")["suggested_sitemaps"] == named
    assert world.paths("named") == ["/", "/llms.txt"]
    assert world.run.lines("named", f"robots.txt names a sitemap: {', '.join(named)}")


def test_a_page_that_is_a_sitemap_is_not_read_as_one(world: World) -> None:
    assert world.items("undeclared") == []
    assert 'read where the source says sitemap = "URL"' in world.row("undeclared")["reason"]


def test_r7_1_children_are_requested_conditionally_and_the_index_in_full(
    runs: tuple[World, World],
) -> None:
    """A 304 of the index would not say which sitemaps there are."""
    again = runs[1]
    asked = {request.path: request for request in again.targets("index")}
    assert asked["/a.xml"].values("If-None-Match") == ['"a"']
    assert again.paths("index") == ["/i.xml", "/a.xml", "/b.gz", "/nested.xml", "/gone.xml"]
    assert again.items("index") == []
    assert "2 of 5 sitemaps read" in again.row("index")["reason"]


def test_r7_1_a_server_that_packs_and_marks_the_etag_so_answers_304(
    runs: tuple[World, World],
) -> None:
    asked = {request.path: request for request in runs[1].targets("order")}
    assert asked["/s.xml"].values("If-None-Match") == ['"o-gzip", "o"']
    assert runs[1].row("order")["outcome"] == "not_modified"


def test_the_progress_counts_a_source_once(world: World) -> None:
    assert len(world.report["sources"]) == len(SOURCES)
    sent = {row["source"]: row["requests"] for row in world.report["sources"]}
    assert sent["index"] == len(world.targets("index"))


def test_the_sources_of_the_docs_are_read(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "spider.md").read_text("utf-8")
    text = page.partition("<!-- sources -->\n```toml\n")[2].partition("```")[0]
    (tmp_path / "sources.toml").write_text(text)
    sources, problems = read_sources(tmp_path / "sources.toml")
    assert [(each.first, each.children) for each in sources] == [
        ("https://site.example/news-sitemap.xml", False),
        ("https://other.example/sitemap_index.xml", True),
    ]
    assert problems == []


# -- the ledger, verify, and who may not ----------------------------------------------------


def declared(project: Path) -> list[dict[str, Any]]:
    lines = (state_dir(project) / FILE).read_text().splitlines()
    return [line for line in map(json.loads, lines) if line["kind"] == "declared"]


def test_the_ledger_says_which_source_declared_a_child(world: World) -> None:
    lines = declared(world.project)
    index_url = "http://index.test/i.xml"
    children = [line["url"] for line in lines if line.get("by") == index_url]
    assert children[:5] == list(CHILDREN[:5])
    assert [line["url"] for line in lines if line.get("children")][:2] == [
        index_url,
        "http://moved.test/i.xml",
    ]
    assert not [line for line in lines if "quiet.test/a.xml" in line["url"]]


def test_verify_derives_what_an_index_declared(world: World, box: Sandbox) -> None:
    done = run_scrapy(world.project, box, "walsh", "verify")
    assert "nothing wrong was found" in done.stdout, done.stdout


def test_r6_walsh_research_refuses_a_source_that_wants_what_an_index_lists(
    tmp_path: Path, box: Sandbox
) -> None:
    """Also by the meta that the spider sets for it."""
    source = {"sitemap": "http://index.test/i.xml", "children": True}
    research = {"WALSH_IDENTITY": "walsh-research"}
    project = project_of(tmp_path / "project", [source], research)
    done = run_scrapy(project, box, "crawl", "walsh_metadata", "-a", "sources=sources.jsonl")
    assert done.returncode == 1
    assert "children = true: walsh-research follows no links of a sitemap (R6)" in done.stdout
    assert requests(box.log, "index.test") == []
