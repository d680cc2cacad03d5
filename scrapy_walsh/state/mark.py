"""R11: the mark by which a run that could not write its records tells later runs so.

It renames the empty file ``state.ok`` to ``state.lost``. That file is made when the store is
opened, because a full disk takes no new file, but lets one be renamed.
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
#: Seconds for which every run that begins finds the mark, since several may begin side by side.
#: The first run after that finds it too, and takes it away.
_KEPT: Final = 3600.0


def leave(directory: Path) -> None:
    """Mark *directory*: records were lost. Nothing happens where even that cannot be written."""
    with files.exclusive(directory):
        with suppress(OSError):
            (directory / READY).rename(directory / LOST)
        with suppress(OSError):
            (directory / LOST).touch(mode=0o600)


def found(directory: Path) -> bool:
    """Whether *directory* is marked. A mark older than ``_KEPT`` is then taken away."""
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
