"""R4 for a fleet: the queue of scrapy-redis's scheduler, with due times by Redis's clock.

``SCHEDULER_QUEUE_CLASS = "scrapy_walsh.adapters.redis_queue.DueQueue"``. A worker claims a
request only of a host that is due, the one with most work left. Claiming is one atomic script, so
no two workers claim the same host within its interval. An entry that cannot be read is set aside.
"""

from __future__ import annotations

import base64
import inspect
import json
import math
import re
import time
from collections import deque
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import redis
from scrapy import Request
from scrapy.exceptions import DontCloseSpider

from scrapy_walsh.adapters import compat
from scrapy_walsh.adapters.crawl import Crawl
from scrapy_walsh.adapters.events import logger
from scrapy_walsh.adapters.scheduler_queue import DueRequests, refuses
from scrapy_walsh.adapters.sources import form_of
from scrapy_walsh.exceptions import ConfigError, StoreAway
from scrapy_walsh.fleet import scripts
from scrapy_walsh.fleet.store import SharedStore, Waiting
from scrapy_walsh.policy import hosts, recrawl
from scrapy_walsh.policy.words import plural

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from scrapy import Spider
    from scrapy.crawler import Crawler

    from scrapy_walsh.fleet.link import Command

# The entries of a fleet's queue: requests as octets in Redis, and what cannot be used of them.
#
# An entry is data, whoever wrote it. Only its members in ``_TAKEN`` are read, the result is a plain
# ``scrapy.Request``, and its callbacks are methods of the spider.

#: The members of an entry that a request is made of.
_TAKEN: Final = frozenset({
    "url", "callback", "method", "headers", "body", "cookies", "meta", "encoding", "priority",
    "dont_filter", "errback", "flags", "cb_kwargs",
})  # fmt: skip
#: Entries that are kept for a person, and the octets of each.
_ASIDE, _ASIDE_OCTETS = 1000, 64 * 1024


class Entries:
    """Writes requests as entries, and reads them. *serializer*: SCHEDULER_SERIALIZER, or None."""

    def __init__(self, crawl: Crawl, spider: Spider, serializer: Any = None) -> None:
        self._crawl, self._spider = crawl, spider
        self._serializer = serializer or _Json

    def encode(self, request: Request) -> bytes:
        """An entry: a line with the URL and the declared target that it belongs to (R6), then
        the request. ValueError where it cannot be serialised.
        """
        url, key = request.url, recrawl.key_of(request.url, form_of(request))
        # ``key`` and ``origin`` name the records that its worker will read (``scripts.POP``).
        origin = hosts.origin_or_url(url)  # that of a URL without one names no record
        names = {"source": self._crawl.scope.source_of(url), "key": key, "origin": origin}
        head = json.dumps({"url": url, **names}).encode()
        try:
            kept = self._crawl.intake.kept(request)
            fields = {name: value for name, value in kept.items() if name in _TAKEN}
            data = self._serializer.dumps(fields)
        except TypeError as error:
            raise ValueError(
                f"{request.url} cannot be queued as JSON: {error}; see SCHEDULER_SERIALIZER"
            ) from error
        return head + b"\n" + (data.encode() if isinstance(data, str) else bytes(data))

    def decode(self, data: bytes) -> Request:
        """The request in the entry *data*. Raises any Exception where there is none in it."""
        head, _, body = data.partition(b"\n")
        source, intake = json.loads(head)["source"], self._crawl.intake
        if source is not None and not isinstance(source, str):
            raise ValueError("its source is not text")
        request = intake.request(self._request(self._serializer.loads(body)))
        intake.resume(request, source, intake.cadence_of(request))
        return request

    def _request(self, fields: Any) -> Request:
        if not isinstance(fields, dict):
            raise ValueError("it is not a JSON object")
        if unknown := fields.keys() - _TAKEN:
            raise ValueError(f"it has members that no request has: {sorted(map(str, unknown))}")
        methods = {
            name: self._method(fields[name])
            for name in ("callback", "errback")
            if fields.get(name) is not None
        }
        return Request(**{**fields, **methods})

    def _method(self, name: object) -> Any:
        """The method *name* of the spider; ValueError where *name* is anything else."""
        named = isinstance(name, str) and not name.startswith("__")
        found = getattr(self._spider, str(name), None) if named else None
        if not inspect.ismethod(found) or found.__self__ is not self._spider:
            raise ValueError(f"{name!r} is not a method of the spider")
        return found


