"""Hints: an hourly job reads each source when its publisher's word permits it."""

from __future__ import annotations

import json
import time
from email.utils import formatdate
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from scrapy_walsh.proof.sandbox import Route
from tests.crawl.harness import DAY, HOUR, LIST_SPIDER, Runs, site
from tests.ledger.test_crawl import ledger_of
from tests.runs.test_revisit import verified

if TYPE_CHECKING:
    from pathlib import Path

FEED = Route(
    body="<rss version='2.0'><channel><ttl>200</ttl><item><link>/1</link></item></channel></rss>",
    content_type="application/rss+xml",
    etag='"1"',
)
ROUTES = {
    "cached.test": Route(body="page", headers={"Cache-Control": "max-age=7800"}, etag='"1"'),
    "expires.test": Route(404, headers={"Expires": "Fri, 31 Dec 2049 23:59:59 GMT"}),
    "feed.test": FEED,
    "old.test": Route(301, location="http://new.test/p"),
    "plain.test": Route(body="page", headers={"Cache-Control": b"no-cache, max-age=0, \xff"}),
}
#: By host, the hours that the job reads it in. In hour 5 it has WALSH_HINTS = 0.
READ = {
    "cached.test": [0, 3, 5],
    "expires.test": [0, 5],
    "feed.test": [0, 4, 5],
    "old.test": [0, 4, 5],
    "plain.test": [0, 1, 3, 4, 5, 6],
}
HOURS = (0, 1, 3, 4, 5, 6)


class _Job(NamedTuple):
    """``read``: by host, the hours. ``shown``: by URL, the rows of ``state show``."""

    project: Path
    read: dict[str, list[int]]
    shown: dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> _Job:
    sites = [site(host, {"/p": route}) for host, route in ROUTES.items()]
    sites.append(site("new.test", {"/p": FEED}))
    urls = [f"http://{host}/p" for host in ROUTES]
    read: dict[str, list[int]] = {host: [] for host in ROUTES}
    directory = tmp_path_factory.mktemp("hints")
    with Runs(directory, *sites, settings={"WALSH_REVISIT": HOUR}) as runs:
        start = time.time() + HOUR
        for hour in HOURS:
            runs.at(start + hour * (HOUR + 60))
            done = runs(*urls, arguments=("-s", "WALSH_HINTS=0") if hour == 5 else ())
            for host, hours in read.items():
                hours += [hour for _ in done.targets(host)]
        shown = json.loads(runs.command("state", "show", "--json").stdout)["sources"]
    return _Job(runs.project, read, {row["url"]: row for row in shown})


def test_an_hourly_job_reads_a_source_when_its_hint_is_over(job: _Job) -> None:
    assert job.read == READ


def test_state_show_names_the_hint(job: _Job) -> None:
    hints = {url: row["hint"] for url, row in job.shown.items()}
    assert hints["http://cached.test/p"] == "Cache-Control asks for 2 h 10 min"
    assert hints["http://expires.test/p"].startswith("Expires asks for ")
    assert hints["http://feed.test/p"] == hints["http://old.test/p"] == "ttl asks for 3 h 20 min"
    assert hints["http://plain.test/p"] == ""


def test_the_ledger_names_hint_and_cause_and_verify_agrees(job: _Job) -> None:
    lines = ledger_of(job.project)
    refusals = [line for line in lines if line["kind"] == "refused"]
    assert {line["cause"] for line in refusals} == {"hint"}
    by_feed = [line["reason"] for line in refusals if line["host"] == "feed.test"]
    assert all(", ttl asks for 3 h 20 min, next due " in reason for reason in by_feed)
    answers = [line for line in lines if line["kind"] in ("fetched", "not_modified")]
    of_feed = [line["hints"]["origin"] for line in answers if line["host"] == "feed.test"]
    assert of_feed == ["ttl"] * 3  # an answer 304 has no body
    assert verified(job.project) == 0


# -- what else an answer says about time --------------------------------------------------


