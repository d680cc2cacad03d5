"""The queue of a fleet, for scrapy-redis's scheduler, with due times by Redis's clock (R4).

To use it, set ``SCHEDULER_QUEUE_CLASS = "scrapy_walsh.adapters.redis_queue.DueQueue"``. A worker
claims a request for the due host with the most work left. One atomic script does that, so that two
workers never claim the same host within its interval. An unreadable entry is set aside.
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


#: The number of entries that are set aside, and the octets of each.
_ASIDE, _ASIDE_OCTETS = 1000, 64 * 1024


def set_aside(crawl: Crawl, client: Any, key: str, data: bytes, error: Exception) -> None:
    """Move *data*, an unusable entry, to the list *key*:aside, and log the reason.

    The latest entry comes first. The list is for a person; the queue goes on without the entry.
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


#: Host, rank and data of an entry, and 1 if it goes first because it was given out before.
_Entry = tuple[str, int, bytes, int]
#: Seconds between two checks of the queue if no host is due, because others may add requests.
_POLL: Final = 1.0
#: URLs that a worker reads from the operator's list at once.
_BATCH: Final = 1000
#: The most entries that are sent to Redis together, which takes a few milliseconds.
_TOGETHER: Final = 100
_LARGEST_PRIORITY: Final = 10**8
_KEYS: Final = ("", ":waiting", ":size", ":serial", ":workers", ":looked")
#: The most unreadable entries that a pop sets aside.
_UNREADABLE_AT_ONCE: Final = 100


