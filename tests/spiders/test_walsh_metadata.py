"""R9 at work: the spider's requests, items and source report, with hand-made responses."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import sys
from collections import deque
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from scrapy import Request, signals
from scrapy.exceptions import CloseSpider, IgnoreRequest
from scrapy.http import HtmlResponse, Response, TextResponse
from scrapy.responsetypes import responsetypes
from scrapy.spidermiddlewares.httperror import HttpError
from scrapy.utils.test import get_crawler
from twisted.python.failure import Failure

from scrapy_walsh.adapters.outcomes import (
    BodyTooLarge,
    GaveUp,
    NotModified,
    Refused,
    TooManyRedirects,
)
from scrapy_walsh.adapters.sources import warn_too_long
from scrapy_walsh.policy.formats.representation import Step
from scrapy_walsh.policy.gates import Gates
from scrapy_walsh.policy.readings import Reading
from scrapy_walsh.policy.verdict import Verdict
from scrapy_walsh.sources.answers import MAX_BODY, from_response
from scrapy_walsh.sources.items import MetadataItem
from scrapy_walsh.spiders import walsh_metadata
from scrapy_walsh.spiders.walsh_metadata import WalshMetadataSpider
from tests import zygote

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from scrapy_walsh.sources.report import ReportRow

FEED = (
    b"<rss version='2.0'><channel><item><title>F &amp;amp; G</title><link>/f?utm=1</link>"
    b"<pubDate>Sat, 23 May 2026 00:00:00 GMT</pubDate></item></channel></rss>"
)
MARKDOWN = (
    b"# T\n[a](https://x.test/a) and [b](https://x.test/b#frag) and [a again](https://X.test/a/)"
)
LLMS = b"# T\n- [l](https://x.test/l)"
HTML = b"<!DOCTYPE html><html><head><title>t</title></head><body><a href='https://x.test/h'>h</a>"

Answer = tuple[int, str | None, bytes] | Exception


class Net:
    """Plays Scrapy's engine: hands out answers by URL and follows what callbacks yield."""

    def __init__(self, spider: WalshMetadataSpider, answers: dict[str, Answer]) -> None:
        self.spider = spider
        self.answers = answers
        self.asked: list[Request] = []
        self.items: list[MetadataItem] = []

    def run(self) -> Net:
        queue = deque(start_requests(self.spider))
        while queue:
            request = queue.popleft()
            self.asked.append(request)
            for result in self._results(request):
                (self.items if isinstance(result, MetadataItem) else queue).append(result)
        self.spider.closed("finished")
        return self

    def _results(self, request: Request) -> Any:
        answer = self.answers.get(request.url, (404, None, b""))
        if isinstance(answer, Exception):
            return self._failed(request, answer)
        for told in self.spider.crawler.walsh.on_wire:
            told(request)
        status, content_type, body = answer
        response = respond(request, status, content_type, body)
        self.spider.crawler.signals.send_catch_log(
            signals.bytes_received, data=body, request=request, spider=self.spider
        )
        if 200 <= status < 300:
            return finished(request.callback(response, **request.cb_kwargs))
        return self._failed(request, HttpError(response, "ignored"))

    def _failed(self, request: Request, error: Exception) -> Any:
        failure = Failure(error)
        failure.request = request
        return request.errback(failure)

    @property
    def urls(self) -> list[str]:
        return [request.url for request in self.asked]

    @property
    def rows(self) -> list[ReportRow]:
        return [walk.row for walk in self.spider.walks.values()]


def respond(request: Request, status: int, content_type: str | None, body: bytes) -> Response:
    headers = {"Content-Type": content_type} if content_type else {}
    kind = responsetypes.from_args(headers=headers, url=request.url, body=body)
    return kind(request.url, status=status, headers=headers, body=body, request=request)


def finished(callback: Coroutine[Any, Any, Any]) -> Any:
    """What the callback returns; what is small is read at once."""
    with pytest.raises(StopIteration) as end:
        callback.send(None)
    return end.value.value


