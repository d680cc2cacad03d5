"""The output of commands: tables with width and colours on a terminal, by rich; lines, and their
end.

Piped, a table is plain text: a line for each row, as wide as it needs to be, without colours. On a
terminal cells are folded within their columns, so that a row fits the width, and the words of an
outcome have colours, unless NO_COLOR is set (no-color.org)::

    for line in table([("FAIL", "R1", "settings: ...")], least=(6, 5)):
        print(line)
"""

from __future__ import annotations

import io
import os
import shutil
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal

from scrapy_walsh.exceptions import visible
from scrapy_walsh.policy.times import duration
from scrapy_walsh.terminal import columns, local, shown

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

#: The colour of a cell with one of these words, in this case of letters.
_COLOURS: Final = {
    **dict.fromkeys(("FAIL", "[FAIL]", "broken", "refused", "failed", "rejected"), "red"),
    **dict.fromkeys(
        ("warn", "[NOT SEEN]", "not seen", "unseen", "deferred", "stale"),
        "yellow",
    ),
    **dict.fromkeys(("left out", "left out: HTML only"), "yellow"),
    **dict.fromkeys(("ok", "[PASS]", "held", "fresh", "unchanged"), "green"),
    **dict.fromkeys(("read: feed", "read: markdown", "read: llms.txt", "read: sitemap"), "green"),
}
#: Columns of a terminal that is too narrow for tables: it folds their plain lines itself.
_NARROW: Final = 60
#: Spiders that a line names; of more it has the number.
NAMED: Final = 5


def named(names: Iterable[str], total: int, most: int | None = NAMED) -> str:
    """The *names* of some of *total* spiders, or their number if there are more than *most*.

    All are named if *most* is None.
    """
    names = sorted(names)
    if most is None or len(names) <= most:
        return ", ".join(names)
    return f"{len(names)} of {total} spiders; -v names them"


def when(due: float, now: float) -> str:
    """A due time, and how far off it is."""
    if due <= now:
        return "now"
    return f"{local(due)} (in {duration(round(due - now))})"


def due_at(moment: str) -> float:
    """Unix seconds of a ``next_due``, as JSON has it."""
    return datetime.fromisoformat(moment).timestamp()


def table(
    rows: Iterable[Sequence[str]],
    *,
    headings: Sequence[str] = (),
    least: Sequence[int] = (),
    right: Container[int] = (),
    indent: int = 0,
    gap: int = 2,
) -> Iterator[str]:
    """*rows* below *headings*, as lines for stdout; as :func:`columns` if it is no terminal."""
    # Before cells are folded: half of a query would not be recognised.
    all_rows = [tuple(map(shown, row)) for row in ([headings] if headings else []) + [*rows]]
    if not all_rows:
        return
    room = shutil.get_terminal_size().columns
    if sys.stdout is None or not sys.stdout.isatty() or room < _NARROW:
        yield from columns(all_rows, least=least, right=right, indent=indent, gap=gap)
        return
    from rich.console import Console  # noqa: PLC0415  slow, and for terminals alone
    from rich.padding import Padding  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    grid = Table.grid(padding=(0, gap, 0, 0))
    for at in range(len(all_rows[0])):
        side: Literal["left", "right"] = "right" if at in right else "left"
        width = least[at] if at < len(least) else None
        grid.add_column(min_width=width, justify=side, overflow="fold")
    for number, row in enumerate(all_rows):
        style = "bold" if headings and not number else ""
        grid.add_row(
            *(Text(visible(cell), _COLOURS.get(cell, "")) for cell in row),
            style=style,
        )
    console = Console(
        file=io.StringIO(),
        width=room,
        force_terminal=True,
        color_system=None if os.environ.get("NO_COLOR") else "standard",
    )
    with console.capture() as captured:
        console.print(Padding(grid, (0, 0, 0, indent)))
    yield from (line.rstrip() for line in captured.get().splitlines())


def encodable(text: str) -> str:
    """*text* as it may be shown, and as stdout can write it, whatever its encoding."""
    text = shown(text)
    encoding = (sys.stdout and sys.stdout.encoding) or "ascii"  # None if it was closed
    return text.encode(encoding, "backslashreplace").decode(encoding)


def show(lines: Iterable[str]) -> None:
    """Print *lines*, each at once, because a person who waits wants to see the progress.

    If the reader has seen enough, for example ``head -1``, the output ends; the command goes on,
    and its exit code stays.
    """
    for line in lines:
        try:
            print(encodable(line), flush=True)
        except BrokenPipeError:
            show_no_more()
            break


def show_no_more() -> None:
    """Write what is left for stdout to nowhere, else Python would fail at its exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
