"""R8: when a later run may ask a source again."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.proof.sandbox import Route
from scrapy_walsh.state.records import Reading, VisitRecord
from tests.crawl.harness import DAY, HOUR, OWN_IDENTITY, Crawl, Runs, site, state_dir, verify, walsh
from tests.ledger.test_crawl import ledger_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

REASON = "the operator asked for a second look"
ROUTES = {
    "answered.test": Route(body="page", etag='"1"'),
    "gone.test": Route(404),
    "cut.test": Route(sequence=(Route(behaviour="reset"), Route(body="page"))),
    "busy.test": Route(sequence=(Route(503), Route(body="page"))),
    "later.test": Route(sequence=(Route(429, headers={"Retry-After": "7200"}), Route(body="page"))),
}
URLS = {host: f"http://{host}/p" for host in ROUTES}


def verified(project: Path) -> int:
    """The exit code of ``verify`` on what the runs of *project* wrote."""
    code, printed = verify(state_dir(project))
    print(printed)
    return code


def reason_of(runs: Runs, url: str) -> str | None:
    """The reason on record for the last run of a source."""
    with runs.store() as store:
        recorded = store.get(VisitRecord, url)
    assert recorded is not None
    return recorded.reason


@pytest.fixture(scope="module")
def visits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Crawl]]:
    """The same sources, run after run."""
    sites = [site(host, {"/p": route}) for host, route in ROUTES.items()]
    settings = {"WALSH_MAX_RETRIES": 0}
    with Runs(tmp_path_factory.mktemp("visits"), *sites, settings=settings) as runs:
        found = {"first": runs(*URLS.values()), "second": runs(*URLS.values())}
        runs.pass_time(HOUR + 1)
        given_up = ("cut.test", "busy.test", "later.test")
        found["an hour later"] = runs(*(URLS[host] for host in given_up))
        reason = ("-s", f"WALSH_REVISIT_REASON={REASON}")
        found["with a reason"] = runs(URLS["answered.test"], arguments=reason)
        found["with a reason"].stats["recorded"] = reason_of(runs, URLS["answered.test"])
        found["after it"] = runs(URLS["answered.test"])
        hourly = ("-s", f"WALSH_REVISIT={HOUR:.0f}")
        for name, ago in (("within the hour", HOUR - 400), ("after the hour", HOUR + 1)):
            runs.source_ran(URLS["answered.test"], ago)
            found[name] = runs(URLS["answered.test"], arguments=hourly)
        for name, ago in (("within the day", 0.9 * DAY - 120), ("after the day", 0.9 * DAY + 1)):
            runs.source_ran(URLS["answered.test"], ago)
            found[name] = runs(URLS["answered.test"])
        found["after the day"].stats["recorded"] = reason_of(runs, URLS["answered.test"])
        yield found


@pytest.mark.parametrize("host", ["answered.test", "gone.test"])
def test_r8_2_a_source_that_was_answered_is_skipped(visits: dict[str, Crawl], host: str) -> None:
    assert visits["first"].targets(host) == ["/p"]
    assert visits["second"].asked(host) == []


def test_r8_2_the_reason_and_the_due_time_are_said(visits: dict[str, Crawl]) -> None:
    why = visits["second"].why(URLS["answered.test"])
    assert "R8" in why
    due = re.search(r"next due (\S+Z)", why)
    assert due is not None, why
    seconds = datetime.fromisoformat(due[1]).astimezone(UTC).timestamp() - time.time()
    assert 0.9 * DAY - 60 < seconds <= 0.9 * DAY + 1
    assert visits["second"].lines("refused", URLS["answered.test"], "R8", "next due")


@pytest.mark.parametrize("host", ["cut.test", "busy.test"])
def test_r8_2_what_was_given_up_comes_back_after_an_hour(
    visits: dict[str, Crawl], host: str
) -> None:
    assert visits["first"].targets(host) == ["/p"]
    assert visits["second"].asked(host) == []
    assert visits["an hour later"].targets(host) == ["/p"]
    assert visits["an hour later"].fetched(URLS[host])


def test_r8_1_what_backs_off_comes_back_when_it_is_due(visits: dict[str, Crawl]) -> None:
    assert visits["first"].targets("later.test") == ["/p"]
    assert visits["second"].asked("later.test") == []
    assert visits["an hour later"].asked("later.test") == []
    assert "deferred" in visits["an hour later"].why(URLS["later.test"])


def test_r8_2_a_written_reason_lifts_it_for_one_run_and_is_recorded(
    visits: dict[str, Crawl],
) -> None:
    lifted = visits["with a reason"]
    assert lifted.targets("answered.test") == ["/p"]
    assert lifted.stats["recorded"] == REASON
    assert visits["after it"].asked("answered.test") == []
    assert visits["after the day"].stats["recorded"] is None


def test_r8_2_never_under_an_hour(visits: dict[str, Crawl]) -> None:
    assert visits["within the hour"].asked("answered.test") == []
    assert visits["after the hour"].targets("answered.test") == ["/p"]


def test_r8_1_an_hourly_job_reads_its_sources_each_hour(tmp_path: Path) -> None:
    """Each run begins as long after the one before as its sources may be sent again, or sooner."""
    urls = [f"http://{host}.test/p" for host in ("one", "two")]
    sites = [site(f"{host}.test", {"/p": Route(body="page")}) for host in ("one", "two")]
    settings = {"WALSH_REVISIT": 3600, "WALSH_MIN_INTERVAL": 1}
    with Runs(tmp_path, *sites, settings=settings) as runs:
        runs(*urls)
        for _ in range(3):
            runs.pass_time(HOUR - 2.0)
            with runs.store() as store:
                may = {url: store.get(VisitRecord, url).last_run_at + HOUR for url in urls}
            begun = time.time()
            again = runs(*urls)
            assert begun < min(may.values())
            paths = [each for each in again.log if each.path == "/p"]
            sent = {f"http://{each.host}/p": each.wall for each in paths}
            assert set(sent) == set(urls), again.output
            assert all(sent[url] >= may[url] for url in urls)
            assert again.lines("the run waits", "R8")


CADENCES = """
import scrapy

