"""A declared feed or sitemap that was read has no stand-in; and when a move is advised."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.proof.sandbox import Route
from scrapy_walsh.state.records import Reading
from tests.crawl.harness import DAY, OWN_IDENTITY, Runs, site

if TYPE_CHECKING:
    from pathlib import Path

MARKDOWN = Route(body="# Home\n\n- [A product](http://shop.test/p)\n", content_type="text/markdown")
HTML = Route(body="<html><head><title>Maintenance</title></head></html>")


def rss(*names: str, end: str = "</channel></rss>") -> Route:
    items = [f"<item><title>{n}</title><link>http://items.test/{n}</link></item>" for n in names]
    body = f'<rss version="2.0"><channel><title>F</title>{"".join(items)}{end}'
    return Route(body=body, content_type="application/rss+xml", etag=f'"{body}"'.encode().hex())


def sitemap(*names: str, end: str = "</urlset>") -> Route:
    space = "http://www.sitemaps.org/schemas/sitemap/0.9"
    urls = "".join(f"<url><loc>http://items.test/{name}</loc></url>" for name in names)
    body = f'<urlset xmlns="{space}">{urls}{end}'
    return Route(body=body, content_type="application/xml")


def index(name: str) -> Route:
    body = (
        f"<sitemapindex><sitemap><loc>http://{name}.test/child.xml</loc></sitemap></sitemapindex>"
    )
    return Route(body=body, content_type="application/xml")


SETTINGS = {
    "WALSH_MAX_RETRIES": 0,
    "SPIDER_MODULES": ["scrapy_walsh.spiders"],
    "WALSH_IDENTITY": OWN_IDENTITY,
}
#: Ways in which a declared document fails after it was read, and the outcome of its source then.
FAILS = {
    "gone404": (Route(404), "failed"),
    "shut403": (Route(403), "failed"),
    "down500": (Route(500), "failed"),
    "down503": (Route(503), "failed"),
    "lost": (Route(301), "failed"),
    "html": (HTML, "left_out"),
    "empty": (Route(body="", content_type="application/rss+xml"), "left_out"),
    "nothing": (Route(204), "failed"),
    "markdown": (MARKDOWN, "left_out"),
}


#: What the document of a host is on each day, and the outcomes and links of its source then.
LOST: dict[str, tuple[str, list[Route], list[tuple[str, int]]]] = {
    "emptied": (
        "feed",
        [rss("e1", "e2"), rss(), rss()],  # unchanged on the third day: no 304 may say so
        [("fed", 2), ("left_out", 0), ("left_out", 0)],
    ),
    "cut": (
        "feed",
        [rss("c1", "c2"), rss("c3", "c1", end="<item><title>Ne"), rss("c4", "c3", "c1", "c2")],
        [("fed", 2), ("left_out", 1), ("fed", 1)],
    ),
    "unclosed": (  # as its publisher writes it
        "feed",
        [rss("u1", end=""), rss("u2", "u1", end=""), rss(end="")],
        [("fed", 1), ("fed", 1), ("left_out", 0)],
    ),
    "begins": (
        "feed",
        [rss(), rss("b1"), rss("b2", "b1")],
        [("fed", 0), ("fed", 1), ("fed", 1)],
    ),
    "plain": (  # a feed that is declared as a page
        "url",
        [rss("p1"), rss(), rss("p2")],
        [("fed", 1), ("left_out", 0), ("fed", 1)],
    ),
    "map-emptied": (
        "sitemap",
        [sitemap("m1", "m2"), sitemap(), sitemap("m3")],
        [("sitemap", 2), ("left_out", 0), ("sitemap", 1)],
    ),
    "map-cut": (
        "sitemap",
        [sitemap("s1", "s2"), sitemap("s1", end="<url>"), sitemap("s1", "s2")],
        [("sitemap", 2), ("left_out", 0), ("sitemap", 0)],
    ),
    "children": (
        "children",
        [sitemap("i1", "i2"), sitemap(), sitemap("i1")],
        [("sitemap", 2), ("left_out", 0), ("sitemap", 0)],
    ),
}
PATHS = {"feed": "/feed", "url": "/", "sitemap": "/sitemap.xml", "children": "/child.xml"}


@dataclass
class Days:
    """What each run has emitted, as (source, via) pairs, its report's rows, and what it logged."""

    items: list[set[tuple[str, str]]]
    rows: list[dict[str, dict[str, Any]]]
    output: list[str]
    asked: list[dict[str, list[str]]]
    readings: dict[str, Reading]


