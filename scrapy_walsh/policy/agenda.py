"""R4: which host gets the next request.

A process sends one request at a time. As long as any host is due, one should be under way, or the
crawl takes longer than politeness demands. Among the hosts that are due, the one with the most work
left (number of requests x interval, in seconds) goes first, since it decides when the crawl can
end.

How it works:

- Hosts that are not due *wait* in a heap, ordered by due time.
- Hosts that are due are *ready*. They are in buckets by their work left, sixteen buckets for each
  doubling of it. The bits of one integer say which buckets have hosts, so the highest is found at
  once.
- So adding a request or finding the next host costs at most the logarithm of the number of hosts.
- A due time may become later while its host waits (R5), and the throttle tells nobody. So it is
  looked up again before the host is given out: an entry may be too early, but never too late.
- An entry of the heap that is out of date stays there until it comes up, and is then dropped.
- A host that has just had a request waits again, so the buckets have only hosts that were due.
- A host that goes *last* (D31) is put into the lowest bucket when its turn has come, and is given
  out when no other host is on the agenda. Whether it still goes last is looked up at each turn.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_BUCKETS_PER_DOUBLING: Final = 16
#: The bucket of hosts that go last.
_LAST: Final = 0
#: The most hosts that one call moves from waiting to ready, so that no pop takes long.
_MOVES_PER_CALL: Final = 64
#: Requests that may wait before no more are taken in, once so many hosts have waited at a time.
ENOUGH_REQUESTS: Final = 100_000
ENOUGH_HOSTS: Final = 1_000


def _bucket(work: float) -> int:
    """The number of the bucket for a host with *work* seconds left, which is at least 1 s."""
    return _LAST + 1 + (int(_BUCKETS_PER_DOUBLING * math.log2(work)) if work > 1 else 0)


@dataclass(frozen=True, slots=True)
class Load:
    """How much waits: requests to ``hosts``, the most at one time, and others that are refused."""

    requests: int = 0
    hosts: int = 0
    refused: int = 0


def enough(load: Load) -> bool:
    """Whether no more requests should be taken in for now.

    With few hosts the order cannot be chosen well, so more are taken in until there are
    ``ENOUGH_HOSTS``. What is refused has no order, and waits for nothing.
    """
    full = load.requests + load.refused >= ENOUGH_REQUESTS
    return full and (load.hosts >= ENOUGH_HOSTS or load.refused >= ENOUGH_REQUESTS)


@dataclass(slots=True)
class _Entry:
    """A host with ``count`` requests. It is ready, in ``bucket`` at ``place``, or waits.

    ``bucket``: -1 while it waits. ``due``: until when it waits; None while it is ready.
    """

    count: int
    bucket: int = -1
    place: int = -1
    due: float | None = None


@dataclass(slots=True)
class Agenda:
    """The hosts that have requests to make, ordered by who goes next.

    ``due``, ``interval``: the throttle's methods; by host, the monotonic time from which it is due,
    and the seconds between its requests. ``last``: whether a host goes after all others. ``most``:
    the most hosts so far that had requests at one time. ``_occupied``: bit n is set where bucket n
    has hosts.
    """

    due: Callable[[str], float]
    interval: Callable[[str], float]
    last: Callable[[str], bool] = lambda _: False
    most: int = 0
    _hosts: dict[str, _Entry] = field(default_factory=dict)
    _waiting: list[tuple[float, str]] = field(default_factory=list)
    _ready: dict[int, list[str]] = field(default_factory=dict)
    _occupied: int = 0

    def __len__(self) -> int:
        return len(self._hosts)

    def ready(self) -> int:
        """How many hosts are due; the others wait."""
        return sum(map(len, self._ready.values()))

    def seconds_left(self, now: float) -> float:
        """The least seconds from *now* until all requests are sent. Looks at every host."""
        return max(
            (
                (0.0 if entry.due in (None, math.inf) else entry.due - now)
                + (entry.count - 1) * self.interval(host)
                for host, entry in self._hosts.items()
            ),
            default=0.0,
        )

    def add(self, host: str, count: int = 1, now: float = -math.inf) -> None:
        """Note, at *now*, that *host* has *count* more requests to make."""
        entry = self._hosts.get(host)
        if entry is None:
            entry = self._hosts[host] = _Entry(count)
            self.most = max(self.most, len(self._hosts))
            self._place(host, entry, now)
            return
        entry.count += count
        if entry.due is None:
            self._stand(host, entry)

    def remove(self, host: str, count: int = 1) -> None:
        """Note that *host* has *count* fewer requests to make."""
        entry = self._hosts[host]
        entry.count -= count
        if entry.count <= 0:
            self._leave(entry)
            del self._hosts[host]
        elif entry.due is None:
            self._wait(host, entry, self.due(host))

    def next(self, now: float, *, idle: bool = True) -> str | None:
        """The host to send the next request to; None where none is due. It stays on the agenda.

        *idle*: whether no other work is left off the agenda, so that hosts that go last may go.
        """
        # A call of _wake moves some hosts only, and a ready host may turn out not to be due.
        while self._wake(now) or self._occupied:
            while self._occupied:
                bucket = self._occupied.bit_length() - 1
                host = self._ready[bucket][-1]
                if bucket > _LAST and self.last(host):
                    self._move(host, self._hosts[host], _LAST)
                elif (due := self.due(host)) > now:
                    self._wait(host, self._hosts[host], due)
                elif bucket > _LAST or (idle and len(self._ready[_LAST]) == len(self._hosts)):
                    return host
                elif not self._wake(now):
                    return None
        return None

    def nudge(self, host: str) -> None:
        """Look up the due time of *host* again: a request to it has just ended."""
        entry = self._hosts.get(host)
        if entry is not None and entry.due is not None:
            self._wait(host, entry, self.due(host))

    def next_due(self) -> float | None:
        """The earliest time at which a waiting host may be due; None where none waits."""
        while self._waiting and self._waiter(*self._waiting[0]) is None:
            heapq.heappop(self._waiting)
        return self._waiting[0][0] if self._waiting else None

    def _waiter(self, due: float, host: str) -> _Entry | None:
        """The entry of *host*, if it still waits for this *due* and not for another time."""
        entry = self._hosts.get(host)
        return entry if entry is not None and entry.due == due else None

    def _wake(self, now: float) -> bool:
        """Move hosts whose time has come from waiting to ready; whether any time had come."""
        woken = False
        for _ in range(_MOVES_PER_CALL):
            if not self._waiting or self._waiting[0][0] > now:
                break
            due, host = heapq.heappop(self._waiting)
            entry = self._waiter(due, host)
            if entry is not None:
                entry.due = None
                self._place(host, entry, now)
            woken = True
        return woken

    def _place(self, host: str, entry: _Entry, now: float) -> None:
        """Make *host* ready if it is due at *now*; else have it wait."""
        due = self.due(host)
        if due <= now:
            self._stand(host, entry)
        else:
            self._wait(host, entry, due)

    def _wait(self, host: str, entry: _Entry, due: float) -> None:
        """Have *host* wait until *due*; for infinity, until :meth:`nudge` is called for it."""
        self._leave(entry)
        if entry.due != due < math.inf:
            heapq.heappush(self._waiting, (due, host))
        entry.due = due

    def _stand(self, host: str, entry: _Entry) -> None:
        """Make *host* ready, in the bucket for the work that it has left."""
        bucket = _bucket(entry.count * self.interval(host))
        if bucket != entry.bucket:
            self._move(host, entry, bucket)

    def _move(self, host: str, entry: _Entry, bucket: int) -> None:
        self._leave(entry)
        hosts = self._ready.setdefault(bucket, [])
        entry.bucket, entry.place = bucket, len(hosts)
        hosts.append(host)
        self._occupied |= 1 << bucket

    def _leave(self, entry: _Entry) -> None:
        """Take a host out of its bucket. The last host of that bucket gets its place."""
        if entry.bucket < 0:
            return
        hosts = self._ready[entry.bucket]
        last = hosts.pop()
        if entry.place < len(hosts):
            hosts[entry.place] = last
            self._hosts[last].place = entry.place
        if not hosts:
            self._occupied &= ~(1 << entry.bucket)
        entry.bucket = -1
