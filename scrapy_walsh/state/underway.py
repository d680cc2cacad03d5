"""R4, R8, R11: who else runs here: the sources that processes on this machine request right now.

A source is on record once its spider has taken the answer. Until then the record says nothing, and
a run that overlaps would send the source as well: while a slow answer comes, and while a redirect
waits for the host that it leads to. So the process that sends a source has a lock for it, one byte
of a file in the state directory. The system drops the locks of a process that ends, however it
ends: after a kill the next run sends the source again.

The locks are of the process (fcntl(2)): two crawls in one process do not exclude each other, and
the end of one drops the locks of both. A process sends one request at a time.

A library's lock (``files.lock``) is of a whole file. It cannot take this one's place: there would
be a file, and an open one, for each source whose redirect waits. Where a system has no locks of
bytes (Windows) one process at a time uses a state directory, and that lock is the library's.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any, Final

from scrapy_walsh.exceptions import StateError
from scrapy_walsh.state import files

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from pathlib import Path

FILE: Final = "sources.lock"
#: The lock of the one process, where there can be only one.
ALONE: Final = "run.lock"
#: By directory, that lock, and how many crawls of this process share it.
_HELD: Final[dict[Path, tuple[IO[Any], int]]] = {}


def enter(directory: Path | None) -> None:
    """A crawl of this process begins to use *directory*; None where nothing is kept.

    Raises StateError where another process uses it and the two could not take turns.
    """
    if directory is None or fcntl is not None:
        return
    held, crawls = _HELD.get(directory, (None, 0))
    try:
        if held is None:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            held = files.private(directory / ALONE, "ab")
            if not files.lock(held, wait=False):
                held.close()
                raise StateError(
                    f"{directory} is in use by another process, and this system has no file locks "
                    "by which the two could take turns: let that one end, or set another "
                    "WALSH_STATE_DIR"
                )
    except StateError:
        raise
    except OSError as error:
        raise StateError(
            f"{directory} cannot be locked: {error}; set another WALSH_STATE_DIR"
        ) from error
    _HELD[directory] = held, crawls + 1


def leave(directory: Path | None) -> None:
    """A crawl that has entered *directory* uses it no longer."""
    if directory is None or directory not in _HELD:
        return
    held, crawls = _HELD.pop(directory)
    if crawls > 1:
        _HELD[directory] = held, crawls - 1
    else:
        held.close()


class UnderWay:
    """The locks of one crawl; *directory*: the state directory, None where nothing is kept.

    Where locks cannot be had, every source is free.
    """

    def __init__(self, directory: Path | None) -> None:
        self._path = None if directory is None or fcntl is None else directory / FILE
        self._file: int | None = None
        self._held: set[str] = set()

    def take(self, key: str) -> bool:
        """Whether no other process is requesting the source *key*; from now on this one is."""
        if key in self._held or self._path is None:
            return True
        try:
            if self._file is None:
                self._file = files.open_private(self._path, os.O_RDWR | os.O_CREAT)
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _place(key))
        except (BlockingIOError, PermissionError):  # what lockf raises for a lock that is held
            return False
        except OSError:
            return True
        self._held.add(key)
        return True

    def drop(self, key: str) -> None:
        """This process requests *key* no longer."""
        if key in self._held and self._file is not None:
            self._held.remove(key)
            with suppress(OSError):
                fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _place(key))

    def close(self) -> None:
        """Drop all locks."""
        self._held.clear()
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _place(key: str) -> int:
    """The byte for *key*, out of 2**56: two sources hardly ever share one."""
    return int.from_bytes(hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()[:7])
