"""R3, D3: a long list, in real crawls: every way by which one comes into force."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.ledger import FILE
from scrapy_walsh.ledger.files import DOCUMENTS, Bodies, parse_line
from scrapy_walsh.proof.sandbox import Route, Sandbox
from scrapy_walsh.state import open_store
from scrapy_walsh.state.files import COPY, SECOND
from scrapy_walsh.state.records import StoredDocument
from tests.crawl.harness import (
    ONCE,
    OPERATOR,
    SCHEMA,
    Crawl,
    age_document,
    crawl,
    listing,
    make_project,
    operator,
    served,
    state_dir,
)

if TYPE_CHECKING:
    from pathlib import Path

KEY = f"{OPERATOR}/blocklist.json"
BLOCKED = "http://www.blocked.test/x"
MANY = tuple(f"shop{number}.example.test" for number in range(6_500))
FIRST = listing(*MANY, "blocked.test", "lifted.test", refresh="PT2H")
SECOND_LIST = listing(*MANY, "blocked.test", refresh="PT2H")


class Runs:
    """One project: first fetch, from the store, 304, another list, one that is damaged."""

    def __init__(self, directory: Path) -> None:
        self.project = make_project(directory, settings=ONCE)
        with Sandbox() as box:
            box.put(operator(Route(**{**vars_of(FIRST), "etag": '"1"'})))
            self.first = crawl(self.project, box, BLOCKED)
            self.again = crawl(self.project, box, BLOCKED)
            age_document(self.project, "blocklist", KEY)
            self.unchanged = crawl(self.project, box, BLOCKED)
            self.fresh = crawl(self.project, box, BLOCKED)
            age_document(self.project, "blocklist", KEY)
            box.put(operator(SECOND_LIST))
            self.other = crawl(self.project, box, BLOCKED, "http://lifted.test/x")
            (state_dir(self.project) / COPY).write_bytes(b"damaged")
            self.healed = crawl(self.project, box, BLOCKED)


def vars_of(route: Route) -> dict[str, object]:
    return {"body": route.body, "content_type": route.content_type}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("large"))


def refused(run: Crawl) -> bool:
    return "R3 blocked_operator" in run.why(BLOCKED) and not run.targets("www.blocked.test")


def test_r3_2_a_large_list_is_in_force_in_every_run(runs: Runs) -> None:
    every = (runs.first, runs.again, runs.unchanged, runs.fresh, runs.other, runs.healed)
    assert all(map(refused, every))
    assert [len(run.asked("operator.test")) for run in every] == [1, 0, 1, 0, 1, 0]
    assert not any("Traceback" in run.output for run in every)


def test_a_large_list_that_is_still_the_same_is_held_anew(runs: Runs) -> None:
    (asked,) = runs.unchanged.requests("operator.test")
    assert (asked.values("If-None-Match"), asked.status) == (['"1"'], 304)


def test_bd_14_what_a_large_list_lifts_is_said(runs: Runs) -> None:
    assert runs.other.lines("WARNING", "lifted the opt-out of: lifted.test")
    assert runs.other.targets("lifted.test") == ["/x"]


def test_d3_a_large_list_is_kept_twice_with_its_refresh(runs: Runs) -> None:
    directory = state_dir(runs.project)
    assert (directory / COPY).read_bytes() == (directory / SECOND).read_bytes()
    store = open_store(directory)
    held = store.get(StoredDocument, "blocklist", KEY)
    store.close()
    assert held is not None
    assert (held.refresh, held.status) == (7200.0, 200)
    assert held.body == SECOND_LIST.content


def test_the_ledger_has_every_large_list_that_it_names(runs: Runs) -> None:
    directory = state_dir(runs.project)
    lines = [parse_line(line) for line in (directory / FILE).read_bytes().splitlines()]
    named = [line["digest"] for line in lines if line.get("url") == KEY and line.get("digest")]
    assert set(named) == {hashlib.sha256(each.content).hexdigest() for each in (FIRST, SECOND_LIST)}
    kept = Bodies(directory / DOCUMENTS)
    assert {kept.get(digest) for digest in named} == {FIRST.content, SECOND_LIST.content}


def test_r3_7_a_large_list_without_a_schema_asks_for_the_other_one(tmp_path: Path) -> None:
    body = FIRST.content.replace(b'"schema":', b'"no-schema":')
    bare = Route(body=body, content_type="application/json")
    project = make_project(tmp_path / "project", settings=ONCE)
    with Sandbox() as box:
        box.put(operator(bare, **{SCHEMA: served({"type": "object"})}))
        run = crawl(project, box, BLOCKED)
        again = crawl(project, box, BLOCKED)
    assert run.asked("operator.test")[-1] == SCHEMA
    assert refused(run)
    assert refused(again)
