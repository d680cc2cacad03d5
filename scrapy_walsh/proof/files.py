"""Writes the files that a command is asked for, whole or not at all."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def replace_file(path: Path, data: bytes, mode: int | None = None) -> None:
    """Put *data* into *path*, all of it or nothing.

    *mode*: its permissions, less the umask; None: those that *path* had, and for a new file 0666
    less the umask. What is there and not a file, such as ``/dev/stdout``, is written to. Raises
    OSError, which names *path*.
    """
    try:
        target = path.resolve()
        there = target.stat() if target.exists() else None
        if there is None or stat.S_ISREG(there.st_mode):
            kept = None if there is None or mode is not None else stat.S_IMODE(there.st_mode)
            _replace(target, data, 0o666 if mode is None else mode, kept)
        else:
            target.write_bytes(data)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _replace(path: Path, data: bytes, mode: int, kept: int | None) -> None:
    """*mode*: of a file that is made, less the umask; *kept*: what it has in the end, if any."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.part")
    draft.unlink(missing_ok=True)  # left by a killed process that had the same process id
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
    try:
        with open(draft, "wb", opener=lambda name, _: os.open(name, flags, mode)) as file:
            if kept is not None:
                draft.chmod(kept)
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
