"""A tutorial's project gets the package, by docs/other-projects.md, and still works."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.adapters import compat
from scrapy_walsh.proof.sandbox import (
    LoggedRequest,
    Route,
    Sandbox,
    Site,
    gaps,
    max_in_flight,
    paths,
)
from tests.crawl.harness import OPERATOR, OWN_IDENTITY, USER_AGENT, kept, run_scrapy, site
from tests.deploy.conftest import ROOT, snippet

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from subprocess import CompletedProcess

pytestmark = pytest.mark.crawl

DOC = (ROOT / "docs/other-projects.md").read_text()
BY_HAND = snippet((ROOT / "docs/install.md").read_text(), "by hand")
OWN_USER_AGENT = "Mozilla/5.0 (compatible; ExampleBot/1.0; +http://operator.test/bot/)"

#: What the project had before: the settings of ``scrapy startproject``, a pipeline and a feed.
SETTINGS = """
BOT_NAME = "quotes"
SPIDER_MODULES = ["quotes.spiders"]
ROBOTSTXT_OBEY = True
CONCURRENT_REQUESTS_PER_DOMAIN = 8
ITEM_PIPELINES = {"quotes.pipelines.Upper": 300}
FEEDS = {"quotes.json": {"format": "json"}}
FEED_EXPORT_ENCODING = "utf-8"
"""
PIPELINE = """
from scrapy.exceptions import DropItem

class Upper:
    def process_item(self, item, spider=None):
        if item["author"] == "Nobody":
            raise DropItem("nobody said it")
        return {**item, "author": item["author"].upper()}
"""
WALSH = f"""
WALSH_IDENTITY = "walsh-research"
WALSH_BLOCKLIST_URL = "{OPERATOR}/blocklist.json"
WALSH_BLOCKLIST_SCHEMA_URL = "{OPERATOR}/blocklist.schema.json"
"""
OWN = f"WALSH_IDENTITY = {OWN_IDENTITY!r}\n"


def page(number: int, following: str) -> Route:
    quotes = [("Walk.", f"Author {number}"), ("Run.", "Nobody")]
    shown = "".join(f"<div class=quote><p>{text}</p><b>{by}</b></div>" for text, by in quotes)
    return Route(body=f"<body>{shown}<a class=next href='{following}'>next</a></body>")


def quotes_site() -> Site:
    """Three pages; the last one leads to a path that robots.txt closes."""
    pages = {
        "/page/1": page(1, "/page/2"),
        "/page/2": page(2, "/page/3"),
        "/page/3": page(3, "/closed/4"),
    }
    return site("quotes.example", pages, robots="User-agent: *\nDisallow: /closed/\n")


@pytest.fixture
def box() -> Iterator[Sandbox]:
    with Sandbox() as running:
        running.put(quotes_site())
        yield running


def by_the_addon(identity: str) -> str:
    return snippet(DOC, "by the add-on") + identity


def by_hand(identity: str) -> str:
    agent = OWN_USER_AGENT if identity == OWN else USER_AGENT
    jitter, off = compat.JITTER_SETTING  # its name differs between versions, as the block says
    return f"{BY_HAND}\nUSER_AGENT = {agent!r}\n{jitter} = {off!r}\n{identity}"


ways = pytest.mark.parametrize("way", [by_the_addon, by_hand])


def make_project(folder: Path, added: str) -> Path:
    package = folder / "quotes"
    package.mkdir(parents=True)
    (folder / "scrapy.cfg").write_text("[settings]\ndefault = quotes.settings\n")
    (package / "__init__.py").touch()
    (package / "settings.py").write_text(SETTINGS + added)
    (package / "pipelines.py").write_text(PIPELINE)
    spiders = snippet(DOC, "spider") + "\n\n" + snippet(DOC, "declared")
    (package / "spiders.py").write_text(spiders)
    return folder


def crawl(project: Path, box: Sandbox, spider: str) -> tuple[CompletedProcess[str], list[str]]:
    """The finished command, and the authors in the project's own feed."""
    done = run_scrapy(project, box, "crawl", spider)
    assert done.returncode == 0, done.stdout
    return done, [item["author"] for item in json.loads((project / "quotes.json").read_text())]


def polite(log: list[LoggedRequest]) -> bool:
    return max_in_flight(log) == 1 and kept(gaps(log, "quotes.example")[1:], 1.0)


@ways
def test_links_of_a_tutorial_are_refused_and_the_rest_works(way, box: Sandbox, tmp_path: Path):
    project = make_project(tmp_path / "project", way(OWN))
    done, authors = crawl(project, box, "quotes")
    assert authors == ["AUTHOR 1"]
    assert paths(box.log, "quotes.example") == ["/robots.txt", "/page/1"]
    assert "refused http://quotes.example/page/2 (R6 out_of_scope)" in done.stdout
    assert "'finish_reason': 'finished'" in done.stdout
    assert "'item_dropped_count': 1" in done.stdout


@ways
def test_pagination_works_under_an_identity_of_ones_own(way, box: Sandbox, tmp_path: Path):
    project = make_project(tmp_path / "project", way(OWN) + snippet(DOC, "follow"))
    done, authors = crawl(project, box, "quotes")
    assert authors == ["AUTHOR 1", "AUTHOR 2", "AUTHOR 3"]
    assert paths(box.log, "quotes.example") == ["/robots.txt", "/page/1", "/page/2", "/page/3"]
    assert "refused http://quotes.example/closed/4 (R2 disallowed_explicit)" in done.stdout
    assert {request.values("User-Agent")[0] for request in box.log} == {OWN_USER_AGENT}
    assert polite(box.log)


def test_declared_pages_need_no_links(box: Sandbox, tmp_path: Path):
    project = make_project(tmp_path / "project", by_the_addon(OWN))
    _, authors = crawl(project, box, "declared")
    assert sorted(authors) == ["AUTHOR 1", "AUTHOR 2", "AUTHOR 3"]
    assert polite(box.log)


def test_the_operators_identity_never_follows_links(box: Sandbox, tmp_path: Path):
    project = make_project(tmp_path / "project", by_the_addon(WALSH) + snippet(DOC, "follow"))
    done = run_scrapy(project, box, "crawl", "quotes")
    assert done.returncode == 1
    assert "WALSH_FOLLOW_LINKS is True" in done.stdout
    assert box.log == []
