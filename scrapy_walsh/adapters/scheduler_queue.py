"""R4: the scheduler's queue, in which requests wait until their host is due (D18).

``policy/agenda.py`` says which host is next; the requests of each host are kept in order beside it.
Where no host is due, ``pop`` returns None, and a timer wakes Scrapy's engine at the next due time.
A request that the gates refuse already does not wait: it is given out at once and ends at the gate.
With a JOBDIR, the requests are in one SQLite file, whatever the number of hosts.

A request for a URL that `Spider.start` may still declare is parked: it waits here until ``start``
has ended, or has yielded nothing for a while, and is then taken in like any other. So is one whose
source was sent almost an hour ago, until the hour is over (R8).
"""

from __future__ import annotations

import contextlib
import hashlib
import heapq
import itertools
import math
from collections import deque
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, cast

from scrapy import signals
from scrapy.utils.misc import build_from_crawler, load_object

from scrapy_walsh.adapters import compat, plugins, seats
from scrapy_walsh.adapters.crawl import Crawl
from scrapy_walsh.adapters.disk_lines import DiskLines
from scrapy_walsh.adapters.events import logger
from scrapy_walsh.adapters.outcomes import Closing
from scrapy_walsh.exceptions import StateError
from scrapy_walsh.policy.agenda import Agenda, Load
from scrapy_walsh.policy.chain import ROBOTS, START, NeedDocument
from scrapy_walsh.policy.scope import Digests
from scrapy_walsh.policy.urls import canonical_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from scrapy import Request
    from scrapy.crawler import Crawler

    from scrapy_walsh.adapters.context import Earlier
    from scrapy_walsh.adapters.ticket import Ticket
    from scrapy_walsh.policy.host import Host
    from scrapy_walsh.policy.verdict import Verdict

_P = ParamSpec("_P")
_T = TypeVar("_T")
#: Rank; negated priority, or since when it is deferred; order of arrival.
Key = tuple[int, int, int]

#: Ranks: retries and requests that came back; what earlier runs deferred; all others.
_FIRST, _PUT_OFF, _OTHERS = 0, 1, 2
#: The most requests that wait for the end of `Spider.start`; further ones are judged at once.
_PARKED: Final = 10_000
#: Requests that one pop takes in of those, and hosts of an earlier run that it looks at.
_AT_ONCE: Final = 64


class MemoryLines:
    """The requests of each host, in memory, in the order in which they go."""

    def __init__(self) -> None:
        self._lines: dict[str, list[tuple[Key, Request]]] = {}

    def check(self, request: Request) -> None:
        """Nothing: any request can be kept."""

    #: Whether another process finds what this one has not sent.
    is_lasting = False

    def push(self, host: str, key: Key, request: Request) -> None:
        """Add *request* to *host*'s queue."""
        heapq.heappush(self._lines.setdefault(host, []), (key, request))

    def pop(self, host: str) -> Request | None:
        """Take the first request of *host*'s queue."""
        line = self._lines[host]
        request = heapq.heappop(line)[1]
        if not line:
            del self._lines[host]
        return request

    def first(self, host: str) -> str | None:
        """The URL that is first in *host*'s queue; None where nothing waits."""
        line = self._lines.get(host)
        return line[0][1].url if line else None

    def take(self, host: str, refused: Callable[[str], bool]) -> list[Request]:
        """Take out every request of *host* for whose URL *refused* is true."""
        kept: list[tuple[Key, Request]] = []
        out: list[tuple[Key, Request]] = []
        for entry in self._lines.pop(host, []):
            (out if refused(entry[1].url) else kept).append(entry)
        if kept:
            heapq.heapify(kept)
            self._lines[host] = kept
        return [request for _, request in sorted(out)]

    def counts(self) -> Iterable[tuple[str, int]]:
        """Hosts, and how many requests wait for each."""
        return ((host, len(line)) for host, line in self._lines.items())

    def stands_for(self, request: Request) -> bool:  # noqa: ARG002
        """False: memory has nothing of an earlier run."""
        return False

    def sources(self) -> Iterable[Earlier]:
        """Empty: memory has nothing of an earlier run."""
        return ()

    def close(self) -> None:
        """Nothing to close."""


def ends_crawl(method: Callable[_P, _T]) -> Callable[_P, _T | None]:
    """*method* of a queue; where it raises, the crawl ends (``Context.fail``).

    Its callers are Scrapy's engine and the turnstile: they would drop what it raises, and what it
    should have moved on would wait for ever. ValueError, which Scrapy's scheduler knows, is raised.
    """

    @wraps(method)
    def called(*args: _P.args, **kwargs: _P.kwargs) -> _T | None:
        try:
            return method(*args, **kwargs)
        except (ValueError, Closing):
            raise
        except Exception as error:
            cast("HostQueue", args[0])._crawl.fail(error)
            return None

    return called


