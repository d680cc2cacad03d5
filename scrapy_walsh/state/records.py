"""The records that a run stores for the next, as frozen values, and their tables (R11).

Each field of a record is declared here, once. The class ``Table`` makes tables, hashes in Redis,
``state show`` and the lifetime of a record from that. The declared type decides how a field is
stored. The types of times are in ``policy.throttle``. If the type is another dataclass, the field
is stored as a JSON object, or as NULL if it has its default. A store does not judge: ``policy``
decides whether a record is fresh, or stale because it lies in the future. The tables, with the
lifetime of each record, are at the end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar, get_type_hints

from msgspec import DecodeError, convert, json

from scrapy_walsh.policy.hints import NO_HINTS, Hints
from scrapy_walsh.policy.readings import Reading
from scrapy_walsh.policy.throttle import NOTHING, Due, Learned, Refusal, Steady, Until, Wall
from scrapy_walsh.policy.urls import REDACTED
from scrapy_walsh.policy.validators import Validators
from scrapy_walsh.policy.visits import REVISIT_FLOOR, Visit, retirement

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

#: Records that policy declares.
__all__ = ["Reading", "Validators"]

R = TypeVar("R")
Key = tuple[str, ...]
Row = tuple[Any, ...]

#: By the declared type of a field, SQLite's type. Any other is a dataclass of its own.
_TYPES: Final = {
    "str": "TEXT",
    "bytes": "BLOB",
    "int": "INTEGER",
    **dict.fromkeys(("float", "Wall", "Due", "Steady", "Until"), "REAL"),
}
#: Seconds: a longer term counts as this, because Redis allows no longer lifetime.
_LONGEST: Final = 3e9


class DamageError(Exception):
    """The file, or a row of it, is damaged."""


def _default(value: object) -> str:
    """The SQL of a column's default; empty if its field has none."""
    if isinstance(value, bytes):
        return f" DEFAULT X'{value.hex()}'"
    return f" DEFAULT {value!r}" if isinstance(value, int | float | str) else ""


@cache
def kinds_of(record: Any) -> dict[str, str]:
    """By field of the class *record*, its declared type, without ``| None``."""
    return {field.name: str(field.type).removesuffix(" | None") for field in fields(record)}


def moved(record: R, converters: Mapping[str, Callable[[float], float]]) -> R:
    """*record* with its times moved to another clock. *converters*: a function by declared type."""
    changes: dict[str, Any] = {}
    record_type: Any = type(record)
    for name, kind in kinds_of(record_type).items():
        value = getattr(record, name)
        if kind in converters and value:  # neither None nor 0, which is no time either
            changes[name] = converters[kind](value)
        elif kind not in _TYPES and value != type(value)():
            changes[name] = moved(value, converters)
    return replace(record, **changes) if changes else record  # type: ignore[type-var]


