"""The words of the package and of its documentation stay plain.

Readers stumble over some habits of writing: clauses in place of nouns, relative pronouns in chains,
"where" for "if", and local names that do not say what they hold. Each habit is counted in 10,000
words, and has a bound a little above what we reached. A count is no goal: a sentence that is clear
may stay. If a bound is passed, look at the places that the failure names, and rewrite the worst.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

import scrapy_walsh

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PACKAGE: Final = Path(scrapy_walsh.__file__).parent
PAGES: Final = Path(__file__).parents[1]
#: Changes are short of conditions: each line says what is new.
_NOT_COUNTED: Final = frozenset({"CHANGES.md"})


class Habit(NamedTuple):
    """A pattern of prose. ``package``, ``docs``: bounds, hits in 10,000 words."""

    name: str
    pattern: re.Pattern[str]
    package: float
    docs: float


def _habit(name: str, pattern: str, package: float, docs: float) -> Habit:
    return Habit(name, re.compile(pattern), package, docs)


#: At most so many.
AVOIDED: Final = (
    _habit(
        "a clause with 'what' or 'who' as a subject",
        r"(?:^|[.:;] )Wh(?:at|o|om|oever) [a-z]",
        2,
        3,
    ),
    _habit(
        "'of which', 'by which'",
        r"(?i)\b(?:at|by|for|from|in|of|through|to|with) which\b",
        5,
        4,
    ),
    _habit("'whose'", r"(?i)\bwhose\b", 3, 3),
    _habit("'nobody', 'whoever'", r"(?i)\b(?:any|every|no|some)body\b|\bwhoever\b", 1, 2),
    _habit(
        "'that one', 'one that'",
        r"(?i)\b(?:the|that|this|of) one\b|\bone that\b|\bsuch an? one\b",
        5,
        7,
    ),
    _habit("'where', mostly for 'if'", r"(?i)\bwhere\b", 4, 5),
    _habit(
        "'go by', 'is had'",
        r"(?i)\b(?:go|goes|going|gone|went) by\b|\b(?:be|is|was|are) had\b",
        1,
        1,
    ),
)
#: At least so many.
WANTED: Final = (
    _habit("'if', 'when', 'because'", r"(?i)\b(?:if|when|because)\b", 150, 95),
    _habit("'for example', 'such as'", r"(?i)\b(?:for example|for instance|such as)\b", 8, 10),
)

#: Names of locals that do not say what they hold.
VAGUE: Final = frozenset(
    {
        *("after", "again", "asked", "before", "begun", "each", "ended", "first", "follows"),
        *("found", "given", "gone", "held", "kept", "known", "last", "least", "left", "listed"),
        *("made", "missing", "more", "most", "named", "needed", "one", "other", "others", "own"),
        *("ours", "passed", "read", "rest", "said", "seen", "sent", "shown", "taken", "told"),
        *("used", "wanted", "what", "whole", "whose", "why", "written"),
    }
)
#: In 100 locals.
MOST_VAGUE: Final = 1.0


def prose_of_module(text: str) -> Iterator[str]:
    """The docstrings and comments of a module."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, documented) and (doc := ast.get_docstring(node)):
            yield " ".join(doc.split())
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string.lstrip("#: ")


def prose_of_page(text: str) -> Iterator[str]:
    """The lines of a page without its code, tables and targets of links."""
    is_code = False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code and not line.lstrip().startswith("|"):
            yield re.sub(r"\]\([^)]*\)|`[^`]*`", " x ", line)


def package_prose() -> list[tuple[str, str]]:
    """(file, passage) of the package."""
    return [
        (path.relative_to(PACKAGE).as_posix(), passage)
        for path in sorted(PACKAGE.rglob("*.py"))
        for passage in prose_of_module(path.read_text())
    ]


def docs_prose() -> list[tuple[str, str]]:
    """(page, passage) of the documentation."""
    paths = [*sorted(PAGES.glob("*.md")), *sorted((PAGES / "docs").rglob("*.md"))]
    return [
        (path.relative_to(PAGES).as_posix(), passage)
        for path in paths
        if path.name not in _NOT_COUNTED
        for passage in prose_of_page(path.read_text())
    ]


def rate(habit: Habit, prose: Iterable[tuple[str, str]]) -> tuple[float, list[str]]:
    """Hits in 10,000 words, and the passages with a hit, each with its file."""
    words, hits, places = 0, 0, []
    for place, passage in prose:
        words += len(passage.split())
        matches = len(habit.pattern.findall(passage))
        hits += matches
        if matches:
            places.append(f"{place}: {passage[:200]}")
    return hits * 10_000 / max(words, 1), places


def _assigned(function: ast.AST) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def vague_locals(text: str) -> tuple[list[str], int]:
    """The vague locals of a module as ``function: name``, and the number of all its locals."""
    vague, number = [], 0
    for function in ast.walk(ast.parse(text)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            names = set(_assigned(function))
            number += len(names)
            vague += [f"{function.name}: {name}" for name in sorted(names & VAGUE)]
    return vague, number


PROSE: Final = {"package": package_prose, "docs": docs_prose}


@pytest.fixture(scope="module", params=PROSE)
def room(request: pytest.FixtureRequest) -> tuple[str, list[tuple[str, str]]]:
    """The package or the documentation, with its prose."""
    return request.param, PROSE[request.param]()


@pytest.mark.parametrize("habit", AVOIDED, ids=lambda habit: habit.name)
def test_a_habit_does_not_come_back(habit: Habit, room: tuple[str, list[tuple[str, str]]]) -> None:
    name, prose = room
    hits, places = rate(habit, prose)
    assert hits <= getattr(habit, name), "\n".join(places)


@pytest.mark.parametrize("habit", WANTED, ids=lambda habit: habit.name)
def test_conditions_and_examples_are_written_as_such(
    habit: Habit, room: tuple[str, list[tuple[str, str]]]
) -> None:
    name, prose = room
    hits, _ = rate(habit, prose)
    assert hits >= getattr(habit, name)


def test_locals_say_what_they_hold() -> None:
    vague, number = [], 0
    for path in sorted(PACKAGE.rglob("*.py")):
        names, count = vague_locals(path.read_text())
        vague += [f"{path.relative_to(PACKAGE).as_posix()}: {name}" for name in names]
        number += count
    assert 100 * len(vague) / number <= MOST_VAGUE, "\n".join(vague)


@pytest.mark.parametrize(
    ("passage", "habits"),
    [
        ("What it says is kept.", 1),
        ("The host, whose answer nobody reads.", 2),
        ("The record by which we go, where there is one that is had.", 4),
        ("If a host answers, its record is stored.", 0),
    ],
)
def test_the_patterns_match_what_they_name(passage: str, habits: int) -> None:
    matches = [habit.name for habit in AVOIDED if habit.pattern.search(passage)]
    assert len(matches) == habits, matches


def test_code_tables_and_links_of_a_page_are_no_prose() -> None:
    page = "See [where](where.md).\n\n| whose |\n\n```\nwhose\n```\nA `whose` b.\n"
    assert " ".join(prose_of_page(page)).split() == ["See", "[where", "x", ".", "A", "x", "b."]


def test_a_vague_local_is_seen_in_a_comprehension_and_a_loop() -> None:
    text = "def read(rows):\n    for each in rows:\n        told = [kept for kept in each]\n"
    vague, number = vague_locals(text)
    assert vague == ["read: each", "read: kept", "read: told"]
    assert number == 3
