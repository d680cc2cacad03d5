"""The scheduler's queue, in which requests wait until their host is due (R4, D18).

``policy/agenda.py`` decides which host is next. The requests of each host are kept in order. If no
host is due, ``pop`` returns None, and a timer wakes Scrapy's engine at the next due time. If the
gates refuse a request already, it does not wait: it is given out at once, and ends at the gate.
With a JOBDIR, the requests of all hosts are in one SQLite file.

If `Spider.start` may still declare a URL, its request is parked until ``start`` has ended, or has
yielded nothing for a while. If a source was sent almost an hour ago, its request waits until the
hour is over (R8).
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
#: Rank; negated priority, or the time of the deferral; order of arrival.
Key = tuple[int, int, int]

#: Ranks: retries and returned requests; requests that earlier runs deferred; all others.
_FIRST, _PUT_OFF, _OTHERS = 0, 1, 2
#: The most parked requests. Further ones are judged at once.
_PARKED: Final = 10_000
#: The most parked requests and resumed hosts that a pop handles.
_AT_ONCE: Final = 64


class MemoryLines:
    """The requests of each host in memory, in sending order."""

    def __init__(self) -> None:
        self._lines: dict[str, list[tuple[Key, Request]]] = {}

    def check(self, request: Request) -> None:
        """Do nothing, because memory can keep any request."""

    #: Whether another process can send the remaining requests.
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
        """Return the first URL in *host*'s queue, or None."""
        line = self._lines.get(host)
        if line:
            return line[0][1].url
        return None

    def take(self, host: str, is_refused: Callable[[str], bool]) -> list[Request]:
        """Take out all requests of *host* if *is_refused* of their URL is true."""
        staying: list[tuple[Key, Request]] = []
        leaving: list[tuple[Key, Request]] = []
        for entry in self._lines.pop(host, []):
            if is_refused(entry[1].url):
                leaving.append(entry)
            else:
                staying.append(entry)
        if staying:
            heapq.heapify(staying)
            self._lines[host] = staying
        return [request for _, request in sorted(leaving)]

    def counts(self) -> Iterable[tuple[str, int]]:
        """Return each host and the number of its requests."""
        return ((host, len(line)) for host, line in self._lines.items())

    def stands_for(self, request: Request) -> bool:  # noqa: ARG002
        """Return False, because memory has no requests of earlier runs."""
        return False

    def sources(self) -> Iterable[Earlier]:
        """Return nothing, because memory has no requests of earlier runs."""
        return ()

    def close(self) -> None:
        """Do nothing."""


def ends_crawl(method: Callable[_P, _T]) -> Callable[_P, _T | None]:
    """Decorate a *method* of a queue: if it raises, the crawl ends (``Context.fail``).

    Scrapy's engine and the turnstile call it. They would drop the exception, and requests would
    wait for ever. Only ValueError is passed on, because Scrapy's scheduler handles it.
    """

    @wraps(method)
    def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> _T | None:
        try:
            return method(*args, **kwargs)
        except (ValueError, Closing):
            raise
        except Exception as error:
            cast("HostQueue", args[0])._crawl.fail(error)
            return None

    return wrapper


def refuses(answer: Verdict | NeedDocument) -> bool:
    """Whether a gate refuses the request by cached documents."""
    return not (isinstance(answer, NeedDocument) or answer.allowed)


