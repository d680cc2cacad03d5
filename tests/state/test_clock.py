"""D9: pacing between runs does not go by a clock that somebody may set."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from scrapy_walsh.state.machine import CLOCK as FILE
from scrapy_walsh.state.machine import steady_clock

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
pytestmark = pytest.mark.skipif(not BOOT_ID.exists(), reason="no boot id on this system")


def test_first_run_reads_the_wall_clock(tmp_path: Path) -> None:
    assert steady_clock(tmp_path)() == pytest.approx(time.time(), abs=1.0)


@pytest.mark.parametrize("hour", [3600.0, -3600.0])
def test_clock_set_between_runs_does_not_move_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hour: float
) -> None:
    told: list[str] = []
    before = steady_clock(tmp_path, told)()
    assert told == []
    wall = time.time
    monkeypatch.setattr(time, "time", lambda: wall() + hour)
    for _ in range(2):  # it is said once
        assert 0 <= steady_clock(tmp_path, told)() - before < 5.0
    (line,) = told
    assert line.startswith(f"the clock was set {'ahead' if hour > 0 else 'back'} by 1.0 h since")


def test_another_start_of_the_machine_reads_the_wall_clock_again(tmp_path: Path) -> None:
    steady_clock(tmp_path)
    path = tmp_path / FILE
    path.write_text(json.dumps({"boot": "an earlier one", "offset": 5.0}))
    assert steady_clock(tmp_path)() == pytest.approx(time.time(), abs=1.0)
    assert json.loads(path.read_text())["boot"] != "an earlier one"


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"boot": 1}', '{"offset": "x"}', "\x00"])
def test_damaged_file_is_written_anew(tmp_path: Path, damage: str) -> None:
    (tmp_path / FILE).write_text(damage)
    assert steady_clock(tmp_path)() == pytest.approx(time.time(), abs=1.0)


def test_directory_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    assert steady_clock(tmp_path / "missing")() == pytest.approx(time.time(), abs=1.0)


def test_what_an_earlier_build_kept_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the first run after an update would take a clock that was set for the steady one."""
    before, told = steady_clock(tmp_path)(), list[str]()
    path = tmp_path / FILE
    kept = json.loads(path.read_text())
    del kept["wall"]
    path.write_text(json.dumps(kept))
    wall = time.time
    monkeypatch.setattr(time, "time", lambda: wall() + 7200.0)
    assert 0 <= steady_clock(tmp_path, told)() - before < 5.0
    assert len(told) == 1
