"""R11, R4.6: the store of a fleet's worker: shared records in Redis, and a local store.

Shared are the pacing of hosts, robots.txt, blocklist and schema, deferrals, the last run of each
source, and whether it is still read. They are hashes under ``walsh:{TOKEN}:``, with the fields of
their records (``state.records``) and times by Redis's clock, kept as long as locally. The local
store has all other records, and a copy of the shared ones. While Redis does not answer, the copy is
read, writes are kept until it is back, and no host can be booked. A blocklist is not read from the
copy then, since another worker may have adopted a later list.

A record that cannot be read is set aside under another name, with a line, and Redis then counts
as having lost records: all workers write theirs back, and all hosts count as just requested.

The event loop stands still while Redis answers. So a crawl lets its writes wait (``let_wait``): the
next question to Redis takes them along, ahead of itself, in the same round trip, or ``flush`` sends
them (D20). If Redis does not take a write, it stays in line. Redis runs them in order, so each
question sees the writes before it. The records that a request needs come with its claim
(``scripts.POP``).
"""

from __future__ import annotations

import hashlib
import math
import time
import uuid
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, TypeVar

import redis
from msgspec import MsgspecError, json

from scrapy_walsh.exceptions import StateError, StoreAway, one_line
from scrapy_walsh.fleet import scripts
from scrapy_walsh.fleet.link import BEAT, LONGEST_PAUSE, TIMEOUT, Clock, Command, Link
from scrapy_walsh.policy.throttle import NOTHING
from scrapy_walsh.state.files import newer, without_text
from scrapy_walsh.state.records import (
    BLOCKLIST,
    DEFERRALS,
    DOCUMENTS,
    HOSTS,
    TABLE_OF,
    Booking,
    DamageError,
    Deferral,
    FleetEpoch,
    HostRecord,
    Reading,
    StoredDocument,
    VisitRecord,
    moved,
)
from scrapy_walsh.state.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from scrapy_walsh.state.database import Rewrite
    from scrapy_walsh.state.records import Key, R, Table

T = TypeVar("T")
#: Seconds before a record is read again that was read, or came with a claim.
_AHEAD: Final = 0.1
#: Records that are written back together: Redis takes so many in some milliseconds.
_TOGETHER: Final = 500
#: Seconds between two signs of life of a crawl's store, and after the last to its end.
_SIGN: Final = 10.0
_ALIVE: Final = 60
#: Seconds between two visits to a slow host (D11).
_VISIT: Final = 86_400.0


class Waiting(NamedTuple):
    """A command for Redis that is sent with the next question.

    ``told`` is called once Redis has taken it, and must not ask Redis anything.
    """

    command: Command
    told: Callable[[], object]