REVISIT = {"weekly": "P7D", "hourly": 3600, "wrong": "PT5M"}

class Probe(scrapy.Spider):
    name = "probe"

    def __init__(self, urls="", **kwargs):
        super().__init__(**kwargs)
        self.start_urls = urls.split()

    async def start(self):
        for url in self.start_urls:
            name = url.split("/")[2].removesuffix(".test")
            meta = {"walsh_revisit": REVISIT[name]} if name in REVISIT else {}
            yield scrapy.Request(url, meta=meta)

    def parse(self, response):
        yield {"url": response.url}
"""


def test_r8_1_each_source_has_its_own_cadence(tmp_path: Path) -> None:
    names = ("weekly", "hourly", "wrong", "plain", "moves")
    moved = Route(301, headers={"Location": "http://weekly.test/p"})
    sites = [site(f"{name}.test", {"/p": Route(body="page")}) for name in names[:-1]]
    urls = [f"http://{name}.test/p" for name in names]
    asked = []
    with Runs(tmp_path, *sites, site("moves.test", {"/p": moved}), spider=CADENCES) as runs:
        for seconds in (0, 2 * HOUR, DAY, 6.5 * DAY):
            runs.pass_time(seconds)
            run = runs(*urls)
            sent = {each.host for each in run.log if each.path == "/p"}
            asked.append({name for name in names if f"{name}.test" in sent})
            assert (
                len(run.lines("walsh_revisit of http://wrong.test/p is 'PT5M'", "WALSH_REV")) == 1
            )
        with runs.store() as store:
            kept = {each.url: each.revisit for each in store.rows(VisitRecord)}
    assert asked[0] == set(names)
    assert asked[1] == {"hourly"}
    # moves.test is due each day, and its redirect is followed whether or not the other is due.
    assert asked[2] == {"hourly", "wrong", "plain", "moves", "weekly"}
    assert asked[3] == set(names)
    assert kept == {
        url: {"weekly": 7 * DAY, "hourly": HOUR}.get(name)
        for name, url in zip(names, urls, strict=True)
    }
    lines = [each for each in ledger_of(tmp_path) if each["kind"] == "declared"]
    declared = {each["url"]: each.get("revisit") for each in lines if "via" not in each}
    assert declared == kept


def test_r8_1_a_resumed_job_keeps_the_cadence_of_what_waits_in_it(tmp_path: Path) -> None:
    names = ("hourly", "weekly", "plain")
    pages = {f"/{n}": Route(body="page") for n in range(4)}
    urls = [f"http://{name}.test/{n}" for name in names for n in range(4)]
    job = ("-s", "JOBDIR=job")
    sites = [site(f"{name}.test", pages) for name in names]
    with Runs(tmp_path, *sites, spider=CADENCES) as runs:
        runs(*urls)
        runs.pass_time(2 * HOUR)
        stopped = runs(*urls, arguments=(*job, "-s", "CLOSESPIDER_ITEMCOUNT=1"))
        resumed = runs(*urls, arguments=job)
        assert stopped.targets("hourly.test")
        both = stopped.targets("hourly.test") + resumed.targets("hourly.test")
        assert sorted(both) == sorted(pages)
        for name in ("weekly", "plain"):
            assert stopped.targets(f"{name}.test") + resumed.targets(f"{name}.test") == []
        with runs.store() as store:
            kept = {each.url: each.revisit for each in store.rows(VisitRecord)}
        assert kept == {url: 3600.0 if "hourly" in url else None for url in urls} | {
            url: 7 * DAY for url in urls if "weekly" in url
        }
    lines = [each for each in ledger_of(tmp_path) if each["kind"] == "declared"]
    assert {(each["url"], each.get("revisit")) for each in lines} == set(kept.items())


def test_r8_1_daily_by_default(visits: dict[str, Crawl]) -> None:
    assert visits["within the day"].asked("answered.test") == []
    assert visits["after the day"].targets("answered.test") == ["/p"]


def test_r8_2_an_interval_under_the_hour_is_refused_at_the_start(tmp_path: Path) -> None:
    with Runs(tmp_path, settings={"WALSH_REVISIT": 3599}) as runs:
        refused = runs("http://path.test/a")
    assert refused.returncode != 0
    assert refused.log == []
    assert len(refused.lines("WALSH_REVISIT", "3600")) == 1


def test_r7_3_a_304_counts_as_asked(tmp_path: Path) -> None:
    page = Route(body="page", etag='"1"')
    with Runs(tmp_path, site("same.test", {"/p": page})) as runs:
        runs("http://same.test/p")
        runs.source_ran("http://same.test/p", DAY + 1)
        second, third = runs("http://same.test/p"), runs("http://same.test/p")
    assert [each.status for each in second.requests("same.test")] == [304]
    assert third.asked("same.test") == []


FORMS = """
import scrapy

