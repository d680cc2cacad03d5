"""Some mornings of the real package under a virtual clock; a year: ``python -m tests.year``."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.crawl.harness import verify
from tests.year import due, growth, judge, manners
from tests.year.log import Book, read_log, read_runs
from tests.year.schedule import FORM, Schedule
from tests.year.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.year.log import Violation

pytestmark = [
    pytest.mark.crawl,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="each run is a fork"),
]

DAYS, SEED = 24, 1
ROOT = Path(__file__).parents[2]


@dataclass
class Month:
    """The log of those days, and where they left their state."""

    book: Book
    state: Path
    _found: dict[str, list[Violation]] = field(default_factory=dict)

    def broken(self, question: Callable[[Book], Iterable[Violation]], *rules: str) -> list[str]:
        """What *question* found, of *rules* only if any are given."""
        name = question.__name__
        if name not in self._found:
            self._found[name] = list(question(self.book))
        return [each.text for each in self._found[name] if not rules or each.rule in rules]


@pytest.fixture(scope="module")
def month(tmp_path_factory: pytest.TempPathFactory) -> Month:
    """Run it once for all tests."""
    directory = tmp_path_factory.mktemp("month")
    command = [sys.executable, "-m", "tests.year", "--days", str(DAYS), "--seed", str(SEED)]
    done = subprocess.run(
        [*command, "--keep", str(directory)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    runs = directory / "runs.jsonl"
    assert runs.exists(), done.stdout
    world = World(DAYS, SEED)
    log = read_log(directory / "server.jsonl")
    book = Book(world, log, read_runs(runs), Schedule(world).shifts)
    return Month(book, directory / "state")


def account(book: Book) -> Iterable[Violation]:
    return due.Account(book).violations()


def test_r8_a_daily_run_asks_each_source_every_day(month: Month) -> None:
    assert month.broken(account, due.MISSED) == []


def test_r8_no_source_is_asked_before_it_is_due(month: Month) -> None:
    assert month.broken(account, due.SOON) == []


def test_r8_each_source_keeps_its_own_cadence(month: Month) -> None:
    """Beside the account above: the days of some sources are counted here without its rules."""
    cadences = {"plain4.test": 1.0, "plain2.test": 2.0, "plain3.test": 7.0}
    for host, days in cadences.items():
        sent = [each.start for each in month.book.by_host[host] if each.path == "/a/feed.xml"]
        gaps = [(after - before) / 86400 for before, after in pairwise(sent)]
        assert min(gaps) > 0.9 * days - 0.01, host
        assert len(sent) >= DAYS / days - 3, host
    hourly = [each.run for each in month.book.by_host["plain1.test"] if not each.is_robots]
    daily = [each.run for each in month.book.by_host["plain4.test"] if not each.is_robots]
    assert len(hourly) > len(daily), "a run by hand, two hours later"


def test_r8_three_posts_to_one_url_are_three_requests_every_day(month: Month) -> None:
    runs = [ran for ran in month.book.runs if ran.spider == FORM]
    assert len(runs) >= DAYS / 3 - 2
    for ran in runs:
        log = month.book.by_run[ran.number]
        sent = [each.sent for each in log if each.method == "POST"]
        assert sorted(sent) == ["page=1", "page=2", "page=3"], f"run {ran.number}"


def test_r8_a_redirect_to_another_declared_source_is_followed(month: Month) -> None:
    assert month.broken(account, due.HOP) == []


def test_no_source_is_asked_before_the_time_that_the_report_told(month: Month) -> None:
    assert any(ran.promised for ran in month.book.runs)
    assert month.broken(account, due.REPORT) == []


def test_r4_a_slow_host_is_asked_for_a_target_at_each_visit(month: Month) -> None:
    assert month.broken(account, due.PROGRESS) == []


def test_r4_what_was_put_off_longest_goes_first(month: Month) -> None:
    assert month.broken(account, due.ORDER) == []


def test_r4_every_host_keeps_its_spacing_over_runs(month: Month) -> None:
    assert month.broken(manners.spacing) == []


def test_r4_1_one_request_at_a_time(month: Month) -> None:
    assert month.broken(manners.one_at_a_time) == []


def test_r5_3_a_retry_after_of_days_holds_over_runs(month: Month) -> None:
    assert month.broken(manners.retry_after) == []


def test_r5_6_a_host_that_never_answers_is_tried_no_more_than_it_may_be(month: Month) -> None:
    assert month.broken(manners.attempts) == []


def test_a_host_that_hangs_for_days_is_tried_once_a_run_after_all_others(month: Month) -> None:
    book = month.book
    tried = Counter(each.run for each in book.by_host["hangs.test"] if each.status is None)
    first, *later = tried
    assert tried[first] == 3  # two for its robots.txt, one for its page
    assert len(later) > DAYS / 2
    assert {tried[run] for run in later} == {1}
    for run in later:
        hosts = [each.host for each in book.by_run[run]]
        place = hosts.index("hangs.test")
        assert set(hosts[place + 1 :]) <= {"dead.test", "sleeps.test", "outage.test"}
    answered = [each for each in book.by_host["hangs.test"] if each.status == 200]
    assert {each.is_robots for each in answered} == {True, False}  # once it is back


def test_a_host_that_limits_its_requests_teaches_its_interval_over_runs(month: Month) -> None:
    refused = {each.run for each in month.book.by_host["limits.test"] if each.status == 429}
    crawled = {each.run for each in month.book.by_host["limits.test"]}
    assert refused
    assert len(refused) < 2 / 3 * len(crawled)
    assert month.broken(manners.refusals) == []


def test_r2_31_an_opt_out_by_robots_txt_holds_from_the_first_run_after_it(month: Month) -> None:
    assert month.broken(manners.opt_outs) == []


def test_r2_3_no_target_by_a_robots_txt_older_than_a_day(month: Month) -> None:
    assert month.broken(manners.robots_first) == []


def test_r3_8_an_opt_out_by_the_list_holds_from_the_first_run_after_it(month: Month) -> None:
    assert month.broken(manners.listed) == []


def test_r1_1_one_user_agent(month: Month) -> None:
    assert month.broken(manners.identity) == []


def test_r7_1_validators_outlive_their_run(month: Month) -> None:
    assert month.broken(manners.validators) == []


def test_r11_nothing_grows_with_the_number_of_runs(month: Month) -> None:
    assert month.broken(growth.rows) == []
    assert month.broken(growth.octets) == []


def test_a_run_begins_as_fast_at_the_end(month: Month) -> None:
    assert month.broken(growth.startup) == []


def test_each_run_that_is_not_killed_ends_by_itself(month: Month) -> None:
    assert month.broken(judge.whole_runs) == []


def test_the_ledger_of_a_month_verifies(month: Month) -> None:
    code, printed = verify(month.state)
    assert code == 0, printed


#: One host whose feed never changes, asked four times in thirteen months.
STILL = """
import sys
from pathlib import Path
from tests.year import clock
clock.install()
from tests.year.machine import Machine
from tests.year.schedule import Planned
from tests.year.world import DAY, FEED, START, Host, Phase, Source, World
world = World(365)
phase = Phase(START, frozen=True)
world.hosts = {"still.test": Host("still.test", {"/a/feed.xml": FEED}, (phase,))}
world.sources = [Source("http://still.test/a/feed.xml")]
machine = Machine(Path(sys.argv[1]), world)
for day in (0, 201, 402, 403):
    assert machine.run(Planned(START + day * DAY)).trouble == []
