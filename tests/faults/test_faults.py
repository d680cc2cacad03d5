"""The quick rows of the table, each in its first variant; ``python -m tests.faults`` runs all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.faults import page, table
from tests.faults.judge import ours
from tests.faults.table import TABLE
from tests.faults.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.row import Row

QUICK = [row for row in TABLE if row.quick]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with World() as running:
        yield running


@pytest.mark.parametrize("row", QUICK, ids=lambda row: f"{row.kind}: {row.name}")
def test_no_fault_of_ours_opens_a_gate_or_is_green(world: World, row: Row) -> None:
    if row.needs is not None and not row.needs():
        pytest.skip("needs what is not here")
    found = world.play(row, row.variants[0])
    assert found.passed, "\n".join(
        [found.line(), *(line for ran in found.ran for line in ours(ran))]
    )


def test_the_table_names_each_row_once() -> None:
    names = [(row.kind, row.name) for row in TABLE]
    assert len(set(names)) == len(names) >= 80


def test_what_ci_leaves_out_is_in_the_table() -> None:
    assert {row.name for row in TABLE} >= table.BY_HAND


def test_every_kind_of_fault_is_tried_in_ci_and_is_on_the_page() -> None:
    assert {row.kind for row in QUICK} == {row.kind for row in TABLE}
    said = page.text()
    assert all(page.line(row) in said for row in TABLE if row.kind != "no fault")


def test_the_page_of_faults_is_made_from_the_table() -> None:
    """``python -m tests.faults.page`` writes it anew."""
    assert page.PAGE.read_text() == page.text().rstrip("\n") + "\n"
