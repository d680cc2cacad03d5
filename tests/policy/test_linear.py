"""What a server sends is read in linear time: a text of eight times the length takes no 24 times.

Processor time of this thread, the least of some runs, so that a busy machine does not matter.
"""

from __future__ import annotations

import gc
import gzip
import json
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.exceptions import DocumentInvalid
from scrapy_walsh.policy import backoff, freshness, hosts, packing, urls
from scrapy_walsh.policy.formats import feeds, links, sitemaps
from scrapy_walsh.policy.formats import representation as formats
from scrapy_walsh.policy.formats.text import absolute_http_url, plain_text, text_of
from scrapy_walsh.policy.list import schema
from scrapy_walsh.policy.robots import file as robots
from scrapy_walsh.policy.robots import usage

if TYPE_CHECKING:
    from collections.abc import Callable

URL = "http://hostile.test/"
TOKEN = "examplebot"
#: The shorter of the two lengths; the longer is eight times as long.
_SHORT = 2048
#: How much longer the longer may take: 8 is linear, 64 is a square.
_MOST = 24
#: Seconds of processor time that need no comparison.
_LEAST = 0.004

#: What a text begins with, and what is repeated after it: what makes a parser begin something,
#: look ahead to its end, or go back.
SHAPES: dict[str, tuple[str, str]] = {
    "letters": ("", "a"),
    "blanks": ("", " "),
    "tag-without-end": ("<", "a"),
    "tags-begun": ("", "<a "),
    "comment-without-end": ("", "<!-- "),
    "doctypes": ("", "<!DOCTYPE"),
    "scripts": ("", "<script"),
    "entities": ("", "&amp"),
    "links-begun": ("", "[a]("),
    "stars": ("", "*a_ "),
    "backslashes": ("", "\\"),
    "quotes": ("", ';a="'),
    "digits": ("", "1"),
    "rules": ("", "Disallow: /*a*b$\n"),
}


def _robots(text: str) -> None:
    parsed = robots.parse_robots(text.encode(), TOKEN, URL + "robots.txt")
    parsed.decide(URL + "some/page?a=b")
    parsed.said(URL + "some/page?a=b")


def _in_robots(text: str) -> None:
    _robots(f"User-agent: *\nDisallow: /{text}\nContent-Usage: /{text} train-ai=n\nSitemap: {text}")


def _url_against_rules(text: str) -> None:
    rules = b"User-agent: *\nDisallow: /*a*b*c$\nContent-Usage: /*a*b train-ai=n\n"
    parsed = robots.parse_robots(rules, TOKEN, URL + "robots.txt")
    parsed.decide(URL + text)
    parsed.said(URL + text)


def _url(text: str) -> None:
    for url in (URL + text, f"http://{text}", f"http://{text}.test/", text):
        absolute_http_url(url)
        for read in (urls.canonical_url, urls.without_userinfo, hosts.host_of, hosts.origin):
            with suppress(ValueError):
                read(url)


def _list(entry: str) -> bytes:
    entries = [{"domain": entry}, {"domain": f"a.{entry}"}, {"domain": f"{entry}.test"}]
    return json.dumps(
        {"contract": "walsh-research-blocklist/v1", "schema": {}, "blocklist": entries}
    ).encode()


