"""R9: sitemaps in the shapes that publishers send, packed ones, and hostile ones."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.exceptions import DocumentInvalid, DocumentTooCostly
from scrapy_walsh.policy import packing
from scrapy_walsh.policy.formats import representation as formats
from scrapy_walsh.policy.formats import xmltext
from scrapy_walsh.policy.formats.sitemaps import MAX_ENTRIES, read_sitemap
from scrapy_walsh.policy.formats.xmltext import MAX_OCTETS
from scrapy_walsh.policy.scope import MAX_CHILDREN, Scope

if TYPE_CHECKING:
    from scrapy_walsh.policy.formats.feeds import Links

FOLDER = Path(__file__).parents[1] / "data" / "sitemaps"
FILES = sorted(FOLDER.glob("*.xml"))
URL = "http://site.test/sitemap.xml"


def urlset(*urls: str) -> bytes:
    return f"<urlset>{''.join(f'<url><loc>{url}</loc></url>' for url in urls)}</urlset>".encode()


def read(body: bytes) -> Links:
    return read_sitemap(body, "application/xml", URL)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_files(file: Path, packed: bool):
    body = file.read_bytes()
    expected = json.loads(file.with_suffix(".expected.json").read_text("utf-8"))
    body = gzip.compress(body) if packed else body
    if "error" in expected:
        with pytest.raises(DocumentInvalid, match=expected["error"]) as caught:
            read(body)
        assert str(caught.value).startswith(URL)
        assert "\n" not in str(caught.value)
        return
    found = read(body)
    entries = [[entry.title, entry.url, entry.published] for entry in found.entries]
    assert entries == expected["entries"]
    assert found.note == expected.get("note", "")
    children = None if found.children is None else list(found.children)
    assert children == expected.get("children")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-8-sig", "iso-8859-1"])
def test_any_encoding(encoding: str):
    text = f'<?xml version="1.0" encoding="{encoding.removesuffix("-sig")}"?>'
    text += "<urlset><url><loc>http://site.test/é</loc></url></urlset>"
    assert [entry.url for entry in read(text.encode(encoding)).entries] == ["http://site.test/é"]


def test_a_url_is_not_longer_than_the_protocol_has_it():
    fits = "http://site.test/".ljust(2048, "a")
    found = read(urlset(fits, fits + "a"))
    assert [entry.url for entry in found.entries] == [fits]
    assert found.note == "1 entry without a usable URL"


def test_no_more_entries_are_read_than_the_protocol_has():
    body = urlset(*(f"http://site.test/{n}" for n in range(MAX_ENTRIES + 5)))
    found = read(body)
    assert len(found.entries) == MAX_ENTRIES
    assert found.note == f"read up to {MAX_ENTRIES} entries"


def test_a_bomb_is_not_unpacked(monkeypatch: pytest.MonkeyPatch):
    """Neither as one member, nor as many small ones."""
    unpacked: list[int] = []

    class Member:
        """Notes how much is unpacked."""

        def __init__(self, wbits: int) -> None:
            self._member = zlib.decompressobj(wbits)

        def decompress(self, body: bytes, *most: int) -> bytes:
            found = self._member.decompress(body, *most)
            unpacked.append(len(found))
            return found

        def __getattr__(self, name: str) -> object:
            return getattr(self._member, name)

    monkeypatch.setattr(xmltext, "MAX_OCTETS", 1_000_000)
    monkeypatch.setattr(packing, "decompressobj", Member)
    one, many = gzip.compress(b" " * 10_000_000), gzip.compress(b" " * 400_000) * 3
    for body in (one, many):
        with pytest.raises(DocumentTooCostly, match=r"over 1000000 bytes when unpacked; not read"):
            read(body)
        assert sum(unpacked) == 1_000_001
        unpacked.clear()
    assert MAX_OCTETS == 50 * 1024**2


def test_gzip_members_follow_each_other():
    body = urlset("http://site.test/a", "http://site.test/b")
    assert len(read(gzip.compress(body[:40]) + gzip.compress(body[40:])).entries) == 2


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (gzip.compress(urlset(URL))[:-12], "its gzip data is cut off"),
        (formats.GZIP_MAGIC + b"\x08nothing", "its gzip data is damaged"),
        (gzip.compress(gzip.compress(urlset(URL))), "neither a sitemap nor a sitemap index"),
        (zlib.compress(urlset(URL)), "neither a sitemap nor a sitemap index"),
        (b"", "neither a sitemap nor a sitemap index"),
        (b"<html><body>no</body></html>", "neither a sitemap nor a sitemap index"),
        (b"<urlset><url></loc></urlset>", "its XML is broken before any entry"),
    ],
    ids=["cut off", "damaged", "packed twice", "zlib", "nothing", "a page", "broken"],
)
def test_what_is_not_a_sitemap_is_said_in_one_line(body: bytes, why: str):
    with pytest.raises(DocumentInvalid, match=why):
        read(body)


@pytest.mark.parametrize("rest", ["", "<lastmod>20", "<lastmod>2026</lastmod><news:n", "</url><ur"])
@pytest.mark.parametrize("before", ["", "<url><loc>http://a.test/first</loc></url>"])
def test_of_a_sitemap_that_is_cut_off_what_is_whole_is_kept(before: str, rest: str):
    *others, entry = read(f"<urlset>{before}<url><loc>{URL}</loc>{rest}".encode()).entries
    assert entry.url == URL
    assert len(others) == bool(before)
    with pytest.raises(DocumentInvalid, match="broken before any entry"):
        read(b"<urlset><url><loc>http://a.test/who")


def test_deep_elements_are_not_read():
    with pytest.raises(DocumentTooCostly, match="nested over 500 deep"):
        read(b"<urlset>" + b"<a>" * 600)


def test_an_entry_ends_with_its_element():
    """What one entry lacks is not taken from another, nor from an element within it."""
    body = b"<urlset><url><loc>http://a.test/</loc><lastmod>2026-01-01</lastmod></url><url><loc>http://b"
    body += (
        b".test/</loc><x><loc>http://no.test/</loc><lastmod>2025-01-01</lastmod></x></url></urlset>"
    )
    assert [(entry.url, entry.published) for entry in read(body).entries] == [
        ("http://a.test/", "2026-01-01T00:00:00Z"),
        ("http://b.test/", None),
    ]


@pytest.mark.parametrize(("given", "day"), [("2026", "2026-01-01"), ("2026-05", "2026-05-01")])
def test_a_year_or_a_month_is_its_first_day(given: str, day: str):
    body = f"<urlset><url><loc>{URL}</loc><lastmod>{given}</lastmod></url></urlset>"
    (entry,) = read(body.encode()).entries
    assert entry.published == f"{day}T00:00:00Z"


SITEMAP = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
IMAGE = 'xmlns:image="http://www.google.com/schemas/sitemap-image/1.1"'


@pytest.mark.parametrize(
    "body",
    [
        f"<urlset {SITEMAP}><sitemap><loc>http://no/</loc></sitemap><url><loc>{URL}</loc></url>",
        f"<urlset {SITEMAP} {IMAGE}><url><image:loc>http://no/</image:loc><loc>{URL}</loc></url>",
        f"<urlset><url><video:loc>http://no.test/</video:loc><loc>{URL}</loc></url>",
        f"<urlset><loc>http://no.test/</loc><url><loc>{URL}</loc></url>",
        f"<s:urlset><s:url><image:loc>http://no.test/</image:loc><s:loc>{URL}</s:loc></s:url>",
        f"<br />\n<b>Notice</b>: x\n<?xml version='1.0'?><urlset><url><loc>{URL}</loc></url>",
    ],
)
def test_r9_only_the_loc_of_an_entry_is_its_url(body: str):
    end = "</s:urlset>" if body.startswith("<s:") else "</urlset>"
    assert [entry.url for entry in read((body + end).encode()).entries] == [URL]


# -- R9.4: the order of requests ----------------------------------------------------------


def test_r9_4_a_sitemap_comes_after_a_feed_and_before_the_page():
    page, feed, sitemap = "http://s.test/", "http://s.test/feed", "http://s.test/sitemap.xml"
    steps = [(step.kind, step.url) for step in formats.plan(page, feed, sitemap)]
    assert steps == [
        ("feed", feed),
        ("sitemap", sitemap),
        ("page", page),
        ("llms", "http://s.test/llms.txt"),
    ]
    kinds = [step.kind for step in formats.plan(sitemap, None, sitemap)]
    assert kinds == ["sitemap", "llms"]


# -- R6: what an index declares -----------------------------------------------------------

INDEX = "http://site.test/index.xml"


def scope(*, children: bool = True) -> Scope:
    found = Scope()
    found.declare(INDEX)
    if children:
        found.allow_children(INDEX)
    return found


def test_r6_2_an_index_declares_nothing_unless_its_source_says_so():
    quiet = scope(children=False)
    assert not quiet.declare_child("http://site.test/a.xml", INDEX)
    assert quiet.refuses("http://site.test/a.xml") is not None


def test_an_index_declares_sitemaps_of_its_host():
    found = scope()
    assert found.declare_child("http://site.test/a.xml", INDEX)
    assert found.declare_child("https://SITE.test/b.xml", INDEX)
    assert found.refuses("http://site.test/a.xml") is None
    assert found.is_source("http://site.test/a.xml")  # R8 is about it, too


@pytest.mark.parametrize(
    "url",
    ["http://other.test/a.xml", "http://www.site.test/a.xml", "http://site.test:8080/a.xml", INDEX],
)
def test_it_declares_nothing_of_another_host(url: str):
    assert not scope().declare_child(url, INDEX)


def test_what_is_declared_so_declares_nothing():
    found = scope()
    child = "http://site.test/a.xml"
    assert found.declare_child(child, INDEX)
    assert not found.declare_child("http://site.test/b.xml", child)


def test_an_index_out_of_scope_may_declare_nothing():
    found = Scope()
    found.allow_children(INDEX)
    assert not found.declare_child("http://site.test/a.xml", INDEX)


def test_an_index_declares_a_thousand():
    found = scope()
    urls = [f"http://site.test/{n}.xml" for n in range(MAX_CHILDREN + 1)]
    assert [found.declare_child(url, INDEX) for url in urls] == [True] * MAX_CHILDREN + [False]
    assert found.declare_child(urls[0], INDEX)  # once more the same
