"""R3: the operator's list, through real crawls that share one state, one document after another."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.policy.identity import WALSH_RESEARCH
from scrapy_walsh.proof.sandbox import Route, Sandbox, blocklist, hosts
from tests.crawl.harness import (
    FAR_OFF,
    OPERATOR,
    Crawl,
    age_blocklist,
    crawl,
    forget_pacing,
    make_project,
    site,
    solo,
)

if TYPE_CHECKING:
    from collections.abc import Callable

LIST = "/.well-known/walsh-research/blocklist.json"
SCHEMA = "/.well-known/walsh-research/blocklist.schema.json"
HELD, OTHER = "http://blocked.test/x", "http://other.test/x"
AGAIN = {"WALSH_REVISIT_REASON": "one run after another", **FAR_OFF}


def served(document: object) -> Route:
    return Route(body=json.dumps(document), content_type="application/json")


def listing(*domains: str, **changes: Any) -> Route:
    return served({**blocklist("http://operator.test", *domains), **changes})


#: Answers that must leave the held list as it is: fetch failures, then documents not to adopt.
RETAIN = {
    "404": Route(404),
    "503": Route(503),
    "no answer": Route(behaviour="close"),
    "cut off": Route(body=json.dumps(blocklist()), behaviour="truncate"),
    "not JSON": Route(body="<html>not here</html>"),
    "major 2": listing("other.test", contract="walsh-research-blocklist/v2", schema={}),
    "another contract": listing("other.test", contract="something-else/v1", schema={}),
    "against its schema": listing("other.test", updated=17),
    "a schema that accepts all": served({"schema": True}),
    "no list": served({"contract": "walsh-research-blocklist/v1", "schema": {}}),
    "a schema from elsewhere": listing("other.test", schema={"$ref": "http://other.test/s.json"}),
}


@dataclass
class History:
    first: Crawl
    retained: dict[str, Crawl]
    replaced: Crawl
    not_modified: Crawl


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    project = make_project(tmp_path_factory.mktemp("history"), settings=AGAIN)

    def age() -> None:
        age_blocklist(project)
        forget_pacing(project)

    with Sandbox() as box:
        box.put(site("other.test"))
        first = crawl(project, box, HELD, "http://path.test/private/x")
        retained = {}
        for name, answer in RETAIN.items():
            box.set_route("operator.test", LIST, answer)
            age()
            retained[name] = crawl(project, box, HELD, OTHER)
        box.set_route("operator.test", LIST, Route(**vars(listing("other.test")) | {"etag": '"2"'}))
        age()
        replaced = crawl(project, box, HELD, OTHER)
        age()
        not_modified = crawl(project, box, HELD, OTHER)
    return History(first, retained, replaced, not_modified)


def test_r3_1_the_list_comes_first_and_in_addition_to_robots_txt(history: History) -> None:
    assert hosts(history.first.log)[0] == "operator.test"
    assert "blocked.test" not in hosts(history.first.log)
    assert history.first.asked("path.test") == ["/robots.txt"]


@pytest.mark.parametrize("answer", RETAIN)
def test_r3_9_and_r3_5_the_held_list_stays(history: History, answer: str) -> None:
    run = history.retained[answer]
    assert run.asked("operator.test")[0] == LIST, "the list was not asked for again"
    assert run.asked("blocked.test") == []
    assert "R3" in run.why(HELD)
    assert "/x" in run.asked("other.test"), "a document was adopted that must not be"
    assert run.returncode == 0


@pytest.mark.parametrize("answer", RETAIN)
def test_r3_9_and_r3_5_one_line_says_so(history: History, answer: str) -> None:
    run = history.retained[answer]
    said = run.lines("rejected", f"{OPERATOR}/blocklist.json", "stays in force")
    assert len(said) == 1, run.output
    assert "Traceback" not in run.output


def test_r3_5_no_ref_is_ever_fetched(history: History) -> None:
    assert "/s.json" not in history.retained["a schema from elsewhere"].asked("other.test")


def test_r3_11_an_unknown_major_is_refused_whatever_its_own_schema_says(history: History) -> None:
    assert "/x" in history.retained["major 2"].asked("other.test")
    assert history.retained["major 2"].asked("blocked.test") == []


def test_r5c_2_a_live_document_replaces_what_is_held(history: History) -> None:
    assert "/x" in history.replaced.asked("blocked.test")
    assert history.replaced.asked("other.test") == []


def test_r3_8_a_304_counts_as_fresh_and_changes_nothing(history: History) -> None:
    (asked,) = history.not_modified.requests("operator.test")
    assert asked.status == 304
    assert history.not_modified.asked("other.test") == []


def test_r3_6_an_inline_schema_needs_no_second_request(history: History) -> None:
    assert history.first.asked("operator.test") == [LIST]


def test_r5c_1_the_canonical_urls_are_the_default() -> None:
    base = "https://wal.sh/.well-known/walsh-research"
    assert WALSH_RESEARCH.blocklist_url == f"{base}/blocklist.json"
    assert WALSH_RESEARCH.schema_url == f"{base}/blocklist.schema.json"
    assert WALSH_RESEARCH.policy_url == "https://wal.sh/bot/"


BLOCKED = {
    "the apex": "http://example.com/",
    "a subdomain": "http://a.b.example.com/",
    "any case": "http://WWW.Example.COM/",
    "any port": "http://example.com:8080/",
    "https": "https://www.example.com/",
    "a trailing dot": "http://example.com./",
    "user information": "http://user:word@example.com/",
    "an entry with a star": "http://a.starred.test/",
    "an entry that is a URL": "http://spelt.test/",
    "an address": "http://192.0.2.7:8080/",
    "an address in another notation": "http://3221225991/",
}
OPEN_HOSTS = ("notexample.com", "example.com.evil.test", "test", "192.0.2.70")


@pytest.fixture(scope="module")
def hosts_crawl(tmp_path_factory: pytest.TempPathFactory) -> Crawl:
    operator = site(
        "operator.test",
        {LIST: listing("Example.com", "*.starred.test", "https://spelt.test/path", "192.0.2.7")},
    )
    redirects = site(
        "hop.test",
        {"/a": Route(302, location="http://www.example.com/x")},
    )
    robots = site("rules.test", robots=Route(302, location="http://www.example.com/robots.txt"))
    return solo(
        tmp_path_factory.mktemp("hosts"),
        *BLOCKED.values(),
        *(f"http://{host}/open" for host in OPEN_HOSTS),
        "http://hop.test/a",
        "http://rules.test/a",
        sites=(operator, redirects, robots, *(site(host) for host in OPEN_HOSTS)),
    )


@pytest.mark.parametrize("form", BLOCKED)
def test_r3_2_and_r3_3_every_form_of_a_listed_host_is_skipped(
    hosts_crawl: Crawl, form: str
) -> None:
    refused = [item for item in hosts_crawl.items if "R3 blocked_operator" in item.get("why", "")]
    assert BLOCKED[form].rpartition("//")[2].rpartition("@")[2].lower() in " ".join(
        item["url"].lower() for item in refused
    )


def test_r3_2_any_request_at_all_also_hops_and_robots_txt(hosts_crawl: Crawl) -> None:
    reached = {"operator.test", "hop.test", "rules.test", *OPEN_HOSTS}
    assert set(hosts(hosts_crawl.log)) == reached


def test_r3_2_what_only_looks_like_a_listed_host_is_fetched(hosts_crawl: Crawl) -> None:
    for host in OPEN_HOSTS:
        assert hosts_crawl.asked(host) == ["/robots.txt", "/open"]


def test_r3_10_a_first_fetch_that_fails_gives_an_empty_list(run: Callable[..., Crawl]) -> None:
    nothing = site("operator.test", {LIST: Route(404)})
    result = run(HELD, sites=(nothing,), settings=FAR_OFF)
    assert result.asked("blocked.test") == ["/robots.txt", "/x"]
    assert len(result.lines("WARNING", f"{OPERATOR}/blocklist.json", "NO LIST")) == 1


LATE_SPIDER = """
import asyncio, scrapy

