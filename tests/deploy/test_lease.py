"""The lease of a job on Scrapy Cloud, with time as an argument."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.adapters import compat, lease
from scrapy_walsh.adapters.context import default_state_dir
from scrapy_walsh.adapters.lease import BEAT, EXPIRY, Lease
from scrapy_walsh.config import WalshConfig
from tests.crawl.harness import SETTINGS
from tests.deploy.cloud import Storage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NOW = 1_800_000_000.0
MINE, OTHER = "12345/1/7", "12345/2/3"
JOB = {"SHUB_JOBKEY": MINE, "SHUB_JOBAUTH": b"12345/1/7:token".hex()}


@dataclass
class Timers:
    """Plays the event loop's timers: what was set, and whether it was cancelled."""

    wait: float = 0.0
    cancelled: bool = False
    beats: list[Any] = field(default_factory=list)

    def call_later(self, wait: float, function: Callable[[], Any]) -> Callable[[], None]:
        self.wait = wait
        self.beats.append(function)
        return self.cancel

    def cancel(self) -> None:
        self.cancelled = True


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> Timers:
    async def at_once(function: Callable[[], Any]) -> Any:
        return function()

    found = Timers()
    monkeypatch.setattr(compat, "call_later", found.call_later)
    monkeypatch.setattr(compat, "run", asyncio.run)
    monkeypatch.setattr(compat, "run_in_thread", at_once)
    return found


@pytest.fixture
def storage() -> Iterator[Storage]:
    pytest.importorskip("scrapinghub", reason="in a clone: pip install -e '.[deploy-test]'")
    with Storage() as running:
        yield running


class Board:
    """What the platform's storage has of the leases."""

    def __init__(self, url: str) -> None:
        self.leases = lease.leases_of(MINE, url, JOB["SHUB_JOBAUTH"])

    def post(self, job: str, seen: float) -> None:
        self.leases.set({"_key": job.replace("/", "-"), "job": job, "seen": seen})

    def read(self) -> dict[str, float]:
        return {each["job"]: each["seen"] for each in self.leases.get()}


@pytest.fixture
def board(storage: Storage) -> Board:
    return Board(storage.url)


def of(job: str, board: Board, now: float = NOW) -> Lease:
    return Lease(job, board.leases, lambda: now)


def test_of_two_jobs_the_second_is_refused_until_the_first_ends(board: Board, timers: Timers):
    first, second = of(OTHER, board), of(MINE, board, NOW + 30)
    assert first.take() is None
    why = second.take()
    assert why is not None
    assert f"job {OTHER} of this project was active 30 s ago" in why
    second.give_back()
    assert board.read() == {OTHER: NOW}
    first.give_back()
    assert board.read() == {}
    assert of(MINE, board).take() is None


@pytest.mark.parametrize(
    ("age", "refused"), [(EXPIRY - 1, True), (EXPIRY, False), (-EXPIRY, False), (-1, True)]
)
def test_the_lease_of_a_crashed_job_is_void_after_a_while(
    board: Board, timers: Timers, age: float, refused: bool
):
    """A time in the future is no sign of life either (D9), less what clocks may differ."""
    board.post(OTHER, NOW - age)
    assert (of(MINE, board).take() is not None) == refused
    assert board.read() == ({OTHER: NOW - age} if refused else {}) | {MINE: NOW}


def test_the_lease_is_renewed_until_it_is_given_back(board: Board, timers: Timers):
    clock = [NOW]
    held = Lease(MINE, board.leases, lambda: clock[0])
    assert held.take() is None
    assert timers.wait == BEAT < EXPIRY / 3
    clock[0] += BEAT
    timers.beats.pop()()
    assert board.read() == {MINE: NOW + BEAT}
    late = timers.beats.pop()
    held.give_back()
    assert timers.cancelled
    late()  # a beat that was under way already
    assert board.read() == {}
    assert timers.beats == []


def test_a_job_that_starts_again_is_not_in_its_own_way(board: Board, timers: Timers):
    board.post(MINE, NOW - 1)
    assert of(MINE, board).take() is None


@pytest.mark.parametrize("status", [403, 404, 500])
def test_a_storage_that_refuses_is_said(
    storage: Storage, board: Board, timers: Timers, caplog: pytest.LogCaptureFixture, status: int
):
    storage.status = status
    with caplog.at_level(logging.WARNING):
        assert of(MINE, board).take() is None
    assert "cannot be kept in the project's collection walsh_leases" in caplog.text
    assert "run one job at a time" in caplog.text
    assert lease.COLLECTION.isidentifier()  # what the storage accepts as a name


def test_only_a_job_without_a_shared_store_needs_a_lease(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    def config(**settings: Any) -> WalshConfig:
        found = {**SETTINGS, "WALSH_STATE_DIR": str(tmp_path), **settings}
        return WalshConfig.from_settings(found, default_state_dir)

    monkeypatch.delenv("SHUB_JOBKEY", raising=False)
    monkeypatch.delenv("SHUB_STORAGE", raising=False)
    assert Lease.of_process(config(), lambda: NOW) is None
    for name, value in {**JOB, "SHUB_STORAGE": storage.url}.items():
        monkeypatch.setenv(name, value)
    assert Lease.of_process(config(), lambda: NOW) is not None
    shared = config(WALSH_SHARED_STATE="redis://localhost/0")
    assert Lease.of_process(shared, lambda: NOW) is None
