"""The wall clock is set ahead or back between two runs, and put right before the third."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.policy.validators import LIFETIME
from scrapy_walsh.proof.sandbox import Route, requests
from scrapy_walsh.state.records import HostRecord, Validators
from tests.crawl.harness import (
    DAILY,
    DAY,
    HOUR,
    LIST,
    SCHEMA,
    Crawl,
    Runs,
    daily_sites,
    kept,
)

if TYPE_CHECKING:
    from pathlib import Path

#: When the first run begins: 2026-06-01, 06:00 UTC.
BEGINNING = 1780293600.0
QUICK = {"WALSH_MAX_RETRIES": 1}
YEARS = 10 * 365.25 * DAY
#: Two days are less than the life of validators (D45), ten years are more.
JUMPS = {"ten years ahead": YEARS, "ten years back": -YEARS, "two days ahead": 2 * DAY}
#: Seconds between the runs, as they really pass. The third begins after the hour for which R8
#: leaves a source alone whose visit failed (D41), and within the Crawl-delay of ``slow.test``.
APART = 2400.0


@dataclass
class Jumped:
    """Three runs of the same sources. ``held``: hosts and validators on record after each."""

    runs: list[Crawl]
    held: list[tuple[set[str], set[str]]]
    problems: str
    jump: float


@pytest.fixture(scope="module", params=JUMPS)
def jumped(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Jumped:
    directory: Path = tmp_path_factory.mktemp("jumped")
    runs, held = [], []
    with Runs(directory / "project", *daily_sites(), settings=QUICK) as made:
        for number, jump in enumerate((0.0, JUMPS[request.param], 0.0)):
            made.at(BEGINNING + number * APART, jump)
            runs.append(made(*DAILY))
            with made.store() as store:
                pages = {record.url for record in store.rows(Validators)}
                held.append(({record.host for record in store.rows(HostRecord)}, pages))
            for path in (LIST, SCHEMA):
                made.serve("operator.test", path, Route(behaviour="reset"))
        problems = made.command("state", "verify").stdout
        return Jumped(runs, held, problems, JUMPS[request.param])


def test_no_host_and_no_validator_is_dropped(jumped: Jumped) -> None:
    first = jumped.held[0]
    for hosts, pages in jumped.held[1:]:
        assert hosts >= first[0]
        assert pages >= first[1] > set()
    assert "in order" in jumped.problems


def test_r5_a_hold_goes_by_the_machines_own_count(jumped: Jumped) -> None:
    assert jumped.runs[0].asked("busy.test") == ["/robots.txt", "/p"]
    for run in jumped.runs[1:]:
        assert run.asked("busy.test") == []
        # A failed visit in the future counts as made now, so R8 may refuse it before R5 (D9).
        why = run.why("http://busy.test/p")
        assert "may not be requested before" in why or "R8 not_due" in why


def test_r4_a_crawl_delay_goes_by_the_machines_own_count(jumped: Jumped) -> None:
    for run in jumped.runs[1:]:
        assert run.asked("slow.test") == []


def test_r4_the_spacing_is_kept(jumped: Jumped) -> None:
    for number, run in enumerate(jumped.runs):
        for host in ("page.test", "dark.test", "bare.test", "moved.test", "hop.test"):
            found = run.gaps(host)[0 if number else 1 :]  # first robots.txt and target: T1
            assert not found or kept(found, 1.0), host


def test_r3_the_list_binds_while_no_newer_one_can_be_had(jumped: Jumped) -> None:
    for run in jumped.runs:
        assert run.asked("www.optout.test") == []
        assert run.lines("refused", "http://www.optout.test/p", "R3")


def test_r2_an_opt_out_of_robots_txt_is_kept(jumped: Jumped) -> None:
    for run in jumped.runs:
        assert {*run.asked("closed.test")} <= {"/robots.txt"}
        assert {*run.asked("dark.test")} <= {"/robots.txt", "/open"}


def test_r7_the_validator_is_sent_when_the_page_is_due(jumped: Jumped) -> None:
    """Not where it was stored later than now, or longer ago than its life, by the clock (D9, D45).

    Then the page is fetched in full. "Unchanged" by a validator of an unknown age could be untrue.
    """
    is_alive = 0 <= jumped.jump < LIFETIME
    # A visit in the future counts as made now, because it may have been a moment ago (D9). So the
    # run whose clock was put back, the second or the third, sends nothing.
    is_put_back = [jumped.jump < 0, jumped.jump > 0]
    for run, back in zip(jumped.runs[1:], is_put_back, strict=True):
        assert run.targets("page.test") == ([] if back else ["/p"])
    if jumped.jump > 0:
        (page,) = [each for each in jumped.runs[1].requests("page.test") if each.path == "/p"]
        assert page.status == (304 if is_alive else 200)
        assert bool(page.values("If-None-Match")) == is_alive


def test_the_clock_does_not_stop_a_run(jumped: Jumped) -> None:
    for run in jumped.runs:
        assert run.returncode == 0
        assert len(requests(run.log)) < 40


@pytest.mark.parametrize("wrong", [-HOUR, YEARS], ids=["back", "years"])
def test_an_honest_ledger_holds_after_a_start_with_the_clock_put_right(
    tmp_path: Path, wrong: float
) -> None:
    """The steady clock is read anew at each start of the machine, so it goes back with it."""
    with Runs(tmp_path / "project", *daily_sites(), settings=QUICK) as made:
        made.at(BEGINNING, wrong)
        made(*DAILY)
        clock = made.state / "clock.json"
        clock.write_text(json.dumps({**json.loads(clock.read_text()), "boot": "another"}))
        made.at(BEGINNING + APART)
        second = made(*DAILY, arguments=("-s", "WALSH_REVISIT_REASON=a new start"))
        found = made.command("verify")
    assert second.asked("page.test")
    assert found.returncode == 0, found.stdout
