"""R7 across runs: known items are not emitted again, and none is lost between emit and write."""

from __future__ import annotations

import json
import signal
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.proof.sandbox import Route, Sandbox
from scrapy_walsh.spiders.walsh_metadata import WalshMetadataSpider
from tests.crawl.harness import Crawl, crawl, make_project, site, state_dir

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

AGAIN = ("-s", "WALSH_REVISIT_REASON=a test asks twice")
FEED = "http://f.test/feed"

PIPELINES = """
import os, signal, time
from scrapy.exceptions import DropItem

class Rename:
    def process_item(self, item, spider=None):
        return {"address": item.url}

class DropB:
    def process_item(self, item, spider=None):
        if item.url.endswith("/b"):
            raise DropItem("not wanted")
        return item

class FailB:
    def process_item(self, item, spider=None):
        if item.url.endswith("/b"):
            raise RuntimeError("the database is down")
        return item

class KillAtB:
    def process_item(self, item, spider=None):
        if item.url.endswith("/b"):
            os.kill(os.getpid(), signal.SIGKILL)
        return item
"""


def feed(*names: str) -> Route:
    items = "".join(
        f"<item><title>{name}</title><link>http://x.test/{name}</link></item>" for name in names
    )
    return Route(
        body=f"<rss version='2.0'><channel>{items}</channel></rss>",
        content_type="application/rss+xml",
        etag=f'"{"".join(names)}"',
    )


class Bench:
    """A project and a server with one feed."""

    def __init__(self, box: Sandbox, folder: Path) -> None:
        self.box = box
        self.project = make_project(
            folder / "project", settings={"SPIDER_MODULES": ["scrapy_walsh.spiders"]}
        )
        (self.project / "pipelines.py").write_text(PIPELINES)
        self.publish("a", "b")

    def publish(self, *names: str) -> None:
        self.box.put(site("f.test", {"/feed": feed(*names)}))

    def run(self, *arguments: str, pipeline: str | None = None, report: bool = False) -> Crawl:
        extra = ("-s", f'ITEM_PIPELINES={{"pipelines.{pipeline}": 1}}') if pipeline else ()
        written = ("-a", "report=report.json") if report else ()
        return crawl(
            self.project,
            self.box,
            FEED,
            spider_name="walsh_metadata",
            arguments=(*AGAIN, *extra, *written, *arguments),
        )

    @property
    def row(self) -> dict[str, Any]:
        row: dict[str, Any] = json.loads((self.project / "report.json").read_text())["sources"][0]
        return row


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with Sandbox() as box:
        yield Bench(box, tmp_path)


def urls(run: Crawl) -> list[str]:
    return [item["url"][-1] for item in run.items]


def conditional(run: Crawl) -> bool:
    (request,) = [each for each in run.requests("f.test") if each.path == "/feed"]
    return "If-None-Match" in dict(request.headers)


def test_r7_6_an_item_of_an_earlier_run_is_not_emitted_again(bench: Bench) -> None:
    assert urls(bench.run()) == ["a", "b"]
    bench.publish("a", "b", "c")
    run = bench.run(report=True)
    assert urls(run) == ["c"]
    assert (bench.row["items"], bench.row["new"], bench.row["known"]) == (1, 1, 2)
    assert run.lines("INFO: f.test  read: feed", "1      2")
    run = bench.run()
    assert urls(run) == []
    assert conditional(run)
    assert [request.status for request in run.requests("f.test")] == [304]


def test_r7_6_what_an_answer_still_has_is_not_forgotten(bench: Bench) -> None:
    """Records go after 400 days; that of an item which a list still has is stored anew."""
    bench.run()

    def age(days: float) -> None:
        with closing(sqlite3.connect(state_dir(bench.project) / "state.sqlite3")) as connection:
            connection.execute("UPDATE seen_items SET seen_at = seen_at - ?", (days * 86400,))
            connection.commit()

    for _ in range(2):
        age(300)
        bench.publish("a", "b", "c")
        assert urls(bench.run()) in (["c"], [])
        bench.publish("c", "a", "b")


def test_all_items_emits_them_all(bench: Bench) -> None:
    bench.run()
    bench.publish("a", "b", "c")
    assert urls(bench.run("-a", "all_items=1", report=True)) == ["a", "b", "c"]
    assert (bench.row["items"], bench.row["new"], bench.row["known"]) == (3, 1, 2)


def test_memory_forgets_what_was_emitted(bench: Bench) -> None:
    memory = ("-s", "WALSH_STATE_DIR=memory")
    assert urls(bench.run(*memory)) == urls(bench.run(*memory)) == ["a", "b"]


def test_a_pipeline_may_hand_on_something_else(bench: Bench) -> None:
    assert bench.run(pipeline="Rename").items == [
        {"address": "http://x.test/a"},
        {"address": "http://x.test/b"},
    ]
    bench.publish("b", "c")
    assert urls(bench.run()) == ["c"]


def test_what_a_pipeline_drops_does_not_count_as_emitted(bench: Bench) -> None:
    assert urls(bench.run(pipeline="DropB")) == ["a"]
    bench.publish("b", "a", "c")
    run = bench.run()
    assert conditional(run)
    assert urls(run) == ["b", "c"]


def test_what_a_pipeline_fails_at_is_emitted_by_the_next_run(bench: Bench) -> None:
    assert urls(bench.run(pipeline="FailB")) == ["a"]
    run = bench.run()
    assert not conditional(run)
    assert urls(run) == ["b"]


def test_a_kill_between_emit_and_write_loses_nothing(bench: Bench) -> None:
    killed = bench.run(pipeline="KillAtB")
    assert killed.returncode == -signal.SIGKILL
    run = bench.run()
    assert not conditional(run)
    assert urls(run) == ["a", "b"]


def test_a_feed_that_cannot_be_stored_is_emitted_again(bench: Bench) -> None:
    (bench.project / "folder").mkdir()
    failed = bench.run("-o", "ftp://f.test:1/items.jsonl:jsonl")
    assert failed.lines("ERROR", "a feed was not stored (ftp://f.test:1/items.jsonl): 2 items")
    assert failed.returncode == 1
    assert urls(bench.run()) == ["a", "b"]


def test_a_damaged_store_emits_rather_than_loses(bench: Bench) -> None:
    bench.run()
    database = state_dir(bench.project) / "state.sqlite3"
    database.write_bytes(database.read_bytes()[:100] + b"no page of a database" * 100)
    assert urls(bench.run()) == ["a", "b"]


@pytest.mark.parametrize("value", ["2", "yes", ""])
def test_all_items_is_1_or_0(value: str) -> None:
    spider = WalshMetadataSpider(urls="http://a.test/", all_items=value)
    assert spider.refusal == f"-a all_items={value}: write all_items=1, or leave it out"
