"""R3b, D3: a list that was held stays in force whatever fails, or nothing is requested at all."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.proof.sandbox import Request, Route, Sandbox, hosts
from scrapy_walsh.state.files import COPIES, COPY
from tests.crawl.harness import (
    FAR_OFF,
    LIST,
    LIST_SPIDER,
    ONCE,
    OPERATOR,
    Crawl,
    age_document,
    crawl,
    forget_pacing,
    listing,
    make_project,
    operator,
    site,
    state_dir,
    verify,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KEY = f"{OPERATOR}/blocklist.json"
BLOCKED, FREE = "http://www.blocked.test/x", "http://free.test/x"
MANY = tuple(f"shop{number}.example.test" for number in range(6_500))
BIG, SMALL = listing(*MANY, "blocked.test"), listing("blocked.test")
NO_CHILD = f"""
import sys
sys.executable = "/nowhere/python"
{LIST_SPIDER}
"""
#: Attempts to get the list follow at once, so that they are soon used up.
SOON = {"WALSH_BACKOFF_BASE": 0.001, "WALSH_BACKOFF_CAP": 0.001}
#: And are two, where their number is not the point: each takes a second (R4).
TWICE = {**SOON, "WALSH_MAX_RETRIES": 1}


def found_by_verify(project: Path) -> list[str]:
    """All but that the back-off of these tests is quicker than R5 allows."""
    _, printed = verify(state_dir(project), "--json")
    found = [each["text"] for each in json.loads(printed)["findings"]]
    return [text for text in found if not text.startswith("backoff_")]


@pytest.fixture(scope="module")
def adopted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The state that a first run leaves in which that list was adopted."""
    found = {}
    with Sandbox() as box:
        for name, listed in (("small", SMALL), ("big", BIG)):
            project = make_project(tmp_path_factory.mktemp(name), settings=ONCE)
            box.put(operator(listed))
            assert refused(crawl(project, box, BLOCKED))
            forget_pacing(project)
            found[name] = state_dir(project)
    return found


@pytest.fixture
def held(adopted: dict[str, Path], tmp_path: Path) -> Callable[..., Path]:
    """Makes a project in whose first run a list was adopted: "small", or "big"."""

    def _held(name: str, **settings: Any) -> Path:
        project = make_project(tmp_path / "project", settings=settings or ONCE)
        shutil.copytree(adopted[name], state_dir(project))
        return project

    return _held


def again(project: Path, answer: Any, *urls: str) -> Crawl:
    with Sandbox() as box:
        box.put(operator(answer))
        return crawl(project, box, *(urls or (BLOCKED, FREE)))


def refused(run: Crawl) -> bool:
    return "R3 blocked_operator" in run.why(BLOCKED) and not run.targets("www.blocked.test")


def zeroed(path: Path) -> None:
    path.write_bytes(bytes(2**19))


