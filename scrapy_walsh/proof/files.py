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
    less the umask. A path that is no file, such as ``/dev/stdout``, is written to. Raises OSError,
    which names *path*.
    """
    try:
        target = path.resolve()
        if target.exists() and not target.is_file():
            target.write_bytes(data)
        else:
            _replace(target, data, mode)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _replace(path: Path, data: bytes, mode: int | None) -> None:
    draft = path.with_name(f"{path.name}.{os.getpid()}.part")
    draft.unlink(missing_ok=True)  # left by a killed process that had the same process id
    new_mode = 0o666 if mode is None else mode
    try:
        with open(
            draft,
            "xb",
            opener=lambda name, flags: os.open(name, flags, new_mode),
        ) as file:
            if mode is None and path.exists():
                draft.chmod(stat.S_IMODE(path.stat().st_mode))
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    if os.name == "posix":  # the name in the directory is to outlive a power cut as well
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
