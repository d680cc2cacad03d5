"""A run that begins while the one before it goes on: to a host, both are one bot."""

from __future__ import annotations

import json
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from scrapy_walsh.proof.sandbox import LoggedRequest, Route, Sandbox, gaps, requests
from tests.crawl.harness import kept, make_project, run_scrapy, site, verify

HOSTS = [f"both{number}.test" for number in range(4)]
SLOW, BUSY, CLOSED = "delayed.test", "busy.test", "closed.test"
#: A host whose answer takes longer than its spacing, and one whose redirect does.
LONG, LONG_MOVED = "long.test", "longmoved.test"
#: Hosts whose page redirects to one host, where the second and the third wait for their turn.
MOVED = [f"moved{number}.test" for number in range(3)]
PAGES = 3
URLS = [f"http://{host}/{page}" for page in range(PAGES) for host in HOSTS]
URLS += [f"http://{SLOW}/0", f"http://{SLOW}/1", f"http://{BUSY}/0", f"http://{CLOSED}/0"]
URLS += [f"http://{host}/0" for host in (*MOVED, LONG, LONG_MOVED)]
#: Seconds between the starts of the two runs.
APART = 1.0
DELAY = 2.0


@dataclass
class Both:
    """What the server saw of two runs of the same sources on one directory, and what they said."""

    log: list[LoggedRequest]
    outputs: list[str]
    returncodes: list[int]
    verified: str
    #: The kinds of the ledger's lines.
    lines: list[str]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Both:
    directory = tmp_path_factory.mktemp("both")
    state = directory / "state"
    projects = [make_project(directory / name) for name in ("first", "second")]
    page = Route(body="page", delay=0.15)
    with Sandbox() as box:
        for host in HOSTS:
            box.put(site(host, {"*": page}))
        box.put(site(SLOW, {"*": page}, f"User-agent: *\nCrawl-delay: {DELAY}\n"))
        box.put(site(BUSY, {"*": Route(429, headers={"Retry-After": "7200"})}))
        box.put(site(LONG, {"*": Route(body="page", delay=3)}))
        elsewhere = Route(301, headers={"Location": "http://there.test/long"}, delay=3)
        box.put(site(LONG_MOVED, {"*": elsewhere}))
        box.put(site("there.test", {"*": page}))
        for host in MOVED:
            there = Route(301, headers={"Location": f"http://there.test/{host}"})
            box.put(site(host, {"*": there}))
        box.put(site(CLOSED, robots="User-agent: *\nDisallow: /\n"))

        def run(number: int) -> tuple[str, int]:
            time.sleep(number * APART)
            given = ("-a", f"urls={' '.join(URLS)}", "-s", f"WALSH_STATE_DIR={state}")
            done = run_scrapy(projects[number], box, "crawl", "probe", *given)
            return done.stdout, done.returncode

        with ThreadPoolExecutor(2) as pool:
            ended = list(pool.map(run, range(2)))
        log = requests(box.log)
    ledger = (state / "ledger.jsonl").read_text().splitlines()
    kinds = [json.loads(line)["kind"] for line in ledger]
    outputs, codes = [text for text, _ in ended], [code for _, code in ended]
    return Both(log, outputs, codes, verify(state)[1], kinds)


def targets(both: Both) -> list[str]:
    return [f"http://{e.host}{e.path}" for e in both.log if f"http://{e.host}{e.path}" in URLS]


def test_r8_no_source_is_sent_twice(both: Both) -> None:
    expected = Counter(url for url in URLS if CLOSED not in url)
    assert Counter(targets(both)) == expected


def test_both_runs_took_part_and_ended_well(both: Both) -> None:
    assert both.returncodes == [0, 0]
    assert "Traceback" not in "".join(both.outputs)
    assert [kind for kind in both.lines if kind in ("started", "ended")][:2] == ["started"] * 2
    assert any("not_due" in text for text in both.outputs)


def test_r4_6_two_runs_keep_the_spacing_together(both: Both) -> None:
    for host in HOSTS:
        spaced = gaps(both.log, host, start_to_start=True)
        assert kept(spaced[1:], 1.0), host  # robots.txt and the first target: T1
    delayed = [each for each in both.log if each.path != "/robots.txt"]
    assert kept(gaps(delayed, SLOW, start_to_start=True), DELAY)


def test_r5_a_hold_that_one_run_met_binds_the_other(both: Both) -> None:
    assert sum(each.host == BUSY and each.path == "/0" for each in both.log) == 1


def test_r2_an_opt_out_binds_both(both: Both) -> None:
    assert {each.path for each in both.log if each.host == CLOSED} == {"/robots.txt"}


def test_the_ledger_of_both_holds(both: Both) -> None:
    assert "nothing wrong was found" in both.verified, both.verified
