"""What every benchmark of this folder does with its rows: a table, and JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

Row = dict[str, Any]


def show(rows: Iterable[Row], columns: dict[str, str]) -> list[Row]:
    """Print a line for each row as it comes; *columns* maps a key to its format, as ``>10.2f``."""
    widths = {key: max(len(key), int(form[1:].partition(".")[0])) for key, form in columns.items()}
    heads = (f"{key:{columns[key][0]}{width}}" for key, width in widths.items())
    print("  ".join(heads), flush=True)
    shown = []
    for row in rows:
        cells = (_cell(row.get(key), form, widths[key]) for key, form in columns.items())
        print("  ".join(cells), flush=True)
        shown.append(row)
    return shown


def _cell(value: Any, form: str, width: int) -> str:
    text = "-" if value is None else f"{value:{form.lstrip('<>')}}".strip()
    return f"{text:{form[0]}{width}}"


def write(path: Path | None, **content: Any) -> None:
    """Write *content* as JSON to *path*, where one was asked for."""
    if path is not None:
        path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
