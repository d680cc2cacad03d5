"""R11: the mark of a run that could not write what it had to keep, for the runs after it.

A full disk takes no new file, so an empty one is made when the store is opened; to rename it
needs no space.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from scrapy_walsh.state import files

if TYPE_CHECKING:
    from pathlib import Path

READY: Final = "state.ok"
LOST: Final = "state.lost"
#: Seconds for which every run is told of it, since several may begin side by side; a later one
#: is told if it is the first.
_KEPT: Final = 3600.0


def leave(directory: Path) -> None:
    """Mark *directory*, where that is possible at all."""
    with files.exclusive(directory):
        with suppress(OSError):
            (directory / READY).rename(directory / LOST)
        with suppress(OSError):
            (directory / LOST).touch(mode=0o600)


def found(directory: Path) -> bool:
    """Whether *directory* is marked; it is made ready for the next mark."""
    mark, ready = directory / LOST, directory / READY
    with files.exclusive(directory):
        try:
            age = time.time() - mark.stat().st_mtime
        except OSError:
            with suppress(OSError):
                ready.touch(mode=0o600)
            return False
        if not 0 <= age < _KEPT:
            with suppress(OSError):
                mark.rename(ready)
        return True
