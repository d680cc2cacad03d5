"""R9: representations, the order, and links of markdown."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_walsh.policy.formats import links as formats
from scrapy_walsh.policy.formats.dates import utc_iso
from scrapy_walsh.policy.formats.representation import (
    ACCEPT_SOURCE,
    plan,
    representation,
    suggested_feeds,
)
from scrapy_walsh.policy.formats.text import absolute_http_url, plain_text, text_of

DATA = Path(__file__).parents[1] / "data"
VECTORS = json.loads((DATA / "markdown_links.json").read_text())


#: A notice of PHP.
NOTICE = b"<br />\n<b>Notice</b>: x in <b>/y.php</b> on line <b>3</b><br />\n"


def markdown_links(text: str) -> list[tuple[str, str]]:
    return [(each.title, each.url) for each in formats.markdown_links(text).entries]


@pytest.mark.parametrize("row", VECTORS, ids=lambda row: row["id"])
def test_r9_6_vectors(row: dict[str, Any]) -> None:
    links = [list(link) for link in markdown_links(row["body"])]
    assert links in row.get("out_any", [row.get("out")])


@pytest.mark.parametrize("path", sorted(DATA.glob("markdown/*.md")), ids=lambda path: path.stem)
def test_r9_6_corpus(path: Path) -> None:
    expected = json.loads(path.with_suffix(".expected.json").read_text(encoding="utf-8"))
    assert [list(link) for link in markdown_links(text_of(path.read_bytes(), None))] == expected


def test_corpus_is_complete() -> None:
    names = {path.name.partition(".")[0] for path in DATA.glob("markdown/*")}
    assert len(names) == len(list(DATA.glob("markdown/*.md"))) >= 16


@pytest.mark.parametrize(
    ("text", "links"),
    [
        ("[a *b* `c` **d**](https://a.test/)", [("a b c d", "https://a.test/")]),
        ("[a\n  b](https://a.test/)", [("a b", "https://a.test/")]),
        ("[A&amp;B \\[x\\]](https://a.test/?a=1&amp;b=2)", [("A&B [x]", "https://a.test/?a=1&b=2")]),
        ("[p](https://a.test/x_(y))", [("p", "https://a.test/x_(y)")]),
        ("[p](<https://a.test/x y>)", [("p", "https://a.test/x%20y")]),
        ("[a](HTTPS://a.test/)", [("a", "HTTPS://a.test/")]),
        ("- [a](https://a.test/1): note\n  - b", [("a", "https://a.test/1")]),
        ("| h |\n|---|\n| [t](https://a.test/t) |", [("t", "https://a.test/t")]),
        ("> # [q](https://a.test/q)", [("q", "https://a.test/q")]),
        ("[<b>x</b> y](https://a.test/)", [("x y", "https://a.test/")]),
        ("[x < y & z](https://a.test/)", [("x < y & z", "https://a.test/")]),
    ],
)  # fmt: skip
def test_r9_6_title_and_url(text: str, links: list[tuple[str, str]]) -> None:
    assert markdown_links(text) == links


@pytest.mark.parametrize(
    "text",
    [
        "`[a](https://a.test/)`",
        "```\n[a](https://a.test/)\n```",
        "    [a](https://a.test/)",
        "<https://a.test/>",
        "https://a.test/",
        "[a][r]\n\n[r]: https://a.test/",
        '<a href="https://a.test/">a</a>',
        "<!-- [a](https://a.test/) -->",
        "\\[a](https://a.test/)",
        "[a](//a.test/)",
        "[a](https:///nohost)",
        "[a](http://[::1/)",
        "[a](javascript:alert(1))",
        "[a](data:text/html,x)",
        "[a](#here)",
        "",
    ],
)
def test_r9_6_not_an_absolute_inline_link(text: str) -> None:
    assert markdown_links(text) == []


def test_r9_6_first_place_and_first_words_are_kept() -> None:
    text = "[![pic](https://a.test/p.png)](https://a.test/1) [B](https://b.test/) [A](https://a.test/1)"
    assert markdown_links(text) == [("pic", "https://a.test/1"), ("B", "https://b.test/")]
    assert markdown_links("[](https://a.test/) [A](https://a.test/)") == [("A", "https://a.test/")]


@pytest.mark.parametrize(
    "piece",
    [
        "[",
        "![",
        "[a](",
        "*a _b ",
        "> ",
        "`` ` ",
        "<a ",
        "[a](<",
        "&#",
        "\\[",
        "- a\n ",
        "\0",
        "\ud800",
    ],
)
def test_hostile_markdown_gives_a_list(piece: str) -> None:
    text = "[ok](https://a.test/)\n\n" + piece * 5_000
    assert ("ok", "https://a.test/") in markdown_links(text)


def test_only_the_start_of_a_huge_markdown_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "MAX_MARKDOWN", 30)
    text = "[a](https://a.test/)" + " " * 20 + "[b](https://b.test/)"
    assert markdown_links(text) == [("a", "https://a.test/")]


@settings(max_examples=60)
@given(st.text(alphabet="[]()<>!*_`\\ \nah:/.#&;\"'", max_size=200))
def test_every_link_is_absolute_and_unique(text: str) -> None:
    urls = [url for _, url in markdown_links(text + "[x](http://h)")]
    assert len(urls) == len(set(urls))
    assert all(url.lower().startswith(("http://", "https://")) for url in urls)


RSS = b"<?xml version='1.0'?>\n<!-- c -->\n<rss version='2.0'>"
JSON_FEED = b'{"title": "t", "version": "https://jsonfeed.org/version/1.1"}'


@pytest.mark.parametrize(
    ("content_type", "body", "kind"),
    [
        ("text/markdown; charset=utf-8", b"# x", "markdown"),
        ("Text/X-Markdown", b"<html>", "markdown"),
        ("text/html", b"# [a](https://a.test/)", "html"),
        ("text/plain", b"# [a](https://a.test/)", "plain"),
        ("text/plain", b"<!DOCTYPE html><p>", "html"),
        ("text/plain", b"<p align=center>", "plain"),
        (None, b"# x", "other"),
        (None, b"\n <HTML>", "html"),
        ("application/rss+xml", b"<html>", "feed"),
        ("application/atom+xml;type=feed", b"", "feed"),
        ("text/html", RSS, "feed"),
        ("text/xml", RSS, "feed"),
        ("application/octet-stream", RSS.decode().encode("utf-16"), "feed"),
        ("application/xml", b"<rdf:RDF>", "feed"),
        ("application/xml", b"<a:feed xmlns:a='http://www.w3.org/2005/Atom'>", "feed"),
        ("application/xml", b"<?a href='b>c'?><!-- <html> --><feed>", "feed"),
        ("application/xml", b"<?it's?><?xml version='1.0'><rss a='b'>", "feed"),
        ("application/xml", b"<urlset>", "sitemap"),
        ("text/plain", b"<?xml version='1.0'?><s:sitemapindex>", "sitemap"),
        ("application/x-cdf", b"<!DOCTYPE CHANNEL SYSTEM 'c.dtd'><CHANNEL HREF='/'>", "feed"),
        # A script has printed a notice before its document, and sent no header of its own.
        ("text/html", NOTICE + b"<?xml version='1.0'?>\n<urlset>", "sitemap"),
        (None, NOTICE + b"<?xml version='1.0'?><!-- a --><sitemapindex>", "sitemap"),
        ("text/html", b"\nWarning: x in /y.php on line 3\n<?xml version='1.0'?><rss>", "feed"),
        ("application/xml", NOTICE * 200 + b"<?xml version='1.0'?><feed>", "feed"),
        ("text/html", b"<html>" + NOTICE + b"<?xml version='1.0'?><rss>", "html"),
        ("text/html", NOTICE + b"<?xml version='1.0'?><svg>", "html"),
        ("text/html", NOTICE + b"<rss>", "html"),
        ("text/plain", b"# How to\n<?xml version='1.0'?><rss>", "plain"),
        ("text/markdown", b"# How to\n<?xml version='1.0'?><rss>", "markdown"),
        ("application/octet-stream", b"\x1f\x8b\x08", "gzip"),
        ("application/xml", b"<opml>", "other"),
        ("application/feed+json", b"{}", "json_feed"),
        ("application/json", JSON_FEED, "json_feed"),
        ("application/json", b'{"version": "https://api.test/version/1"}', "other"),
        ("application/json", b'{"a": "\\"version\\": \\"https://jsonfeed.org/version/1"}', "other"),
        ("application/pdf", b"%PDF", "other"),
        ("image/svg+xml", b"<svg/>", "other"),
        ("", b"", "other"),
    ],
)  # fmt: skip
def test_r9_3_representation(content_type: str | None, body: bytes, kind: str) -> None:
    assert representation(content_type, body) == kind


def test_r9_4_order() -> None:
    steps = plan("https://a.test/blog/?p=1", "https://f.test/feed")
    assert [(step.kind, step.url) for step in steps] == [
        ("feed", "https://f.test/feed"),
        ("page", "https://a.test/blog/?p=1"),
        ("llms", "https://a.test/llms.txt"),
    ]


def test_r9_4_no_step_is_taken_twice() -> None:
    def kinds(url: str, feed: str | None) -> list[str]:
        return [step.kind for step in plan(url, feed)]

    assert kinds("https://a.test/feed", "https://a.test/feed") == ["feed", "llms"]
    assert kinds("https://a.test/llms.txt", None) == ["llms"]
    assert kinds("https://a.test:8443/x", None) == ["page", "llms"]


def test_r9_2_t37_pages_are_asked_for_markdown_first() -> None:
    (page, llms) = plan("https://a.test:8443/x", None)
    assert page.accept == ACCEPT_SOURCE
    assert page.accept.startswith("text/markdown, application/atom+xml, ")
    page = plan("https://a.test/x", "https://a.test/feed")[1]
    assert page.accept == "text/markdown, text/html;q=0.8, */*;q=0.1"
    assert llms.url == "https://a.test:8443/llms.txt"


@pytest.mark.parametrize(
    ("body", "content_type", "text"),
    [
        ("é".encode(), None, "é"),
        ("\ufeffé".encode(), "text/markdown", "é"),
        ("é".encode("latin-1"), "text/markdown; charset=ISO-8859-1", "é"),
        ("é".encode("latin-1"), "text/markdown; charset=utf-8", "\ufffd"),
        (b"x", "text/plain; charset=no-such", "x"),
        (b"x", "text/plain; charset=zlib", "x"),
        (b"a-\xff", "text/plain; charset=punycode", "a-\ufffd"),
        (b"x", "text/plain; charset=undefined", "x"),
    ],
)
def test_text_of(body: bytes, content_type: str | None, text: str) -> None:
    assert text_of(body, content_type) == text


def test_suggested_feeds() -> None:
    headers = [
        '<https://a.test/h.xml>; rel="alternate"; type="application/rss+xml", </s>; rel=preload',
        '<https://a.test/other>; rel="next"',
    ]
    page = (
        '<html><head><link rel="alternate" type="application/atom+xml" href="/atom.xml">'
        '<LINK REL=alternate TYPE="application/feed+json" HREF=feed.json>'
        '<link rel="alternate" hreflang="de" href="/de"><link rel=stylesheet href=x.css>'
        '<link rel="alternate" type="application/rss+xml" href="https://a.test/h.xml">'
    )
    assert suggested_feeds(headers, page, "https://a.test/x/") == [
        "https://a.test/h.xml",
        "https://a.test/atom.xml",
        "https://a.test/x/feed.json",
    ]
    unreadable = "<link rel=alternate type=application/rss+xml href='http://[x'><![-"
    assert suggested_feeds([], unreadable, "https://a.test/") == []


@pytest.mark.parametrize(
    ("base", "feed"),
    [
        ('<base href="https://cdn.test/x/">', "https://cdn.test/x/feed"),
        ('<base href="/y/">', "https://a.test/y/feed"),
        ('<base target="_blank"><base href="/y/"><base href="/z/">', "https://a.test/y/feed"),
        ('<base href="">', "https://a.test/p/feed"),
        ('<base href="ftp://a.test/">', "https://a.test/p/feed"),
        (f"<script>{'x' * 70_000}</script>", "https://a.test/p/feed"),
    ],
)
def test_a_suggested_feed_is_resolved_against_the_base_of_its_page(base: str, feed: str) -> None:
    link = '<link rel="alternate" type="application/atom+xml" href="feed">'
    assert suggested_feeds([], f"<head>{base}{link}</head>", "https://a.test/p/") == [feed]


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("  a\n\tb ", "a b"),
        ("<p>a</p><p>b</p>", "a b"),
        ("a<b>b</b>c", "abc"),
        ("1 < 2 > 0", "1 < 2 > 0"),
        ("&amp;lt;", "&lt;"),
        ("a<!-- no -->b", "ab"),
        ("<style>p{}</style>x<script>alert('<b>')</script>", "x"),
        ("\x00\x07\u202eabc\ud800", "abc"),
        ("\u06a9\u200c\u0647", "\u06a9\u200c\u0647"),
    ],
)
def test_plain_text(markup: str, text: str) -> None:
    assert plain_text(markup) == text


#: Each bidirectional control, and its escapes.
BIDIRECTIONAL = [
    (chr(code), "".join(f"%{octet:02X}" for octet in chr(code).encode()))
    for code in (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
]


@pytest.mark.parametrize(
    ("url", "usable"),
    [
        (" https://a.test/x\n", "https://a.test/x"),
        ("https://a.test/a b", "https://a.test/a%20b"),
        ("https://user:word@a.test/x@y", "https://a.test/x@y"),
        ("https://a.test/\x00", None),
        ("mailto:x@a.test", None),
        ("/x", None),
        ("http://", None),
        ("https://a.test/".ljust(2048, "a"), "https://a.test/".ljust(2048, "a")),
        ("https://a.test/".ljust(2049, "a"), None),
        ("https://a.test/".ljust(5_000_000, "a"), None),
        *((f"https://a.test/1{mark}2", f"https://a.test/1{code}2") for mark, code in BIDIRECTIONAL),
    ],
)
def test_absolute_http_url(url: str, usable: str | None) -> None:
    assert absolute_http_url(url) == usable


def test_utc_iso() -> None:
    east = timezone(timedelta(hours=2))
    assert utc_iso(datetime(2026, 5, 23, 2, tzinfo=east)) == "2026-05-23T00:00:00Z"
    assert utc_iso(datetime(2026, 5, 23, 0, 0, 0, 999, tzinfo=UTC)) == "2026-05-23T00:00:00Z"
    assert utc_iso(datetime(2026, 5, 23)) == "2026-05-23T00:00:00Z"
    assert utc_iso(datetime(1, 1, 1, tzinfo=east)) is None


#: Documents with two links, by their types.
TWO_LINKS = {
    "application/rss+xml": (
        "<rss version='2.0'><channel><item><link>{}</link>"
        "<enclosure url='https://cdn.test/1.mp3'/></item>"
        "<item><link>{}</link></item></channel></rss>"
    ),
    "application/atom+xml": (
        "<feed xmlns='http://www.w3.org/2005/Atom'><entry><link href='{}'/></entry>"
        "<entry><link href='{}'/></entry></feed>"
    ),
    "application/feed+json": (
        '{{"version": "https://jsonfeed.org/version/1.1", "items": ['
        '{{"url": "{}", "external_url": "https://c.test/"}}, {{"url": "{}"}}]}}'
    ),
    "application/xml": "<urlset><url><loc>{}</loc></url><url><loc>{}</loc></url></urlset>",
    "text/markdown": "[a]({}) [b]({})",
}


@pytest.mark.parametrize("content_type", TWO_LINKS)
def test_a_link_of_any_length_is_left_out_and_counted(content_type: str) -> None:
    """It is never cut, and no other link of its entry, for example a sound, stands in for it."""
    for size in (2049, 900_000):
        long = "https://a.test/".ljust(size, "a")
        body = TWO_LINKS[content_type].format(long, "https://b.test/").encode()
        kind = representation(content_type, body)
        found = formats.links_of(kind, body, content_type, "https://s.test/")
        assert [entry.url for entry in found.entries] == ["https://b.test/"]
        assert "1 " in found.note
