"""R11: what an earlier version left behind is gone on with by the version of today.

No version was published yet, so the data is of today's version: this is the frame. The first
version that changes what is written keeps ``data/`` as it is and makes these tests pass.
"""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.proof.sandbox import Route
from scrapy_walsh.state.records import FLEET_EPOCHS, TABLES
from scrapy_walsh.state.store import SqliteStore
from tests.crawl.harness import DAILY, LIST, SCHEMA, Crawl, Runs, daily_sites
from tests.upgrade.make_data import END

if TYPE_CHECKING:
    from collections.abc import Iterator

DATA = Path(__file__).parent / "data"


def copy(name: str, target: Path) -> Path:
    """A copy of folder *name* of the data at *target*."""
    shutil.copytree(DATA / name, target)
    for packed in target.rglob("*.gz"):
        packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
        packed.unlink()
    return target


def test_r11_every_table_has_its_records(tmp_path: Path) -> None:
    store = SqliteStore(copy("days", tmp_path / "state"))
    try:
        empty = [table.name for table in TABLES if not list(store.rows(table.record))]
        assert empty == [FLEET_EPOCHS.name]  # the job is no worker of a fleet
        assert store.notices == []
        assert not store.rows_lost
    finally:
        store.close()


@pytest.fixture(scope="module")
def taken_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Runs, Crawl]]:
    """A run ten minutes after the last one of the data, without the operator's server."""
    directory = tmp_path_factory.mktemp("taken-up") / "project"
    with Runs(directory, *daily_sites(), settings={"WALSH_MAX_RETRIES": 1}) as made:
        made.state.parent.mkdir(parents=True)
        copy("days", made.state)
        for path in (LIST, SCHEMA):
            made.serve("operator.test", path, Route(behaviour="reset"))
        made.at(END + 600)
        yield made, made(*DAILY)


def test_r3_the_list_of_the_data_refuses(taken_up: tuple[Runs, Crawl]) -> None:
    _, run = taken_up
    assert run.asked("www.optout.test") == []
    assert run.lines("refused", "http://www.optout.test/p", "R3")


def test_r8_r5_r4_what_was_sent_or_held_is_not_due(taken_up: tuple[Runs, Crawl]) -> None:
    _, run = taken_up
    for host in ("page.test", "busy.test", "slow.test", "closed.test"):
        assert run.asked(host) == []


def test_own_verify_takes_the_ledger_and_its_continuation(
    taken_up: tuple[Runs, Crawl],
) -> None:
    made, _ = taken_up
    done = made.command("verify", str(made.state))
    found = [each for each in done.stdout.splitlines() if each.startswith("line ")]
    # The runs of the data backed off more quickly than R5 allows, so that they were made soon.
    assert [each for each in found if ": R5: backoff_base is" not in each] == [], done.stdout
