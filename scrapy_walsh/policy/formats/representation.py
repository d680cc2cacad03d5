"""Prefer structured formats; never scrape HTML (R9).

:func:`representation` finds the format of a response. :func:`plan` gives the order of the requests
for a source. :func:`suggested_feeds` finds the feeds that a page or its header offers, as a hint
for the operator; they are not followed. ``links`` reads the links of an answer.
"""

from __future__ import annotations

import codecs
import re
from contextlib import suppress
from html.parser import HTMLParser
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urljoin

from scrapy_walsh.policy.formats.text import links_in, resolved

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FEED: Final = "feed"
JSON_FEED: Final = "json_feed"
MARKDOWN: Final = "markdown"
HTML: Final = "html"
PLAIN: Final = "plain"
SITEMAP: Final = "sitemap"
GZIP: Final = "gzip"
OTHER: Final = "other"

# T37: to `text/markdown` alone a server may answer 406.
ACCEPT_PAGE: Final = "text/markdown, text/html;q=0.8, */*;q=0.1"
#: For a source without a declared format. Markdown and feeds are equal, because some servers have
#: only one of them, and answer 406 or HTML if we prefer the other.
ACCEPT_SOURCE: Final = (
    "text/markdown, application/atom+xml, application/rss+xml, application/feed+json, "
    "application/xml;q=0.9, text/html;q=0.8, */*;q=0.1"
)
ACCEPT_FEED: Final = (
    "application/atom+xml, application/rss+xml, application/feed+json, "
    "application/xml;q=0.9, */*;q=0.1"
)
ACCEPT_SITEMAP: Final = "application/xml, text/xml;q=0.9, application/gzip;q=0.9, */*;q=0.1"
ACCEPT_LLMS: Final = "text/markdown, text/plain;q=0.9, */*;q=0.1"

_BY_TYPE: Final = {
    "application/rss+xml": FEED,
    "application/atom+xml": FEED,
    "application/rdf+xml": FEED,
    "application/x-rss+xml": FEED,
    "text/rss+xml": FEED,
    "application/feed+json": JSON_FEED,
    "text/html": HTML,
    "application/xhtml+xml": HTML,
    "text/plain": PLAIN,
}
_BY_ROOT: Final = {
    "rss": FEED,
    "feed": FEED,
    "rdf": FEED,
    "channel": FEED,
    "html": HTML,
    "urlset": SITEMAP,
    "sitemapindex": SITEMAP,
}
#: How a body begins that is packed with gzip (RFC 1952 2.3.1).
GZIP_MAGIC: Final = b"\x1f\x8b"

# An instruction may hold ">" in quotes, and unbalanced quotes.
_INSTRUCTION: Final = rb"""<\?(?:"[^"<]*"|'[^'<]*'|[^>"'])*>|<\?[^>]*>"""
_MISC: Final = re.compile(rb"\s+|" + _INSTRUCTION + rb"|<!--.*?-->", re.DOTALL)
_ROOT: Final = re.compile(rb"<(?:!doctype\s+)?(?:[a-z_][\w.-]*:)?([a-z_][\w.-]*)", re.IGNORECASE)
_JSON_FEED: Final = re.compile(rb'"version"\s*:\s*"https?:\\?/\\?/jsonfeed\.org\\?/version\\?/1')
#: Octets of a body that are searched for its root element.
_SNIFFED: Final = 4096
#: Characters of a page that are searched for feeds, without its scripts, styles and comments.
MAX_HEAD: Final = 65_536
#: Characters of a page that are looked at: a head may have many of those.
MAX_PAGE: Final = 1_048_576
#: Up to the end of the text if it is not closed, so that its start is looked at once.
_NO_LINKS: Final = re.compile(
    r"<!--(?:.*?-->|.*)|<(script|style)\b(?:.*?</\1[^>]*>|.*)", re.IGNORECASE | re.DOTALL
)
#: The most sitemaps of a robots.txt that are suggested.
MAX_SUGGESTED: Final = 20


class Step(NamedTuple):
    """One request that may be needed for a source.

    ``kind``: ``feed``, ``sitemap``, ``page`` or ``llms``. ``accept``: the value of its Accept
    field.
    """

    kind: str
    url: str
    accept: str


def plan(url: str, feed: str | None, sitemap: str | None = None) -> tuple[Step, ...]:
    """The requests for one source in R9's order.

    They are for its declared feed, its declared sitemap, its URL and its host's llms.txt. *feed*,
    *sitemap*: their URLs, None without one. A feed has titles, and a sitemap seldom has; both were
    made for programs, which stands before what a page may be negotiated into (D26).
    """
    # D36: whatever it makes is the URL that is judged, and then sent.
    llms = urljoin(url, "/llms.txt")
    steps = [Step("feed", feed, ACCEPT_FEED)] if feed else []
    if sitemap:
        steps.append(sitemap_step(sitemap))
    if url not in (feed, sitemap, llms):
        accept = ACCEPT_PAGE if feed or sitemap else ACCEPT_SOURCE
        steps.append(Step("page", url, accept))
    return (*steps, Step("llms", llms, ACCEPT_LLMS))


