"""R8: whatever came from the wire is a visit, and a source whose visits fail is left alone longer.

The table of outcomes is sent whole, in one crawl, and what the server saw of the next run is that
nothing is sent again.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.policy.visits import ANSWERED, FAILED, LEADS_ON, of_answer
from scrapy_walsh.proof.sandbox import Request, Route
from scrapy_walsh.state.records import VisitRecord
from tests.crawl.harness import HOUR, Crawl, Runs, site
from tests.runs.test_revisit import verified

if TYPE_CHECKING:
    from pathlib import Path

HOSTS = [f"h{number}.test" for number in range(120)]
REDIRECTS = [status for status in range(300, 400) if of_answer(status) == LEADS_ON]
#: Locations that no redirect can follow.
NOWHERE = {
    "mail": "mailto:a@b.test",
    "port": "http://h0.test:99999/p",
    "bracket": "http://[::1/p",
    "script": "javascript:void(0)",
    "ftp": "ftp://h0.test/p",
    "empty": "",
}
#: What a path asks for: ``/plain/404``, ``/to/302``, ``/mail/301``, ``/early/103``.
PATHS = [
    *(f"/{kind}/{status}" for kind in ("plain", "to") for status in range(200, 1000)),
    *(f"/{kind}/{status}" for kind in NOWHERE for status in REDIRECTS),
    *(f"/early/{status}" for status in range(100, 200)),
]
URLS = [f"http://{HOSTS[n % len(HOSTS)]}{path}" for n, path in enumerate(PATHS)]


def answer(request: Request) -> Route:
    _, kind, word = request.path.split("/")
    status = int(word)
    if kind == "early":
        return Route(200, "late", interim=[status])
    if kind == "end":
        return Route(200, "end")
    location = {"plain": None, "to": f"/end/{status}"} | NOWHERE
    return Route(status, "body", location=location[kind])


def expected(path: str) -> tuple[str, str]:
    """What the visit of a path is on record as: its meaning, and the status."""
    _, kind, word = path.split("/")
    status = int(word)
    if kind == "early":
        return ANSWERED, "200"
    meaning = of_answer(status, unasked=True)
    if meaning == LEADS_ON:
        return (ANSWERED, "200") if kind == "to" else (FAILED, "")
    return meaning, word if meaning == ANSWERED else ""


@dataclass
class Zoo:
    first: Crawl
    again: Crawl
    records: dict[str, VisitRecord]
    verified: int


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Zoo:
    settings = {"WALSH_MAX_RETRIES": 0, "LOG_LEVEL": "ERROR"}
    directory = tmp_path_factory.mktemp("zoo")
    with Runs(directory, *(site(host, {"*": answer}) for host in HOSTS), settings=settings) as runs:
        first, again = runs(*URLS, timeout=900), runs(*URLS, timeout=900)
        with runs.store() as store:
            records = {record.url: record for record in store.rows(VisitRecord)}
        return Zoo(first, again, records, verified(directory))


def test_r8_every_status_is_a_visit_and_is_not_sent_by_the_next_run(zoo: Zoo) -> None:
    sent = Counter(f"http://{each.host}{each.path}" for each in zoo.first.log if each.host in HOSTS)
    # An empty Location leads back to the URL itself, five times (D5).
    assert [url for url in URLS if sent[url] != (6 if "/empty/" in url else 1)] == []
    assert zoo.again.log == []
    assert zoo.verified == 0


def test_r8_each_visit_is_on_record_as_what_it_was(zoo: Zoo) -> None:
    wrong = {}
    for url, path in zip(URLS, PATHS, strict=True):
        record = zoo.records.get(url)
        if record is None:
            wrong[path] = "no record"
            continue
        meaning = ANSWERED if record.gave_up_at is None else FAILED
        if (meaning, record.outcome) != expected(path) or record.failures != (meaning == FAILED):
            wrong[path] = f"{meaning}, {record.outcome!r}, {record.failures}"
    assert wrong == {}


#: Ways for the visits of a source to fail, each a route of its own host.
WAYS = {
    "500": Route(500),
    "429": Route(429),
    "later": Route(503, headers={"Retry-After": "400"}),
    "silent": Route(behaviour="reset"),
    "loop": Route(302, location="/f"),
    "nowhere": Route(301),
    "choices": Route(300, location="/f"),
    "unasked": Route(304),
    "parked": Route(302, location="http://hop.test/other"),
}
SOURCES = {way: f"http://{way}.test/f" for way in WAYS}
#: Hours at which a job is run; what is sent then, where each visit fails.
JOBS = {0.0: True, 0.5: False, 1.05: True, 2.0: False, 3.1: True, 5.0: False, 7.2: True}


def test_r8_a_failing_source_slows_down_until_it_answers(tmp_path: Path) -> None:
    settings = {"WALSH_MAX_RETRIES": 0}
    sites = [site(f"{way}.test", {"*": route}) for way, route in WAYS.items()]
    sites.append(site("hop.test", {"*": WAYS["later"]}))
    with Runs(tmp_path, *sites, settings=settings) as runs:
        begin = time.time()
        for hour, is_sent in JOBS.items():
            runs.at(begin + hour * HOUR)
            crawl = runs(*SOURCES.values())
            sent = {way for way in WAYS if "/f" in crawl.targets(f"{way}.test")}
            assert sent == (set(WAYS) if is_sent else set()), hour
        shown = json.loads(runs.command("state", "show", "--json").stdout)
        rows = {row["url"]: row for row in shown["sources"]}
        for way, url in SOURCES.items():
            assert rows[url]["failures"] == 4, way
            assert rows[url]["next_due"] is not None
        table = runs.command("state", "show").stdout
        assert "failures" in table
        assert verified(tmp_path) == 0
        for host in (*WAYS, "hop"):
            runs.serve(f"{host}.test", "*", Route(body="well"))
        runs.at(begin + 15.4 * HOUR)
        back = runs(*SOURCES.values())
        assert {way for way in WAYS if "/f" in back.targets(f"{way}.test")} == set(WAYS)
        with runs.store() as store:
            for url in SOURCES.values():
                record = store.get(VisitRecord, url)
                assert record is not None
                assert (record.failures, record.gave_up_at) == (0, None), url


def test_r8_a_failed_visit_does_not_lead_to_llms_txt(tmp_path: Path) -> None:
    llms = Route(body="# Links\n\n- [One](http://a.test/one)\n", content_type="text/plain")
    routes = {"500.test": Route(500), "300.test": Route(300), "404.test": Route(404)}
    sites = [site(host, {"/": route, "/llms.txt": llms}) for host, route in routes.items()]
    settings = {"WALSH_MAX_RETRIES": 0, "SPIDER_MODULES": ["scrapy_walsh.spiders"]}
    with Runs(tmp_path, *sites, settings=settings) as runs:
        crawl = runs(*(f"http://{host}/" for host in routes), spider_name="walsh_metadata")
    for host in routes:
        expected_paths = ["/", "/llms.txt"] if host == "404.test" else ["/"]
        assert crawl.targets(host) == expected_paths, host