def source(host: str, **declared: str) -> dict[str, Any]:
    urls = {kind: f"http://{host}.test{path}" for kind, path in declared.items()}
    return {"name": host, "url": f"http://{host}.test/", **urls}


def lost_source(host: str) -> dict[str, Any]:
    kind = LOST[host][0]
    if kind == "children":
        return {**source(host, sitemap="/sitemap.xml"), "children": True}
    return source(host, **{kind: PATHS[kind]})


SOURCES = [
    *(source(host, feed="/feed") for host in FAILS),
    source("map", sitemap="/sitemap.xml"),
    source("both", feed="/feed", sitemap="/sitemap.xml"),
    source("never", feed="/feed"),
    source("late", feed="/feed"),
    *map(lost_source, LOST),
]


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> Days:
    """Day 0: all is read that can be. Day 1: all fails. Day 2: all is well."""
    directory = tmp_path_factory.mktemp("days")
    page = {"/": MARKDOWN, "/llms.txt": MARKDOWN}
    sites = [site(f"{host}.test", {"/feed": rss(host), **page}) for host in FAILS]
    sites += [
        site("map.test", {"/sitemap.xml": sitemap("map"), **page}),
        site("both.test", {"/feed": Route(404), "/sitemap.xml": sitemap("both"), **page}),
        site("never.test", {"/feed": Route(404), **page}),
        site("late.test", {"/feed": HTML, **page}),
        *(site(f"{host}.test", {"/sitemap.xml": index(host), **page}) for host in LOST),
    ]
    days = Days([], [], [], [], {})
    with Runs(directory, *sites, settings=SETTINGS) as runs:
        (directory / "sources.jsonl").write_text("\n".join(map(json.dumps, SOURCES)))
        for day in range(3):
            for host, (kind, routes, _) in LOST.items():
                runs.serve(f"{host}.test", PATHS[kind], routes[day])
            if day == 1:
                for host, (route, _) in FAILS.items():
                    runs.serve(f"{host}.test", "/feed", route)
                runs.serve("map.test", "/sitemap.xml", Route(404))
                runs.serve("late.test", "/feed", rss("late"))
            if day == 2:
                for host in FAILS:
                    runs.serve(f"{host}.test", "/feed", rss(f"{host}-2"))
                runs.serve("late.test", "/feed", HTML)
            report = directory / f"report{day}.json"
            given = ("-a", "sources=sources.jsonl", "-a", f"report={report}")
            done = runs(spider_name="walsh_metadata", arguments=given)
            days.items.append({(each["source"], each["via"]) for each in done.items})
            rows = json.loads(report.read_text())["sources"]
            days.rows.append({row["source"]: row for row in rows})
            days.output.append(done.output)
            hosts = [f"{each['name']}.test" for each in SOURCES]
            days.asked.append({host: done.targets(host) for host in hosts})
            runs.pass_time(DAY + 60)
        with runs.store() as store:
            days.readings = {each.url: each for each in store.rows(Reading)}
    return days


@pytest.mark.parametrize("host", FAILS)
def test_a_feed_that_was_read_and_fails_is_unread_and_nothing_stands_in(
    days: Days, host: str
) -> None:
    assert (host, "feed") in days.items[0]
    assert not {via for name, via in days.items[1] if name == host}
    assert days.asked[1][f"{host}.test"] == ["/feed"]
    assert days.rows[1][host]["outcome"] == FAILS[host][1]
    assert days.rows[1][host]["reason"].startswith("feed: ")
    assert (host, "feed") in days.items[2]