class Hashes:
    """The records in the Redis of *link*, as hashes: their names, and how they are written."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def name(self, table: Table[Any], *key: str) -> str:
        """The name of a record; without *key*, what the names of its kind begin with."""
        return f"{self._link.prefix}{table.name.removesuffix('s')}:{' '.join(key)}"

    def book(self, worker: str, record: HostRecord, now: float) -> Command:
        """The command that books the end of a request to a host; *now*: by the steady clock.

        *worker*: the sender; empty if others may have requested the host since.
        """
        taught, visited = moved(record.taught, self._link.to_shared()), record.visited_at
        arguments = [
            *(worker, record.interval, now - record.last_end),
            max(0.0, (record.not_before or now) - now),
            "" if visited is None else now - visited,
            "" if taught == NOTHING else json.encode(taught),
            record.address,
        ]
        return self._link.script(scripts.BOOK, [self.name(HOSTS, record.host)], arguments)

    def put(self, record: Any) -> Command:
        """The command that stores *record*; of a blocklist, Redis notes that there is one."""
        table, link = TABLE_OF[type(record)], self._link
        key, record = table.key_of(record), moved(record, link.to_shared())
        fields = table.hash_of(record)
        if "body" in fields:
            fields["digest"] = hashlib.sha256(fields["body"]).hexdigest()
        latest = table.latest if table.kinds[table.latest] == "Wall" else ""
        seconds = "" if table.kept is None else max(1, math.ceil(table.ends(record) - link.now()))
        noted = [link.epoch_key] if key[0] == BLOCKLIST else []
        arguments = [seconds, latest, fields.get(latest, ""), *chain(*fields.items())]
        return link.script(scripts.PUT, [self.name(table, *key), *noted], arguments)

    def read(self, table: Table[R], key: Key, answer: Any) -> R | None:
        """The record of a hash, None for none; DamageError if it is not as it was written.

        *answer*: of Redis: by the client a dict, from a script names with values.
        """
        fields = answer
        if not isinstance(fields, dict):
            fields = dict(zip(answer[::2], answer[1::2], strict=True))
        body = fields.get(b"body")
        if body is not None and hashlib.sha256(body).hexdigest().encode() != fields.get(b"digest"):
            raise DamageError(f"{table.name}: the text has another digest")
        if not fields:
            return None
        return moved(table.of_hash(key, fields), self._link.to_local())

    def known(self, local: Store, steady: float, wall: float) -> Iterator[Command]:
        """The commands that write the records of *local*: hosts and deferrals if they still bind.

        Another worker may have requested a host since. A robots.txt is fetched again.
        """
        for host in local.rows(HostRecord):
            spaced = max(host.last_end + host.spacing, (host.visited_at or 0.0) + _VISIT)
            if max(host.not_before or 0.0, spaced) > steady or host.taught != NOTHING:
                yield self.book("", host, steady)
        yield from map(self.put, local.rows(VisitRecord))
        yield from map(self.put, local.rows(Reading))
        for deferral in local.rows(Deferral):
            if deferral.due > wall:
                yield self.put(deferral)
        for url in local.list_times(self._link.token):
            document = local.get(StoredDocument, BLOCKLIST, url)
            if document is not None and document.body:
                yield self.put(document)


class SharedStore(Store):
    """A ``Store`` that shares some of its records through the Redis at *url*; see the module.

    *token*: the product token of the workers, which keeps the records of different bots apart.
    *wall*, *steady*: this machine's clocks. :meth:`beat` must be called as often as it asks for.
    Its first call connects. *writes*: whether any record is written, in Redis or here. If not,
    the local copy is read while Redis is away, with a notice. ConfigError for a URL that Redis's
    client cannot use.
    """

    def __init__(
        self,
        local: Store,
        url: str,
        token: str,
        *,
        wall: Clock = time.time,
        steady: Clock = time.time,
        writes: bool = True,
    ) -> None:
        super().__init__()
        self.writes = writes
        self.notices, self.news = local.notices, local.news
        self.worker = uuid.uuid4().hex
        self.link = Link(url, token, wall, steady)
        self.shared, self.prefix = self.link.name, self.link.prefix
        self._local = local
        self._wall, self._steady = wall, steady
        #: The key of the holds that a person has lifted.
        self._lifts = f"{self.prefix}lifted"
        #: By which name this machine keeps the word of that Redis.
        self._place = f"{self.link.name} {self.prefix}"
        epoch = local.get(FleetEpoch, self._place)
        self.link.epoch = "" if epoch is None else epoch.word
        self._hashes = Hashes(self.link)
        #: The name in Redis of a record, and what such names begin with.
        self.key = self._hashes.name
        self._record_names = tuple(self.key(table) for table in TABLE_OF.values() if table.shared)
        #: The host that this worker has booked, while nothing else has it in writing.
        self._under_way: dict[str, tuple[str, HostRecord]] = {}
        #: By name in Redis, records that it does not have yet, because they wait or because it is
        #: away; None if the record is deleted.
        self._unsent: dict[str, Any] = {}
        #: By host, the booking that Redis does not have yet: as :meth:`Hashes.book` takes it.
        self._unbooked: dict[str, tuple[str, HostRecord]] = {}
        #: Functions that return the commands of others that wait; called at each sending.
        self.others: list[Callable[[], Sequence[Waiting]]] = []
        #: After a loss of records: the word of the Redis, and the commands left to write them back.
        self._left: tuple[str, Iterator[Command]] = ("", iter(()))
        self._told: Callable[[], None] | None = None
        #: When a booking last showed that Redis has our records, monotonic seconds.
        self._shown = -math.inf
        #: Monotonic seconds of the last sign of life of this worker.
        self._signed = -math.inf
        #: Records that were just read, or came with a claim, and when; by key in Redis.
        self._ahead: dict[str, tuple[float, Any]] = {}

    @property
    def rows_lost(self) -> bool:
        return self._local.rows_lost

    def follow(self, line: Callable[[], int]) -> int | None:
        # What binds is in Redis, so an older copy here is no loss.
        self._local.follow(line)
        return None

    def prune(self, now: float) -> None:
        self._local.prune(now)  # Redis drops what is old by itself

    def close(self) -> None:
        if self._signed > -math.inf:
            self._told = None
            self._unsent[self._sign_of(self.worker)] = None
        self.send()
        self._local.close()
        self.link.client.close()

    def let_wait(self, told: Callable[[], None]) -> None:
        self._told = told
        self._local.let_wait(told)

    def flush(self) -> None:
        self.send()
        self._local.flush()

    # -- what waits -----------------------------------------------------------------------

    def send_soon(self) -> None:
        """Something waits: send it with the next question, or as soon as ``let_wait`` says."""
        (self._told or self.send)()

    def send(self) -> None:
        """Send what waits; what Redis does not take now goes on waiting."""
        if self.link.away is None and self._waiting():
            with suppress(StoreAway):
                self.ask(self.exchange)

    def exchange(self, *question: Command) -> Any:
        """Send what waits and then *question*, in one round trip; the answer to the last of these.

        To be called within :meth:`ask`. Raises ``redis.RedisError``, also if Redis has refused a
        command that waited.
        """
        waiting = self._waiting()
        commands = [*(entry.command for entry in waiting), *question]
        answers = self.link.exchange(commands)
        for entry, answer in zip(waiting, answers, strict=False):
            if not isinstance(answer, redis.RedisError):
                entry.told()
        for command, answer in zip(commands, answers, strict=True):
            if isinstance(answer, redis.RedisError):
                name = str(command[3] if command[0] == "EVALSHA" else command[1])
                if "WRONGTYPE" in str(answer) and name.startswith(self._record_names):
                    self._set_aside(name, "it is of another type")
                raise answer
        return answers[-1] if answers else None

    def _set_aside(self, name: str, why: object) -> NoReturn:
        """Rename what cannot be read, and count records as lost. Raises ``redis.RedisError``."""
        line = f"{name} in Redis cannot be read ({why})"
        if self.writes:
            self.notices.append(
                f"{line} and is set aside as {self.prefix}aside:...: all hosts count as requested "
                "just now, and a blocklist without another copy is unknown"
            )
            with suppress(redis.ResponseError):  # it is gone meanwhile
                aside = f"{self.prefix}aside:{name.removeprefix(self.prefix)}"
                self.link.client.rename(name, aside)
            self.link.forget()
        raise redis.RedisError(line)

    def _waiting(self) -> list[Waiting]:
        """The commands that wait, in order: the bookings go first."""
        waiting = []
        steady = self._steady()
        for host, booked in self._unbooked.items():
            command = self._hashes.book(*booked, steady)
            waiting.append(Waiting(command, partial(self._unbooked.pop, host)))
        for name, record in self._unsent.items():
            command = ("DEL", name) if record is None else self._hashes.put(record)
            waiting.append(Waiting(command, partial(self._unsent.pop, name)))
        for commands_of in self.others:
            waiting += commands_of()
        now = time.monotonic()
        if self._told is not None and now - self._signed > _SIGN:
            sign = ("SET", self._sign_of(self.worker), "1", "EX", _ALIVE)
            waiting.append(Waiting(sign, partial(setattr, self, "_signed", now)))
        return waiting

    def _sign_of(self, worker: str) -> str:
        """The key that is in Redis while the crawl of *worker* runs."""
        return f"{self.prefix}alive:{worker}"

    def crawls(self) -> int:
        start, scan = self._sign_of(""), self.link.client.scan_iter
        return len(self.ask(lambda: list(scan(match=f"{start}*", count=1000))))

    def tend(self) -> float:
        """Look whether Redis answers and has our records. Returns the seconds to the next look.

        If it may have lost some, our records are written back first. Bookings are written without a
        worker's name, because other workers may have requested the hosts since. So all of them keep
        the spacing.
        """
        link = self.link
        link.asked = True
        try:
            calm = link.greet() if self.writes else link.look()
            if self.writes and link.word != link.epoch:
                if not self._wrote_back():
                    link.lose(
                        "it may have lost records, and the records of this worker are written back"
                    )
                    return 0.0
            elif link.away is not None:
                self.exchange()
        except redis.RedisError as error:
            self._left = "", iter(())  # a part of it may have been lost on its way
            link.lose(error)
            return LONGEST_PAUSE
        if calm > 0:
            link.lose("it may have lost records, so that all hosts are left alone for a while")
            return min(calm + 0.01, LONGEST_PAUSE)
        link.away = None
        return BEAT

    def beat(self) -> float:
        """As :meth:`tend`, unless a booking has just shown the same."""
        seconds = time.monotonic() - self._shown
        if self.link.away is None and seconds < BEAT:
            return BEAT - seconds
        return self.tend()

    def _wrote_back(self) -> bool:
        """Write a part of what is known here to Redis; whether that was the last one."""
        link = self.link
        if self._left[0] != link.word:
            self._left = link.word, self._hashes.known(self._local, self._steady(), self._wall())
            self._unbooked = {
                host: ("", record)
                for host, (_, record) in (self._under_way | self._unbooked).items()
            }
        part = list(islice(self._left[1], _TOGETHER))
        self.exchange(*part)
        if len(part) == _TOGETHER:
            return False
        link.epoch = link.word
        with suppress(StateError):  # of the disk, and said by the next write
            self._local.put(FleetEpoch(self._place, link.word, self._wall()))
        return True

    def ask(self, question: Callable[[], T]) -> T:
        """Call *question*, which calls Redis; connect first. StoreAway without an answer, or while
        Redis is away.
        """
        link, cause = self.link, None
        if not link.asked:
            self.tend()
        if link.away is None:
            try:
                return question()
            except redis.RedisError as error:
                link.lose(error)
                cause = error
        notice = f"{link.outage()}; this machine's copy is read instead"
        if not self.writes and notice not in self.notices:
            self.notices.append(notice)
        raise StoreAway(link.outage()) from cause

    # -- hosts ----------------------------------------------------------------------------

    def reserve_host(
        self, host: str, interval: float, now: float, server: str = "", least: float = 0.0
    ) -> Booking:
        link, key = self.link, self.key(HOSTS, host)
        keys = [key, link.epoch_key, *([self.key(HOSTS, server)] if server else [])]

        def book() -> Booking:
            # Called after ``ask`` has connected, which makes the epoch known.
            arguments = [self.worker, interval, link.epoch, least]
            wait, at, fields, last_at, together = self.exchange(
                link.script(scripts.RESERVE, keys, arguments)
            )
            link.set_time(at)
            if float(wait) < 0:
                raise redis.RedisError("it may have lost records")
            self._shown = time.monotonic()
            record = self._read(HOSTS, (host,), fields)
            rested = max(0.0, float(at) - float(last_at))
            taught = NOTHING if record is None else record.taught
            shared = self._read(HOSTS, (server,), together)
            return Booking(
                float(wait), known=rested < math.inf, rested=rested, taught=taught, server=shared
            )

        booking = self.ask(book)
        self._ahead.pop(key, None)
        if booking.wait == 0:
            record = HostRecord(host, self._steady(), interval, taught=booking.taught)
            self._under_way = {host: (self.worker, record)}
            if booking.server is not None or least:
                together = booking.server or HostRecord(server, now, least)
                self._under_way[server] = self.worker, replace(together, last_end=record.last_end)
        return booking

    def book_host(self, ended: HostRecord) -> None:
        host = ended.host
        end = self._steady()
        until = end + max(0.0, (ended.not_before or 0.0) - ended.last_end)
        visited = None if ended.visited_at is None else end
        if host in self._unbooked:
            _, record = self._unbooked[host]
            until = max(until, record.not_before or 0.0)
            visited = visited or record.visited_at
        booked = replace(ended, last_end=end, not_before=until, visited_at=visited)
        self._unbooked[host] = (self.worker, booked)
        self._under_way.pop(host, None)
        self._ahead.pop(self.key(HOSTS, host), None)
        self.send_soon()  # ``tend`` writes it if Redis is away
        self._local.book_host(ended)

    def lift(self, host: str, reason: str) -> None:
        lifted = json.encode([reason, self.link.now()])
        self.ask(partial(self.exchange, ("HSET", self._lifts, host, lifted)))
        super().lift(host, reason)

    def lifted_elsewhere(self) -> Iterator[tuple[str, str]]:
        try:
            lifts = self.ask(self._all_lifts)
        except StoreAway:
            return  # nothing is sent until Redis is back; the next start looks again (D40)
        for name, lifted in lifts.items():
            host = name.decode(errors="replace")
            try:
                reason, at = json.decode(lifted, type=tuple[str, float])
            except (MsgspecError, UnicodeDecodeError) as error:
                self._cannot_read_lift(error, f"HDEL {self._lifts} {host}")
                continue
            copy = self._local.get(HostRecord, host)
            # A hold that began after that stays.
            if copy and copy.not_before and copy.last_end < self.link.to_local()["Steady"](at):
                yield host, reason
                self._local.lift(host, reason)

    def _all_lifts(self) -> Any:
        try:
            return self.link.client.hgetall(self._lifts)
        except redis.ResponseError as error:
            if "WRONGTYPE" not in str(error):
                raise
            self._cannot_read_lift(error, f"DEL {self._lifts}")
            return {}

    def _cannot_read_lift(self, error: Exception, command: str) -> None:
        """Say which hold stays in force here, because the note that it was lifted is damaged."""
        self.notices.append(
            f"{self._lifts} in Redis cannot be read ({one_line(error, 100)}): a hold that a "
            f"person lifted may stay in force here; redis-cli {command} removes the damaged entry"
        )

    def update_host(self, host: str, change: Rewrite, *, waits: bool = False) -> None:  # noqa: ARG002
        key = self.key(HOSTS, host)

        def exchange(pipe: Any) -> None:
            changed = change(self._read(HOSTS, (host,), pipe.hgetall(key)))
            pipe.multi()
            if changed is not None:
                pipe.eval(scripts.PUT, *self._hashes.put(changed)[2:])

        self.send()
        self._ahead.pop(key, None)
        self.ask(lambda: self.link.client.transaction(exchange, key))

    # -- records --------------------------------------------------------------------------

    def get(self, record: type[R], *key: str) -> R | None:
        """The shared record, or this machine's copy if that is later, or if Redis is away."""
        table, local = TABLE_OF[record], self._local.get(record, *key)
        if not table.shared:
            return local
        is_list = table is DOCUMENTS and key[0] == BLOCKLIST
        try:
            if is_list:
                return self._list_in_force(key[1], local)  # type: ignore[arg-type, return-value]
            shared: R | None = self._look_up(table, key)
        except StoreAway:
            if is_list and self.writes:
                raise
            return local
        if table is DEFERRALS:  # another worker may have dropped it
            return shared
        if shared is None or (local is not None and _is_later(local, shared)):
            return local
        if table is DOCUMENTS and self.writes and _is_later(shared, local):
            self._local.put(shared)
        return shared

    def _list_in_force(self, url: str, local: StoredDocument | None) -> StoredDocument | None:
        """The later of the shared list and *local*, this machine's copy.

        If it is not the latest that any worker has adopted, that one is lost. Then the hosts that
        opted out by it are not known, and the record has no text. Raises StoreAway.
        """
        # Another worker may adopt a list between the two questions, so both are asked once more.
        for _ in range(2):
            shared = self._look_up(DOCUMENTS, (BLOCKLIST, url))
            best = newer(shared, local)
            if self._is_latest(url, best):
                self._spread_list(shared, local, best)
                return best
        return without_text(url)

    def _is_latest(self, url: str, document: StoredDocument | None) -> bool:
        """Whether no worker has adopted a later list than *document*, as Redis has noted."""
        name = self.key(DOCUMENTS, BLOCKLIST, url)
        latest = self.ask(partial(self.exchange, ("HGET", self.link.epoch_key, name)))
        if latest is None:  # no worker has adopted any
            return True
        if document is None or not document.body:
            return False
        adopted_at = self.link.to_local()["Wall"](float(latest))
        return document.fetched_at >= adopted_at - TIMEOUT

    def _spread_list(
        self,
        shared: StoredDocument | None,
        local: StoredDocument | None,
        best: StoredDocument | None,
    ) -> None:
        """Write *best*, one of both copies, in the place of the other if that is older."""
        if not self.writes or best is None or not best.body:
            return
        if best is shared:
            if local is None or not local.body or _is_later(best, local):
                self._local.put(best)
        elif _is_later(best, shared):
            self._share(DOCUMENTS, DOCUMENTS.key_of(best), best)

    def list_times(self, token: str = "") -> dict[str, float]:
        """As any store's. For the lists of this fleet's bot, the notes in Redis count, too."""
        times = self._local.list_times(token)
        if token != self.link.token:
            return times
        start = self.key(DOCUMENTS, BLOCKLIST, "")
        to_local = self.link.to_local()["Wall"]
        try:
            noted = self.ask(partial(self.exchange, ("HGETALL", self.link.epoch_key)))
        except StoreAway:
            if self.writes:
                raise
            return times
        if not isinstance(noted, dict):
            noted = dict(zip(noted[::2], noted[1::2], strict=True))
        for name, latest in noted.items():
            if (key := name.decode()).startswith(start):
                url = key.removeprefix(start)
                times[url] = max(to_local(float(latest)), times.get(url, 0.0))
        return times

    def hold_list(self, document: StoredDocument, adopted_at: float | None = None) -> None:
        # Redis has the lists of one token, and takes this list as soon as it is there.
        self._share(DOCUMENTS, DOCUMENTS.key_of(document), document)
        self._local.hold_list(document, adopted_at)

    def put(self, *records: Any) -> None:
        for record in records:
            table = TABLE_OF[type(record)]
            self._share(table, table.key_of(record), record)
        self._local.put(*records)

    def delete(self, record: type[Any], *key: str) -> None:
        self._share(TABLE_OF[record], key, None)
        self._local.delete(record, *key)

    def _rows(self, table: Table[R], after: Key) -> Iterator[R]:
        """The local records, and those that only Redis has, in key order."""
        rows = {table.key_of(record): record for record in self._local._rows(table, after)}
        with suppress(StoreAway):
            keys = self._shared_keys(table) if table.shared else []
            shared = {key: self.get(table.record, *key) for key in keys if key > after}
            if table is DEFERRALS:  # another worker may have dropped it
                rows = {}
            rows |= {key: record for key, record in shared.items() if record is not None}
        return iter([record for _, record in sorted(rows.items(), key=lambda row: row[0])])

    def _shared_keys(self, table: Table[Any]) -> list[Key]:
        """The keys that Redis has. Raises StoreAway."""
        self.send()
        start, scan = self.key(table), self.link.client.scan_iter
        names = self.ask(lambda: list(scan(match=f"{start}*", count=1000)))
        keys = (name.decode().removeprefix(start) for name in names)
        return [tuple(key.split(" ", len(table.key) - 1)) for key in keys]

    def _look_up(self, table: Table[R], key: Key) -> R | None:
        """The shared record; None if there is none. Raises StoreAway."""
        name = self.key(table, *key)
        now = time.monotonic()
        self._ahead = {key: read for key, read in self._ahead.items() if now - read[0] < _AHEAD}

        def look() -> R | None:
            if name in self._ahead:
                return self._read(table, key, self._ahead[name][1])
            fields = self.exchange(("HGETALL", name))
            if table is not DOCUMENTS:  # a document may be large
                self._ahead[name] = now, fields
            return self._read(table, key, fields)

        return self.ask(look)

    def _read(self, table: Table[R], key: Key, answer: Any) -> R | None:
        """The record in an *answer* of Redis. To be called within :meth:`ask`."""
        try:
            return self._hashes.read(table, key, answer)
        except DamageError as error:
            self._set_aside(self.key(table, *key), error)

    def take_ahead(self, answer: Sequence[Any]) -> None:
        """Keep for a moment the records of a claim: names in turn with values (``scripts.POP``)."""
        names = [name.decode("utf-8", "replace") for name in answer[::2]]
        now = time.monotonic()
        self._ahead = {
            name: (now, fields) for name, fields in zip(names, answer[1::2], strict=True)
        }

    def _share(self, table: Table[Any], key: Key, record: Any) -> None:
        """Write *record* to Redis soon, or delete it for None. A blocklist is written at once."""
        if not self.writes:
            raise NotImplementedError("a view writes nothing")
        if not table.shared:
            return
        self._unsent[self.key(table, *key)] = record
        self._ahead.pop(self.key(table, *key), None)
        if table is DOCUMENTS and key[0] == BLOCKLIST:
            self.send()
        else:
            self.send_soon()


def _is_later(record: R, other: R | None) -> bool:
    """Whether *record* is later than *other*, by more than two looks at two clocks may differ."""
    latest = TABLE_OF[type(record)].latest
    return other is None or getattr(record, latest) - getattr(other, latest) > TIMEOUT
