"""A signal for each kind of event, with what the log, the stats and the ledger have."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh import signals
from scrapy_walsh.proof.sandbox import Route
from tests.crawl.harness import LIST_SPIDER, Crawl, site

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.crawl

DOCS = Path(__file__).parents[2] / "docs"

LISTENER = """
import json
from scrapy_walsh import signals

class Listener:
    @classmethod
    def from_crawler(cls, crawler):
        self = cls()
        for name in dir(signals):
            if name.startswith("walsh_"):
                crawler.signals.connect(self.of(name), getattr(signals, name), weak=False)
        return self

    def of(self, name):
        def heard(spider, event=None, exchange=None):
            told = {"signal": name, "kind": event and event.kind, "spider": spider.name}
            told["url"] = (event or exchange).url
            told["verdict"] = event and event.verdict
            with open("heard.jsonl", "a") as file:
                print(json.dumps(told), file=file)
        return heard
"""
RAISES = """
from scrapy_walsh import signals

class Listener:
    @classmethod
    def from_crawler(cls, crawler):
        crawler.signals.connect(cls.broken, signals.walsh_refused)
        return cls()

    @staticmethod
    def broken():
        raise RuntimeError("a receiver is broken")
"""
URLS = (
    "http://h.test/a",
    "http://h.test/closed/x",
    "http://h.test/loop",
    "http://unsure.test/x",
    "http://away.test/x",
)
SITES = (
    site(
        "h.test",
        {"/loop": Route(status=302, headers={"Location": "http://h.test/loop"})},
        robots="User-agent: *\nDisallow: /closed/\n",
    ),
    site("unsure.test", robots=Route(status=503)),
    site("away.test", {"/x": Route(status=503)}),
)


def listened(run: Callable[..., Crawl], tmp_path: Path, listener: str, **settings: Any) -> Crawl:
    project = tmp_path / "project"
    project.mkdir(exist_ok=True)
    (project / "listener.py").write_text(listener)
    settings = {"EXTENSIONS": {"listener.Listener": 1}, **settings}
    return run(*URLS, sites=SITES, spider=LIST_SPIDER, settings=settings)


def test_each_event_has_its_signal(run: Callable[..., Crawl], tmp_path: Path) -> None:
    result = listened(
        run, tmp_path, LISTENER, WALSH_MAX_RETRIES=0, WALSH_ROBOTS_UNREACHABLE="defer"
    )
    lines = (tmp_path / "project" / "heard.jsonl").read_text().splitlines()
    heard = [json.loads(line) for line in lines]
    counts = Counter(each["signal"] for each in heard)
    for kind in set(signals.OF_KIND) - {"asked"}:
        assert counts[f"walsh_{kind}"] == result.stats.get(f"walsh/{kind}", 0), kind
    assert {"walsh_refused", "walsh_fetched", "walsh_held", "walsh_deferred", "walsh_given_up"} <= {
        *counts
    }
    assert {"walsh_adopted", "walsh_rejected", "walsh_too_many_redirects"} <= {*counts}
    assert counts["walsh_asked"] == len(result.log)
    assert {each["spider"] for each in heard} == {"probe"}
    assert all(each["signal"] in ("walsh_asked", f"walsh_{each['kind']}") for each in heard)
    (refused,) = [each for each in heard if each["signal"] == "walsh_refused"]
    assert (refused["url"], refused["verdict"]) == (URLS[1], "disallowed_explicit")


def test_the_listener_of_the_docs_hears_a_refusal(
    run: Callable[..., Crawl], tmp_path: Path
) -> None:
    page = (DOCS / "reference.md").read_text().partition("## Signals")[2]
    snippet = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    listener = f"{snippet}\n\nListener = Watch\n"
    result = listened(run, tmp_path, listener, WALSH_MAX_RETRIES=0)
    assert result.lines("no R2 for http://h.test/closed/x")


def test_a_receiver_that_raises_changes_nothing(run: Callable[..., Crawl], tmp_path: Path) -> None:
    result = listened(run, tmp_path, RAISES, WALSH_MAX_RETRIES=0)
    assert result.lines("RuntimeError: a receiver is broken")
    assert "R2 disallowed_explicit" in result.why(URLS[1])
    assert "/closed/x" not in result.asked("h.test")
    assert result.stats["close_reason"] == "finished"
