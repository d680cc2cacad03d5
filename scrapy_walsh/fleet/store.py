"""R11, R4.6: the store of a fleet's worker: shared records in Redis, and a local store.

Shared are the pacing of hosts, robots.txt, blocklist and schema, deferrals, the last run of each
source, and whether it is still read. They are JSON values under ``walsh:{TOKEN}:``, with times by
Redis's clock. The local store has all other records, and a copy of the shared ones. While Redis
does not answer, the copy is read, writes are kept until it is back, and no host can be booked.

The event loop stands still while Redis answers. So a crawl lets its writes wait (``let_wait``):
whatever is asked of Redis next takes them along, ahead of itself, in the same round trip, or
``flush`` sends them (D20). What Redis does not take stays in line. Since Redis runs them in order,
every question sees what waited. The records that a request needs come with its claim
(``scripts.POP``).
"""

from __future__ import annotations

import hashlib
import json
import math
import time
import uuid
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import redis

from scrapy_walsh.exceptions import StoreAway
from scrapy_walsh.fleet import scripts
from scrapy_walsh.fleet.link import BEAT, LONGEST_PAUSE, TIMEOUT, Command, Link
from scrapy_walsh.policy.learned import NOTHING, Learned
from scrapy_walsh.state.base import Store
from scrapy_walsh.state.records import BLOCKLIST, Booking, HostRecord, StoredDocument
from scrapy_walsh.state.tables import DEFERRALS, DOCUMENTS, HOSTS, READINGS, SOURCES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from scrapy_walsh.state.tables import Key, R, Table

#: Bookings of this worker that are kept, in case Redis loses its memory. From this number on those
#: that bind nobody any more are dropped.
_BOOKINGS_KEPT: Final = 1000

#: Seconds for which a record that was read, or came with a claim, is not read again.
_AHEAD: Final = 0.1

_DAY: Final = 86400
#: The shared tables: the field that has the time of a record, and for how many seconds it is kept.
_SHARED: Final[dict[str, tuple[str, int]]] = {
    HOSTS.name: ("last_end", scripts.HOST_TTL),
    DOCUMENTS.name: ("fetched_at", 90 * _DAY),
    SOURCES.name: ("last_run_at", 30 * _DAY),
    DEFERRALS.name: ("due", 30 * _DAY),
    READINGS.name: ("declared_at", 90 * _DAY),
}
#: Other fields with times. Records of version 0.1.0 do not have them.
_OTHER_TIMES: Final = ("counted_from", "since")


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
    """Commands for Redis that nobody waits for, and what is told the answer to the last of them.

    ``told`` is called once Redis has taken them all, and must not ask Redis anything.
    """

    commands: Sequence[Command]
    told: Callable[[Any], object]