def start_requests(spider: WalshMetadataSpider) -> list[Request]:
    async def collect() -> list[Request]:
        return [request async for request in spider.start()]

    return finished(collect())


class NoCrawl:
    """Stands for the package's crawl: nothing is on record, and nothing is known of any host."""

    config = SimpleNamespace(state_dir=None, is_walsh_research=False)
    gates = Gates()
    store = SimpleNamespace(get=lambda *_: None)
    documents = SimpleNamespace(sitemaps=lambda _: [])
    tickets = SimpleNamespace(of=lambda _: SimpleNamespace(said=()))
    delivery = SimpleNamespace(expects=lambda *_: None, forget=lambda _: None)
    intake = SimpleNamespace(declare_child=lambda url, _: url)
    sources = SimpleNamespace(
        hop=lambda *_: [],
        report=lambda *_: None,
        reading=lambda _: None,
        next_due=lambda _: None,
        validators={},
    )

    def __init__(self, crawler: Any) -> None:
        self.crawler = crawler
        self.on_wire: list[Callable[[Request], object]] = []

    def remember(self, write: object) -> None:
        """Nothing outlives the run."""

    def wall(self) -> float:
        return 0.0


def spider_of(**arguments: str) -> WalshMetadataSpider:
    crawler = get_crawler(WalshMetadataSpider)
    crawler.walsh = NoCrawl(crawler)
    spider = WalshMetadataSpider.from_crawler(crawler, **arguments)
    crawler.signals.send_catch_log(signals.spider_opened, spider=spider)
    return spider


def crawl(urls: str, answers: dict[str, Answer]) -> Net:
    return Net(spider_of(urls=urls), answers).run()


def crawl_file(folder: Path, sources: list[dict[str, str]], answers: dict[str, Answer]) -> Net:
    path = folder / "s.jsonl"
    path.write_text("\n".join(json.dumps(source) for source in sources))
    return Net(spider_of(sources=str(path)), answers).run()


WITH_FEED = {"name": "A", "url": "https://a.test/", "feed": "https://a.test/feed"}


def test_r9_4_a_declared_feed_is_read_and_nothing_else_asked(tmp_path: Path) -> None:
    net = crawl_file(
        tmp_path, [WITH_FEED], {"https://a.test/feed": (200, "application/rss+xml", FEED)}
    )
    assert net.urls == ["https://a.test/feed"]
    (item,) = net.items
    assert (item.source, item.title, item.via) == ("A", "F & G", "feed")
    assert item.url == item.canonical_url == "https://a.test/f?utm=1"
    assert item.published == "2026-05-23T00:00:00Z"
    assert item.fetched_at.endswith("Z")
    assert (net.rows[0].outcome, net.rows[0].requirement) == ("fed", "R9")
    assert (net.rows[0].requests, net.rows[0].bytes, net.rows[0].items) == (1, len(FEED), 1)


def test_r9_4_order_in_full(tmp_path: Path) -> None:
    answers: dict[str, Answer] = {
        "https://a.test/feed": (200, "text/html", HTML),
        "https://a.test/": (200, "text/html", HTML),
        "https://a.test/llms.txt": (200, "text/plain", LLMS),
    }
    net = crawl_file(tmp_path, [WITH_FEED], answers)
    assert net.urls == list(answers)
    assert [(item.url, item.via) for item in net.items] == [("https://x.test/l", "llms.txt")]
    assert net.rows[0].outcome == "llms.txt"
    assert net.rows[0].reason == (
        "feed: HTML, which is never scraped; page: HTML, which is never scraped"
    )


def test_r9_2_t37_accept_headers(tmp_path: Path) -> None:
    net = crawl_file(tmp_path, [WITH_FEED], {})
    feed, page, llms = (request.headers["Accept"].decode() for request in net.asked)
    assert "text/markdown" not in feed
    assert page == "text/markdown, text/html;q=0.8, */*;q=0.1"
    assert "text/plain" in llms


