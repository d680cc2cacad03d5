"""R9: feeds as publishers serve them. Each file of tests/data/feeds has its answer beside it."""

from __future__ import annotations

import builtins
import json
import socket
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_walsh.exceptions import DocumentInvalid
from scrapy_walsh.policy.formats.feeds import Entry, read_feed
from scrapy_walsh.policy.formats.representation import is_html

if TYPE_CHECKING:
    from collections.abc import Callable

FEEDS = Path(__file__).parents[1] / "data" / "feeds"
EXPECTED = sorted(FEEDS.glob("*.expected.json"))
URL = "https://news.example/feeds/latest.xml"
RSS = "application/rss+xml"
SPLICES = [
    b"<",
    b"&",
    b"]]>",
    b"<![CDATA[",
    b"<!--",
    b"\0",
    b"\xff",
    b"</item>",
    b"<title>",
    b"<?xml",
]


def _corpus_file(expected: Path) -> bytes:
    stem = expected.name.removesuffix(".expected.json")
    (found,) = (p for p in FEEDS.glob(f"{stem}.*") if p != expected and p.stem == stem)
    return found.read_bytes()


@pytest.mark.parametrize(
    "path", EXPECTED, ids=lambda path: path.name.removesuffix(".expected.json")
)
def test_r9_corpus(path: Path) -> None:
    expected = json.loads(path.read_text(encoding="utf-8"))
    arguments = (_corpus_file(path), expected["content_type"], expected["url"])
    if "error" in expected:
        with pytest.raises(DocumentInvalid, match=expected["error"]) as caught:
            read_feed(*arguments)
        assert "\n" not in str(caught.value)
        assert expected["url"] in str(caught.value)
    else:
        assert read_feed(*arguments) == [Entry(*entry) for entry in expected["entries"]]


def test_own_corpus_is_complete() -> None:
    files = [path for path in FEEDS.iterdir() if not path.name.endswith(".expected.json")]
    assert len(files) == len(EXPECTED) >= 25


@pytest.mark.slow
@pytest.mark.parametrize(
    ("item_ends", "count"),
    [("</item>", 3_000), ("</item>\n&nbsp;<bad", 1_000)],
    ids=["clean", "malformed"],
)
def test_own_every_entry_of_a_long_feed(item_ends: str, count: int) -> None:
    item = "<item><title>T {0}</title><link>https://t.example/{0}</link>"
    body = "".join(item.format(n) + "</item>" for n in range(count - 1)) + item.format(count - 1)
    feed = f'<rss version="2.0"><channel>{body}{item_ends}</channel></rss>'.encode()
    entries = read_feed(feed, RSS, URL)
    assert len(entries) == count
    assert entries[-1] == Entry(f"T {count - 1}", f"https://t.example/{count - 1}", None)


def test_own_nothing_is_opened_or_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: Any, **__: Any) -> Any:
        raise AssertionError("the reader of feeds went outside")

    for owner, name in ((builtins, "open"), (socket, "socket"), (urllib.request, "urlopen")):
        monkeypatch.setattr(owner, name, forbidden)
    for body in (b"/etc/hostname", b"file:///etc/hostname", b"http://x.example/feed"):
        with pytest.raises(DocumentInvalid, match="neither RSS nor Atom"):
            read_feed(body, RSS, URL)
    external = b'<!DOCTYPE rss SYSTEM "http://x.example/e.dtd"><rss version="2.0"><channel/></rss>'
    assert read_feed(external, RSS, URL) == []


