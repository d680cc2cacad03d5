"""R5: back-off, Retry-After and giving up, a host for each case in one crawl."""

from __future__ import annotations

import re
import time
from email.utils import formatdate
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.policy.backoff import backoff_delay
from scrapy_walsh.proof.sandbox import Request, Route, requests
from tests.crawl.harness import TOLERANCE, Crawl, crawl, kept, site, solo

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scrapy_walsh.proof.sandbox import Sandbox
    from scrapy_walsh.proof.sandbox.site import Answerer

OK = Route(body="<p>at last</p>")
LATER = Route(503, etag='"of-a-503"')


def refused(retry_after: str | None = None, status: int = 429) -> Route:
    return Route(status, headers={"Retry-After": retry_after} if retry_after else {})


def in_two_seconds(request: Request) -> Route:
    if sum(each.path == "/p" and each.host == "date.test" for each in request.log) > 1:
        return OK
    return refused(formatdate(time.time() + 3, usegmt=True))


CASES: dict[str, Route | Answerer] = {
    "once.test": Route(sequence=(refused(), OK)),
    "seconds.test": Route(sequence=(refused("2"), OK)),
    "date.test": in_two_seconds,
    "zero.test": Route(sequence=(refused("0"), OK)),
    "past.test": Route(sequence=(refused("Sat, 23 May 2015 00:00:00 GMT"), OK)),
    "words.test": Route(sequence=(refused("soon"), OK)),
    "always.test": LATER,
    "teapot.test": Route(418),
    "error.test": Route(sequence=(Route(500), OK)),
    "reset.test": Route(behaviour="reset"),
}


@pytest.fixture(scope="module")
def backed_off(tmp_path_factory: pytest.TempPathFactory) -> Crawl:
    sites = [site(host, {"/p": route}) for host, route in CASES.items()]
    delayed = Route(sequence=(refused("1"), OK))
    sites.append(site("delayed.test", {"/p": delayed}, "User-agent: *\nCrawl-delay: 3\n"))
    held = {"/p": Route(sequence=(refused("3"), OK))}
    return solo(
        tmp_path_factory.mktemp("backoff"),
        *(f"http://{each.host}/p" for each in sites),
        "http://held.test/p",
        "http://held.test/other",
        sites=(*sites, site("held.test", held)),
        settings={"WALSH_BACKOFF_BASE": 0.2},
    )


def targets(run: Crawl, host: str) -> list[str]:
    return [path for path in run.asked(host) if path != "/robots.txt"]


@pytest.mark.parametrize("host", ["once.test", "seconds.test", "error.test", "delayed.test"])
def test_r5_1_it_backs_off_and_asks_again(backed_off: Crawl, host: str) -> None:
    assert targets(backed_off, host) == ["/p", "/p"]
    assert backed_off.fetched(f"http://{host}/p")


def test_r5_3_retry_after_in_seconds_is_waited_out(backed_off: Crawl) -> None:
    assert kept(backed_off.gaps("seconds.test")[1:], 2.0)


def test_r5_4_retry_after_as_a_date_is_waited_out(backed_off: Crawl) -> None:
    first, second = backed_off.requests("date.test")[1:]
    assert second.wall >= int(first.wall) + 3 - TOLERANCE


@pytest.mark.parametrize("host", ["zero.test", "past.test", "words.test"])
def test_r5_4_a_retry_after_of_no_use_leaves_r4s_spacing(backed_off: Crawl, host: str) -> None:
    assert targets(backed_off, host) == ["/p", "/p"]
    assert kept(backed_off.gaps(host)[1:], 1.0)


def test_r5_7_a_crawl_delay_longer_than_retry_after_rules(backed_off: Crawl) -> None:
    assert kept(backed_off.gaps("delayed.test")[1:], 3.0)


def test_r5_3_retry_after_holds_the_whole_host(backed_off: Crawl) -> None:
    asked = backed_off.requests("held.test")[1:]
    assert [each.path for each in asked].count("/p") == 2
    refusal = next(each for each in asked if each.status == 429)
    after = [each.arrived for each in asked if each.arrived > refusal.arrived]
    assert kept([arrived - (refusal.completed or 0) for arrived in after], 3.0)


