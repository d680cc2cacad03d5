"""R4 for a fleet: the queue of scrapy-redis's scheduler, with due times by Redis's clock.

``SCHEDULER_QUEUE_CLASS = "scrapy_walsh.adapters.redis_queue.DueQueue"``. A worker claims a
request only of a host that is due, the one with most work left. Claiming is one atomic script, so
no two workers claim the same host within its interval. An entry that cannot be read is set aside.
"""

from __future__ import annotations

import json
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import redis
from scrapy import Request
from scrapy.exceptions import DontCloseSpider

from scrapy_walsh.adapters import compat
from scrapy_walsh.adapters.crawl import Crawl
from scrapy_walsh.adapters.events import logger
from scrapy_walsh.adapters.queue_entries import Aside, Entries
from scrapy_walsh.exceptions import ConfigError, StoreAway
from scrapy_walsh.fleet import scripts
from scrapy_walsh.fleet.link import LONGEST_PAUSE
from scrapy_walsh.fleet.store import SharedStore
from scrapy_walsh.policy.agenda import Load
from scrapy_walsh.policy.chain import NeedDocument

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence

    from scrapy import Spider
    from scrapy.crawler import Crawler

#: Seconds between looks at a queue that has nothing due: others may add to it.
_POLL: Final = 1.0
#: URLs that a worker takes from the operator's list at a time.
_BATCH: Final = 1000
_LARGEST_PRIORITY: Final = 10**8
_KEYS: Final = ("", ":waiting", ":size", ":serial", ":workers", ":looked")
#: Entries that one look at the queue sets aside, before others have their turn.
_UNREADABLE_AT_ONCE: Final = 100