@pytest.mark.parametrize(
    "body",
    [
        b"<!--" * 20_000,
        b"<!---->" * 20_000,
        b"<?" * 20_000,
        b"<rss version='2.0'>" + b"<a>" * 20_000,
        b"<rss version='2.0'>" + b"<![CDATA[" * 20_000,
        b"<rss version='2.0'>" + b"&" * 20_000,
        b"<rss version='2.0'>" + b"<" * 20_000,
        b"<rss version='2.0'><a " + b" ".join(b"a%d='x'" % n for n in range(20_000)) + b"/>",
        b"<?xml version='1.0' encoding='punycode'?>" + b"a-\xff" * 20_000,
        b"[" * 100_000,
        b'{"version": "https://jsonfeed.org/version/1", "items": ' + b"[" * 100_000,
    ],
    ids=lambda body: repr(body[:24]),
)
def test_own_hostile_input_ends_in_an_answer(body: bytes) -> None:
    try:
        assert read_feed(body, None, URL) == []
    except DocumentInvalid as error:
        assert URL in str(error)  # noqa: PT017


@settings(max_examples=40, derandomize=True)
@given(st.sampled_from(EXPECTED), st.integers(0, 4000), st.sampled_from(SPLICES))
def test_own_any_damage_gives_entries_or_document_invalid(
    path: Path, position: int, splice: bytes
) -> None:
    body = _corpus_file(path)
    position %= len(body) + 1
    try:
        entries = read_feed(body[:position] + splice + body[position:], None, URL)
    except DocumentInvalid as error:
        assert "\n" not in str(error)  # noqa: PT017
    else:
        assert all(entry.url.startswith(("http://", "https://")) for entry in entries)


@pytest.mark.parametrize("spelling", [str.lower, str.upper])
def test_own_document_type_is_found_in_any_case(spelling: Callable[[str], str]) -> None:
    doctype = spelling("<!doctype rss [<!entity a 'x'>]>")
    with pytest.raises(DocumentInvalid, match="its own entities"):
        read_feed(f"{doctype}<rss version='2.0'/>".encode(), RSS, URL)


@pytest.mark.parametrize(
    ("inside", "link"),
    [
        ("<guid>https://a.example/1</guid>", "https://a.example/1"),
        ("<guid>https://me:word@a.example/1</guid>", "https://a.example/1"),
        ("<guid>4711</guid>", None),
        ("<guid>tag:a.example,2026:1</guid>", None),
        ("<guid isPermaLink='true'>/4711</guid>", None),
        ("<guid isPermaLink='false'>https://a.example/1</guid>", None),
        ("<guid>4711</guid><link>/2</link>", urljoin(URL, "/2")),
        ("<link>/2</link><guid>4711</guid>", urljoin(URL, "/2")),
    ],
)
def test_own_a_guid_that_is_no_url_is_no_link(inside: str, link: str | None) -> None:
    body = f"<rss version='2.0'><channel><item><title>t</title>{inside}</item></channel></rss>"
    assert [entry.url for entry in read_feed(body.encode(), RSS, URL)] == ([link] if link else [])


@pytest.mark.parametrize("doctype", ["<!DOCTYPE html>", "<?xml version='1.0'?><!doctype HTML >"])
def test_own_a_feed_below_the_document_type_of_html_is_read(doctype: str) -> None:
    item = "<item><link>https://a.example/1</link></item>"
    body = f"{doctype}<rss version='2.0'><channel>{item}</channel></rss>".encode()
    assert [entry.url for entry in read_feed(body, RSS, URL)] == ["https://a.example/1"]
    assert is_html(None, body)  # no page is scraped because its root is called so
    for page in (f"{doctype}<html><rss/></html>", f"{doctype}<p><rss/>", doctype):
        with pytest.raises(DocumentInvalid, match="an HTML page"):
            read_feed(page.encode(), RSS, URL)
    own = body.replace(doctype.encode(), f"{doctype[:-1]}[<!ENTITY a 'b'>]>".encode())
    with pytest.raises(DocumentInvalid, match="an HTML page"):
        read_feed(own, RSS, URL)


def test_own_entities_in_cdata_are_text() -> None:
    body = (
        b"<rss version='2.0'><channel><item><link>https://a.example/</link>"
        b"<title>XML tips</title><description><![CDATA[<!DOCTYPE x [<!ENTITY a 'b'>]>]]>"
        b"</description></item></channel></rss>"
    )
    assert read_feed(body, RSS, URL) == [Entry("XML tips", "https://a.example/", None)]