class Probe(scrapy.Spider):
    name = "probe"

    async def start(self):
        yield scrapy.Request("http://path.test/public")
        await asyncio.sleep(2.0)  # the list, too, is asked once a second at most
        yield scrapy.Request("http://blocked.test/x")

    def parse(self, response):
        pass
"""


def test_r3_10_a_first_fetch_that_fails_is_made_again_soon(run: Callable[..., Crawl]) -> None:
    route = Route(sequence=(Route(404), listing("blocked.test")))
    result = run(
        sites=(site("operator.test", {LIST: route}),),
        spider=LATE_SPIDER,
        settings={"WALSH_BACKOFF_BASE": 0.01},
    )
    assert result.asked("operator.test") == [LIST, LIST]
    assert result.asked("blocked.test") == []


def test_r3_7_without_an_inline_schema_the_standalone_one_is_asked_for(
    run: Callable[..., Crawl],
) -> None:
    operator = site(
        "operator.test",
        {LIST: served(blocklist(inline=False)), SCHEMA: served(blocklist()["schema"])},
    )
    result = run(HELD, sites=(operator,))
    assert result.asked("operator.test") == [LIST, SCHEMA]
    assert result.asked("blocked.test") == []


def test_r10_5_without_any_schema_the_document_is_not_adopted(run: Callable[..., Crawl]) -> None:
    operator = site("operator.test", {LIST: served(blocklist(inline=False)), SCHEMA: Route(404)})
    result = run(HELD, sites=(operator,), settings=FAR_OFF)
    assert "/x" in result.asked("blocked.test")  # nothing was ever held: open (R3.10), and said
    assert result.lines("rejected", f"{OPERATOR}/blocklist.json", "schema")