def _many(entry: str) -> bytes:
    entries = [{"domain": entry[:7], "reason": entry[:7]}] * (len(entry) // 8)
    return json.dumps(
        {
            "contract": "walsh-research-blocklist/v1",
            "schema": {"properties": {"blocklist": {"type": "array"}}},
            "blocklist": entries,
        }
    ).encode()


def _blocklist(body: bytes) -> None:
    schema.is_tame(schema.read_document(body), None)
    schema.parse_blocklist(body, None, URL)


def _fields(text: str) -> None:
    names = ("content-usage", "x-robots-tag", "tdm-reservation", "tdm-policy", "link")
    usage.of_response({name: [text, f"<{text}", f'<a>; rel="{text}'] for name in names}, URL, "Bot")


def _json(text: str) -> None:
    for body in (
        text,
        f'{{"version": "https://jsonfeed.org/version/1", "items": [{text}',
        f'{{"a{text}"',
    ):
        formats.representation("application/json", body.encode())
        with suppress(DocumentInvalid):
            feeds.read_feed(body.encode(), "application/feed+json", URL)


def _retry_after(text: str) -> None:
    for value in (text, f"Sun, {text}", f"12{text}"):
        backoff.parse_retry_after(value, 0.0)
        backoff.retry_after_floor(value, 0.0)


def _xml(read: Callable[[bytes, str, str], object], start: str) -> Callable[[str], None]:
    def parse(text: str) -> None:
        with suppress(DocumentInvalid):
            read((start + text).encode(), "application/xml", URL)

    return parse


def _declared(text: str) -> None:
    for kind in (text, f"text/html; charset={text}", f"charset{text}"):
        formats.representation(kind, text.encode())
        formats.is_html(kind, text.encode())
        text_of(b"a", kind)


#: Each reader of what a server or the operator's document says.
PARSERS: dict[str, Callable[[str], object]] = {
    "feed": _xml(feeds.read_feed, "<rss><channel><item><link>http://a.test/</link>"),
    "feed-prolog": _xml(feeds.read_feed, "<?xml version='1.0'?>"),
    "feed-title": _xml(feeds.read_feed, "<rss><channel><item><title><![CDATA["),
    "sitemap": _xml(sitemaps.read_sitemap, "<urlset><url><loc>http://a.test/</loc>"),
    "sitemap-prolog": _xml(sitemaps.read_sitemap, ""),
    "title": plain_text,
    "markdown": links.markdown_links,
    "markdown-link": lambda text: links.markdown_links(f"[{text}](http://a.test/{text})"),
    "robots": _robots,
    "robots-rule": _in_robots,
    "robots-url": _url_against_rules,
    "url": _url,
    "list-entry": lambda text: _blocklist(_list(text)),
    "list-entries": lambda text: _blocklist(_many(text)),
    "list-octets": lambda text: _blocklist(text.encode()),
    "usage-fields": _fields,
    "json-feed": _json,
    "retry-after": _retry_after,
    "duration": freshness.refresh_seconds,
    "html-head": lambda text: formats.suggested_feeds([], f"<html><head>{text}", URL),
    "link-field": lambda text: formats.suggested_feeds([text, f"<{text}", f"<a>;{text}"], "", URL),
    "content-type": _declared,
    "content-encoding": lambda text: packing.packings([text, f"gzip{text}"]),
}


def seconds(work: Callable[[], object], times: int) -> float:
    """The least processor time of some runs of *work*."""
    found = []
    for _ in range(times):
        began = time.thread_time()
        with suppress(DocumentInvalid):
            work()
        found.append(time.thread_time() - began)
    return min(found)


def is_linear(work: Callable[[int], Callable[[], object]]) -> bool:
    """Whether eight times the length takes less than ``_MOST`` as long, in one of three trials.

    What takes less than ``_LEAST`` with the longer of the two is linear enough.
    """
    gc.disable()
    try:
        short, long = work(_SHORT), work(8 * _SHORT)
        for times in (1, 2, 4):
            taken = seconds(long, times)
            if taken < max(_LEAST, _MOST * seconds(short, times)):
                return True
        return False
    finally:
        gc.enable()


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("parser", PARSERS)
def test_a_hostile_text_is_read_in_linear_time(parser: str, shape: str) -> None:
    read, (start, piece) = PARSERS[parser], SHAPES[shape]

    def work(length: int) -> Callable[[], object]:
        text = start + piece * (length // len(piece))
        return lambda: read(text)

    assert is_linear(work)


def test_empty_members_of_gzip_are_read_in_linear_time() -> None:
    empty = gzip.compress(b"", mtime=0)

    def work(length: int) -> Callable[[], object]:
        body = empty * (8 * length // len(empty))
        return lambda: packing.unpack(body, length)

    assert is_linear(work)


def test_the_test_finds_a_square() -> None:
    assert not is_linear(lambda length: lambda: [0 for _ in range(length * length // 256)])