def set_aside(crawl: Crawl, client: Any, key: str, data: bytes, error: Exception) -> None:
    """Keep *data*, an entry that cannot be used, in the list *key*:aside, and log why.

    It is for a person, the latest comes first, and the queue goes on without it.
    """
    key = f"{key}:aside"
    try:
        with client.pipeline() as pipe:
            pipe.lpush(key, data[:_ASIDE_OCTETS])
            pipe.ltrim(key, 0, _ASIDE - 1)
            pipe.execute()
    except redis.RedisError as away:
        logger.error("an entry could not be kept in %s: %s", key, away)
    start = re.sub(r"//[^/\s]*@", "//", data[:200].decode("utf-8", "backslashreplace"))
    crawl.recorder.set_aside(
        "fleet/set_aside",
        f"an entry of the queue cannot be used and is set aside in {key}: "
        f"{type(error).__name__}: {error}: {start}",
    )


class _Json:
    """Requests as JSON: headers as Latin-1 text, bodies as base64."""

    @staticmethod
    def dumps(fields: dict[str, Any]) -> bytes:
        """Raises TypeError for values that JSON does not have."""
        headers = {
            name.decode("latin-1"): [value.decode("latin-1") for value in values]
            for name, values in fields["headers"].items()
        }
        body = base64.b64encode(fields["body"]).decode()
        return json.dumps({**fields, "headers": headers, "body": body}).encode()

    @staticmethod
    def loads(data: bytes) -> dict[str, Any]:
        """What ``dumps`` was given."""
        fields: dict[str, Any] = json.loads(data)
        headers = {
            name.encode("latin-1"): [value.encode("latin-1") for value in values]
            for name, values in fields["headers"].items()
        }
        return {**fields, "headers": headers, "body": base64.b64decode(fields["body"])}


#: Host, rank and data of an entry, and whether it goes first, since it was given out before.
_Entry = tuple[str, int, bytes, int]
#: Seconds between looks at a queue that has nothing due: others may add to it.
_POLL: Final = 1.0
#: URLs that a worker takes from the operator's list at a time.
_BATCH: Final = 1000
#: Entries that go to Redis together at most: it runs so many in a few milliseconds.
_TOGETHER: Final = 100
_LARGEST_PRIORITY: Final = 10**8
_KEYS: Final = ("", ":waiting", ":size", ":serial", ":workers", ":looked")
#: Entries that one look at the queue sets aside, before others have their turn.
_UNREADABLE_AT_ONCE: Final = 100


