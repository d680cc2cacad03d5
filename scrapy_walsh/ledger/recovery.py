"""Brings a state that is older than its ledger up to date (R2 to R5, R8, R11).

An older ``state.sqlite3`` beside today's ledger, or a lost ``-wal``, lacks holds and visits that
bind. The store notes the number of the last ledger line that it knows, in the transaction that
stores the records of that line. So a run reads the lines after that number before its first
request, and stores what binds.

A run writes to the store before each request. So a kill leaves at most one exchange of each run in
the ledger that the store does not know. This is taken over in silence. If a run has two such
exchanges, or has ended, its lines show that the state is older than the ledger.

If a line can be read in two ways, the way with the longer wait is taken. Learned intervals (D28),
validators and readings are not restored, because no promise rests on them.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections import defaultdict
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from msgspec import MsgspecError, json

from scrapy_walsh.exceptions import StateError
from scrapy_walsh.ledger.files import (
    DOCUMENTS,
    FILE,
    HEAD,
    Bodies,
    Line,
    read_head,
    rotated_files,
)
from scrapy_walsh.policy import event as events
from scrapy_walsh.policy import hosts, urls, visits
from scrapy_walsh.policy.robots.fetch import LOST, NO_RULES, PARSE
from scrapy_walsh.policy.urls import REDACTED
from scrapy_walsh.policy.words import plural
from scrapy_walsh.state.database import DATABASE, known_line, read_only
from scrapy_walsh.state.records import (
    BLOCKLIST,
    ROBOTS,
    Deferral,
    HostRecord,
    StoredDocument,
    VisitRecord,
    without_query,
)
from scrapy_walsh.state.store import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from scrapy_walsh.state.database import Rewrite
    from scrapy_walsh.state.store import Store

#: The kinds of lines with something that binds.
_BINDING: Final = frozenset({events.ASKED, events.DEFERRED, events.ADOPTED, events.LIFTED})
#: How many octets of a line have its number, ``{"n":``, as its first member.
_NUMBER: Final = slice(5, 25)


class _Line(Line, frozen=True, kw_only=True):
    """A line, with two members of the line ``started``."""

    look: str | None = None
    token: str = ""


def recover(store: Store, directory: Path, number: Callable[[], int], revisit: float) -> str | None:
    """Store what the ledger in *directory* knows and *store* does not. Returns a line for the log.

    It returns None if the state is not older than the ledger. *number*: gives the number of the
    ledger's last line. *revisit*: WALSH_REVISIT, seconds. Raises StateError.
    """
    last = number()  # before the store's number, because other runs write both
    known = store.follow(number)
    if not isinstance(store, SqliteStore):
        return None
    if known is None or (known > last and known > last_line(directory)):
        store.know(last)  # an earlier version wrote the state, or the ledger has begun anew
        return None
    if known >= last:
        return None
    unknown = Unknown(directory, known, last)
    try:
        unknown.read()
    except OSError as error:
        store.lose()
        raise StateError(f"{directory / FILE} cannot be read: {error}") from error
    _Records(store, unknown, revisit).restore()
    if unknown.gap:
        store.lose()
    return unknown.message()


def last_line(directory: Path) -> int:
    """The number of the last line of the ledger in *directory*; 0 without one."""
    return (read_head(directory / HEAD) or (0,))[0]


def unknown_lines(directory: Path) -> Unknown | None:
    """The lines that the state in *directory* does not know; None if there are none.

    Nothing is written. Without a state or a ledger that can be read, there are none.
    """
    last = last_line(directory)  # before the state's number, because runs write both
    if not last or not (directory / DATABASE).exists():
        return None
    with suppress(sqlite3.Error, OSError), closing(read_only(directory / DATABASE)) as connection:
        known = known_line(connection)
        if known is not None and known[0] < last:
            unknown = Unknown(directory, known[0], last)
            unknown.read()
            return unknown
    return None


def rollback(directory: Path) -> str | None:
    """The line for the log if the state in *directory* is older than its ledger; else None."""
    unknown = unknown_lines(directory)
    return None if unknown is None else unknown.message()


@dataclass
class _Run:
    """One run, as the lines that were read show it.

    ``is_whole``: its first line was read, so all its declared targets are known. ``leads``: by URL
    of a hop, the URL that redirects to it. ``sent``: how many unknown exchanges it has. ``binds``:
    whether it has an unknown line that binds. ``failed``: the sources with a failed visit.
    """

    is_whole: bool = False
    look: bool = False
    token: str = ""
    declared: set[str] = field(default_factory=set)
    leads: dict[str, str] = field(default_factory=dict)
    sent: int = 0
    binds: bool = False
    has_ended: bool = False
    failed: set[str] = field(default_factory=set)

    @property
    def is_lost(self) -> bool:
        """Whether the state is older than this run, and not only one write behind."""
        return self.sent > 1 or (self.binds and self.has_ended)

    def take(self, line: _Line) -> None:
        """Note the start of the run, or a declared target."""
        if line.kind == "started":
            self.is_whole = True
            self.look = line.look is not None
            self.token = line.token.lower()
        elif line.kind == "declared" and line.via:
            self.leads[line.url] = line.via
        elif line.kind == "declared":
            self.declared.add(line.url)

    def sources(self, line: Line) -> Iterator[str]:
        """The keys of the sources that an answer to *line* counts for."""
        url = line.url
        if url in self.declared or not (self.is_whole or url in self.leads):
            yield urls.key_of(url, line.form)
        passed = {url}
        while (url := self.leads.get(url, "")) and url not in passed:
            passed.add(url)
            yield urls.key_of(url)


class Unknown:
    """The lines after line *known*, up to line *last*, of the ledger in *directory*.

    ``lines``: these, and lines before them that declare, oldest first. ``runs``: by their names.
    ``gap``: the reason why lines are missing; empty if none is.
    """

    def __init__(self, directory: Path, known: int, last: int) -> None:
        self.directory = directory
        self.known = known
        self.last = last
        self.lines: list[_Line] = []
        self.runs: dict[str, _Run] = defaultdict(_Run)
        self.gap = ""

    def read(self) -> None:
        """Read the lines. Raises OSError."""
        self.lines = list(self._lines())
        for line in self.lines:
            run = self.runs[line.run]
            if line.n > self.known:
                run.sent += line.kind == events.ASKED
                run.binds |= line.kind in _BINDING
                run.has_ended |= line.kind == "ended"
                if line.kind == "gap" and line.lost:
                    self.gap = f"{plural(line.lost, 'line')} could not be written"

    def message(self) -> str | None:
        """The line for the log, if the state is older than the ledger; else None."""
        if not self.gap and not any(run.is_lost for run in self.runs.values()):
            return None
        requests = sum(run.sent for run in self.runs.values())
        line = (
            f"{self.directory / DATABASE} is older than its ledger: it knows line {self.known} of "
            f"{self.last}; last requests, holds, visits, deferrals and documents are read from the "
            f"lines after it ({plural(requests, 'request')})"
        )
        if self.gap:
            line = (
                f"{line}; {self.gap}, so holds and visits may be unknown, and each host counts as "
                "just requested"
            )
        return f"{line}: keep the files together, and back them up by walsh state backup"

    def _lines(self) -> Iterator[_Line]:
        """The unknown lines; of the lines before them, those that declare, in the same file."""
        number = self.known
        for path in self._files():
            with path.open("rb") as file:
                for raw in file:
                    digits = raw[_NUMBER].partition(b",")[0]
                    is_known = digits.isdigit() and int(digits) <= self.known
                    if is_known and not (b'"declared"' in raw or b'"started"' in raw):
                        continue
                    try:
                        line = json.decode(raw, type=_Line)
                    except (MsgspecError, UnicodeDecodeError):
                        self.gap = "some of its lines cannot be read"
                        continue
                    if line.n > self.last:
                        return
                    if line.n > self.known:
                        if line.n != number + 1:
                            self.gap = f"lines {number + 1} to {line.n - 1} are gone"
                        number = line.n
                    yield line
        if number < self.last:
            self.gap = f"lines {number + 1} to {self.last} are gone"

    def _files(self) -> list[Path]:
        """The files with unknown lines, oldest first."""
        paths = [*rotated_files(self.directory), self.directory / FILE]
        first = 0
        for index, path in enumerate(paths):
            with path.open("rb") as file:
                digits = file.read(_NUMBER.stop)[_NUMBER].partition(b",")[0]
            if digits.isdigit() and int(digits) <= self.known + 1:
                first = index
        return paths[first:]


class _Records:
    """The records that *unknown* lines mean, for *store*."""

    def __init__(self, store: SqliteStore, unknown: Unknown, revisit: float) -> None:
        self._store = store
        self._unknown = unknown
        self._bodies = Bodies(unknown.directory / DOCUMENTS)
        self._revisit = revisit
        self._rewrites: list[tuple[str, Rewrite]] = []
        self._visits: dict[str, VisitRecord] = {}
        #: None if the target was answered, or its host's hold lifted, after it was deferred.
        self._deferrals: dict[str, Deferral | None] = {}
        self._rules: dict[str, Line] = {}
        self._lists: dict[str, Line] = {}

    # -- one line -------------------------------------------------------------------------

    def _take(self, line: _Line, run: _Run) -> None:
        run.take(line)
        if line.n <= self._unknown.known:
            return
        if line.kind == events.ADOPTED:
            if line.requirement == "R2":
                self._rules[hosts.origin(line.url)] = line
            else:
                self._lists[line.url] = line
        elif line.kind == events.ASKED:
            self._rewrites.append((line.host, _end_of(line)))
            if line.purpose == events.TARGET and line.answered and not run.look:
                self._visit(line, run)
        elif line.kind == events.REJECTED and line.wait:  # robots.txt answered 429 (D7)
            self._rewrites.append((line.host, _end_of(line)))
        elif line.kind == events.DEFERRED and line.due is not None:
            self._defer(line, line.due)
            if line.unanswered is not None and line.unanswered.dead and not run.look:
                self._note_visit(line, run, visits.FAILED, line.at)
        elif line.kind == events.LIFTED:
            self._lift(line.host)

    def _defer(self, line: _Line, due: float) -> None:
        key = urls.key_of(line.url, line.form)
        stored = self._store.get(Deferral, key)
        since = line.at if stored is None else stored.since
        self._deferrals[key] = Deferral(key, line.host, due, line.reason, since)

    def _visit(self, line: Line, run: _Run) -> None:
        """Note what an exchange means for its sources (R8)."""
        meaning = visits.of_answer(line.status, unasked=bool(line.unasked))
        # If its run was killed, no spider has taken the answer, so it is sent again (D20, D42).
        if meaning == visits.ANSWERED and not run.is_lost and not run.has_ended:
            return
        self._note_visit(line, run, meaning, line.at - max(0.0, line.ended - line.started))

    def _note_visit(self, line: Line, run: _Run, meaning: str, sent_at: float) -> None:
        for key in run.sources(line):
            stored = self._visits.get(key) or self._store.get(VisitRecord, key)
            before = None if stored is None else stored.visit
            record = stored or VisitRecord(key, 0.0, "")
            if meaning == visits.ANSWERED:
                visit = visits.met(sent_at, before, self._revisit)
                record = VisitRecord(
                    key,
                    sent_at,
                    str(line.status),
                    counted_from=visit.counted_from,
                    revisit=record.revisit,
                    words=line.words,
                )
                self._deferrals[key] = None
            else:  # if a redirect's target has no answer in these lines, its visit has failed
                visit = visits.failed(before, sent_at, again=key in run.failed)
                record = replace(record, gave_up_at=sent_at, failures=visit.failures)
                run.failed.add(key)
            if stored is None or record.latest >= stored.latest:
                self._visits[key] = record

    def _lift(self, host: str) -> None:
        """A person has lifted the hold of *host*, and dropped its deferrals (D40)."""
        self._rewrites.append((host, lambda record: record and replace(record, not_before=None)))
        stored = (deferral for deferral in self._store.rows(Deferral) if deferral.host == host)
        new = (deferral for deferral in self._deferrals.values() if deferral)
        for deferral in [*stored, *(deferral for deferral in new if deferral.host == host)]:
            self._deferrals[deferral.url] = None

    # -- the records ----------------------------------------------------------------------

    def restore(self) -> None:
        """Store them. Raises StateError."""
        for line in self._unknown.lines:
            self._take(line, self._unknown.runs[line.run])
        redacted = any(REDACTED in key for key in self._visits)
        if redacted:
            self._spread()
        deferrals = [deferral for deferral in self._deferrals.values() if deferral is not None]
        dropped = [(Deferral, (key,)) for key, row in self._deferrals.items() if row is None]
        records = [*self._visits.values(), *deferrals, *self._documents()]
        self._restore_lists()  # first, because the next write notes the line
        self._bodies.close()
        last = self._unknown.last
        self._store.take_over(records, self._rewrites, dropped, last, redacted=redacted)

    def _spread(self) -> None:
        """Let a visit without its query count for the stored sources of its host and path.

        The store looks up the others (``SqliteStore``).
        """
        for record in self._store.rows(VisitRecord):
            any_query = self._visits.get(without_query(record.url))
            if "?" in record.url and any_query is not None and record.latest < any_query.latest:
                self._visits[record.url] = replace(any_query, url=record.url)

    def _documents(self) -> Iterator[StoredDocument]:
        """The robots.txt files that were adopted; without text if that is not here any more."""
        for origin, line in self._rules.items():
            stored = self._store.get(StoredDocument, ROBOTS, origin)
            if stored is not None and stored.fetched_at > line.at:
                continue
            body = b"" if line.digest is None else self._bodies.get(line.digest)
            outcome = NO_RULES if line.digest is None else PARSE
            fetched_at = line.at
            if body is None:  # not fresh, and no rules to fall back on: the host waits
                body, outcome, fetched_at = b"", LOST, 0.0
            url = line.document or line.url
            yield StoredDocument(ROBOTS, origin, url, body, fetched_at, line.status, outcome)

    def _restore_lists(self) -> None:
        for url, line in self._lists.items():
            stored = self._store.get(StoredDocument, BLOCKLIST, url)
            if stored is not None:
                is_same = hashlib.sha256(stored.body).hexdigest() == line.digest
                if is_same or stored.fetched_at > line.at:
                    continue
            body = self._bodies.get(line.digest or "")
            if body is None:
                self._store.lose_list(url, line.at)
            else:
                token = self._unknown.runs[line.run].token
                document = StoredDocument(
                    BLOCKLIST, url, url, body, line.at, line.status, "held", tokens=token
                )
                self._store.hold_list(document)


def _end_of(line: Line) -> Rewrite:
    """The change of a host's record by a request that has ended, or by a hold that began."""
    end = line.ended or line.at
    hold = None if line.wait is None else end + line.wait

    def change(record: HostRecord | None) -> HostRecord:
        record = record or HostRecord(line.host, end, line.interval)
        holds = [until for until in (record.not_before, hold) if until is not None]
        return replace(
            record,
            last_end=max(record.last_end, end),
            interval=line.interval or record.interval,
            not_before=max(holds, default=None),
            visited_at=end if line.visit else record.visited_at,
        )

    return change