class Probe(scrapy.Spider):
    name = "probe"

    def __init__(self, urls="", **kwargs):
        super().__init__(**kwargs)
        self.url = urls

    async def start(self):
        for body in ("a", "b", "c"):
            yield scrapy.Request(self.url, method="POST", body=body)
        yield scrapy.Request(self.url, method="HEAD")
        yield scrapy.Request(self.url)

    def parse(self, response):
        yield {"url": response.url, "status": response.status}
        if not response.meta.get("again") and response.request.method == "GET":
            yield scrapy.Request(response.url, dont_filter=True, meta={"again": True})
            yield scrapy.Request(response.url, meta={"again": True})
"""


def forms(run: Crawl) -> list[str]:
    """Method and body of the targets, as the server saw them."""
    found = [each for each in run.requests("form.test") if each.path != "/robots.txt"]
    return sorted(f"{each.method} {each.values('Content-Length') or ''}" for each in found)


def test_r8_within_a_run_nothing_is_refused_and_what_is_sent_again_is_recorded(
    tmp_path: Path,
) -> None:
    url = "http://form.test/search"
    with Runs(tmp_path, site("form.test"), spider=FORMS) as runs:
        first, second = runs(url), runs(url)
        assert len(forms(first)) == 6  # three bodies, HEAD, GET, and the one with dont_filter
        assert "walsh: 5 of 5 sources read or unchanged" in first.output
        assert second.requests("form.test") == []
        lines = [line for line in ledger_of(tmp_path) if line["kind"] == "asked"]
        again = [line["n"] for line in lines if line.get("again")]
        assert again == [lines[-1]["n"]]
        assert first.stats["walsh/asked_again"] == 1
        assert verified(tmp_path) == 0
        for name in ("POST", "HEAD", ""):  # a day later each is due again, by itself
            with runs.store() as store:
                for source in list(store.rows(VisitRecord)):
                    if name in source.url:
                        earlier = replace(source, last_run_at=time.time() - DAY, counted_from=None)
                        store.put(earlier)
        assert len(forms(runs(url))) == 6


def test_r8_a_redirect_to_another_source_is_followed(tmp_path: Path) -> None:
    moved = Route(301, headers={"Location": "http://new.test/p"})
    urls = ("http://old.test/p", "http://new.test/p")
    with Runs(tmp_path, site("old.test", {"/p": moved}), site("new.test")) as runs:
        first = runs(*urls)
        assert verified(tmp_path) == 0
        runs.source_ran(urls[0], DAY)  # one is due, and leads to the other, which is not
        second, third = runs(*urls), runs(*urls)
    assert first.targets("new.test") == ["/p"]
    assert first.fetched(urls[1])
    assert "not_due" not in first.output
    assert second.targets("old.test") == ["/p"]
    assert second.fetched(urls[1])
    assert third.log == []


@pytest.mark.parametrize("known", [False, True])
def test_r8_1_a_redirect_whose_end_gives_no_answer_leaves_the_source_due(
    tmp_path: Path, known: bool
) -> None:
    moved = Route(301, headers={"Location": "http://new.test/p"})
    broken = Route(sequence=(Route(503), Route(body="page")))
    url, settings = "http://old.test/p", {"WALSH_MAX_RETRIES": 0}
    sites = site("old.test", {"/p": moved}), site("new.test", {"/p": broken})
    with Runs(tmp_path, *sites, settings=settings) as runs:
        if known:
            with runs.store() as store:
                store.put(VisitRecord(url, time.time() - 3 * DAY, "200"))
        first, soon = runs(url), runs(url)
        assert verified(tmp_path) == 0
        runs.pass_time(HOUR + 1)
        second, third = runs(url), runs(url)
    assert soon.log == []
    assert first.targets("old.test") == second.targets("old.test") == ["/p"]
    assert second.fetched("http://new.test/p")
    assert third.log == []


def test_r8_sources_that_lead_to_one_page_are_all_answered_by_it(tmp_path: Path) -> None:
    there = Route(301, headers={"Location": "http://new.test/p"})
    chain = Route(301, headers={"Location": "http://old.test/p"})
    sites = site("old.test", {"/p": there}), site("older.test", {"/p": there})
    urls = [f"http://{host}.test/p" for host in ("old", "older", "chain")]
    with Runs(tmp_path, *sites, site("chain.test", {"/p": chain}), site("new.test")) as runs:
        first, second = runs(*urls), runs(*urls)
        assert verified(tmp_path) == 0
    assert first.targets("new.test") == ["/p"]
    assert "walsh: 3 of 3 sources read or unchanged" in first.output
    assert second.log == []
    assert "walsh: 0 of 3 sources read or unchanged, 3 not due" in second.output


def test_r8_a_redirect_to_what_was_answered_before_counts(tmp_path: Path) -> None:
    there = Route(301, headers={"Location": "http://new.test/p"}, delay=2)
    urls = ("http://new.test/p", "http://old.test/p")
    with Runs(tmp_path, site("old.test", {"/p": there}), site("new.test")) as runs:
        first, second = runs(*urls), runs(*urls)
        assert verified(tmp_path) == 0
    assert first.targets("new.test") == ["/p"]
    assert "walsh: 2 of 2 sources read or unchanged" in first.output
    assert second.log == []


def test_r8_sources_that_lead_to_each_other_are_read(tmp_path: Path) -> None:
    to_two = Route(302, headers={"Location": "http://two.test/p"})
    to_one = Route(302, headers={"Location": "http://one.test/p"})
    one = Route(sequence=(to_two, Route(body="page")))
    urls = ("http://one.test/p", "http://two.test/p")
    with Runs(tmp_path, site("one.test", {"/p": one}), site("two.test", {"/p": to_one})) as runs:
        first, second = runs(*urls), runs(*urls)
        assert verified(tmp_path) == 0
    assert first.fetched(urls[0])
    assert "walsh: 2 of 2 sources read or unchanged" in first.output
    assert second.log == []


def test_r8_each_form_of_a_source_has_its_own_redirect(tmp_path: Path) -> None:
    moved = Route(307, headers={"Location": "http://new.test/p"})
    url = "http://old.test/p"
    with Runs(tmp_path, site("old.test", {"/p": moved}), site("new.test"), spider=FORMS) as runs:
        first = runs(url)
        assert verified(tmp_path) == 0
        second = runs(url)
        assert verified(tmp_path) == 0
    assert len(first.targets("old.test")) == 5
    assert second.targets("old.test") == []


COPIES_META = """
import scrapy