class DueRequests:
    """The common part of the crawl's and the fleet's queue: requests that wait for no host.

    ``_free``: requests that a gate refuses, which do not wait. ``_soon``: requests that wait for
    the end of an hour (R8), with that time in monotonic seconds. ``counted``: the stats in which
    the scheduler counts given-out requests.
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
        """Cancel all timers, so that the engine is not woken any more."""
        self._closed = True
        self._timer.cancel()

    def _wait_for(self, request: Request, ticket: Ticket, seconds: float) -> None:
        """Keep *request* for *seconds*, until the hour of its source is over (R8)."""
        if not self._soon:
            logger.info(
                "%s may be sent in %.0f s: the run waits for that (R8)", ticket.url, seconds
            )
        ticket.verdict = ticket.hour_left = None
        due = self._crawl.monotonic() + seconds
        heapq.heappush(self._soon, (due, next(self._arrivals), request))

    def _pop_after_hour(self) -> Request | None:
        """Return a request if its hour is over, else None."""
        if self._soon and self._soon[0][0] <= self._crawl.monotonic():
            return heapq.heappop(self._soon)[2]
        return None

    def _settle_ended(self) -> None:
        """Settle the requests whose callbacks have ended meanwhile (R7, R8)."""
        crawl = self._crawl
        under_way = compat.under_way(crawl.crawler)
        crawl.sources.settle(under_way)
        crawl.delivery.settle(under_way)

    def _give_out(self, request: Request) -> Request:
        self._crawl.tickets.of(request).queue = self
        return request

    def take_back(self, request: Request) -> None:
        """Take *request* back. It must count only once as given out."""
        for name in self.counted:
            if self._crawl.crawler.stats.get_value(name):
                self._crawl.crawler.stats.inc_value(name, -1)
        try:
            self.push(request)
        except ValueError as error:  # a middleware has added something that cannot be serialised
            queues: list[Any] = self._crawl.queues
            other_queues = [queue for queue in queues if queue is not self]
            if other_queues:
                other_queues[0].push(request)
                return
            line = f"{request.url} could not be queued again, and will not be sent: {error}"
            self._crawl.recorder.own_fault(line)

    def push(self, request: Request) -> None:
        """Take *request* in. Raises ValueError if it cannot be kept."""
        raise NotImplementedError


class HostQueue(DueRequests):
    """Gives out a request when its host is due. ``policy/agenda.py`` orders the hosts.

    ``context.Queue`` describes its methods. The requests of a host go in this order: retries,
    requests that earlier runs deferred (the earliest first), then all others by
    ``request.priority`` and arrival.
    """

    @classmethod
    def from_crawler(cls, crawler: Crawler, *, key: str, **_: object) -> HostQueue:
        """Create the queue for Scrapy's scheduler. *key*: the folder in the JOBDIR, "" for memory.

        The other arguments are for queues of single hosts, which we do not need.
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
        #: Requests for URLs that `Spider.start` may still declare.
        self._parked: deque[Request] = deque()
        self._agenda = Agenda()
        self.gives_way = self._agenda.gives_way
        # Requests of earlier runs. When the job goes on, `Spider.start` yields them again, and each
        # old request replaces one new request.
        self.earlier = self._lines.sources
        self.stands_for = self._lines.stands_for
        #: Hosts that :meth:`ahead` has already handled.
        self._ahead: set[str] = set()
        #: Hosts with requests of an earlier run. Beginning with the first pop, their records are
        #: loaded to rank them (D30), and their waits are recorded.
        self._resumed: list[str] = []
        self._timer_due = math.inf
        for host, count in self._lines.counts():
            self._agenda.add(crawl.pacing.named(host), crawl.monotonic(), count)
            self._resumed.append(host)

    def __len__(self) -> int:
        return self._agenda.requests + len(self._free) + len(self._parked) + len(self._soon)

    @ends_crawl
    def push(self, request: Request) -> None:
        """Take *request* in. Raises ValueError if it cannot be stored on disk."""
        if "@" in request.url:
            request = self._crawl.intake.request(request)
        if self._crawl.halted is not None:  # the store may be closed already
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
        """Add *request* to its host's queue. Raises ValueError like :meth:`push`."""
        self._lines.push(ticket.host.key, self._key(request, ticket), request)
        if self._lines.is_lasting:
            self._crawl.delivery.link_ended(ticket.key)

    def _park(self, request: Request, ticket: Ticket) -> None:
        """Park *request* until `Spider.start` has ended. Raises ValueError like :meth:`push`."""
        if len(self._parked) < _PARKED:
            self._lines.check(request)
            self._parked.append(request)
            return
        ticket.late = True
        self._free.append(request)

    def _unpark(self) -> None:
        """Take in some parked requests if `Spider.start` has ended or stalls.

        If it stalls, it may be waiting for a parked request itself. Then parked requests are judged
        by the targets declared so far (R6).
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
        """Return the number of waiting requests, without parked ones."""
        return Load(self._agenda.requests, self._agenda.most, len(self._free))

    def outlook(self) -> tuple[int, int, float]:
        due = self._agenda.ready()
        now = self._crawl.monotonic()
        return due, len(self._agenda) - due, self._agenda.seconds_left(now)

    @ends_crawl
    def ahead(self) -> str | None:
        host = None if self._closed else self._agenda.next(self._crawl.monotonic(), self._idle)
        if host is None or host.key in self._ahead or (url := self._lines.first(host.key)) is None:
            return None
        self._ahead.add(host.key)  # it is judged only once
        answer = self._crawl.gate.judge(url, runs=False)
        # Do not resolve the name of a blocklisted host.
        may_resolve = answer.kind == ROBOTS if isinstance(answer, NeedDocument) else answer.allowed
        if may_resolve:
            return host.key
        return None

    @ends_crawl
    def pop(self) -> Request | None:
        """Return the request to send now.

        If no host is due, return None, and wake the engine later.
        """
        self._settle_ended()
        for _ in range(min(_AT_ONCE, len(self._resumed))):
            self._tell_wait(self._crawl.pacing.host(self._resumed.pop()))
        self._unpark()
        while (request := self._pop_after_hour()) is not None:
            self.push(request)
        self._free_turn = not self._free_turn
        for _ in range(_AT_ONCE):
            now = self._crawl.monotonic()
            host = None
            if not (self._free and self._free_turn):
                host = self._agenda.next(now, self._idle)
            if host is None:
                if self._free:
                    return self._give_out(self._free.popleft())
                self._wake_later()
                return None
            if not host.known:  # from an earlier run: its record may show that it is not due
                self._crawl.pacing.host(host.key)
                continue
            request = self._lines.pop(host.key)
            self._agenda.remove(host, now)
            if request is not None:
                return self._give_out(request)
        self._timer.set(0)  # let the event loop run, then try further requests
        return None

    def _idle(self) -> bool:
        """Whether no other work can come soon, from `start` or from a request under way."""
        crawl = self._crawl
        return not (compat.under_way(crawl.crawler) or self._parked or crawl.pacing.taking_in())

    def close(self) -> list[int]:
        """Close the file, if there is one. Waiting requests stay in it."""
        self.stop()
        try:
            self._parked.extend(request for _, _, request in self._soon)
            self._soon.clear()
            while self._free or self._parked:
                request = (self._free or self._parked).popleft()
                with contextlib.suppress(ValueError):  # it is refused anyway
                    self._keep(request, self._crawl.tickets.of(request))
            self._lines.close()
        except StateError as error:
            compat.forget_unwritten(self._crawl.crawler)
            self._crawl.recorder.own_fault(str(error))
        return []

    @ends_crawl
    def nudge(self, host: str) -> None:
        """Look at the due time of *host* again, after an exchange of any crawl."""
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
        """Judge the requests for *host* again after a new document; give out refused ones."""
        requests = self._lines.take(host, lambda url: refuses(self._crawl.gate.judge(url)))
        if requests:
            now = self._crawl.monotonic()
            self._agenda.remove(self._crawl.pacing.host(host), now, len(requests))
            self._free.extend(requests)

    def _key(self, request: Request, ticket: Ticket) -> Key:
        arrival = next(self._arrivals) * (-1 if ticket.given_back else 1)
        if ticket.first:
            return (_FIRST, -request.priority, arrival)
        since = self._crawl.sources.deferrals.since(ticket.key)
        if since is not None:
            return (_PUT_OFF, int(since), arrival)
        return (_OTHERS, -request.priority, arrival)

    def _wake_later(self) -> None:
        """Wake the engine when the next host is due, or the next hour is over."""
        due = self._soon[0][0] if self._soon else math.inf
        host_due = self._agenda.next_due()
        if host_due is not None:
            due = min(due, host_due)
        is_set = self._timer.pending is not None and self._timer_due <= due
        if due < math.inf and not is_set:
            self._timer_due = due
            self._timer.set(due - self._crawl.monotonic())


class Fingerprinter:
    """Two requests are the same if they have the same method, canonical URL and body (R7).

    Spec section 10.2 defines the canonical URL.
    """

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Fingerprinter:
        """Create the seat. It needs no crawl, because Scrapy creates it before all others."""
        seats.check(crawler)
        package_names = plugins.packages(crawler.settings)
        paths = [path for name, path in plugins.FINGERPRINTERS.items() if name in package_names]
        fingerprinter = cls([build_from_crawler(load_object(path), crawler) for path in paths])
        if paths:
            crawler.signals.connect(fingerprinter._on_dropped, signals.request_dropped)
        return fingerprinter

    def __init__(self, fingerprinters: Sequence[Any] = ()) -> None:
        self._fingerprinters = fingerprinters
        #: By fingerprint, an octet from the plugins' fingerprints of the first such request.
        self._first_marks = Digests()

    def fingerprint(self, request: Request) -> bytes:
        """Return the SHA-1 of method, canonical URL and body."""
        fingerprint = self._fingerprint(request)
        if self._fingerprinters and self._first_marks.mark(fingerprint.hex()) is None:
            self._first_marks.add(fingerprint.hex(), self._mark_of_plugins(request))
        return fingerprint

    def _mark_of_plugins(self, request: Request) -> int:
        try:
            return (
                int(
                    sum(
                        fingerprinter.fingerprint(request)[0]
                        for fingerprinter in self._fingerprinters
                    )
                )
                % 256
            )
        except Exception:  # a plugin's; it will raise again when the request is used
            return 0

    def _on_dropped(self, request: Request) -> None:
        first_mark = self._first_marks.mark(self.fingerprint(request).hex())
        if self._fingerprinters and first_mark != self._mark_of_plugins(request):
            self._fingerprinters = ()
            logger.warning(
                "%s is filtered, and so is each like it: it was requested before, for another page "
                "object or with other page_params, and one URL is requested once (R7): let one "
                "callback use all of its page objects",
                request.url,
            )

    def _fingerprint(self, request: Request) -> bytes:
        digest = hashlib.sha1(usedforsecurity=False)
        for part in (request.method.encode(), canonical_url(request.url).encode(), request.body):
            digest.update(b"%d:" % len(part))
            digest.update(part)
        return digest.digest()
