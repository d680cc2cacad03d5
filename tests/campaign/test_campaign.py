"""A short run of each campaign; ``python -m tests.campaign`` runs them for longer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.campaign import clock, damage, disk, kill

if TYPE_CHECKING:
    from tests.campaign.judge import Report


def unbroken(report: Report) -> bool:
    """Whether no promise was broken; what was, is shown."""
    print("\n".join(report.lines()))
    return not report.violations


def test_kill_at_random_moments() -> None:
    report = kill.campaign(runs=6, seconds=60, seed=1)
    assert unbroken(report)
    assert report.figures["kills"] >= 3


@pytest.mark.parametrize("case", damage.SHORT, ids=" ".join)
def test_damaged_files(case: tuple[str, str]) -> None:
    assert unbroken(damage.campaign(1, 60, 1, [case]))


@pytest.mark.parametrize("case", disk.CASES)
def test_disk(case: str) -> None:
    report = disk.campaign(1, 60, 1, [case])
    assert unbroken(report)
    if case not in report.figures:
        pytest.skip("no rights to mount here")


@pytest.mark.parametrize("case", ["forward an hour", "back an hour"])
def test_clock(case: str) -> None:
    assert unbroken(clock.campaign(1, 60, 1, [case]))
