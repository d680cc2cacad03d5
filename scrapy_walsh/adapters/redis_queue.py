"""R4's hold for a fleet: the queue of scrapy-redis's scheduler, by host and by Redis's clock.

``SCHEDULER_QUEUE_CLASS = "scrapy_walsh.adapters.redis_queue.DueQueue"``. A worker claims a
request only of a host that is due, the one with most work left; one atomic script sees to it
that no two workers claim the same host within its interval. Requests are JSON, so that who can
write to Redis cannot run code here.
"""

from __future__ import annotations

import base64
import json
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import redis
from scrapy.exceptions import DontCloseSpider
from scrapy.utils.request import request_from_dict

from scrapy_walsh.adapters import compat
from scrapy_walsh.adapters.core import Core
from scrapy_walsh.adapters.events import logger
from scrapy_walsh.errors import ConfigError, StoreAway
from scrapy_walsh.policy.chain import NeedDocument
from scrapy_walsh.state import redis_scripts as scripts
from scrapy_walsh.state.redis import SharedStore
from scrapy_walsh.state.redis_link import LONGEST_PAUSE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from scrapy import Request, Spider
    from scrapy.crawler import Crawler

#: Seconds between looks at a queue that has nothing due: others may add to it.
_POLL: Final = 1.0
#: URLs that a worker takes from the operator's list at a time.
_BATCH: Final = 1000
_LARGEST_PRIORITY: Final = 10**8
_KEYS: Final = ("", ":waiting", ":size", ":serial", ":workers", ":looked")


