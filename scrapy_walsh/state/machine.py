"""The clock, marks and locks that runs on a machine share (R4, R8, R11, D9).

- ``clock.json``: the steady clock, Unix seconds that do not jump when the wall clock is set. The
  time of a host's last request is compared between runs, so each process needs the same clock. But
  if the wall clock is set by an hour between two runs, no spacing may get shorter. So the wall
  clock is read once after each start of the machine, and the time since that start is added to it.
  The reading is stored for later runs.
- ``state.ok``, ``state.lost``: if a run cannot write its records, it renames the first to the
  second, as a sign for later runs. A full disk takes no new file, but allows a rename.
- ``machine``: the machine that this state belongs to. Neither locks nor the steady clock reach
  another machine. So two machines that share a directory (for example over a network) would not see
  each other's requests and holds.
- ``sources.lock``: the other runs here, and the sources that they request right now. A source is
  recorded when its spider has taken the answer. Until then an overlapping run would send the source
  as well, for example while a slow answer comes, or while a redirect waits for its host. So the
  process that sends a source locks one byte of that file for it. When a process ends, even by a
  kill, the system drops its locks, and the next run sends the source again.

The locks belong to the process (fcntl(2)). Two crawls in a process do not exclude each other, and
when either ends, the locks of both are dropped. A process sends one request at a time. A library's
lock (``files.locked``) locks a whole file. It cannot take their place, because each source with a
waiting redirect would need its own open file. If a system has no byte locks (for example Windows),
a crawl has no state directory there.
"""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import MsgspecError, Struct, json

from scrapy_walsh.exceptions import StateError
from scrapy_walsh.state import files

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Callable

CLOCK: Final = "clock.json"
#: If the wall clock was set by more seconds since an earlier run, that is reported.
_SET: Final = 600.0
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class _Start(Struct):
    """The machine's start, in Unix seconds by the first reading of the wall clock.

    ``boot``: the machine's name for the time since that start. ``wall``: the start by the wall
    clock of a later run; the clock may have been set meanwhile.
    """

    boot: str
    offset: float
    wall: float | None = None


def steady_clock(
    directory: Path | None, notices: list[str] | None = None, *, may_write: bool = True
) -> Callable[[], float]:
    """Return the steady clock of this machine, a function that returns Unix seconds.

    It is the wall clock if the machine does not say when it was started. *directory*: of the
    clock's file. ``may_write``: whether the file may be written. *notices* gets a line if the wall
    clock was set since an earlier run.
    """
    boot = _boot()
    if boot is None:
        return time.time
    wall = time.time() - _since_start()
    stored: _Start | None = None
    with suppress(OSError, MsgspecError):
        if directory is not None:
            stored = json.decode(files.read_small(directory / CLOCK), type=_Start)
    start = stored if stored is not None and stored.boot == boot else _Start(boot, wall, wall)
    offset = start.offset
    jump = wall - (offset if start.wall is None else start.wall)
    if abs(jump) > _SET and notices is not None:
        direction = "ahead" if jump > 0 else "back"
        notices.append(
            f"the clock was set {direction} by {abs(jump) / 3600:.1f} h since an earlier run: "
            "hosts keep their spacing and holds; documents and sources whose times do not fit "
            "are requested again"
        )
    if may_write and directory is not None and (start is not stored or abs(jump) > _SET):
        with suppress(OSError):  # later runs read the wall clock again
            files.replace_private(directory / CLOCK, json.encode(_Start(boot, offset, wall)))
    return lambda: offset + _since_start()


def _boot() -> str | None:
    with suppress(OSError, ValueError):
        return _BOOT_ID.read_text(encoding="ascii").strip() or None
    return None


