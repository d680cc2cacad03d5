"""One crawl of hosts of every kind, and one of sources; each with its sandbox's log and ledger."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.proof.sandbox import Sandbox
from tests.crawl.harness import LIST_SPIDER, crawl, make_project, state_dir

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scrapy_walsh.proof.sandbox import LoggedRequest

URLS = (
    "http://path.test/public",
    "http://path.test/private/x",
    "http://www.blocked.test/x",
    "http://flaky.test/feed.xml",
    "http://long-delay.test/a",
    "http://long-delay.test/b",
    "http://delay.test/a",
    "http://delay.test/b?q=secret",
    "http://broken.test/close",
)
SOURCES = "\n".join(
    ("http://rss.test/feed.xml", "http://flaky.test/feed.xml", "http://path.test/private/notes")
)


@dataclass(frozen=True)
class World:
    """A finished crawl: its project, what the server saw, and the lines of its ledger."""

    project: Path
    log: list[LoggedRequest]
    lines: list[bytes]

    @property
    def ledger(self) -> Path:
        return state_dir(self.project) / "ledger.jsonl"

    def entries(self, kind: str) -> list[dict[str, Any]]:
        found = map(json.loads, self.lines)
        return [entry for entry in found if entry["kind"] == kind]


def world_of(project: Path, log: list[LoggedRequest]) -> World:
    ledger = (state_dir(project) / "ledger.jsonl").read_bytes()
    return World(project, log, ledger.splitlines())


@pytest.fixture(scope="package")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    directory = tmp_path_factory.mktemp("world")
    settings = {"WALSH_MAX_RETRIES": 2}
    with Sandbox() as box:
        project = make_project(directory, LIST_SPIDER, settings)
        done = crawl(project, box, *URLS)
        assert done.returncode == 0, done.output
        return world_of(project, done.log)


@pytest.fixture(scope="package")
def sourced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A run of ``walsh_metadata`` with ``-a report=sources.json``."""
    directory = tmp_path_factory.mktemp("sourced")
    project = make_project(directory, settings={"SPIDER_MODULES": ["scrapy_walsh.spiders"]})
    (project / "sources.txt").write_text(SOURCES)
    arguments = ("-a", "sources=sources.txt", "-a", "report=sources.json")
    with Sandbox() as box:
        done = crawl(project, box, spider_name="walsh_metadata", arguments=arguments)
        assert done.returncode == 0, done.output
        yield world_of(project, box.log)
