"""R5.6 over runs that are killed: no target has more than its retries within the hour."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.proof.sandbox import Route, requests
from scrapy_walsh.state.records import Attempts
from tests.crawl.harness import Runs, site, verify

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

URL = "http://never.test/p"
RETRIES = 3


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Runs]:
    settings = {"LOG_LEVEL": "INFO", "WALSH_MAX_RETRIES": RETRIES, "WALSH_BACKOFF_BASE": 0.01}
    with Runs(tmp_path, site("never.test", {"/p": Route(503)}), settings=settings) as runs:
        yield runs


def times_asked(place: Runs) -> int:
    return sum(each.path == "/p" for each in requests(place.box.log, "never.test"))


def kill_after_the_first(place: Runs, url: str = URL) -> None:
    """A run that is killed while it waits for its next retry."""
    killed = place.start([url]).kill_when(
        lambda log: any(each.status == 503 and each.completed for each in log), 0.4
    )
    assert killed is not None


def test_r5_6_killed_runs_have_their_retries_together(place: Runs) -> None:
    for _ in range(2):
        kill_after_the_first(place)
    assert times_asked(place) == 2
    ended = place.start([URL]).finish()
    assert times_asked(place) == 1 + RETRIES
    assert len(ended.lines("WARNING", "given_up", URL)) == 1
    place.start([URL]).finish()  # given up is an end, and no run begins anew within the hour
    assert times_asked(place) == 1 + RETRIES


#: Other ways to write the URL, and the same URL in a request of another form.
SPELLINGS = ("http://never.test/p#here", "http://NEVER.test:80/p", "HTTP://never.test:080/p#")
AGAIN = f"""
import scrapy

class Probe(scrapy.Spider):
    name = "probe"

    async def start(self):
        for url in [{URL!r}, *{SPELLINGS!r}]:
            yield scrapy.Request(url, dont_filter=True, callback=self.parse)
        yield scrapy.Request({SPELLINGS[0]!r}, method="POST", body=b"q", callback=self.parse)

    def parse(self, response):
        pass
"""


def test_r5_6_all_spellings_of_one_request_have_their_retries_together(place: Runs) -> None:
    """The key is that of R7 and R8; a POST of the URL is a request of its own."""
    kill_after_the_first(place, SPELLINGS[0])
    kill_after_the_first(place, SPELLINGS[1])
    found = attempts(place)
    assert found is not None
    assert found.count == 2
    (place.project / "spiders.py").write_text(AGAIN)
    place.start([]).finish()
    asked = [each for each in requests(place.box.log, "never.test") if each.path == "/p"]
    methods = [each.method for each in asked]
    assert (methods.count("GET"), methods.count("POST")) == (1 + RETRIES, 1 + RETRIES)
    _, said = verify(place.state)
    assert ": R5: it records retry" not in said
    assert "was given up in line" not in said
    assert "no exchange of" not in said


def test_r5_6_an_answer_ends_the_count(place: Runs) -> None:
    kill_after_the_first(place)
    place.box.put(site("never.test"))
    place.start([URL]).finish()
    assert times_asked(place) == 2
    assert attempts(place) is None


def test_a_count_of_an_hour_ago_is_over(place: Runs) -> None:
    kill_after_the_first(place)
    with place.store() as store:
        found = store.get(Attempts, URL)
        assert found is not None
        assert found.count == 1
        store.put(replace(found, last_at=time.time() - 3601))
    place.start([URL]).finish()
    assert times_asked(place) == 1 + 1 + RETRIES


def attempts(place: Runs) -> Attempts | None:
    with place.store() as store:
        return store.get(Attempts, URL)
