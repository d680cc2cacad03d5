"""Documents that cost a reader much: made here, since they are too large to keep."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from scrapy_walsh.policy.formats import representation as formats

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MB: Final = 1_000_000
ATOM: Final = '<feed xmlns="http://www.w3.org/2005/Atom"><title>t</title><entry>{}</entry></feed>'
RSS: Final = '<rss version="2.0"{}><channel><title>c</title>{}</channel></rss>'
LAUGHS: Final = (
    '<?xml version="1.0"?><!DOCTYPE lolz [<!ENTITY a "ha">'
    + "".join(
        f'<!ENTITY {after} "{f"&{name};" * 10}">'
        for name, after in zip("abcdefgh", "bcdefghi", strict=True)
    )
    + "]>"
)


def feed(octets: int) -> bytes:
    """A plain RSS feed of about *octets*."""
    words = "Some words of a description, with &lt;b&gt;markup&lt;/b&gt;. " * 6
    item = (
        "<item><title>Title {0}</title><link>http://news.test/{0}</link>"
        "<pubDate>Sat, 23 May 2026 10:00:00 +0200</pubDate>"
        f"<description>{words}</description></item>"
    )
    return RSS.format("", "".join(map(item.format, range(octets // len(item))))).encode()


def json_feed(octets: int) -> bytes:
    """A JSON Feed of about *octets*."""
    item = {"title": "A title", "url": "http://json.test/", "content_text": "words " * 20}
    items = [
        {**item, "url": f"http://json.test/{n}"} for n in range(octets // len(json.dumps(item)))
    ]
    return json.dumps({"version": "https://jsonfeed.org/version/1.1", "items": items}).encode()


def markdown(octets: int) -> bytes:
    """A markdown text of about *octets*."""
    line = "- [a link](http://markdown.test/{}) and *some* words of `code`\n"
    return "".join(map(line.format, range(octets // len(line)))).encode()


def nested(depth: int, tag: str) -> bytes:
    """An Atom entry with *depth* elements within each other; *tag*: of each, with attributes."""
    name = tag.split(maxsplit=1)[0]
    return ATOM.format(f"<{tag}>" * depth + f"</{name}>" * depth).encode()


def namespaces(number: int) -> bytes:
    """An RSS feed with *number* items, each of which declares a namespace of its own."""
    item = '<item xmlns:n{0}="http://n.test/{0}"><n{0}:t/><link>http://a.test/{0}</link></item>'
    return RSS.format("", "".join(map(item.format, range(number)))).encode()


def sitemap(octets: int) -> bytes:
    """A sitemap of about *octets*."""
    item = "<url><loc>http://map.test/{0}</loc><lastmod>2026-05-23</lastmod></url>"
    return f"<urlset>{''.join(map(item.format, range(octets // len(item))))}</urlset>".encode()


_CONTENT_TYPES: Final = {
    formats.SITEMAP: "application/xml",
    formats.GZIP: "application/gzip",
    formats.FEED: "application/rss+xml",
    formats.JSON_FEED: "application/feed+json",
    formats.MARKDOWN: "text/markdown",
}
_TOO_SLOW: Final = "cannot be read within"


@dataclass(frozen=True)
class Hostile:
    """A document of *kind*; ``refusal``: words of the error, None where it is read.

    ``slow``: its reader would take minutes.
    """

    name: str
    kind: str
    body: Callable[[], bytes]
    refusal: str | None = None
    costly: bool = True
    entries: int = 1

    @property
    def slow(self) -> bool:
        return self.refusal == _TOO_SLOW

    @property
    def declared_as(self) -> str:
        """The key of a source."""
        return "sitemap" if self.kind in (formats.SITEMAP, formats.GZIP) else "url"

    @property
    def content_type(self) -> str:
        return _CONTENT_TYPES[self.kind]


MEGABYTES: Final[Mapping[str, Callable[[], bytes]]] = {
    "plain feed": lambda: feed(10 * MB),
    "markdown": lambda: markdown(9 * MB),
}
_DEEP: Final = "elements nested over 500 deep"
DOCUMENTS: Final = (
    Hostile("xml:base", formats.FEED, lambda: nested(12_000, 'a xml:base="b/"'), _DEEP),
    Hostile("deep", formats.FEED, lambda: nested(100_000, "a"), _DEEP),
    Hostile("plain-500kB", formats.FEED, lambda: feed(MB // 2), entries=500),
    Hostile("json-1MB", formats.JSON_FEED, lambda: json_feed(MB), entries=4_000),
    Hostile("json-deep", formats.JSON_FEED, lambda: b'{"items":' + b"[" * MB, "nested too deep"),
    Hostile("markdown-200kB", formats.MARKDOWN, lambda: markdown(MB // 5), entries=1000),
    Hostile("brackets", formats.MARKDOWN, lambda: b"![*" * 3 * MB, _TOO_SLOW),
    Hostile("sitemap-gz", formats.GZIP, lambda: gzip.compress(sitemap(MB)), entries=7_000),
    Hostile("sitemap-bomb", formats.GZIP, lambda: gzip.compress(b" " * 60 * MB), "when unpacked"),
    Hostile("laughs", formats.FEED, lambda: LAUGHS.encode() + feed(MB), "entities", costly=False),
    Hostile("namespaces", formats.FEED, lambda: namespaces(1_000), entries=1_000),
    Hostile(
        "attributes",
        formats.FEED,
        lambda: RSS.format(" " + " ".join(f'a{n}="1"' for n in range(20_000)), "").encode(),
        "attributes",
        costly=False,
    ),
)
