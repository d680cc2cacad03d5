"""R4 on Scrapy Cloud, whose jobs share no disk: a job that overlaps another refuses to start (D21).

A lease is a job's key and the time at which the job last showed that it is alive. It is written to
a collection of the project, in the platform's storage. Jobs on one disk need none: they keep the
spacing through the state directory.
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

#: Seconds from one sign of life of a job to the next, and from the last to the lease's end.
BEAT: Final = 60.0
EXPIRY: Final = 300.0
#: The name of the collection in the project on Scrapy Cloud.
COLLECTION: Final = "walsh_leases"
#: Seconds that the platform's storage has to answer; after two tries the job goes on without it.
_STORAGE_TIMEOUT: Final = 10.0


def leases_of(job: str, endpoint: str, auth: str) -> Any:
    """The collection of the project of *job* with a record for each of its jobs.

    Like its methods it raises OSError, ValueError or LookupError where the platform fails.
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
    """The lease of one job, in the collection *leases*. ``wall`` returns Unix seconds."""

    @classmethod
    def of_process(cls, config: WalshConfig, wall: Callable[[], float]) -> Lease | None:
        """The lease that this process needs, or None.

        None is needed outside Scrapy Cloud, and where machines keep their spacing through Redis.
        None can be had, with a line in the log, where the platform's storage cannot be used.
        """
        job, *place = map(os.environ.get, ("SHUB_JOBKEY", "SHUB_STORAGE", "SHUB_JOBAUTH"))
        if not job or not all(place) or config.shared_state:
            return None
        with _tried("the platform's storage"):
            return cls(job, leases_of(job, *map(str, place)), wall)
        return None

    def __init__(self, job: str, leases: Any, wall: Callable[[], float]) -> None:
        self._job, self._leases, self._wall = job, leases, wall
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
        for job, age in self._others().items():
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
        with self._lock, _tried():
            self._given_back = True
            self._leases.delete([_key(self._job)])

    def _post(self) -> None:
        with self._lock, _tried():
            if not self._given_back:
                lease = {"_key": _key(self._job), "job": self._job, "seen": self._wall()}
                self._leases.set(lease)

    def _others(self) -> dict[str, float]:
        """By job, for other jobs that are alive, the age of their lease in seconds.

        Leases that have ended are deleted.
        """
        now = self._wall()
        ages: dict[str, float] = {}
        with _tried():
            for lease in self._leases.get():
                ages[str(lease["job"])] = now - float(lease["seen"])
            if void := [_key(job) for job, age in ages.items() if abs(age) >= EXPIRY]:
                self._leases.delete(void)
        return {job: age for job, age in ages.items() if job != self._job and abs(age) < EXPIRY}

    async def _beat(self) -> None:
        await compat.run_in_thread(self._post)
        if not self._given_back:
            self._timer.set(BEAT)


@contextmanager
def _tried(where: str = f"the project's collection {COLLECTION}") -> Iterator[None]:
    """Where the platform's storage fails, that is logged, and the job goes on."""
    try:
        yield
    except (ImportError, OSError, ValueError, LookupError) as error:
        line = f"the lease of this job cannot be kept in {where} ({error}): run one job at a time"
        logger.warning("%s", line)
