"""The corpus of feeds and markdown files, crawled: the items are those that it expects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from scrapy_walsh.policy.urls import canonical_url
from scrapy_walsh.proof.sandbox import Route, Sandbox
from tests.crawl.harness import Crawl, crawl, make_project, site
from tests.sources.world import QUICK

pytestmark = pytest.mark.crawl

DATA = Path(__file__).parents[1] / "data"
NOTHING = Route(404, "no", "text/plain")


class Case(NamedTuple):
    """A file, the host that serves it at ``path``, and the entries that it has."""

    name: str
    host: str
    path: str
    route: Route
    entries: list[list[Any]]


def _cases() -> list[Case]:
    files = sorted((DATA / "feeds").glob("*.expected.json")) + sorted(
        (DATA / "markdown").glob("*.expected.json")
    )
    return [_case(number, path) for number, path in enumerate(files)]


def _case(number: int, expected: Path) -> Case:
    stem, host = expected.name.removesuffix(".expected.json"), f"c{number}.test"
    (body,) = (p for p in expected.parent.glob(f"{stem}.*") if p != expected and p.stem == stem)
    told = json.loads(expected.read_text(encoding="utf-8"))
    if isinstance(told, list):  # markdown: titles and URLs
        entries = [[title, url, None] for title, url in told]
        return Case(
            stem,
            host,
            "/page",
            Route(body=body.read_bytes(), content_type="text/markdown"),
            entries,
        )
    origin, path = told["url"].split("/", 3)[2:]
    route = Route(body=body.read_bytes(), content_type=told["content_type"])
    # Relative links lead to the host that serves the file.
    text = json.dumps(told.get("entries", []))
    return Case(
        stem,
        host,
        f"/{path}",
        route,
        json.loads(text.replace(f"https://{origin}", f"http://{host}")),
    )


CASES = _cases()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Crawl:
    settings = {**QUICK, "SPIDER_MODULES": ["scrapy_walsh.spiders"], "LOG_LEVEL": "INFO"}
    project = make_project(tmp_path_factory.mktemp("corpus") / "p", settings=settings)
    lines = []
    with Sandbox() as box:
        for case in CASES:
            box.put(site(case.host, {case.path: case.route, "*": NOTHING}))
            url = f"http://{case.host}{case.path}"
            lines.append(json.dumps({"name": case.name, "url": url, "feed": url}))
        (project / "s.jsonl").write_text("\n".join(lines))
        given = ("-a", "sources=s.jsonl")
        return crawl(project, box, spider_name="walsh_metadata", arguments=given)


def _same(host: str, url: str) -> str:
    """*url*, whether it was written with the host that the corpus names or resolved to ours."""
    return url.replace("https://news.example", f"http://{host}")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_r9_items_of_the_corpus(run: Crawl, case: Case) -> None:
    found = [
        [item["title"], _same(case.host, item["url"]), item["published"]]
        for item in run.items
        if item["source"] == case.name
    ]
    assert [entry for entry in found if entry not in case.entries] == []
    emitted = {canonical_url(_same(case.host, item["url"])) for item in run.items}
    assert [url for _, url, _ in case.entries if canonical_url(url) not in emitted] == []


def test_corpus_is_large_enough() -> None:
    assert len(CASES) >= 60
    assert sum(bool(case.entries) for case in CASES) >= 40
