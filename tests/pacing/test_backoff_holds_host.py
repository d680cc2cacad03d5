"""R5: who answers 429 or 503 is left alone, and nobody else pays for it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.proof.sandbox import Request, Route, Sandbox, blocklist, max_in_flight, requests
from tests.crawl.harness import (
    OPERATOR,
    TOGETHER,
    Crawl,
    crawl,
    crawl_of,
    kept,
    make_project,
    rules,
    site,
    targets,
    too_soon,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

OPEN = rules("Allow: /")
BAD = [f"bad{number}.test" for number in range(4)]
GOOD = [f"good{number}.test" for number in range(4)]
PAGES = 3
HELD = 5.0


def refusal(status: int, retry_after: float | None = None) -> Route:
    return Route(status, headers={} if retry_after is None else {"Retry-After": f"{retry_after:g}"})


#: robots.txt files that answer at the second time of asking.
LATE_ROBOTS = {
    f"robots-{status}.test": Route(sequence=(refusal(status, HELD), rules("Disallow: /no")))
    for status in (429, 503)
}

ALWAYS = {429: "always-429.test", 503: "always-503.test"}
STUBBORN = f"""
{TOGETHER}

class Probe(scrapy.Spider):
    name = "probe"
    handle_httpstatus_list = [429, 503]

    async def start(self):
        for status, host in {ALWAYS!r}.items():
            meta = {{"handle_httpstatus_all": True, "handle_httpstatus_list": [status]}}
            yield scrapy.Request(f"http://{{host}}/p", meta=meta, errback=self.failed)
        yield scrapy.Request(
            "http://page.test/", self.ask, meta={{"walsh_also": ["http://past.test/p"]}}
        )

    async def ask(self, response):
        (answer,) = await together(self, ["http://past.test/p"])
        yield {{"url": "http://past.test/p", "error": type(answer).__name__, "why": str(answer)}}

    def parse(self, response):
        yield {{"url": response.url, "status": response.status}}

    def failed(self, failure):
        yield {{"url": failure.request.url, "error": failure.type.__name__, "why": ""}}
