"""R4, R8, R11, D9: what runs on one machine tell each other, beside records and documents.

- ``clock.json``: the steady clock, Unix seconds that do not jump when somebody sets the wall clock.
  The time of a host's last request is compared between runs, so it must mean something to another
  process. But when the wall clock is set by an hour between two runs, no spacing may get shorter.
  So the wall clock is read once after each start of the machine, and the time since that start is
  added to it. What was read is kept for later runs.
- ``state.ok``, ``state.lost``: by renaming the one to the other, a run that could not write its
  records tells later runs so. A full disk takes no new file, but lets one be renamed.
- ``machine``: whose state this is. Neither locks nor the steady clock reach another machine, so two
  that share a directory (over a network, say) would not see each other's requests and holds.
- ``sources.lock``: who else runs here, and which sources it requests right now. A source is put on
  record once its spider has taken the answer. Until then the record says nothing, and a run that
  overlaps would send the source as well: while a slow answer comes, and while a redirect waits for
  the host that it leads to. So the process that sends a source has a lock for it, one byte of that
  file. The system drops the locks of a process that ends, however it ends: after a kill the next
  run sends the source again.

The locks are of the process (fcntl(2)): two crawls in one process do not exclude each other, and
the end of one drops the locks of both. A process sends one request at a time. A library's lock
(``files.lock``) is of a whole file. It cannot take their place: there would be a file, and an open
one, for each source whose redirect waits. Where a system has no locks of bytes (Windows) no crawl
has a state directory.
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
#: Seconds by which the wall clock must have been set since an earlier run to be reported.
_SET: Final = 600.0
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class _Start(Struct):
    """The machine's start, Unix seconds by the wall clock as it was first read.

    ``boot``: the name that the machine gives to the time since that start. ``wall``: the start by
    the wall clock of a later run, which somebody may have set.
    """

    boot: str
    offset: float
    wall: float | None = None


def steady_clock(
    directory: Path | None, notices: list[str] | None = None, *, may_write: bool = True
) -> Callable[[], float]:
    """The steady clock of this machine, as a function that returns Unix seconds.

    It is the wall clock where the machine does not say when it was started. *directory*: where its
    file is kept, and ``may_write``: whether it may be written. *notices* gets a line where the wall
    clock was set since an earlier run.
    """
    boot = _boot()
    if boot is None:
        return time.time
    wall = time.time() - _since_start()
    stored: _Start | None = None
    with suppress(OSError, MsgspecError):
        if directory is not None:
            stored = json.decode((directory / CLOCK).read_bytes(), type=_Start)
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
    """Seconds since the machine was started, those in sleep included."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


READY: Final = "state.ok"
LOST: Final = "state.lost"
#: Seconds for which every run that begins finds the mark, since several may begin side by side.
#: The first run after that finds it too, and takes it away.
_KEPT: Final = 3600.0


def mark_lost(directory: Path) -> None:
    """Mark *directory*: records were lost. Nothing happens where even that cannot be written."""
    with suppress(OSError), files.exclusive(directory):
        with suppress(OSError):
            (directory / READY).rename(directory / LOST)
        (directory / LOST).touch(mode=0o600)


def is_marked(directory: Path) -> bool:
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


SOURCES: Final = "sources.lock"
#: The byte of that file for which each crawl has a shared lock; sources are below it.
_RUNNING: Final = 1 << 56
OWNER: Final = "machine"
#: What systemd, and most containers' images, say of a machine (machine-id(5)).
_MACHINE_ID: Final = Path("/etc/machine-id")


def claim(directory: Path, *, may_write: bool = True) -> None:
    """See that *directory* is this machine's. ``may_write``: note the machine if none is noted.

    Nothing is looked at where the machine has no id. What is noted is a digest, since machine-id(5)
    wants the id itself kept from others. Raises StateError where it is another machine's.
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
        stored = path.read_bytes() if path.is_file() else b""  # a FIFO would be waited for
    if stored == own_digest:
        return
    if len(stored) == len(own_digest):  # else it is damaged, as other files of ours may be
        raise StateError(
            f"{directory} is the state of another machine, and its crawls and this one's "
            "would not see each other: set another WALSH_STATE_DIR, or share one Redis by "
            f"WALSH_SHARED_STATE; if it was moved here, delete {path}"
        )
    if may_write:
        with suppress(OSError):  # whoever needs to write here says that it cannot be done
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            files.replace_private(path, own_digest)


def enter(directory: Path | None) -> None:
    """A crawl of this process begins to use *directory*; None where nothing is kept.

    Raises StateError where it is another machine's, and where a system has no locks for it.
    """
    if directory is None:
        return
    if fcntl is None:
        raise StateError(
            f"{directory} cannot be used: this system has no file locks (fcntl) by which two "
            "crawls could take turns: set WALSH_STATE_DIR to memory"
        )
    claim(directory)
    files.close_to_others(directory)


class UnderWay:
    """The locks of one crawl; *directory*: the state directory, None where nothing is kept.

    Where locks cannot be had, every source is free.
    """

    def __init__(self, directory: Path | None) -> None:
        self._path = None if directory is None else directory / SOURCES
        self._file: int | None = None
        self._held: set[str] = set()

    def begin(self) -> None:
        """A crawl of this process runs: :func:`is_running` says so to others."""
        if self._path is None:
            return
        with suppress(OSError):
            if self._file is None:
                self._file = files.open_private(self._path)
            fcntl.lockf(self._file, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, _RUNNING)

    def take(self, key: str) -> bool:
        """Whether no other process is requesting the source *key*; from now on this one is."""
        if key in self._held or self._path is None:
            return True
        try:
            if self._file is None:
                self._file = files.open_private(self._path)
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
    """The byte for *key*, out of 2**56: two sources hardly ever share one."""
    return int.from_bytes(hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()[:7])