@dataclass(eq=False)
class Table(Generic[R]):
    """The table of a class of records. Its columns are the record's fields, the key first.

    ``latest``: of two records with the same key, the record with the later value counts. A record
    *binds* until the latest of ``binds``, each a sum of fields. It is stored for ``kept`` seconds
    after that, or for ever if None. ``shared``: a fleet stores it in Redis as well, as long.
    """

    name: str
    record: type[R]
    key: Key
    latest: str
    binds: tuple[Key, ...] = ()
    kept: float | None = None
    shared: bool = False

    def __post_init__(self) -> None:
        """Make the SQL from the declaration. All names in it are this package's own."""
        record_type: Any = self.record
        types = get_type_hints(record_type)
        kinds = kinds_of(record_type)
        # If a key's columns come later, SQLite's check of a table without rowids reports damage.
        self.kinds = {name: kinds[name] for name in dict.fromkeys((*self.key, *kinds))}
        self.columns = tuple(self.kinds)
        #: The place of a column with bodies, which may be large; None without one.
        self.body = self.columns.index("body") if "body" in self.columns else None
        self._nested = {name: types[name] for name in types if is_dataclass(types[name])}
        #: The fields that may be None.
        self._optional = {name for name, hint in types.items() if isinstance(None, hint)}
        loose = self._optional | self._nested.keys()
        #: The SQL definition of each column. Rows that are older than the column have its default
        #: (``state.forms``).
        self.definitions = {name: _TYPES.get(kind, "TEXT") for name, kind in self.kinds.items()}
        defaults = {field.name: field.default for field in fields(record_type)}
        for name in self.definitions.keys() - loose:
            self.definitions[name] += f" NOT NULL{_default(defaults[name])}"
        columns = [f"{name} {definition}" for name, definition in self.definitions.items()]
        table, names, key = self.name, ", ".join(self.columns), ", ".join(self.key)
        marks, key_marks = (", ".join("?" * len(group)) for group in (self.columns, self.key))
        is_key = " AND ".join(f"{name} = ?" for name in self.key)
        #: The reverse order of the key.
        self.back = ", ".join(f"{name} DESC" for name in self.key)
        # WITHOUT ROWID: one tree, without an index that could contradict it after damage.
        self.create = (
            f"CREATE TABLE {table} ({', '.join(columns)}, PRIMARY KEY ({key})) WITHOUT ROWID"
        )
        self.select_all = f"SELECT {names} FROM {table}"  # noqa: S608
        self.select = f"{self.select_all} WHERE {is_key}"
        #: Rows after a key, in key order; a row value compares like a tuple.
        self.page = f"{self.select_all} WHERE ({key}) > ({key_marks}) ORDER BY {key} LIMIT ?"
        #: Writes a row, in place of a row with the same key.
        self.replace = f"INSERT OR REPLACE INTO {table} ({names}) VALUES ({marks})"  # noqa: S608
        self.delete = f"DELETE FROM {table} WHERE {is_key}"  # noqa: S608
        #: Deletes the records that no longer bound at a given time.
        sums = [" + ".join(f"coalesce({name}, 0)" for name in group) for group in self.binds]
        self.prune = f"DELETE FROM {table} WHERE max(0, {', '.join(sums)}) < ?"  # noqa: S608
        #: As :meth:`ends`, in Lua. ``record`` is a table with the fields of a hash.
        terms = [" + ".join(f"term(record.{name})" for name in group) for group in self.binds]
        self.lua_ends = f"math.max({', '.join(terms)}) + {self.kept or 0}"

    def select_from(self, columns: Collection[str]) -> str:
        """The SQL for all rows of a table with *columns*; a column that it lacks is NULL."""
        names = [name if name in columns else f"NULL AS {name}" for name in self.columns]
        return f"SELECT {', '.join(names)} FROM {self.name}"  # noqa: S608

    # -- a record and its values ----------------------------------------------------------

    def key_of(self, record: R) -> Key:
        return tuple([getattr(record, name) for name in self.key])

    def encode(self, record: R) -> Row:
        """The row of *record*; ValueError for a NaN, which SQLite would turn into NULL, and for
        text that is not Unicode.
        """
        values = {name: getattr(record, name) for name in self.columns}
        for name, kind in self._nested.items():
            values[name] = None if values[name] == kind() else json.encode(values[name]).decode()
        for name, value in values.items():
            if isinstance(value, float) and math.isnan(value):
                raise ValueError(f"{self.name}: {name} is not a number")
            if isinstance(value, str):
                value.encode()
        return tuple(values.values())

    def decode(self, row: Iterable[Any], *, strict: bool = True) -> R:
        """The record of *row*. Raises DamageError if a value has another type than was written.

        SQLite itself accepts any type. ``strict``: numbers are numbers, and not text.
        """
        cells = zip(self.columns, row, strict=True)
        try:
            values = {
                name: value for name, value in cells if value is not None or name in self._optional
            }
            for name in self._nested.keys() & values.keys():
                values[name] = json.decode(values[name], type=self._nested[name])
            return convert(values, self.record, strict=strict, builtin_types=(bytes,))
        except (DecodeError, TypeError, UnicodeError) as error:
            raise DamageError(f"{self.name}: a row has a value of another type") from error

    def ends(self, record: R) -> float:
        """The time until which *record* is stored, by the clock of its own times."""
        terms = {name: min(getattr(record, name) or 0.0, _LONGEST) for name in chain(*self.binds)}
        return max(sum(terms[name] for name in group) for group in self.binds) + (self.kept or 0.0)

    # -- Redis ----------------------------------------------------------------------------

    def hash_of(self, record: R) -> dict[str, Any]:
        """The Redis hash of *record*: its fields without the key and without None."""
        cells = zip(self.columns, self.encode(record), strict=True)
        return {
            name: value if isinstance(value, str | bytes) else repr(value)
            for name, value in cells
            if value is not None and name not in self.key
        }

    def of_hash(self, key: Key, members: Mapping[bytes, bytes]) -> R:
        """The record with the *key* and the hash *members*; DamageError as for :meth:`decode`."""
        values = dict(zip(self.key, key, strict=True))
        row = [values.get(name, members.get(name.encode())) for name in self.columns]
        text = (  # ``decode`` raises DamageError if it is no text
            value.decode() if isinstance(value, bytes) and kind != "bytes" else value
            for value, kind in zip(row, self.kinds.values(), strict=True)
        )
        return self.decode(text, strict=False)


ROBOTS: Final = "robots"
BLOCKLIST: Final = "blocklist"
SCHEMA: Final = "schema"

