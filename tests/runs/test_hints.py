"""Hints: an hourly job reads each source when its publisher's word permits it."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from scrapy_walsh.proof.sandbox import Route
from tests.crawl.harness import HOUR, Runs, site
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
