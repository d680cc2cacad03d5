"""Plain text for the crawl's log and for pipes: columns, local times, and what may be shown."""

from __future__ import annotations

import math
from datetime import datetime
from typing import TYPE_CHECKING, Final

from scrapy_walsh.exceptions import visible
from scrapy_walsh.policy.times import LAST_SECOND
from scrapy_walsh.policy.urls import without_queries

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

#: What this process leaves out of each text that it shows: nothing, unless a member is set.
_LEFT_OUT: Final[set[str]] = set()


def leave_out_queries() -> None:
    """From now on, show no query of a URL in this process (WALSH_LEDGER = "redact").

    It is never undone: a line about an earlier crawl may still come.
    """
    _LEFT_OUT.add("queries")


def leaves_out_queries() -> bool:
    """Whether :func:`leave_out_queries` was called."""
    return bool(_LEFT_OUT)


def shown(text: str) -> str:
    """*text* as it may be shown, in a log, on a terminal, and in a report."""
    return without_queries(text) if _LEFT_OUT else text


def local(seconds: float) -> str:
    """Return Unix *seconds*, rounded up, as a local time in the format of Scrapy's log."""
    moment = datetime.fromtimestamp(min(math.ceil(seconds), LAST_SECOND - 86400))
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def columns(
    rows: Iterable[Sequence[str]],
    *,
    least: Sequence[int] = (),
    right: Container[int] = (),
    indent: int = 0,
    gap: int = 2,
) -> Iterator[str]:
    """Yield *rows* of cells as plain lines; control characters are escaped.

    *least*: minimum widths of the columns. *right*: indexes of the columns to align right.
    """
    lines = [[visible(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    widths[: len(least)] = map(max, widths, least)
    for line in lines:
        cells = [
            cell.rjust(width) if at in right else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        yield (" " * indent + (" " * gap).join(cells)).rstrip()
