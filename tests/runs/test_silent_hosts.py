"""R5, D31: a host that gave no answer in a run gets one request in later ones, after all others."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.proof.sandbox import Route
from tests.crawl.harness import AGAIN, Crawl, Runs, site, state_dir
from tests.kit import report_of, wrong_in
from tests.ledger.test_crawl import ledger_of
from tests.pacing.test_learned import walsh

if TYPE_CHECKING:
    from pathlib import Path

DEAD, LIVE = "dead.test", "live.test"
URLS = [f"http://{host}/{page}" for host in (DEAD, LIVE) for page in range(3)]
SETTINGS: dict[str, Any] = {"WALSH_BACKOFF_BASE": 0.01, "WALSH_MAX_RETRIES": 2, **AGAIN}
SILENCE = site(DEAD, {"*": Route(behaviour="close")}, Route(behaviour="close"))
#: `start()` names the live host late, and a callback its second page.
LINKS = """
import asyncio
import scrapy

class Probe(scrapy.Spider):
    name = "probe"

    async def start(self):
        yield scrapy.Request("http://dead.test/0", errback=self.failed)
        await asyncio.sleep(2)  # by now the host that gives no answer is due
        yield scrapy.Request(
            "http://live.test/0", self.parse, meta={"walsh_also": ["http://live.test/1"]}
        )

    async def parse(self, response):
        await asyncio.sleep(0.5)
        if response.url.endswith("0"):
            yield scrapy.Request("http://live.test/1", self.parse)

    def failed(self, failure):
        yield {"url": failure.request.url, "error": failure.type.__name__, "why": ""}
"""


@dataclass
class Days:
    """Two runs over a host that gives no answer, two after it is back, one after it is gone again.

    ``said``: what the commands say between the first two.
    """

    project: Path
    silent: list[Crawl]
    back: list[Crawl]
    gone: Crawl
    said: dict[str, str] = field(default_factory=dict)


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> Days:
    said = {}
    with Runs(tmp_path_factory.mktemp("days"), SILENCE, site(LIVE), settings=SETTINGS) as runs:
        state, identity = state_dir(runs.project), ("--identity", "walsh-research")
        silent = [runs(*URLS)]
        said["json"] = walsh("state", "show", "--json", "--dir", state, *identity)
        said["show"] = walsh("state", "show", "--dir", state, *identity)
        settings = ("-s", f"WALSH_STATE_DIR={state}", "-s", "WALSH_REVISIT_REASON=again")
        said["plan"] = walsh("plan", "-a", f"urls={URLS[0]} {URLS[3]}", *settings, *identity)
        silent.append(runs(*URLS))
        runs.box.put(site(DEAD))
        back = [runs(*URLS), runs(*URLS)]
        runs.box.put(SILENCE)
        gone = runs(*URLS[1:])
    return Days(runs.project, silent, back, gone, said)


def test_it_gets_one_request_and_no_other_host_waits_for_it(days: Days) -> None:
    first, second = days.silent
    assert first.asked(DEAD) == ["/robots.txt", "/robots.txt", "/0"]
    assert second.asked(DEAD) == ["/robots.txt"]
    assert [each.host for each in second.log if each.host in (DEAD, LIVE)] == [LIVE] * 3 + [DEAD]
    for url in URLS[:3]:
        assert "R5 deferred: dead.test did not answer, nor in an earlier" in (second.why(url))


def test_the_stats_say_how_many_there_were(days: Days) -> None:
    assert "walsh/silent_hosts" not in days.silent[0].stats
    counted = [
        (each.stats["walsh/silent_hosts"], each.stats["walsh/silent_hosts/answered"])
        for each in (days.silent[1], days.back[0])
    ]
    assert counted == [(1, 0), (1, 1)]


def test_once_it_answers_it_is_a_host_like_any_other(days: Days) -> None:
    answered, later = days.back
    assert answered.asked(DEAD)[0] == "/robots.txt"
    assert sorted(answered.asked(DEAD)[1:]) == ["/0", "/1", "/2"]
    hosts = [each.host for each in later.log if each.host in (DEAD, LIVE)]
    assert sorted(hosts) == [DEAD] * 3 + [LIVE] * 3
    assert hosts[:2] in ([DEAD, LIVE], [LIVE, DEAD])
    assert len(days.gone.asked(DEAD)) == 2  # its rules are known


def test_state_show_and_plan_say_it(days: Days) -> None:
    found = {each["host"]: each["silent_since"] for each in json.loads(days.said["json"])["hosts"]}
    assert found[DEAD] is not None
    assert found[LIVE] is None
    assert "silent since" in days.said["show"]
    lines = {each.split()[0]: each for each in days.said["show"].splitlines() if each.strip()}
    assert re.search(r" 20\S+ \S+$", lines[DEAD])
    assert lines[LIVE].endswith(" s")
    planned = [each for each in days.said["plan"].splitlines() if each.startswith("  in ")]
    assert [DEAD in each for each in planned] == sorted(DEAD in each for each in planned)
    assert DEAD in planned[-1]


def test_the_ledger_says_it_and_verify_finds_nothing_wrong(days: Days) -> None:
    said = [line for line in ledger_of(days.project) if line.get("silent")]
    assert [(line["host"], line.get("status")) for line in said] == [(DEAD, None), (DEAD, 200)]
    report = report_of(state_dir(days.project))
    assert wrong_in(report) == []
    assert not any("deferrals" in reason for reason in report.underived)


def test_it_does_not_go_before_what_start_or_a_callback_names_later(tmp_path: Path) -> None:
    with Runs(tmp_path, SILENCE, site(LIVE), settings=SETTINGS, spider=LINKS) as runs:
        runs()
        second = runs()
    asked = [f"{each.host}{each.path}" for each in second.log if each.host in (DEAD, LIVE)]
    assert asked == [f"{LIVE}/0", f"{LIVE}/1", f"{DEAD}/robots.txt"]


def test_state_forget_gives_it_its_usual_attempts_back(tmp_path: Path) -> None:
    with Runs(tmp_path, SILENCE, settings=SETTINGS) as runs:
        runs(*URLS[:3])
        walsh("state", "forget", DEAD, "--dir", state_dir(tmp_path))
        assert len(runs(*URLS[:3]).asked(DEAD)) == 3


def test_a_bare_host_is_tried_once_by_either_scheme(tmp_path: Path) -> None:
    settings = {**SETTINGS, "SPIDER_MODULES": ["scrapy_walsh.spiders"]}
    with Runs(tmp_path, SILENCE, settings=settings) as runs:
        options = {"spider_name": "walsh_metadata", "arguments": ("-a", f"urls={DEAD}")}
        runs(**options)
        runs(**options)
    lines = ledger_of(tmp_path)
    (begin,) = [n for n, each in enumerate(lines) if each["kind"] == "started"][1:]
    sent = [each["url"] for each in lines[begin:] if each["kind"] == "asked"]
    assert [url for url in sent if DEAD in url] == [
        f"https://{DEAD}/robots.txt",
        f"http://{DEAD}/robots.txt",
    ]
