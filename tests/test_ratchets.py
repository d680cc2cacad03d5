"""The package weighs no more than ``tests/ratchets.md`` allows."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

from tests import ratchets
from tests.ratchets import CACHED, NEW, Bound, Figure, bounds, complaints, lowered, raised

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MEASURED = (
    *(ratchets.weight, ratchets.documentation, ratchets.shape),
    pytest.param(ratchets.tests, marks=pytest.mark.slow),  # it parses half of them
)


@pytest.mark.parametrize("measure", MEASURED, ids=lambda each: each.__name__)
def test_no_figure_is_above_its_bound(measure: Callable[[], dict[str, Figure]]) -> None:
    assert not complaints(measure(), bounds())


@pytest.mark.crawl
def test_a_request_passes_few_files(tmp_path: Path) -> None:
    """From ``start()`` to its callback."""
    found = ratchets.way(tmp_path)
    for what in (NEW, CACHED):
        assert {"adapters/gate.py", "policy/chain.py"} < set(
            found[f"files of {what}"].where.split()
        )
    assert not complaints(found, bounds())


def test_a_bound_above_the_lowest_has_its_reason() -> None:
    assert [each for each in bounds().values() if each.bound < each.lowest] == []
    above = [each for each in bounds().values() if each.bound > each.lowest]
    assert [each.name for each in above if not each.reason] == []


def test_a_figure_above_its_bound_is_said() -> None:
    known = {"moves": Bound("moves", 10, 10, "")}
    assert complaints({"moves": Figure(10)}, known) == []
    (said,) = complaints({"moves": Figure(11, "gate.py")}, known)
    assert "moves: 11 (gate.py) is above its bound, 10: " in said
    (said,) = complaints({"files": Figure(1)}, known)
    assert "files: 1 has no bound" in said


def test_bounds_are_only_lowered() -> None:
    known = {
        "less": Bound("less", 10, 8, "a rule more"),
        "least": Bound("least", 10, 8, "a rule more"),
        "more": Bound("more", 10, 8, "a rule more"),
    }
    assert lowered({"less": Figure(9), "least": Figure(7), "more": Figure(11)}, known) == {
        "less": Bound("less", 9, 8, "a rule more"),
        "least": Bound("least", 7, 7, ""),
        "more": Bound("more", 10, 8, "a rule more"),
    }


def test_a_move_is_a_call_into_another_file() -> None:
    assert ratchets.moves([(file, "f") for file in "aabaa"]) == ["a", "b", "a"]


def test_what_a_timer_calls_in_some_runs_does_not_count() -> None:
    runs = [
        [("a", "f"), ("b", "g"), ("a", "f")],
        [("a", "f"), ("a", "f"), ("c", "timer"), ("b", "g")],
    ]
    assert ratchets.common(runs) == [("a", "f"), ("b", "g"), ("a", "f")]


def test_neither_blank_lines_nor_comments_nor_docstrings_are_code() -> None:
    text = (
        '"""A\n\ndocstring."""\n\n# a comment\nx = """\nof\n"""  # and one\n\n\ndef f():\n    "d"\n'
    )
    assert ratchets.size(text, ast.parse(text)) == ratchets.Size(tokens=8, lines=4)


def test_lines_importers_and_methods_bind_nothing() -> None:
    figures = {name: Figure(10**6) for name in ("lines of code", "methods of a class")}
    assert complaints(figures, {}) == []
    assert lowered(figures, {}) == {}


def test_a_bound_that_is_raised_has_its_reason() -> None:
    known = {"more": Bound("more", 10, 8, "a rule more"), "less": Bound("less", 10, 8, "a rule")}
    assert raised({"more": Figure(11), "less": Figure(9)}, known, "another") == {
        "more": Bound("more", 11, 8, "another; a rule more"),
        "less": known["less"],
    }
