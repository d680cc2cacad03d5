"""R11: the records that one run keeps for the next, as frozen values.

Each field is declared here, once; tables, a fleet's hashes and ``state show`` follow from that
(``state.schema``). A store keeps what it is given. Whether a record is still fresh, or stale
because it lies in the future, is decided in ``policy``. How long it is kept is at the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from scrapy_walsh.policy.learned import NOTHING, Learned
from scrapy_walsh.policy.readings import Reading
from scrapy_walsh.policy.recrawl import GONE, REVISIT_FLOOR, Visit
from scrapy_walsh.policy.revalidate import Validators
from scrapy_walsh.policy.times import Due, Steady, Until, Wall  # noqa: TC001  of the fields
from scrapy_walsh.state.schema import Table

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Records that policy declares.
__all__ = ["Reading", "Validators"]

ROBOTS: Final = "robots"
BLOCKLIST: Final = "blocklist"
SCHEMA: Final = "schema"

#: The only documents whose body may be kept (D10).
DOCUMENT_KINDS: Final = frozenset({ROBOTS, BLOCKLIST, SCHEMA})


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A robots.txt, blocklist or schema as it was last fetched.

    ``kind``: one of :data:`DOCUMENT_KINDS`, ValueError otherwise. ``key``: the origin
    (``https://h.test``) of a robots.txt, the URL of the others. ``url``: where the body came
    from. ``fetched_at``: 0 where that is not known, so that it is not fresh. ``status``: of the
    last answer, None when there was none. ``outcome``: the caller's word for it. ``refresh``:
    seconds that the document asks to be kept, or None.
    """

    kind: str
    key: str
    url: str
    body: bytes
    fetched_at: Wall
    status: int | None
    outcome: str
    etag: str | None = None
    last_modified: str | None = None
    refresh: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in DOCUMENT_KINDS:
            raise ValueError(
                f"no body of kind {self.kind!r} is kept, only {sorted(DOCUMENT_KINDS)}"
            )


@dataclass(frozen=True, slots=True)
class SourceRun:
    """When a source was last requested, and answered (R8).

    ``url``: of ``recrawl.key_of``: the source's URL, with the method and a digest of the body
    where the request is not a plain GET. ``last_run_at``: when the request was sent. ``outcome``:
    the status of the answer. ``reason``: the WALSH_REVISIT_REASON that lifted R8.
    ``counted_from``: the time from which the next due time is counted; None: ``last_run_at``.
    ``gave_up_at``: when it was given up after that (R8.2). Of a source that was given up and never
    answered, ``last_run_at`` is 0 and ``outcome`` empty.
    """

    url: str
    last_run_at: Wall
    outcome: str
    reason: str | None = None
    counted_from: Due | None = None
    gave_up_at: Wall | None = None

    @property
    def visit(self) -> Visit:
        """What R8 goes by."""
        since = self.last_run_at if self.counted_from is None else self.counted_from
        return Visit(self.last_run_at, since, self.outcome == str(GONE), self.gave_up_at)


@dataclass(frozen=True, slots=True)
class HostRecord:
    """Pacing of one host (R4, R5).

    ``last_end``: when the last request to it ended; while one is ``under_way`` (1), and where the
    process that sent it was killed, when that was booked. ``interval``: seconds between two
    requests, by its robots.txt and the settings, without what it has ``taught`` (D28).
    ``not_before``: the end of a hold, None without one. ``visited_at``: when the answer ended to a
    target that was last sent ahead of the host's Crawl-delay, because that is longer than
    WALSH_PATIENCE; None for never. ``silent_since``: when a run found that the host gives no
    answer; None where it has given one since, or has not been found silent (D31).
    """

    host: str
    last_end: Steady
    interval: float
    not_before: Until | None = None
    visited_at: Steady | None = None
    taught: Learned = NOTHING
    silent_since: Steady | None = None
    under_way: int = 0

    @property
    def spacing(self) -> float:
        """Seconds between two requests to the host, by all that is on record."""
        return max(self.interval, self.taught.interval)


@dataclass(frozen=True, slots=True)
class Deferral:
    """A target that was deferred, and ``due``, before which no run requests it (D8).

    ``since``: when it was first deferred, by whatever run; None where that is not known.
    """

    url: str
    host: str
    due: Due
    reason: str
    since: Wall | None = None


@dataclass(frozen=True, slots=True)
class Attempts:
    """How often a target was retried (R5) without an answer that ends it, and when last."""

    url: str
    count: int
    last_at: Wall


@dataclass(frozen=True, slots=True)
class SeenItem:
    """An item emitted by some run, by its canonical URL (R7).

    ``seen_at``: when it was emitted, or, to within a month, when an answer last had it.
    """

    canonical_url: str
    seen_at: Wall


@dataclass(frozen=True, slots=True)
class FleetEpoch:
    """By which word this machine last knew a fleet's Redis (R4.6): it has another after a loss.

    ``place``: the Redis, and what our names begin with there.
    """

    place: str
    word: str
    seen_at: Wall


class Booking(NamedTuple):
    """The outcome of booking a host (D20).

    ``wait``: 0 where it is booked; else the seconds until it may be. ``known``: some process has
    requested the host before (T1). ``rested``: seconds since the last request to it by any process;
    infinite where there was none, 0 where that cannot be known. ``taught``: what the host has
    taught any of them (D28).
    """

    wait: float
    known: bool
    rested: float = 0.0
    taught: Learned = NOTHING


# -- where they are kept, and how long ------------------------------------------------------

_DAY: Final = 86_400.0
#: For what was promised to a host or asked by it, and for what binds R8: longer than a year, which
#: is the longest WALSH_REVISIT.
_LONG: Final = 400 * _DAY

DOCUMENTS: Final = Table(  # for ever: the last known rules stay (T6)
    "documents", StoredDocument, ("kind", "key"), "fetched_at", shared=True
)
#: Half as long: a source that has answered 304 for so long is fetched in full, and shows its links.
VALIDATORS: Final = Table(
    "validators", Validators, ("url", "representation"), "stored_at", (("stored_at",),), 200 * _DAY
)
SOURCES: Final = Table(
    "sources",
    SourceRun,
    ("url",),
    "last_run_at",
    (("last_run_at",), ("gave_up_at",)),
    _LONG,
    shared=True,
)
HOSTS: Final = Table(
    "hosts",
    HostRecord,
    ("host",),
    "last_end",
    (("last_end", "interval"), ("not_before",)),
    _LONG,
    shared=True,
)
DEFERRALS: Final = Table("deferrals", Deferral, ("url",), "due", (("due",),), _LONG, shared=True)
#: As long as they count (R5).
ATTEMPTS: Final = Table("attempts", Attempts, ("url",), "last_at", (("last_at",),), REVISIT_FLOOR)
SEEN_ITEMS: Final = Table(
    "seen_items", SeenItem, ("canonical_url",), "seen_at", (("seen_at",),), _LONG
)
READINGS: Final = Table(
    "readings", Reading, ("url",), "declared_at", (("declared_at",),), _LONG, shared=True
)

#: For ever: there is one for each Redis.
FLEET_EPOCHS: Final = Table("fleet_epochs", FleetEpoch, ("place",), "seen_at")

TABLES: Final[tuple[Table[Any], ...]] = (
    DOCUMENTS,
    VALIDATORS,
    SOURCES,
    HOSTS,
    DEFERRALS,
    ATTEMPTS,
    SEEN_ITEMS,
    READINGS,
    FLEET_EPOCHS,
)
#: The table of the records of one class.
TABLE_OF: Final[Mapping[type, Table[Any]]] = {table.record: table for table in TABLES}