class SharedStore(Store):
    """A ``Store`` that shares some of its records through the Redis at *url*; see the module.

    :meth:`tend` must be called as often as it asks for. Its first call connects.
    """

    def __init__(
        self,
        local: Store,
        url: str,
        token: str,
        *,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self.notices = local.notices
        self.prefix = f"walsh:{{{token.lower()}}}:"
        self.worker = uuid.uuid4().hex
        self.link = Link(url, self.prefix, wall, monotonic)
        self.shared = self.link.name
        self._local = local
        self._wall, self._monotonic = wall, monotonic
        self._booked: dict[str, _Booked] = {}
        self._booked_most = _BOOKINGS_KEPT
        #: Records that Redis does not have yet, because they wait or because it is away.
        self._unsent: dict[tuple[str, Key], tuple[Table[Any], Any]] = {}
        #: Hosts whose booking waits, and whether it was a visit (D11).
        self._unbooked: dict[str, bool] = {}
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
        sent = [command for each in waiting for command in each.commands]
        answers = self.link.exchange([*sent, *question])
        taken = iter(answers)
        for each in waiting:
            found = [next(taken) for _ in each.commands]
            if not any(isinstance(answer, redis.RedisError) for answer in found):
                each.told(found[-1])
        for answer in answers:
            if isinstance(answer, redis.RedisError):
                raise answer
        return answers[-1]

    def _waiting(self) -> list[Waiting]:
        """What waits, in order: the bookings go first."""
        # ``pop`` drops what was taken; that it is given Redis's answer, too, changes nothing.
        found = [
            Waiting(
                [self._booking(host, self.worker, visit=visit)], partial(self._unbooked.pop, host)
            )
            for host, visit in self._unbooked.items()
        ]
        for place, (table, record) in self._unsent.items():
            commands = self._commands(table, place[1], record)
            found.append(Waiting(commands, partial(self._unsent.pop, place)))
        for others in self.others:
            found += others()
        return found

    def tend(self) -> float:
        """Look whether Redis answers and has our records. Returns the seconds to the next look."""
        link = self.link
        try:
            found = link.greet()
            if found.forgot or link.away is not None:
                self._tell()
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

    def _tell(self) -> None:
        """Write to Redis what it missed.

        Bookings are written without a worker's name, because other workers may have requested the
        hosts since; then everybody keeps the spacing.
        """
        self._unbooked.clear()
        for host in self._booked:
            self.exchange(self._booking(host, ""))
        if self._waiting():
            self.exchange()

    def _booking(self, host: str, worker: str, *, visit: bool = False) -> Command:
        """The command that writes this worker's last request to *host*, as made by *worker*."""
        now, booked = self._monotonic(), self._booked[host]
        age, hold = now - booked.end, max(0.0, booked.until - now)
        taught = _field_of(booked.taught, self.link)
        arguments = [worker, booked.interval, age, hold, int(visit), taught]
        return self.link.script(scripts.BOOK, [self.host_key(host)], arguments)

    def ask(self, question: Callable[[], Any]) -> Any:
        """Call *question*, which calls Redis; connect first. Raises StoreAway without an answer."""
        if not self.link.asked:
            self.tend()
        return self.link.ask(question)

    # -- hosts ----------------------------------------------------------------------------

    def reserve_host(self, host: str, interval: float, now: float) -> Booking:  # noqa: ARG002
        link = self.link
        key = self.host_key(host)
        wait, known, at, last, taught = self.ask(
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
        found = _taught_in(taught, self.link)
        self._shown = self._monotonic()
        if float(wait) == 0:
            self._note(host, interval, 0.0, found)
        rested = max(0.0, float(at) - float(last)) if known else math.inf
        return Booking(float(wait), known=bool(known), rested=rested, taught=found)

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
        self._unbooked[host] = visit or self._unbooked.get(host, False)
        self._ahead.pop(self.host_key(host), None)
        self.send_soon()  # ``_tell`` writes it where Redis is away
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

    def update_host(
        self, host: str, change: Callable[[HostRecord | None], HostRecord | None]
    ) -> None:
        key = self.host_key(host)

        def exchange(pipe: Any) -> None:
            changed = change(self._host_record(host, pipe.hgetall(key)))
            pipe.multi()
            if changed is not None:
                pipe.hset(key, mapping=self._host_fields(changed))
                pipe.expire(key, scripts.HOST_TTL)

        self.send()
        self._ahead.pop(key, None)
        self.ask(lambda: self.link.client.transaction(exchange, key))

    def host_key(self, host: str) -> str:
        """The key in Redis of the record of *host*."""
        return self._key(HOSTS, (host,))

    def _host_record(self, host: str, found: dict[bytes, bytes]) -> HostRecord | None:
        if b"last" not in found:
            return None
        until, visited, silent = (found.get(name) for name in (b"until", b"visited", b"silent"))
        record = HostRecord(
            host,
            self.link.past_to_local(float(found[b"last"])),
            float(found.get(b"interval", 0.0)),
            None if until is None else self.link.to_local(float(until)),
            visited_at=None if visited is None else self.link.past_to_local(float(visited)),
            silent_since=self.link.past_to_local(float(silent)) if silent else None,
        )
        return record.with_taught(_taught_in(found.get(b"taught", b""), self.link))

    def _host_fields(self, record: HostRecord) -> dict[str, Any]:
        to_shared = self.link.to_shared
        fields = {"last": to_shared(record.last_end), "interval": record.interval, "by": ""}
        fields["taught"] = _field_of(record.taught, self.link)
        silent = record.silent_since
        fields["silent"] = "" if silent is None else to_shared(silent)
        if record.not_before is not None:
            fields["until"] = to_shared(record.not_before)
        if record.visited_at is not None:
            fields["visited"] = to_shared(record.visited_at)
        return fields

    # -- documents ------------------------------------------------------------------------

    def _newest(self, key: Key) -> StoredDocument | None:
        """The later of the shared and the local one; a local blocklist that is later is shared."""
        local, found = self._local.get(StoredDocument, *key), self._found(DOCUMENTS, key)
        if found is not None and supersedes(found, local):
            self._local.put(found)
            return found  # type: ignore[no-any-return]
        own = local is not None and local.kind == BLOCKLIST and bool(local.body)
        if local is not None and own and (not found or supersedes(local, found)):
            self._share(DOCUMENTS, key, local)
        return local

    def _put_document(self, name: str, document: StoredDocument) -> Command:
        at, ttl = self.link.to_shared(document.fetched_at), _SHARED[DOCUMENTS.name][1]
        fields = asdict(replace(document, fetched_at=at, body=b""))
        del fields["body"]
        digest = hashlib.sha256(document.body).hexdigest()
        arguments = [f"{at:.6f}", ttl, json.dumps(fields), digest, document.body]
        return self.link.script(scripts.PUT_DOCUMENT, [name], arguments)

    def _document(self, fields: dict[bytes, bytes]) -> StoredDocument | None:
        """The document in *fields*; None where its body does not have the digest beside it."""
        body = fields.get(b"body")
        if body is None or hashlib.sha256(body).hexdigest().encode() != fields.get(b"sha256"):
            return None
        return self._decoded(DOCUMENTS, {**json.loads(fields[b"record"]), "body": body})

    # -- other records --------------------------------------------------------------------

    def _get(self, table: Table[R], key: Key) -> R | None:
        if table.record is StoredDocument:
            return cast("R | None", self._newest(key))
        found: R | None = self._found(table, key)
        if table is DEFERRALS and self.link.away is None:  # another worker may have dropped it
            return found
        local = self._local.get(table.record, *key)
        if found is None or local is None:
            return found or local
        name = _SHARED[table.name][0]
        return max(found, local, key=lambda record: float(getattr(record, name)))

    def _put(self, table: Table[R], records: Sequence[R]) -> None:
        for record in records:
            self._share(table, table.key_of(record), record)
        self._local.put(*records)

    def _delete(self, table: Table[Any], keys: Sequence[Key]) -> None:
        for key in keys:
            self._share(table, key, None)
            self._local.delete(table.record, *key)

    def _rows(self, table: Table[R], after: Key | None = None) -> Iterator[R]:
        """The local records, and those that only Redis has, in key order."""
        rows = {table.key_of(record): record for record in self._local._rows(table, after)}
        for key in self._shared_keys(table):
            found = self._found(table, key) if after is None or key > after else None
            if found is not None:
                rows[key] = found
        return iter([record for _, record in sorted(rows.items(), key=lambda row: row[0])])

    def _shared_keys(self, table: Table[Any]) -> list[Key]:
        if table.name not in _SHARED:
            return []
        start = self._key(table, ())
        try:
            self.send()
            scan = self.link.client.scan_iter
            found = self.ask(lambda: list(scan(match=f"{start}*", count=1000)))
        except StoreAway:
            return []
        parts = len(table.key) - 1
        return [tuple(each.decode()[len(start) :].split(" ", parts)) for each in found]

    def _key(self, table: Table[Any], key: Key) -> str:
        return f"{self.prefix}{table.name.removesuffix('s')}:{' '.join(key)}"

    def _found(self, table: Table[Any], key: Key) -> Any:
        """The shared record; None where there is none, and where Redis does not answer."""
        if table.name not in _SHARED:
            return None
        try:
            return self._read(table, key)
        except StoreAway:
            return None
        except (KeyError, TypeError, ValueError):  # written by another version, or damaged
            return None

    def _read(self, table: Table[Any], key: Key) -> Any:
        name, hashed = self._key(table, key), table in (HOSTS, DOCUMENTS)
        now = self._monotonic()
        self._ahead = {key: each for key, each in self._ahead.items() if now - each[0] < _AHEAD}
        if name in self._ahead:
            found = self._ahead[name][1]
        else:
            command = "HGETALL" if hashed else "GET"
            found = self.ask(lambda: self.exchange((command, name)))
            if table is not DOCUMENTS:  # which may be large
                self._ahead[name] = now, found
        if table is HOSTS:
            return self._host_record(key[0], found)
        if table is DOCUMENTS:
            return self._document(found)
        return None if found is None else self._decoded(table, json.loads(found))

    def take_ahead(self, found: Sequence[Any]) -> None:
        """Keep for a moment what came with a claim: names in turn with values (``scripts.POP``)."""
        values = [
            dict(zip(each[::2], each[1::2], strict=True)) if isinstance(each, list) else each
            for each in found[1::2]
        ]
        names = [each.decode("utf-8", "replace") for each in found[::2]]
        now = self._monotonic()
        self._ahead = {name: (now, each) for name, each in zip(names, values, strict=True)}

    def _decoded(self, table: Table[R], fields: dict[str, Any]) -> R:
        name = _SHARED[table.name][0]
        convert = self.link.to_local if table is DEFERRALS else self.link.past_to_local
        times = {name: convert(float(fields[name]))}
        for other in _OTHER_TIMES:
            if fields.get(other) is not None:
                times[other] = self.link.to_local(float(fields[other]))
        return table.record(**{**fields, **times})

    def _share(self, table: Table[Any], key: Key, record: Any) -> None:
        """Write *record* to Redis soon, or delete it for None. A blocklist is written at once."""
        if table.name not in _SHARED:
            return
        self._unsent[table.name, key] = (table, record)
        self._ahead.pop(self._key(table, key), None)
        if table is DOCUMENTS and key[0] == BLOCKLIST:
            self.send()
        else:
            self.send_soon()

    def _commands(self, table: Table[Any], key: Key, record: Any) -> list[Command]:
        """What writes *record* to Redis, or deletes it for None."""
        name = self._key(table, key)
        if record is None:
            return [("DEL", name)]
        if table is HOSTS:
            fields = [part for field in self._host_fields(record).items() for part in field]
            return [("HSET", name, *fields), ("EXPIRE", name, scripts.HOST_TTL)]
        if table is DOCUMENTS:
            return [self._put_document(name, record)]
        field, ttl = _SHARED[table.name]
        at = getattr(record, field)
        members = asdict(record)
        for each in (field, *_OTHER_TIMES):
            if members.get(each) is not None:
                members[each] = self.link.to_shared(members[each])
        text = json.dumps(members)
        ahead = min(max(0.0, at - self._wall()), 100.0 * ttl)
        return [("SET", name, text, "EX", ttl + int(ahead))]


def supersedes(document: StoredDocument, held: StoredDocument | None) -> bool:
    """Whether *document* was fetched later than *held*; a list without text counts as older."""
    if held is None:
        return True
    if document.kind == BLOCKLIST and bool(document.body) != bool(held.body):
        return bool(document.body)
    return document.fetched_at > held.fetched_at + TIMEOUT


def _taught_in(field: bytes, link: Link) -> Learned:
    """What a host has taught, as *field* of its record in Redis has it (D28)."""
    try:
        interval, accepted, calm, at = map(float, field.split())
        return Learned(interval, accepted, int(calm), link.past_to_local(at))
    except (ValueError, OverflowError):  # empty, or no worker of ours wrote it
        return NOTHING


def _field_of(taught: Learned, link: Link) -> str:
    """As :func:`_taught_in` reads it; empty for nothing."""
    if taught.calm is None:
        return ""
    return f"{taught.interval!r} {taught.accepted!r} {taught.calm} {link.to_shared(taught.at):.6f}"


# R11: a fleet's shared records for a command that only reads: nothing is written anywhere.


class SharedView(SharedStore):
    """A ``SharedStore`` that only reads: the local copy while Redis is away, with a notice."""

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

    def _newest(self, key: Key) -> StoredDocument | None:
        """The later of the shared document and the local one."""
        local, found = self._local.get(StoredDocument, *key), self._found(DOCUMENTS, key)
        return found if found is not None and supersedes(found, local) else local

    def _rows(self, table: Table[R], after: Key | None = None) -> Iterator[R]:
        rows = list(super()._rows(table, after))
        shared = set(self._shared_keys(table)) if table is DEFERRALS else set()
        if table is DEFERRALS and self.link.away is None:  # another worker may have dropped it
            rows = [row for row in rows if table.key_of(row) in shared]
        return iter(rows)

    def _share(self, table: Table[Any], key: Key, record: Any) -> None:
        raise NotImplementedError("a view writes nothing")