def test_a_robots_txt_is_read_again_when_its_max_age_is_over(tmp_path: Path) -> None:
    """An hourly bot hears of a Disallow within two hours, and a daily one is no more curious."""
    fields = {"Cache-Control": "max-age=3600"}

    def rules(text: str) -> Route:
        return Route(body=f"User-agent: *\n{text}\n", content_type="text/plain", headers=fields)

    hosts = ("hourly.test", "daily.test", "silent.test")
    sites = [site(host, {}, rules("Allow: /")) for host in hosts[:2]]
    spider = LIST_SPIDER.replace(
        "self.failed)", "self.failed, meta={'walsh_revisit': 3600 if 'hourly' in url else None})"
    )
    urls = [f"http://{host}/{page}" for host in hosts for page in "ab"]
    asked: dict[str, list[int]] = {host: [] for host in hosts}
    with Runs(tmp_path, *sites, site("silent.test"), spider=spider) as runs:
        start = time.time() + HOUR
        for hour in range(4):
            if hour == 2:
                runs.serve("hourly.test", "/robots.txt", rules("Disallow: /"))
            runs.at(start + hour * (HOUR + 60))
            done = runs(*urls, *(f"http://{host}/{hour}" for host in hosts[1:]))
            for host in hosts:
                asked[host] += [hour] * done.robots_asked(host)
            assert bool(done.targets("hourly.test")) is (hour < 2)
        assert asked == {"hourly.test": [0, 1, 2, 3], "daily.test": [0], "silent.test": [0]}
        assert verified(runs.project) == 0
        adopted = [line for line in ledger_of(runs.project) if line["kind"] == "adopted"]
        assert {line.get("max_age") for line in adopted} == {3600, None}


def test_a_rate_limit_that_is_used_up_holds_its_host_until_the_reset(tmp_path: Path) -> None:
    used_up = {"RateLimit": '"hour";r=0;t=2400'}
    left = {"X-RateLimit-Remaining": "3", "X-RateLimit-Reset": "2400"}
    routes = {
        "limited.test": {"/a": Route(body="a", headers=used_up)},
        "free.test": {"/a": Route(body="a", headers=left)},
        "far.test": {"/a": Route(body="a", headers={"RateLimit": '"year";r=0;t=99999'})},
    }
    urls = [f"http://{host}/{page}" for page in "ab" for host in routes]
    with Runs(tmp_path, *[site(host, pages) for host, pages in routes.items()]) as runs:
        start = time.time() + HOUR
        runs.at(start)
        first = runs(*urls)
        assert first.targets("limited.test") == ["/a"]
        assert first.lines("deferred", "http://limited.test/b"), first.output
        (line,) = first.lines("is left of its rate limit (RateLimit)")
        assert "limited.test" in line
        assert line.endswith("no request for 2400 s")
        assert first.targets("free.test") == first.targets("far.test") == ["/a", "/b"]
        runs.at(start + 2000)
        assert runs(*urls).log == []
        runs.at(start + 2500)
        assert runs(*urls).targets("limited.test") == ["/b"]
        resets = [line["reset"] for line in ledger_of(runs.project) if line.get("reset")]
        assert resets == [2400]
        assert verified(runs.project) == 0


def test_a_source_with_auto_is_read_as_often_as_it_writes(tmp_path: Path) -> None:
    """In a daily job: one that wrote each day, one that wrote once a year ago, and a page."""
    start = time.time() + HOUR

    def feed(*days_ago: float) -> Route:
        items = [f"<item><pubDate>{formatdate(start - days * DAY)}</pubDate></item>"
                 for days in days_ago]  # fmt: skip
        body = f"<rss version='2.0'><channel>{''.join(items)}</channel></rss>"
        return Route(body=body, content_type="application/rss+xml", etag='"1"')

    routes = {
        "daily.test": feed(0.5, 1.5, 2.5),
        "monthly.test": feed(20, 50),  # every 3.5 days
        "page.test": Route(body="<p>page</p>", etag='"1"'),
        "weekly.test": Route(body="<p>page</p>"),
    }
    cadences = "{'daily': 'auto', 'monthly': 'auto', 'page': 'auto', 'weekly': 'P7D'}"
    meta = f"meta={{'walsh_revisit': {cadences}[url.split('/')[2].split('.')[0]]}}"
    spider = LIST_SPIDER.replace("self.failed)", f"self.failed, {meta})")
    read: dict[str, list[int]] = {host: [] for host in routes}
    sites = [site(host, {"/p": route}) for host, route in routes.items()]
    with Runs(tmp_path, *sites, spider=spider) as runs:
        for day in (0, 1, 2, 3, 4):
            runs.at(start + day * (DAY + 60))
            done = runs(*[f"http://{host}/p" for host in routes])
            for host in routes:
                read[host] += [day] * len(done.targets(host))
        shown = json.loads(runs.command("state", "show", "--json").stdout)["sources"]
        every = {row["url"]: row["every"] / DAY for row in shown}
        assert every["http://monthly.test/p"] == pytest.approx(3.7, abs=0.1)
        assert every["http://weekly.test/p"] == 7
        assert read == {
            "daily.test": [0, 1, 2, 3, 4],
            "monthly.test": [0, 4],
            "page.test": [0, 1, 2, 3],  # three answers 304
            "weekly.test": [0],
        }
        declared = [line for line in ledger_of(runs.project) if line["kind"] == "declared"]
        assert {line["revisit"] for line in declared} == {0, 7 * DAY}
        assert verified(runs.project) == 0
