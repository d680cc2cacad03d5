"""Checks whether a directory is writable, and whether other users may change a file."""

from __future__ import annotations

import os
import stat
import tempfile
from typing import TYPE_CHECKING

from scrapy_walsh.exceptions import one_line

if TYPE_CHECKING:
    from pathlib import Path


def why_unusable(directory: Path) -> str | None:
    """Return the reason if *directory* cannot be created or written, else None.

    The check creates a temporary file there, or in the closest parent directory that exists.
    """
    try:
        existing = next(
            path for path in (directory, *directory.absolute().parents) if path.exists()
        )
        with tempfile.TemporaryFile(dir=existing) as file:
            file.write(b"?")
    except OSError as error:
        return one_line(error.strerror or error)
    return None


def open_to_others(status: os.stat_result, bits: int) -> bool:
    """Whether any of the permissions *bits* is set; False if the system has no permissions."""
    return os.name == "posix" and bool(stat.S_IMODE(status.st_mode) & bits)