def test_nor_does_anything_stand_in_for_a_sitemap_that_was_read(days: Days) -> None:
    assert ("map", "sitemap") in days.items[0]
    assert days.asked[1]["map.test"] == ["/sitemap.xml"]
    assert days.rows[1]["map"]["outcome"] == "failed"


def test_a_sitemap_stands_in_for_a_feed_that_was_never_read(days: Days) -> None:
    for day in range(3):
        assert days.asked[day]["both.test"] == ["/feed", "/sitemap.xml"]
        assert days.rows[day]["both"]["outcome"] == "sitemap"


def test_a_stand_in_serves_until_the_feed_is_read_and_the_log_says_so_once(days: Days) -> None:
    for day in range(3):
        assert days.rows[day]["never"]["outcome"] == "negotiated"
    assert days.rows[0]["late"]["outcome"] == "negotiated"
    assert days.rows[1]["late"]["outcome"] == "fed"
    assert days.rows[2]["late"]["outcome"] == "left_out"
    assert days.asked[2]["late.test"] == ["/feed"]
    lines = [output.count("its feed was never read") for output in days.output]
    assert lines == [3, 0, 0], "both, never, late"


@pytest.mark.parametrize("host", LOST)
def test_a_document_that_was_emptied_or_cut_off_is_unread(days: Days, host: str) -> None:
    rows = [days.rows[day][host] for day in range(3)]
    assert [(row["outcome"], row["items"]) for row in rows] == LOST[host][2]
    assert {via for name, via in set().union(*days.items) if name == host} <= {"feed", "sitemap"}


def test_the_reason_says_what_was_lost(days: Days) -> None:
    reasons = {host: days.rows[1][host]["reason"] for host in ("emptied", "cut", "children")}
    had = "it had 2 entries when it was last read"
    assert reasons["emptied"] == f"feed: no entries, and {had}"
    assert reasons["cut"] == f"feed: cut off, and {had}"
    assert reasons["children"].endswith(f"sitemap: no entries, and {had}")
    lost = days.readings["http://emptied.test/feed"]
    assert (lost.entries, lost.reason) == (2, f"R9 {reasons['emptied']}")


def test_what_was_itself_read_is_on_record(days: Days) -> None:
    read_as = {url: each.read_as for url, each in days.readings.items()}
    assert read_as["http://html.test/feed"] == "feed"
    assert read_as["http://map.test/sitemap.xml"] == "sitemap"
    assert read_as["http://both.test/feed"] == "sitemap"
    assert read_as["http://never.test/feed"] is None
    assert days.readings["http://never.test/feed"].read == 1


def test_a_move_is_advised_when_the_new_place_was_read_and_is_of_one_host(tmp_path: Path) -> None:
    to = {
        "good": "/new",
        "parked": "/sale",
        "one": "http://portal.test/",
        "two": "http://portal.test/",
    }
    sites = [
        site(f"{host}.test", {"/feed": Route(301, location=place), "/new": rss("n"), "/sale": HTML})
        for host, place in to.items()
    ]
    sites.append(site("portal.test", {"/": rss("portal")}))
    sources = [source(host, feed="/feed") for host in to]
    with Runs(tmp_path, *sites, settings=SETTINGS) as runs:
        (tmp_path / "sources.jsonl").write_text("\n".join(map(json.dumps, sources)))
        report = tmp_path / "report.json"
        arguments = ("-a", "sources=sources.jsonl", "-a", f"report={report}")
        output = runs(spider_name="walsh_metadata", arguments=arguments).output
        with runs.store() as store:
            moved = {each.url: each.moved_to for each in store.rows(Reading)}
    rows = {row["source"]: row for row in json.loads(report.read_text())["sources"]}
    assert {host: rows[host]["moved_to"] for host in to} == {
        "good": "http://good.test/new", "parked": None, "one": None, "two": None,
    }  # fmt: skip
    assert rows["one"]["outcome"] == rows["two"]["outcome"] == "fed"
    assert rows["one"]["suggested_feeds"] == []
    assert {moved[f"http://{host}.test/feed"] for host in ("parked", "one", "two")} == {None}
    assert output.count("has moved for good to http://good.test/new") == 1
