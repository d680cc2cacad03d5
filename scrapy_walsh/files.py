"""Says where files can be made, and by whom they can be changed."""

from __future__ import annotations

import os
import stat
import tempfile
from typing import TYPE_CHECKING

from scrapy_walsh.exceptions import one_line

if TYPE_CHECKING:
    from pathlib import Path


def why_unusable(directory: Path) -> str | None:
    """Why *directory* cannot be made, or nothing be written in it; None where it can.

    A file is made in it, or in the lowest directory above it that exists.
    """
    try:
        there = next(each for each in (directory, *directory.absolute().parents) if each.exists())
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(b"?")
    except OSError as error:
        return one_line(error.strerror or error)
    return None


def open_to_others(status: os.stat_result, bits: int) -> bool:
    """Whether any of the permissions *bits* is set; False where a system has no permissions."""
    return os.name == "posix" and bool(stat.S_IMODE(status.st_mode) & bits)
