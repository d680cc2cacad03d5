"""R11, R4.6: a fleet's records as hashes in Redis: their names, and the commands that write them.

A hash has the fields of its record (``state.records``); its times are by Redis's clock.
"""

from __future__ import annotations

import hashlib
import math
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import json

from scrapy_walsh.fleet import scripts
from scrapy_walsh.policy.throttle import NOTHING, Learned
from scrapy_walsh.state.records import (
    BLOCKLIST,
    TABLE_OF,
    TABLES,
    DamageError,
    Deferral,
    HostRecord,
    Reading,
    SourceRun,
    StoredDocument,
    moved,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scrapy_walsh.fleet.link import Command, Link
    from scrapy_walsh.state.records import Key, R, Table
    from scrapy_walsh.state.store import Store

#: By what a name in Redis has after the prefix, the table.
_KINDS: Final = {table.name.removesuffix("s"): table for table in TABLES if table.shared}
#: Seconds for which a visit to a slow host binds (D11).
_VISIT: Final = 86_400.0


class Booked(NamedTuple):
    """A worker's last request to a host: interval, end of the request, end of the hold.

    ``worker``: empty where others may have requested the host since. ``visited``: when a target
    last went ahead of the Crawl-delay (D11). Times are steady, the interval is in seconds.
    """

    worker: str
    interval: float
    end: float
    until: float
    visited: float | None
    taught: Learned = NOTHING


class Hashes:
    """The records in the Redis of *link*."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def name(self, table: Table[Any], *key: str) -> str:
        """The name of a record; without *key*, what the names of its kind begin with."""
        return f"{self._link.prefix}{table.name.removesuffix('s')}:{' '.join(key)}"

    def named(self, name: str) -> tuple[Table[Any], Key] | None:
        """The table and the key of the record with this name; None where it is none."""
        kind, _, rest = name.removeprefix(self._link.prefix).partition(":")
        table = _KINDS.get(kind)
        return None if table is None else (table, tuple(rest.split(" ", len(table.key) - 1)))

    def book(self, host: str, booked: Booked, now: float) -> Command:
        """The command that books the end of a request; *now*: by the steady clock."""
        taught = moved(booked.taught, self._link.to_shared())
        arguments = [
            *(booked.worker, booked.interval, now - booked.end, max(0.0, booked.until - now)),
            "" if booked.visited is None else now - booked.visited,
            "" if taught == NOTHING else json.encode(taught),
        ]
        name = self.name(TABLE_OF[HostRecord], host)
        return self._link.script(scripts.BOOK, [name], arguments)

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

    def read(self, table: Table[R], key: Key, found: Any) -> R | None:
        """The record of a hash, None for none; DamageError where it is not as it was written.

        *found*: as Redis answers it: by the client a dict, from a script names with values.
        """
        pairs: Mapping[bytes, bytes] = found
        if not isinstance(found, dict):
            pairs = dict(zip(found[::2], found[1::2], strict=True))
        body = pairs.get(b"body")
        if body is not None and hashlib.sha256(body).hexdigest().encode() != pairs.get(b"digest"):
            raise DamageError(f"{table.name}: the text has another digest")
        return moved(table.of_hash(key, pairs), self._link.to_local()) if pairs else None

    def known(self, local: Store, steady: float, wall: float) -> Iterator[Command]:
        """The commands that write what *local* knows: of hosts and deferrals what still binds.

        Somebody else may have requested a host since. A robots.txt is fetched again.
        """
        for host in local.rows(HostRecord):
            held, visited = host.not_before or 0.0, host.visited_at
            spaced = max(host.last_end + host.spacing, (visited or 0.0) + _VISIT)
            if max(held, spaced) > steady or host.taught != NOTHING:
                booked = Booked("", host.interval, host.last_end, held, visited, host.taught)
                yield self.book(host.host, booked, steady)
        for each in chain(local.rows(SourceRun), local.rows(Reading)):
            yield self.put(each)
        for deferral in local.rows(Deferral):
            if deferral.due > wall:
                yield self.put(deferral)
        for document in local.rows(StoredDocument, BLOCKLIST):
            if document.body:
                yield self.put(document)