@pytest.mark.parametrize("content_type", ["text/markdown", "text/x-markdown; charset=utf-8"])
def test_r9_3_negotiated_markdown(content_type: str) -> None:
    net = crawl("https://a.test/p", {"https://a.test/p": (200, content_type, MARKDOWN)})
    assert net.urls == ["https://a.test/p"]
    assert [(item.title, item.url, item.via) for item in net.items] == [
        ("a", "https://x.test/a", "markdown"),
        ("b", "https://x.test/b#frag", "markdown"),
    ]
    assert net.items[1].canonical_url == "https://x.test/b"
    assert net.rows[0].outcome == "negotiated"


@pytest.mark.parametrize("content_type", ["text/html", "text/plain", None, "application/pdf"])
def test_r9_3_markdown_under_another_name_is_not_used(content_type: str | None) -> None:
    net = crawl("https://a.test/p", {"https://a.test/p": (200, content_type, MARKDOWN)})
    assert net.items == []
    assert net.urls == ["https://a.test/p", "https://a.test/llms.txt"]
    assert net.rows[0].outcome == "left_out"


@pytest.mark.parametrize("content_type", ["application/atom+xml", "text/html", "text/xml", None])
def test_r9_4_a_url_that_answers_with_a_feed_is_read_as_one(content_type: str | None) -> None:
    net = crawl("https://a.test/p", {"https://a.test/p": (200, content_type, FEED)})
    assert [item.via for item in net.items] == ["feed"]
    assert net.rows[0].outcome == "fed"


@pytest.mark.parametrize(
    ("content_type", "body", "outcome"),
    [
        ("text/plain; charset=utf-8", LLMS, "llms.txt"),
        ("text/markdown", LLMS, "llms.txt"),
        ("text/html", LLMS, "left_out"),
        ("text/html", HTML, "left_out"),
        ("text/plain", HTML, "left_out"),
        ("application/rss+xml", FEED, "left_out"),
    ],
)
def test_r9_5_llms_txt(content_type: str, body: bytes, outcome: str) -> None:
    net = crawl(
        "https://a.test/p?q",
        {
            "https://a.test/p?q": (200, "text/html", HTML),
            "https://a.test/llms.txt": (200, content_type, body),
        },
    )
    assert net.urls == ["https://a.test/p?q", "https://a.test/llms.txt"]
    assert net.rows[0].outcome == outcome
    assert len(net.items) == (outcome == "llms.txt")


def test_r9_5_a_declared_llms_txt_is_asked_once() -> None:
    url = "https://a.test/llms.txt"
    net = crawl(url, {url: (200, "text/plain", LLMS)})
    assert (net.urls, net.rows[0].outcome) == ([url], "llms.txt")


def test_r9_8_html_only_is_left_out_with_the_reason() -> None:
    net = crawl("https://a.test/p", {"https://a.test/p": (200, "text/html", HTML)})
    (row,) = net.rows
    assert (net.items, row.outcome, row.requirement) == ([], "left_out", "R9")
    assert row.reason == "page: HTML, which is never scraped; llms.txt: HTTP 404"


@pytest.mark.parametrize(
    ("name", "by"), [("disallowed_explicit", "R2"), ("not_due", "R8"), ("blocked_operator", "R3")]
)
def test_r9_8_html_whose_llms_txt_is_not_sent_is_left_out_for_both(name: str, by: str) -> None:
    """Also if that is not due: the source itself was requested, and was of no use."""
    refused = Refused("https://a.test/llms.txt", verdict(name, by))
    net = crawl(
        "https://a.test/p",
        {"https://a.test/p": (200, "text/html", HTML), "https://a.test/llms.txt": refused},
    )
    (row,) = net.rows
    assert (row.outcome, row.requirement) == ("left_out", "R9")
    assert row.reason.startswith(f"page: HTML, which is never scraped; llms.txt: {by} ")
    assert refused.verdict.reason in row.reason


def test_r9_9_what_llms_txt_lists_is_not_asked() -> None:
    net = crawl("https://a.test/p", {"https://a.test/llms.txt": (200, "text/plain", LLMS)})
    assert "https://x.test/l" not in net.urls
    assert net.items[0].url == "https://x.test/l"


