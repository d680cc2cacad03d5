"""The source report: it says what the server saw."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.policy import readings
from scrapy_walsh.proof.sandbox import requests
from scrapy_walsh.sources import report
from tests.sources.world import DECLARED

if TYPE_CHECKING:
    from tests.sources.world import World

pytestmark = pytest.mark.crawl

OUTCOMES = {
    "declared": ("fed", "R9"),
    "negotiated": ("negotiated", "R9"),
    "order": ("llms.txt", "R9"),
    "htmlonly": ("left_out", "R9"),
    "disallowed": ("refused", "R2"),
    "later": ("deferred", "R4"),
    "slow": ("deferred", "R4"),
    "down": ("failed", "R5"),
    "gone": ("failed", ""),
}
DAY = 86400


def seconds(written: str | None) -> float:
    assert written is not None
    return datetime.strptime(written, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize("source", OUTCOMES)
def test_outcomes(world: World, source: str) -> None:
    row = world.row(source)
    assert (row["outcome"], row["requirement"]) == OUTCOMES[source]


def test_every_source_has_one_line(world: World) -> None:
    assert [row["source"] for row in world.report["sources"]] == list(DECLARED)
    assert world.report["problems"] == []
    table = world.run.lines("[walsh_metadata] INFO")
    for name, row in ((row["source"], row) for row in world.report["sources"]):
        assert [line for line in table if f" INFO: {name} " in line and f" {row['outcome']} "]


def test_requests_are_those_of_the_servers_log(world: World) -> None:
    asked = requests(world.run.log)
    documents = [
        request
        for request in asked
        if request.path == "/robots.txt" or request.host == "operator.test"
    ]
    targets = Counter(request.host for request in asked if request not in documents)
    found = {f"{row['source']}.test": row["requests"] for row in world.report["sources"]}
    assert {host: count for host, count in found.items() if count} == targets
    total = world.report["requests"]
    assert total == {"sources": targets.total(), "documents": len(documents)}


def test_items_are_those_that_were_written(world: World) -> None:
    written = Counter(item["source"] for item in world.run.items)
    assert {row["source"]: row["items"] for row in world.report["sources"] if row["items"]} == (
        written
    )
    assert all(row["items"] == row["new"] and row["known"] == 0 for row in world.report["sources"])


def test_bytes_are_those_of_the_bodies(world: World) -> None:
    body = DECLARED["declared"].routes["/feed"].content
    assert world.row("declared")["bytes"] == len(body)
    assert world.row("flaky")["bytes"] == len("later") + len(
        DECLARED["flaky"].routes["/feed"].sequence[1].content
    )
    assert world.row("disallowed")["bytes"] == 0


@pytest.mark.parametrize("source", ["declared", "order", "htmlonly", "slow", "huge"])
def test_no_run_asks_before_nine_tenths_of_a_day(world: World, source: str) -> None:
    answered = world.targets(source)[0].wall
    assert 0.9 * DAY - 1 <= seconds(world.row(source)["next_due"]) - answered <= 0.9 * DAY + 3


def test_next_due_of_a_source_that_is_gone_is_thirty_days_later(world: World) -> None:
    answered = world.targets("gone")[0].wall
    assert 30 * DAY - 1 <= seconds(world.row("gone")["next_due"]) - answered <= 30 * DAY + 3


def test_next_due_of_a_deferred_source_is_the_end_of_its_hold(world: World) -> None:
    (asked,) = world.targets("later")
    assert 90_000 - 1 <= seconds(world.row("later")["next_due"]) - asked.wall <= 90_000 + 3


def test_what_was_not_asked_is_due_at_the_next_run(world: World) -> None:
    assert world.row("disallowed")["next_due"] is None


@pytest.mark.parametrize("source", ["bomb", "huge", "endless"])
def test_r8_2_a_body_over_the_limit_is_not_asked_for_by_the_next_run(
    runs: tuple[World, World], source: str
) -> None:
    assert runs[0].paths(source) == ["/feed"]
    assert runs[1].paths(source) == []
    assert runs[1].row(source)["outcome"] == "not_due"


def test_the_next_run_asks_nobody_before_the_due_time(runs: tuple[World, World]) -> None:
    first, second = runs
    for row in first.report["sources"]:
        if row["next_due"] and seconds(row["next_due"]) > first.run.log[-1].wall + 60:
            again = second.row(row["source"])
            assert again["outcome"] in ("not_due", "deferred")
            assert (again["requests"], again["items"]) == (0, 0)
            assert again["next_due"] == row["next_due"]
            assert second.targets(row["source"]) == []
    declared = second.row("declared")
    assert (declared["outcome"], declared["requirement"]) == ("not_due", "R8")
    assert declared["reason"].endswith(f", next due {declared['next_due']}")


def test_r2_3_the_next_run_brings_no_document_that_is_fresh(runs: tuple[World, World]) -> None:
    assert runs[1].report["requests"]["documents"] == 0


def test_docs_name_every_outcome_and_member(world: World) -> None:
    document = (Path(__file__).parents[2] / "docs/spider.md").read_text()
    outcomes = {value for name, value in vars(report).items() if name.isupper() and name[0] != "_"}
    outcomes = {value for value in outcomes if isinstance(value, str)}
    outcomes |= {*readings.OUTCOMES} - {readings.READ}
    assert len(outcomes) == 11
    for name in (*outcomes, *world.report, *world.report["sources"][0], *world.report["requests"]):
        assert f"`{name}`" in document, name


def test_a_report_is_no_flood(world: World) -> None:
    """Without a terminal there is no progress, and a source costs the table one line."""
    assert "\r" not in world.run.output
    assert "sources; hosts:" not in world.run.output
    assert len(world.run.lines("[walsh_metadata] INFO")) == len(DECLARED) + 1
