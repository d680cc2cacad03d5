"""R9 as the server sees it: which format was asked for, in which order, and what was not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.policy.formats.representation import ACCEPT_SOURCE
from scrapy_walsh.proof.sandbox import hosts

if TYPE_CHECKING:
    from tests.sources.world import World

pytestmark = pytest.mark.crawl


@pytest.mark.parametrize("source", ["htmlonly", "headlink", "order", "advisory"])
def test_r9_1_html_gives_no_item_and_no_link_of_it_is_asked(world: World, source: str) -> None:
    assert set(world.paths(source)) <= {"/", "/feed", "/llms.txt"}
    assert all(item["via"] == "llms.txt" for item in world.items(source))
    assert "/link" not in str(world.items(source))


@pytest.mark.parametrize("source", ["negotiated", "htmlonly", "mislabelled"])
def test_r9_2_pages_are_asked_for_markdown_first(world: World, source: str) -> None:
    page = world.targets(source)[0]
    assert page.values("Accept") == [ACCEPT_SOURCE]
    assert ACCEPT_SOURCE.startswith("text/markdown, ")


def test_r9_3_negotiated_markdown_is_used(world: World) -> None:
    assert world.row("negotiated")["outcome"] == "negotiated"
    (item,) = world.items("negotiated")
    assert (item["title"], item["url"], item["via"]) == ("one", "http://news.test/m1", "markdown")
    assert world.paths("negotiated") == ["/notes"]


def test_r9_3_markdown_under_text_html_is_html(world: World) -> None:
    row = world.row("mislabelled")
    assert (row["outcome"], row["items"]) == ("left_out", 0)
    assert "HTML, which is never scraped" in row["reason"]
    assert world.paths("mislabelled") == ["/", "/llms.txt"]


def test_r9_4_a_declared_feed_is_all_that_is_asked(world: World) -> None:
    assert world.paths("declared") == ["/feed"]
    assert world.row("declared")["outcome"] == "fed"
    assert [item["title"] for item in world.items("declared")] == ["d1", "d2"]


def test_r9_4_feed_then_page_then_llms_txt(world: World) -> None:
    assert world.paths("order") == ["/feed", "/", "/llms.txt"]
    assert (world.row("order")["outcome"], world.row("order")["requirement"]) == ("llms.txt", "R9")
    assert [item["via"] for item in world.items("order")] == ["llms.txt"]
    requests = world.targets("order")
    assert len(requests) == 3
    assert not any(request.values("Referer") for request in requests)


def test_r9_4_a_url_that_answers_with_a_feed_is_read_as_that_feed(world: World) -> None:
    assert world.paths("pagefeed") == ["/feed"]
    assert [item["via"] for item in world.items("pagefeed")] == ["feed"]


def test_r9_5_llms_txt_at_the_root_as_plain_text(world: World) -> None:
    assert world.paths("advisory") == ["/", "/llms.txt"]
    assert world.row("advisory")["outcome"] == "llms.txt"


def test_r9_6_links_in_document_order_with_their_texts(world: World) -> None:
    assert [(item["title"], item["url"]) for item in world.items("advisory")] == [
        ("Private", "http://advisory.test/private/x"),
        ("Blocked", "http://www.blocked.test/notes"),
        ("Undeclared", "http://undeclared.test/"),
    ]


def test_r9_8_a_source_with_html_alone_is_left_out_with_the_reason(world: World) -> None:
    row = world.row("htmlonly")
    assert (row["outcome"], row["requirement"], row["items"]) == ("left_out", "R9", 0)
    assert row["reason"] == "page: HTML, which is never scraped; llms.txt: HTTP 404"


def test_r9_9_llms_txt_is_advisory(world: World) -> None:
    asked = hosts(world.run.log)
    assert "undeclared.test" not in asked
    assert not [host for host in asked if "blocked" in host]
    assert "/private/x" not in world.paths("advisory")


@pytest.mark.parametrize(
    ("source", "offered"),
    [
        ("linkheader", "http://linkheader.test/feed.rss"),
        ("headlink", "http://headlink.test/atom.xml"),
        ("htmlfeed", "http://htmlfeed.test/atom.xml"),
        ("moved", "http://moved.test/2026/feed"),
    ],
)
def test_feeds_are_suggested(world: World, source: str, offered: str) -> None:
    assert world.row(source)["suggested_feeds"] == [offered]
    path = offered.partition(".test")[2]
    assert (path in world.paths(source)) is (source == "moved")


def test_a_temporary_redirect_suggests_nothing(world: World) -> None:
    row = world.row("lent")
    assert (row["outcome"], row["suggested_feeds"], row["moved_to"]) == ("fed", [], None)
    assert world.paths("lent") == ["/feed", "/today"]
