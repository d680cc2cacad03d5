"""R4 for a fleet: the queue of scrapy-redis's scheduler, with due times by Redis's clock.

``SCHEDULER_QUEUE_CLASS = "scrapy_walsh.adapters.redis_queue.DueQueue"``. A worker claims a
request only of a host that is due, the one with most work left. Claiming is one atomic script, so
no two workers claim the same host within its interval. An entry that cannot be read is set aside.
"""

from __future__ import annotations

import inspect
import json
import re
from collections import deque
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import redis
from msgspec import msgpack
from scrapy import Request
from scrapy.exceptions import DontCloseSpider
from scrapy.utils.request import request_from_dict

from scrapy_walsh.adapters import compat
from scrapy_walsh.adapters.crawl import Crawl
from scrapy_walsh.adapters.events import logger
from scrapy_walsh.adapters.scheduler_queue import DueRequests, refuses
from scrapy_walsh.adapters.ticket import form_of, key_of
from scrapy_walsh.exceptions import ConfigError, StoreAway
from scrapy_walsh.fleet import scripts
from scrapy_walsh.fleet.store import SharedStore, Waiting
from scrapy_walsh.policy import hosts, urls
from scrapy_walsh.state.records import DOCUMENTS, HOSTS, ROBOTS, SOURCES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from scrapy import Spider
    from scrapy.crawler import Crawler


#: Entries that are kept for a person, and the octets of each.
_ASIDE, _ASIDE_OCTETS = 1000, 64 * 1024