def _since_start() -> float:
    """Seconds since the machine was started, with the time in sleep."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


READY: Final = "state.ok"
LOST: Final = "state.lost"
#: The mark lasts so many seconds, because several runs may begin side by side. The first run after
#: that finds it too, and removes it.
_KEPT: Final = 3600.0


def mark_lost(directory: Path) -> None:
    """Mark *directory*: records were lost. If even that cannot be written, do nothing."""
    with suppress(OSError), files.exclusive(directory):
        with suppress(OSError):
            (directory / READY).rename(directory / LOST)
        (directory / LOST).touch(mode=0o600)


def is_marked(directory: Path) -> bool:
    """Whether *directory* is marked. A mark older than ``_KEPT`` is removed."""
    mark, ready = directory / LOST, directory / READY
    with files.exclusive(directory):
        try:
            age = time.time() - mark.stat().st_mtime
        except OSError:
            with suppress(OSError):
                files.make_private(ready)
            return False
        if not 0 <= age < _KEPT:
            with suppress(OSError):
                mark.rename(ready)
        return True


SOURCES: Final = "sources.lock"
#: Each crawl has a shared lock on this byte of the file; the bytes of sources are below it.
_RUNNING: Final = 1 << 56
OWNER: Final = "machine"
#: The machine's id, by systemd and most container images (machine-id(5)).
_MACHINE_ID: Final = Path("/etc/machine-id")


def claim(directory: Path, *, may_write: bool = True) -> None:
    """Check that *directory* is this machine's. ``may_write``: record the machine if none is.

    If the machine has no id, nothing is checked. The record is a digest, because machine-id(5)
    wants the id itself hidden. Raises StateError if it is another machine's.
    """
    try:
        machine_id = _MACHINE_ID.read_bytes().strip()
    except OSError:
        return
    if len(machine_id) != 32:  # "uninitialized", or an empty file of a container's image
        return
    path = directory / OWNER
    own_digest = hashlib.sha256(b"scrapy_walsh " + machine_id).hexdigest()[:32].encode()
    stored = b""
    with suppress(OSError):
        stored = files.read_small(path)
    if stored == own_digest:
        return
    if len(stored) == len(own_digest):  # otherwise the file is damaged
        raise StateError(
            f"{directory} is the state of another machine, whose crawls and this machine's would "
            "not see each other: set another WALSH_STATE_DIR, or share one Redis by "
            f"WALSH_SHARED_STATE; if it was moved here, delete {path}"
        )
    if may_write:
        with suppress(OSError):  # the first write that matters will report it
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            files.replace_private(path, own_digest)


def enter(directory: Path | None) -> None:
    """Note that a crawl of this process uses *directory*; None if there is none.

    Raises StateError if it is another machine's, or if the system has no byte locks.
    """
    if directory is None:
        return
    if fcntl is None:
        raise StateError(
            f"{directory} cannot be used: this system has no file locks (fcntl), so two crawls "
            "could not take turns: set WALSH_STATE_DIR to memory"
        )
    claim(directory)
    files.close_to_others(directory)


class UnderWay:
    """The locks of a crawl. *directory*: the state directory, or None.

    If there are no locks, each source is free.
    """

    def __init__(self, directory: Path | None) -> None:
        self._path = None if directory is None else directory / SOURCES
        self._file: int | None = None
        self._held: set[str] = set()

    def begin(self) -> None:
        """Show other processes that a crawl runs (:func:`is_running`)."""
        if self._path is None:
            return
        with suppress(OSError):
            if self._file is None:
                self._file = files.open_private(self._path)
            fcntl.lockf(self._file, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, _RUNNING)

    def take(self, key: str) -> bool:
        """Lock the source *key*. Returns False if another process is requesting it."""
        if key in self._held or self._path is None:
            return True
        try:
            if self._file is None:
                self._file = files.open_private(self._path)
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _place(key))
        except (BlockingIOError, PermissionError):  # lockf raises these if the lock is taken
            return False
        except OSError:
            return True
        self._held.add(key)
        return True

    def drop(self, key: str) -> None:
        """Unlock *key*."""
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


def is_running(directory: Path) -> bool:
    """Whether a crawl of another process uses *directory*."""
    path = directory / SOURCES
    if fcntl is None or not path.exists():
        return False
    file = files.open_private(path)
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _RUNNING)
    except (BlockingIOError, PermissionError):
        return True
    except OSError:
        return False
    finally:
        os.close(file)  # which drops the lock
    return False


def _place(key: str) -> int:
    """The byte for *key*, out of 2**56: two sources hardly ever share a byte."""
    return int.from_bytes(hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()[:7])
