"""Writes files whole or not at all: keys, key sets, attestations, records of conformance."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def replace_file(path: Path, data: bytes, mode: int) -> None:
    """Put *data* into *path*, all of it or nothing, with permissions *mode* (less the umask).

    Raises OSError; *path* is then as it was.
    """
    draft = path.with_name(f"{path.name}.{os.getpid()}.part")
    draft.unlink(missing_ok=True)  # left by a killed process that had the same process id
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
    try:
        with os.fdopen(os.open(draft, flags, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make the names in *directory* outlive a power cut, where the system can. OSError."""
    if os.name != "posix":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_to_others(status: os.stat_result, bits: int) -> bool:
    """Whether any of the permissions *bits* is set; False where a system has no permissions."""
    return os.name == "posix" and bool(stat.S_IMODE(status.st_mode) & bits)