class DueQueue(DueRequests):
    """A queue as ``scrapy_redis.queue.Base``; ConfigError without WALSH_SHARED_STATE.

    It lives in the Redis of WALSH_SHARED_STATE, beside the pacing of the hosts. ``serializer``:
    that of SCHEDULER_SERIALIZER; JSON without one.

    What waits takes up no memory here, says itself what it belongs to, and is judged when it is
    claimed. No target gives way (D30), since another worker might claim it, to which T1's exemption
    does not belong.
    """

    #: Seconds of silence after which what a worker has claimed is put back in line. Longer than
    #: its pauses between two tries to reach Redis.
    lease: float = 60.0
    #: Whether workers take their requests from it together.
    shared = True

    def __init__(self, server: Any, spider: Spider, key: str, serializer: Any = None) -> None:  # noqa: ARG002
        crawl = Crawl.of(spider.crawler)
        if not isinstance(crawl.store, SharedStore):
            raise ConfigError("DueQueue needs WALSH_SHARED_STATE: set it to the fleet's Redis")
        super().__init__(crawl)
        self._store, self._spider = crawl.store, spider
        self._entries = Entries(crawl, spider, serializer)
        start = f"{crawl.store.prefix}queue:{key % {'spider': spider.name}}"
        self._keys = [f"{start}{end}" for end in _KEYS]
        #: Seconds without a look at the queue after which the lease is renewed by itself. The time
        #: for which workers were seen is counted in gaps of two seconds at most.
        self._renewed_after = min(2.0, self.lease / 2)
        #: Claimed requests that the engine is not done with, and their numbers.
        self._held: dict[Request, str] = {}
        #: Numbers of claims that have ended, which Redis has not been told yet.
        self._done: list[str] = []
        #: Of requests in Redis and of arrivals, the numbers that Redis last said.
        self._counted, self._arrived = 0, 0
        self._renewal = compat.Timer(self._keep_renewing)
        self._unsent: deque[_Entry] = deque()  # which Redis has not taken yet
        #: Hosts to be put off, or made due again, and by which script.
        self._moved: dict[str, str] = {}
        self._store.others.append(self._waiting)
        crawl.scope.growing = False  # no worker knows when all of them have declared their targets

    def __len__(self) -> int:
        try:
            size: int = self._store.ask(self._count)
        except StoreAway:
            size = 1  # not known, so the crawl must not end
        return len(self._free) + len(self._unsent) + size

    def _count(self) -> int:
        known = self._arrived
        size, arrived = self._store.exchange(("MGET", *self._keys[2:4]))
        self._compare(known, int(arrived or 0))
        return int(size or 0)

    def push(self, request: Request) -> None:
        """Take *request* in; ValueError where it cannot be serialised."""
        crawl = self._crawl
        request = crawl.intake.request(request)
        # What is refused need not wait. R8's record is read when it is claimed, not here as well.
        answer = crawl.gate.judge(request.url, form_of(request), runs=False)
        if crawl.halted is not None or refuses(answer):
            self._free.append(request)
            return
        host = hosts.host_or_url(request.url)  # its record is read by whoever claims it
        # Retries first, then by priority; Redis keeps the order of arrival.
        ticket = crawl.tickets.known(request)
        first = ticket is not None and ticket.first
        late = 0 if first else 10 * _LARGEST_PRIORITY
        rank = late - max(-_LARGEST_PRIORITY, min(request.priority, _LARGEST_PRIORITY))
        self._unsent.append((host, rank, self._entries.encode(request), int(first)))
        crawl.pacing.tell_wait(crawl.pacing.met(host), lambda: request.url)
        if len(self._unsent) < _TOGETHER:
            self._store.send_soon()
        else:
            self._store.send()

    def pop(self, timeout: float = 0) -> Request | None:  # noqa: ARG002
        """A request of a host that is due; None where none is: the engine is woken later."""
        if self._free:
            return self._popped(self._free.popleft())
        if (over := self._hour_over()) is not None:
            return self._popped(over)
        for _ in range(_UNREADABLE_AT_ONCE):
            try:
                host, number, data = self._claim()
            except StoreAway:
                self._timer.set(_POLL)
                return None
            if not host:
                seconds = float(data)
                self._timer.set(_POLL if seconds < 0 else min(seconds, _POLL))
                if isinstance(self._spider, DueSpiderMixin):
                    compat.call_later(0, self._spider.feed)
                return None
            request = self._taken(number.decode(), data)
            if request is None:
                self._move(host.decode("utf-8", "replace"), scripts.RELEASE)
                continue
            ticket = self._crawl.tickets.of(request)
            if refuses(self._crawl.gate.at_queue(ticket)):
                self._move(host.decode(), scripts.RELEASE)
                if ticket.hour_left is not None:
                    self._wait_for(request, ticket, ticket.hour_left)
                    continue
            return self._popped(request)
        self._timer.set(0)
        return None

    def clear(self) -> None:
        """Drop every request, of all workers."""
        try:
            self._run(scripts.CLEAR)
        except StoreAway as error:
            logger.error("the queue was not cleared: %s", error)

    def stop(self) -> None:
        """Cancel all timers, and give back to Redis what is left."""
        super().stop()
        self._renewal.cancel()
        for _, _, request in self._soon:  # Redis puts back what is held no more, and not done
            del self._held[request]
        self._soon.clear()
        try:
            while self._unsent:
                self._store.ask(self._store.exchange)
            self._renew()
        except StoreAway as error:
            if self._unsent:
                logger.error("%d requests could not be given back: %s", len(self._unsent), error)

    def nudge(self, host: str) -> None:
        """A request to *host* was sent: let its queue wait until it is due again."""
        if not self._closed and self._pace(host)[0] > 0:
            self._move(host, scripts.PUT_OFF)

    # -- Redis ----------------------------------------------------------------------------

    def _run(self, script: str, arguments: Callable[[], Sequence[Any]] = tuple) -> Any:
        store = self._store
        # Called after ``ask`` has connected, which makes the epoch known.
        return store.ask(lambda: store.exchange(self._command(script, arguments())))

    def _command(self, script: str, arguments: Sequence[Any]) -> Command:
        return self._store.link.script(script, self._keys, arguments)

    def _waiting(self) -> list[Waiting]:
        """What Redis is to be told, with the next question: new entries, and hosts' due times."""
        found, link = [], self._store.link
        if link.word != link.epoch:  # records may be lost, and this comes before all else
            resume = self._command(scripts.RESUME, [self._arrived])
            found.append(Waiting(resume, partial(self._compare, self._arrived)))
        for entry in islice(self._unsent, _TOGETHER):
            arguments = [*entry, *self._pace(entry[0])]
            pushed = partial(self._pushed, entry)
            found.append(Waiting(self._command(scripts.PUSH, arguments), pushed))
        for host, script in self._moved.items():
            given = self._pace(host)[script != scripts.PUT_OFF]
            moved = partial(self._was_moved, host)
            found.append(Waiting(self._command(script, [host, given]), moved))
        return found

    def _pushed(self, entry: _Entry, arrival: int) -> None:
        self._unsent.remove(entry)
        self._arrived, self._counted = max(self._arrived, arrival), self._counted + 1

    def _compare(self, known: int, arrived: int) -> None:
        """Say what is lost where of *known* arrivals Redis knows only *arrived* any more."""
        if arrived >= known:
            return
        lost = plural(min(known - arrived, self._counted), "request")
        what = "has lost what was queued last" if arrived else "is gone from Redis"
        self._crawl.recorder.own_fault(
            f"the queue {self._keys[0]} {what}: up to {lost} will not be sent: start the crawl "
            "again with all that it was given, and let Redis keep its data (appendonly yes)",
            f"lost {self._keys[0]} {known}",
        )

    def _move(self, host: str, script: str) -> None:
        self._moved[host] = script
        self._store.send_soon()

    def _was_moved(self, host: str, head: Any) -> None:
        if self._moved.pop(host) == scripts.PUT_OFF and not self._closed:
            pacing = self._crawl.pacing
            pacing.tell_wait(pacing.met(host), lambda: _url_in(head))

    def _claim(self) -> tuple[bytes, bytes, bytes]:
        link, patience = self._store.link, self._crawl.config.patience
        ended = self._ended()
        prefix, known = self._store.prefix, self._arrived
        host, number, data, ahead, size, arrived = self._run(
            scripts.POP,
            lambda: [*self._standing(ended), patience, prefix, link.epoch, link.epoch_key],
        )
        self._told(ended)
        self._store.take_ahead(ahead)
        if arrived < 0:
            link.lose("it may have lost records")
            raise StoreAway(link.outage())
        self._compare(known, arrived)
        # What was queued in the same round trip may have come after it.
        self._counted, self._arrived = size, max(arrived, self._arrived if arrived >= known else 0)
        return host, number, data

    def _ended(self) -> list[str]:
        """The claims that have ended and may be told so.

        Not before Redis has taken what is to be queued: that may come from one of them.
        """
        under_way = {*compat.under_way(self._crawl.crawler), *(each for _, _, each in self._soon)}
        for request in [each for each in self._held if each not in under_way]:
            self._done.append(self._held.pop(request))
        return [] if self._unsent else list(self._done)

    def _standing(self, ended: Sequence[str]) -> list[Any]:
        """The arguments of RENEW: worker, lease, claims that have ended, claims left, interval."""
        left = [*self._held.values(), *(each for each in self._done if each not in ended)]
        interval = self._crawl.config.min_interval
        return [self._store.worker, self.lease, " ".join(ended), " ".join(left), interval]

    def _told(self, ended: Sequence[str]) -> None:
        """Redis knows that the claims *ended* have; and that this worker lives."""
        del self._done[: len(ended)]
        if self._renewal.pending:
            self._renewal.set(self._renewed_after)

    def _renew(self) -> None:
        ended = self._ended()
        self._run(scripts.RENEW, lambda: self._standing(ended))
        self._told(ended)

    def _keep_renewing(self) -> None:
        """Renew the lease also while a request is under way and nothing is popped."""
        with suppress(StoreAway):
            self._renew()
        self._renewal.set(self._renewed_after)

    def _taken(self, number: str, data: bytes) -> Request | None:
        """The request in *data*; the claim *number* lasts until the engine is done with it.

        None where *data* cannot be read, or no worker of ours wrote it (no number): set aside.
        """
        try:
            if not number:
                raise ValueError("no worker has written it")
            request = self._entries.decode(data)
        except Exception as error:
            set_aside(self._crawl, self._store.link.client, self._keys[0], data, error)
            if number:
                self._done.append(number)
            return None
        self._held[request] = number
        if not self._renewal.pending:
            self._renewal.set(self._renewed_after)
        return request

    def _pace(self, key: str) -> tuple[float, float, int]:
        """Seconds for which requests to a host wait, its interval, and whether it goes last."""
        host, now = self._crawl.pacing.met(key), self._crawl.monotonic()
        if host is None:  # what waits takes up no memory here
            return 0.0, self._crawl.config.min_interval, 0
        return host.wait(now), host.traffic.interval, int(host.goes_last(now))


