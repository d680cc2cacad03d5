"""A clock for pacing that setting the computer's clock does not move (D9).

When a host was asked is compared between runs, so it must be a time that outlives the process;
but an hour put on or off the wall clock between two runs must not shorten a spacing. So the
wall clock is read once for each start of the machine; from then on the time since that start is
added to it, and what was read is kept in the state directory.
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
#: Seconds by which the wall clock must be set between two runs for that to be said.
_SET: Final = 600.0
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class _Offsets(NamedTuple):
    """Unix seconds at the machine's start: as first read, and by the wall clock of a later run."""

    offset: float
    wall: float


def steady_clock(directory: Path | None, notices: list[str] | None = None) -> Callable[[], float]:
    """Unix seconds as the machine counts them; the wall clock where it cannot tell its starts.

    *notices*: takes one line where the wall clock was set since an earlier run.
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
    if directory is not None and (known is None or abs(jump) > _SET):
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
    """Seconds since the machine started; its sleep counts."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _read(path: Path, boot: str) -> _Offsets | None:
    try:
        found = json.loads(path.read_text(encoding="ascii"))
        if found["boot"] != boot:
            return None
        offset = float(found["offset"])
        return _Offsets(offset, float(found.get("wall", offset)))  # version 0.1.0 had no "wall"
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _write(path: Path, boot: str, offsets: _Offsets) -> None:
    """Keep it for the next run; where nothing can be written, that run reads the wall clock."""
    draft = path.with_suffix(".new")
    with suppress(OSError):
        with files.private(draft, "w") as file:
            json.dump({"boot": boot, **offsets._asdict()}, file)
        draft.replace(path)