class Probe(scrapy.Spider):
    name = "probe"

    def __init__(self, urls="", **kwargs):
        super().__init__(**kwargs)
        self.start_urls = urls.split()

    def parse(self, response):
        if response.url.endswith("/p"):
            yield response.follow("/later", meta=response.meta)
"""


def test_r8_a_link_that_copies_meta_is_not_an_answer_for_the_source(tmp_path: Path) -> None:
    settings = {"WALSH_IDENTITY": OWN_IDENTITY, "WALSH_FOLLOW_LINKS": True}
    moved = Route(301, headers={"Location": "http://new.test/p"})
    sites = site("old.test", {"/p": moved}), site("new.test")
    with Runs(tmp_path, *sites, settings=settings, spider=COPIES_META) as runs:
        run = runs("http://old.test/p")
        with runs.store() as store:
            record = store.get(VisitRecord, "http://old.test/p")
    assert record is not None
    (later,) = [each for each in run.log if each.path == "/later"]
    assert record.last_run_at < later.wall - 0.5


@pytest.mark.parametrize("days", [(0.99, 1.005, 1.0, 0.995, 1.01)])
def test_r8_1_a_daily_job_sends_each_source_each_day(
    tmp_path: Path, days: tuple[float, ...]
) -> None:
    """Runs a few minutes more or less than 24 h apart: b3c8a7f sent it every second day."""
    url = "http://daily.test/p"
    with Runs(tmp_path, site("daily.test")) as runs:
        found = [runs(url).targets("daily.test")]
        for day in days:
            with runs.store() as store:
                record = store.get(VisitRecord, url)
                assert record is not None
                since = record.counted_from
                earlier = None if since is None else since - day * DAY
                sent_at = record.last_run_at - day * DAY
                store.put(replace(record, last_run_at=sent_at, counted_from=earlier))
            found.append(runs(url).targets("daily.test"))
    assert found == [["/p"]] * (len(days) + 1)


#: The answers of hosts, and what is said of them once; nothing of the last two.
DOORS = {
    "pays.test": (
        Route(402, headers=[("crawler-price", "USD 0.01")]),
        "closed: it asks for payment (HTTP 402: Crawler-Price: USD 0.01)",
    ),
    "x402.test": (
        Route(402, '{"x402Version": 1}', "application/json"),
        'closed: it asks for payment (HTTP 402: {"x402Version": 1})',
    ),
    "law.test": (Route(451), "closed for legal reasons (451) (HTTP 451)"),
    "rsl.test": (
        Route(401, headers=[("WWW-Authenticate", 'License error="invalid_request"')]),
        "closed: it asks for a licence (HTTP 401: WWW-Authenticate: License error=",
    ),
    "led.test": (
        Route(302, location="http://law.test/other"),
        "closed for legal reasons (451) (HTTP 451",
    ),
    "open.test": (Route(403), ""),
    "basic.test": (Route(401, headers=[("WWW-Authenticate", 'Basic realm="x"')]), ""),
}


def test_a_closed_door_is_left_alone_for_30_days_and_named_once(tmp_path: Path) -> None:
    sites = [site(host, {"/p": route, "/other": route}) for host, (route, _) in DOORS.items()]
    urls = [f"http://{host}/p" for host in DOORS]
    closed = {host for host, (_, words) in DOORS.items() if words}
    with Runs(tmp_path, *sites) as runs:
        crawls = [runs(*urls)]
        assert verified(runs.project) == 0
        again = runs(*urls)
        assert again.lines("refused", "closed: it asks for a licence and left alone"), again.output
        assert verified(runs.project) == 0
        for days in (2, 27, 1.2):
            runs.pass_time(days * DAY)
            crawls.append(runs(*urls))
        with runs.store() as store:
            record = store.get(VisitRecord, "http://rsl.test/p")
            reading = store.get(Reading, "http://pays.test/p")
        shown = walsh(runs.project, "state", "show").stdout
    asked = [{host for host in DOORS if crawl.targets(host)} for crawl in crawls]
    assert asked == [set(DOORS), set(DOORS) - closed, set(DOORS) - closed, set(DOORS)]
    for host, (_, words) in DOORS.items():
        named = [f"http://{host}/p is {words or 'closed'}" in crawl.output for crawl in crawls]
        assert named == [bool(words), False, False, False], host + "\n".join(
            crawls[0].lines("WARNING", "")
        )
    assert (record.outcome, record.words[:24]) == ("401", "WWW-Authenticate: Licens")
    assert reading.gone_at is not None
    assert "Crawler-Price: USD 0.01" in shown
