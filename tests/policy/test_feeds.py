"""R9: feeds as publishers serve them. Each file of tests/data/feeds has its answer beside it."""

from __future__ import annotations

import builtins
import gzip
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
from scrapy_walsh.policy.formats import feeds
from scrapy_walsh.policy.formats import representation as formats
from scrapy_walsh.policy.formats.representation import is_html
from scrapy_walsh.policy.formats.text import Entry

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


def read_feed(body: bytes, content_type: str | None = RSS, url: str = URL) -> list[Entry]:
    return list(feeds.read_feed(body, content_type, url).entries)


def rss(item: str) -> bytes:
    """A feed with one item, whose title is ``t`` and whose link is ``/1``."""
    item = f"<item><title>t</title><link>/1</link>{item}</item>"
    return f'<rss version="2.0"><channel>{item}</channel></rss>'.encode()


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


def test_corpus_is_complete() -> None:
    files = [path for path in FEEDS.iterdir() if not path.name.endswith(".expected.json")]
    assert len(files) == len(EXPECTED) >= 25


@pytest.mark.slow
@pytest.mark.parametrize(
    ("item_ends", "count"),
    [("</item>", 3_000), ("</item>\n&nbsp;<bad", 1_000)],
    ids=["clean", "malformed"],
)
def test_every_entry_of_a_long_feed(item_ends: str, count: int) -> None:
    item = "<item><title>T {0}</title><link>https://t.example/{0}</link>"
    body = "".join(item.format(n) + "</item>" for n in range(count - 1)) + item.format(count - 1)
    feed = f'<rss version="2.0"><channel>{body}{item_ends}</channel></rss>'.encode()
    entries = read_feed(feed, RSS, URL)
    assert len(entries) == count
    assert entries[-1] == Entry(f"T {count - 1}", f"https://t.example/{count - 1}", None)


