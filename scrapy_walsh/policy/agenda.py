"""R4: which host gets the next request.

A process sends one request at a time. While a host is due, a request should be under way; otherwise
the crawl takes longer than politeness demands. If several hosts are due, the host with the most
work left goes first, because it decides when the crawl can end. Work left is the number of requests
times the interval, in seconds. Three rules help when hosts have Crawl-delays (D30):

- *Robots.txt early.* A host that was never requested counts with an assumed interval. So its
  robots.txt is fetched early, in case it has a Crawl-delay.
- *Then the host is ranked again.* The target that the robots.txt was fetched for gives way: it goes
  back to the queue. So if the host is quick, slow hosts go before it.
- *The longest host does not wait for the wire.* If it will be due in a moment, no other request
  begins, because an exchange cannot be broken off. This holds only while its work left exceeds the
  time that all requests take. Otherwise the wire decides when the crawl ends, and must not be idle.

How it works:

- Hosts that are not due *wait* in a heap, ordered by due time.
- Hosts that are due are *ready*. They are in buckets by their work left, sixteen buckets for each
  doubling of it. The bits of an integer say which buckets have hosts, so the highest bucket is
  found at once.
- So to add a request or find the next host costs at most the logarithm of the number of hosts.
- A due time may become later while its host waits, without a notice (R5). So it is looked up again
  before the host is given out. An entry may be too early, but never too late.
- An outdated entry of the heap stays until it comes up. Then it is dropped.
- After its request a host waits again. So the buckets have only hosts that were due.
- A host that goes *last* is put into the lowest bucket when it is due (D13, D31). It is given out
  when only such hosts are on the agenda. At each turn it is checked again whether the host still
  goes last.
- A failed request counts with the seconds that its retries may still take (R5). If a chain of
  retries began when all else is done, the crawl would take longer by the whole chain.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_walsh.policy.host import Host

_BUCKETS_PER_DOUBLING: Final = 16
#: The bucket of hosts that go last.
_LAST: Final = 0
#: The most hosts that a call moves from waiting to ready, so that no pop takes long.
_MOVES_PER_CALL: Final = 64
#: The queue takes in no more if so many requests wait, and so many hosts have waited at a time.
ENOUGH_REQUESTS: Final = 100_000
ENOUGH_HOSTS: Final = 1_000
#: Seconds that are assumed for a host that was never requested. Most robots.txt files have no
#: Crawl-delay, and most others ask for 5 or 10 s.
ASSUMED_INTERVAL: Final = 5.0
#: The most hosts that may have a first target which has given way and still waits.
GIVEN_WAY: Final = 32
#: The most seconds that the wire waits for the longest host, before each request to it. It waits
#: while this host's work left is longer than all requests take at as many seconds each.
MOMENT: Final = 0.15


def _bucket(work: float) -> int:
    """The number of the bucket for a host with *work* seconds left, which is at least 1 s."""
    return _LAST + 1 + (int(_BUCKETS_PER_DOUBLING * math.log2(work)) if work > 1 else 0)


@dataclass(frozen=True, slots=True)
class Load:
    """How much waits. ``hosts``: the most at one time. ``refused``: requests that are refused."""

    requests: int = 0
    hosts: int = 0
    refused: int = 0


def enough(load: Load) -> bool:
    """Whether no more requests should be taken in for now.

    With few hosts the order cannot be chosen well, so more are taken in until there are
    ``ENOUGH_HOSTS``. Refused requests have no order, and wait for nothing.
    """
    full = load.requests + load.refused >= ENOUGH_REQUESTS
    return full and (load.hosts >= ENOUGH_HOSTS or load.refused >= ENOUGH_REQUESTS)


@dataclass(slots=True)
class _Entry:
    """A ``host`` with ``count`` requests. It waits, or is ready in ``bucket`` at ``place``.

    ``bucket``: -1 while it waits. ``due``: the time until which it waits; None while it is ready.
    ``last``: the value of ``Host.goes_last`` at the last look.
    """

    host: Host
    count: int = 0
    bucket: int = -1
    place: int = -1
    due: float | None = None
    last: bool = False


@dataclass(slots=True)
class Agenda:
    """The hosts that have requests to make, ordered by who goes next.

    ``most``: the most hosts so far that had requests at one time. ``requests``: all that wait.
    ``_occupied``: bit n is set if bucket n has hosts. ``_ahead``: the hosts that have a first
    target which has given way. ``_longest``: the host with most work left that waits, or did.
    ``_lasts``: how many hosts go last. ``now`` of the methods: monotonic seconds.
    """

    most: int = 0
    requests: int = 0
    _hosts: dict[str, _Entry] = field(default_factory=dict)
    _waiting: list[tuple[float, str]] = field(default_factory=list)
    _ready: dict[int, list[_Entry]] = field(default_factory=dict)
    _occupied: int = 0
    _ahead: set[str] = field(default_factory=set)
    _longest: _Entry | None = None
    _lasts: int = 0

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
                + (entry.count - 1) * entry.host.traffic.interval
                for entry in self._hosts.values()
            ),
            default=0.0,
        )

    def add(self, host: Host, now: float, count: int = 1) -> None:
        """Note that *host* has *count* more requests to make."""
        entry = self._hosts.get(host.key)
        self.requests += count
        if entry is None:
            entry = self._hosts[host.key] = _Entry(host, count)
            self.most = max(self.most, len(self._hosts))
            self._place(entry, now)
            return
        entry.count += count
        if not self._goes_last(entry, now) and entry.due is None:
            self._stand(entry)

    def remove(self, host: Host, now: float, count: int = 1) -> None:
        """Note that *host* has *count* fewer requests to make."""
        entry = self._hosts[host.key]
        entry.count -= count
        self.requests -= count
        self._ahead.discard(host.key)
        if entry.count <= 0:
            self._leave(entry)
            self._lasts -= entry.last
            del self._hosts[host.key]
        elif entry.due is None:
            self._wait(entry, host.turn(now), now)

    def gives_way(self, key: str) -> bool:
        """Whether the target that a host's robots.txt was fetched for goes back to the queue.

        If so, the caller adds it again. A host's only target does not go back, because no other
        work depends on the interval.
        """
        if key not in self._hosts or len(self._ahead) >= GIVEN_WAY:
            return False
        self._ahead.add(key)
        return True

    def next(self, now: float, idle: Callable[[], bool] = lambda: True) -> Host | None:
        """The host to send the next request to; None if there is none until :meth:`next_due`.

        It stays on the agenda. *idle*: whether there is no other work than the agenda's, so that
        hosts that go last may go.
        """
        # _wake moves only some hosts, and a ready host may no longer be due.
        while self._wake(now) or self._occupied:
            while self._occupied:
                bucket = self._occupied.bit_length() - 1
                entry = self._ready[bucket][-1]
                if self._goes_last(entry, now) != (bucket == _LAST):
                    self._move(entry, _LAST if entry.last else _bucket(_work(entry)))
                elif (due := entry.host.turn(now)) > now:
                    self._wait(entry, due, now)
                elif not entry.last or (self._lasts == len(self._hosts) and idle()):
                    return None if self._keeps_free(entry, now) else entry.host
                elif not self._wake(now):
                    return None
        return None

    def _keeps_free(self, entry: _Entry, now: float) -> bool:
        """Whether *entry*, which is due, waits because the longest host is due in a moment."""
        longest = self._longest
        if (
            longest is None
            or longest.last
            or longest.due is None
            or not now < longest.due <= now + MOMENT
        ):
            return False
        work = _work(longest)
        return work > _work(entry) and work > self.requests * MOMENT

    def nudge(self, key: str, now: float) -> Host | None:
        """Look up the due time of a host again, because a request to it has just ended.

        Returns the host, or None if it is not on the agenda.
        """
        entry = self._hosts.get(key)
        if entry is None:
            return None
        if entry.due is not None:
            self._wait(entry, entry.host.turn(now), now)
        return entry.host

    def next_due(self) -> float | None:
        """The earliest time when a waiting host may be due; None if no host waits."""
        while self._waiting and self._waiter(*self._waiting[0]) is None:
            heapq.heappop(self._waiting)
        return self._waiting[0][0] if self._waiting else None

    def _waiter(self, due: float, host: str) -> _Entry | None:
        """The entry of *host*, if it still waits for this *due* and not for another time."""
        entry = self._hosts.get(host)
        return entry if entry is not None and entry.due == due else None

    def _wake(self, now: float) -> bool:
        """Move waiting hosts that are due to ready. Returns whether a due time had come."""
        woken = False
        for _ in range(_MOVES_PER_CALL):
            if not self._waiting or self._waiting[0][0] > now:
                break
            entry = self._waiter(*heapq.heappop(self._waiting))
            if entry is not None:
                entry.due = None
                self._place(entry, now)
            woken = True
        return woken

    def _place(self, entry: _Entry, now: float) -> None:
        """Make a host ready if it is due at *now*; otherwise it waits."""
        due = entry.host.turn(now)
        if due <= now:
            self._stand(entry)
        else:
            self._wait(entry, due, now)

    def _wait(self, entry: _Entry, due: float, now: float) -> None:
        """Let a host wait until *due*. If that is infinite, it waits until :meth:`nudge`."""
        self._leave(entry)
        if entry.due != due < math.inf:
            heapq.heappush(self._waiting, (due, entry.host.key))
        entry.due = due
        most_work = 0.0 if self._longest is None or self._longest.last else _work(self._longest)
        if not self._goes_last(entry, now) and _work(entry) > most_work:
            self._longest = entry

    def _goes_last(self, entry: _Entry, now: float) -> bool:
        """Look up whether a host goes last."""
        previous, entry.last = entry.last, entry.host.goes_last(now)
        self._lasts += entry.last - previous
        return entry.last

    def _stand(self, entry: _Entry) -> None:
        """Make a host ready, in the bucket for the work that it has left."""
        bucket = _bucket(_work(entry))
        if bucket != entry.bucket:
            self._move(entry, bucket)

    def _move(self, entry: _Entry, bucket: int) -> None:
        self._leave(entry)
        hosts = self._ready.setdefault(bucket, [])
        entry.bucket, entry.place = bucket, len(hosts)
        hosts.append(entry)
        self._occupied |= 1 << bucket

    def _leave(self, entry: _Entry) -> None:
        """Take a host out of its bucket. The last host of that bucket gets its place."""
        if entry.bucket < 0:
            return
        hosts = self._ready[entry.bucket]
        moved_entry = hosts.pop()
        if entry.place < len(hosts):
            hosts[entry.place] = moved_entry
            moved_entry.place = entry.place
        if not hosts:
            self._occupied &= ~(1 << entry.bucket)
        entry.bucket = -1


def _work(entry: _Entry) -> float:
    """Seconds of work that a host has left."""
    traffic = entry.host.traffic
    interval = traffic.interval if traffic.seen else max(traffic.interval, ASSUMED_INTERVAL)
    return entry.count * interval + entry.host.retries_left()
