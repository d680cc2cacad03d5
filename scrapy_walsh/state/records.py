"""R11: the records that one run keeps for the next, as frozen values.

Every time is in Unix seconds: those of hosts by the steady clock, all others by the wall clock
(D9). A store keeps what it is given. Whether a record is still fresh, or stale because it lies in
the future, is decided in ``policy``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeVar

from scrapy_walsh.policy.learned import NOTHING, Learned
from scrapy_walsh.policy.readings import Reading
from scrapy_walsh.policy.recrawl import Visit
from scrapy_walsh.policy.revalidate import Validators

#: Records that policy declares.
__all__ = ["Reading", "Validators"]

R = TypeVar("R")

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
    from. ``status``: of the last answer, None when there was none. ``outcome``: the caller's
    word for it. ``refresh``: seconds that the document asks to be kept, or None.
    """

    kind: str
    key: str
    url: str
    body: bytes
    fetched_at: float
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
    """

    url: str
    last_run_at: float
    outcome: str
    reason: str | None = None
    counted_from: float | None = None

    @property
    def visit(self) -> Visit:
        """What R8 goes by."""
        since = self.last_run_at if self.counted_from is None else self.counted_from
        return Visit(self.last_run_at, since)


@dataclass(frozen=True, slots=True)
class HostRecord:
    """Pacing of one host (R4, R5): end of the last answer, interval in seconds, and a hold.

    ``not_before``: the time of the hold's end, None without one; ``why``: its reason.
    ``visited_at``: when a target was last sent ahead of the host's Crawl-delay, because that is
    longer than WALSH_PATIENCE; None for never. ``interval`` is without the learned one, which is in
    the next four fields: those of a ``Learned``, all None where nothing was learned (D28).
    ``silent_since``: when a run found that the host gives no answer; None where it has given one
    since, or has not been found silent (D31).
    """

    host: str
    last_end: float
    interval: float
    not_before: float | None = None
    why: str | None = None
    visited_at: float | None = None
    learned: float | None = None
    learned_accepted: float | None = None
    learned_calm: float | None = None
    learned_at: float | None = None
    silent_since: float | None = None

    @property
    def taught(self) -> Learned:
        """What the host's answers have taught (D28)."""
        if self.learned_calm is None:
            return NOTHING
        interval, accepted = self.learned or 0.0, self.learned_accepted or 0.0
        return Learned(interval, accepted, int(self.learned_calm), self.learned_at or 0.0)

    @property
    def spacing(self) -> float:
        """Seconds between two requests to the host, by all that is on record."""
        return max(self.interval, self.learned or 0.0)

    def with_taught(self, taught: Learned) -> HostRecord:
        """This record with another ``taught``."""
        if taught.calm is None:
            return replace(
                self, learned=None, learned_accepted=None, learned_calm=None, learned_at=None
            )
        return replace(
            self,
            learned=taught.interval,
            learned_accepted=taught.accepted,
            learned_calm=float(taught.calm),
            learned_at=taught.at,
        )


@dataclass(frozen=True, slots=True)
class Deferral:
    """A target that was deferred, and ``due``, before which no run requests it (D8).

    ``since``: when it was first deferred, by whatever run; None where that is not known.
    """

    url: str
    host: str
    due: float
    reason: str
    since: float | None = None


@dataclass(frozen=True, slots=True)
class Attempts:
    """How often a target was retried (R5) without an answer that ends it, and when last."""

    url: str
    count: int
    last_at: float


@dataclass(frozen=True, slots=True)
class SeenItem:
    """An item emitted by some run, by its canonical URL (R7).

    ``seen_at``: when it was emitted, or, to within a month, when an answer last had it.
    """

    canonical_url: str
    seen_at: float


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