"""


def late_list(directory: Path) -> Crawl:
    """A crawl whose blocklist answers 503 at first."""
    with Sandbox() as box:
        box.put(site("listed.test"))
        box.put(site("long.test"))
        box.put(site("other.test"))
        document = Route(body=json.dumps(blocklist("http://operator.test", "listed.test")))
        box.set_route(
            "operator.test",
            OPERATOR.removeprefix("http://operator.test") + "/blocklist.json",
            Route(sequence=(refusal(503, 3), document)),
        )
        urls = [*(f"http://long.test/{page}" for page in range(6)), "http://other.test/"]
        return crawl(make_project(directory), box, *urls)


def turned(request: Request) -> Route:
    asked = sum(each.host == "into.test" and each.path == "/end" for each in request.log)
    return refusal(503, 2) if asked < 2 else OPEN


CRAWLS: dict[str, Callable[[Path], Crawl]] = {
    "storm": crawl_of(
        *(f"http://{host}/p" for host in BAD),
        *(f"http://{host}/{page}" for page in range(PAGES) for host in GOOD),
        sites=[
            *(site(host, {"/p": refusal(429, HELD)}) for host in BAD),
            *(site(host) for host in GOOD),
        ],
        settings={"WALSH_MAX_RETRIES": 1},
    ),
    "robots": crawl_of(
        *(f"http://{host}/{path}" for host in LATE_ROBOTS for path in ("yes", "no")),
        *(f"http://good.test/{page}" for page in range(PAGES)),
        sites=[
            *(site(host, robots=route) for host, route in LATE_ROBOTS.items()),
            site("good.test"),
        ],
    ),
    "list": late_list,
    "stubborn": crawl_of(
        sites=[
            *(site(host, {"/p": Route(status)}) for status, host in ALWAYS.items()),
            site("past.test", {"/p": Route(503)}),
            site("page.test"),
        ],
        spider=STUBBORN,
        settings={"WALSH_BACKOFF_BASE": 0.01, "RETRY_HTTP_CODES": [], "RETRY_TIMES": 0},
    ),
    "schedule": crawl_of(
        "http://slower.test/p",
        "http://first.test/p",
        "http://first.test/q",
        sites=[
            site("slower.test", {"/p": Route(sequence=(Route(500), Route(502), Route(504), OPEN))}),
            site("first.test", {"/p": Route(sequence=(refusal(503, 2), OPEN))}),
        ],
    ),
    "into": crawl_of(
        "http://from.test/",
        "http://into.test/other",
        sites=[
            site("from.test", {"/": Route(302, location="http://into.test/end")}),
            site("into.test", {"/end": turned}),
        ],
    ),
}


@pytest.mark.parametrize("name", CRAWLS)
def test_r4_2_a_retry_keeps_the_spacing(crawls: Callable[[str], Crawl], name: str) -> None:
    log = crawls(name).log
    assert max_in_flight(log) == 1
    assert too_soon(log) == []


def test_r5_1_half_of_the_hosts_refuse_and_the_others_go_at_full_speed(
    crawls: Callable[[str], Crawl],
) -> None:
    result = crawls("storm")
    assert [targets(result.log, host)[0].status for host in BAD] == [429] * 4
    retries = [targets(result.log, host)[1].arrived for host in BAD]
    good = targets(result.log, *GOOD)
    assert len(good) == PAGES * len(GOOD)
    assert max(each.arrived for each in good) < min(retries)


@pytest.mark.parametrize("host", BAD)
def test_r5_3_the_host_that_refused_is_left_alone(
    crawls: Callable[[str], Crawl], host: str
) -> None:
    result = crawls("storm")
    assert len(targets(result.log, host)) == 2
    assert kept(result.gaps(host)[1:], HELD)
    assert not result.fetched(f"http://{host}/p")


@pytest.mark.parametrize("host", LATE_ROBOTS)
def test_r5_1_a_robots_txt_that_refuses_holds_its_own_host(
    crawls: Callable[[str], Crawl], host: str
) -> None:
    result = crawls("robots")
    assert result.asked(host) == ["/robots.txt", "/robots.txt", "/yes"]
    assert kept(result.gaps(host)[:1], HELD)
    second = result.requests(host)[1].arrived
    assert len(targets(result.log, "good.test")) == PAGES
    assert all(each.arrived < second for each in targets(result.log, "good.test"))


def test_r5_1_a_blocklist_that_refuses_holds_its_own_host(
    crawls: Callable[[str], Crawl],
) -> None:
    result = crawls("list")
    asked = requests(result.log, "operator.test")
    assert [each.status for each in asked][:2] == [503, 200]
    assert kept(result.gaps("operator.test")[:1], 3.0)
    meanwhile = [each for each in targets(result.log) if each.arrived < asked[1].arrived]
    assert {each.host for each in meanwhile} == {"long.test", "other.test"}
    assert len(meanwhile) >= 3
    assert result.lines("adopted", "blocklist of 1 domain,")


@pytest.mark.parametrize("host", [*ALWAYS.values(), "past.test"])
def test_r5_6_after_five_retries_it_gives_up(crawls: Callable[[str], Crawl], host: str) -> None:
    result = crawls("stubborn")
    assert [each.path for each in targets(result.log, host)] == ["/p"] * 6
    (item,) = [item for item in result.items if item["url"] == f"http://{host}/p"]
    assert item["error"] == "GaveUp"
    assert len(result.lines("WARNING", f"given_up http://{host}/p")) == 1


def test_r5_8_no_callback_sees_a_429_or_503(crawls: Callable[[str], Crawl]) -> None:
    assert [item for item in crawls("stubborn").items if "status" in item] == []


def test_r5_6_what_failed_is_counted(crawls: Callable[[str], Crawl]) -> None:
    stats = crawls("stubborn").stats
    assert stats["walsh/given_up"] == 3
    assert stats["walsh/retried"] == 3 * 5
    assert stats["walsh/fetched"] == 1


def test_r5_2_other_5xx_are_asked_again_in_their_time(crawls: Callable[[str], Crawl]) -> None:
    result = crawls("schedule")
    assert [each.status for each in targets(result.log, "slower.test")] == [500, 502, 504, 200]
    said = result.lines("retried http://slower.test/p")
    delays = [float(line.split(" in ")[1].split()[0]) for line in said]
    found = result.gaps("slower.test")[1:]
    assert len(delays) == len(found) == 3
    assert all(kept([gap], max(1.0, delay)) for gap, delay in zip(found, delays, strict=True))


def test_r5_1_the_retry_comes_first_on_its_host(crawls: Callable[[str], Crawl]) -> None:
    asked = [each.path for each in targets(crawls("schedule").log, "first.test")]
    assert asked == ["/p", "/p", "/q"]


def test_r5_3_a_redirect_into_a_refusal_holds_the_host_it_names(
    crawls: Callable[[str], Crawl],
) -> None:
    result = crawls("into")
    asked = targets(result.log, "into.test")
    assert sorted(each.path for each in asked) == ["/end", "/end", "/other"]
    refused = [each.status for each in asked].index(503)
    assert asked[refused + 1].path == "/end"
    assert kept([asked[refused + 1].arrived - (asked[refused].completed or 0)], 2.0)
    assert result.fetched("http://into.test/end")