def refuses(answer: Verdict | NeedDocument) -> bool:
    """Whether a gate refuses a request already, by the documents that are cached."""
    return not (isinstance(answer, NeedDocument) or answer.allowed)


class DueRequests:
    """What the queue of a crawl and that of a fleet have in common: what waits for no host's time.

    ``_free``: what a gate refuses waits for nothing. ``_soon``: what waits for the end of an hour
    (R8), and when that is, by the monotonic clock. ``counted``: the stats in which its scheduler
    counts what it gives out.
    """

    counted: tuple[str, ...] = ()

    def __init__(self, crawl: Crawl) -> None:
        self._crawl = crawl
        self._free: deque[Request] = deque()
        self._soon: list[tuple[float, int, Request]] = []
        self._arrivals = itertools.count(1)
        self._timer = compat.Timer(lambda: compat.wake_engine(crawl.crawler))
        self._closed = False
        crawl.stops.append(self.stop)

    def stop(self) -> None:
        """Cancel all timers: the engine is not woken any more."""
        self._closed = True
        self._timer.cancel()

    def _wait_for(self, request: Request, ticket: Ticket, left: float) -> None:
        """Keep *request* for *left* seconds: then the hour of its source is over (R8)."""
        if not self._soon:
            logger.info("%s may be sent in %.0f s: the run waits for that (R8)", ticket.url, left)
        ticket.verdict = ticket.hour_left = None
        due = self._crawl.monotonic() + left
        heapq.heappush(self._soon, (due, next(self._arrivals), request))

    def _hour_over(self) -> Request | None:
        """A request whose hour is over; None while there is none."""
        if self._soon and self._soon[0][0] <= self._crawl.monotonic():
            return heapq.heappop(self._soon)[2]
        return None

    def _settle(self) -> None:
        """Look at the requests whose callbacks have ended since the last look (R7, R8)."""
        crawl = self._crawl
        under_way = compat.under_way(crawl.crawler)
        crawl.sources.settle(under_way)
        crawl.delivery.settle(under_way)

    def _popped(self, request: Request) -> Request:
        self._crawl.tickets.of(request).queue = self
        return request

    def take_back(self, request: Request) -> None:
        """Take in *request*, which this queue gave out; it counts once among what was."""
        for name in self.counted:
            if self._crawl.crawler.stats.get_value(name):
                self._crawl.crawler.stats.inc_value(name, -1)
        try:
            self.push(request)
        except ValueError as error:  # a middleware has put into it what this queue cannot keep
            queues: list[Any] = self._crawl.queues
            others = [queue for queue in queues if queue is not self]
            if others:
                others[0].push(request)
                return
            line = f"{request.url} could not be queued again, and will not be sent: {error}"
            self._crawl.recorder.own_fault(line)

    def push(self, request: Request) -> None:
        """Take *request* in; ValueError where it cannot be kept."""
        raise NotImplementedError


