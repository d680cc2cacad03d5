"""Feeds as publishers serve them, and as attackers do."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.proof.sandbox import hosts
from scrapy_walsh.sources.answers import MAX_BODY
from scrapy_walsh.sources.items import MetadataItem
from tests.sources.world import DATES

if TYPE_CHECKING:
    from tests.sources.world import World

pytestmark = pytest.mark.crawl


@pytest.mark.parametrize(
    ("source", "title", "url"),
    [
        ("malformed", "A & B", "http://news.test/mf"),
        ("cp1252", "caf\u00e9 \u2013 x", "http://news.test/cp"),
        ("latin", "na\u00efve", "http://news.test/la"),
        ("wide", "\u65e5\u672c", "http://news.test/w16"),
        ("entities", "caf\u00e9 \u2014 x", "http://news.test/e"),
        ("base", "A & B", "http://base.test/dir/page?utm_source=x&a=1"),
        ("jsonfeed", "J", "http://jsonfeed.test/j"),
        ("rss1", "r1", "http://news.test/r1"),
        ("rss091", "r091", "http://news.test/r091"),
        ("zipped", "z", "http://news.test/z"),
        ("moved", "mv", "http://moved.test/2026/item"),
    ],
)
def test_one_entry_of_each_kind_of_feed(world: World, source: str, title: str, url: str) -> None:
    (item,) = world.items(source)
    assert (item["title"], item["url"], item["via"]) == (title, url, "feed")
    assert (world.row(source)["outcome"], world.row(source)["items"]) == ("fed", 1)


def test_dates_are_utc_or_null(world: World) -> None:
    found = {item["title"]: item["published"] for item in world.items("dates")}
    assert found == {
        name: None if name in ("missing", "nonsense") else "2026-05-23T08:00:00Z" for name in DATES
    }


def test_ten_thousand_entries(world: World) -> None:
    items = world.items("many")
    assert [item["title"] for item in items] == [f"n{n}" for n in range(10_000)]
    assert world.row("many")["items"] == 10_000


@pytest.mark.parametrize("source", ["laughs", "outside", "passwd"])
def test_declared_entities_are_refused_unread(world: World, source: str) -> None:
    row = world.row(source)
    assert (row["outcome"], row["items"]) == ("left_out", 0)
    assert "declares its own entities" in row["reason"]
    assert world.items(source) == []


def test_nothing_outside_the_document_is_read(world: World) -> None:
    assert "secret.test" not in hosts(world.run.log)
    assert "root:" not in world.run.output
    assert "root:" not in json.dumps(world.run.items)


@pytest.mark.parametrize("source", ["bomb", "huge", "endless"])
def test_a_body_over_the_limit_is_refused_and_not_asked_for_again(
    world: World, source: str
) -> None:
    row = world.row(source)
    assert (row["outcome"], row["items"]) == ("failed", 0)
    assert str(MAX_BODY) in row["reason"]
    assert world.paths(source) == ["/feed"]
    assert row["requests"] == 1
    assert row["bytes"] < MAX_BODY + 1_000_000
    assert not world.run.lines("retried", f"{source}.test")


def test_what_was_received_of_a_cut_body_is_counted(world: World) -> None:
    assert world.row("endless")["bytes"] > MAX_BODY
    assert world.row("huge")["bytes"] == 0


def test_items_have_the_fields_of_the_contract(world: World) -> None:
    names = [field.name for field in fields(MetadataItem)]
    assert names == [
        "source",
        "title",
        "url",
        "published",
        "via",
        "canonical_url",
        "fetched_at",
        "usage",
    ]
    for item in world.run.items:
        assert list(item) == names
        assert all(
            isinstance(item[name], str) for name in names if name not in ("published", "usage")
        )
        assert item["fetched_at"].endswith("Z")
        assert item["via"] in ("feed", "markdown", "llms.txt")
        assert item["title"].isprintable()


def test_itemadapter_takes_the_items(world: World) -> None:
    adapted = (world.project / "adapted.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in adapted] == world.run.items


def test_r7_6_items_are_unique_across_sources_and_tracking_is_left_alone(world: World) -> None:
    keys = [item["canonical_url"] for item in world.run.items]
    assert len(keys) == len(set(keys))
    together = [*world.items("declared"), *world.items("again")]
    assert sorted(item["title"] for item in together) == ["d1", "d2", "new"]
    (new,) = [item for item in world.items("again") if item["title"] == "new"]
    assert new["url"] == new["canonical_url"] == "http://again.test/n?utm_source=x"


def test_no_content_is_kept(world: World) -> None:
    assert "never kept" not in json.dumps(world.run.items)
