"""R4: which host gets the next request.

A process sends one request at a time. As long as any host is due, one should be under way, or the
crawl takes longer than politeness demands. Among the hosts that are due, the one with the most work
left (number of requests x interval, in seconds) goes first, since it decides when the crawl can
end. Three rules serve this where hosts have Crawl-delays (D30):

- *Robots.txt early.* A host that was never requested counts with an assumed interval, so its
  robots.txt is fetched while it is not too late for a Crawl-delay in it.
- *Then the host is ranked again.* The target that the robots.txt was fetched for gives way: it goes
  back to the queue, so that a host turns out to be quick behind those that are slow.
- *The longest host does not wait for the wire.* If it will be due in a moment, nothing else is
  begun, as an exchange cannot be broken off. This holds only while its work left is more than the
  time that all requests take, else the wire decides when the crawl ends, and must not be idle.

How it works:

- Hosts that are not due *wait* in a heap, ordered by due time.
- Hosts that are due are *ready*. They are in buckets by their work left, sixteen buckets for each
  doubling of it. The bits of one integer say which buckets have hosts, so the highest is found at
  once.
- So adding a request or finding the next host costs at most the logarithm of the number of hosts.
- A due time may become later while its host waits (R5), and the host tells nobody. So it is
  looked up again before the host is given out: an entry may be too early, but never too late.
- An entry of the heap that is out of date stays there until it comes up, and is then dropped.
- A host that has just had a request waits again, so the buckets have only hosts that were due.
- A host that goes *last* (D13, D31) is put into the lowest bucket when its turn has come, and is
  given out when only such hosts are on the agenda. Whether a host still goes last is looked up at
  each turn.
- What failed and is sent again (R5) counts with the seconds that its retries may still take: a
  chain of retries that begins when all else is done makes the crawl longer by all of it.
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
#: The most hosts that one call moves from waiting to ready, so that no pop takes long.
_MOVES_PER_CALL: Final = 64
#: Requests that may wait before no more are taken in, once so many hosts have waited at a time.
ENOUGH_REQUESTS: Final = 100_000
ENOUGH_HOSTS: Final = 1_000
#: Seconds that stand for the interval of a host that was never requested. Most robots.txt files
#: have no Crawl-delay, and most others ask for 5 or 10 s.
ASSUMED_INTERVAL: Final = 5.0
#: The most hosts whose first target has given way and still waits.
GIVEN_WAY: Final = 32
#: The most seconds for which the wire is kept free for the longest host, before each request to it.
#: That is done while its work left is longer than all requests would take at as many seconds each.
MOMENT: Final = 0.15


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
    """A ``host`` with ``count`` requests. It is ready, in ``bucket`` at ``place``, or waits.

    ``bucket``: -1 while it waits. ``due``: until when it waits; None while it is ready. ``last``:
    what ``Host.goes_last`` was when it was looked up.
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
    ``_occupied``: bit n is set where bucket n has hosts. ``_ahead``: the hosts whose first target
    has given way. ``_longest``: of the hosts that wait, or did, the one with most work left.
    ``_lasts``: how many hosts go last.
    ``now`` of the methods: monotonic seconds.
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
        """Whether the target goes back for which the robots.txt of a host was fetched.

        If so, the caller adds it again. The last target of a host does not: no work is left that
        its interval decides about.
        """
        if key not in self._hosts or len(self._ahead) >= GIVEN_WAY:
            return False
        self._ahead.add(key)
        return True

    def next(self, now: float, idle: Callable[[], bool] = lambda: True) -> Host | None:
        """The host to send the next request to; None for none until :meth:`next_due`.

        It stays on the agenda. *idle*: whether no other work is left off the agenda, so that hosts
        that go last may go.
        """
        # A call of _wake moves some hosts only, and a ready host may turn out not to be due.
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
        """Look up the due time of a host again: a request to it has just ended.

        Returns the host; None where it is not on the agenda.
        """
        entry = self._hosts.get(key)
        if entry is None:
            return None
        if entry.due is not None:
            self._wait(entry, entry.host.turn(now), now)
        return entry.host

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
            entry = self._waiter(*heapq.heappop(self._waiting))
            if entry is not None:
                entry.due = None
                self._place(entry, now)
            woken = True
        return woken

    def _place(self, entry: _Entry, now: float) -> None:
        """Make a host ready if it is due at *now*; else have it wait."""
        due = entry.host.turn(now)
        if due <= now:
            self._stand(entry)
        else:
            self._wait(entry, due, now)

    def _wait(self, entry: _Entry, due: float, now: float) -> None:
        """Have a host wait until *due*; for infinity, until :meth:`nudge` is called for it."""
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
