"""R4 on Scrapy Cloud, whose jobs share no disk: a job that overlaps another refuses to start (D21).

A lease is a job's key and the time at which the job last showed that it is alive. It is written to
the state directory and, where the job's environment names the platform's storage, to a collection
of the project. The directory alone would not show a job on another machine, since DotScrapy copies
it only when a job starts and when it ends.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Protocol

from scrapy_walsh.adapters import compat
from scrapy_walsh.adapters.events import logger
from scrapy_walsh.state.files import replace_private

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from scrapy_walsh.config import WalshConfig

#: Seconds from one sign of life of a job to the next, and from the last to the lease's end.
BEAT: Final = 60.0
EXPIRY: Final = 300.0
#: The name of the collection in the project on Scrapy Cloud.
COLLECTION: Final = "walsh_leases"
#: Seconds that the platform's storage has to answer; after two tries the job goes on without it.
_STORAGE_TIMEOUT: Final = 10.0


class Board(Protocol):
    """Where leases are kept. Methods raise OSError, ValueError or LookupError when they fail."""

    def post(self, job: str, seen: float) -> None:
        """Write the lease of *job*, alive at *seen* (Unix seconds), in place of its earlier one."""

    def read(self) -> dict[str, float]:
        """By job, the Unix seconds at which it was last alive."""

    def withdraw(self, jobs: Iterable[str]) -> None:
        """Delete the leases of *jobs*."""


class DirectoryBoard:
    """A file for each job, in the state directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __str__(self) -> str:
        return f"{self._directory}"

    def post(self, job: str, seen: float) -> None:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_private(self._file(job), json.dumps({"job": job, "seen": seen}).encode())

    def read(self) -> dict[str, float]:
        found = {}
        for path in self._directory.glob("job-*.json"):
            with suppress(FileNotFoundError):  # deleted meanwhile
                lease = json.loads(path.read_text())
                found[str(lease["job"])] = float(lease["seen"])
        return found

    def withdraw(self, jobs: Iterable[str]) -> None:
        for job in jobs:
            self._file(job).unlink(missing_ok=True)

    def _file(self, job: str) -> Path:
        return self._directory / f"job-{_flat(job)}.json"


class CollectionBoard:
    """A record for each job, in a collection of the project on Scrapy Cloud."""

    def __init__(self, job: str, endpoint: str, auth: str) -> None:
        from scrapinghub import HubstorageClient  # noqa: PLC0415  the platform brings it

        client = HubstorageClient(
            auth=bytes.fromhex(auth).decode(),
            endpoint=endpoint,
            connection_timeout=_STORAGE_TIMEOUT,
            max_retries=1,
            use_msgpack=False,
        )
        project = client.get_project(job.partition("/")[0])
        self._store: Any = project.collections.new_store(COLLECTION)

    def __str__(self) -> str:
        return f"the project's collection {COLLECTION}"

    def post(self, job: str, seen: float) -> None:
        self._store.set({"_key": _flat(job), "job": job, "seen": seen})

    def read(self) -> dict[str, float]:
        return {str(lease["job"]): float(lease["seen"]) for lease in self._store.get()}

    def withdraw(self, jobs: Iterable[str]) -> None:
        self._store.delete([_flat(job) for job in jobs])


def _flat(job: str) -> str:
    return job.replace("/", "-")


def boards_of(job: str, state_dir: Path | None, environ: Mapping[str, str]) -> list[Board]:
    """The boards that *job* can use."""
    boards: list[Board] = [] if state_dir is None else [DirectoryBoard(state_dir)]
    endpoint, auth = environ.get("SHUB_STORAGE"), environ.get("SHUB_JOBAUTH")
    if endpoint and auth:
        try:
            boards.append(CollectionBoard(job, endpoint, auth))
        except (ImportError, ValueError) as error:
            logger.warning("%s", _unusable("the platform's storage", error))
    return boards


class Lease:
    """The lease of one job. ``wall`` returns Unix seconds."""

    @classmethod
    def of_process(cls, config: WalshConfig, wall: Callable[[], float]) -> Lease | None:
        """The lease that this process needs, or None.

        None is needed outside Scrapy Cloud, and where machines keep their spacing through Redis.
        """
        job = os.environ.get("SHUB_JOBKEY")
        if not job or config.shared_state:
            return None
        return cls(job, boards_of(job, config.state_dir, os.environ), wall)

    def __init__(self, job: str, boards: list[Board], wall: Callable[[], float]) -> None:
        self._job = job
        self._boards = boards
        self._wall = wall
        self._lock = Lock()
        self._given_back = False
        self._timer = compat.Timer(lambda: compat.run(self._beat()))

    def take(self) -> str | None:
        """Write the lease and renew it from now on. Returns None.

        Where another job is alive, nothing is renewed, and the reason is returned in one line. The
        lease is written before others are looked for, so of two jobs that start together at least
        one sees the other.
        """
        self._post()
        for board in self._boards:
            for job, age in self._others(board).items():
                return (
                    f"job {job} of this project showed life {age:.0f} s ago: jobs of Scrapy Cloud "
                    "share no disk and would not keep the spacing together: run one at a time, "
                    "or set WALSH_SHARED_STATE"
                )
        self._timer.set(BEAT)
        return None

    def give_back(self) -> None:
        """Delete the lease, and renew it no more."""
        self._timer.cancel()
        with self._lock:
            self._given_back = True
            for board in self._boards:
                _attempt(board, partial(board.withdraw, [self._job]))

    def _post(self) -> None:
        with self._lock:
            if self._given_back:
                return
            for board in self._boards:
                _attempt(board, partial(board.post, self._job, self._wall()))

    def _others(self, board: Board) -> dict[str, float]:
        """By job, for other jobs that are alive, the age of their lease in seconds.

        Leases that have ended are deleted.
        """
        now = self._wall()
        ages: dict[str, float] = {}

        def look() -> None:
            ages.update({job: now - seen for job, seen in board.read().items()})
            void = [job for job, age in ages.items() if abs(age) >= EXPIRY]
            if void:
                board.withdraw(void)

        _attempt(board, look)
        return {job: age for job, age in ages.items() if job != self._job and abs(age) < EXPIRY}

    async def _beat(self) -> None:
        await compat.run_in_thread(self._post)
        if not self._given_back:
            self._timer.set(BEAT)


def _attempt(board: Board, action: Callable[[], None]) -> None:
    """Call *action*. Where the board fails, that is logged: there may be another board."""
    try:
        action()
    except (OSError, ValueError, LookupError) as error:
        logger.warning("%s", _unusable(str(board), error))


def _unusable(where: str, error: Exception) -> str:
    return f"the lease of this job cannot be kept in {where} ({error}): run one job at a time"