@pytest.mark.parametrize("status", [404, 406])
def test_a_page_that_is_not_there_is_left_out_with_its_status(status: int) -> None:
    net = crawl("https://a.test/", {"https://a.test/": (status, None, b"")})
    (row,) = net.rows
    assert (row.outcome, row.requirement) == ("left_out", "R9")
    assert row.reason == f"page: HTTP {status}; llms.txt: HTTP 404"


@pytest.mark.parametrize(
    ("feed", "page", "llms", "expected"),
    [
        (None, (200, "text/html", HTML), None, True),
        (None, (200, "text/html", HTML), (200, "text/html", HTML), True),
        (None, NotModified("u", "text/html"), None, True),
        ((200, "text/html", HTML), (200, "text/html", HTML), None, True),
        (None, (200, "application/pdf", b"%PDF"), (200, "text/html", HTML), False),
        (None, (404, "text/html", HTML), (200, "text/html", HTML), False),
        ((200, "text/xml", b"<a>"), (200, "text/html", HTML), None, False),
        ((404, "text/html", HTML), (200, "text/html", HTML), None, False),
        ((200, "text/html", HTML), (404, "text/html", HTML), None, False),
    ],
)
def test_html_only_is_said_of_sources_that_answered_with_nothing_else(
    tmp_path: Path, feed: Any, page: Any, llms: Any, expected: bool
) -> None:
    source = {"name": "1", "url": "https://a.test/"}
    answers = {"https://a.test/": page, "https://a.test/llms.txt": llms, "https://a.test/f": feed}
    if feed:
        source["feed"] = "https://a.test/f"
    net = crawl_file(tmp_path, [source], {url: each for url, each in answers.items() if each})
    (row,) = net.rows
    assert (row.outcome, row.only_html) == ("left_out", expected), row.reason


def test_a_sitemap_that_is_not_there_has_failed(tmp_path: Path) -> None:
    source = {"name": "1", "sitemap": "https://a.test/s.xml"}
    net = crawl_file(tmp_path, [source], {})
    assert net.rows[0].outcome == "failed"


def test_nothing_but_errors_is_failed() -> None:
    net = crawl("https://a.test/p", {"https://a.test/p": (410, "text/html", HTML)})
    assert net.rows[0].outcome == "failed"
    assert net.rows[0].reason == "page: HTTP 410; llms.txt: HTTP 404"


@pytest.mark.parametrize("status", [402, 451])
def test_nothing_stands_in_for_a_closed_door(status: int) -> None:
    net = crawl("https://a.test/p", {"https://a.test/p": (status, "text/html", HTML)})
    assert (net.rows[0].outcome, net.rows[0].reason) == ("failed", f"page: HTTP {status}")


@pytest.mark.parametrize(
    ("challenge", "ends"),
    [("License", True), ('Basic realm="License"', False), ("", False)],
)
@pytest.mark.parametrize("kind", ["page", "feed", "sitemap"])
def test_a_challenge_of_a_licence_ends_the_visit_whatever_was_requested(
    kind: str, challenge: str, ends: bool
) -> None:
    response = Response("https://a.test/p", 401, {"WWW-Authenticate": challenge})
    answer = asyncio.run(from_response(Step(kind, response.url, "*/*"), response))
    assert (answer.outcome == "failed") is ends


def test_an_unreadable_feed_falls_back(tmp_path: Path) -> None:
    bomb = b"<!DOCTYPE rss [<!ENTITY a 'b'>]><rss version='2.0'/>"
    answers: dict[str, Answer] = {
        "https://a.test/feed": (200, "application/rss+xml", bomb),
        "https://a.test/": (200, "text/markdown", MARKDOWN),
    }
    net = crawl_file(tmp_path, [WITH_FEED], answers)
    assert net.rows[0].outcome == "negotiated"
    assert "declares its own entities" in net.rows[0].reason


def verdict(name: str, requirement: str) -> Verdict:
    return Verdict(allowed=False, name=name, requirement=requirement, reason=f"{name} it is")


