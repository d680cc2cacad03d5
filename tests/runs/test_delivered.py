"""What the project did not take comes again in full; a look is no visit (D42, D46)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from scrapy_walsh.proof.sandbox import LoggedRequest, Route
from scrapy_walsh.state.records import Validators, VisitRecord
from tests.crawl.harness import (
    DAY,
    OWN_IDENTITY,
    Crawl,
    Runs,
    crawl,
    run_scrapy,
    site,
    targets,
    verify,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLLOW: dict[str, Any] = {"WALSH_IDENTITY": OWN_IDENTITY, "WALSH_FOLLOW_LINKS": True}

#: Does with a page what its host says; ``stopped`` also ends the run before its link is sent.
SPIDER = """
import io
import scrapy
from scrapy.exceptions import DropItem
from scrapy.exporters import JsonLinesItemExporter
from scrapy.extensions.feedexport import FileFeedStorage

class Probe(scrapy.Spider):
    name = "probe"

    def __init__(self, urls="", **kwargs):
        super().__init__(**kwargs)
        self.start_urls = urls.split()

    async def start(self):
        for url in self.start_urls:
            yield scrapy.Request(url)

    def parse(self, response):
        kind = response.url.split("/")[2].split(".")[0]
        if kind == "raises":
            raise ValueError("on purpose")
        item = {"kind": kind, "url": response.url}
        if "/next" in response.url:
            return
        if kind == "links":
            yield response.follow("/next/1")
        if kind == "refused":
            yield response.follow("/private/next")
        if kind == "stopped":
            yield response.follow("/next/1")
            yield response.follow("/next/2")
        yield item
        if kind == "midway":
            raise ValueError("on purpose")

class Other(Probe):
    name = "other"

class Pipeline:
    def process_item(self, item, spider=None):
        if item["kind"] == "pipeline":
            raise RuntimeError("the database is down")
        if item["kind"] == "dropped":
            raise DropItem("not wanted")
        return item

class Of:
    def __init__(self, options):
        self.kinds = options["kinds"]

    def accepts(self, item):
        return item["kind"] in self.kinds

class Away(FileFeedStorage):
    def store(self, file):
        super().store(file)
        if "bad" in self.path or "-2." in self.path:
            raise OSError("the store is away")

class Picky(JsonLinesItemExporter):
    def export_item(self, item):
        if item["kind"] == "picky":
            raise TypeError("not serializable")
        super().export_item(item)
"""

#: By host, whether its page was taken, so that the next visit is conditional.
TAKEN = {
    "plain": True,
    "raises": False,
    "midway": False,
    "pipeline": False,
    "dropped": True,
    "links": True,
    "refused": True,
}
#: By host, whether each feed that accepted its item has stored it.
STORED = {"good": True, "bad": False, "picky": False, "both": False, "unwanted": True}
#: Those whose items fill one batch each; the second batch is not stored.
BATCHES = ("one", "two")
_FEED = {"format": "jsonlines", "item_filter": "spiders.Of"}
FEEDS = {
    "good.jsonl": {**_FEED, "kinds": ["good", "both"]},
    "away:bad.jsonl": {**_FEED, "kinds": ["bad", "both"]},
    "picky.jsonl": {**_FEED, "format": "picky", "kinds": ["picky"]},
    "away:batch-%(batch_id)d.jsonl": {**_FEED, "kinds": list(BATCHES), "batch_item_count": 1},
}


def url_of(name: str) -> str:
    return f"http://{name}.test/p"


def page(name: str) -> Any:
    routes = {"/p": Route(body="page", etag='"1"'), "/private/*": Route(body="page")}
    return site(f"{name}.test", routes, "User-agent: *\nDisallow: /private/\n")


def visits(log: list[LoggedRequest], name: str) -> list[LoggedRequest]:
    return [each for each in targets(log, f"{name}.test") if each.path == "/p"]


def conditional(run: Crawl, name: str) -> bool:
    """Whether the one request for the page of *name* had validators."""
    (asked,) = visits(run.log, name)
    return bool(asked.values("If-None-Match"))


class Pair(NamedTuple):
    """A run, one at once after it, and one a day later."""

    first: Crawl
    at_once: Crawl
    next: Crawl


def three_runs(runs: Runs, names: Any, *arguments: str) -> Pair:
    def run() -> Crawl:
        urls = [url_of(name) for name in names]
        return crawl(runs.project, runs.box, *urls, arguments=arguments)

    first, at_once = run(), run()
    runs.pass_time(DAY)
    return Pair(first, at_once, run())


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    settings = {**FOLLOW, "ITEM_PIPELINES": {"spiders.Pipeline": 1}}
    sites = [page(name) for name in TAKEN]
    with Runs(tmp_path_factory.mktemp("taken"), *sites, spider=SPIDER, settings=settings) as runs:
        yield three_runs(runs, TAKEN)


@pytest.mark.parametrize("name", TAKEN)
def test_r7_validators_wait_until_the_project_has_taken_the_answer(taken: Pair, name: str) -> None:
    assert conditional(taken.next, name) is TAKEN[name]


def test_r8_a_visit_is_stored_when_the_callback_ends_also_with_an_error(taken: Pair) -> None:
    assert [name for name in TAKEN if visits(taken.at_once.log, name)] == []


def test_answers_without_validators_are_named_in_one_line(taken: Pair) -> None:
    (line,) = taken.first.lines("fetched in full next time, because")
    assert {name for name in TAKEN if url_of(name) in line} == {n for n in TAKEN if not TAKEN[n]}


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    settings = {
        **FOLLOW,
        "FEEDS": FEEDS,
        "FEED_STORAGES": {"away": "spiders.Away"},
        "FEED_EXPORTERS": {"picky": "spiders.Picky"},
        "CONCURRENT_ITEMS": 1,
    }
    names = (*STORED, *BATCHES)
    sites = [page(name) for name in names]
    with Runs(tmp_path_factory.mktemp("stored"), *sites, spider=SPIDER, settings=settings) as runs:
        yield three_runs(runs, names)


@pytest.mark.parametrize("name", STORED)
def test_an_item_counts_when_each_feed_that_accepted_it_is_stored(stored: Pair, name: str) -> None:
    assert conditional(stored.next, name) is STORED[name]


def test_each_batch_of_a_feed_counts_by_itself(stored: Pair) -> None:
    order = [each.host for each in targets(stored.first.log, *(f"{n}.test" for n in BATCHES))]
    found = [conditional(stored.next, host.partition(".")[0]) for host in order]
    assert found == [True, False]


def test_a_run_whose_items_were_not_stored_is_not_well(stored: Pair) -> None:
    assert (stored.first.returncode, stored.at_once.returncode) == (1, 0)
    (line,) = stored.first.lines("ERROR", "a feed was not stored")
    assert "4 items" in line
    assert stored.first.lines("walsh: ended with errors: 7 of 7", ", 4 items not stored")
    assert stored.first.output.splitlines()[-1].endswith("see ERROR above")


@pytest.mark.parametrize("job", [False, True])
def test_r7_links_that_were_not_sent_keep_their_page_without_validators(
    tmp_path: Any, *, job: bool
) -> None:
    """Except where they are in the JOBDIR: the next run sends them."""
    arguments = ("-s", "CLOSESPIDER_ITEMCOUNT=1", *(("-s", "JOBDIR=job") if job else ()))
    with Runs(tmp_path, page("stopped"), spider=SPIDER, settings=FOLLOW) as runs:
        first = crawl(runs.project, runs.box, url_of("stopped"), arguments=arguments)
        assert first.targets("stopped.test") == ["/p"]
        with runs.store() as store:
            assert bool(list(store.rows(Validators))) is job
        runs.pass_time(DAY)
        last = crawl(runs.project, runs.box, url_of("stopped"), arguments=arguments[2:])
    assert {"/next/1", "/next/2"} <= set(last.targets("stopped.test"))


# -- a look ---------------------------------------------------------------------------------------

CONTRACT = SPIDER.replace(
    "    def parse(self, response):\n",
    '    def parse(self, response):\n        """\n        @url http://looked.test/p\n        """\n',
    1,
)
LOOKS = {
    "fetch": ("fetch", url_of("looked")),
    "parse": ("parse", "--spider=probe", url_of("looked")),
    "check": ("check", "probe"),
    "shell": ("shell", "-c", "response.status", url_of("looked")),
}


