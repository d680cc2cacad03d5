"""A second visit: what was of no use is asked anew, and is never "not modified"."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.proof.sandbox import Route, Sandbox
from tests.crawl.harness import Crawl, crawl, make_project, site
from tests.sources.hostile import LAUGHS
from tests.sources.world import HTML_PAGE, QUICK, RSS, entry, rss

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.crawl

BOMB = Route(
    body=gzip.compress(bytes(64 << 20), 1),
    content_type=RSS,
    headers={"Content-Encoding": "gzip"},
    etag='"b"',
)
LLMS = Route(body="[l](http://news.test/l)", content_type="text/plain")
ROUTES: dict[str, dict[str, Route]] = {
    "good": {"/": Route(body=rss(entry("g")), content_type=RSS, etag='"g"')},
    "mislabelled": {"/": Route(body=rss(entry("m")), content_type="text/html", etag='"m"')},
    "laughs": {"/": Route(body=rss(head=LAUGHS), content_type=RSS, etag='"l"')},
    "bomb": {"/": BOMB},
    "page": {"/": Route(body=HTML_PAGE, etag='"p"'), "/llms.txt": LLMS},
    "pdf": {"/": Route(body="%PDF", content_type="application/pdf", etag='"f"')},
}


@pytest.fixture(scope="module")
def again(tmp_path_factory: pytest.TempPathFactory) -> tuple[Crawl, dict[str, Any]]:
    """The second of two runs, and its report by source."""
    settings = {**QUICK, "SPIDER_MODULES": ["scrapy_walsh.spiders"]}
    project: Path = make_project(tmp_path_factory.mktemp("again") / "p", settings=settings)
    nothing = Route(404, "no", "text/plain")
    with Sandbox() as box:
        for name, routes in ROUTES.items():
            box.put(site(f"{name}.test", {"*": nothing, **routes}))
        urls = [f"http://{name}.test/" for name in ROUTES]
        arguments = ("-a", "report=r.json", "-s", "WALSH_REVISIT_REASON=a test asks twice")
        for _ in range(2):
            run = crawl(project, box, *urls, spider_name="walsh_metadata", arguments=arguments)
    rows = json.loads((project / "r.json").read_text())["sources"]
    return run, {row["source"].removesuffix(".test"): row for row in rows}


@pytest.mark.parametrize(
    ("source", "status", "outcome"),
    [
        ("good", 304, "not_modified"),
        ("mislabelled", 200, "fed"),
        ("laughs", 200, "left_out"),
        ("bomb", 200, "failed"),
        ("page", 304, "llms.txt"),
        ("pdf", 200, "left_out"),
    ],
)
def test_second_visit(
    again: tuple[Crawl, dict[str, Any]], source: str, status: int, outcome: str
) -> None:
    run, rows = again
    (page,) = [request for request in run.requests(f"{source}.test") if request.path == "/"]
    assert page.status == status
    assert bool(page.values("If-None-Match")) is (status == 304)
    assert rows[source]["outcome"] == outcome
    assert rows[source]["requests"] == len(run.requests(f"{source}.test"))


def test_r7_3_not_modified_gives_nothing(again: tuple[Crawl, dict[str, Any]]) -> None:
    row = again[1]["good"]
    assert (row["requirement"], row["bytes"], row["items"]) == ("R7", 0, 0)
    assert row["next_due"] is not None
