"""D28: a host that counts requests teaches its interval, in this run, the next one, and to others.

The site counts as nginx's ``limit_req`` does. Judged from its own log, and by ``verify``.
"""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.commands.main import main
from scrapy_walsh.policy.times import duration
from scrapy_walsh.proof.sandbox import Route, gaps
from scrapy_walsh.state.records import HostRecord
from tests.crawl.harness import AGAIN, TOLERANCE, Crawl, Limit, Runs, kept, site, state_dir
from tests.ledger.test_crawl import ledger_of

if TYPE_CHECKING:
    from pathlib import Path

HOST, ONCE, NEVER, DOWN = "limited.test", "once.test", "never.test", "down.test"
TARGETS = [f"http://{HOST}/{page}" for page in range(14)]
SECOND_RUN = [f"http://{HOST}/again/{page}" for page in range(5)]
PAUSE = 2.0


@dataclass
class Learning:
    project: Path
    first: Crawl
    second: Crawl
    taught: float
    shown: str
    forgotten: dict[str, dict[str, int]]
    interval_after: float
    verified: str


def walsh(*arguments: str | Path) -> str:
    """What the command says."""
    out = io.StringIO()
    with redirect_stdout(out):
        main([str(each) for each in arguments])
    return out.getvalue()


@pytest.fixture(scope="module")
def learning(tmp_path_factory: pytest.TempPathFactory) -> Learning:
    project = tmp_path_factory.mktemp("learned")
    state, limit = state_dir(project), Limit(PAUSE)
    sites = (
        site(HOST, {"*": limit, "/robots.txt": limit}),
        site(ONCE, {"/2": Route(sequence=(Route(429), Route()))}),
        site(NEVER),
        site(DOWN, {"*": Limit(1.5, refusal=503)}),
    )
    others = [f"http://{host}/{page}" for host in (ONCE, NEVER, DOWN) for page in range(6)]
    with Runs(project, *sites, settings=AGAIN) as runs:
        first = runs(*TARGETS, *others)
        with runs.store() as store:
            record = store.get(HostRecord, HOST)
            assert record is not None
            taught = record.taught.interval
        identity = ("--identity", "walsh-research")
        shown = walsh("state", "show", "--dir", state, *identity)
        second = runs(*SECOND_RUN)
        verified = walsh("verify", state, "--json")
        forgotten = json.loads(walsh("state", "forget", HOST, "--json", "--dir", state, *identity))
        with runs.store() as store:
            left = store.get(HostRecord, HOST)
            assert left is not None
    return Learning(project, first, second, taught, shown, forgotten, left.spacing, verified)


def refused(crawl: Crawl, host: str) -> int:
    return sum(each.status in (429, 503) for each in crawl.requests(host))


def test_a_host_of_one_in_two_seconds_refuses_four_times_at_most(learning: Learning) -> None:
    assert all(learning.first.fetched(url) for url in TARGETS)
    assert refused(learning.first, HOST) <= 4


def test_what_it_has_taught_is_its_own_pace(learning: Learning) -> None:
    assert PAUSE - TOLERANCE <= learning.taught <= 2 * PAUSE
    raised = learning.first.lines("INFO", HOST, "after its next accepted answer")
    assert len(raised) == learning.first.stats["walsh/learned"]
    assert len([line for line in ledger_of(learning.project) if "learned" in line]) == len(raised)


def test_the_next_run_keeps_that_pace_from_its_first_request_on(learning: Learning) -> None:
    assert refused(learning.second, HOST) == 0
    assert kept(gaps(learning.second.log, HOST), PAUSE)
    robots, *_ = [line for line in ledger_of(learning.project) if line.get("taught")]
    assert (robots["host"], robots["taught"][0]) == (HOST, learning.taught)


@pytest.mark.parametrize("host", [ONCE, NEVER, DOWN])
def test_who_refuses_once_or_never_or_answers_503_is_not_slowed(
    learning: Learning, host: str
) -> None:
    assert not learning.first.lines(host, "after its next accepted answer")
    lines = [line for line in ledger_of(learning.project) if line.get("host") == host]
    assert {line["interval"] for line in lines if line["kind"] == "asked"} == {1.0}


def test_state_show_says_it_and_forget_drops_it(learning: Learning) -> None:
    (line,) = [line for line in learning.shown.splitlines() if line.split()[:1] == [HOST]]
    assert f"  {duration(learning.taught)}" in line
    assert learning.forgotten["dropped"]["learned interval"] == 1
    assert learning.interval_after == 1.0


def test_verify_derives_it(learning: Learning) -> None:
    found = json.loads(learning.verified)
    assert found["findings"] == []
    assert not [why for why in found["not_derived"] if "learned" in why]
