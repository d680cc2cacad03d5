"""Writes the files that a command is asked for, whole or not at all."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def replace_file(path: Path, data: bytes, mode: int | None = None) -> None:
    """Put *data* into *path*, all of it or nothing.

    *mode*: its permissions, less the umask; None: those that it had, and for a new file 0666 less
    the umask. What is there and not a file, such as ``/dev/stdout``, is written to. Raises OSError,
    which names *path*; that is then as it was.
    """
    try:
        target = path.resolve()
        there = target.stat() if target.exists() else None
        if there is not None and not stat.S_ISREG(there.st_mode):
            target.write_bytes(data)
        elif there is not None and mode is None:
            _replace(target, data, 0o600, stat.S_IMODE(there.st_mode))
        else:
            _replace(target, data, 0o666 if mode is None else mode)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _replace(path: Path, data: bytes, mode: int, exactly: int | None = None) -> None:
    """Write a draft and rename it; its permissions are *exactly* these, where that is given."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.part")
    draft.unlink(missing_ok=True)  # left by a killed process that had the same process id
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
    try:
        with os.fdopen(os.open(draft, flags, mode), "wb") as file:
            file.write(data)
            file.flush()
            if exactly is not None:
                draft.chmod(exactly)
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
