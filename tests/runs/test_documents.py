"""R10, R11, R12: what a later run asks again of robots.txt, blocklist and schema, and when.

What becomes of each kind of list and schema: ``tests/documents/test_blocklist_document.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.proof.sandbox import Route, blocklist, requests
from tests.crawl.harness import (
    AGAIN,
    DAY,
    HOUR,
    LIST,
    LIST_URL,
    SCHEMA,
    SCHEMA_URL,
    Crawl,
    Runs,
    listing,
    served,
    site,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOSTS = ("one.test", "two.test")
PAGES = [f"http://{host}/p" for host in HOSTS]
MARGIN = 120.0
#: Seconds for which the documents of the sandbox are fresh: PT6H, 24 h and 7 d.
REFRESH, ROBOTS_TTL, SCHEMA_TTL = 6 * HOUR, DAY, 7 * DAY


STANDALONE = {
    LIST: served(blocklist("http://operator.test", inline=False)),
    SCHEMA: served(blocklist()["schema"]),
}


@pytest.fixture(scope="module")
def cached(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Crawl]]:
    """Runs at five ages of the documents."""
    directory = tmp_path_factory.mktemp("cached")
    sites = (site("operator.test", STANDALONE), *map(site, HOSTS))
    with Runs(directory, *sites, settings=AGAIN) as runs:
        origins = [f"http://{host}" for host in HOSTS]

        def age(robots: float, listed: float, schema: float) -> None:
            for origin in origins:
                runs.age("robots", origin, robots)
            runs.age("blocklist", LIST_URL, listed)
            runs.age("schema", SCHEMA_URL, schema)

        found = {"first": runs(*PAGES), "at once": runs(*PAGES)}
        age(ROBOTS_TTL - MARGIN, REFRESH - MARGIN, SCHEMA_TTL - MARGIN)
        found["just inside"] = runs(*PAGES)
        age(MARGIN, MARGIN, 0)
        found["robots.txt and list past"] = runs(*PAGES)
        age(0, REFRESH, MARGIN)
        found["list and schema past"] = runs(*PAGES)
        age(MARGIN, 0, 0)
        found["at the end"] = runs(*PAGES)
        yield found


def test_r11_1_a_first_run_asks_each_document_once(cached: dict[str, Crawl]) -> None:
    first = cached["first"]
    assert first.asked("operator.test") == [LIST, SCHEMA]
    for host in HOSTS:
        assert first.asked(host) == ["/robots.txt", "/p"]


@pytest.mark.parametrize("when", ["at once", "just inside", "at the end"])
def test_r11_1_inside_the_ttls_none_is_asked(cached: dict[str, Crawl], when: str) -> None:
    run = cached[when]
    assert run.asked("operator.test") == []
    for host in HOSTS:
        assert run.asked(host) == ["/p"]


def test_r11_1_past_the_ttls_exactly_one_each(cached: dict[str, Crawl]) -> None:
    run = cached["robots.txt and list past"]
    assert run.asked("operator.test") == [LIST]  # the schema has seven days
    for host in HOSTS:
        assert run.asked(host) == ["/robots.txt", "/p"]


def test_r10_2_the_schema_is_asked_again_after_seven_days(cached: dict[str, Crawl]) -> None:
    run = cached["list and schema past"]
    assert run.asked("operator.test") == [LIST, SCHEMA]
    for host in HOSTS:
        assert run.asked(host) == ["/p"]


@pytest.mark.parametrize("when", ["robots.txt and list past", "list and schema past"])
def test_r12_1_the_refresh_precedes_the_target(cached: dict[str, Crawl], when: str) -> None:
    asked = [(each.host, each.path) for each in requests(cached[when].log)]
    first_target = min(asked.index((host, "/p")) for host in HOSTS)
    assert all(each[1] != "/p" for each in asked[:first_target])
    assert ("operator.test", LIST) in asked[:first_target]
    for host in HOSTS:
        if (host, "/robots.txt") in asked:
            assert asked.index((host, "/robots.txt")) < asked.index((host, "/p"))


def test_r12_1_what_a_refresh_forbids_is_not_asked_any_more(tmp_path: Path) -> None:
    with Runs(tmp_path, site("one.test"), site("two.test"), settings=AGAIN) as runs:
        runs(*PAGES)
        rules = Route(body="User-agent: *\nDisallow: /\n", content_type="text/plain")
        runs.serve("one.test", "/robots.txt", rules)
        runs.serve("operator.test", LIST, listing("two.test"))
        runs.age("robots", "http://one.test", ROBOTS_TTL)
        runs.age("blocklist", LIST_URL, REFRESH)
        second = runs(*PAGES)
    assert second.asked("one.test") == ["/robots.txt"]  # R2.31
    assert second.asked("two.test") == []
