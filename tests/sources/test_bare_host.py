"""A source written as a bare host: https first, and http when nobody answers there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.sandbox import Route, Site, requests
from tests.crawl.harness import crawl, make_project
from tests.sources.world import MARKDOWN, QUICK

if TYPE_CHECKING:
    from pathlib import Path

    from scrapy_walsh.sandbox import Sandbox

pytestmark = pytest.mark.crawl

ROUTES = {"/robots.txt": Route(body="", content_type="text/plain"), "/": MARKDOWN}


def test_own_https_and_then_http(box: Sandbox, tmp_path: Path) -> None:
    box.put(Site("clear.test", ROUTES, tls=False))
    box.put(Site("secure.test", ROUTES))
    settings = {**QUICK, "WALSH_MAX_RETRIES": 0, "SPIDER_MODULES": ["scrapy_walsh.spiders"]}
    project = make_project(tmp_path / "project", settings=settings)
    written = ("-a", "report=report.json")
    run = crawl(
        project,
        box,
        "clear.test",
        "secure.test",
        spider_name="walsh_metadata",
        arguments=written,
    )
    tried = [request.method for request in run.log if request.host.startswith("clear.test")]
    assert tried[0] == "CONNECT"
    asked = [(r.scheme, r.path) for r in requests(run.log, "clear.test")]
    assert asked == [("http", "/robots.txt"), ("http", "/")]
    asked = [(r.scheme, r.path) for r in requests(run.log, "secure.test")]
    assert asked == [("https", "/robots.txt"), ("https", "/")]
    clear, secure = json.loads((project / "report.json").read_text())["sources"]
    assert clear["outcome"] == secure["outcome"] == "negotiated"
    assert clear["next_due"] is not None
    # An attempt that met no server counts too: it was a request.
    assert (clear["requests"], secure["requests"]) == (2, 1)
