"""The way of a request is one text: what a crawl decides, ``policy/chain.py`` has said."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.ledger.lines import parsed
from scrapy_walsh.proof.sandbox import Route, Sandbox
from tests.crawl.harness import Crawl, crawl, make_project, site, state_dir

if TYPE_CHECKING:
    from pathlib import Path

#: A spider that writes down what the chain says, and which of our files a request passes.
SPIDER = """
import asyncio
import json
import sys
from pathlib import Path

import scrapy

import scrapy_walsh
from scrapy_walsh.adapters.scheduler_queue import HostQueue
from scrapy_walsh.policy import chain

HERE = str(Path(scrapy_walsh.__file__).parent)
SAID, FILES, TRACED = [], set(), "http://plain.test/traced"

def reasons(answer):
    for each in (answer, getattr(answer, "verdict", None), getattr(answer, "failure", None)):
        yield getattr(each, "reason", None) or getattr(each, "why", None)

def heard(function):
    def ask(*given, **named):
        answer = function(*given, **named)
        SAID.extend(filter(None, reasons(answer)))
        return answer
    return ask

for name in ("judge", "judge_host", "judge_proxy", "admit", "conclude"):
    setattr(chain, name, heard(getattr(chain, name)))

def note(frame, kind, _):
    if kind == "call" and frame.f_code.co_filename.startswith(HERE):
        FILES.add(frame.f_code.co_filename[len(HERE) + 1:])

push = HostQueue.push

def traced_push(self, request):
    if request.url == TRACED:
        sys.setprofile(note)
    return push(self, request)

HostQueue.push = traced_push

class Probe(scrapy.Spider):
    name = "probe"

    def __init__(self, urls="", **kwargs):
        super().__init__(**kwargs)
        self.urls = urls.split()
        self.done = False

    async def start(self):
        for url in self.urls:
            while url == TRACED and not self.done:  # nothing else is under way then
                await asyncio.sleep(0.05)
            yield scrapy.Request(url, self.parse, errback=self.failed)

    def parse(self, response):
        self.done = True
        if response.url == TRACED:
            sys.setprofile(None)
        yield {"url": response.url}
        if response.url == "http://plain.test/first":
            yield response.follow("/undeclared", self.parse, errback=self.failed)

    def failed(self, failure):
        yield {"url": failure.request.url, "error": failure.type.__name__}

    def closed(self, reason):
        Path("way.json").write_text(json.dumps({"said": SAID, "files": sorted(FILES)}))
"""
BUSY = Route(429, "slow down\n", headers={"Retry-After": "0"})
URLS = (
    "http://plain.test/first",
    "http://plain.test/denied",
    "http://blocked.test/listed",
    "http://busy.test/page",
    "http://away.test/page",
    "http://slow.test/one",
    "http://slow.test/two",
)
TRACED = "http://plain.test/traced"
#: What a ledger says of a target, or of its robots.txt, that somebody decided.
DECISIONS = {"refused", "deferred", "retried", "given_up"}


class Way:
    """A finished crawl, its ledger, and what its spider wrote down."""

    def __init__(self, run: Crawl, project: Path) -> None:
        self.run = run
        told: dict[str, Any] = json.loads((project / "way.json").read_text())
        self.said, self.files = set(told["said"]), told["files"]
        lines = (state_dir(project) / "ledger.jsonl").read_bytes().splitlines()
        self.decisions = [each for each in map(parsed, lines) if each["kind"] in DECISIONS]


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> tuple[Way, Way]:
    settings = {"WALSH_MAX_RETRIES": 1, "WALSH_BACKOFF_BASE": 0.01}
    project = make_project(tmp_path_factory.mktemp("way") / "project", SPIDER, settings)
    with Sandbox() as box:
        box.put(site("plain.test", robots="User-agent: *\nDisallow: /denied\n"))
        box.put(site("busy.test", {"/page": BUSY}))
        box.put(site("away.test", {"/page": Route(503, headers={"Retry-After": "86400"})}))
        box.put(site("slow.test", robots="User-agent: *\nCrawl-delay: 100000\n"))
        found = Way(crawl(project, box, *URLS), project)
        alone = Way(crawl(project, box, "http://plain.test/other", TRACED), project)
    return found, alone


def test_own_every_decision_of_a_crawl_is_the_chains(ways: tuple[Way, Way]) -> None:
    way, _ = ways
    found = {(each["requirement"], each["kind"]) for each in way.decisions}
    assert found >= {
        ("R2", "refused"),
        ("R3", "refused"),
        ("R4", "deferred"),
        ("R5", "retried"),
        ("R5", "given_up"),
        ("R6", "refused"),
    }
    assert [each for each in way.decisions if each["reason"] not in way.said] == []


def test_own_a_request_passes_few_files(ways: tuple[Way, Way]) -> None:
    """From the push to the callback, its documents being in memory: a file more needs a reason.

    The last ones are ``policy/usage.py``, since what the site says about use stands beside each
    answer, ``policy/learned.py`` with ``state/records.py``: what the host has taught (D28), and
    ``state/connect.py``, whose connection makes one error of each that damage can raise.
    """
    _, way = ways
    assert {"adapters/gate.py", "policy/chain.py"} < set(way.files)
    assert len(way.files) <= 52, " ".join(way.files)
