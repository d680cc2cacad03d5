"""R11: finds out whether the write-ahead log of a SQLite file was cut off or damaged.

SQLite itself says nothing: it replays the ``-wal`` file up to the first frame that is damaged, and
takes the rest for a transaction that never ended. How much had been committed can be read from the
``-shm`` file that a killed process leaves, and from the frames (sqlite.org/fileformat2, section 4).
If SQLite brings fewer frames back, bookings were lost.
"""

from __future__ import annotations

import os
import sqlite3
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

#: Octets of three headers: that of the -wal, which changes whenever the log is begun anew; that of
#: a frame; and each of the two copies of that of the -shm, of which the second is written first.
_WAL_HEADER: Final = 32
_FRAME_HEADER: Final = 24
_SHM_HEADER: Final = 48
#: In the -shm's header: isInit at offset 12 and mxFrame at 16, in the machine's byte order.
_INDEX: Final = struct.Struct("=12x?3xI")
#: The first octets of a -wal, and the byte order in which its checksums read their words.
_ORDERS: Final = {b"\x37\x7f\x06\x82": "<", b"\x37\x7f\x06\x83": ">"}


class Log(NamedTuple):
    """The header of a -wal, and how many frames were committed under it."""

    header: bytes
    frames: int


def committed(path: Path) -> Log | None:
    """The frames that were committed to the log of the database at *path*; None without any.

    To be called only by a process that has no connection to the database: closing the -shm drops
    the locks that the process's connections have on it (fcntl(2)).
    """
    header, told = _read(path, "-wal", _WAL_HEADER), _told(path)
    whole, begun = _found(path, header)
    # A process that is killed may stop in the midst of a write, but it leaves the -shm. Without a
    # -shm the machine has crashed, or somebody has cut the file off; then a frame that was begun
    # may have been committed.
    frames = max(whole, begun if told is None else told)
    return Log(header, frames) if frames else None


def was_cut(connection: sqlite3.Connection, path: Path, log: Log) -> bool:
    """Whether *connection*, which has written nothing yet, got fewer frames back than *log* had.

    False where another process has begun the log anew in between: then fewer are right.
    """
    frames = -1
    with suppress(sqlite3.OperationalError):  # a full disk; the next write will report it
        # Waits for a process that has written its last frame and not yet the -shm.
        _wait_for_writer(connection)
        frames = connection.execute("PRAGMA wal_checkpoint").fetchone()[1]
        if 0 <= frames < log.frames:
            # A process that begins the log anew writes the -shm first, and then the -wal's header.
            _wait_for_writer(connection)
    return 0 <= frames < log.frames and _read(path, "-wal", _WAL_HEADER) == log.header


def _wait_for_writer(connection: sqlite3.Connection) -> None:
    """Return when no transaction that was under way is writing any more."""
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("ROLLBACK")


def _told(path: Path) -> int | None:
    """The number of committed frames, by the -shm; None where that does not say it."""
    index = _read(path, "-shm", 2 * _SHM_HEADER)
    if len(index) < 2 * _SHM_HEADER or index[:_SHM_HEADER] != index[_SHM_HEADER:]:
        return None
    begun, frames = _INDEX.unpack_from(index)
    return int(frames) if begun else None


def _found(path: Path, header: bytes) -> tuple[int, int]:
    """The numbers of the last frame that ends a transaction, and of the last that was begun."""
    try:
        with path.with_name(path.name + "-wal").open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            if _is_header(header):
                return _Frames(file, header).last(size)
            # SQLite syncs the header before any frame, so frames without a header mean damage.
            return (1 if size > _WAL_HEADER else 0), 1
    except OSError:
        return 0, 0


def _is_header(octets: bytes) -> bool:
    order = _ORDERS.get(octets[:4])
    if order is None or len(octets) < _WAL_HEADER:
        return False
    return _checksum(octets[:24], order, bytes(8)) == octets[24:]


class _Frames:
    """The frames of *file*, whose *header* is undamaged. They are numbered from 1."""

    def __init__(self, file: BinaryIO, header: bytes) -> None:
        self._file, self._header = file, header
        self._size = _FRAME_HEADER + int.from_bytes(header[8:12], "big")  # with its page

    def last(self, size: int) -> tuple[int, int]:
        """See ``_found``; *size*: of the file, in octets."""
        begun: int | None = None
        for number in range(-(-(size - _WAL_HEADER) // self._size), 0, -1):
            if not self._is_of_this_log(number):
                continue  # it is older than the present log
            frame = self._octets(number, self._size)
            ends = any(frame[4:8])  # the size of the database, which only a last frame has
            if ends and self._is_whole(number):
                return number, begun or 0
            if begun is None:  # a complete last frame that ends nothing was never committed
                begun = number if ends or len(frame) < self._size else 0
        return 0, begun or 0

    def _is_of_this_log(self, number: int) -> bool:
        """Whether it belongs to the present log: by its salts or, if damaged, by its checksum."""
        if self._has_salts(number):
            return True
        return (number == 1 or self._has_salts(number - 1)) and self._is_whole(number)

    def _has_salts(self, number: int) -> bool:
        head = self._head(number)
        return len(head) < 16 or head[8:16] == self._header[16:24]

    def _is_whole(self, number: int) -> bool:
        """Whether its checksum continues that of the frame before it. Salts are not part of it."""
        frame = self._octets(number, self._size)
        if len(frame) < self._size:
            return False
        before = self._header[24:] if number == 1 else self._head(number - 1)[16:24]
        covered = frame[:8] + frame[_FRAME_HEADER:]
        return _checksum(covered, _ORDERS[self._header[:4]], before) == frame[16:24]

    def _head(self, number: int) -> bytes:
        return self._octets(number, _FRAME_HEADER)

    def _octets(self, number: int, count: int) -> bytes:
        self._file.seek(_WAL_HEADER + (number - 1) * self._size)
        return self._file.read(count)


def _checksum(octets: bytes, order: str, before: bytes) -> bytes:
    """SQLite's two running sums over *octets*, continued from the sums *before*."""
    first, second = struct.unpack(">2I", before)
    words = struct.unpack(f"{order}{len(octets) // 4}I", octets)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return struct.pack(">2I", first, second)


def _read(path: Path, suffix: str, size: int) -> bytes:
    try:
        with path.with_name(path.name + suffix).open("rb", buffering=0) as file:
            return file.read(size)
    except OSError:
        return b""
