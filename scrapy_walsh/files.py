"""Writes the files that a command is asked for, whole or not at all; says where none can be."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from scrapy_walsh.exceptions import StateError
from scrapy_walsh.policy.words import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator


def replace_file(path: Path, data: bytes, mode: int | None = None) -> None:
    """Put *data* into *path*, all of it or nothing, as :func:`replacing` does. Raises OSError."""
    with replacing(path, mode) as file:
        file.write(data)


@contextmanager
def replacing(path: Path, mode: int | None = None) -> Iterator[BinaryIO]:
    """A file to write, which takes the place of *path* at the end; not where an error ends it.

    *mode*: its permissions, less the umask; None: those that *path* had, and for a new file 0666
    less the umask. What is there and not a file, such as ``/dev/stdout``, is written to. Raises
    OSError, which names *path*; StateError is left as it is.
    """
    try:
        target = path.resolve()
        there = target.stat() if target.exists() else None
        if there is not None and not stat.S_ISREG(there.st_mode):
            with target.open("wb") as file:
                yield file
            return
        with _draft(target, 0o666 if mode is None else mode) as file:
            if there is not None and mode is None:
                Path(file.name).chmod(stat.S_IMODE(there.st_mode))
            yield file
    except StateError:  # of what is read meanwhile
        raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextmanager
def _draft(path: Path, mode: int) -> Iterator[BinaryIO]:
    draft = path.with_name(f"{path.name}.{os.getpid()}.part")
    draft.unlink(missing_ok=True)  # left by a killed process that had the same process id
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
    try:
        with open(draft, "wb", opener=lambda name, _: os.open(name, flags, mode)) as file:
            yield file
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


def why_unusable(directory: Path) -> str | None:
    """Why *directory* cannot be made, or nothing be written in it; None where it can."""
    try:
        written_to(directory)
    except OSError as error:
        return one_line(error.strerror or error)
    return None


def written_to(directory: Path) -> Path:
    """*directory*, or the lowest directory above it that exists. OSError if it takes no file."""
    there = next(each for each in (directory, *directory.absolute().parents) if each.exists())
    with tempfile.TemporaryFile(dir=there) as file:
        file.write(b"?")
    return there


def open_to_others(status: os.stat_result, bits: int) -> bool:
    """Whether any of the permissions *bits* is set; False where a system has no permissions."""
    return os.name == "posix" and bool(stat.S_IMODE(status.st_mode) & bits)