class Looked(NamedTuple):
    """A look before any visit and one right after; what was asked; the ledger."""

    before: list[LoggedRequest]
    kept: list[Any]
    visit: Crawl
    after: list[LoggedRequest]
    next: Crawl
    verdict: tuple[int, str]
    reasons: list[str]


@pytest.fixture(scope="module", params=LOOKS)
def looked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp(request.param)
    with Runs(folder, page("looked"), spider=CONTRACT, settings=FOLLOW) as runs:

        def look() -> list[LoggedRequest]:
            runs.box.clear()
            done = run_scrapy(runs.project, runs.box, *LOOKS[request.param], **runs._more)
            assert done.returncode == 0, done.stdout
            return runs.box.log

        before = look()
        with runs.store() as store:
            kept = [*store.rows(VisitRecord), *store.rows(Validators)]
        first, after = runs(url_of("looked")), look()
        runs.move_clocks(DAY)
        last = runs(url_of("looked"))
        ledger = (runs.state / "ledger.jsonl").read_text()
        verdict = verify(runs.state)
    reasons = [name for name in LOOKS if f"opened with scrapy {name}" in ledger]
    return Looked(before, kept, first, after, last, verdict, reasons)


def test_r8_a_look_is_no_visit(looked: Looked) -> None:
    assert len(visits(looked.before, "looked")) == 1
    assert looked.kept == []
    assert not conditional(looked.visit, "looked")
    assert conditional(looked.next, "looked")


def test_a_look_is_not_refused_by_r8_and_sees_the_page(looked: Looked) -> None:
    (asked,) = visits(looked.after, "looked")
    assert asked.status == 200
    assert not asked.values("If-None-Match")


def test_a_look_stands_in_the_ledger_and_verify_accepts_it(
    looked: Looked, request: pytest.FixtureRequest
) -> None:
    assert looked.reasons == [request.node.callspec.params["looked"]]
    code, said = looked.verdict
    assert code == 0, said


def test_r7_validators_belong_to_the_spider_that_took_the_answer(tmp_path: Any) -> None:
    with Runs(tmp_path, page("shared"), spider=SPIDER, settings=FOLLOW) as runs:
        asked = []
        for spider in ("probe", "other", "probe", "other"):
            asked.append(crawl(runs.project, runs.box, url_of("shared"), spider_name=spider))
            runs.pass_time(DAY)
    assert [conditional(run, "shared") for run in asked] == [False, False, True, True]
