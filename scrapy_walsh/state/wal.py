"""R11: whether the log of a SQLite file was cut short, which SQLite itself passes over in silence.

SQLite replays its ``-wal`` up to the first frame that is not whole, and takes the rest for
writes that never ended. The ``-shm`` that a killed process leaves says how many frames it had
committed: when fewer come back, bookings are lost.
"""

from __future__ import annotations

import sqlite3
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

#: Octets of the -wal's header, which changes whenever the log is begun anew, and of each of the
#: two copies of the -shm's, of which the second is written first.
_WAL_HEADER: Final = 32
_SHM_HEADER: Final = 48
#: isInit at offset 12 of the latter and mxFrame at 16, in the machine's order of octets.
_INDEX: Final = struct.Struct("=12x?3xI")


class Log(NamedTuple):
    """The -wal's header, and how many frames were committed under it."""

    header: bytes
    frames: int


def committed(path: Path) -> Log | None:
    """What the log of the database at *path* held when it was last written; None: unknown.

    Only for a process without a connection to it: closing the -shm drops the locks on it that
    the process's connections hold (fcntl(2)).
    """
    header = _read(path, "-wal", _WAL_HEADER)
    index = _read(path, "-shm", 2 * _SHM_HEADER)
    if len(index) < 2 * _SHM_HEADER or index[:_SHM_HEADER] != index[_SHM_HEADER:]:
        return None
    begun, frames = _INDEX.unpack_from(index)
    return Log(header, frames) if begun and frames else None


def was_cut(connection: sqlite3.Connection, path: Path, log: Log) -> bool:
    """Whether fewer frames than *log* came back to *connection*, which has written nothing yet.

    Where another process has begun the log anew in between, fewer are as they should be.
    """
    frames = -1
    with suppress(sqlite3.OperationalError):  # a full disk; the next write will say so
        frames = connection.execute("PRAGMA wal_checkpoint").fetchone()[1]
    return 0 <= frames < log.frames and _read(path, "-wal", _WAL_HEADER) == log.header


def _read(path: Path, suffix: str, size: int) -> bytes:
    try:
        with path.with_name(path.name + suffix).open("rb", buffering=0) as file:
            return file.read(size)
    except OSError:
        return b""
