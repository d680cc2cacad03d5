"""R11, R4.6: the store of a fleet's worker: shared records in Redis, and a local store.

Shared are the pacing of hosts, robots.txt, blocklist and schema, deferrals, the last run of each
source, and whether it is still read. They are hashes under ``walsh:{TOKEN}:``, with the fields of
their records (``state.records``) and times by Redis's clock, kept as long as locally. The local
store has all other records, and a copy of the shared ones. While Redis does not answer, the copy is
read, writes are kept until it is back, and no host can be booked.

The event loop stands still while Redis answers. So a crawl lets its writes wait (``let_wait``):
whatever is asked of Redis next takes them along, ahead of itself, in the same round trip, or
``flush`` sends them (D20). What Redis does not take stays in line. Since Redis runs them in order,
every question sees what waited. The records that a request needs come with its claim
(``scripts.POP``).
"""

from __future__ import annotations

import hashlib
import math
import time
import uuid
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import redis
from msgspec import json

from scrapy_walsh.exceptions import StoreAway
from scrapy_walsh.fleet import scripts
from scrapy_walsh.fleet.link import BEAT, LONGEST_PAUSE, TIMEOUT, Command, Link
from scrapy_walsh.policy.throttle import NOTHING, Learned
from scrapy_walsh.state.records import (
    BLOCKLIST,
    DEFERRALS,
    DOCUMENTS,
    HOSTS,
    TABLE_OF,
    Booking,
    DamageError,
    StoredDocument,
    moved,
)
from scrapy_walsh.state.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from scrapy_walsh.state.database import Rewrite
    from scrapy_walsh.state.records import Key, R, Table

#: Bookings of this worker that are kept, in case Redis loses its memory. From this number on those
#: that bind nobody any more are dropped.
_BOOKINGS_KEPT: Final = 1000

#: Seconds for which a record that was read, or came with a claim, is not read again.
_AHEAD: Final = 0.1


class _Booked(NamedTuple):
    """This worker's last request to a host: interval, end of the request, end of the hold.

    The interval is in seconds, the next two in monotonic seconds. ``taught``: what the host has
    taught.
    """

    interval: float
    end: float
    until: float
    taught: Learned = NOTHING


class Waiting(NamedTuple):
    """A command for Redis that nobody waits for, and what is told the answer.

    ``told`` is called once Redis has taken it, and must not ask Redis anything.
    """

    command: Command
    told: Callable[[Any], object]


