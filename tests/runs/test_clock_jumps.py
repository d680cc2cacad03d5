"""The wall clock is set far ahead or back between two runs, and put right before the third."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.proof.sandbox import Sandbox, requests
from scrapy_walsh.state.records import HostRecord, Validators
from scrapy_walsh.state.store import SqliteStore
from tests.crawl.harness import Crawl, kept
from tests.upgrade import world
from tests.upgrade.world import UNREACHABLE, project

if TYPE_CHECKING:
    from pathlib import Path

YEARS = 10 * 365.25 * world.DAY
JUMPS = {"ten years ahead": YEARS, "ten years back": -YEARS}
#: Seconds between the runs, as they really pass.
APART = 120.0


@dataclass
class Jumped:
    """Three runs of the same sources. ``held``: hosts and validators on record after each."""

    runs: list[Crawl]
    held: list[tuple[set[str], set[str]]]
    problems: str


@pytest.fixture(scope="module", params=JUMPS)
def jumped(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Jumped:
    directory: Path = tmp_path_factory.mktemp("jumped")
    runs, held = [], []
    with Sandbox() as box:
        made = project(directory / "project", box, None)
        for number, jump in enumerate((0.0, JUMPS[request.param], 0.0)):
            made.at(world.BEGINNING + number * APART, jump)
            runs.append(made.crawl(*world.DAILY))
            store = SqliteStore(made.state)
            pages = {record.url for record in store.rows(Validators)}
            held.append(({record.host for record in store.rows(HostRecord)}, pages))
            store.close()
            for path in (world.LIST, world.SCHEMA):
                box.set_route("operator.test", path, UNREACHABLE)
        return Jumped(runs, held, made.command("state", "verify").stdout)


def test_own_no_host_and_no_validator_is_dropped(jumped: Jumped) -> None:
    first = jumped.held[0]
    for hosts, pages in jumped.held[1:]:
        assert hosts >= first[0]
        assert pages >= first[1] > set()
    assert "in order" in jumped.problems


def test_r5_a_hold_goes_by_the_machines_own_count(jumped: Jumped) -> None:
    assert jumped.runs[0].asked("busy.test") == ["/robots.txt", "/p"]
    for run in jumped.runs[1:]:
        assert run.asked("busy.test") == []
        assert "may not be requested before" in run.why(world.BUSY)


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
        assert run.lines("refused", world.OPTED_OUT, "R3")


def test_r2_an_opt_out_of_robots_txt_is_kept(jumped: Jumped) -> None:
    for run in jumped.runs:
        assert {*run.asked("closed.test")} <= {"/robots.txt"}
        assert {*run.asked("dark.test")} <= {"/robots.txt", "/open"}


def test_r7_the_validator_is_sent_when_the_page_is_due(jumped: Jumped) -> None:
    for run in jumped.runs[1:]:
        for page in (each for each in run.requests("page.test") if each.path == "/p"):
            assert page.status == 304


def test_own_the_clock_does_not_stop_a_run(jumped: Jumped) -> None:
    for run in jumped.runs:
        assert run.returncode == 0
        assert len(requests(run.log)) < 40


@pytest.mark.parametrize("wrong", [-world.HOUR, YEARS], ids=["back", "years"])
def test_own_an_honest_ledger_holds_after_a_start_with_the_clock_put_right(
    tmp_path: Path, wrong: float
) -> None:
    """The steady clock is read anew at each start of the machine, so it goes back with it."""
    with Sandbox() as box:
        made = project(tmp_path / "project", box, None)
        made.at(world.BEGINNING, wrong)
        made.crawl(*world.DAILY)
        clock = made.state / "clock.json"
        clock.write_text(json.dumps({**json.loads(clock.read_text()), "boot": "another"}))
        made.at(world.BEGINNING + APART)
        second = made.crawl(*world.DAILY, arguments=("-s", "WALSH_REVISIT_REASON=a new start"))
        found = made.command("verify")
    assert second.asked("page.test")
    assert found.returncode == 0, found.stdout
