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
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

FILE: Final = "clock.json"
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def steady_clock(directory: Path | None) -> Callable[[], float]:
    """Unix seconds as the machine counts them; the wall clock where it cannot tell its starts."""
    boot = _boot()
    if boot is None:
        return time.time
    offset = time.time() - _since_start()
    if directory is not None:
        known = _read(directory / FILE, boot)
        if known is not None:
            offset = known
        else:
            _write(directory / FILE, boot, offset)
    return lambda: offset + _since_start()


def _boot() -> str | None:
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip() or None
    except (OSError, ValueError):
        return None


def _since_start() -> float:
    """Seconds since the machine started; its sleep counts."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _read(path: Path, boot: str) -> float | None:
    try:
        found = json.loads(path.read_text(encoding="ascii"))
        return float(found["offset"]) if found["boot"] == boot else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _write(path: Path, boot: str, offset: float) -> None:
    """Keep it for the next run; where nothing can be written, that run reads the wall clock."""
    draft = path.with_suffix(".new")
    with suppress(OSError):
        draft.write_text(json.dumps({"boot": boot, "offset": offset}), encoding="ascii")
        draft.replace(path)