#: Only the bodies of these documents may be stored (D10).
DOCUMENT_KINDS: Final = frozenset({ROBOTS, BLOCKLIST, SCHEMA})


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A robots.txt, blocklist or schema, as it was last fetched.

    ``kind``: one of :data:`DOCUMENT_KINDS`, ValueError otherwise. ``key``: the origin
    (``https://h.test``) of a robots.txt, the URL of the others. ``url``: of the body.
    ``fetched_at``: 0 if that is not known, so that it is not fresh. ``status``: of the last answer,
    None when there was none. ``outcome``: the caller's word for it. ``refresh``: the seconds that
    the document declares, or None. ``tokens``: for a blocklist, the product tokens that loaded it,
    in lower case, separated by spaces. If empty, they are not known, so it counts for each token.
    ``pages``: how often a page came in place of a robots.txt since, a day apart (D44). ``page_at``:
    when the last page came, or None.
    """

    kind: str
    key: str
    url: str
    body: bytes
    fetched_at: Wall
    status: int | None
    outcome: str
    etag: str | None = None
    last_modified: str | None = None
    refresh: float | None = None
    tokens: str = ""
    pages: int = 0
    page_at: Wall | None = None

    def __post_init__(self) -> None:
        if self.kind not in DOCUMENT_KINDS:
            raise ValueError(
                f"no body of kind {self.kind!r} is kept, only {sorted(DOCUMENT_KINDS)}"
            )


@dataclass(frozen=True, slots=True)
class VisitRecord:
    """The last visit of a source, as it is stored (R8).

    ``url``: the source's key (``urls.key_of``): its URL, with the method and a digest of the body
    if the request is no plain GET. ``last_run_at``: when the answered request was sent; 0 if none
    was answered. ``outcome``: the status of the answer, or "". ``reason``: the
    WALSH_REVISIT_REASON that lifted R8. The other fields are those of a :class:`Visit`, but
    ``counted_from`` is None for ``last_run_at``. ``words``: of an answer that has closed its door
    (``visits.words_of``), or "".
    """

    url: str
    last_run_at: Wall
    outcome: str
    reason: str | None = None
    counted_from: Due | None = None
    gave_up_at: Wall | None = None
    revisit: float | None = None
    failures: int = 0
    hints: Hints = NO_HINTS
    words: str = ""

    @property
    def visit(self) -> Visit:
        """The same as a value, by which R8 decides."""
        since = self.last_run_at if self.counted_from is None else self.counted_from
        status = int(self.outcome) if self.outcome.isdecimal() else None
        return Visit(
            self.last_run_at,
            since,
            retirement(status, self.words),
            self.gave_up_at,
            self.revisit,
            self.failures,
            self.hints,
        )

    @property
    def latest(self) -> float:
        """When it was last answered, or last failed."""
        return max(self.last_run_at, self.gave_up_at or 0.0)

    def at(self, now: float) -> VisitRecord:
        """The record as it counts at *now*.

        A visit in the future was made before the clock was put back. It counts as *now*, because it
        may have been a moment ago (D9). The caller must store the result; otherwise it would count
        as *now* at each look.
        """
        if self.latest <= now:
            return self
        counted_from = self.counted_from if self.last_run_at <= now else None
        gave_up_at = None if self.gave_up_at is None else min(self.gave_up_at, now)
        last_run_at = min(self.last_run_at, now)
        return replace(
            self, last_run_at=last_run_at, counted_from=counted_from, gave_up_at=gave_up_at
        )


def without_query(key: str) -> str:
    """The key of a source as a redacted ledger has it: the query is replaced, the form stays."""
    url, blank, form = key.partition(" ")
    path, mark, _ = url.partition("?")
    return f"{path}{REDACTED if mark else ''}{blank}{form}"


@dataclass(frozen=True, slots=True)
class HostRecord:
    """The pacing of a host (R4, R5).

    ``last_end``: when the last request to it ended. While a request is ``under_way`` (1), or if its
    process was killed, it is the time of the booking. ``interval``: seconds between two requests,
    by its robots.txt and the settings, without the learned interval (``taught``, D28).
    ``not_before``: the end of a hold, or None. ``visited_at``: when the last answer ended to a
    target that was sent ahead of the host's Crawl-delay, because that is longer than
    WALSH_PATIENCE; or None. ``silent_since``: when a run found the host silent; None if it was
    never silent, or has answered since (D31). ``address``: that the host was reached at last, or
    empty. The record of a server (``hosts.server_key``) is of the requests to all of its hosts, and
    has their last ``refusal`` (T43).
    """

    host: str
    last_end: Steady
    interval: float
    not_before: Until | None = None
    visited_at: Steady | None = None
    taught: Learned = NOTHING
    silent_since: Steady | None = None
    under_way: int = 0
    address: str = ""
    refusal: Refusal = field(default_factory=Refusal)

    @property
    def spacing(self) -> float:
        """Seconds between two requests to the host, by all that is on record."""
        return max(self.interval, self.taught.in_force)

    def binds(self, now: float) -> bool:
        """Whether the hosts of this server are paced together, although nobody declared it."""
        return self.taught.interval > 0 or (self.not_before or 0.0) > now

    def at(self, now: float) -> HostRecord:
        """The record as it counts at *now*.

        If its last request lies in the future, the clock was set back (D9). Then that counts as
        *now*, and a hold begins anew, as long as it was. The caller must store the result;
        otherwise the hold would begin anew at each look.
        """
        if self.last_end <= now:
            return self
        not_before, visited_at = self.not_before, self.visited_at
        if not_before is not None:
            not_before = max(now, not_before - self.last_end + now)
        if visited_at is not None:
            visited_at = min(visited_at, now)
        return replace(self, last_end=now, not_before=not_before, visited_at=visited_at)


@dataclass(frozen=True, slots=True)
class Deferral:
    """A deferred target. No run requests it before ``due`` (D8).

    ``since``: when a run first deferred it; None if that is not known.
    """

    url: str
    host: str
    due: Due
    reason: str
    since: Wall | None = None


@dataclass(frozen=True, slots=True)
class Attempts:
    """How often a target was retried without a final answer (R5), and when last.

    ``url``: of ``urls.key_of``, as that of :class:`VisitRecord`.
    """

    url: str
    count: int
    last_at: Wall


@dataclass(frozen=True, slots=True)
class SeenItem:
    """An item that a run has emitted, by its canonical URL (R7).

    ``seen_at``: when it was emitted, or, to within a month, when an answer last had it.
    """

    canonical_url: str
    seen_at: Wall


@dataclass(frozen=True, slots=True)
class FleetEpoch:
    """The word of a fleet's Redis as this machine last saw it; a loss changes it (R4.6).

    ``place``: the Redis, and the prefix of our names there.
    """

    place: str
    word: str
    seen_at: Wall


class Booking(NamedTuple):
    """The outcome of booking a host (D20).

    ``wait``: 0 if it is booked; else the seconds until it may be. ``known``: a process has
    requested the host before (T1). ``rested``: seconds since the last request to it by any process;
    infinite if there was none, 0 if that cannot be known. ``taught``: the host's learned
    pace (D28). ``server``: the record of the host's server before, if its hosts are paced together
    (T43).
    """

    wait: float
    known: bool
    rested: float = 0.0
    taught: Learned = NOTHING
    server: HostRecord | None = None


# -- the tables, and how long records stay --------------------------------------------------

_DAY: Final = 86_400.0
#: For promises to hosts, and for R8: longer than a year, because that is the longest interval.
_LONG: Final = 400 * _DAY

DOCUMENTS: Final = Table(  # for ever, because the last known rules stay (T6)
    "documents", StoredDocument, ("kind", "key"), "fetched_at", shared=True
)
#: As long as they are sent. After that a source is fetched in full, and shows its links.
VALIDATORS: Final = Table(
    "validators",
    Validators,
    ("url", "representation", "spider"),
    "stored_at",
    (("stored_at", "lifetime"),),
    0.0,
)
SOURCES: Final = Table(
    "sources",
    VisitRecord,
    ("url",),
    "last_run_at",
    (("last_run_at", "revisit"), ("gave_up_at",)),
    _LONG,
    shared=True,
)
HOSTS: Final = Table(
    "hosts",
    HostRecord,
    ("host",),
    "last_end",
    (("last_end", "interval"), ("not_before",)),
    _LONG,
    shared=True,
)
DEFERRALS: Final = Table("deferrals", Deferral, ("url",), "due", (("due",),), _LONG, shared=True)
#: As long as they count (R5).
ATTEMPTS: Final = Table("attempts", Attempts, ("url",), "last_at", (("last_at",),), REVISIT_FLOOR)
SEEN_ITEMS: Final = Table(
    "seen_items", SeenItem, ("canonical_url",), "seen_at", (("seen_at",),), _LONG
)
READINGS: Final = Table(
    "readings", Reading, ("url",), "declared_at", (("declared_at",),), _LONG, shared=True
)

#: For ever, because there is one for each Redis.
FLEET_EPOCHS: Final = Table("fleet_epochs", FleetEpoch, ("place",), "seen_at")

TABLES: Final[tuple[Table[Any], ...]] = (
    DOCUMENTS,
    VALIDATORS,
    SOURCES,
    HOSTS,
    DEFERRALS,
    ATTEMPTS,
    SEEN_ITEMS,
    READINGS,
    FLEET_EPOCHS,
)
#: The table of each class of records.
TABLE_OF: Final[Mapping[type, Table[Any]]] = {table.record: table for table in TABLES}