def test_nothing_is_opened_or_asked(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_hostile_input_ends_in_an_answer(body: bytes) -> None:
    try:
        assert read_feed(body, None, URL) == []
    except DocumentInvalid as error:
        assert URL in str(error)  # noqa: PT017


@settings(max_examples=40, derandomize=True)
@given(st.sampled_from(EXPECTED), st.integers(0, 4000), st.sampled_from(SPLICES))
def test_any_damage_gives_entries_or_document_invalid(
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
def test_document_type_is_found_in_any_case(spelling: Callable[[str], str]) -> None:
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
def test_a_guid_that_is_no_url_is_no_link(inside: str, link: str | None) -> None:
    body = f"<rss version='2.0'><channel><item><title>t</title>{inside}</item></channel></rss>"
    assert [entry.url for entry in read_feed(body.encode(), RSS, URL)] == ([link] if link else [])


@pytest.mark.parametrize("doctype", ["<!DOCTYPE html>", "<?xml version='1.0'?><!doctype HTML >"])
def test_a_feed_below_the_document_type_of_html_is_read(doctype: str) -> None:
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


def test_entities_in_cdata_are_text() -> None:
    body = (
        b"<rss version='2.0'><channel><item><link>https://a.example/</link>"
        b"<title>XML tips</title><description><![CDATA[<!DOCTYPE x [<!ENTITY a 'b'>]>]]>"
        b"</description></item></channel></rss>"
    )
    assert read_feed(body, RSS, URL) == [Entry("XML tips", "https://a.example/", None)]


# -- titles: text where the format says text ------------------------------------------------


@pytest.mark.parametrize(
    ("feed", "title"),
    [
        ("<title>Fix Vec&lt;T&gt; leak</title>", "Fix Vec<T> leak"),
        ('<title type="text">A &lt;b&gt; tag</title>', "A <b> tag"),
        ('<title type="html">A &lt;b&gt;bold&lt;/b&gt; word</title>', "A bold word"),
        ('<title type="xhtml"><div xmlns="http://www.w3.org/1999/xhtml">A <b>b</b></div></title>',
         "A b"),
        ("<title>AT&amp;amp;T</title>", "AT&amp;T"),
    ],
)  # fmt: skip
def test_r9_a_title_of_atom_is_text_unless_its_type_says_markup(feed: str, title: str) -> None:
    """RFC 4287, 3.1.1."""
    entry = f'<entry>{feed}<link href="https://s.example/1"/></entry>'
    body = f'<feed xmlns="http://www.w3.org/2005/Atom">{entry}</feed>'.encode()
    (read,) = read_feed(body, "application/atom+xml")
    assert read.title == title


@pytest.mark.parametrize(
    ("title", "plain"),
    [
        ("Fix Vec&lt;T&gt; leak", "Fix Vec<T> leak"),
        ("<![CDATA[HashMap<String, Vec<u8>>]]>", "HashMap<String, Vec<u8>>"),
        ("if x &lt; 3 and y &gt; 4", "if x < 3 and y > 4"),
        ("A &lt;b class='x'&gt;bold&lt;/b&gt; word", "A bold word"),
        ("One&lt;br/&gt;two", "One two"),
        ("&lt;em&gt;AT&amp;amp;T&lt;/em&gt;", "AT&T"),
    ],
)
def test_r9_in_rss_only_elements_of_html_are_markup(title: str, plain: str) -> None:
    body = f'<rss version="2.0"><channel><item><title>{title}</title><link>/1</link></item>'
    (read,) = read_feed(f"{body}</channel></rss>".encode())
    assert read.title == plain


def test_r9_a_title_of_a_json_feed_is_text() -> None:
    """JSON Feed 1.1: ``title`` is plain text."""
    item = {"id": "1", "url": "https://s.example/1", "title": "Vec<b> &amp; more"}
    body = {"version": "https://jsonfeed.org/version/1.1", "items": [item]}
    (read,) = read_feed(json.dumps(body).encode(), "application/feed+json")
    assert read.title == "Vec<b> &amp; more"


# -- links ----------------------------------------------------------------------------------


def test_r9_entries_without_a_link_are_counted() -> None:
    link = "<item><link>https://s.example/1</link></item>"
    body = f'<rss version="2.0"><channel>{link}<item/><item><link>mailto:a</link></item>'
    links = feeds.read_feed(f"{body}</channel></rss>".encode(), RSS, URL)
    assert [entry.url for entry in links.entries] == ["https://s.example/1"]
    assert (links.linkless, links.note) == (2, "2 entries without a link")


@pytest.mark.parametrize(
    ("item", "url"),
    [
        ('<enclosure url="https://cdn.example/1.mp3" type="audio/mpeg" length="9"/>',
         "https://cdn.example/1.mp3"),
        # The picture of an episode is not the episode.
        ('<enclosure url="/1.jpg" type="image/jpeg"/><enclosure url="/1.mp3" type="audio/mpeg"/>',
         "https://news.example/1.mp3"),
        ('<enclosure url="/1.jpg" type="image/jpeg"/>', "https://news.example/1.jpg"),
        ('<enclosure url="/app-2.zip" sparkle:version="2" type="application/octet-stream"/>',
         "https://news.example/app-2.zip"),
        ('<guid isPermaLink="false">a-1</guid><enclosure url="https://cdn.example/2.mp3"/>',
         "https://cdn.example/2.mp3"),
        ('<link>https://s.example/1</link><enclosure url="https://cdn.example/1.mp3"/>',
         "https://s.example/1"),
    ],
)  # fmt: skip
def test_r9_an_enclosure_stands_in_for_a_link(item: str, url: str) -> None:
    space = 'xmlns:sparkle="http://www.andymatuschak.org/xml-namespaces/sparkle"'
    body = f'<rss version="2.0" {space}><channel><item><title>t</title>{item}</item></channel>'
    assert [entry.url for entry in read_feed(f"{body}</rss>".encode())] == [url]


def test_r9_an_attachment_stands_in_for_a_link() -> None:
    items = [
        {"id": "1", "attachments": [{"url": "https://cdn.example/1.mp3"}]},
        {"id": "2", "attachments": [{"mime_type": "audio/mpeg"}, "3", {"url": "/2.mp3"}]},
        {"id": "3", "attachments": {"url": "https://cdn.example/3.mp3"}},
    ]
    body = json.dumps({"version": "https://jsonfeed.org/version/1.1", "items": items}).encode()
    links = feeds.read_feed(body, "application/feed+json", URL)
    urls = [entry.url for entry in links.entries]
    assert urls == ["https://cdn.example/1.mp3", "https://news.example/2.mp3"]
    assert links.linkless == 1


@pytest.mark.parametrize(
    ("entry", "urls"),
    [
        ("<id>https://s.example/1</id>", []),
        ('<id>https://s.example/1</id><link href="/2"/>', ["https://news.example/2"]),
        ('<link href="/2"/><id>https://s.example/1</id>', ["https://news.example/2"]),
        ('<id>https://s.example/1</id><link rel="enclosure" href="/e"/>',
         ["https://news.example/e"]),
        ('<link href=""/>', []),
        ("<link href = ' ' /><link rel='enclosure' href='/e'/>", ["https://news.example/e"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("space", ["http://www.w3.org/2005/Atom", "http://purl.org/atom/ns#"])
def test_r9_an_entry_of_atom_has_the_links_that_it_says(
    entry: str, urls: list[str], space: str
) -> None:
    """RFC 4287, 4.2.6: the id of an entry must not be assumed to be a link."""
    body = f'<feed xmlns="{space}"><entry><title>t</title>{entry}</entry></feed>'.encode()
    links = feeds.read_feed(body, "application/atom+xml", URL)
    assert [read.url for read in links.entries] == urls
    assert links.linkless == 1 - len(urls)


def test_r9_a_link_to_nothing_in_a_text_stays() -> None:
    title = "<title><![CDATA[how to write href='']]></title><link>/2</link>"
    body = f"<rss version='2.0'><channel><item>{title}</item></channel></rss>".encode()
    assert read_feed(body) == [Entry("how to write href=''", "https://news.example/2", None)]


def test_r9_a_relation_may_have_its_long_name() -> None:
    """RFC 4287, 4.2.7.2."""
    relation = "http://www.iana.org/assignments/relation/"
    entry = f'<link rel="{relation}self" href="/no"/><link rel="{relation}alternate" href="/1"/>'
    body = f'<feed xmlns="http://www.w3.org/2005/Atom"><entry>{entry}</entry></feed>'.encode()
    assert [entry.url for entry in read_feed(body)] == ["https://news.example/1"]


# -- damage ---------------------------------------------------------------------------------


def test_r9_a_feed_that_is_cut_off_says_so() -> None:
    body = rss("")
    assert not feeds.read_feed(body, RSS, URL).ends_early
    assert not feeds.read_feed(body + b"\n<!-- cached -->\n", RSS, URL).ends_early
    links = feeds.read_feed(body.removesuffix(b"</channel></rss>"), RSS, URL)
    assert (links.ends_early, links.note) == (True, "it ends early, after 1 entry")


@pytest.mark.parametrize(
    ("end", "ends_early"),
    [
        (b"</channel></rss><script>/* of a host */</script>", False),
        (b"</channel></rss>\nFatal error: out of memory", False),
        (b"</channel></RSS >", False),
        (b"<item><title><![CDATA[how to close </rss>]]></title><li", True),
        (b"<item><title><![CDATA[how to close </rss>", True),
        (b"<!-- </channel></rss> -->", True),
    ],
)
def test_r9_the_end_of_a_feed_is_the_tag_of_its_root(end: bytes, ends_early: bool) -> None:
    links = feeds.read_feed(rss("").removesuffix(b"</channel></rss>") + end, RSS, URL)
    assert (links.ends_early, len(links.entries)) == (ends_early, 1)


ATOM = "http://www.w3.org/2005/Atom"
RSS_11 = "http://purl.org/net/rss1.1#"
ONE = "<title>t</title><link>/1</link>"


@pytest.mark.parametrize(
    ("feed", "ends_early", "urls"),
    [
        ("<CHANNEL HREF='/'><ITEM HREF='/1'><TITLE>t</TITLE></ITEM></CHANNEL>", False, ["/1"]),
        ("<CHANNEL HREF='/'><ITEM HREF='/1'><TITLE>t</TITLE></ITEM>", True, ["/1"]),
        (f"<!DOCTYPE channel><Channel xmlns='{RSS_11}'><item>{ONE}</item></Channel>",
         False, ["/1"]),
        (f"<a:feed xmlns:a='{ATOM}'><a:entry><a:link href='/1'/></a:entry></a:feed>",
         False, ["/1"]),
        (f"<a:feed xmlns:a='{ATOM}'><a:entry><a:link href='/1'/></a:entry></feed>",
         True, ["/1"]),
        ("<rss version='2.0'><channel><item><link>/1</link></item></channel>", True, ["/1"]),
        ("<rss version='2.0'/>", False, []),
        ("<feed xmlns='http://www.w3.org/2005/Atom' />", False, []),
    ],
)  # fmt: skip
def test_r9_each_kind_of_feed_has_its_own_end(feed: str, ends_early: bool, urls: list[str]) -> None:
    body = f"<?xml version='1.0'?>{feed}".encode()
    assert formats.representation("application/xml", body) == formats.FEED
    links = feeds.read_feed(body, "application/xml", URL)
    assert [entry.url for entry in links.entries] == [urljoin(URL, url) for url in urls]
    assert links.ends_early == ends_early


ITEM = (
    "<guid>/guid</guid><enclosure url='/e'/><link>/%d</link><title>Title %d</title>"
    "<pubDate>Fri, 10 Jan 2020 14:33:00 GMT</pubDate>"
)
ENTRY = (
    '<link rel="enclosure" href="/e"/><link href="/%d"/><title>Title %d</title>'
    "<updated>2020-01-10T14:33:00Z</updated>"
)
WHOLE = {
    "rss": "<rss version='2.0'><channel>{}</channel></rss>".format(
        "".join(f"<item>{ITEM}</item>" % (n, n) for n in (1, 2))
    ),
    "rdf": "<rdf:RDF xmlns='http://purl.org/rss/1.0/' xmlns:rdf='http://www.w3.org/1999/02/22-rdf-syntax-ns#'>{}</rdf:RDF>".format(
        "".join(f"<item>{ITEM}</item>" % (n, n) for n in (1, 2))
    ),
    "atom": "<feed xmlns='http://www.w3.org/2005/Atom'>{}</feed>".format(
        "".join(f"<entry>{ENTRY}</entry>" % (n, n) for n in (1, 2))
    ),
}


@pytest.mark.parametrize("kind", WHOLE)
def test_r9_wherever_a_feed_is_cut_off_no_title_or_link_is_another(kind: str) -> None:
    text = WHOLE[kind]
    whole = read_feed(text.encode())
    assert len(whole) == 2
    counts = []
    for length in range(text.index(">") + 1, len(text)):
        links = feeds.read_feed(text[:length].encode(), RSS, URL)
        for entry, full in zip(links.entries, whole, strict=False):
            assert (entry.title, entry.url) == (full.title, full.url), text[:length]
            assert entry.published in (full.published, None), text[:length]
        assert links.ends_early
        counts.append(len(links.entries))
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (0, 2)


DAMAGED = (
    '<rss version="2.0"><channel><item><title>Żółw %s</title><link>/1</link></item></channel></rss>'
)


@pytest.mark.parametrize("charset", ["; charset=utf-8", "; charset=iso-8859-1", ""])
@pytest.mark.parametrize("damage", [b"\xc5", b"\xff", b"\xe2\x82", b"\xf0\x9f"])
def test_r9_a_damaged_octet_stays_where_it_is(charset: str, damage: bytes) -> None:
    body = (DAMAGED % "|").encode().replace(b"|", damage)
    assert [entry.title for entry in read_feed(body, RSS + charset)] == ["Żółw \ufffd"]


@pytest.mark.parametrize("charset", ["; charset=utf-8", ""])
def test_r9_an_octet_that_was_damaged_before_is_a_character(charset: str) -> None:
    """The publisher's own U+FFFD are no damage of this answer."""
    body = (DAMAGED % "\ufffd\ufffd|\ufffd").encode().replace(b"|", b"\xff")
    (entry,) = read_feed(body, RSS + charset)
    assert entry.title == "Żółw " + 4 * "\ufffd"


@pytest.mark.parametrize("encoding", ["shift_jis", "euc-kr", "gb2312", "koi8-r", "big5"])
def test_r9_a_damaged_octet_keeps_the_declared_encoding(encoding: str) -> None:
    title = {"shift_jis": "日本語", "euc-kr": "한국어", "koi8-r": "русский"}.get(
        encoding, "中文中文"
    )
    text = f"<?xml version='1.0' encoding='{encoding}'?>{DAMAGED}".replace("Żółw %s", title)
    body = text.encode(encoding).replace(b"</title>", b"\xff</title>")
    (entry,) = read_feed(body, "application/rss+xml")
    assert entry.title.startswith(title)


def test_r9_a_link_with_a_damaged_octet_is_no_link() -> None:
    body = b'<rss version="2.0"><channel><item><link>https://s.example/caf\xc3</link></item>'
    links = feeds.read_feed(body + b"</channel></rss>", RSS + "; charset=utf-8", URL)
    assert (links.entries, links.linkless) == ((), 1)


def test_r9_a_damaged_octet_in_a_json_feed() -> None:
    items = b'[{"url": "/1", "title": "a\xff"}]'
    body = b'{"version": "https://jsonfeed.org/version/1.1", "items": ' + items + b"}"
    assert [entry.title for entry in read_feed(body, "application/feed+json")] == ["a\ufffd"]


# -- packed ---------------------------------------------------------------------------------


def test_r9_a_feed_may_be_packed() -> None:
    assert read_feed(gzip.compress(rss("")), "application/gzip") == read_feed(rss(""))
    with pytest.raises(DocumentInvalid, match="cut off"):
        read_feed(gzip.compress(rss(""))[:-9])


# -- dates ----------------------------------------------------------------------------------


def test_r9_of_several_dates_the_publication_counts() -> None:
    update = "<dc:date>2021-01-01</dc:date>"
    assert read_feed(rss(f"<pubDate>2020-01-10</pubDate>{update}"))[0].published == (
        "2020-01-10T00:00:00Z"
    )
    assert read_feed(rss(f"<pubDate>soon</pubDate>{update}"))[0].published is None
