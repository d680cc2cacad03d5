"""Every question to the servers' log and to the state directory, by the rule that it is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.year import growth, manners
from tests.year.due import Account
from tests.year.log import Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.year.log import Book


def whole_runs(book: Book) -> Iterator[Violation]:
    """A run that nobody killed ends by itself, without a traceback."""
    for ran in book.runs:
        yield from (Violation("runs", f"run {ran.number}: {each}") for each in ran.trouble)


QUESTIONS: tuple[Callable[[Book], Iterable[Violation]], ...] = (
    whole_runs,
    manners.identity,
    manners.one_at_a_time,
    manners.robots_first,
    manners.opt_outs,
    manners.listed,
    manners.retry_after,
    manners.attempts,
    manners.refusals,
    manners.validators,
    manners.spacing,
    lambda book: Account(book).violations(),
    growth.rows,
    growth.octets,
    growth.startup,
)


def judge(book: Book) -> list[Violation]:
    """Everything that broke a promise."""
    return [found for question in QUESTIONS for found in question(book)]