class HostQueue(DueRequests):
    """Gives out a request when its host is due; ``policy/agenda.py`` says which host goes first.

    ``context.Queue`` says what the crawl asks of it.

    Within a host: retries first, then what earlier runs deferred, the earliest first, then by
    ``request.priority``, then by arrival.
    """

    @classmethod
    def from_crawler(cls, crawler: Crawler, *, key: str, **_: object) -> HostQueue:
        """Called by Scrapy's scheduler; *key* is the JOBDIR's folder, "" for memory.

        What else it names is the queue of each host, which we keep no file for.
        """
        return cls(Crawl.of(crawler), key)

    def __init__(self, crawl: Crawl, key: str = "") -> None:
        self._lines: MemoryLines | DiskLines = (
            DiskLines(key, crawl, crawl.intake, crawl.job) if key else MemoryLines()
        )
        super().__init__(crawl)
        self.counted = ("scheduler/dequeued", f"scheduler/dequeued/{'disk' if key else 'memory'}")
        crawl.queues.append(self)
        self._free_turn = False
        #: Requests that wait for the end of `Spider.start`.
        self._parked: deque[Request] = deque()
        self._agenda = Agenda()
        self.gives_way = self._agenda.gives_way
        #: What earlier runs of the job left. `Spider.start` names it once more when the job goes
        #: on: each stands for one request that it names.
        self.earlier, self.stands_for = self._lines.sources, self._lines.stands_for
        #: Hosts that :meth:`ahead` has looked at.
        self._ahead: set[str] = set()
        #: Hosts with requests of an earlier run. From the first pop on they are ranked by what is
        #: stored of them (D30), and that they wait is recorded.
        self._resumed: list[str] = []
        self._timer_due = math.inf
        for host, count in self._lines.counts():
            self._agenda.add(crawl.pacing.named(host), crawl.monotonic(), count)
            self._resumed.append(host)

    def __len__(self) -> int:
        return self._agenda.requests + len(self._free) + len(self._parked) + len(self._soon)

    @ends_crawl
    def push(self, request: Request) -> None:
        """Take *request* in; ValueError where it cannot be kept on disk."""
        if "@" in request.url:
            request = self._crawl.intake.request(request)
        if self._crawl.halted is not None:  # the store may be closed by now
            self._free.append(request)
            return
        ticket = self._crawl.tickets.of(request)
        answer = self._crawl.gate.at_queue(ticket)
        if isinstance(answer, NeedDocument) and answer.kind == START:
            self._park(request, ticket)
        elif not refuses(answer):
            self._keep(request, ticket)
            self._agenda.add(ticket.host, self._crawl.monotonic())
            self._tell_wait(ticket.host)
        elif ticket.hour_left is None:
            self._free.append(request)
        else:
            self._wait_for(request, ticket, ticket.hour_left)

    def _keep(self, request: Request, ticket: Ticket) -> None:
        """Add *request* to its host's line; ValueError as for :meth:`push`."""
        self._lines.push(ticket.host.key, self._key(request, ticket), request)
        if self._lines.is_lasting:
            self._crawl.delivery.link_ended(ticket.key)

    def _park(self, request: Request, ticket: Ticket) -> None:
        """Keep *request* for the end of `Spider.start`; ValueError as for :meth:`push`."""
        if len(self._parked) < _PARKED:
            self._lines.check(request)
            self._parked.append(request)
            return
        ticket.late = True
        self._free.append(request)

    def _unpark(self) -> None:
        """Take in some of what waited for the end of `Spider.start`, once that has ended.

        Or once it has yielded nothing for a while: it may be what waits here that `start` waits
        for. Then that is judged by what has been declared so far (R6).
        """
        growing = self._crawl.scope.growing
        if not self._parked or (growing and not self._crawl.intake.stalled()):
            return
        for _ in range(min(_AT_ONCE, len(self._parked))):
            request = self._parked.popleft()
            if growing:
                self._crawl.tickets.of(request).late = True
            self._crawl.sources.adopt(request)
            self.push(request)

    def load(self) -> Load:
        """How much waits, without what waits for the end of `Spider.start`."""
        return Load(self._agenda.requests, self._agenda.most, len(self._free))

    def outlook(self) -> tuple[int, int, float]:
        due, now = self._agenda.ready(), self._crawl.monotonic()
        return due, len(self._agenda) - due, self._agenda.seconds_left(now)

    @ends_crawl
    def ahead(self) -> str | None:
        host = None if self._closed else self._agenda.next(self._crawl.monotonic(), self._idle)
        if host is None or host.key in self._ahead or (url := self._lines.first(host.key)) is None:
            return None
        self._ahead.add(host.key)  # refused or not: it is judged once
        answer = self._crawl.gate.judge(url, runs=False)
        # Whom the list refuses is not asked for its name either.
        may = answer.kind == ROBOTS if isinstance(answer, NeedDocument) else answer.allowed
        return host.key if may else None

    @ends_crawl
    def pop(self) -> Request | None:
        """The request to send now; None where no host is due: the engine is woken later."""
        self._settle()
        for _ in range(min(_AT_ONCE, len(self._resumed))):
            self._tell_wait(self._crawl.pacing.host(self._resumed.pop()))
        self._unpark()
        while (request := self._hour_over()) is not None:
            self.push(request)
        self._free_turn = not self._free_turn
        for _ in range(_AT_ONCE):
            now, free_first = self._crawl.monotonic(), self._free and self._free_turn
            host = None if free_first else self._agenda.next(now, self._idle)
            if host is None:
                if self._free:
                    return self._popped(self._free.popleft())
                self._wake_later()
                return None
            if not host.known:  # an earlier run's: with what is stored of it, it may not be due
                self._crawl.pacing.host(host.key)
                continue
            request = self._lines.pop(host.key)
            self._agenda.remove(host, now)
            if request is not None:
                return self._popped(request)
        self._timer.set(0)  # so many could not be read, or were not due: let others run
        return None

    def _idle(self) -> bool:
        """Whether neither `start` nor a request that was given out may bring work of its own."""
        crawl = self._crawl
        return not (compat.under_way(crawl.crawler) or self._parked or crawl.pacing.taking_in())

    def close(self) -> list[int]:
        """Close the file, if there is one; what waited in it stays there."""
        self.stop()
        try:
            self._parked.extend(request for _, _, request in self._soon)
            self._soon.clear()
            while self._free or self._parked:
                request = (self._free or self._parked).popleft()
                with contextlib.suppress(ValueError):  # not serialisable, and refused anyway
                    self._keep(request, self._crawl.tickets.of(request))
            self._lines.close()
        except StateError as error:
            compat.forget_unwritten(self._crawl.crawler)
            self._crawl.recorder.own_fault(str(error))
        return []

    @ends_crawl
    def nudge(self, host: str) -> None:
        """An exchange with *host* has ended, in any crawl: look at its due time again."""
        if self._closed:
            return
        nudged = self._agenda.nudge(host, self._crawl.monotonic())
        self._wake_later()
        if nudged is not None:
            self._tell_wait(nudged)

    def _tell_wait(self, host: Host) -> None:
        self._crawl.pacing.tell_wait(host, lambda: self._lines.first(host.key))

    @ends_crawl
    def judge_again(self, host: str) -> None:
        """A document about *host* has come: give out what it refuses, which need not wait."""
        if refused := self._lines.take(host, lambda url: refuses(self._crawl.gate.judge(url))):
            now = self._crawl.monotonic()
            self._agenda.remove(self._crawl.pacing.host(host), now, len(refused))
            self._free.extend(refused)

    def _key(self, request: Request, ticket: Ticket) -> Key:
        arrival = next(self._arrivals) * (-1 if ticket.given_back else 1)
        if ticket.first:
            return (_FIRST, -request.priority, arrival)
        since = self._crawl.sources.deferrals.since(ticket.key)
        if since is not None:
            return (_PUT_OFF, int(since), arrival)
        return (_OTHERS, -request.priority, arrival)

    def _wake_later(self) -> None:
        """Wake the engine when the next host is due, or an hour is over, so that it pops again."""
        due, over = self._agenda.next_due(), self._soon[0][0] if self._soon else math.inf
        due = over if due is None else min(due, over)
        set_already = self._timer.pending is not None and self._timer_due <= due
        if due < math.inf and not set_already:
            self._timer_due = due
            self._timer.set(due - self._crawl.monotonic())