class DueQueue:
    """A queue as ``scrapy_redis.queue.Base``; ConfigError without WALSH_SHARED_STATE.

    It lives in the Redis of WALSH_SHARED_STATE, beside the pacing of the hosts. ``serializer``:
    that of SCHEDULER_SERIALIZER; JSON without one.
    """

    #: Seconds of silence after which what a worker has claimed is put back in line. Longer than
    #: its pauses between two tries to reach Redis.
    lease: float = 2 * LONGEST_PAUSE

    def __init__(self, server: Any, spider: Spider, key: str, serializer: Any = None) -> None:  # noqa: ARG002
        core = Core.of(spider.crawler)
        if not isinstance(core.store, SharedStore):
            raise ConfigError("DueQueue needs WALSH_SHARED_STATE: set it to the fleet's Redis")
        self._core, self._store, self._spider = core, core.store, spider
        self._serializer = serializer or _Json
        start = f"{core.store.prefix}queue:{key % {'spider': spider.name}}"
        self._keys = [f"{start}{end}" for end in _KEYS]
        #: Claimed requests that the engine is not done with, and their numbers.
        self._held: dict[Request, str] = {}
        #: Numbers of claims that Redis is not told yet that they are done with.
        self._done: list[str] = []
        self._cancel_renewal: Callable[[], None] | None = None
        #: Requests that a gate refuses: they wait for nothing.
        self._free: deque[Request] = deque()
        #: Requests that Redis has not taken yet.
        self._unsent: deque[Request] = deque()
        self._cancel_timer: Callable[[], None] | None = None
        self._closed = False
        core.queues.append(self)

    def __len__(self) -> int:
        here = len(self._free) + len(self._unsent)
        try:
            size = self._store.ask(lambda: self._store.link.client.get(self._keys[2]))
        except StoreAway:
            return here + 1  # not known, so the crawl must not end
        return here + int(size or 0)

    def push(self, request: Request) -> None:
        """Take *request* in; ValueError where it cannot be serialised."""
        answer = None if self._core.halted is not None else self._core.judge_request(request)
        if answer is None or not (isinstance(answer, NeedDocument) or answer.allowed):
            self._free.append(request)
            return
        try:
            self._send(request)
        except StoreAway:
            self._unsent.append(request)

    def pop(self, timeout: float = 0) -> Request | None:  # noqa: ARG002
        """A request of a host that is due, or None; the engine is then woken when one is."""
        if self._free:
            return self._popped(self._free.popleft())
        try:
            self._send_unsent()
            host, number, data = self._claim()
        except StoreAway:
            self._wake_later(_POLL)
            return None
        if not host:
            self._nothing_due(float(data))
            return None
        request = self._taken(number.decode(), data)
        answer = self._core.judge_request(request)
        if not isinstance(answer, NeedDocument) and not answer.allowed:
            self._release(host.decode())
        return self._popped(request)

    def clear(self) -> None:
        """Drop every request, of all workers."""
        try:
            self._run(scripts.CLEAR)
        except StoreAway as error:
            logger.error("the queue was not cleared: %s", error)

    def stop(self) -> None:
        """Wake nobody any more, and give back what is left."""
        self._closed = True
        for cancel in (self._cancel_timer, self._cancel_renewal):
            if cancel is not None:
                cancel()
        try:
            self._send_unsent()
            self._renew()
        except StoreAway as error:
            if self._unsent:
                logger.error("%d requests could not be given back: %s", len(self._unsent), error)

    def nudge(self, host: str) -> None:
        """*host* was asked: what waits for it is held until it is due again."""
        if not self._closed:
            self._core.holds.tell(host, lambda: self._put_off(host))

    def judge_again(self, host: str) -> None:
        """A document came: requests are judged when they are claimed."""

    # -- Redis ----------------------------------------------------------------------------

    def _run(self, script: str, arguments: Sequence[Any] = ()) -> Any:
        return self._store.ask(lambda: self._store.link.run(script, self._keys, arguments))

    def _send(self, request: Request) -> None:
        core = self._core
        host = core.host_of(request.url)
        wait = core.holds.wait(host)
        arguments = [host, self._rank(request), self._encode(request), wait, self._interval(host)]
        self._run(scripts.PUSH, arguments)
        core.holds.tell(host, lambda: request.url)

    def _send_unsent(self) -> None:
        while self._unsent:
            self._send(self._unsent[0])
            self._unsent.popleft()

    def _claim(self) -> tuple[bytes, bytes, bytes]:
        link = self._store.link
        given = [*self._standing(), self._core.config.patience, self._store.host_key("")]
        host, number, data = self._store.ask(
            # A first question makes the epoch known.
            lambda: link.run(scripts.POP, self._keys, [*given, link.epoch, *link.epoch_keys])
        )
        self._done.clear()
        return host, number, data

    def _standing(self) -> list[Any]:
        """This worker, its lease, what it is done with and what it holds, and the interval."""
        under_way = compat.under_way(self._core.crawler)
        for request in [each for each in self._held if each not in under_way]:
            self._done.append(self._held.pop(request))
        done, held = " ".join(self._done), " ".join(self._held.values())
        return [self._store.worker, self.lease, done, held, self._core.config.min_interval]

    def _renew(self) -> None:
        self._run(scripts.RENEW, self._standing())
        self._done.clear()

    def _keep_renewing(self) -> None:
        """While a request is under way nothing is popped, and the lease must not end."""
        with suppress(StoreAway):
            self._send_unsent()  # before the claim that it comes from goes
            self._renew()
        self._renew_later()

    def _renew_later(self) -> None:
        self._cancel_renewal = compat.call_later(_POLL, self._keep_renewing)

    def _taken(self, number: str, data: bytes) -> Request:
        """The request of a claim, which is held until the engine is done with it."""
        self._done.append(number)  # should it be one that cannot be read
        request = self._decode(data)
        self._done.remove(number)
        self._held[request] = number
        if self._cancel_renewal is None:
            self._renew_later()
        return request

    def _release(self, host: str) -> None:
        try:
            self._run(scripts.RELEASE, [host, self._interval(host)])
        except StoreAway:
            return  # it waits out an interval, no more

    def _interval(self, host: str) -> float:
        return self._core.throttle.interval(host)

    def _put_off(self, host: str) -> str | None:
        """The URL of the first of *host*'s line, which waits from now on; None for none."""
        try:
            head: bytes = self._run(scripts.PUT_OFF, [host, self._core.holds.wait(host)])
        except StoreAway:
            return None
        return json.loads(head)["url"] if head else None

    # -- requests -------------------------------------------------------------------------

    def _rank(self, request: Request) -> int:
        """Retries first, then by priority; Redis keeps the order of arrival."""
        late = 0 if request in self._core.first else 10 * _LARGEST_PRIORITY
        return late - max(-_LARGEST_PRIORITY, min(request.priority, _LARGEST_PRIORITY))

    def _encode(self, request: Request) -> bytes:
        """Its URL and the declared target that it belongs to (R6) in a line, and the request."""
        source = self._core.scope.source_of(request.url)
        head = json.dumps({"url": request.url, "source": source}).encode()
        try:
            data = self._serializer.dumps(request.to_dict(spider=self._spider))
        except TypeError as error:
            raise ValueError(
                f"{request.url} cannot be queued as JSON: {error}; see SCHEDULER_SERIALIZER"
            ) from error
        return head + b"\n" + (data.encode() if isinstance(data, str) else bytes(data))

    def _decode(self, data: bytes) -> Request:
        head, _, body = data.partition(b"\n")
        request = request_from_dict(self._serializer.loads(body), spider=self._spider)
        source = json.loads(head)["source"]
        if source is not None:
            self._core.scope.declare(source)
            self._core.scope.declare_hop(request.url, source)
        return request

    def _popped(self, request: Request) -> Request:
        if self._core.scope.is_source(request.url):
            self._core.declare(request)  # its "walsh_also" too
        self._core.popped.add(request)
        return request

    # -- waiting --------------------------------------------------------------------------

    def _nothing_due(self, seconds: float) -> None:
        self._wake_later(_POLL if seconds < 0 else min(seconds, _POLL))
        if isinstance(self._spider, DueSpiderMixin):
            compat.call_later(0, self._spider.feed)

    def _wake_later(self, seconds: float) -> None:
        if self._cancel_timer is not None:
            self._cancel_timer()
        self._cancel_timer = compat.call_later(seconds, self._wake)

    def _wake(self) -> None:
        self._cancel_timer = None
        compat.wake_engine(self._core.crawler)


