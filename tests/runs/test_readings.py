"""What the operator hears at the end of a run, over several days: one run a day of one list."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from scrapy import Spider
from scrapy.spiders import SitemapSpider

from scrapy_walsh.adapters import compat
from scrapy_walsh.proof.sandbox import Route
from scrapy_walsh.state.records import Reading
from tests.crawl.harness import DAY, Crawl, Runs, site

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

#: What each source answers from the second day on; on the first all but "never" are well.
ROUTES = {
    "well": Route(body="page"),
    "dead": Route(behaviour="reset"),
    "forbidden": Route(403),
    "optedout": Route(body="page"),
    "putoff": Route(429, headers={"Retry-After": "604800"}),
    "moved": Route(301, location="/new"),
    "lent": Route(302, location="/new"),
    "never": Route(404),
}
CLOSED = Route(body="User-agent: *\nDisallow: /p\n", content_type="text/plain")
URLS = {name: f"http://{name}.test/p" for name in ROUTES}
#: From the third day on which they were not read.
UNREAD = {"dead", "forbidden", "putoff", "never"}
SETTINGS = {"WALSH_MAX_RETRIES": 0, "WALSH_BACKOFF_BASE": 0.01}
EXIT = ("-s", "WALSH_EXIT_ATTENTION=1")


def named(run: Crawl, words: str = " read since ") -> set[str]:
    """The sources that the run warns of."""
    lines = run.lines("WARNING", words)
    return {name for name, url in URLS.items() if any(f": {url} " in line for line in lines)}


def last_line(run: Crawl) -> str:
    return run.output.splitlines()[-1]


def closed(run: Crawl) -> tuple[int, int]:
    """The stats ``walsh/unread`` and ``walsh/moved``, as dumped at the end."""
    found = dict(re.findall(r"'walsh/(unread|moved)': (\d+)", run.output))
    return int(found["unread"]), int(found["moved"])


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Crawl]]:
    """The runs, by the day and what is said of them."""
    well = [site(f"{name}.test") for name in ROUTES]
    with Runs(tmp_path_factory.mktemp("days"), *well, settings=SETTINGS) as runs:
        runs.serve("never.test", "/p", ROUTES["never"])
        found = {"day 0": runs(*URLS.values())}
        for name, route in ROUTES.items():
            runs.serve(f"{name}.test", "/p", route)
        runs.serve("optedout.test", "/robots.txt", CLOSED)
        for day in (1, 2, 3):
            runs.pass_time(DAY)
            found[f"day {day}"] = runs(*URLS.values())
        found["too early"] = runs(*URLS.values())
        found["too early, exit"] = runs(*URLS.values(), arguments=EXIT)
        runs.pass_time(DAY)
        for name in ("dead", "moved"):
            runs.serve(f"{name}.test", "/p", ROUTES["well"])
        runs.serve("optedout.test", "/robots.txt", Route(404))
        kept = [url for name, url in URLS.items() if name not in {"forbidden", "never", "putoff"}]
        found["day 4, healed"] = runs(*kept, arguments=EXIT)
        yield found


def test_nothing_is_named_before_the_third_period(days: dict[str, Crawl]) -> None:
    assert [named(days[f"day {day}"]) for day in range(3)] == [set()] * 3
    assert [closed(days[f"day {day}"]) for day in range(3)] == [(0, 0), (0, 1), (0, 1)]


def test_an_opt_out_is_said_once(days: dict[str, Crawl]) -> None:
    said = {day: len(run.lines("WARNING", "optedout.test")) for day, run in days.items()}
    assert said.pop("day 1") == 1
    healed = said.pop("day 4, healed")  # it is over, if the owner allows the bot again
    assert healed == len(days["day 4, healed"].lines("allows your bot again: optedout.test"))
    assert set(said.values()) == {0}


def test_what_was_not_read_for_three_periods_is_named(days: dict[str, Crawl]) -> None:
    assert named(days["day 3"]) == UNREAD
    assert closed(days["day 3"]) == (5, 1)  # the stats count what opted out, too


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("dead", "R"),
        ("forbidden", "HTTP 403"),
        ("putoff", "R4 deferred (putoff.test may not be requested before 20"),
        ("never", "HTTP 404"),
    ],
)
def test_it_is_named_with_the_reason_and_since_when(
    days: dict[str, Crawl], name: str, reason: str
) -> None:
    (line,) = days["day 3"].lines(f"WARNING: {URLS[name]} ")
    assert re.search(f"has not been read since 20[-0-9]+: {re.escape(reason)}", line)


def test_what_has_moved_for_good_is_named_at_once(days: dict[str, Crawl]) -> None:
    (line,) = days["day 1"].lines("moved for good")
    moved = "http://moved.test/p has moved for good to http://moved.test/new"
    assert line.endswith(f"{moved}: change it in your list")
    for day in ("day 2", "day 3", "too early"):
        assert days[day].lines("moved for good") == []


def test_a_run_that_comes_too_early_names_none_again_and_counts_the_same(
    days: dict[str, Crawl],
) -> None:
    early = days["too early"]
    assert named(early) == set()
    assert "; 5 need a person: " in last_line(early)
    assert early.asked("forbidden.test") == []


def test_a_dead_host_is_told_of_once_a_cause(days: dict[str, Crawl]) -> None:
    """An ERROR line on the first day, as for any error of the network; then as a source unread."""
    found = {
        (day, level): len(run.lines(f"{level}: ", "dead.test"))
        for day, run in days.items()
        for level in ("ERROR", "WARNING")
    }
    assert {key: count for key, count in found.items() if count} == {
        ("day 1", "ERROR"): 1,
        ("day 3", "WARNING"): 1,
        ("day 4, healed", "WARNING"): 1,
    }
    (line,) = days["day 4, healed"].lines("WARNING: read again: ")
    assert f"{URLS['dead']} (not since 20" in line


def test_a_source_that_is_read_again_or_not_declared_is_not_named(
    days: dict[str, Crawl],
) -> None:
    healed = days["day 4, healed"]
    assert (named(healed), named(healed, "moved for good")) == (set(), set())
    assert closed(healed) == (0, 0)


def test_the_exit_code_says_so_only_where_that_is_set(days: dict[str, Crawl]) -> None:
    codes = {day: run.returncode for day, run in days.items()}
    assert codes.pop("too early, exit") == 1
    assert set(codes.values()) == {0}


def test_the_last_line_counts_and_has_the_last_word(days: dict[str, Crawl]) -> None:
    assert last_line(days["day 0"]).endswith(
        "INFO: walsh: 7 of 8 sources read or unchanged, 1 failed"
    )
    assert re.search(
        r"WARNING: walsh: 3 of 8 sources read or unchanged, 1 refused \(R2\), 1 deferred, "
        r"3 failed; 5 need a person: warnings name each once a week, `scrapy walsh state show` al",
        last_line(days["day 3"]),
    )
    early = last_line(days["too early"])
    assert "walsh: 0 of 8 sources read or unchanged, 6 not due, 1 refused (R2), 1 deferred" in early
    assert last_line(days["day 4, healed"]).endswith(
        "WARNING: walsh: 5 of 5 sources read or unchanged"  # in the mail with what is over
    )


def test_a_good_run_is_silent_at_warning(tmp_path: Path) -> None:
    with Runs(tmp_path, site("well.test"), settings={"LOG_LEVEL": "WARNING"}) as runs:
        run = runs(URLS["well"], arguments=EXIT)
        assert (run.returncode, run.output) == (0, "")
        early = runs(URLS["well"])  # reads nothing, which is no news
    assert (early.returncode, early.output) == (0, "")


def test_nothing_is_named_where_nothing_is_remembered(tmp_path: Path) -> None:
    settings = {**SETTINGS, "WALSH_STATE_DIR": "memory"}
    with Runs(tmp_path, site("moved.test", {"/p": ROUTES["moved"]}), settings=settings) as runs:
        run = runs(URLS["moved"], arguments=EXIT)
    assert run.returncode == 0
    assert named(run, "moved for good") == set()
    assert "walsh/unread" not in run.output
    assert last_line(run).endswith("walsh: 1 of 1 source read or unchanged")


HASTY = """
import os, signal
import scrapy