def grown(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x" * 2**18)


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(3 << 30)


def gone(path: Path) -> None:
    path.unlink()


# -- the child that validates -------------------------------------------------------------


@pytest.mark.parametrize("listed", [SMALL, BIG])
def test_a_list_with_a_plain_schema_needs_no_child(tmp_path: Path, listed: Route) -> None:
    project = make_project(tmp_path / "project", settings=ONCE)
    (project / "spiders.py").write_text(NO_CHILD)
    run = again(project, listed)
    assert refused(run)
    assert run.targets("free.test") == ["/x"]
    assert run.returncode == 0


def test_a_list_that_nobody_can_validate_is_not_known_because_of_us(tmp_path: Path) -> None:
    """It is not taken for a list that was never held: nothing is requested, and exit 1."""
    wild = listing("blocked.test", schema={"allOf": [{"type": "object"}]})
    project = make_project(tmp_path / "project", settings=SOON)
    (project / "spiders.py").write_text(NO_CHILD)
    run = again(project, wild)
    assert set(hosts(run.log)) == {"operator.test"}
    assert run.returncode == 1
    assert run.lines("ERROR", "cannot be started", "'/nowhere/python'")
    assert "no blocklist loaded yet" not in run.output
    assert "Traceback" not in run.output
    (project / "spiders.py").write_text(LIST_SPIDER)
    run = again(project, wild)
    assert refused(run)
    assert run.targets("free.test") == ["/x"]
    assert run.returncode == 0


@pytest.mark.parametrize("answer", [SMALL, BIG, Route(404)])
def test_r3_5_a_large_list_is_in_force_though_no_child_answers(
    held: Callable[..., Path], answer: Route
) -> None:
    project = held("big")
    age_document(project, "blocklist", KEY)
    (project / "spiders.py").write_text(NO_CHILD)
    run = again(project, answer)
    assert refused(run)
    assert run.targets("free.test") == ["/x"]
    assert not run.lines("is damaged")
    assert "no blocklist loaded yet" not in run.output
    assert "Traceback" not in run.output


@pytest.mark.parametrize("damage", [zeroed, grown, huge])
def test_r3_5_a_small_list_is_in_force_beside_a_copy_of_any_size(
    held: Callable[..., Path], damage: Callable[[Path], None]
) -> None:
    project = held("small")
    (project / "spiders.py").write_text(NO_CHILD)
    damage(state_dir(project) / COPY)
    run = again(project, Route(404))
    assert refused(run)
    assert run.targets("free.test") == ["/x"]
    assert len(run.lines("ERROR", COPY, "was damaged", "set aside")) == 1


def test_d3_a_list_held_need_not_pass_a_later_schema(tmp_path: Path) -> None:
    """It was validated when it was adopted: a schema that came since is for newer lists."""
    bare = listing("blocked.test")
    bare = Route(body=bare.content.replace(b'"schema":', b'"no-schema":'))
    project = make_project(tmp_path / "project", settings=ONCE)
    with Sandbox() as box:
        box.put(operator(bare, **{f"{LIST[:-5]}.schema.json": Route(body=b"{}")}))
        assert refused(crawl(project, box, BLOCKED))
        box.put(operator(bare, **{f"{LIST[:-5]}.schema.json": Route(body=b'{"type": "array"}')}))
        age_document(project, "blocklist", KEY)
        age_document(project, "schema", KEY.replace(".json", ".schema.json"))
        assert refused(crawl(project, box, BLOCKED))
        run = crawl(project, box, BLOCKED)
    assert refused(run)
    assert found_by_verify(project) == []


# -- held, and unreadable -----------------------------------------------------------------


def stands_still(run: Crawl, *urls: str) -> None:
    """Nothing but the operator was asked, and each target is left for a later run."""
    assert set(hosts(run.log)) == {"operator.test"}
    for url in urls or (BLOCKED, FREE):
        assert "R3 deferred" in run.why(url)
    assert run.returncode == 1, "an error on our side makes the run fail"
    # The last line of the log points to the ERROR line, and names the cause again.
    assert len(run.lines("ERROR: the stored blocklist cannot be read", KEY)) == 1
    assert run.stats["walsh/deferred"] == 2


@pytest.mark.parametrize("damage", [zeroed, gone])
def test_d3_where_a_large_list_cannot_be_read_everything_is_deferred(
    held: Callable[..., Path], damage: Callable[[Path], None]
) -> None:
    project = held("big", **TWICE)
    for name in COPIES:
        damage(state_dir(project) / name)
    for _ in range(2):
        stands_still(again(project, Route(404)))
    run = again(project, BIG)
    assert refused(run)
    assert run.targets("free.test") == ["/x"]
    assert found_by_verify(project) == []


def test_d3_where_database_and_copies_are_damaged_everything_is_deferred(
    held: Callable[..., Path],
) -> None:
    project = held("small", **TWICE)
    # The ledger's documents are a third copy, and an older state is brought up to date by them.
    for name in (*COPIES, "state.sqlite3", "ledger-documents.sqlite"):
        zeroed(state_dir(project) / name)
    for _ in range(2):
        stands_still(again(project, Route(404)))
    run = again(project, SMALL)
    assert refused(run)
    assert run.targets("free.test") == ["/x"]


# -- never held: WALSH_BLOCKLIST_UNREACHABLE ----------------------------------------------


def first(directory: Path, answer: Any, *urls: str, **settings: Any) -> tuple[Path, Crawl]:
    project = make_project(directory, settings={**SOON, **settings})
    with Sandbox() as box:
        box.put(operator(answer))
        box.put(site("free.test"))
        return project, crawl(project, box, *(urls or (BLOCKED, FREE)))


def test_r3_10_by_default_the_crawl_goes_on_and_says_so(tmp_path: Path) -> None:
    _, run = first(tmp_path / "project", Route(404), **FAR_OFF)
    assert run.targets("free.test") == run.targets("www.blocked.test") == ["/x"]
    assert run.lines("WARNING", "no blocklist loaded yet")


@pytest.mark.parametrize(
    ("position", "verdict"), [("defer", "R3 deferred"), ("deny", "R3 unknown_blocklist")]
)
def test_without_a_list_nothing_is_requested(tmp_path: Path, position: str, verdict: str) -> None:
    project, run = first(tmp_path / "project", Route(404), WALSH_BLOCKLIST_UNREACHABLE=position)
    assert set(hosts(run.log)) == {"operator.test"}
    assert run.asked("operator.test") == [LIST] * 6, "one attempt, and R5's five retries"
    for url in (BLOCKED, FREE):
        assert verdict in run.why(url)
        assert f"WALSH_BLOCKLIST_UNREACHABLE is {position}" in run.why(url)
    name = "deferred" if position == "defer" else "refused"
    assert run.stats[f"walsh/{name}"] == 2
    assert "walsh/robots/allow_rate" not in run.stats
    assert found_by_verify(project) == []


@pytest.mark.parametrize("position", ["defer", "deny"])
def test_targets_wait_for_a_list_that_comes_late(tmp_path: Path, position: str) -> None:
    def late(request: Request) -> Route:
        asked = sum(each.path == LIST for each in request.log)
        return SMALL if asked > 2 else Route(503)

    project, run = first(tmp_path / "project", late, WALSH_BLOCKLIST_UNREACHABLE=position)
    third = run.requests("operator.test")[2]
    assert third.completed is not None
    assert refused(run)
    assert run.targets("free.test") == ["/x"]
    assert min(each.arrived for each in run.requests("free.test")) > third.completed
    assert found_by_verify(project) == []


def test_a_retry_after_beyond_patience_is_not_waited_for(tmp_path: Path) -> None:
    busy = Route(503, headers={"Retry-After": "900"})
    _, run = first(tmp_path / "project", busy, WALSH_BLOCKLIST_UNREACHABLE="defer")
    assert run.asked("operator.test") == [LIST]
    assert set(hosts(run.log)) == {"operator.test"}
    assert "R3 deferred" in run.why(FREE)
