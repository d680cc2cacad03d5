"""A crawl of sources whose documents cost their reader much: other hosts are asked meanwhile."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from scrapy_walsh.proof.sandbox import Route, Sandbox
from tests.crawl.harness import Crawl, crawl, make_project, site
from tests.sources.hostile import DOCUMENTS as ALL
from tests.sources.hostile import Hostile

pytestmark = pytest.mark.crawl

#: One of each outcome; tests/sources/test_apart.py reads them all.
NAMES = ("deep", "markdown-200kB", "brackets", "namespaces", "laughs")
DOCUMENTS = [each for each in ALL if each.name in NAMES]
#: Seconds after which a document is given up in this test, where its reader would take minutes.
LIMIT = 2.0
#: The others are read to their end, however slow the machine is.
LIMITS = f"""
from scrapy_walsh.adapters.documents import apart

def limited(kind, body, content_type, url, timeout, whole=apart._read_in_child):
    return whole(kind, body, content_type, url, {LIMIT} if url in SLOW else 600.0)

apart._read_in_child = limited
"""
PATHS = tuple(f"/{number}.md" for number in range(6))
ONE = Route(body="[a link](http://news.test/x)", content_type="text/markdown")

HEART = """
import asyncio, json, time
from scrapy import signals

class Heart:
    @classmethod
    def from_crawler(cls, crawler):
        heart = cls()
        crawler.signals.connect(heart.start, signals.spider_opened, weak=False)
        crawler.signals.connect(heart.stop, signals.spider_closed, weak=False)
        return heart

    def start(self):
        self.longest = 0.0
        self.task = asyncio.ensure_future(self.beat())

    async def beat(self):
        while True:
            before = time.process_time()
            await asyncio.sleep(0.005)
            self.longest = max(self.longest, time.process_time() - before)

    def stop(self):
        self.task.cancel()
        with open("heart.json", "w") as file:
            json.dump(self.longest, file)
"""


@dataclass
class Seen:
    """A crawl, its source report, and the longest pause of its event loop.

    In seconds of its processor time: while another process has the processor, nobody is at fault.
    """

    run: Crawl
    report: dict[str, Any]
    longest: float

    def row(self, name: str) -> dict[str, Any]:
        (row,) = [row for row in self.report["sources"] if row["source"] == name]
        return row


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """Hostile documents in one crawl, beside a host with one page a second."""
    project = make_project(
        tmp_path_factory.mktemp("hostile") / "project",
        settings={
            "SPIDER_MODULES": ["scrapy_walsh.spiders"],
            "EXTENSIONS": {"heart.Heart": 0},
            "LOG_LEVEL": "INFO",
        },
    )
    (project / "heart.py").write_text(HEART)
    with (project / "probe_settings.py").open("a") as settings:
        settings.write(f"SLOW = {[url_of(each) for each in DOCUMENTS if each.slow]}\n{LIMITS}")
    lines = [{"name": path, "url": f"http://polite.test{path}"} for path in PATHS]
    lines += [{"name": each.name, each.declared_as: url_of(each)} for each in DOCUMENTS]
    (project / "sources.jsonl").write_text("\n".join(map(json.dumps, lines)))
    with Sandbox() as box:
        box.put(site("polite.test", dict.fromkeys(PATHS, ONE)))
        for number, each in enumerate(DOCUMENTS):
            route = Route(body=each.body(), content_type=each.content_type)
            gone = Route(404, "no", "text/plain")
            box.put(site(f"h{number}.test", {"/": route, "/llms.txt": gone}))
        given = ("-a", "sources=sources.jsonl", "-a", "report=report.json")
        run = crawl(project, box, spider_name="walsh_metadata", arguments=given, timeout=300)
    report = json.loads((project / "report.json").read_text())
    return Seen(run, report, json.loads((project / "heart.json").read_text()))


def url_of(hostile: Hostile) -> str:
    return f"http://h{DOCUMENTS.index(hostile)}.test/"


def test_no_document_stops_the_loop(seen: Seen) -> None:
    """One of the documents is worked on for LIMIT seconds."""
    assert seen.longest < LIMIT / 10


def test_other_hosts_are_asked_while_documents_are_read(seen: Seen) -> None:
    assert len(seen.run.asked("polite.test")) == len(PATHS) + 1
    assert max(seen.run.gaps("polite.test")) < LIMIT


@pytest.mark.parametrize("hostile", DOCUMENTS, ids=lambda each: each.name)
def test_each_source_has_its_outcome_and_one_reason(seen: Seen, hostile: Hostile) -> None:
    row = seen.row(hostile.name)
    if hostile.refusal is None:
        assert row["outcome"] in ("fed", "sitemap", "negotiated"), row
        assert row["items"] >= hostile.entries
        return
    assert row["outcome"] == ("failed" if hostile.costly else "left_out")
    assert hostile.refusal in row["reason"]
    assert "\n" not in row["reason"]
    assert row["items"] == 0