class Probe(scrapy.Spider):
    name = "probe"

    def __init__(self, urls="", **kwargs):
        super().__init__(**kwargs)
        self.start_urls = urls.split()

    def parse(self, response):
        os.kill(os.getpid(), signal.SIGINT)
"""


def test_a_run_that_is_stopped_keeps_what_it_read(tmp_path: Path) -> None:
    urls = [f"http://well.test/{n}" for n in range(5)]
    with Runs(tmp_path, site("well.test"), spider=HASTY) as runs:
        run = runs(*urls)
        with runs.store() as store:
            read = {reading.url: reading.read for reading in store.rows(Reading)}
        assert sum(read.values()) == len(
            [path for path in run.asked("well.test") if path[1].isdigit()]
        )
        assert 1 <= sum(read.values()) < 5
        assert read.keys() == set(urls)
        runs.pass_time(3 * DAY)
        again = runs(*urls)
    assert "walsh: stopped (shutdown): " in last_line(run)
    assert again.lines("has not been read", "since then, each run ended before it got an answer")


def test_a_duplicate_is_not_a_source_of_its_own(tmp_path: Path) -> None:
    with Runs(tmp_path, site("well.test")) as runs:
        run = runs(URLS["well"], "http://well.test:80/p", f"{URLS['well']}#top")
    assert last_line(run).endswith("walsh: 1 of 1 source read or unchanged")


def test_a_304_is_read_and_a_move_behind_it_is_named(tmp_path: Path) -> None:
    new = Route(body="page", etag='"1"')
    moved = site("moved.test", {"/p": ROUTES["moved"], "/new": new})
    with Runs(tmp_path, moved) as runs:
        runs(URLS["moved"])
        runs.pass_time(7 * DAY)
        run = runs(URLS["moved"])
    assert run.stats["walsh/not_modified"] == 1
    assert named(run, "moved for good") == {"moved"}
    assert last_line(run).endswith(
        "1 of 1 source read or unchanged; 1 needs a person: warnings name each once a week, "
        "`scrapy walsh state show` always"
    )


def test_a_run_that_reads_nothing_warns_and_says_what_to_do(tmp_path: Path) -> None:
    urls = ("http://one.test/p", "http://two.test/p", "http://closed.test/p")
    closed = site("closed.test", robots="User-agent: *\nDisallow: /\n")
    with Runs(tmp_path, site("one.test"), site("two.test"), closed) as runs:
        first, second = runs(*urls), runs(*urls)
    assert "INFO: walsh: 2 of 3 sources" in last_line(first)
    told = last_line(second)
    # Nothing has changed since the first run, so a mail would be repetition.
    assert "INFO: walsh: 0 of 3 sources read or unchanged, 2 not due, 1 refused" in told
    assert "; the first: " in told
    for run, verdict, remedy in (
        (first, "disallowed_explicit", "or ask the site's owner"),
        (second, "not_due", "set WALSH_REVISIT_REASON"),
    ):
        (line,) = (each for each in run.lines(": refused http", verdict) if remedy in each)
        assert " INFO: refused http://" in line


OLD_SPIDER = """
import scrapy