class DueQueue:
    """A queue as ``scrapy_redis.queue.Base``; ConfigError without WALSH_SHARED_STATE.

    It lives in the Redis of WALSH_SHARED_STATE, beside the pacing of the hosts. ``serializer``:
    that of SCHEDULER_SERIALIZER; JSON without one.
    """

    #: Seconds of silence after which what a worker has claimed is put back in line. Longer than
    #: its pauses between two tries to reach Redis.
    lease: float = 2 * LONGEST_PAUSE
    #: Whether workers take their requests from it together.
    shared = True

    def __init__(self, server: Any, spider: Spider, key: str, serializer: Any = None) -> None:  # noqa: ARG002
        crawl = Crawl.of(spider.crawler)
        if not isinstance(crawl.store, SharedStore):
            raise ConfigError("DueQueue needs WALSH_SHARED_STATE: set it to the fleet's Redis")
        self._crawl, self._store, self._spider = crawl, crawl.store, spider
        self._entries = Entries(crawl, spider, serializer)
        start = f"{crawl.store.prefix}queue:{key % {'spider': spider.name}}"
        self._keys = [f"{start}{end}" for end in _KEYS]
        self._aside = Aside(crawl, crawl.store.link.client, f"{start}:aside")
        #: Claimed requests that the engine is not done with, and their numbers.
        self._held: dict[Request, str] = {}
        #: Numbers of claims that have ended, which Redis has not been told yet.
        self._done: list[str] = []
        self._renewal = compat.Timer(self._keep_renewing)
        #: Requests that a gate refuses: they wait for nothing.
        self._free: deque[Request] = deque()
        #: Requests that Redis has not taken yet.
        self._unsent: deque[Request] = deque()
        self._timer = compat.Timer(lambda: compat.wake_engine(crawl.crawler))
        self._closed = False
        crawl.queues.append(self)
        crawl.scope.growing = False  # no worker knows when all of them have declared their targets

    def __len__(self) -> int:
        here = len(self._free) + len(self._unsent)
        try:
            size = self._store.ask(lambda: self._store.link.client.get(self._keys[2]))
        except StoreAway:
            return here + 1  # not known, so the crawl must not end
        return here + int(size or 0)

    def push(self, request: Request) -> None:
        """Take *request* in; ValueError where it cannot be serialised."""
        request = self._crawl.intake.request(request)
        answer = None if self._crawl.halted is not None else self._crawl.gate.at_queue(request)
        if answer is None or not (isinstance(answer, NeedDocument) or answer.allowed):
            self._free.append(request)
            return
        try:
            self._send(request)
        except StoreAway:
            self._unsent.append(request)

    def pop(self, timeout: float = 0) -> Request | None:  # noqa: ARG002
        """A request of a host that is due; None where none is: the engine is woken later."""
        if self._free:
            return self._popped(self._free.popleft())
        for _ in range(_UNREADABLE_AT_ONCE):
            try:
                self._send_unsent()
                host, number, data = self._claim()
            except StoreAway:
                self._timer.set(_POLL)
                return None
            if not host:
                self._nothing_due(float(data))
                return None
            request = self._taken(number.decode(), data)
            if request is None:
                self._release(host.decode("utf-8", "replace"))
                continue
            answer = self._crawl.gate.at_queue(request)
            if not isinstance(answer, NeedDocument) and not answer.allowed:
                self._release(host.decode())
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
        self._closed = True
        self._timer.cancel()
        self._renewal.cancel()
        try:
            self._send_unsent()
            self._renew()
        except StoreAway as error:
            if self._unsent:
                logger.error("%d requests could not be given back: %s", len(self._unsent), error)

    def load(self) -> Load:
        """Nothing: what waits is in Redis, and takes up no memory here."""
        return Load()

    def earlier(self) -> Iterable[tuple[str, str]]:
        """Nothing: each entry says itself what it belongs to."""
        return ()

    def nudge(self, host: str) -> None:
        """A request to *host* was sent: let its queue wait until it is due again."""
        if not self._closed:
            self._crawl.pacing.tell_wait(host, lambda: self._put_off(host))

    def stands_for(self, request: Request) -> bool:  # noqa: ARG002
        """False: a worker's own `Spider.start` does not name again what is in the queue."""
        return False

    def gives_way(self, host: str) -> bool:  # noqa: ARG002
        """False: another worker might claim it, to which T1's exemption does not belong."""
        return False

    def judge_again(self, host: str) -> None:
        """A document came: requests are judged when they are claimed."""

    # -- Redis ----------------------------------------------------------------------------

    def _run(self, script: str, arguments: Sequence[Any] = ()) -> Any:
        return self._store.ask(lambda: self._store.link.run(script, self._keys, arguments))

    def _send(self, request: Request) -> None:
        crawl = self._crawl
        host = crawl.pacing.look_up(request.url)
        wait = crawl.pacing.wait(host)
        arguments = [
            host,
            self._rank(request),
            self._entries.encode(request),
            wait,
            self._interval(host),
        ]
        self._run(scripts.PUSH, arguments)
        crawl.pacing.tell_wait(host, lambda: request.url)

    def _send_unsent(self) -> None:
        while self._unsent:
            self._send(self._unsent[0])
            self._unsent.popleft()

    def _claim(self) -> tuple[bytes, bytes, bytes]:
        link = self._store.link
        given = [*self._standing(), self._crawl.config.patience, self._store.host_key("")]
        host, number, data = self._store.ask(
            # Called after ``ask`` has connected, which makes the epoch known.
            lambda: link.run(scripts.POP, self._keys, [*given, link.epoch, *link.epoch_keys])
        )
        self._done.clear()
        return host, number, data

    def _standing(self) -> list[Any]:
        """The arguments of RENEW: worker, lease, claims that have ended, claims left, interval."""
        under_way = compat.under_way(self._crawl.crawler)
        for request in [each for each in self._held if each not in under_way]:
            self._done.append(self._held.pop(request))
        done, held = " ".join(self._done), " ".join(self._held.values())
        return [self._store.worker, self.lease, done, held, self._crawl.config.min_interval]

    def _renew(self) -> None:
        self._run(scripts.RENEW, self._standing())
        self._done.clear()

    def _keep_renewing(self) -> None:
        """Renew the lease also while a request is under way and nothing is popped."""
        with suppress(StoreAway):
            self._send_unsent()  # before the claim ends that such a request may come from
            self._renew()
        self._renewal.set(_POLL)

    def _taken(self, number: str, data: bytes) -> Request | None:
        """The request in *data*; the claim *number* lasts until the engine is done with it.

        None where *data* cannot be read, or no worker of ours wrote it (no number): set aside.
        """
        try:
            if not number:
                raise ValueError("no worker has written it")
            request = self._entries.decode(data)
        except Exception as error:
            self._aside.put(data, error)
            if number:
                self._done.append(number)
            return None
        self._held[request] = number
        if not self._renewal.pending:
            self._renewal.set(_POLL)
        return request

    def _release(self, host: str) -> None:
        try:
            self._run(scripts.RELEASE, [host, self._interval(host)])
        except StoreAway:
            return  # then the host waits for one interval, which does no harm

    def _interval(self, host: str) -> float:
        return self._crawl.pacing.throttle.interval(host)

    def _put_off(self, host: str) -> str | None:
        """Let *host* wait until it is due. The URL that is first in its queue, or None."""
        try:
            head: bytes = self._run(scripts.PUT_OFF, [host, self._crawl.pacing.wait(host)])
        except StoreAway:
            return None
        try:
            return str(json.loads(head)["url"]) if head else None
        except (ValueError, KeyError, TypeError, RecursionError):
            return None  # whoever claims it sets it aside

    # -- requests -------------------------------------------------------------------------

    def _rank(self, request: Request) -> int:
        """Retries first, then by priority; Redis keeps the order of arrival."""
        late = 0 if request in self._crawl.pacing.first else 10 * _LARGEST_PRIORITY
        return late - max(-_LARGEST_PRIORITY, min(request.priority, _LARGEST_PRIORITY))

    def _popped(self, request: Request) -> Request:
        self._crawl.pacing.popped.add(request)
        return request

    # -- waiting --------------------------------------------------------------------------

    def _nothing_due(self, seconds: float) -> None:
        self._timer.set(_POLL if seconds < 0 else min(seconds, _POLL))
        if isinstance(self._spider, DueSpiderMixin):
            compat.call_later(0, self._spider.feed)


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
    _walsh_aside: Aside | None = None

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
        crawl = Crawl.of(self.crawler)
        if self._walsh_aside is None:
            self._walsh_aside = Aside(crawl, self.server, f"{self.redis_key}:aside")
        for entry in entries:
            try:
                requests = [crawl.intake.request(each) for each in self._requests_of(entry)]
            except Exception as error:
                self._walsh_aside.put(entry, error)
                continue
            for request in requests:
                crawl.intake.declare(request)
                crawl.readings.declare(request)
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

    def feed(self) -> None:
        """Take the next batch into the queue."""
        if not compat.closing(self.crawler):
            self.schedule_next_requests()

    def spider_idle(self) -> None:
        """As ``RedisSpider.spider_idle``; raises DontCloseSpider during an outage too."""
        try:
            super().spider_idle()  # type: ignore[misc]
        except redis.RedisError:
            raise DontCloseSpider from None