"""


def test_a_link_that_stays_on_its_page_is_emitted_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STILL, str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True)
    log = read_log(tmp_path / "server.jsonl")
    assert len([each for each in log if each.host == "still.test" and not each.is_robots]) == 4
    items = (tmp_path / "items.jsonl").read_text().splitlines()
    assert len(items) == len({json.loads(line)["url"] for line in items}) == 5


def test_r8_2_a_cron_every_ten_minutes_asks_for_nothing_twice_an_hour() -> None:
    """Two hours of it. A month, and an hourly and a daily cron: ``python -m tests.year.cron``."""
    command = [sys.executable, "-m", "tests.year.cron", "--every", "600", "--days", "0.094"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "13 runs" in done.stdout
    assert "answers.test: 4 requests" in done.stdout  # robots.txt, and once an hour


@pytest.fixture(scope="module")
def mails() -> dict[int, list[str]]:
    """By day, the warnings and errors that a month of a daily cron mails."""
    command = [sys.executable, "-m", "tests.year.cron", "--mails", "more"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found: dict[int, list[str]] = {}
    for line in done.stdout.splitlines():
        day, level, said = line.split(" ", 2)  # a mail has no other levels
        assert level in ("WARNING:", "ERROR:"), line
        found.setdefault(int(day), []).append(said)
    return found


def days_of(found: dict[int, list[str]], *words: str) -> list[int]:
    return [day for day, said in found.items() for line in said if all(w in line for w in words)]


def test_a_mail_says_what_begins_and_then_says_it_once_a_week(
    mails: dict[int, list[str]],
) -> None:
    assert days_of(mails, "dies.test", "did not answer 2 times") == [9]
    assert days_of(mails, "dies.test", "has not been read since") == [11, 18, 25]
    assert days_of(mails, "dies.test") == [9, 11, 18, 25]
    assert days_of(mails, "moves.test/a/feed.xml has moved for good") == [11, 18, 25]
    assert days_of(mails, "turns.test") == [14, 17, 24]
    # The last line is in a mail only if something else is news.
    counted = days_of(mails, "sources read or unchanged")
    assert all(len(mails[day]) > 1 for day in counted)
    assert len(mails) <= 24


def test_a_mail_says_what_is_over(mails: dict[int, list[str]]) -> None:
    assert days_of(mails, "heals.test") == [11, 13, 16]
    assert days_of(mails, "read again: http://heals.test/a/feed.xml (not since 2025-01-10)") == [16]
    assert days_of(mails, "the owner allows your bot again: refuses.test") == [16]
    assert days_of(mails, "rejected robots.txt of refuses.test") == [10]
    assert days_of(mails, "robots.txt is available again: refuses.test") == [11]


def test_an_opt_out_and_what_is_gone_are_mailed_once(mails: dict[int, list[str]]) -> None:
    named = {host: days_of(mails, f"{host}.test") for host in ("optsout", "listed", "never")}
    assert named == {"optsout": [16], "listed": [6], "never": [4]}
    # It gave no answer on the second day of three, let all be read in the third week, and then
    # refused again.
    assert days_of(mails, "no longer allows your bot", "refuses.test") == [8, 21]
    assert days_of(mails, "gone.test") == [10]


def test_no_way_to_fail_is_mailed_each_day_nor_silent_for_longer_than_a_week(
    mails: dict[int, list[str]],
) -> None:
    begin = {"hangs": 3, "fails": 4, "later": 5, "wanders": 7, "turns": 14, "wavers": 1}
    for host, first in begin.items():
        days = sorted(set(days_of(mails, f"{host}.test")))
        assert days[0] == first
        assert len(days) <= 6, (host, days)
        assert max(after - before for before, after in pairwise([*days, 30])) <= 7, (host, days)
    for day, said in mails.items():
        hosts = Counter(each for line in said for each in set(re.findall(r"\w+\.test", line)))
        # Of a source that has moved to a host that is dead there is both to be said.
        assert {host for host in hosts if hosts[host] > 1} <= {"wanders.test", "lost.test"}, day


def test_the_month_had_what_it_is_about(month: Month) -> None:
    book = month.book
    statuses = {host: {each.status for each in log} for host, log in book.by_host.items()}
    for host, status in {
        "moved.test": 301,
        "merged.test": 301,
        "forbidden.test": 403,
        "later.test": 503,
        "busy.test": 503,
        "unchanged.test": 304,
        "dead.test": None,
        "hangs.test": None,
        "sleeps.test": None,
    }.items():
        assert {status, 200} <= statuses[host], host
    whys = {ran.why for ran in book.runs}
    assert {"cron", "cron, the clock set back", "by hand"} <= whys
    assert sum(ran.killed for ran in book.runs) == 2
    days = {int((ran.start - book.world.start) // 86400) for ran in book.runs}
    assert len(days) == DAYS - 2  # two were skipped
    for host in ("optout.test", "listed.test"):
        pages = [each for each in book.by_host[host] if not each.is_robots]
        asked = {int((each.start - book.world.start) // 86400) for each in pages}
        assert min(asked) < DAYS * 60 / 365 < DAYS * 180 / 365 < max(asked), host
