"""What every benchmark of this folder does with its rows: a table, and JSON."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

Row = dict[str, Any]


def show(rows: Iterable[Row], columns: dict[str, str]) -> list[Row]:
    """Print a line for each row as it comes; *columns* maps a key to its format, as ``>10.2f``."""
    print("  ".join(_cell(key, "", _frame(key, form)) for key, form in columns.items()), flush=True)
    shown = []
    for row in rows:
        cells = (_cell(row.get(key), form, _frame(key, form)) for key, form in columns.items())
        print("  ".join(cells), flush=True)
        shown.append(row)
    return shown


def _frame(key: str, form: str) -> str:
    """Alignment and width of a column."""
    width = re.match(r"([<>])(\d+)", form)
    assert width is not None, f"{form!r} has no width"
    return f"{width[1]}{max(len(key), int(width[2]))}"


def _cell(value: Any, form: str, frame: str) -> str:
    text = "-" if value is None else format(value, form).strip()
    return format(text, frame)


def write(path: Path | None, **content: Any) -> None:
    """Write *content* as JSON to *path*, where one was asked for."""
    if path is not None:
        path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