class Fingerprinter:
    """R7: two requests are the same if method, canonical URL (spec section 10.2) and body are."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Fingerprinter:
        """Make the seat. Scrapy makes it first of all, before extensions: it needs no crawl."""
        seats.check(crawler)
        named = plugins.packages(crawler.settings)
        paths = [path for name, path in plugins.FINGERPRINTERS.items() if name in named]
        made = cls([build_from_crawler(load_object(path), crawler) for path in paths])
        if paths:
            crawler.signals.connect(made._dropped, signals.request_dropped)
        return made

    def __init__(self, others: Sequence[Any] = ()) -> None:
        self._others = others
        #: By fingerprint, an octet of what the others make of the first such request.
        self._firsts = Digests()

    def fingerprint(self, request: Request) -> bytes:
        """SHA-1 over method, canonical URL and body."""
        found = self._fingerprint(request)
        if self._others and self._firsts.mark(found.hex()) is None:
            self._firsts.add(found.hex(), self._of_others(request))
        return found

    def _of_others(self, request: Request) -> int:
        try:
            return int(sum(each.fingerprint(request)[0] for each in self._others)) % 256
        except Exception:  # of a plugin's: what follows says it where the request is used
            return 0

    def _dropped(self, request: Request) -> None:
        first = self._firsts.mark(self.fingerprint(request).hex())
        if self._others and first != self._of_others(request):
            self._others = ()
            logger.warning(
                "%s is filtered, and so is each like it: it was requested before, for another page "
                "object or with other page_params, and one URL is requested once (R7): let one "
                "callback have all of its page objects",
                request.url,
            )

    def _fingerprint(self, request: Request) -> bytes:
        digest = hashlib.sha1(usedforsecurity=False)
        for part in (request.method.encode(), canonical_url(request.url).encode(), request.body):
            digest.update(b"%d:" % len(part))
            digest.update(part)
        return digest.digest()
