"""Refuses to start a job on Scrapy Cloud while another job of the project runs (R4, D21).

Jobs there share no disk, so they could not keep the spacing of hosts together. A lease is a job's
key with the time of its last sign of life, in a collection in the platform's storage. Jobs with a
common disk need no lease, because they share the state directory.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.adapters import compat
from scrapy_walsh.adapters.events import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scrapy_walsh.config import WalshConfig

#: Seconds between two signs of life, and from the last one to the end of the lease.
BEAT: Final = 60.0
EXPIRY: Final = 300.0
#: The name of the collection in the project on Scrapy Cloud.
COLLECTION: Final = "walsh_leases"
#: Seconds for an answer of the platform's storage. After two tries the job goes on without it.
_STORAGE_TIMEOUT: Final = 10.0


def leases_of(job: str, endpoint: str, auth: str) -> Any:
    """Return the project's collection with one record for each job.

    This function and the collection's methods raise OSError, ValueError or LookupError if the
    platform fails.
    """
    from scrapinghub import HubstorageClient  # noqa: PLC0415  the platform brings it

    client = HubstorageClient(
        auth=bytes.fromhex(auth).decode(),
        endpoint=endpoint,
        connection_timeout=_STORAGE_TIMEOUT,
        max_retries=1,
        use_msgpack=False,
    )
    project = client.get_project(job.partition("/")[0])
    return project.collections.new_store(COLLECTION)


def _key(job: str) -> str:
    return job.replace("/", "-")


class Lease:
    """The lease of a job in the collection *leases*. *wall*: returns Unix seconds."""

    @classmethod
    def of_process(cls, config: WalshConfig, wall: Callable[[], float]) -> Lease | None:
        """Return the lease of this process, or None if it needs none.

        Only jobs on Scrapy Cloud without a shared Redis need a lease. If the platform's storage is
        unusable, it logs that and returns None.
        """
        job, *place = map(os.environ.get, ("SHUB_JOBKEY", "SHUB_STORAGE", "SHUB_JOBAUTH"))
        if not job or not all(place) or config.shared_state:
            return None
        with _log_failure("the platform's storage"):
            return cls(job, leases_of(job, *map(str, place)), wall)
        return None

    def __init__(self, job: str, leases: Any, wall: Callable[[], float]) -> None:
        self._job = job
        self._leases = leases
        self._wall = wall
        self._lock = Lock()
        self._given_back = False
        self._timer = compat.Timer(lambda: compat.run(self._beat()))

    def take(self) -> str | None:
        """Write the lease, and renew it from now on. Returns None.

        If another job is alive, nothing is renewed, and the reason is returned in one line. The
        lease is written first. So if two jobs start together, at least one sees the other.
        """
        self._post()
        for job, age in self._others().items():
            return (
                f"job {job} of this project was active {age:.0f} s ago: jobs of Scrapy Cloud "
                "share no disk, so they cannot keep the spacing together: run one at a time, "
                "or set WALSH_SHARED_STATE"
            )
        self._timer.set(BEAT)
        return None

    def give_back(self) -> None:
        """Stop renewing the lease, and delete it."""
        self._timer.cancel()
        with self._lock, _log_failure():
            self._given_back = True
            self._leases.delete([_key(self._job)])

    def _post(self) -> None:
        with self._lock, _log_failure():
            if not self._given_back:
                lease = {"_key": _key(self._job), "job": self._job, "seen": self._wall()}
                self._leases.set(lease)

    def _others(self) -> dict[str, float]:
        """Return the age of each living job's lease, in seconds, by job. Delete ended leases."""
        now = self._wall()
        ages: dict[str, float] = {}
        with _log_failure():
            for lease in self._leases.get():
                ages[str(lease["job"])] = now - float(lease["seen"])
            void = [_key(job) for job, age in ages.items() if abs(age) >= EXPIRY]
            if void:
                self._leases.delete(void)
        return {job: age for job, age in ages.items() if job != self._job and abs(age) < EXPIRY}

    async def _beat(self) -> None:
        await compat.run_in_thread(self._post)
        if not self._given_back:
            self._timer.set(BEAT)


@contextmanager
def _log_failure(place: str = f"the project's collection {COLLECTION}") -> Iterator[None]:
    """Log a failure of the platform's storage in the block, and go on."""
    try:
        yield
    except (ImportError, OSError, ValueError, LookupError) as error:
        line = f"the lease of this job cannot be kept in {place} ({error}): run one job at a time"
        logger.warning("%s", line)
