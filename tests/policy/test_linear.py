"""What a server sends is read in linear time: twice the length takes less than three times as long.

Processor time of this thread, the least of five, so that a busy machine does not matter.
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
from scrapy_walsh.policy import (
    backoff,
    feeds,
    formats,
    freshness,
    hosts,
    packing,
    robots,
    schema,
    sitemaps,
    urls,
    usage,
)
from scrapy_walsh.policy.text import absolute_http_url, plain_text

if TYPE_CHECKING:
    from collections.abc import Callable

URL = "http://hostile.test/"
TOKEN = "examplebot"
#: Seconds of processor time from which two lengths are compared, and the longest that is tried.
_LEAST, _LONGEST = 0.010, 64 * 1024
#: The length with which the search for the first one begins.
_FIRST = 4096

#: What a text begins with, and what is repeated after it: what makes a parser begin something,
#: look ahead to its end, or go back.
SHAPES: dict[str, tuple[str, str]] = {
    "letters": ("", "a"),
    "blanks": ("", " "),
    "tag-without-end": ("<", "a"),
    "tags-begun": ("", "<a "),
    "attribute-without-end": ("<a b=", "c "),
    "comment-without-end": ("", "<!-- "),
    "doctypes": ("", "<!DOCTYPE"),
    "section-without-end": ("", "<![CDATA[]] "),
    "scripts": ("", "<script"),
    "entities": ("", "&amp"),
    "brackets": ("", "["),
    "links-begun": ("", "[a]("),
    "stars": ("", "*a_ "),
    "backquotes": ("", "`a``b"),
    "backslashes": ("", "\\"),
    "quotes": ("", ';a="'),
    "digits": ("", "1"),
    "names": ("", "aa."),
    "rules": ("", "Disallow: /*a*b$\n"),
    "dates": ("", "Sun, 06 Nov 1994 "),
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
    schema.is_tame(body, None)
    schema.parse_blocklist(body, None, URL)


def _fields(text: str) -> None:
    names = ("content-usage", "x-robots-tag", "tdm-reservation", "tdm-policy", "link")
    usage.of_response({name: [text, f"<{text}", f'<a>; rel="{text}'] for name in names}, URL, TOKEN)


def _tdmrep(text: str) -> None:
    rules = usage.TdmRules(text.encode(), URL)
    rules.said(URL + "a/b")
    rules = usage.TdmRules(json.dumps([{"location": f"/{text}"}]).encode(), URL)
    rules.said(URL + text)


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
        formats.text_of(b"a", kind)


#: Each reader of what a server or the operator's document says.
PARSERS: dict[str, Callable[[str], object]] = {
    "feed": _xml(feeds.read_feed, "<rss><channel><item><link>http://a.test/</link>"),
    "feed-prolog": _xml(feeds.read_feed, "<?xml version='1.0'?>"),
    "feed-title": _xml(feeds.read_feed, "<rss><channel><item><title><![CDATA["),
    "sitemap": _xml(sitemaps.read_sitemap, "<urlset><url><loc>http://a.test/</loc>"),
    "sitemap-prolog": _xml(sitemaps.read_sitemap, ""),
    "title": plain_text,
    "markdown": formats.markdown_sections,
    "markdown-link": lambda text: formats.markdown_links(f"[{text}](http://a.test/{text})"),
    "robots": _robots,
    "robots-rule": _in_robots,
    "robots-url": _url_against_rules,
    "url": _url,
    "list-entry": lambda text: _blocklist(_list(text)),
    "list-entries": lambda text: _blocklist(_many(text)),
    "list-octets": lambda text: _blocklist(text.encode()),
    "usage-fields": _fields,
    "tdmrep": _tdmrep,
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


def growth(work: Callable[[int], Callable[[], object]]) -> float:
    """How much longer *work* takes with twice the length, where it takes 10 ms.

    0 for what takes less with the longest length that is tried.
    """
    length = _FIRST
    while length <= _LONGEST:
        if seconds(work(length), 1) >= _LEAST and (single := seconds(work(length), 5)) >= _LEAST:
            twice = work(2 * length)
            once = seconds(twice, 1) / single
            return once if once < 2.5 else seconds(twice, 5) / single
        length *= 2
    return 0.0


def is_linear(work: Callable[[int], Callable[[], object]]) -> bool:
    """Whether twice the length takes less than three times as long, in one of three trials."""
    gc.collect()
    gc.disable()
    try:
        return any(growth(work) < 3 for _ in range(3))
    finally:
        gc.enable()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("parser", PARSERS)
def test_own_a_hostile_text_is_read_in_linear_time(parser: str, shape: str) -> None:
    read, (start, piece) = PARSERS[parser], SHAPES[shape]

    def work(length: int) -> Callable[[], object]:
        text = start + piece * (length // len(piece))
        return lambda: read(text)

    assert is_linear(work)


def test_own_empty_members_of_gzip_are_read_in_linear_time() -> None:
    empty = gzip.compress(b"", mtime=0)

    def work(length: int) -> Callable[[], object]:
        body = empty * (8 * length // len(empty))
        return lambda: packing.unpacked(body, length)

    assert is_linear(work)


def test_own_the_test_finds_a_square() -> None:
    assert not is_linear(lambda length: lambda: [0 for _ in range(length * length // 64)])