class DueQueue(DueRequests):
    """A queue like ``scrapy_redis.queue.Base``, in the Redis of WALSH_SHARED_STATE.

    Raises ConfigError without that setting. *serializer*: from SCHEDULER_SERIALIZER; the default is
    MessagePack.

    Waiting requests take no memory in the worker. Each entry has its declared target, and is judged
    when it is claimed. No target gives way (D30), because another worker might claim it, and only
    this worker has the exemption (T1).
    """

    #: Seconds without a sign of life after which a worker's claims are put back. It must be longer
    #: than a worker's pauses between two tries to reach Redis.
    lease: float = 60.0
    counted = ("scheduler/dequeued/redis",)

    def __init__(self, server: Any, spider: Spider, key: str, serializer: Any = None) -> None:  # noqa: ARG002
        crawl = Crawl.of(spider.crawler)
        if not isinstance(crawl.store, SharedStore):
            raise ConfigError("DueQueue needs WALSH_SHARED_STATE: set it to the fleet's Redis")
        super().__init__(crawl)
        self._store = crawl.store
        self._spider = spider
        self._dumps: Callable[[Any], Any] = serializer.dumps if serializer else msgpack.encode
        self._loads: Callable[[bytes], Any] = serializer.loads if serializer else msgpack.decode
        start = f"{crawl.store.prefix}queue:{key % {'spider': spider.name}}"
        self._keys = [f"{start}{end}" for end in _KEYS]
        #: Seconds after which a timer renews the lease if nothing was popped. It is at most two
        #: seconds, because the scripts count longer gaps only as two seconds.
        self._renewed_after = min(2.0, self.lease / 2)
        #: The numbers of claims whose requests are under way.
        self._claims: dict[Request, str] = {}
        #: The numbers of ended claims that Redis does not know yet.
        self._ended_claims: list[str] = []
        self._renewal = compat.Timer(self._keep_renewing)
        #: Entries that are not in Redis yet, and the keys of their requests (R8).
        self._unsent: deque[tuple[_Entry, str]] = deque()
        #: The host of the last claim if no request was sent, so that other workers need not wait.
        self._unused_host = b""
        self._store.others.append(self._pending_commands)
        crawl.fleet = True
        crawl.scope.growing = False  # no worker knows when all workers have declared their targets

    def __len__(self) -> int:
        try:
            size = int(self._store.ask(lambda: self._store.exchange(("GET", self._keys[2]))) or 0)
        except StoreAway:
            size = 1  # we do not know, so the crawl must not end
        return len(self._free) + len(self._unsent) + size

    def push(self, request: Request) -> None:
        """Take *request* in. Raises ValueError if it cannot be serialised."""
        crawl = self._crawl
        request = crawl.intake.request(request)
        # A refused request need not wait. R8's record is read later, when the request is claimed.
        answer = crawl.gate.judge(request.url, form_of(request), runs=False)
        if crawl.halted is not None or refuses(answer):
            self._free.append(request)
            return
        host = hosts.host_or_url(request.url)  # the worker that claims it reads its record
        # Retries go first, then by priority. Redis keeps the order of arrival.
        ticket = crawl.tickets.known(request)
        goes_first = ticket is not None and ticket.first
        offset = 0 if goes_first else 10 * _LARGEST_PRIORITY
        rank = offset - max(-_LARGEST_PRIORITY, min(request.priority, _LARGEST_PRIORITY))
        entry = (host, rank, self._encode(request, host), int(goes_first))
        self._unsent.append((entry, key_of(request)))
        crawl.pacing.tell_wait(crawl.pacing.met(host), lambda: request.url)
        if len(self._unsent) < _TOGETHER:
            self._store.send_soon()
        else:
            self._store.send()

    def pop(self, timeout: float = 0) -> Request | None:  # noqa: ARG002
        """Return a request of a due host.

        If no host is due, return None, and wake the engine later.
        """
        self._settle_ended()
        if self._free:
            return self._give_out(self._free.popleft())
        over = self._pop_after_hour()
        if over is not None:
            return self._give_out(over)
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
            request = self._read_claim(number.decode(), data)
            if request is None:
                self._unused_host = host
                continue
            ticket = self._crawl.tickets.of(request)
            if refuses(self._crawl.gate.at_queue(ticket)):
                self._unused_host = host
                if ticket.hour_left is not None:
                    self._wait_for(request, ticket, ticket.hour_left)
                    continue
            return self._give_out(request)
        self._timer.set(0)
        return None

    def clear(self) -> None:
        """Delete the requests of all workers."""
        try:
            self._store.ask(self._drop)
        except StoreAway as error:
            logger.error("the queue was not cleared: %s", error)

    def _drop(self) -> None:
        client = self._store.link.client
        serial = self._keys[3].encode()
        names = client.scan_iter(match=f"{self._keys[0]}:*", count=1000)
        # Keep the serial number, because other workers' claims have numbers from it.
        client.delete(self._keys[0], *(name for name in names if name != serial))

    def stop(self) -> None:
        """Cancel all timers, and give the remaining requests back to Redis."""
        super().stop()
        self._renewal.cancel()
        for _, _, request in self._soon:  # Redis puts back a claim that is neither held nor ended
            del self._claims[request]
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
    # An entry is only data, because anyone may have written it. It cannot name a class: the result
    # is a plain ``scrapy.Request``, and its callbacks are methods of the spider.

    def _encode(self, request: Request, host: str) -> bytes:
        """Return the entry for *request*.

        Its first line has the declared target (R6), and the records that its worker will read
        (``scripts.POP``). The request follows. *host*: its throttle key. Raises ValueError if it
        cannot be serialised.
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
        """Return the request in the entry *data*. Raises any Exception if *data* is unreadable."""
        head, _, body = data.partition(b"\n")
        source = json.loads(head)["source"]
        intake = self._crawl.intake
        if source is not None and not isinstance(source, str):
            raise ValueError("its source is not text")
        fields = self._loads(body)
        if "_class" in fields:
            raise ValueError("it names a class")
        request = request_from_dict(fields, spider=self._crawl.crawler.spider)
        for method in filter(None, (request.callback, request.errback)):
            is_method = inspect.ismethod(method) and method.__self__ is self._spider
            if not is_method or method.__name__.startswith("__"):
                raise ValueError(f"{method!r} is not a method of the spider")
        request = intake.request(request)
        intake.resume(request, source)
        return request

    # -- Redis ----------------------------------------------------------------------------

    def _pending_commands(self) -> list[Waiting]:
        """Return commands for new entries, to be sent with the next commands."""
        commands = []
        link = self._store.link
        if link.epoch and link.word != link.epoch:
            self._crawl.recorder.own_fault(
                f"Redis may have lost the requests that were queued last in {self._keys[0]}: "
                "start the crawl again with all of its URLs, and let Redis keep its data "
                "(appendonly yes)",
                f"lost {self._keys[0]} {link.word}",
            )
        for unsent in islice(self._unsent, _TOGETHER):
            arguments = [*unsent[0], *self._pace(unsent[0][0])]
            command = link.script(scripts.PUSH, self._keys, arguments)
            commands.append(Waiting(command, partial(self._is_queued, unsent)))
        return commands

    def _is_queued(self, unsent: tuple[_Entry, str]) -> None:
        """Note that Redis has the entry, so that its request cannot be lost."""
        self._unsent.remove(unsent)
        self._crawl.delivery.link_ended(unsent[1])

    def _claim(self) -> tuple[bytes, bytes, bytes]:
        store = self._store
        patience = self._crawl.config.patience
        link = store.link
        # The epoch is known only after the connection, so it is read later.
        arguments = lambda: [patience, store.prefix, link.epoch, link.epoch_key, self._unused_host]  # noqa: E731
        reply = self._run(scripts.POP, arguments)
        self._unused_host = b""
        if reply is None:
            link.lose("it may have lost records")
            raise StoreAway(link.outage())
        host, number, data, ahead = reply
        store.take_ahead(ahead)
        return host, number, data

    def _run(self, script: str, arguments: Callable[[], Sequence[Any]] = tuple) -> Any:
        """Run *script*, whose first arguments are those of RENEW: the state of our claims.

        *arguments*: returns the further arguments. It is called after the connection to Redis.
        """
        store = self._store
        ended_claims = self._ended_claims
        under_way = {
            *compat.under_way(self._crawl.crawler),
            *(request for _, _, request in self._soon),
        }
        for request in [request for request in self._claims if request not in under_way]:
            ended_claims.append(self._claims.pop(request))
        # End claims only after the new requests are stored, because these may come from them.
        count = 0 if self._unsent else len(ended_claims)
        ended_numbers = " ".join(ended_claims[:count])
        current_numbers = " ".join([*self._claims.values(), *ended_claims[count:]])
        standing = [
            store.worker,
            self.lease,
            ended_numbers,
            current_numbers,
            self._crawl.config.min_interval,
        ]
        command = partial(store.link.script, script, self._keys)
        reply = store.ask(lambda: store.exchange(command([*standing, *arguments()])))
        del ended_claims[:count]
        if self._renewal.pending:
            self._renewal.set(self._renewed_after)
        return reply

    def _renew(self) -> None:
        self._run(scripts.RENEW)

    def _keep_renewing(self) -> None:
        """Renew the lease while a request is under way and nothing is popped."""
        with suppress(StoreAway):
            self._renew()
        self._renewal.set(self._renewed_after)

    def _read_claim(self, number: str, data: bytes) -> Request | None:
        """Return the request in *data*. Its claim *number* lasts until the engine has finished it.

        Returns None if *data* is unreadable, or has no number because no worker of ours wrote it.
        """
        try:
            if not number:
                raise ValueError("no worker has written it")
            request = self._decode(data)
        except Exception as error:
            set_aside(self._crawl, self._store.link.client, self._keys[0], data, error)
            if number:
                self._ended_claims.append(number)
            return None
        self._claims[request] = number
        if not self._renewal.pending:
            self._renewal.set(self._renewed_after)
        return request

    def _pace(self, key: str) -> tuple[float, float, int]:
        """Return the seconds until a host is due, its interval, and 1 if it goes last."""
        host = self._crawl.pacing.met(key)
        now = self._crawl.monotonic()
        if host is None:  # do not create it, because that takes memory
            return 0.0, self._crawl.config.min_interval, 0
        return host.wait(now), host.traffic.interval, int(host.goes_last(now))


class DueSpiderMixin:
    """A mixin for ``scrapy_redis.spiders.RedisSpider``. It must be the first base class.

    Only URLs from the operator's list in Redis are declared (R6). The list is read when no host is
    due, not only when the queue is empty. An outage of Redis does not end the crawl.
    """

    crawler: Crawler
    redis_batch_size: int | None = _BATCH
    redis_key: str
    server: Any
    fetch_data: Callable[[str, int | None], list[bytes]]

    async def start(self) -> AsyncIterator[Request]:
        """Yield the first batch of the operator's list."""
        for request in self.next_requests():
            yield request

    def next_requests(self) -> Iterator[Request]:
        """Declare and yield the next batch. Entries without a request are set aside."""
        crawl = Crawl.of(self.crawler)
        if crawl.halted is not None:  # the entries would be lost
            return
        try:
            entries = self.fetch_data(self.redis_key, self.redis_batch_size)
        except redis.RedisError as error:
            logger.error("the list of URLs cannot be read: %s", error)
            return
        for entry in entries:
            try:
                requests = [crawl.intake.request(request) for request in self._requests_of(entry)]
            except Exception as error:
                set_aside(crawl, self.server, self.redis_key, entry, error)
                continue
            for request in requests:
                crawl.intake.declare(request)
                crawl.sources.declare(request)
                yield request

    def _requests_of(self, entry: bytes) -> list[Request]:
        result = self.make_request_from_data(entry)  # type: ignore[attr-defined]
        requests = [result] if isinstance(result, Request) else list(result or ())
        if not requests or not all(isinstance(request, Request) for request in requests):
            raise ValueError("no request can be made from it")
        return requests

    def schedule_next_requests(self) -> None:
        """Queue the next batch. If a request cannot be queued, the run fails."""
        for request in () if compat.closing(self.crawler) else self.next_requests():
            try:
                compat.crawl(self.crawler, request)
            # ``DueQueue.push`` and scrapy-redis's filter raise these.
            except (ValueError, redis.RedisError) as error:
                line = f"{request.url} could not be queued, and will not be sent: {error}"
                Crawl.of(self.crawler).recorder.own_fault(line)

    def spider_idle(self) -> None:
        """Call ``RedisSpider.spider_idle``. Raises DontCloseSpider also during an outage."""
        try:
            super().spider_idle()  # type: ignore[misc]
        except redis.RedisError:
            raise DontCloseSpider from None
