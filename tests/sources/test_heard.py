"""What the operator of ``walsh_metadata`` hears: the spider knows best what it could read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.proof.sandbox import Route, Site
from tests.crawl.harness import DAY, Crawl, Runs, site
from tests.sources.world import HTML_PAGE, QUICK, RSS, entry, rss

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.crawl

NOTHING = Route(404, "no\n", "text/plain")
HTML = Route(body=HTML_PAGE)
PERSON = "a person: warnings name each once a week, `scrapy walsh state show` always"


def feed(name: str) -> Route:
    return Route(body=rss(entry(name)), content_type=RSS, etag=f'"{name}"')


SITES: tuple[Site, ...] = (
    site("fed.test", {"/feed": feed("fed"), "/gone": Route(404), "/": HTML, "*": NOTHING}),
    site("llms.test", {"/llms.txt": Route(body="[l](http://n.test/l)", content_type="text/plain"),
                       "*": HTML}),
    site("leftout.test", {"/llms.txt": NOTHING, "*": HTML}),
    site("moved.test", {"/feed": Route(308, location="/new"), "/new": feed("moved")}),
    site("page.test", {"/feed": NOTHING, "/page": Route(301, location="/p2"), "/llms.txt": NOTHING,
                       "/p2": Route(body="[p](http://n.test/p)", content_type="text/markdown")}),
    site("closed.test", robots="User-agent: *\nDisallow: /\n"),
)  # fmt: skip
#: Two feeds of one page, of which one is gone; a feed that has moved; a page that has, which is
#: not what the source is called by.
LIST = """
[[source]]
url = "http://fed.test/"
feed = "http://fed.test/feed"

[[source]]
url = "http://fed.test/"
feed = "http://fed.test/gone"

[[source]]
url = "http://llms.test/"

[[source]]
url = "http://leftout.test/"

[[source]]
url = "http://moved.test/"
feed = "http://moved.test/feed"

[[source]]
url = "http://page.test/page"
feed = "http://page.test/feed"

[[source]]
url = "http://closed.test/"
"""


def heard(run: Crawl) -> list[str]:
    """The warnings of the run, less their dates and the time."""
    lines = run.lines("[scrapy_walsh] WARNING: ")
    return [line.partition("WARNING: ")[2] for line in lines]


@pytest.fixture(scope="module")
def visits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Crawl]]:
    """The first day, the fourth, and a run right after that."""
    settings = {**QUICK, "SPIDER_MODULES": ["scrapy_walsh.spiders"], "LOG_LEVEL": "INFO"}
    directory: Path = tmp_path_factory.mktemp("heard")
    with Runs(directory, *SITES, settings=settings) as runs:
        (runs.project / "list.toml").write_text(LIST)
        given = ("-a", "sources=list.toml")
        found = {}
        for name, days in (("first", 0), ("fourth", 3), ("early", 0)):
            runs.pass_time(days * DAY)
            found[name] = runs(spider_name="walsh_metadata", arguments=given)
        yield found


def test_what_the_spider_could_not_read_is_named(visits: dict[str, Crawl]) -> None:
    never = "has not been read since"
    fourth = [line for line in heard(visits["fourth"]) if never in line]
    assert [line.split()[0] for line in fourth] == [
        "http://closed.test/", "http://fed.test/gone", "http://leftout.test/",
    ]  # fmt: skip
    assert not [line for line in heard(visits["first"]) if never in line]
    assert fourth[0].endswith(
        "R2 disallowed_explicit by Disallow: / in http://closed.test/robots.txt:2"
    )
    assert "R9 feed: HTTP 404; page: HTML, which is never scraped; " in fourth[1]
    assert "R9 page: HTML" in fourth[2]


def test_what_moved_is_named_by_the_address_in_the_list(visits: dict[str, Crawl]) -> None:
    lines = [line for run in visits.values() for line in heard(run) if "moved for good" in line]
    moved = "http://moved.test/feed has moved for good to http://moved.test/new"
    assert lines == [f"{moved}: change it in your list"]
    assert "'walsh/not_modified': " in visits["fourth"].output


def test_the_last_line_counts_by_the_spiders_outcomes(visits: dict[str, Crawl]) -> None:
    last = {name: run.output.splitlines()[-1].partition("] ")[2] for name, run in visits.items()}
    assert last["first"] == (
        "WARNING: walsh: 4 of 7 sources read or unchanged, 1 refused (R2), 2 left out; "
        f"1 needs {PERSON}"
    )
    assert last["fourth"] == (
        "WARNING: walsh: 4 of 7 sources read or unchanged, 1 refused (R2), 2 left out; "
        f"4 need {PERSON}"
    )
    assert " 1 refused" in last["early"]
    assert " 6 not due" in last["early"]
    # That of the site which refuses is known by now.
    assert f"; 3 need {PERSON}; the first: http" in last["early"]
