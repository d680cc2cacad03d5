"""The steady clock: Unix seconds that do not jump when somebody sets the wall clock (D9).

The time of a host's last request is compared between runs, so it must mean something to another
process. But when the wall clock is set by an hour between two runs, no spacing may get shorter. So
the wall clock is read once after each start of the machine, and the time since that start is added
to it. What was read is kept in the state directory for later runs.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from scrapy_walsh.state import files

if TYPE_CHECKING:
    from collections.abc import Callable

FILE: Final = "clock.json"
#: Seconds by which the wall clock must have been set since an earlier run to be reported.
_SET: Final = 600.0
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class _Offsets(NamedTuple):
    """The machine's start, Unix seconds by the wall clock: as first read, and at a later run."""

    offset: float
    wall: float


def steady_clock(
    directory: Path | None, notices: list[str] | None = None, *, keeps: bool = True
) -> Callable[[], float]:
    """The steady clock of this machine, as a function that returns Unix seconds.

    It is the wall clock where the machine does not say when it was started. *directory*: where its
    file is kept, and ``keeps``: whether it may be written. *notices* gets a line where the wall
    clock was set since an earlier run.
    """
    boot = _boot()
    if boot is None:
        return time.time
    wall = time.time() - _since_start()
    known = None if directory is None else _read(directory / FILE, boot)
    offsets = _Offsets(wall, wall) if known is None else _Offsets(known.offset, wall)
    jump = 0.0 if known is None else wall - known.wall
    if notices is not None and abs(jump) > _SET:
        notices.append(_told(jump))
    if keeps and directory is not None and (known is None or abs(jump) > _SET):
        _write(directory / FILE, boot, offsets)
    return lambda: offsets.offset + _since_start()


def _told(jump: float) -> str:
    way = "ahead" if jump > 0 else "back"
    return (
        f"the clock was set {way} by {abs(jump) / 3600:.1f} h since an earlier run: hosts keep "
        "their spacing and holds; documents and sources whose times do not fit are requested again"
    )


def _boot() -> str | None:
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip() or None
    except (OSError, ValueError):
        return None


def _since_start() -> float:
    """Seconds since the machine was started, those in sleep included."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _read(path: Path, boot: str) -> _Offsets | None:
    try:
        found = json.loads(path.read_text(encoding="ascii"))
        if found["boot"] != boot:
            return None
        offset = float(found["offset"])
        return _Offsets(offset, float(found["wall"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _write(path: Path, boot: str, offsets: _Offsets) -> None:
    """Keep *offsets* for later runs. Where that fails, they read the wall clock again."""
    with suppress(OSError):
        files.replace_private(path, json.dumps({"boot": boot, **offsets._asdict()}).encode())