def set_aside(crawl: Crawl, client: Any, key: str, data: bytes, error: Exception) -> None:
    """Keep *data*, an entry that cannot be used, in the list *key*:aside, and log why.

    It is for a person, the latest comes first, and the queue goes on without it.
    """
    key = f"{key}:aside"
    try:
        client.lpush(key, data[:_ASIDE_OCTETS])
        client.ltrim(key, 0, _ASIDE - 1)
    except redis.RedisError as away:
        logger.error("an entry could not be kept in %s: %s", key, away)
    start = re.sub(r"//[^/\s]*@", "//", data[:200].decode("utf-8", "backslashreplace"))
    crawl.recorder.set_aside(
        "fleet/set_aside",
        f"an entry of the queue cannot be used and is set aside in {key}: "
        f"{type(error).__name__}: {error}: {start}",
    )


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
    that of SCHEDULER_SERIALIZER; MessagePack without one.

    What waits takes up no memory here, says itself what it belongs to, and is judged when it is
    claimed. No target gives way (D30), since another worker might claim it, to which T1's exemption
    does not belong.
    """

    #: Seconds of silence after which what a worker has claimed is put back in line. Longer than
    #: its pauses between two tries to reach Redis.
    lease: float = 60.0
    counted = ("scheduler/dequeued/redis",)

    def __init__(self, server: Any, spider: Spider, key: str, serializer: Any = None) -> None:  # noqa: ARG002
        crawl = Crawl.of(spider.crawler)
        if not isinstance(crawl.store, SharedStore):
            raise ConfigError("DueQueue needs WALSH_SHARED_STATE: set it to the fleet's Redis")
        super().__init__(crawl)
        self._store, self._spider = crawl.store, spider
        self._dumps: Callable[[Any], Any] = serializer.dumps if serializer else msgpack.encode
        self._loads: Callable[[bytes], Any] = serializer.loads if serializer else msgpack.decode
        start = f"{crawl.store.prefix}queue:{key % {'spider': spider.name}}"
        self._keys = [f"{start}{end}" for end in _KEYS]
        #: Seconds without a look at the queue after which the lease is renewed by itself. The time
        #: for which workers were seen is counted in gaps of two seconds at most.
        self._renewed_after = min(2.0, self.lease / 2)
        #: Claimed requests that the engine is not done with, and their numbers.
        self._held: dict[Request, str] = {}
        #: Numbers of claims that have ended, which Redis has not been told yet.
        self._done: list[str] = []
        self._renewal = compat.Timer(self._keep_renewing)
        #: Entries that Redis has not taken yet, and the keys of their requests (R8).
        self._unsent: deque[tuple[_Entry, str]] = deque()
        #: The host of the last claim, where nothing was sent to it: others need not wait for that.
        self._unused = b""
        self._store.others.append(self._waiting)
        crawl.fleet = True
        crawl.scope.growing = False  # no worker knows when all of them have declared their targets

    def __len__(self) -> int:
        try:
            size = int(self._store.ask(lambda: self._store.exchange(("GET", self._keys[2]))) or 0)
        except StoreAway:
            size = 1  # not known, so the crawl must not end
        return len(self._free) + len(self._unsent) + size

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
        entry = (host, rank, self._encode(request, host), int(first))
        self._unsent.append((entry, key_of(request)))
        crawl.pacing.tell_wait(crawl.pacing.met(host), lambda: request.url)
        if len(self._unsent) < _TOGETHER:
            self._store.send_soon()
        else:
            self._store.send()

    def pop(self, timeout: float = 0) -> Request | None:  # noqa: ARG002
        """A request of a host that is due; None where none is: the engine is woken later."""
        self._settle()
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
                self._timer.set(min(float(data), _POLL))
                if isinstance(self._spider, DueSpiderMixin):
                    compat.call_later(0, self._spider.schedule_next_requests)
                return None
            request = self._taken(number.decode(), data)
            if request is None:
                self._unused = host
                continue
            ticket = self._crawl.tickets.of(request)
            if refuses(self._crawl.gate.at_queue(ticket)):
                self._unused = host
                if ticket.hour_left is not None:
                    self._wait_for(request, ticket, ticket.hour_left)
                    continue
            return self._popped(request)
        self._timer.set(0)
        return None

    def clear(self) -> None:
        """Drop every request, of all workers."""
        try:
            self._store.ask(self._drop)
        except StoreAway as error:
            logger.error("the queue was not cleared: %s", error)

    def _drop(self) -> None:
        client, serial = self._store.link.client, self._keys[3].encode()
        names = client.scan_iter(match=f"{self._keys[0]}:*", count=1000)
        # The serial numbers go on: they name the claims of workers that do not know of this.
        client.delete(self._keys[0], *(name for name in names if name != serial))

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

    # -- entries --------------------------------------------------------------------------
    #
    # An entry is data, whoever wrote it. It names no class: the result is a plain
    # ``scrapy.Request``, and its callbacks are methods of the spider.

    def _encode(self, request: Request, host: str) -> bytes:
        """An entry: a line with the declared target that it belongs to (R6), and the records that
        its worker will read (``scripts.POP``); then the request. *host*: its throttle key.
        ValueError where it cannot be serialised.
        """
        url = request.url
        reads = [
            self._store.key(HOSTS, host),
            self._store.key(SOURCES, urls.key_of(url, form_of(request))),
            self._store.key(DOCUMENTS, ROBOTS, hosts.origin_or_url(url)),
        ]
        head = {"source": self._crawl.scope.source_of(url), "reads": reads}
        fields = self._crawl.intake.kept(request)
        fields.pop("_class", None)
        try:
            data = self._dumps(fields)
        except TypeError as error:
            raise ValueError(
                f"{url} cannot be queued as MessagePack: {error}; see SCHEDULER_SERIALIZER"
            ) from error
        return (
            json.dumps(head).encode() + b"\n" + (data.encode() if isinstance(data, str) else data)
        )

    def _decode(self, data: bytes) -> Request:
        """The request in the entry *data*. Raises any Exception where there is none in it."""
        head, _, body = data.partition(b"\n")
        source, intake = json.loads(head)["source"], self._crawl.intake
        if source is not None and not isinstance(source, str):
            raise ValueError("its source is not text")
        fields = self._loads(body)
        if "_class" in fields:
            raise ValueError("it names a class")
        request = request_from_dict(fields, spider=self._crawl.crawler.spider)
        for method in filter(None, (request.callback, request.errback)):
            ours = inspect.ismethod(method) and method.__self__ is self._spider
            if not ours or method.__name__.startswith("__"):
                raise ValueError(f"{method!r} is not a method of the spider")
        request = intake.request(request)
        intake.resume(request, source)
        return request

    # -- Redis ----------------------------------------------------------------------------

    def _waiting(self) -> list[Waiting]:
        """What Redis is to be told, with the next question: new entries."""
        found, link = [], self._store.link
        if link.epoch and link.word != link.epoch:
            self._crawl.recorder.own_fault(
                f"Redis may have lost what was queued last in {self._keys[0]}, which will not be "
                "sent then: start the crawl again with all that it was given, and let Redis keep "
                "its data (appendonly yes)",
                f"lost {self._keys[0]} {link.word}",
            )
        for unsent in islice(self._unsent, _TOGETHER):
            arguments = [*unsent[0], *self._pace(unsent[0][0])]
            command = link.script(scripts.PUSH, self._keys, arguments)
            found.append(Waiting(command, partial(self._is_queued, unsent)))
        return found

    def _is_queued(self, unsent: tuple[_Entry, str]) -> None:
        """Redis has the entry: whichever worker claims it, its request is not lost."""
        self._unsent.remove(unsent)
        self._crawl.delivery.link_ended(unsent[1])

    def _claim(self) -> tuple[bytes, bytes, bytes]:
        store, patience = self._store, self._crawl.config.patience
        link = store.link
        # The epoch is known once it has connected.
        more = lambda: [patience, store.prefix, link.epoch, link.epoch_key, self._unused]  # noqa: E731
        found = self._run(scripts.POP, more)
        self._unused = b""
        if found is None:
            link.lose("it may have lost records")
            raise StoreAway(link.outage())
        host, number, data, ahead = found
        store.take_ahead(ahead)
        return host, number, data

    def _run(self, script: str, more: Callable[[], Sequence[Any]] = tuple) -> Any:
        """Run *script*, which tells Redis what has become of the claims: its first arguments are
        those of RENEW. *more*: the others, asked for once Redis is connected.
        """
        store, done = self._store, self._done
        under_way = {*compat.under_way(self._crawl.crawler), *(each for _, _, each in self._soon)}
        for request in [each for each in self._held if each not in under_way]:
            done.append(self._held.pop(request))
        # Not before Redis has taken what is to be queued: that may come from one of them.
        ended = 0 if self._unsent else len(done)
        told, left = " ".join(done[:ended]), " ".join([*self._held.values(), *done[ended:]])
        standing = [store.worker, self.lease, told, left, self._crawl.config.min_interval]
        command = partial(store.link.script, script, self._keys)
        found = store.ask(lambda: store.exchange(command([*standing, *more()])))
        del done[:ended]
        if self._renewal.pending:
            self._renewal.set(self._renewed_after)
        return found

    def _renew(self) -> None:
        self._run(scripts.RENEW)

    def _keep_renewing(self) -> None:
        """Renew the lease also while a request is under way and nothing is popped."""
        with suppress(StoreAway):
            self._renew()
        self._renewal.set(self._renewed_after)

    def _taken(self, number: str, data: bytes) -> Request | None:
        """The request in *data*; the claim *number* lasts until the engine is done with it.

        None where *data* cannot be read, or no worker of ours wrote it (no number).
        """
        try:
            if not number:
                raise ValueError("no worker has written it")
            request = self._decode(data)
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

    async def start(self) -> AsyncIterator[Request]:
        """The first batch of the operator's list."""
        for request in self.next_requests():
            yield request

    def next_requests(self) -> Iterator[Request]:
        """The next batch, declared as targets. Entries that give no request are set aside."""
        crawl = Crawl.of(self.crawler)
        if crawl.halted is not None:  # what it takes would be lost
            return
        try:
            entries = self.fetch_data(self.redis_key, self.redis_batch_size)
        except redis.RedisError as error:
            logger.error("the list of URLs cannot be read: %s", error)
            return
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
        """Take the next batch into the queue; what cannot be queued makes the run not well."""
        for request in () if compat.closing(self.crawler) else self.next_requests():
            try:
                compat.crawl(self.crawler, request)
            # Of ``DueQueue.push``, and of scrapy-redis's own filter.
            except (ValueError, redis.RedisError) as error:
                line = f"{request.url} could not be queued, and will not be sent: {error}"
                Crawl.of(self.crawler).recorder.own_fault(line)

    def spider_idle(self) -> None:
        """As ``RedisSpider.spider_idle``; raises DontCloseSpider during an outage too."""
        try:
            super().spider_idle()  # type: ignore[misc]
        except redis.RedisError:
            raise DontCloseSpider from None
