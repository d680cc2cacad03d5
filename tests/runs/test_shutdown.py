"""SIGTERM, as ``docker stop`` sends it ten seconds before it kills: a crawl ends within eight."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.proof.sandbox import Route, Sandbox, Site
from tests.crawl.harness import (
    LIST,
    Stopped,
    crawl,
    make_project,
    operator,
    rules,
    site,
    state_dir,
    stop,
    targets,
    verify,
)
from tests.sources.hostile import DOCUMENTS

if TYPE_CHECKING:
    from pathlib import Path

#: Seconds in which the crawl's own part of the end is over.
DEADLINE = 8.0

HANG = Route(behaviour="hang")
DRIP = Route(body="a drop", behaviour="drip")
PAGES = tuple(f"http://slow.test/{n}" for n in range(3))


def asked(path: str) -> Any:
    """Whether the log has a request for *path*."""
    return lambda log: any(each.path == path for each in log)


#: By name: the sites; the path whose request is under way at the signal.
UNDER_WAY: dict[str, tuple[tuple[Site, ...], str]] = {
    "a page that never answers": ((site("slow.test", {"/0": HANG}),), "/0"),
    "a page that never ends": ((site("slow.test", {"/0": DRIP}),), "/0"),
    "a robots.txt that never answers": ((site("slow.test", robots=HANG),), "/robots.txt"),
    "a pause between two pages": ((site("slow.test", robots=rules("Crawl-delay: 60")),), "/0"),
    "a blocklist that never answers": ((operator(HANG), site("slow.test")), LIST),
}


#: A feed that takes its child a minute.
HOSTILE = next(each for each in DOCUMENTS if each.slow)


@pytest.fixture(scope="module", params=UNDER_WAY)
def ended(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A project, and its crawl that was sent SIGTERM; one after another."""
    sites, path = UNDER_WAY[request.param]
    with Sandbox() as box:
        for each in sites:
            box.put(each)
        project = make_project(tmp_path_factory.mktemp("stopped"))
        run = stop(
            project,
            box,
            "crawl",
            "probe",
            "-a",
            f"urls={' '.join(PAGES)}",
            when=asked(path),
            after=1.0,
            by=signal.SIGTERM,
        )
        yield project, run


def test_it_ends_in_time_and_well(ended: tuple[Path, Stopped]) -> None:
    _, run = ended
    assert run.returncode == 0, run.output
    assert run.closed < DEADLINE
    assert run.stats["finish_reason"] == "shutdown"
    assert "walsh: stopped (shutdown): " in run.output
    assert "Traceback" not in run.output
    assert not run.lines(" ERROR"), run.output


def test_nothing_new_is_sent(ended: tuple[Path, Stopped]) -> None:
    _, run = ended
    assert len(targets(run.log, "slow.test")) <= 1


def test_its_ledger_is_whole(ended: tuple[Path, Stopped]) -> None:
    project, _ = ended
    code, printed = verify(state_dir(project))
    assert code == 0, printed


def test_a_child_that_the_stop_ended_is_no_fault(tmp_path: Path) -> None:
    feed = Route(body=HOSTILE.body(), content_type=HOSTILE.content_type)
    with Sandbox() as box:
        box.put(site("slow.test", {"/feed": feed}))
        project = make_project(tmp_path, settings={"SPIDER_MODULES": ["scrapy_walsh.spiders"]})
        words = ("crawl", "walsh_metadata", "-a", "urls=http://slow.test/feed")
        run = stop(project, box, *words, when=asked("/feed"), after=2.0, by=signal.SIGTERM)
    assert run.returncode == 0, run.output
    assert run.closed < DEADLINE
    assert "the run was stopped while it was read" in run.output
    assert "Traceback" not in run.output
    assert not run.lines(" ERROR"), run.output


def test_what_was_broken_off_is_in_the_jobdir(tmp_path: Path) -> None:
    with Sandbox() as box:
        box.put(site("slow.test", {"/0": HANG}))
        project = make_project(tmp_path)
        words = ("crawl", "probe", "-a", f"urls={' '.join(PAGES)}", "-s", "JOBDIR=job")
        stop(project, box, *words, when=asked("/0"), after=1.0, by=signal.SIGTERM)
        box.put(site("slow.test"))
        again = crawl(project, box, *PAGES, arguments=("-s", "JOBDIR=job"))
    assert sorted(again.targets("slow.test")) == ["/0", "/1", "/2"]
    assert again.stats["finish_reason"] == "finished"
