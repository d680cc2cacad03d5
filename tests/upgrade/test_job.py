"""A JOBDIR that version 0.1.0 was killed in is gone on with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.proof.sandbox import Sandbox
from tests.pacing.pacing import targets, too_soon
from tests.upgrade import world
from tests.upgrade.kit import copy, ledger, old_rows, project

if TYPE_CHECKING:
    from pathlib import Path

    from tests.crawl.harness import Crawl


class Resumed:
    """``answered``: the sources on record before; ``run``: what today's version then did."""

    def __init__(self, directory: Path, box: Sandbox) -> None:
        made = project(directory, box, None, JOBDIR="state/jobdir", WALSH_STATE_DIR="state")
        state = copy("job", made.directory / "state")
        self.answered = {
            line["url"]
            for line in ledger(state)
            if line["kind"] == "asked" and line["purpose"] == "target"
        }
        self.run: Crawl = made.crawl(arguments=("-a", "empty=1"))
        self.verified = made.command("verify", str(state))
        self.sources = {row["url"] for row in old_rows(state, "sources")}


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> Resumed:
    with Sandbox() as box:
        return Resumed(tmp_path_factory.mktemp("job"), box)


def test_own_an_old_job_is_gone_on_with_and_nothing_is_lost(resumed: Resumed) -> None:
    sent = [f"http://{each.host}{each.path}" for each in targets(resumed.run.log)]
    assert {*sent, *resumed.answered} >= set(world.JOB_PAGES)
    assert len(sent) == len(set(sent)) >= 4
    assert resumed.sources >= set(world.JOB_PAGES)


def test_r6_what_an_old_job_declared_is_in_scope(resumed: Resumed) -> None:
    assert resumed.run.lines("out_of_scope") == []


def test_r4_an_old_job_goes_on_with_its_spacing(resumed: Resumed) -> None:
    assert too_soon(resumed.run.log) == []


def test_own_verify_takes_both_parts_of_an_old_job(resumed: Resumed) -> None:
    assert resumed.verified.returncode == 0, resumed.verified.stdout