def test_r5_6_at_most_five_retries_then_it_gives_up_on_record(backed_off: Crawl) -> None:
    assert targets(backed_off, "always.test") == ["/p"] * 6
    assert "GaveUp" in backed_off.why("http://always.test/p")
    assert len(backed_off.lines("WARNING", "given_up http://always.test/p")) == 1
    assert backed_off.stats["walsh/given_up"] == 2


def test_r5_2_transport_errors_keep_the_schedule(backed_off: Crawl) -> None:
    assert targets(backed_off, "reset.test") == ["/p"] * 6
    assert "GaveUp" in backed_off.why("http://reset.test/p")


@pytest.mark.parametrize("host", ["always.test", "reset.test"])
def test_r5_7_never_faster_than_the_schedule(backed_off: Crawl, host: str) -> None:
    said = backed_off.lines("retried", f"http://{host}/p")
    delays = [float(re.search(r" in ([\d.]+) s", line)[1]) for line in said]  # type: ignore[index]
    found = backed_off.gaps(host)[1:]
    assert len(delays) == len(found) == 5
    for gap, delay in zip(found, delays, strict=True):
        assert gap >= max(delay, 1.0) - TOLERANCE


def test_r5_1_another_4xx_is_not_asked_again(backed_off: Crawl) -> None:
    assert targets(backed_off, "teapot.test") == ["/p"]


def test_r5_8_a_503_is_no_success(backed_off: Crawl) -> None:
    assert not backed_off.fetched("http://always.test/p")
    assert "GaveUp" in backed_off.why("http://always.test/p")


def test_r5_8_a_429_or_503_is_not_counted_as_fetched(backed_off: Crawl) -> None:
    answered = [each for each in requests(backed_off.log) if each.path in ("/p", "/other")]
    got = [each for each in answered if each.status not in (429, 500, 503, None)]
    assert backed_off.stats["walsh/fetched"] == len(got)


def test_r5_8_a_503_leaves_no_validator(run: Callable[..., Crawl]) -> None:
    once = {"WALSH_MAX_RETRIES": 0, "WALSH_BACKOFF_BASE": 0.01}
    sites = (site("later.test", {"/p": LATER}),)
    first = run("http://later.test/p", sites=sites, settings=once)
    second = run("http://later.test/p", settings=once)
    assert not first.fetched("http://later.test/p")
    (asked,) = second.requests("later.test")
    assert asked.values("If-None-Match") == []


def test_r5_5_full_jitter_from_nothing_to_the_doubled_base_capped() -> None:
    for attempt in range(8):
        most = min(60.0, 2.0**attempt)
        assert backoff_delay(attempt, 0.0) == 0.0
        assert most * 0.99 <= backoff_delay(attempt, 0.999) < most


def test_r5_3_a_retry_after_beyond_patience_is_kept_across_runs(
    run: Callable[..., Crawl], box: Sandbox, tmp_path: Path
) -> None:
    first = run("http://flaky.test/tomorrow", "http://path.test/public")
    assert targets(first, "flaky.test") == ["/tomorrow"]
    assert targets(first, "path.test") == ["/public"]
    assert len(first.lines("WARNING", "deferred", "http://flaky.test/tomorrow")) == 1
    second = crawl(tmp_path / "project", box, "http://flaky.test/tomorrow", "http://flaky.test/")
    assert second.asked("flaky.test") == []
    assert "deferred" in second.why("http://flaky.test/")


def test_r5_1_robots_txt_backs_off_too_and_a_429_is_never_no_rules(
    run: Callable[..., Crawl],
) -> None:
    rules = Route(body="User-agent: *\nDisallow: /private/\n", content_type="text/plain")
    late = site("late.test", robots=Route(sequence=(refused("1", 503), rules)))
    result = run(
        "http://late.test/a",
        "http://late.test/private/a",
        "http://robots-429.test/a",
        sites=(late,),
        settings={"WALSH_MAX_RETRIES": 1},
    )
    assert result.asked("late.test") == ["/robots.txt", "/robots.txt", "/a"]
    assert kept(result.gaps("late.test"), 1.0)
    assert result.asked("robots-429.test") == ["/robots.txt"] * 2
    assert "deferred" in result.why("http://robots-429.test/a")