def sitemap_step(url: str) -> Step:
    """The request for the sitemap *url*."""
    return Step("sitemap", url, ACCEPT_SITEMAP)


def header(message: Any, name: str) -> str | None:
    """The value of the header field *name* of a Request or Response, the last if there are more."""
    value = message.headers.get(name)
    return None if value is None else value.decode("latin-1")


def joined(headers: Any, name: str) -> str:
    """The values of the fields *name* in Scrapy's *headers*, joined by commas (RFC 9110 5.3)."""
    return b", ".join(headers.getlist(name)).decode("latin-1")


def representation(content_type: str | None, body: bytes) -> str:
    """The format of *body*: one of the constants FEED to OTHER of this module.

    Content-Type decides first. If it leaves the format open (XML, JSON, text, HTML or nothing), the
    body's root element may show a feed, a sitemap or an HTML page, and its first octets may show
    gzip. A body is markdown only if Content-Type says so (R9.3).
    """
    media_type = (content_type or "").lower()
    if "markdown" in media_type:
        return MARKDOWN
    kind = _declared(media_type)
    if kind in (FEED, JSON_FEED):
        return kind
    root = _sniff(body)
    if root is None and kind != PLAIN:
        # A script that prints a notice has often lost its Content-Type, too.
        root = _sniff(body[max(0, body.find(b"<?xml", 0, MAX_HEAD)) :])
    return root or kind or OTHER


def is_html(content_type: str | None, body: bytes, *, taken_for: bool = False) -> bool:
    """Whether *body* is an HTML page, so that to use selectors on it would be scraping (R9.1).

    The body's root element decides. If we do not know that element, a body that is not XML counts
    as a page if Content-Type says HTML. *taken_for*: whether Scrapy made an HtmlResponse of it;
    that counts like such a Content-Type.
    """
    root = _sniff(body)
    if root is not None:
        return root == HTML
    page = taken_for or _declared(content_type) == HTML
    return page and not _head(body).lstrip().startswith(b"<?xml")


def _declared(content_type: str | None) -> str | None:
    """The format that Content-Type names; None if it leaves it open."""
    return _BY_TYPE.get((content_type or "").lower().partition(";")[0].strip())


def _head(body: bytes) -> bytes:
    # Without NULs and byte order marks the ASCII part of UTF-16 and UTF-32 can be read.
    head = body[: 4 * _SNIFFED].replace(b"\0", b"")[:_SNIFFED]
    return head.removeprefix(codecs.BOM_UTF8).lstrip(b"\xff\xfe")


def _sniff(body: bytes) -> str | None:
    """The format that the root element of *body* shows, None if it shows none."""
    if body.startswith(GZIP_MAGIC):
        return GZIP
    head = _head(body)
    if head.lstrip()[:1] == b"{":
        # "version" may stand anywhere, since some publishers sort the members by name.
        return JSON_FEED if _JSON_FEED.search(body) else None
    position = 0
    while misc := _MISC.match(head, position):
        position = misc.end()
    root = _ROOT.match(head, position)
    return _BY_ROOT.get(root[1].decode().lower()) if root else None


def suggested_feeds(link_headers: Iterable[str], html: str, base: str) -> list[str]:
    """The URLs of feeds that a response offers by ``Link`` fields (RFC 8288) or in its HTML head.

    They are for the report, and are not requested. ``html``: the body of a page that was fetched
    anyway, else empty. ``base``: the response's URL.
    """
    targets = [target for target, parameters in links_in(link_headers) if _is_feed_link(parameters)]
    head = _HeadLinks()
    with suppress(AssertionError):  # what HTMLParser raises for some malformed declarations
        head.feed(_NO_LINKS.sub("", html[:MAX_PAGE])[:MAX_HEAD])
    page_base = resolved(base, head.base) or base
    urls = [resolved(base, target) for target in targets]
    urls += [resolved(page_base, target) for target in head.targets]
    return list(dict.fromkeys(url for url in urls if url))


def suggested_sitemaps(targets: Iterable[str], base: str) -> list[str]:
    """The URLs of the first sitemaps that a robots.txt names, MAX_SUGGESTED at most.

    They are for the report, and are not requested. ``base``: the URL of the robots.txt.
    """
    urls = (resolved(base, target) for target in targets)
    return list(islice(dict.fromkeys(url for url in urls if url), MAX_SUGGESTED))


def _is_feed_link(parameters: Mapping[str, str | None]) -> bool:
    relations = (parameters.get("rel") or "").lower().split()
    return "alternate" in relations and _declared(parameters.get("type")) in (FEED, JSON_FEED)


class _HeadLinks(HTMLParser):
    """Collects ``<link rel=alternate type=FEED>``, the generic feed autodiscovery of HTML.

    ``base``: the first ``<base href>``, against which they are resolved; empty without one.
    """

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.base = ""
        self.targets: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        if tag == "link" and _is_feed_link(attributes):
            self.targets.append(attributes.get("href", ""))
        elif tag == "base" and not self.base:
            self.base = attributes.get("href", "")