class DueSpiderMixin:
    """For a ``scrapy_redis.spiders.RedisSpider``, before it in the list of bases.

    What comes from the operator's list in Redis, and nothing else, is declared (R6); the list
    is read whenever nothing is due, not only when the queue is empty; and an outage does not
    end the crawl.
    """

    crawler: Crawler
    redis_batch_size: int | None = _BATCH

    async def start(self) -> AsyncIterator[Request]:
        """The first batch of the operator's list."""
        for request in self.next_requests():
            yield request

    def next_requests(self) -> Iterator[Request]:
        """The next batch, each URL declared as a target."""
        try:
            for request in super().next_requests():  # type: ignore[misc]
                Core.of(self.crawler).declare(request)
                yield request
        except redis.RedisError as error:
            logger.error("the list of URLs cannot be read: %s", error)

    def feed(self) -> None:
        """Take the next batch into the queue."""
        if not compat.closing(self.crawler):
            self.schedule_next_requests()  # type: ignore[attr-defined]

    def spider_idle(self) -> None:
        """As ``RedisSpider.spider_idle``; raises DontCloseSpider during an outage too."""
        try:
            super().spider_idle()  # type: ignore[misc]
        except redis.RedisError:
            raise DontCloseSpider from None


class _Json:
    """Requests as JSON: headers as Latin-1 text, bodies as base64."""

    @staticmethod
    def dumps(fields: dict[str, Any]) -> bytes:
        """TypeError for what JSON does not know."""
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
