"""The way of a request is one text: what a crawl decides, ``policy/chain.py`` has said."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.ledger.files import parse_line
from scrapy_walsh.proof.sandbox import Route, Sandbox
from tests.crawl.harness import crawl, make_project, site, state_dir

if TYPE_CHECKING:
    from pathlib import Path

#: A spider that writes down what the chain says.
SPIDER = """
import json
from pathlib import Path

import scrapy

from scrapy_walsh.policy import chain

SAID = []

def reasons(answer):
    for each in (answer, getattr(answer, "verdict", None), getattr(answer, "failure", None)):
        reason = getattr(each, "reason", None)
        yield reason() if callable(reason) else reason

def heard(function):
    def ask(*given, **named):
        answer = function(*given, **named)
        SAID.extend(filter(None, reasons(answer)))
        return answer
    return ask

for name in ("judge", "judge_host", "judge_proxy", "admit", "conclude"):
    setattr(chain, name, heard(getattr(chain, name)))

class Probe(scrapy.Spider):
    name = "probe"

    def __init__(self, urls="", **kwargs):
        super().__init__(**kwargs)
        self.urls = urls.split()

    async def start(self):
        for url in self.urls:
            yield scrapy.Request(url, self.parse, errback=self.failed)

    def parse(self, response):
        yield {"url": response.url}
        if response.url == "http://plain.test/first":
            yield response.follow("/undeclared", self.parse, errback=self.failed)

    def failed(self, failure):
        yield {"url": failure.request.url, "error": failure.type.__name__}

    def closed(self, reason):
        Path("said.json").write_text(json.dumps(SAID))
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
#: What a ledger says of a target, or of its robots.txt, that somebody decided.
DECISIONS = {"refused", "deferred", "retried", "given_up"}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """After a crawl of :data:`URLS`."""
    settings = {"WALSH_MAX_RETRIES": 1, "WALSH_BACKOFF_BASE": 0.01}
    found = make_project(tmp_path_factory.mktemp("way") / "project", SPIDER, settings)
    with Sandbox() as box:
        box.put(site("plain.test", robots="User-agent: *\nDisallow: /denied\n"))
        box.put(site("busy.test", {"/page": BUSY}))
        box.put(site("away.test", {"/page": Route(503, headers={"Retry-After": "86400"})}))
        box.put(site("slow.test", robots="User-agent: *\nCrawl-delay: 100000\n"))
        crawl(found, box, *URLS)
    return found


def test_every_decision_of_a_crawl_is_the_chains(project: Path) -> None:
    said = set(json.loads((project / "said.json").read_text()))
    lines = (state_dir(project) / "ledger.jsonl").read_bytes().splitlines()
    decisions = [each for each in map(parse_line, lines) if each["kind"] in DECISIONS]
    assert {(each["requirement"], each["kind"]) for each in decisions} >= {
        ("R2", "refused"),
        ("R3", "refused"),
        ("R4", "deferred"),
        ("R5", "retried"),
        ("R5", "given_up"),
        ("R6", "refused"),
    }
    assert [each for each in decisions if each["reason"] not in said] == []