def _url_in(head: bytes) -> str | None:
    """The URL in the first line of an entry; None where there is none: it will be set aside."""
    try:
        return str(json.loads(head)["url"]) if head else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


class DueSpiderMixin:
    """For a ``scrapy_redis.spiders.RedisSpider``, before it in the list of bases.

    What comes from the operator's list in Redis, and nothing else, is declared (R6). The list
    is read whenever no host is due, not only when the queue is empty. An outage of Redis does not
    end the crawl.
    """

    crawler: Crawler
    redis_batch_size: int | None = _BATCH
    redis_key: str
    server: Any
    fetch_data: Callable[[str, int | None], list[bytes]]
    #: Monotonic seconds at which the list was last found empty.
    _walsh_empty_at = -math.inf

    async def start(self) -> AsyncIterator[Request]:
        """The first batch of the operator's list."""
        for request in self.next_requests():
            yield request

    def next_requests(self) -> Iterator[Request]:
        """The next batch, declared as targets. Entries that give no request are set aside."""
        try:
            entries = self.fetch_data(self.redis_key, self.redis_batch_size)
        except redis.RedisError as error:
            logger.error("the list of URLs cannot be read: %s", error)
            return
        if not entries:
            self._walsh_empty_at = time.monotonic()
        crawl = Crawl.of(self.crawler)
        for entry in entries:
            try:
                requests = [crawl.intake.request(each) for each in self._requests_of(entry)]
            except Exception as error:
                set_aside(crawl, self.server, self.redis_key, entry, error)
                continue
            for request in requests:
                crawl.intake.declare(request)
                crawl.sources.declare(request)
                yield request

    def _requests_of(self, entry: bytes) -> list[Request]:
        made = self.make_request_from_data(entry)  # type: ignore[attr-defined]
        requests = [made] if isinstance(made, Request) else list(made or ())
        if not requests or not all(isinstance(each, Request) for each in requests):
            raise ValueError("no request can be made of it")
        return requests

    def schedule_next_requests(self) -> None:
        """Take the next batch into the queue; a request that cannot be queued is logged."""
        for request in self.next_requests():
            try:
                compat.crawl(self.crawler, request)
            except ValueError as error:  # of ``DueQueue.push``
                logger.error("%s", error)
            except redis.RedisError as error:  # of scrapy-redis's own filter
                line = f"{request.url} could not be queued, and will not be sent: {error}"
                Crawl.of(self.crawler).recorder.own_fault(line)

    def feed(self) -> None:
        """Take the next batch into the queue, unless the list was empty a moment ago."""
        if time.monotonic() - self._walsh_empty_at >= _POLL and not compat.closing(self.crawler):
            self.schedule_next_requests()

    def spider_idle(self) -> None:
        """As ``RedisSpider.spider_idle``; raises DontCloseSpider during an outage too."""
        try:
            super().spider_idle()  # type: ignore[misc]
        except redis.RedisError:
            raise DontCloseSpider from None