class SharedStore(Store):
    """A ``Store`` that shares some of its records through the Redis at *url*; see the module.

    :meth:`tend` must be called as often as it asks for. Its first call connects.
    """

    #: Whether anything is written, in Redis or here.
    writes = True

    def __init__(
        self,
        local: Store,
        url: str,
        token: str,
        *,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self.notices = local.notices
        self.prefix = f"walsh:{{{token.lower()}}}:"
        self.worker = uuid.uuid4().hex
        self.link = Link(url, self.prefix, wall, monotonic, steady)
        self.shared = self.link.name
        self._local = local
        self._monotonic = monotonic
        self._booked: dict[str, _Booked] = {}
        self._booked_most = _BOOKINGS_KEPT
        #: Records that Redis does not have yet, because they wait or because it is away.
        self._unsent: dict[tuple[str, Key], tuple[Table[Any], Any]] = {}
        #: Hosts whose booking waits; as which worker's it is written, and if it was a visit (D11).
        self._unbooked: dict[str, tuple[str, bool]] = {}
        #: What else there is that waits: asked whenever something is sent.
        self.others: list[Callable[[], Sequence[Waiting]]] = []
        self._told: Callable[[], None] | None = None
        #: Monotonic seconds at which a booking last showed that Redis has our records.
        self._shown = -math.inf
        #: Records that were just read, or came with a claim, and when; by key in Redis.
        self._ahead: dict[str, tuple[float, Any]] = {}

    @property
    def rows_lost(self) -> bool:
        return self._local.rows_lost

    def prune(self, now: float) -> None:
        self._local.prune(now)  # Redis drops what is old by itself

    def close(self) -> None:
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
        if self._told is None:
            self.send()
        else:
            self._told()

    def send(self) -> None:
        """Send what waits; what Redis does not take now goes on waiting."""
        if self.link.away is None and self._waiting():
            with suppress(StoreAway):
                self.ask(self.exchange)

    def exchange(self, *question: Command) -> Any:
        """Send what waits and then *question*, in one round trip; the answer to the last of these.

        To be called within :meth:`ask`. Raises ``redis.RedisError``, also where Redis has refused
        something that waited.
        """
        waiting = self._waiting()
        answers = self.link.exchange([*(each.command for each in waiting), *question])
        for each, answer in zip(waiting, answers, strict=False):
            if not isinstance(answer, redis.RedisError):
                each.told(answer)
        for answer in answers:
            if isinstance(answer, redis.RedisError):
                raise answer
        return answers[-1]

    def _waiting(self) -> list[Waiting]:
        """What waits, in order: the bookings go first."""
        # ``pop`` drops what was taken; that it is given Redis's answer, too, changes nothing.
        found, now = [], self._monotonic()
        for host, (worker, visit) in self._unbooked.items():
            booked = self._booked[host]
            taught = moved(booked.taught, self.link.to_shared())
            arguments = [
                worker,
                booked.interval,
                now - booked.end,
                max(0.0, booked.until - now),
                int(visit),
                "" if taught == NOTHING else json.encode(taught),
            ]
            command = self.link.script(scripts.BOOK, [self.key(HOSTS, host)], arguments)
            found.append(Waiting(command, partial(self._unbooked.pop, host)))
        for place, (table, record) in self._unsent.items():
            name = self.key(table, *place[1])
            command = ("DEL", name)
            if record is not None:
                command = self.link.script(scripts.PUT, [name], _values(table, record, self.link))
            found.append(Waiting(command, partial(self._unsent.pop, place)))
        for others in self.others:
            found += others()
        return found

    def tend(self) -> float:
        """Look whether Redis answers and has our records. Returns the seconds to the next look.

        What it missed is written to it. Bookings are written without a worker's name, because other
        workers may have requested the hosts since; then everybody keeps the spacing.
        """
        link = self.link
        try:
            found = link.greet()
            if found.forgot or link.away is not None:
                visits = {host: visit for host, (_, visit) in self._unbooked.items()}
                self._unbooked = {host: ("", visits.get(host, False)) for host in self._booked}
                if self._waiting():
                    self.exchange()
        except redis.RedisError as error:
            link.lose(error)
            return link.next_try()
        if found.calm > 0:
            link.lose("it has lost its records, so that all hosts are left alone for a while")
            return min(found.calm + 0.01, LONGEST_PAUSE)
        link.back()
        return BEAT

    def beat(self) -> float:
        """As :meth:`tend`, unless a booking has just shown the same."""
        shown = self._monotonic() - self._shown
        return BEAT - shown if self.link.away is None and shown < BEAT else self.tend()

    def ask(self, question: Callable[[], Any]) -> Any:
        """Call *question*, which calls Redis; connect first. Raises StoreAway without an answer."""
        if not self.link.asked:
            self.tend()
        return self.link.ask(question)

    # -- hosts ----------------------------------------------------------------------------

    def reserve_host(self, host: str, interval: float, now: float) -> Booking:  # noqa: ARG002
        link, key = self.link, self.key(HOSTS, host)
        wait, at, values = self.ask(
            # Called after ``ask`` has connected, which makes the epoch known.
            lambda: self.exchange(
                link.script(
                    scripts.RESERVE,
                    [key, *link.epoch_keys],
                    [self.worker, interval, link.epoch],
                )
            )
        )
        self._ahead.pop(key, None)
        link.set_time(at)
        if float(wait) < 0:
            link.lose("it has lost its records")
            raise StoreAway(link.outage())
        found = _pairs(values)
        record = _record(HOSTS, (host,), found, link)
        taught = NOTHING if record is None else record.taught
        self._shown = self._monotonic()
        if float(wait) == 0:
            self._note(host, interval, 0.0, taught)
        last = float(found.get(b"last_end", b"-inf"))
        return Booking(
            float(wait), known=bool(found), rested=max(0.0, float(at) - last), taught=taught
        )

    def book_host(
        self,
        host: str,
        interval: float,
        now: float,
        hold: float,
        *,
        visit: bool = False,
        taught: Learned = NOTHING,
    ) -> None:
        self._note(host, interval, hold, taught)
        self._unbooked[host] = self.worker, visit or self._unbooked.get(host, ("", False))[1]
        self._ahead.pop(self.key(HOSTS, host), None)
        self.send_soon()  # ``tend`` writes it where Redis is away
        self._local.book_host(host, interval, now, hold, visit=visit, taught=taught)

    def _note(self, host: str, interval: float, hold: float, taught: Learned) -> None:
        now, before = self._monotonic(), self._booked.get(host)
        until = now + hold
        until = max(until, before.until if before else until)
        self._booked[host] = _Booked(interval, now, until, taught)
        if len(self._booked) > self._booked_most:
            self._booked = {
                name: booked
                for name, booked in self._booked.items()
                if max(booked.end + booked.interval, booked.until) > now
                or booked.taught.interval
                or name in self._unbooked
            }
            self._booked_most = max(_BOOKINGS_KEPT, 2 * len(self._booked))

    def update_host(self, host: str, change: Rewrite) -> None:
        key = self.key(HOSTS, host)

        def exchange(pipe: Any) -> None:
            changed = change(_record(HOSTS, (host,), pipe.hgetall(key), self.link))
            pipe.multi()
            if changed is not None:
                pipe.eval(scripts.PUT, 1, key, *_values(HOSTS, changed, self.link))

        self.send()
        self._ahead.pop(key, None)
        self.ask(lambda: self.link.client.transaction(exchange, key))

    # -- records --------------------------------------------------------------------------

    def key(self, table: Table[Any], *key: str) -> str:
        """The name in Redis of a record; without *key*, what the names of its kind begin with."""
        return f"{self.prefix}{table.name.removesuffix('s')}:{' '.join(key)}"

    def get(self, record: type[R], *key: str) -> R | None:
        """The later of the shared record and this machine's copy of it."""
        table, local = TABLE_OF[record], self._local.get(record, *key)
        found: R | None = self._found(table, key)
        if table is DEFERRALS and self.link.away is None:  # another worker may have dropped it
            return found
        if found is not None and _supersedes(table, found, local):
            if table is DOCUMENTS and self.writes:
                self._local.put(found)
            return found
        own = isinstance(local, StoredDocument) and local.kind == BLOCKLIST and local.body
        if own and self.writes and _supersedes(table, local, found):
            self._share(table, key, local)
        return local

    def put(self, *records: Any) -> None:
        for record in records:
            table = TABLE_OF[type(record)]
            self._share(table, table.key_of(record), record)
        self._local.put(*records)

    def delete(self, record: type[Any], *key: str) -> None:
        self._share(TABLE_OF[record], key, None)
        self._local.delete(record, *key)

    def _rows(self, table: Table[R], after: Key | None = None) -> Iterator[R]:
        """The local records, and those that only Redis has, in key order."""
        rows = {table.key_of(record): record for record in self._local._rows(table, after)}
        keys = self._shared_keys(table)
        if table is DEFERRALS and keys is not None:  # another worker may have dropped it
            rows = {key: rows[key] for key in rows.keys() & set(keys)}
        for key in keys or ():
            found = self._found(table, key) if after is None or key > after else None
            if found is not None:
                rows[key] = found
        return iter([record for _, record in sorted(rows.items(), key=lambda row: row[0])])

    def _shared_keys(self, table: Table[Any]) -> list[Key] | None:
        """The keys that Redis has; None where it does not answer, or the table is not shared."""
        if not table.shared:
            return None
        start = self.key(table)
        try:
            self.send()
            scan = self.link.client.scan_iter
            found = self.ask(lambda: list(scan(match=f"{start}*", count=1000)))
        except StoreAway:
            return None
        parts = len(table.key) - 1
        return [tuple(each.decode()[len(start) :].split(" ", parts)) for each in found]

    def _found(self, table: Table[R], key: Key) -> R | None:
        """The shared record; None where there is none, and where Redis does not answer."""
        if not table.shared:
            return None
        name, now = self.key(table, *key), self._monotonic()
        self._ahead = {key: each for key, each in self._ahead.items() if now - each[0] < _AHEAD}
        if name in self._ahead:
            found = self._ahead[name][1]
        else:
            try:
                found = self.ask(lambda: self.exchange(("HGETALL", name)))
            except StoreAway:
                return None
            if table is not DOCUMENTS:  # which may be large
                self._ahead[name] = now, found
        return _record(table, key, _pairs(found), self.link)

    def take_ahead(self, found: Sequence[Any]) -> None:
        """Keep for a moment what came with a claim: names in turn with values (``scripts.POP``)."""
        names = [each.decode("utf-8", "replace") for each in found[::2]]
        now = self._monotonic()
        self._ahead = {name: (now, each) for name, each in zip(names, found[1::2], strict=True)}

    def _share(self, table: Table[Any], key: Key, record: Any) -> None:
        """Write *record* to Redis soon, or delete it for None. A blocklist is written at once."""
        if not self.writes:
            raise NotImplementedError("a view writes nothing")
        if not table.shared:
            return
        self._unsent[table.name, key] = (table, record)
        self._ahead.pop(self.key(table, *key), None)
        if table is DOCUMENTS and key[0] == BLOCKLIST:
            self.send()
        else:
            self.send_soon()


def _pairs(found: Any) -> Mapping[bytes, bytes]:
    """A hash as Redis answers it: by the client a dict, from a script names in turn with values."""
    return found if isinstance(found, dict) else dict(zip(found[::2], found[1::2], strict=True))


def _record(table: Table[R], key: Key, found: Mapping[bytes, bytes], link: Link) -> R | None:
    """The record of the hash *found*; None where there is none, or it is not as it was written."""
    body = found.get(b"body")
    if body is not None and hashlib.sha256(body).hexdigest().encode() != found.get(b"digest"):
        return None
    try:
        return moved(table.of_hash(key, found), link.to_local()) if found else None
    except DamageError:
        return None


def _values(table: Table[R], record: R, link: Link) -> list[Any]:
    """What ``scripts.PUT`` takes: how long to keep *record*, what it must be later than, fields."""
    record = moved(record, link.to_shared())
    fields = table.hash_of(record)
    if "body" in fields:
        fields["digest"] = hashlib.sha256(fields["body"]).hexdigest()
    latest = table.latest if table.kinds[table.latest] == "Wall" else ""
    seconds = "" if table.kept is None else max(1, math.ceil(table.ends(record) - link.now()))
    return [
        seconds,
        latest,
        fields.get(latest, ""),
        *(part for each in fields.items() for part in each),
    ]


def _supersedes(table: Table[R], record: R | None, held: R | None) -> bool:
    """Whether *record* is later than *held*; a list without text counts as older.

    A document that is as old need not be stored again. Of any other record, Redis has what all
    workers know.
    """
    if held is None or record is None:
        return held is None
    slack = -TIMEOUT
    if isinstance(record, StoredDocument) and isinstance(held, StoredDocument):
        if record.kind == BLOCKLIST and bool(record.body) != bool(held.body):
            return bool(record.body)
        slack = TIMEOUT
    later: float = getattr(record, table.latest) - getattr(held, table.latest)
    return later > slack


# R11: a fleet's shared records for a command that only reads: nothing is written anywhere.


class SharedView(SharedStore):
    """A ``SharedStore`` that only reads: the local copy while Redis is away, with a notice."""

    writes = False

    def tend(self) -> float:
        """Ask Redis for its time, and write nothing there."""
        self.link.asked = True
        try:
            seconds, micros = self.link.client.time()
        except redis.RedisError as error:
            self.link.lose(error)
        else:
            self.link.set_time(f"{seconds}.{micros:06}".encode())
        return BEAT

    def ask(self, question: Callable[[], Any]) -> Any:
        """As ``SharedStore.ask``, with a notice where Redis does not answer."""
        try:
            return super().ask(question)
        except StoreAway as error:
            notice = f"{error}; this machine's copy is read instead"
            if notice not in self.notices:
                self.notices.append(notice)
            raise
