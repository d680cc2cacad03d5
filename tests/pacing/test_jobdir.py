"""JOBDIR: a crawl that is stopped and resumed loses nothing and repeats nothing."""

from __future__ import annotations

import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from scrapy import Request, Spider

from scrapy_walsh.adapters import compat, scheduler_queue
from scrapy_walsh.adapters.crawl import Crawl as Walsh
from scrapy_walsh.adapters.scheduler_queue import Fingerprinter, HostQueue
from scrapy_walsh.proof.sandbox import LoggedRequest, Route, Sandbox, max_in_flight
from scrapy_walsh.state.records import HostRecord
from tests.crawl.harness import (
    HEARTBEAT,
    OWN_IDENTITY,
    Crawl,
    Stopped,
    crawl,
    idle_crawler,
    longest_pause,
    make_project,
    rules,
    site,
    stop,
    targets,
    too_soon,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HOSTS = [f"kept{number}.test" for number in range(4)]
PAGES = 6
JOB = {"JOBDIR": "job"}

#: Run again with ``resumed`` it declares nothing: what is left comes from the folder alone.
SPIDER = f"""
import scrapy

class Probe(scrapy.Spider):
    name = "probe"
    resumed = ""

    async def start(self):
        if self.resumed:
            return
        yield scrapy.Request("http://from.test/", self.parse, priority=9)
        yield scrapy.Request(
            "http://early.test/", self.more, priority=9, meta={{"walsh_also": ["http://early.test/more"]}}
        )
        yield scrapy.Request("http://late.test/first", priority=9)
        yield scrapy.Request(
            "http://late.test/", self.more, meta={{"walsh_also": ["http://late.test/more"]}}
        )
        for page in range({PAGES}):
            for host in {HOSTS!r}:
                yield scrapy.Request(f"http://{{host}}/{{page}}", self.parse, errback=self.failed)

    def parse(self, response):
        pass

    def more(self, response):
        yield scrapy.Request(response.url + "more", errback=self.failed)

    def failed(self, failure):
        print("FAILED", failure.request.url, failure.value, flush=True)
"""

#: Two hundred hosts, in a process that may open 64 files.
MANY = """
import resource
import scrapy

class Probe(scrapy.Spider):
    name = "probe"
    all_in = False

    async def start(self):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
        yield scrapy.Request("http://many.test/", priority=-1)
        for number in range(200):
            yield scrapy.Request(f"http://many{number}.test/")
        self.all_in = True

    def parse(self, response):
        if self.all_in:
            raise scrapy.exceptions.CloseSpider("enough")
"""

#: Its requests have dont_filter, and `start` names all of them again in the second run.
START_URLS = f"""
import scrapy

class Probe(scrapy.Spider):
    name = "probe"
    start_urls = [f"http://{{host}}/{{page}}" for page in range(3) for host in {HOSTS!r}]

    async def start(self):
        async for request in super().start():
            yield request
        yield scrapy.FormRequest(self.start_urls[0], formdata={{"a": "1"}})
        yield scrapy.Request("http://kept0.test/last", dont_filter=True)

    def parse(self, response):
        pass
"""

#: Each page links to every page. Killed when the fourth has come, without a chance to close a file.
LINKS = f"""
import os, signal
import scrapy

class Probe(scrapy.Spider):
    name = "probe"
    start_urls = ["http://kept0.test/0"]
    dies, read = "", 0

    def parse(self, response):
        self.read += 1
        if self.dies and self.read == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        for page in range(3):
            for host in {HOSTS!r}:
                yield scrapy.Request(f"http://{{host}}/{{page}}")
"""


@dataclass
class Job:
    """The runs of one job. ``files``: those of its request queue after the first stop."""

    runs: list[Stopped | Crawl]
    waiting: list[set[str]]
    files: set[str]
    log: list[LoggedRequest] = field(repr=False)


def waiting(project: Path) -> set[str]:
    """The URLs that the job's folder holds."""
    (file,) = (project / "job" / "requests.queue").rglob("requests.sqlite3")
    with closing(sqlite3.connect(file)) as db:
        return {url for (url,) in db.execute("SELECT url FROM line")}


def queue_files(project: Path) -> set[str]:
    """The files of the request queue, without SQLite's own companions and Scrapy's list."""
    found = (project / "job" / "requests.queue").rglob("*")
    names = {
        file.name.removesuffix("-wal").removesuffix("-shm") for file in found if file.is_file()
    }
    return names - {"active.json"}


def declared(log: list[LoggedRequest]) -> bool:
    """The callback that adds a page of early.test has run: two more targets were requested."""
    return "http://early.test/" in asked(log)[:-2]


def six(log: list[LoggedRequest]) -> bool:
    return len(targets(log)) >= 6


def asked(log: list[LoggedRequest]) -> list[str]:
    return [f"http://{each.host}{each.path}" for each in targets(log)]


def job(directory: Path) -> Job:
    """Stopped twice, early and later, and then left to end."""
    delayed = rules("Crawl-delay: 6")
    with Sandbox() as box:
        for host in HOSTS:
            box.put(site(host))
        moved = Route(302, location="http://hop.test/end")
        box.put(site("from.test", {"/": moved}))
        box.put(site("hop.test", robots=delayed))
        box.put(site("early.test", robots=delayed))
        box.put(site("late.test", robots=delayed))
        project = make_project(directory, SPIDER, JOB)
        runs: list[Stopped | Crawl] = []
        held = []
        for when in (declared, six):
            given = ("-a", "resumed=1") if runs else ()
            runs.append(stop(project, box, "crawl", "probe", *given, when=when, after=0.0))
            held.append(waiting(project))
        files = queue_files(project)
        runs.append(crawl(project, box, arguments=("-a", "resumed=1")))
    return Job(runs, held, files, [each for run in runs for each in run.log])


def many(directory: Path) -> tuple[Crawl, set[str], set[str]]:
    with Sandbox() as box:
        box.put(site("many.test"))
        for number in range(200):
            box.put(site(f"many{number}.test"))
        project = make_project(directory, MANY, JOB)
        result = crawl(project, box)
    return result, waiting(project), queue_files(project)


def named_again(directory: Path) -> list[list[LoggedRequest]]:
    """Stopped once; the second run's `start` names every request again."""
    with Sandbox() as box:
        for host in HOSTS:
            box.put(site(host))
        project = make_project(directory, START_URLS, JOB)
        first = stop(project, box, "crawl", "probe", when=six, after=0.0)
        return [first.log, crawl(project, box).log]


def killed(directory: Path) -> list[LoggedRequest]:
    """Both runs of a job that follows links, whose first run is killed."""
    page = Route(body="<p>page</p>", delay=0.3)  # so that one request at most is under way then
    with Sandbox() as box:
        for host in HOSTS:
            box.put(site(host, {"*": page}))
        settings = {**JOB, "WALSH_FOLLOW_LINKS": True, "WALSH_IDENTITY": OWN_IDENTITY}
        project = make_project(directory, LINKS, settings)
        first = crawl(project, box, arguments=("-a", "dies=1"))
        return [*first.log, *crawl(project, box).log]


CRAWLS: dict[str, Callable[[Path], Any]] = {
    "job": job,
    "many": many,
    "named again": named_again,
    "killed": killed,
}


@pytest.fixture
def done(crawls: Callable[[str], Job]) -> Job:
    return crawls("job")


def test_nothing_is_lost_and_nothing_repeated(done: Job) -> None:
    pages = [f"http://{host}/{page}" for host in HOSTS for page in range(PAGES)]
    others = ["from.test/", "hop.test/end", "early.test/", "early.test/more"]
    others += ["late.test/first", "late.test/", "late.test/more"]
    assert Counter(asked(done.log)) == Counter([*pages, *(f"http://{each}" for each in others)])
    assert "FAILED" not in "".join(run.output for run in done.runs)


def test_what_start_names_again_is_sent_once(
    crawls: Callable[[str], list[list[LoggedRequest]]],
) -> None:
    first, second = crawls("named again")
    pages = [f"http://{host}/{page}" for host in HOSTS for page in range(3)]
    wanted = Counter([*pages, pages[0], "http://kept0.test/last"])  # the first one as a form too
    assert Counter(asked([*first, *second])) == wanted
    assert len(targets(first)) < sum(wanted.values()) - 1  # more than one was left


def test_a_kill_forgets_no_link_that_was_seen(
    crawls: Callable[[str], list[LoggedRequest]],
) -> None:
    pages = Counter(asked(crawls("killed")))
    assert len(pages) == len(HOSTS) * 3
    # Once more: what was in the spider's hands, and what the handler may have sent meanwhile.
    assert len(pages) < sum(pages.values()) <= len(pages) + 2


def test_each_stop_left_something_to_do(done: Job) -> None:
    assert [run.stats["close_reason"] for run in done.runs] == ["shutdown", "shutdown", "finished"]
    assert all(len(targets(run.log)) >= 6 for run in done.runs)
    # The second run may get as far as the callback that adds this one.
    assert done.waiting[0] > done.waiting[1] - {"http://late.test/more"}


def test_what_was_declared_before_the_stop_is_in_scope_after_it(done: Job) -> None:
    later = asked([each for run in done.runs[1:] for each in run.log])
    assert "http://early.test/more" in done.waiting[0]  # from a callback
    assert "http://late.test/" in done.waiting[0]  # whose callback has yet to run
    assert {"http://early.test/more", "http://late.test/", "http://late.test/more"} <= set(later)


def test_a_stop_waits_for_no_hold(done: Job) -> None:
    stopped = [run for run in done.runs if isinstance(run, Stopped)]
    assert max(run.closed for run in stopped) < 2
    assert max(run.ended for run in stopped) < HEARTBEAT


def test_r4_2_no_run_is_too_soon_after_another(done: Job) -> None:
    assert max(max_in_flight(run.log) for run in done.runs) == 1
    assert too_soon(done.log) == []
    assert longest_pause(done.runs[0].log) < HEARTBEAT - 1


def queue_of(directory: Path | None) -> HostQueue:
    """The queue of a crawl that has just opened the folder; nothing else of it runs."""
    return queue_and_crawl(directory)[0]


def queue_and_crawl(
    directory: Path | None, settings: dict[str, Any] | None = None
) -> tuple[HostQueue, Walsh]:
    """That, and its crawl."""
    crawler = idle_crawler(Spider("probe"), settings)
    crawler.request_fingerprinter = Fingerprinter()
    own = Walsh.of(crawler)
    own.pacing.traffic = {}  # the process's own remembers other tests
    own.scope.follow_links = True
    return HostQueue(own, str(directory or "")), own


def test_what_had_gone_back_to_the_queue_at_a_kill_waits_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retry, or a request whose host was not due, is in the file twice when the process dies."""
    taken: list[Request | None] = []
    monkeypatch.setattr(compat, "under_way", lambda _: taken)
    queue = queue_of(tmp_path)
    queue.push(Request("http://from.test/"))
    queue.push(Request("http://from.test/", method="POST"))
    taken.append(queue.pop())
    taken.append(queue.pop())
    queue.push(next(each for each in taken if each and each.method == "GET").replace())
    shutil.copytree(tmp_path, tmp_path / "killed")  # as the process left it that never closed it
    resumed = queue_of(tmp_path / "killed")
    left = [resumed.pop() for _ in range(len(resumed))]
    assert sorted(each.method for each in left if each) == ["GET", "POST"]
    resumed.close()


def test_a_closed_queue_outlives_what_other_crawls_ask_of_its_hosts(tmp_path: Path) -> None:
    """Another crawl of the process ends an exchange after this one's queue was closed."""
    queue, own = queue_and_crawl(tmp_path)
    crawler = own.crawler
    queue.push(Request("http://from.test/"))
    own.pacing.host("from.test").traffic.finished(own.monotonic())
    queue.nudge("from.test")
    assert crawler.stats.get_value("walsh/held") == 1
    queue.close()
    own.pacing.host("from.test").traffic.finished(own.monotonic() + 1)
    queue.nudge("from.test")
    assert crawler.stats.get_value("walsh/held") == 1


def test_what_cannot_be_kept_keeps_no_queue_from_closing(tmp_path: Path) -> None:
    """Its host was not looked up before, since the crawl had ended when the request came back."""
    slots = {"DOWNLOAD_SLOTS": {"bad.test": {"delay": "no number"}}}
    queue, own = queue_and_crawl(tmp_path, slots)
    own.halted = "the crawl has ended"
    for host in ("bad", "good"):
        queue.push(Request(f"http://{host}.test/"))
    queue.close()
    resumed = queue_of(tmp_path)  # which it could not open while the other one has the file
    assert len(resumed) == 1
    resumed.close()


def test_what_was_left_for_a_host_that_gives_no_answer_goes_last(tmp_path: Path) -> None:
    """The host comes from the folder alone: no URL of it was looked up before it is given out."""
    queue = queue_of(tmp_path)
    for url in [*(f"http://dead.test/{page}" for page in range(5)), "http://live.test/"]:
        queue.push(Request(url))
    queue.close()
    resumed, own = queue_and_crawl(tmp_path)
    own.scope.growing = False
    own.store.put(HostRecord("dead.test", 0.0, 1.0, silent_since=1.0))
    popped = [resumed.pop() for _ in range(3)]
    assert [each and each.url.rpartition("/")[0] for each in popped] == [
        "http://live.test",
        "http://dead.test",
        "http://dead.test",
    ]
    resumed.close()


@pytest.mark.parametrize("folder", ["", "job"])
def test_on_one_host_requests_go_by_priority_then_by_arrival(tmp_path: Path, folder: str) -> None:
    """Whatever SCHEDULER_MEMORY_QUEUE or SCHEDULER_DISK_QUEUE says: D18's queue is of hosts."""
    queue = queue_of(tmp_path / folder if folder else None)
    for page, priority in (("a", 0), ("b", 0), ("c", 1), ("d", 0)):
        queue.push(Request(f"http://one.test/{page}", priority=priority))
    popped = [queue.pop() for _ in range(4)]
    assert [each and each.url[-1] for each in popped] == ["c", "a", "b", "d"]
    queue.close()


def test_the_queue_is_one_file(done: Job) -> None:
    assert done.files == {"requests.sqlite3"}


def test_many_hosts_take_no_more_files_than_one(crawls: Callable[[str], Any]) -> None:
    result, left, files = crawls("many")
    assert result.stats["close_reason"] == "enough", result.output
    assert files == {"requests.sqlite3"}
    assert len({*left, *asked(result.log)}) == 201
    assert len(left) > 150


@pytest.mark.parametrize("folder", ["", "job"])
def test_what_start_may_still_declare_is_parked_up_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    monkeypatch.setattr(scheduler_queue, "_PARKED", 2)
    own = Walsh.of(idle_crawler(Spider("probe")))
    queue = HostQueue(own, str(tmp_path) if folder else "")
    for page in range(4):
        queue.push(Request(f"http://parked.test/{page}"))
    assert len(queue) == 4
    over = [queue.pop(), queue.pop(), queue.pop()]
    assert [each and each.url for each in over] == [
        "http://parked.test/2",
        "http://parked.test/3",
        None,
    ]
    own.intake.declare(Request("http://parked.test/1"))
    own.scope.growing = False
    assert [queue.pop(), queue.pop()].count(None) == 0
    assert len(queue) == 0
    queue.close()
