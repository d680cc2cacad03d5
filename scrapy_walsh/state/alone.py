"""R4, R11: where a system has no file locks, a state directory is one process's at a time.

Processes that share a state directory take turns by fcntl's locks: for its files
(``files.exclusive``), the ledger and the sources under way. On a system without them (Windows) a
crawl has the directory to itself. What shows that is a lock of SQLite's, which has locks on every
system, on an empty database. The system drops it when the process ends, however it ends.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from scrapy_walsh.exceptions import StateError
from scrapy_walsh.state import files

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(slots=True)
class _Lock:
    connection: sqlite3.Connection
    crawls: int = 1


#: By directory, the locks of this process: crawls that run side by side in it share one.
_HELD: Final[dict[Path, _Lock]] = {}


def enter(directory: Path | None) -> None:
    """A crawl of this process begins to use *directory*; None where nothing is kept.

    Raises StateError where another process uses it and the two could not take turns.
    """
    if directory is None or files.HAS_LOCKS:
        return
    if (held := _HELD.get(directory)) is not None:
        held.crawls += 1
        return
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.make_private(directory / files.LOCK)
        connection = sqlite3.connect(
            directory / files.LOCK, timeout=0, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA journal_mode=MEMORY")  # no second file
        connection.execute("BEGIN EXCLUSIVE")
    except (OSError, sqlite3.Error) as error:
        raise StateError(_refusal(directory, error)) from error
    _HELD[directory] = _Lock(connection)


def leave(directory: Path | None) -> None:
    """A crawl that has entered *directory* uses it no longer."""
    held = None if directory is None else _HELD.get(directory)
    if directory is None or held is None:
        return
    held.crawls -= 1
    if not held.crawls:
        del _HELD[directory]
        with suppress(sqlite3.Error):
            held.connection.close()


def _refusal(directory: Path, error: Exception) -> str:
    if getattr(error, "sqlite_errorname", "") == "SQLITE_BUSY":
        return (
            f"{directory} is in use by another process, and this system has no file locks by which "
            "the two could take turns: let that one end, or set another WALSH_STATE_DIR"
        )
    return (
        f"{directory} cannot be locked, and this system has no other locks: {error}; set another "
        "WALSH_STATE_DIR"
    )
