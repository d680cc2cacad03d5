"""R5.6 over runs that are killed: no target has more than its retries within the hour."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.proof.sandbox import Route, Sandbox, requests
from scrapy_walsh.state import open_store
from scrapy_walsh.state.records import Attempts
from tests.campaign.world import Place
from tests.crawl.harness import site

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

URL = "http://never.test/p"
RETRIES = 3


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with Sandbox() as box:
        place = Place(tmp_path, box, {"WALSH_MAX_RETRIES": RETRIES, "WALSH_BACKOFF_BASE": 0.01})
        box.put(site("never.test", {"/p": Route(503)}))
        yield place


def times_asked(place: Place) -> int:
    return sum(each.path == "/p" for each in requests(place.box.log, "never.test"))


def kill_after_the_first(place: Place) -> None:
    """A run that is killed while it waits for its next retry."""
    killed = place.start([URL]).kill_when(
        lambda log: any(each.status == 503 and each.completed for each in log), 0.4
    )
    assert killed is not None


def test_r5_6_killed_runs_have_their_retries_together(place: Place) -> None:
    for _ in range(2):
        kill_after_the_first(place)
    assert times_asked(place) == 2
    ended = place.crawl([URL])
    assert times_asked(place) == 1 + RETRIES
    assert len(ended.lines("WARNING", "given_up", URL)) == 1
    place.crawl([URL])  # given up is an end, and no run begins anew within the hour
    assert times_asked(place) == 1 + RETRIES


def test_r5_6_an_answer_ends_the_count(place: Place) -> None:
    kill_after_the_first(place)
    place.box.put(site("never.test"))
    place.crawl([URL])
    assert times_asked(place) == 2
    assert attempts(place) is None


def test_own_a_count_of_an_hour_ago_is_over(place: Place) -> None:
    kill_after_the_first(place)
    store = open_store(place.state)
    found = store.get(Attempts, URL)
    assert found is not None
    assert found.count == 1
    store.put(replace(found, last_at=time.time() - 3601))
    store.close()
    place.crawl([URL])
    assert times_asked(place) == 1 + 1 + RETRIES


def attempts(place: Place) -> object:
    store = open_store(place.state)
    try:
        return store.get(Attempts, URL)
    finally:
        store.close()
