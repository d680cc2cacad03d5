"""R5: back-off and Retry-After, a host for each case in one crawl; see ``tests/pacing`` too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.proof.sandbox import Route, requests
from tests.crawl.harness import Crawl, crawl, kept, site, solo

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scrapy_walsh.proof.sandbox import Sandbox

OK = Route(body="<p>at last</p>")
LATER = Route(503, etag='"of-a-503"')


def refused(retry_after: str | None = None, status: int = 429) -> Route:
    return Route(status, headers={"Retry-After": retry_after} if retry_after else {})


CASES = {
    "once.test": Route(sequence=(refused(), OK)),
    "zero.test": Route(sequence=(refused("0"), OK)),
    "past.test": Route(sequence=(refused("Sat, 23 May 2015 00:00:00 GMT"), OK)),
    "words.test": Route(sequence=(refused("soon"), OK)),
    "teapot.test": Route(418),
    "error.test": Route(sequence=(Route(500), OK)),
}


@pytest.fixture(scope="module")
def backed_off(tmp_path_factory: pytest.TempPathFactory) -> Crawl:
    sites = [site(host, {"/p": route}) for host, route in CASES.items()]
    delayed = Route(sequence=(refused("1"), OK))
    sites.append(site("delayed.test", {"/p": delayed}, "User-agent: *\nCrawl-delay: 3\n"))
    return solo(
        tmp_path_factory.mktemp("backoff"),
        *(f"http://{each.host}/p" for each in sites),
        sites=tuple(sites),
        settings={"WALSH_BACKOFF_BASE": 0.2},
    )


@pytest.mark.parametrize("host", ["once.test", "error.test", "delayed.test"])
def test_r5_1_it_backs_off_and_asks_again(backed_off: Crawl, host: str) -> None:
    assert backed_off.targets(host) == ["/p", "/p"]
    assert backed_off.fetched(f"http://{host}/p")


@pytest.mark.parametrize("host", ["zero.test", "past.test", "words.test"])
def test_r5_4_a_retry_after_of_no_use_leaves_r4s_spacing(backed_off: Crawl, host: str) -> None:
    assert backed_off.targets(host) == ["/p", "/p"]
    assert kept(backed_off.gaps(host)[1:], 1.0)


def test_r5_7_a_crawl_delay_longer_than_retry_after_rules(backed_off: Crawl) -> None:
    assert kept(backed_off.gaps("delayed.test")[1:], 3.0)


def test_r5_1_another_4xx_is_not_asked_again(backed_off: Crawl) -> None:
    assert backed_off.targets("teapot.test") == ["/p"]


def test_r5_8_a_429_or_503_is_not_counted_as_fetched(backed_off: Crawl) -> None:
    answered = [each for each in requests(backed_off.log) if each.path == "/p"]
    got = [each for each in answered if each.status not in (429, 500, 503, None)]
    assert backed_off.stats["walsh/fetched"] == len(got)


def test_r5_8_a_503_leaves_no_validator(run: Callable[..., Crawl]) -> None:
    once = {"WALSH_MAX_RETRIES": 0, "WALSH_BACKOFF_BASE": 0.01}
    sites = (site("later.test", {"/p": LATER}),)
    first = run("http://later.test/p", sites=sites, settings=once)
    second = run("http://later.test/p", settings={**once, "WALSH_REVISIT_REASON": "at once"})
    assert not first.fetched("http://later.test/p")
    (asked,) = second.requests("later.test")
    assert asked.values("If-None-Match") == []


def test_r5_3_a_retry_after_beyond_patience_is_kept_across_runs(
    run: Callable[..., Crawl], box: Sandbox, tmp_path: Path
) -> None:
    first = run("http://flaky.test/tomorrow", "http://path.test/public")
    assert first.targets("flaky.test") == ["/tomorrow"]
    assert first.targets("path.test") == ["/public"]
    assert len(first.lines("WARNING", "deferred", "http://flaky.test/tomorrow")) == 1
    second = crawl(
        tmp_path / "project", box, "http://flaky.test/tomorrow", "http://flaky.test/other"
    )
    assert second.asked("flaky.test") == []
    assert "deferred" in second.why("http://flaky.test/other")