@pytest.mark.parametrize(
    ("error", "outcome", "requirement"),
    [
        (Refused("u", verdict("disallowed_explicit", "R2")), "refused", "R2"),
        (Refused("u", verdict("blocked_operator", "R3")), "refused", "R3"),
        (Refused("u", verdict("out_of_scope", "R6")), "refused", "R6"),
        (Refused("u", verdict("not_due", "R8")), "not_due", "R8"),
        (Refused("u", verdict("deferred", "R5")), "deferred", "R5"),
        (NotModified("u"), "not_modified", "R7"),
        (NotModified("u", "application/xml"), "not_modified", "R7"),
        (GaveUp("u", "503 six times", 503), "failed", "R5"),
        (GaveUp("u", "connection refused"), "failed", "R5"),
        (TooManyRedirects("u", "HTTP 302 after 5 redirects", 302), "failed", "D5"),
        (IgnoreRequest("some middleware"), "failed", ""),
        (RuntimeError("bug\nhere"), "failed", ""),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value,
)
def test_an_answer_that_ends_the_source(error: Exception, outcome: str, requirement: str) -> None:
    net = crawl("https://a.test/p", {"https://a.test/p": error})
    (row,) = net.rows
    assert net.urls == ["https://a.test/p"]
    assert (row.outcome, row.requirement) == (outcome, requirement)
    assert row.reason.startswith("page: ")
    assert "\n" not in row.reason


def test_an_unchanged_html_page_still_leads_to_llms_txt() -> None:
    answers: dict[str, Answer] = {
        "https://a.test/p": NotModified("https://a.test/p", "text/html; charset=utf-8"),
        "https://a.test/llms.txt": (200, "text/plain", LLMS),
    }
    net = crawl("https://a.test/p", answers)
    assert (net.rows[0].outcome, len(net.items)) == ("llms.txt", 1)


@pytest.mark.parametrize(
    ("content_type", "body", "outcome"),
    [("text/markdown", MARKDOWN, "negotiated"), ("application/rss+xml", FEED, "fed")],
)
def test_what_an_index_lists_may_be_another_format(
    tmp_path: Path, content_type: str, body: bytes, outcome: str
) -> None:
    index = b"<sitemapindex><sitemap><loc>https://a.test/1</loc></sitemap></sitemapindex>"
    answers: dict[str, Answer] = {
        "https://a.test/i.xml": (200, "application/xml", index),
        "https://a.test/1": (200, content_type, body),
    }
    source: dict[str, Any] = {"sitemap": "https://a.test/i.xml", "children": True}
    net = crawl_file(tmp_path, [source], answers)
    assert net.urls == list(answers)
    assert net.rows[0].outcome == outcome
    assert net.rows[0].reason == "an index of 1 sitemap; 1 of 1 sitemap read"
    assert net.rows[0].items == len(net.items) > 0


def test_two_sources_of_a_host_share_llms_txt() -> None:
    answers: dict[str, Answer] = {"https://a.test/llms.txt": (200, "text/plain", LLMS)}
    net = crawl("https://a.test/1 https://a.test/2 https://b.test/", answers)
    assert net.urls.count("https://a.test/llms.txt") == 1
    assert [row.outcome for row in net.rows] == ["llms.txt", "llms.txt", "left_out"]
    assert [row.items for row in net.rows] == [1, 0, 0]
    assert net.rows[1].reason == "page: HTTP 404; as for a.test"


def test_a_shared_refusal_is_reported_for_both() -> None:
    refused = Refused("https://a.test/llms.txt", verdict("disallowed_explicit", "R2"))
    # Not 500: after a visit that failed llms.txt is not requested.
    pages: dict[str, Answer] = {f"https://a.test/{n}": (403, None, b"") for n in (1, 2)}
    net = crawl("https://a.test/1 https://a.test/2", pages | {"https://a.test/llms.txt": refused})
    assert [row.outcome for row in net.rows] == ["refused", "refused"]
    assert len(net.urls) == 3


def test_a_url_is_asked_once_for_all_sources(tmp_path: Path) -> None:
    sources = [
        {"name": "1", "url": "https://a.test/feed/"},
        {"name": "2", "url": "https://b.test/", "feed": "https://c.test/x"},
        {"name": "3", "url": "https://a.test/feed"},
        {"name": "4", "url": "https://d.test/", "feed": "https://b.test/"},
    ]
    answers: dict[str, Answer] = {
        "https://a.test/feed/": (200, "application/rss+xml", FEED),
        "https://b.test/": (200, "text/markdown", MARKDOWN),
    }
    net = crawl_file(tmp_path, sources, answers)
    assert sorted(net.urls) == ["https://a.test/feed/", "https://b.test/", "https://c.test/x"]
    assert [(row.source, row.outcome) for row in net.rows] == [
        ("1", "fed"),
        ("2", "negotiated"),
        ("4", "negotiated"),
    ]


def test_r7_6_items_are_unique_across_sources() -> None:
    answers: dict[str, Answer] = {
        "https://a.test/": (200, "text/markdown", MARKDOWN),
        "https://b.test/": (200, "text/markdown", MARKDOWN + b" [c](https://x.test/c)"),
    }
    net = crawl("https://a.test/ https://b.test/", answers)
    assert [item.url for item in net.items] == [
        "https://x.test/a",
        "https://x.test/b#frag",
        "https://x.test/c",
    ]
    assert [row.items for row in net.rows] == [2, 1]


def test_r6_4_items_have_no_content() -> None:
    assert {field.name for field in fields(MetadataItem)} == {
        "source", "title", "url", "published", "via", "canonical_url", "fetched_at", "usage",
    }  # fmt: skip


def test_r6_2_everything_asked_was_declared_at_the_start(tmp_path: Path) -> None:
    sources = [WITH_FEED, {"name": "bare", "url": "b.test"}]
    path = tmp_path / "s.jsonl"
    path.write_text("\n".join(json.dumps(source) for source in sources))
    requests = start_requests(spider_of(sources=str(path)))
    declared = {url for r in requests for url in (r.url, *r.meta["walsh_also"])}
    assert declared == {
        "https://a.test/feed", "https://a.test/", "https://a.test/llms.txt",
        "https://b.test/", "https://b.test/llms.txt", "http://b.test/", "http://b.test/llms.txt",
    }  # fmt: skip
    down: dict[str, Answer] = {"https://b.test/": GaveUp("https://b.test/", "TLS handshake")}
    net = crawl_file(tmp_path, sources, down)
    assert set(net.urls) <= declared


def test_a_bare_host_falls_back_to_http() -> None:
    answers: dict[str, Answer] = {
        "https://b.test/": GaveUp("https://b.test/", "TLS handshake"),
        "http://b.test/": (200, "text/markdown", MARKDOWN),
    }
    net = crawl("b.test", answers)
    assert net.urls == ["https://b.test/", "http://b.test/"]
    assert net.rows[0].outcome == "negotiated"


@pytest.mark.parametrize(
    ("urls", "error"),
    [
        ("https://b.test/", GaveUp("https://b.test/", "TLS handshake")),
        ("b.test", GaveUp("https://b.test/", "503 six times", 503)),
        ("b.test", Refused("https://b.test/", verdict("disallowed_explicit", "R2"))),
    ],
)
def test_http_is_tried_for_nothing_else(urls: str, error: Exception) -> None:
    assert crawl(urls, {"https://b.test/": error}).urls == ["https://b.test/"]


def test_a_bare_host_that_answers_neither_is_failed() -> None:
    down = GaveUp("u", "connection refused")
    net = crawl("b.test", {"https://b.test/": down, "http://b.test/": down})
    assert net.urls == ["https://b.test/", "http://b.test/"]
    assert net.rows[0].outcome == "failed"


def test_suggestions_are_reported_and_never_followed() -> None:
    head = b"<html><head><link rel='alternate' type='application/rss+xml' href='/rss'></head>"
    net = crawl("https://a.test/p", {"https://a.test/p": (200, "text/html", head)})
    assert net.rows[0].suggested_feeds == ["https://a.test/rss"]
    assert "https://a.test/rss" not in net.urls


@pytest.mark.parametrize(
    ("reasons", "moved"), [([301, 308], True), ([301, 302], False), ([], False)]
)
def test_a_permanent_redirect_suggests_the_new_address(reasons: list[int], moved: bool) -> None:
    spider = spider_of(urls="https://a.test/old")
    (request,) = start_requests(spider)
    hop = request.replace(
        url="https://a.test/new", meta={**request.meta, "redirect_reasons": reasons}
    )
    list(finished(spider.answered(respond(hop, 200, "text/markdown", MARKDOWN), **hop.cb_kwargs)))
    (walk,) = spider.walks.values()
    assert walk.row.moved_to == ("https://a.test/new" if moved else None)


def test_203_is_a_success() -> None:
    """RFC 9110, 15.3.4: a proxy has transformed it."""
    net = crawl("https://a.test/feed", {"https://a.test/feed": (203, "text/xml", FEED)})
    assert net.rows[0].outcome == "fed"
    assert net.items


def test_no_request_has_a_referer(tmp_path: Path) -> None:
    """The operator has declared what is requested: no page has led there."""
    net = crawl_file(tmp_path, [WITH_FEED], {})
    assert len(net.asked) == 3
    assert {request.meta["referrer_policy"] for request in net.asked} == {"no-referrer"}


def test_a_url_that_scrapy_would_drop_is_a_step_of_no_use(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    long = f"https://a.test/{'x' * 2100}"
    source = {**WITH_FEED, "feed": long}
    net = crawl_file(tmp_path, [source], {"https://a.test/": (200, "text/markdown", MARKDOWN)})
    assert net.urls == ["https://a.test/"]
    (row,) = net.rows
    why = f"feed: its URL has {len(long)} characters, and URLLENGTH_LIMIT is 2083: raise it"
    assert row.reason.startswith(why)
    assert row.outcome == "negotiated"
    (line,) = [each for each in caplog.records if "is not requested: its" in each.getMessage()]
    assert line.levelname == "WARNING"
    net = crawl(long, {})
    assert net.rows[0].outcome == "left_out"
    assert "URLLENGTH_LIMIT is 2083" in net.rows[0].reason


@pytest.mark.parametrize(
    ("reading", "level"),
    [
        (None, "WARNING"),
        (Reading("https://a.test/", 0.0, 0.0), "WARNING"),
        (Reading("https://a.test/", 0.0, 0.0, reason="its URL has 2115 characters"), "INFO"),
    ],
)
def test_a_url_that_is_too_long_is_a_warning_when_that_begins(
    caplog: pytest.LogCaptureFixture, reading: Reading | None, level: str
) -> None:
    """Otherwise each run of cron would send the same mail (D35)."""
    caplog.set_level(logging.INFO)
    warn_too_long("https://a.test/", 10, reading)
    (line,) = caplog.records
    assert line.levelname == level


def test_bodies_have_a_limit() -> None:
    (request,) = start_requests(spider_of(urls="https://a.test/"))
    assert request.meta["download_maxsize"] == MAX_BODY


def test_a_body_over_the_limit_is_named_as_such() -> None:
    net = crawl("https://a.test/", {"https://a.test/": BodyTooLarge("https://a.test/", "")})
    assert net.rows[0].outcome == "failed"
    assert net.rows[0].reason == f"page: refused as too large: over {MAX_BODY} bytes"


def test_links_are_relative_to_the_final_url() -> None:
    spider = spider_of(urls="https://a.test/old")
    (request,) = start_requests(spider)
    hop = request.replace(url="https://cdn.test/x/feed")
    (item,) = finished(spider.answered(respond(hop, 200, "text/xml", FEED), **hop.cb_kwargs))
    assert item.url == "https://cdn.test/f?utm=1"


# --- the report -------------------------------------------------------------------------------


def test_report_in_the_log_and_as_json(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "r.json"
    spider = spider_of(urls="https://a.test/ ftp://x", report=str(path))
    with caplog.at_level(logging.INFO, "walsh_metadata"):
        Net(spider, {"https://a.test/": (200, "text/markdown", MARKDOWN)}).run()
    document = json.loads(path.read_text())
    assert document["problems"] == spider.problems != []
    assert [(row["source"], row["outcome"], row["items"]) for row in document["sources"]] == [
        ("a.test", "negotiated", 2)
    ]
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    assert any(line.startswith("a.test  read: markdown") for line in lines)


@pytest.mark.parametrize(
    ("name", "why"),
    [("", "Is a directory"), ("none/r.json", "No such file or directory")],
)
def test_a_report_that_cannot_be_written_is_one_line_before_anything_is_asked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, why: str
) -> None:
    path = str(tmp_path / name)
    spider = spider_of(urls="https://a.test/", report=path)
    assert start_requests(spider) == []
    spider.closed("finished")
    assert [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR] == [
        f"walsh_metadata: -a report={path}: cannot be written: {why}"
    ]


def test_a_report_that_cannot_be_written_in_the_end_fails_the_command(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "gone" / "r.json"
    path.parent.mkdir()
    spider = spider_of(urls="https://a.test/", report=str(path))
    shutil.rmtree(path.parent)
    Net(spider, {}).run()
    (line,) = (r.getMessage() for r in caplog.records if r.levelno == logging.ERROR)
    assert line.startswith(f"walsh_metadata: -a report={path}: cannot be written: ")


def test_a_source_without_an_answer_is_reported() -> None:
    spider = spider_of(urls="https://a.test/")
    start_requests(spider)
    spider.closed("shutdown")
    (walk,) = spider.walks.values()
    row = walk.row
    assert row.outcome == "not_requested"
    assert row.reason == "the crawl ended before its next request (shutdown)"


# --- refusing to start ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "give either -a sources=FILE or -a urls="),
        ({"urls": "https://a.test/", "sources": "x.toml"}, "give either"),
        ({"sources": "no-such-file.toml"}, "no-such-file.toml: cannot be read"),
        ({"urls": " "}, "no usable source (0 unusable)"),
        ({"urls": "ftp://a.test/ nonsense"}, "no usable source (2 unusable)"),
    ],
)
def test_sources_that_cannot_be_used_end_the_crawl(
    arguments: dict[str, str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    done: list[str] = []
    monkeypatch.setattr(walsh_metadata, "fail_command", lambda: done.append("exit code"))
    spider = WalshMetadataSpider.from_crawler(get_crawler(WalshMetadataSpider), **arguments)
    assert start_requests(spider) == []
    assert done == ["exit code"]
    asked = spider.crawler.signals.send_catch_log(
        signals.spider_idle, spider=spider, dont_log=CloseSpider
    )
    assert [each.value.reason for _, each in asked] == ["sources_invalid"]
    (line,) = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert line.startswith(f"walsh_metadata: {message}")


@pytest.mark.crawl
def test_a_refused_start_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    (tmp_path / "project.py").write_text(
        "SPIDER_MODULES = ['scrapy_walsh.spiders']\nTELNETCONSOLE_ENABLED = False\n"
    )
    root = Path(__file__).parents[2]
    done = zygote.run(
        [sys.executable, "-m", "scrapy", "crawl", "walsh_metadata", "-a", "sources=none.toml"],
        env={
            **os.environ,
            "SCRAPY_SETTINGS_MODULE": "project",
            "PYTHONPATH": f"{root}{os.pathsep}{tmp_path}",
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "ERROR" in line and "[" in line]
    assert "none.toml: cannot be read: No such file or directory; check the path" in line
    assert "'finish_reason': 'sources_invalid'" in done.stderr
    assert "downloader/request_count" not in done.stderr


def test_html_and_text_responses_are_told_apart() -> None:
    # The fake network must hand out the classes that Scrapy would.
    request = Request("https://a.test/")
    assert isinstance(respond(request, 200, "text/html", HTML), HtmlResponse)
    assert isinstance(respond(request, 200, "text/markdown", MARKDOWN), TextResponse)