class Probe(scrapy.Spider):
    name = "probe"

    def start_requests(self):
        yield scrapy.Request("http://well.test/p")

    def parse(self, response):
        pass
"""


def test_a_run_without_a_source_warns_and_says_that_start_requests_is_not_called(
    tmp_path: Path,
) -> None:
    """Scrapy 2.13 to 2.18 still call it."""
    with Runs(tmp_path, site("well.test"), spider=OLD_SPIDER) as runs:
        told = last_line(runs())
    if hasattr(Spider, "start_requests"):
        assert "INFO: walsh: 1 of 1 source read or unchanged" in told
    else:
        assert "WARNING: walsh: no source was declared; Scrapy 2.19 does not call" in told


def test_what_does_call_start_requests_is_not_warned_of() -> None:
    class Ours(Spider):
        name = "ours"

        def start_requests(self) -> list[Any]:
            return []

        async def start(self) -> AsyncIterator[Any]:
            for each in self.start_requests():
                yield each

    class Theirs(SitemapSpider):
        name = "theirs"

        def start_requests(self) -> list[Any]:
            return []

    assert not compat.skips_start_requests(Ours)
    assert not compat.skips_start_requests(Spider)
    assert compat.skips_start_requests(Theirs) != hasattr(Spider, "start_requests")
